//! The plan of a video: what is detected, followed, born, replaced and removed in each frame.
//!
//! A [`VideoSession`] takes frames one at a time and gives tracks out. Below it, one [`Planner`] a
//! prompt makes the decisions of a frame from the detector's [`Candidates`] and the masks a
//! [`MaskPropagator`](super::MaskPropagator) carried on, and one [`Composer`] a prompt holds
//! frames back until it is known which objects are shown.
//!
//! Ported from a description of `sam3/model/sam3_video_base.py` (Meta, 2025) as SAM 3.1 runs it.
//! Where that loses tracks, shows objects it had rejected or depends on the machine, this does not;
//! `docs/internals/inference.md` has the list.

mod associate;
mod candidates;
mod compose;
mod footprint;
mod marked;
mod mend;
mod model;
mod objects;
mod occlusion;
mod options;
mod planner;
mod separate;
mod session;

pub use candidates::{Candidates, RawDetections};
pub use compose::{ComposedObject, Composer};
pub use model::{Sam3Video, VideoFeatures, halves_from};
pub use objects::Object;
pub use options::VideoOptions;
pub use planner::{FrameReport, PlannedFrame, Planner, ShownObject, TrackIds};
pub use session::{VideoModel, VideoSession};
