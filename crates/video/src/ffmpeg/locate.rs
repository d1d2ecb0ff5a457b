//! Finding ffmpeg and checking that it is new enough.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::process;
use crate::{FfmpegLocation, Result, VideoError};

/// First release with `-fps_mode`, which keeps ffmpeg from inventing or dropping frames.
const OLDEST: (u32, u32) = (5, 1);

/// How long a program may take to print its version.
const VERSION_STALL: Duration = Duration::from_secs(20);

/// A working ffmpeg of version 5.1 or later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FfmpegInfo {
    /// The program, as it is started.
    pub path: PathBuf,
    /// Its version as it prints it, such as `5.1.6-0+deb12u1`.
    pub version: String,
    /// The `ffprobe` of the same installation, when there is one.
    pub ffprobe: Option<PathBuf>,
}

/// Finds ffmpeg and checks its version, once for as many sources as wanted.
///
/// # Errors
/// [`VideoError::FfmpegMissing`] with the line that installs it, [`VideoError::FfmpegUnusable`]
/// for one that is too old or no ffmpeg at all.
pub fn find_ffmpeg(location: &FfmpegLocation) -> Result<FfmpegInfo> {
    find_for(location, "this source")
}

pub(crate) fn find_for(location: &FfmpegLocation, needed_for: &str) -> Result<FfmpegInfo> {
    let program = match location {
        FfmpegLocation::SearchPath => PathBuf::from("ffmpeg"),
        FfmpegLocation::Path(path) => path.clone(),
        FfmpegLocation::Checked(info) => return Ok(info.clone()),
        FfmpegLocation::Never => {
            return Err(VideoError::FfmpegMissing {
                needed_for: needed_for.into(),
                looked_for: "nowhere, as its use is switched off".into(),
            });
        }
    };
    let mut lines = Vec::new();
    let ran = process::run(tool(&program).arg("-version"), VERSION_STALL, |line| {
        if lines.is_empty() {
            lines.push(String::from_utf8_lossy(line).into_owned());
        }
    });
    let unusable = |found: String| VideoError::FfmpegUnusable {
        found,
        path: program.clone(),
    };
    match ran {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(VideoError::FfmpegMissing {
                needed_for: needed_for.into(),
                looked_for: program,
            });
        }
        Err(error) => return Err(unusable(error.to_string())),
        Ok(finished) if finished.stalled => return Err(unusable("nothing".into())),
        Ok(_) => {}
    }
    let first = lines.pop().unwrap_or_default();
    let version = version_text(&first).ok_or_else(|| unusable(first.clone()))?;
    // A build from the development branch carries a commit instead of a number; it is new enough.
    if version_number(version).is_some_and(|number| number < OLDEST) {
        return Err(unusable(first.clone()));
    }
    Ok(FfmpegInfo {
        version: version.into(),
        ffprobe: ffprobe_beside(&program),
        path: program,
    })
}

/// A command that prints no colours and writes no report file, whatever the environment says.
pub(crate) fn tool(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("AV_LOG_FORCE_NOCOLOR", "1")
        .env_remove("AV_LOG_FORCE_COLOR")
        .env_remove("FFREPORT");
    command
}

/// A file as an ffmpeg argument. The prefix keeps a name with a leading dash, a colon or a line
/// break from being taken for an option or an address.
pub(crate) fn file_argument(path: &Path) -> OsString {
    let mut argument = OsString::from("file:");
    argument.push(path);
    argument
}

fn version_text(line: &str) -> Option<&str> {
    line.strip_prefix("ffmpeg version ")?
        .split_whitespace()
        .next()
}

fn version_number(version: &str) -> Option<(u32, u32)> {
    let digits = version.trim_start_matches('n');
    let mut parts = digits.split(|c: char| !c.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    // A date or a commit count is no release number.
    let rest = &digits[digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len())..];
    let minor = if rest.starts_with('.') {
        parts.next()?.parse().ok()?
    } else {
        0
    };
    (major < 1000).then_some((major, minor))
}

fn ffprobe_beside(ffmpeg: &Path) -> Option<PathBuf> {
    let name = ffmpeg.file_name().and_then(OsStr::to_str)?;
    let probe = ffmpeg.with_file_name(name.replacen("ffmpeg", "ffprobe", 1));
    if probe == ffmpeg {
        return None;
    }
    let ran = process::run(tool(&probe).arg("-version"), VERSION_STALL, |_| {});
    ran.is_ok_and(|f| f.status.is_some_and(|s| s.success()))
        .then_some(probe)
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use shelfscan_testkit::program::write_program;

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_and_odd_ones_pass() {
        for (line, number) in [
            ("ffmpeg version 5.1.9-0+deb12u1 Copyright", Some((5, 1))),
            ("ffmpeg version n7.0 Copyright", Some((7, 0))),
            (
                "ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright",
                Some((4, 4)),
            ),
            ("ffmpeg version 10.2 Copyright", Some((10, 2))),
            ("ffmpeg version N-109000-gabcdef Copyright", None),
            ("ffmpeg version 2024-05-01-git-96d3 Copyright", None),
        ] {
            assert_eq!(
                version_number(version_text(line).unwrap()),
                number,
                "{line}"
            );
        }
        assert_eq!(version_text("bash: ffmpeg: not for you"), None);
    }

    #[test]
    fn no_ffmpeg_is_a_named_error_and_nothing_is_fetched() {
        for location in [
            FfmpegLocation::Never,
            FfmpegLocation::Path("/no/such/ffmpeg".into()),
        ] {
            assert!(matches!(
                find_ffmpeg(&location),
                Err(VideoError::FfmpegMissing { .. })
            ));
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_old_or_a_foreign_program_is_told_apart_from_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        for line in ["ffmpeg version 4.4.2 Copyright", "hello"] {
            let path = folder.path().join("tool");
            write_program(&path, &format!("#!/bin/sh\necho '{line}'\n")).unwrap();
            let error = find_ffmpeg(&FfmpegLocation::Path(path)).unwrap_err();
            assert!(
                matches!(error, VideoError::FfmpegUnusable { .. }),
                "{error}"
            );
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
