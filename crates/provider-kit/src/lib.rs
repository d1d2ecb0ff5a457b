//! What the back ends share: where models run, and DINOv2 behind the [`Embedder`] contract.
//!
//! Every back end has the same models; what differs is the [`Placement`] they are given. SAM 3.1 is
//! behind its contract in `shelfscan-provider-cpu`, which any back end puts somewhere else.
//!
//! [`Embedder`]: shelfscan_inference_core::Embedder
//!
//! ```no_run
//! use shelfscan_inference_core::{Embedder, RgbImage};
//! use shelfscan_provider_kit::{DType, Dinov2Embedder, EmbedderOptions, Placement};
//!
//! # fn run(crop: RgbImage, device: candle_core::Device) -> shelfscan_inference_core::Result<()> {
//! let place = Placement::new("mine", "mine:0", DType::F32, move || Ok(device.clone()));
//! let embedder = Dinov2Embedder::at("dinov2.safetensors", EmbedderOptions::default(), place);
//! let vectors = embedder.embed(&[crop])?; // a unit vector for each crop
//! # Ok(())
//! # }
//! ```
//!
//! There are no cargo features: which devices candle has is decided by the back ends. Limits: one
//! type for weights and activations; rotary tables, softmax, boxes and scores are f32 whatever it is.

mod embedder;
mod placement;

pub use candle_core::DType;
pub use embedder::{Dinov2Embedder, EmbedderOptions};
pub use placement::Placement;
