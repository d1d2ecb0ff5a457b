//! Frames from video files, cameras and picture folders; annotated video out.
//!
//! Every frame comes upright, with square pixels, as RGB, with its index in the source and its true
//! presentation time. A damaged file gives its good frames and says what is wrong with the rest.
//!
//! ```no_run
//! use shelfscan_video::{ReadOptions, Source, open};
//!
//! let mut reader = open(&Source::parse("aisle-7.mp4")?, &ReadOptions::default())?;
//! while let Some(frame) = reader.next_frame()? {
//!     println!("frame {} at {:.3} s: {:?}", frame.index, frame.time.secs, frame.image);
//! }
//! println!("{}", reader.summary().status);
//! # Ok::<(), shelfscan_video::VideoError>(())
//! ```
//!
//! * [`open`] reads, [`probe`] says what is in a source, [`list_cameras`] which cameras there are.
//! * Folders, globs and single pictures, animated GIF, WebP and PNG, Y4M and MJPEG AVI are read by
//!   this crate itself. All else goes through the `ffmpeg` program (5.1 or later), run as a child
//!   process whose crash, silence or chatter cannot harm the app.
//! * [`ClipWriter`] writes H.264 through ffmpeg, [`FrameDirWriter`] JPEG files without it,
//!   [`annotate`] draws boxes, labels and masks.
//!
//! There are no cargo features. Limits: pictures of more than [`Limits::max_pixels`] are refused;
//! sound is not read; interlaced video is not deinterlaced; untagged colours are taken for BT.601.

mod animation;
mod annotate;
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

pub use annotate::{Annotation, annotate, track_color};
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
