//! From detections to tracks, and from tracks to facings.
//!
//! * [`Associator`] gives ids to the detections of a provider that has none. One per source.
//! * [`CameraTracker`] says where on the shelf a frame lies; the associator has one inside, a
//!   provider with ids of its own needs one beside it.
//! * [`FacingMerger`] says which tracks are one place on the shelf seen again.
//!
//! All three are deterministic, hold a bounded amount of state and know nothing of files or models.

mod align;
mod camera;
mod facing;
mod options;
#[cfg(test)]
mod pan_tests;
mod pyramid;
mod similarity;
mod tracker;

pub use camera::{CameraOptions, CameraTracker, CameraView};
pub use facing::{FacingId, FacingMerger, FacingOptions, SeenTrack};
pub use options::AssociateOptions;
pub use similarity::Similarity;
pub use tracker::{Associator, TrackEvent, TrackHit};
