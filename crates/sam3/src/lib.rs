//! SAM 3.1 in candle: text-prompted detection and tracking.
//!
//! A port of Meta's Segment Anything with Concepts, release 3.1, written from a description of the
//! published code and checked stage by stage against its numbers. A picture goes through the image
//! encoder once; any number of phrases are then asked about it.
//!
//! ```
//! use shelfscan_sam3::{Sam3Config, Tokenizer};
//!
//! let config = Sam3Config::sam3_1();
//! let phrase = Tokenizer::new(config.context_length)?.encode("milk carton");
//! assert_eq!(&phrase.ids()[..2], [49406, 5205]);
//! # Ok::<(), shelfscan_sam3::Error>(())
//! ```
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use shelfscan_inference_core::{RgbImage, TextPrompt};
//! use shelfscan_sam3::{DetectOptions, Sam3, Sam3Config};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::path::Path::new("sam3.1_multiplex.pt");
//! let (model, _) = Sam3::load(path, &Sam3Config::sam3_1(), DType::F32, &Device::Cpu)?;
//! let picture = RgbImage::new(640, 480, vec![127; 640 * 480 * 3])?;
//! let found = model.detect(&picture, &[TextPrompt::new("bottle")?], &DetectOptions::default())?;
//! # drop(found); Ok(()) }
//! ```
//!
//! * [`Sam3`] answers in source pixels, with tiles, masks and notices.
//! * [`Detector`] gives the stages one by one, for trackers and for comparison.
//! * [`tracker`] follows objects through a video by memory that up to 16 of them share.
//! * [`load_detector`] opens Meta's pickle or safetensors, the single file for ComfyUI, and
//!   mlx-community's conversion, and accounts for every tensor in them.
//!
//! One type runs through the whole graph (`f32`, `f16` or `bf16`); norms, softmax, the rotary
//! encoding, boxes and scores are computed in `f32` whatever it is.
//!
//! Features `cuda` and `metal` turn candle's back ends on. Limits: pictures are stretched to a
//! square, as the model was trained; a phrase has 30 tokens, a picture or tile 200 objects a phrase; places in a phrase
//! ("the bottle on the left") are not understood.

mod config;
pub mod decoder;
mod detector;
mod error;
pub mod fusion;
pub mod geometry;
mod layers;
mod load;
mod mlx;
mod model;
mod paint;
mod phrases;
mod position;
mod ranked;
mod roi_align;
pub mod scoring;
pub mod segmentation;
pub mod suppress;
pub mod text;
mod tiles;
mod tokenizer;
pub mod tracker;
mod tracker_layout;
pub mod vision;

pub use config::{Sam3Config, TrackerConfig};
pub use detector::{Detector, Grounding, ImageFeatures, MaskLogits};
pub use error::{Error, Result};
pub use geometry::{ExemplarBox, ExemplarPoint, Exemplars};
pub use load::{canonical_checkpoint, detector_from, load_detector, open_checkpoint};
pub use model::{DetectOptions, PictureFinds, Sam3, WorkCounts};
pub use tiles::Tiling;
pub use tokenizer::{TokenizedPhrase, Tokenizer};
