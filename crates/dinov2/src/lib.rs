//! DINOv2 in candle: pictures in, tokens and unit vectors out.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use shelfscan_dinov2::{Dinov2, LoadOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Dinov2::load("model.safetensors", LoadOptions::default(), DType::F32, &Device::Cpu)?;
//! let pixels = candle_core::Tensor::zeros((2, 3, 224, 336), DType::F32, &Device::Cpu)?;
//! let vectors = model.embed_pictures(&pixels)?; // [2, dim], length 1
//! # Ok(())
//! # }
//! ```
//!
//! ViT-S, B, L and g with patches of 14, with and without registers, from the original `.pth`
//! files and from Hugging Face's safetensors ([`Naming`]). Any batch, any size that is a multiple
//! of the patch, rectangles included. Pictures are resized and normalised by
//! `shelfscan_model_kit::preprocess`.
//!
//! Method: Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision" (2023);
//! registers: Darcet et al., "Vision Transformers Need Registers" (2023).
//!
//! Features `cuda` and `metal` turn candle's back ends on: the device is candle's, and the CPU in
//! f32 takes the fused operators. Limits: no masked patches, no training, no linear heads.

mod config;
mod error;
mod model;
mod names;
mod positions;

pub use config::{Dinov2Config, FeedForward, LoadOptions, PositionGrid};
pub use error::{Error, Result};
pub use model::{Dinov2, Tokens};
pub use names::Naming;
