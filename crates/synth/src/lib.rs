//! Draws store shelves, packs and clips with exact truth: seeded, deterministic, fast.
#![warn(missing_docs)]

mod canvas;
mod crop;
mod error;
mod font;
mod lens;
mod pictures;
mod print;
pub mod seeded;
mod shapes;
mod sku;
mod sprite;
mod stage;
mod still;

use shelfscan_inference_core::RgbImage;

pub use canvas::Picture;
pub use crop::draw_crop;
pub use error::{Result, SynthError};
pub use pictures::{MAX_PICTURES, read_pictures};
pub use sku::{Category, HELD_OUT_FROM, PRICE_TAG, Sku, VARIANTS};
pub use still::{MAX_OBJECTS, SceneKind, Still, StillObject, StillOptions, draw_still};

/// A picture from a buffer that was filled pixel by pixel for just this size.
pub(crate) fn picture(width: u32, height: u32, pixels: Vec<u8>) -> RgbImage {
    match RgbImage::new(width, height, pixels) {
        Ok(image) => image,
        Err(error) => unreachable!("the buffer was made for this size: {error}"),
    }
}
