//! Frames from video files, cameras and picture folders; annotated video out.

mod animation;
mod avi;
mod camera;
mod error;
mod ffmpeg;
mod info;
mod jpeg;
mod natural;
mod open;
mod options;
mod picture;
mod pictures;
mod reader;
mod select;
mod sequential;
mod source;
mod writer;
mod y4m_reader;

pub use camera::{list_cameras, rank_modes};
pub use error::{Result, VideoError};
pub use ffmpeg::{FfmpegInfo, find_ffmpeg};
pub use info::{CameraInfo, CameraMode, ReadStatus, ReadSummary, SourceInfo};
pub use open::{open, probe};
pub use options::{FfmpegLocation, Limits, ReadOptions};
pub use picture::{Picture, load_picture, read_picture};
pub use reader::{CancelHandle, FrameReader};
pub use source::{PictureSet, Source};
pub use writer::{ClipOptions, ClipWriter, FrameDirWriter};
