//! Draws store shelves, packs and clips with exact truth: seeded, deterministic, fast.
//!
//! ```
//! use std::sync::Arc;
//! use shelfscan_synth::{CameraPath, Clip, Motion, Shelf, ShelfPlan, pick_skus};
//!
//! let plan = ShelfPlan::new(7, pick_skus(7, 6), 320, 180);
//! let shelf = Arc::new(Shelf::draw(&plan, &[])?);
//! let path = CameraPath::new(Motion::Return, 7, 20, &shelf)?;
//! let first = Clip::new(shelf, path, 7).frame(0);
//! assert!(first.truth.objects.iter().all(|object| object.visible > 0.1));
//! # Ok::<(), shelfscan_synth::SynthError>(())
//! ```
//!
//! A [`Sku`] is a number from which its category, shape and print follow. [`draw_still`] makes
//! single scenes for a detector, [`draw_crop`] crops for an embedder, [`sku_views`] the pictures a
//! SKU is enrolled with, and [`Clip`] the frames of a camera that moves along a [`Shelf`]. Each
//! comes with the exact truth, taken from the same pixels.
//!
//! The crate has no features.
//!
//! Limits: equal arguments give equal bytes on one machine at any number of threads; between
//! processors of another kind the last bit of a sine may differ. A clip's shelf is a plane, so
//! packs do not turn against each other as the camera passes. What looks like a word is none.

mod camera;
mod canvas;
mod clip;
mod crop;
mod error;
mod export;
mod field;
mod font;
mod lens;
mod pictures;
mod plan;
mod print;
pub mod seeded;
mod shapes;
mod shelf;
mod sku;
mod sprite;
mod stage;
mod still;
mod tag;

use shelfscan_inference_core::RgbImage;

pub use camera::{CameraPath, MAX_FRAMES, Motion, Pose};
pub use canvas::Picture;
pub use clip::{
    Clip, ClipFrame, FacingTruth, FrameTruth, MIN_VISIBLE, PRODUCT, TruthDetection, TruthObject,
    TruthRecord,
};
pub use crop::{draw_crop, draw_view, sku_views};
pub use error::{Result, SynthError};
pub use export::{
    CLIP_FILE, ExportOptions, ExportReport, FACING_FRAMES, FACINGS_FILE, FrameFormat, TRUTH_FILE,
    VIEWS_FOLDER, export, write_facings, y4m_frame, y4m_head,
};
pub use pictures::{MAX_PICTURES, read_pictures};
pub use plan::{MAX_FACINGS, MAX_ROWS, MAX_SKUS, ShelfPlan, pick_skus};
pub use shelf::{Shelf, ShelfObject};
pub use sku::{Category, HELD_OUT_FROM, PRICE_TAG, Sku, VARIANTS};
pub use still::{MAX_OBJECTS, SceneKind, Still, StillObject, StillOptions, draw_still};

/// A picture from a buffer that was filled pixel by pixel for just this size.
pub(crate) fn picture(width: u32, height: u32, pixels: Vec<u8>) -> RgbImage {
    match RgbImage::new(width, height, pixels) {
        Ok(image) => image,
        Err(error) => unreachable!("the buffer was made for this size: {error}"),
    }
}
