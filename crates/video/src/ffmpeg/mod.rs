//! Reading and writing through the ffmpeg program.

mod command;
mod damage;
mod failure;
mod locate;
mod messages;
mod packets;
pub(crate) mod process;
mod reader;
mod scrub;
mod tracker;

pub(crate) use command::Input;
pub use locate::{FfmpegInfo, find_ffmpeg};
pub(crate) use locate::{file_argument, find_for, tool};
pub(crate) use reader::{FfmpegReader, Target};
pub(crate) use scrub::Scrubber;
