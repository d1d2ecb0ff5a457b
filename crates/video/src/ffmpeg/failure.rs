//! Why a decoder gave not one frame.

use std::process::ExitStatus;

use super::{
    process::{Killer, describe},
    reader::Target,
    tracker::Known,
};
use crate::{ReadOptions, VideoError};

/// Puts the end of a run without a frame under its remedy.
pub(crate) fn explain(
    known: &Known,
    status: Option<ExitStatus>,
    killer: Option<Killer>,
    target: &Target,
    options: &ReadOptions,
) -> VideoError {
    let name = target.name.clone();
    match killer {
        Some(Killer::Caller) => return VideoError::Cancelled { name },
        Some(Killer::Watchdog) => {
            return VideoError::Stalled {
                secs: options.limits.stall_secs,
                stderr_tail: known.tail.text(),
                name,
            };
        }
        Some(Killer::Reader) | None => {}
    }
    let complaints = &known.complaints;
    let said = complaints
        .first_error
        .clone()
        .or_else(|| complaints.last_error.clone());
    let was_killed = status.is_none_or(|s| s.code().is_none());
    let banner = &known.banner;
    let nothing = || "the decoder gave no frame and no reason".to_owned();
    let is_too_large = said
        .as_deref()
        .is_some_and(|e| e.contains("exceeds specified max pixel count"));
    if is_too_large {
        let size = banner.upright();
        VideoError::PictureTooLarge {
            width: size.width,
            height: size.height,
            max_pixels: options.limits.max_pixels,
            name,
        }
    } else if was_killed {
        VideoError::DecoderFailed {
            reason: describe(status),
            stderr_tail: known.tail.text(),
            name,
        }
    } else if banner.has_video {
        VideoError::NoFrames {
            reason: said.unwrap_or_else(nothing),
            name,
        }
    } else if banner.has_other_streams {
        VideoError::NoVideoStream { name }
    } else if !banner.info.container.is_empty() {
        VideoError::NoFrames {
            reason: "the container holds no stream".into(),
            name,
        }
    } else if complaints
        .last_error
        .as_deref()
        .is_some_and(|e| e.contains("Invalid data found"))
    {
        VideoError::Unreadable {
            reason: said.unwrap_or_else(nothing),
            name,
        }
    } else {
        VideoError::DecoderFailed {
            reason: describe(status),
            stderr_tail: known.tail.text(),
            name,
        }
    }
}
