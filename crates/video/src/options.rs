//! What to read of a source, and how much of the machine it may take.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{FfmpegInfo, Result, VideoError};

/// The longest a source may be waited for, a day.
const MOST_STALL_SECS: f64 = 86_400.0;

/// Bounds that keep a hostile or stuck source from taking the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Largest picture, in pixels (width x height). Checked before anything is decoded.
    pub max_pixels: u64,
    /// How long a decoder may give nothing while a frame is waited for, in seconds.
    pub stall_secs: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            stall_secs: 30.0,
        }
    }
}

/// Where the ffmpeg program is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FfmpegLocation {
    /// `ffmpeg` on the search path.
    #[default]
    SearchPath,
    /// This very program.
    Path(PathBuf),
    /// One that [`find_ffmpeg`](crate::find_ffmpeg) has checked; saves starting it for its version
    /// with every source.
    Checked(FfmpegInfo),
    /// Do as if there were none; what can be read without it still is.
    Never,
}

/// Which frames of a source to deliver.
///
/// The filters apply in this order: key frames, then the time window, then `every` or `fps`, then
/// `after_index`, then `max_frames`. Whatever is skipped keeps its index, see
/// [`VideoFrame::index`](shelfscan_inference_core::VideoFrame::index).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadOptions {
    /// Deliver the frames whose index is a multiple of this; 1 delivers all. With
    /// `keyframes_only` it counts key frames.
    pub every: u32,
    /// Deliver at most this many frames a second: the first frame of each `1 / fps` long cell of
    /// the source's clock. Not together with `every`.
    pub fps: Option<f64>,
    /// Deliver frames from this time on, in seconds of the source's own clock, which need not
    /// start at 0 ([`SourceInfo::start_secs`](crate::SourceInfo::start_secs)).
    pub start_secs: Option<f64>,
    /// Stop at the first frame at or after this time, in seconds of the source's own clock.
    pub end_secs: Option<f64>,
    /// Stop after this many delivered frames. A resumed read has to lower it itself.
    pub max_frames: Option<u64>,
    /// Deliver key frames only, decoding nothing else where the format allows.
    pub keyframes_only: bool,
    /// Resume: deliver only frames with a greater index, with the indices and times of an unbroken
    /// read.
    pub after_index: Option<u64>,
    /// How many pictures of a folder make a second; their times are estimates from it.
    pub pictures_per_sec: f64,
    /// Bounds on picture size and waiting.
    pub limits: Limits,
    /// Where ffmpeg is.
    pub ffmpeg: FfmpegLocation,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            every: 1,
            fps: None,
            start_secs: None,
            end_secs: None,
            max_frames: None,
            keyframes_only: false,
            after_index: None,
            pictures_per_sec: 1.0,
            limits: Limits::default(),
            ffmpeg: FfmpegLocation::default(),
        }
    }
}

impl ReadOptions {
    /// Checks that the options can be met at all.
    ///
    /// # Errors
    /// [`VideoError::InvalidOption`] naming the first option that cannot.
    pub fn validate(&self) -> Result<()> {
        let bad = |option, value: String, remedy| {
            Err(VideoError::InvalidOption {
                option,
                value,
                remedy,
            })
        };
        if self.every == 0 {
            return bad("every", "0".into(), "1 delivers all frames");
        }
        if let Some(fps) = self.fps {
            if !fps.is_finite() || fps <= 0.0 {
                return bad("fps", fps.to_string(), "it has to be above 0");
            }
            if self.every != 1 {
                return bad(
                    "every",
                    self.every.to_string(),
                    "give either every or fps, not both",
                );
            }
        }
        for (option, secs) in [("start_secs", self.start_secs), ("end_secs", self.end_secs)] {
            if let Some(secs) = secs.filter(|s| !s.is_finite()) {
                return bad(option, secs.to_string(), "it has to be a number of seconds");
            }
        }
        if let (Some(start), Some(end)) = (self.start_secs, self.end_secs)
            && end <= start
        {
            return bad("end_secs", end.to_string(), "it has to be after start_secs");
        }
        if !(self.pictures_per_sec.is_finite() && self.pictures_per_sec > 0.0) {
            return bad(
                "pictures_per_sec",
                self.pictures_per_sec.to_string(),
                "it has to be above 0",
            );
        }
        if !(self.limits.stall_secs > 0.0 && self.limits.stall_secs <= MOST_STALL_SECS) {
            return bad(
                "stall_secs",
                self.limits.stall_secs.to_string(),
                "it has to be above 0, up to a day",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_deliver_every_frame_and_are_valid() {
        let options = ReadOptions::default();
        assert_eq!(options.every, 1);
        options.validate().unwrap();
    }

    #[test]
    fn options_that_cannot_be_met_are_named() {
        let base = ReadOptions::default;
        for (options, name) in [
            (ReadOptions { every: 0, ..base() }, "every"),
            (
                ReadOptions {
                    fps: Some(0.0),
                    ..base()
                },
                "fps",
            ),
            (
                ReadOptions {
                    fps: Some(f64::NAN),
                    ..base()
                },
                "fps",
            ),
            (
                ReadOptions {
                    fps: Some(2.0),
                    every: 2,
                    ..base()
                },
                "every",
            ),
            (
                ReadOptions {
                    start_secs: Some(f64::INFINITY),
                    ..base()
                },
                "start_secs",
            ),
            (
                ReadOptions {
                    start_secs: Some(3.0),
                    end_secs: Some(3.0),
                    ..base()
                },
                "end_secs",
            ),
            (
                ReadOptions {
                    pictures_per_sec: 0.0,
                    ..base()
                },
                "pictures_per_sec",
            ),
        ] {
            let text = options.validate().unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        }
    }
}
