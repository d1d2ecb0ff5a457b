//! What is known about a source, and how reading it went.

use std::fmt;

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::Notice;

/// What is in a source. What the container declares is kept apart from what decoding shows
/// ([`ReadSummary`]), because containers err.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Name of the codec, such as `h264` or `png`.
    pub codec: String,
    /// Name of the container, such as `mov,mp4,m4a,3gp,3g2,mj2` or `folder`.
    pub container: String,
    /// Width of an upright frame in pixels, after rotation and with square pixels.
    pub width: u32,
    /// Height of an upright frame in pixels, after rotation and with square pixels.
    pub height: u32,
    /// By how much the stored picture is turned clockwise to stand upright: 0, 90, 180 or 270.
    pub rotation_degrees: u32,
    /// Frames a second as the container declares them.
    pub declared_fps: Option<f64>,
    /// Number of frames as the container declares it.
    pub declared_frames: Option<u64>,
    /// Length in seconds as the container declares it.
    pub declared_duration_secs: Option<f64>,
    /// Where the source's clock starts, in seconds, as the container declares it.
    pub start_secs: f64,
    /// True when frames come at their own pace and are lost when not taken.
    pub live: bool,
    /// Format of the stored pixels, such as `yuv420p10le`, when known.
    pub pixel_format: Option<String>,
    /// What reads it: `ffmpeg`, `pictures`, `gif`, `webp`, `apng`, `y4m` or `avi-mjpeg`.
    pub reader: String,
    /// Version of ffmpeg when that is the reader.
    pub reader_version: Option<String>,
}

/// How reading a source ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ReadStatus {
    /// Everything that was asked for was delivered, undamaged.
    Complete,
    /// Good frames were delivered, but some are missing or damaged.
    Partial {
        /// What is missing, and where.
        reason: String,
    },
}

impl fmt::Display for ReadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Partial { reason } => write!(f, "partial: {reason}"),
        }
    }
}

/// How reading went so far; final once [`FrameReader::next_frame`](crate::FrameReader::next_frame)
/// gave `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSummary {
    /// Frames that came out of the decoder, delivered or not.
    pub decoded: u64,
    /// Frames handed out.
    pub delivered: u64,
    /// Frames or pictures that were due and could not be decoded.
    pub dropped: u64,
    /// Whether all went well.
    pub status: ReadStatus,
    /// What the reader of a result has to know.
    pub notices: Vec<Notice>,
}

/// A camera that is plugged in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraInfo {
    /// The index to ask for it by.
    pub index: u32,
    /// Its name, as the system gives it.
    pub name: String,
    /// True when it opened and offers at least one mode.
    pub opens: bool,
    /// The modes it offers, best first.
    pub modes: Vec<CameraMode>,
}

/// One way a camera can be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraMode {
    /// Pixel or codec name, as the camera interface calls it, such as `mjpeg` or `yuyv422`.
    pub format: String,
    /// True when the camera compresses its pictures.
    pub compressed: bool,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Highest rate in frames a second, when the camera says it.
    pub max_fps: Option<f64>,
}
