//! What can go wrong in a scan, grouped by what the reader can do about it.

use std::path::PathBuf;

use shelfscan_inference_core::InferenceError;

/// Result of a pipeline call.
pub type Result<T, E = PipelineError> = std::result::Result<T, E>;

/// Why a scan, or one source of it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The options contradict each other or the source. Remedy: other options.
    #[error("{0}")]
    Usage(String),
    /// The source cannot be read. Remedy: see the reader's own message.
    #[error(transparent)]
    Source(#[from] shelfscan_video::VideoError),
    /// The model failed. Remedy: see the provider's own message.
    #[error(transparent)]
    Model(#[from] InferenceError),
    /// The gallery failed. Remedy: see the gallery's own message.
    #[error(transparent)]
    Gallery(#[from] shelfscan_gallery::GalleryError),
    /// The output folder cannot be used. Remedy: another folder, `--resume` or `--overwrite`.
    #[error("{reason}; {remedy}: {}", path.display())]
    Output {
        /// The folder or file.
        path: PathBuf,
        /// What is in the way.
        reason: String,
        /// The next step.
        remedy: String,
    },
    /// A file of detections or a journal is damaged. Remedy: another file, or scan again.
    #[error("{reason} in line {line}; {remedy}: {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong there.
        reason: String,
        /// The next step.
        remedy: String,
    },
    /// Reading or writing failed. Remedy: free space, rights, or the disk.
    #[error("{action} failed: {source}: {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's own error.
        #[source]
        source: std::io::Error,
    },
    /// A result has no form in JSON. Remedy: none but a report; it is a defect.
    #[error("a result cannot be written as JSON, which is a defect worth reporting")]
    Json(#[source] serde_json::Error),
    /// A stage panicked. The other sources go on. Remedy: report it with the message.
    #[error("the {stage} stage panicked, which is a defect worth reporting: {message}")]
    Panicked {
        /// The stage.
        stage: &'static str,
        /// What it said.
        message: String,
    },
}

impl PipelineError {
    /// Wraps a system error with what was being done to which file.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// True when every later source would fail the same way, so that the run should stop.
    pub fn is_fatal_for_run(&self) -> bool {
        match self {
            Self::Model(error) => error.is_fatal_for_run(),
            Self::Gallery(_) => true,
            _ => false,
        }
    }
}
