//! Frames, boxes, masks, detections and the contracts between models and the scan.
//!
//! This crate holds the words every other crate speaks. It links no tensor library, parses no
//! arguments and touches no file, so an app that brings its own model depends on little else.
//!
//! ```
//! use shelfscan_inference_core::{BoxXyxy, Mask};
//!
//! let pack = BoxXyxy::new(40.0, 50.0, 130.0, 140.0);
//! let mask = Mask::from_box(320, 240, &pack);
//! assert_eq!(mask.area(), 90 * 90);
//! assert!(mask.bounding_box().unwrap().iou(&pack) > 0.99);
//! ```
//!
//! * [`InferenceProvider`] is what a back end implements, [`Lifecycle`] keeps its calls in order.
//! * [`Embedder`] turns crops into unit vectors for retrieval.
//! * [`protocol`] turns the calls of both into bytes and back, for a model in another process.
//! * Coordinates are source pixels of the upright picture, the way a viewer shows it.
//!
//! There are no cargo features. Limits: pictures are RGB, 8 bits a channel; a picture has at most
//! `u32::MAX` pixels, because mask run lengths are 32-bit.

mod detection;
mod embedder;
mod error;
mod frame;
mod geometry;
mod lifecycle;
mod mask;
pub mod protocol;
mod provider;

pub use detection::{Detection, FrameDetections, Notice, TextPrompt, TrackId};
pub use embedder::{Embedder, EmbedderFingerprint, Embeddings};
pub use error::{InferenceError, Result};
pub use frame::{FrameTime, RgbImage, SourceId, VideoFrame};
pub use geometry::BoxXyxy;
pub use lifecycle::{Lifecycle, SessionState};
pub use mask::{Mask, MaskError};
pub use provider::{InferenceProvider, ModelFingerprint, ProviderInfo};
