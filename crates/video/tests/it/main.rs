//! Reading and writing real files: the shared collection when it is there, clips encoded on the
//! spot when ffmpeg is there, and stand-ins for a decoder that misbehaves.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod clips;
mod collection;
mod common;
mod pictures;
#[cfg(unix)]
mod stand_in;
mod without_ffmpeg;
mod writing;
