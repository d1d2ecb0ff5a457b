//! Following objects through a video by memory, many objects to a bucket.
//!
//! Objects live in *states*; a state has buckets of `multiplex_count` slots, and every bucket has
//! one memory map a frame that all its objects share. Ported from the description of
//! `sam3/model/video_tracking_multiplex.py`; object multiplexing is SAM 3.1's (Meta, 2026).

mod bank;
mod contest;
mod features;
mod given;
mod mask_decoder;
mod memory_attention;
mod memory_encoder;
mod model;
mod multiplex;
mod prompt;
mod roster;
mod session;
mod state;
mod two_way;
pub mod video;

pub use bank::MemoryLimits;
pub use contest::Contest;
pub use features::{Seen, TrackerFeatures};
pub use mask_decoder::{Decoded, DecoderKind, FineMaps, MaskDecoder};
pub use memory_attention::{AttentionStages, MemoryAttention, MemoryPrecision, MemoryTokens};
pub use memory_encoder::{MemoryEncoder, MemoryStages};
pub use model::{SeenObjects, Tracker};
pub use multiplex::{Multiplex, Slot};
pub use prompt::{Click, ClickKind, PromptEncoder};
pub use roster::{Placed, Removed, Roster, StateObjects};
pub use session::{MemoryUse, SessionOptions, TrackerSession};
pub use two_way::TwoWayStages;

use shelfscan_inference_core::TrackId;

use crate::{MaskLogits, Result};

/// Masks and scores of followed objects in one frame.
#[derive(Debug)]
pub struct TrackedMasks {
    /// The objects, ascending.
    pub ids: Vec<TrackId>,
    /// Mask logits `[n, side * side]` in the order of `ids`; positive is the object.
    pub masks: MaskLogits,
    /// Logit of each object being in the frame, `[n]`.
    pub scores: Vec<f32>,
}

/// What carries masks from frame to frame. The planning of a video asks these in one order per
/// frame: [`propagate`](Self::propagate), [`recondition`](Self::recondition) where a mask is to be
/// replaced, [`remember`](Self::remember), [`add`](Self::add), [`remove`](Self::remove).
///
/// `frame` counts the frames of the video from 0. The model's features of that frame have been
/// handed over before (they are not part of this trait, so that a script can stand in for the
/// model). Masks are low-res logits of `mask_side` x `mask_side`, stretched over the whole frame.
pub trait MaskPropagator {
    /// Side of every mask.
    fn mask_side(&self) -> usize;

    /// The masks of every object in `frame`, ascending by id. A state born in this very frame
    /// answers with what is stored. Nothing is put into memory yet.
    ///
    /// # Errors
    /// A failure of the model.
    fn propagate(&mut self, frame: usize) -> Result<TrackedMasks>;

    /// Replaces the stored mask, pointer and score of `ids` in `frame` by what the interactive path
    /// makes of the detections (logits `[ids, side * side]`, positive is the object), and marks the
    /// frame as conditioning for them. [`remember`](Self::remember) has to follow, it makes the
    /// memory.
    ///
    /// # Errors
    /// An unknown id, or a failure of the model.
    fn recondition(&mut self, frame: usize, ids: &[TrackId], detections: &MaskLogits)
    -> Result<()>;

    /// Makes the memory of `frame` from its final masks, for every object that lived before this
    /// frame's births. Masks of which others win most pixels are held back from memory inside
    /// (pixels where a mask is the largest, over its area, below `area_shrink`), so `masks` are
    /// the propagated ones after reconditioning and suppression, overlaps left in.
    ///
    /// # Errors
    /// `masks` are not those of every object, or a failure of the model.
    fn remember(&mut self, frame: usize, masks: &TrackedMasks, area_shrink: f32) -> Result<()>;

    /// Begins following what was detected in `frame`: logits `[ids, side * side]`, positive is the
    /// object. All go into the fullest state with room for all, else into a new state.
    ///
    /// # Errors
    /// An id that is followed already, or a failure of the model.
    fn add(&mut self, frame: usize, ids: &[TrackId], detections: &MaskLogits) -> Result<()>;

    /// Stops following objects; unknown ids are passed over. Their slots are not used again, empty
    /// buckets and states are dropped.
    ///
    /// # Errors
    /// A failure of the model.
    fn remove(&mut self, ids: &[TrackId]) -> Result<()>;

    /// Which objects share which states and buckets.
    fn roster(&self) -> &Roster;
}
