//! How a command ends: an exit code, and an error told to people.

use std::{fmt, io, path::Path, process::ExitCode};

use shelfscan_gallery::GalleryError;
use shelfscan_hub::Error as HubError;
use shelfscan_inference_core::InferenceError;
use shelfscan_pipeline::PipelineError;
use shelfscan_video::VideoError;

use crate::printer::Printer;

/// How to say where ffmpeg is.
pub(crate) const FFMPEG_HINT: &str =
    "name the program with --ffmpeg PATH or SHELFSCAN_FFMPEG=PATH; much is read without it";

/// The exit codes, listed in `docs/reference/cli.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for is done.
    Done = 0,
    /// A source failed or is incomplete, or a check failed.
    Failed = 1,
    /// The command line or the configuration cannot be met; nothing was done.
    Usage = 2,
    /// Something went wrong that the command line is not to blame for.
    Unexpected = 3,
    /// Stopped from outside, with results that can be resumed.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command line or configuration that cannot be met, with what to do instead.
#[derive(Debug)]
pub(crate) struct Usage {
    message: String,
    hint: Option<String>,
}

impl Usage {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// A folder that cannot be listed.
    pub(crate) fn unlisted(folder: &Path, error: &io::Error) -> Self {
        Self::new(format!(
            "the folder cannot be listed ({error}): {}",
            folder.display()
        ))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Usage {}

/// Nobody reads standard output any more, as after `| head -1`.
#[derive(Debug)]
pub(crate) struct ClosedOutput;

impl fmt::Display for ClosedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ClosedOutput {}

/// Tells people about an error and decides the exit code.
pub(crate) fn report(error: &anyhow::Error, printer: &Printer) -> Exit {
    if error.is::<ClosedOutput>() {
        return Exit::Done;
    }
    let mut shown = error.to_string();
    printer.error(&shown);
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Many messages quote their cause already.
        if !shown.contains(&cause) {
            printer.cause(&cause);
            shown = cause;
        }
    }
    if let Some(hint) = hint(error) {
        printer.hint(&hint);
    }
    code(error)
}

fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(hint) = error
        .chain()
        .find_map(|e| e.downcast_ref::<Usage>()?.hint.clone())
    {
        return Some(hint);
    }
    if let Some(option) = error.chain().find_map(raised_by) {
        return Some(option.into());
    }
    let about_ffmpeg = error.chain().any(|e| {
        e.downcast_ref::<VideoError>()
            .is_some_and(VideoError::is_about_ffmpeg)
    });
    about_ffmpeg.then(|| FFMPEG_HINT.into())
}

/// The option that moves the limit an error is about.
fn raised_by(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    match error.downcast_ref() {
        Some(PipelineError::Source(source)) => return raised_by(source),
        Some(PipelineError::Gallery(gallery)) => return raised_by(gallery),
        _ => {}
    }
    match error.downcast_ref() {
        Some(VideoError::PictureTooLarge { .. } | VideoError::PictureHeavy { .. }) => {
            return Some("--max-pixels N allows larger pictures");
        }
        Some(VideoError::Stalled { .. }) => return Some("--stall-secs SECS waits longer"),
        _ => {}
    }
    match error.downcast_ref() {
        Some(GalleryError::TooManyViews { .. }) => Some("--max-views N allows more views"),
        _ => None,
    }
}

fn code(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return Exit::Usage;
        }
        if let Some(error) = cause.downcast_ref::<PipelineError>() {
            return of_pipeline(error);
        }
        if let Some(error) = cause.downcast_ref::<VideoError>() {
            return of_video(error);
        }
        if let Some(error) = cause.downcast_ref::<GalleryError>() {
            return of_gallery(error);
        }
        if let Some(error) = cause.downcast_ref::<InferenceError>() {
            return of_inference(error);
        }
        if let Some(error) = cause.downcast_ref::<HubError>() {
            return of_hub(error);
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return of_io(error);
        }
    }
    Exit::Unexpected
}

fn of_pipeline(error: &PipelineError) -> Exit {
    match error {
        PipelineError::Usage(_) | PipelineError::Output { .. } => Exit::Usage,
        PipelineError::Record { .. } => Exit::Failed,
        PipelineError::Source(error) => of_video(error),
        PipelineError::Model(error) => of_inference(error),
        PipelineError::Gallery(error) => of_gallery(error),
        PipelineError::Io { source, .. } => of_io(source),
        _ => Exit::Unexpected,
    }
}

fn of_video(error: &VideoError) -> Exit {
    match error {
        VideoError::InvalidSource { .. }
        | VideoError::InvalidOption { .. }
        | VideoError::NotFound { .. }
        | VideoError::NoPictures { .. }
        | VideoError::FfmpegMissing { .. }
        | VideoError::FfmpegUnusable { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn of_gallery(error: &GalleryError) -> Exit {
    match error {
        GalleryError::Stopped { .. } => Exit::Interrupted,
        GalleryError::Embedder(error) => of_inference(error),
        GalleryError::Io { source, .. } => of_io(source),
        GalleryError::Cache { .. } | GalleryError::Picture { .. } => Exit::Failed,
        _ => Exit::Usage,
    }
}

fn of_inference(error: &InferenceError) -> Exit {
    match error {
        InferenceError::NotBuilt { .. }
        | InferenceError::DeviceUnavailable { .. }
        | InferenceError::Weights { .. }
        | InferenceError::InvalidInput(_) => Exit::Usage,
        InferenceError::OutOfMemory { .. } => Exit::Failed,
        _ => Exit::Unexpected,
    }
}

/// What passes by itself is a failure; the rest has to be set right first.
fn of_hub(error: &HubError) -> Exit {
    match error {
        HubError::Stopped { .. } => Exit::Interrupted,
        HubError::Interrupted { .. }
        | HubError::Damaged { .. }
        | HubError::Busy { .. }
        | HubError::RateLimited { .. }
        | HubError::Unreachable { .. }
        | HubError::Server { .. } => Exit::Failed,
        HubError::Io { source, .. } => of_io(source),
        _ => Exit::Usage,
    }
}

/// A path that is not there or not ours to use was named on the command line.
fn of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::IsADirectory => Exit::Usage,
        _ => Exit::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_code_says_who_has_to_act() {
        let missing = VideoError::NotFound {
            path: "a.mp4".into(),
        };
        let codes = [
            (anyhow::Error::from(Usage::new("x")), Exit::Usage),
            (PipelineError::from(missing).into(), Exit::Usage),
            (
                GalleryError::Stopped {
                    embedded: 1,
                    wanted: 2,
                }
                .into(),
                Exit::Interrupted,
            ),
            (
                HubError::RateLimited {
                    retry_after_secs: None,
                    anonymous: true,
                }
                .into(),
                Exit::Failed,
            ),
            (HubError::NoCache.into(), Exit::Usage),
            (
                InferenceError::NonFinite {
                    stage: "mask".into(),
                }
                .into(),
                Exit::Unexpected,
            ),
            (
                io::Error::from(io::ErrorKind::StorageFull).into(),
                Exit::Unexpected,
            ),
            (anyhow::anyhow!("?"), Exit::Unexpected),
        ];
        for (error, exit) in codes {
            assert_eq!(code(&error), exit, "{error}");
        }
    }

    #[test]
    fn context_does_not_hide_who_has_to_act_nor_the_hint() {
        let error = Err::<(), _>(Usage::new("no").hint("do this"))
            .context("reading the configuration")
            .unwrap_err();
        assert_eq!(code(&error), Exit::Usage);
        assert_eq!(hint(&error).as_deref(), Some("do this"));
    }
}
