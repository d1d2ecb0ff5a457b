//! Reading and writing through the ffmpeg program.

mod locate;
pub(crate) mod process;

pub use locate::{FfmpegInfo, find_ffmpeg};
pub(crate) use locate::{file_argument, find_for, tool};
