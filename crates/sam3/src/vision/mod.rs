//! Picture to feature maps.

mod neck;
mod trunk;

pub use neck::{Neck, NeckKind};
pub use trunk::VisionTrunk;
