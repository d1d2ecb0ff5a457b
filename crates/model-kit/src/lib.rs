//! Checkpoints with every key accounted for, pictures to tensors, fused CPU operators.
//!
//! What the SAM 3.1 and DINOv2 ports share, and what another candle port can use as well.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use shelfscan_model_kit::ops::{AttentionOptions, attention};
//!
//! # fn main() -> candle_core::Result<()> {
//! let qkv = Tensor::ones((1, 257, 3, 6, 64), DType::F32, &Device::Cpu)?; // one fused projection
//! let part = |i| qkv.narrow(2, i, 1)?.squeeze(2); // views, no copies
//! let seen = attention(&part(0)?, &part(1)?, &part(2)?, &AttentionOptions::default())?;
//! assert_eq!(seen.dims(), [1, 257, 6, 64]);
//! # Ok(())
//! # }
//! ```
//!
//! * [`weights`] opens safetensors and PyTorch files and accounts for every key.
//! * [`preprocess`] resizes pictures with Pillow's arithmetic, and normalises them.
//! * [`ops`] holds attention, linear layers, norms, convolutions and resampling.
//! * [`lock`] gives one thread at a time a device that cannot be shared.
//!
//! Features `cuda` and `metal` turn candle's back ends on. The operators are fast on CPU tensors in
//! f32, with the vector instructions the machine has; other dtypes and devices take candle's own
//! operators. Feature `flash-attn` adds to `cuda` the kernels of `candle-flash-attn` for attention in
//! f16 and bf16; a program that has it calls `ops::check_flash_attention` on its card once. Limits: no
//! gradients; convolutions have square kernels and no dilation.

// Code that is compiled once for each set of vector instructions has to be inlined into the function
// that chooses the set; a call would run the portable version.
#![allow(clippy::inline_always)]

mod error;
pub mod lock;
pub mod ops;
pub mod preprocess;
pub mod weights;

pub use error::{Error, Result, WeightsFault, weights_error};
