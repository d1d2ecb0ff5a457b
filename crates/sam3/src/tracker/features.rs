//! What the tracker sees of one frame.

use std::sync::OnceLock;

use candle_core::Tensor;

use super::mask_decoder::FineMaps;
use crate::{Error, Result};

/// A map of one of the tracker's necks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `[1, c, side, side]`.
    pub map: Tensor,
    /// The same as tokens `[1, side * side, c]`.
    pub tokens: Tensor,
}

/// The features of a frame. Everything but the trunk's map is made when it is first needed: a frame
/// without objects costs nothing, one without births leaves the interactive neck alone.
#[derive(Debug)]
pub struct TrackerFeatures {
    /// Width and height of the frame, in pixels.
    pub(crate) frame_px: (u32, u32),
    pub(crate) trunk: Tensor,
    pub(crate) propagation: OnceLock<Seen>,
    pub(crate) propagation_fine: OnceLock<FineMaps>,
    pub(crate) interactive: OnceLock<Seen>,
    pub(crate) interactive_fine: OnceLock<FineMaps>,
}

impl TrackerFeatures {
    /// `trunk` is the trunk's map `[1, c, side, side]`
    /// ([`ImageFeatures::trunk`](crate::ImageFeatures::trunk)); it is shared, not copied. Masks that
    /// are given in this frame are cleared of overlaps at its own size, `frame_px` across and down.
    ///
    /// # Errors
    /// The frame has no pixel.
    pub fn new(trunk: &Tensor, frame_px: (u32, u32)) -> Result<Self> {
        if frame_px.0 == 0 || frame_px.1 == 0 {
            return Err(Error::InvalidInput(format!(
                "a frame of {}x{} pixels cannot be followed",
                frame_px.0, frame_px.1
            )));
        }
        Ok(Self {
            frame_px,
            trunk: trunk.clone(),
            propagation: OnceLock::new(),
            propagation_fine: OnceLock::new(),
            interactive: OnceLock::new(),
            interactive_fine: OnceLock::new(),
        })
    }
}

/// Gives what is there, or makes it.
pub(crate) fn once<T>(slot: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(ready) = slot.get() {
        return Ok(ready);
    }
    let made = make()?;
    Ok(slot.get_or_init(|| made))
}
