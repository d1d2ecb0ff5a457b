//! Opening a source and reading its frames.

use shelfscan_inference_core::VideoFrame;

use crate::{ReadSummary, Result, SourceInfo};

/// Ends a read from another thread: the decoder is stopped and a waiting
/// [`FrameReader::next_frame`] returns `None`.
pub type CancelHandle = Box<dyn Fn() + Send + Sync>;

/// Reads the frames of one source in presentation order.
pub trait FrameReader: Send {
    /// What the source is.
    fn info(&self) -> &SourceInfo;

    /// The next frame that was asked for, or `None` at the end.
    ///
    /// Once the first frame is out, trouble ends the read with `None` and
    /// [`ReadStatus::Partial`](crate::ReadStatus::Partial), so that good frames are never lost.
    ///
    /// # Errors
    /// Nothing could be read at all, see [`VideoError`](crate::VideoError).
    fn next_frame(&mut self) -> Result<Option<VideoFrame>>;

    /// How it went so far; final once `next_frame` gave `None`.
    fn summary(&self) -> ReadSummary;

    /// What unblocks a stuck read; `None` when reading cannot get stuck.
    fn cancel_handle(&self) -> Option<CancelHandle>;
}
