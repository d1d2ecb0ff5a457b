//! The CUDA back end: SAM 3.1 and DINOv2 on an NVIDIA card.
//!
//! It gives a [`Placement`] for the models of `shelfscan-provider-kit`, after asking the driver what
//! there is.
//!
//! ```
//! use candle_core::DType;
//! use shelfscan_provider_cuda::{place, probe};
//!
//! match probe(0) {
//!     Ok(card) => println!("{card}: {:?}", place(&card, DType::BF16)),
//!     Err(error) => println!("{error}"), // says what is missing and what to do
//! }
//! ```
//!
//! * Feature `cuda` builds it, and needs the CUDA toolkit. Without the feature every call is
//!   [`InferenceError::NotBuilt`](shelfscan_inference_core::InferenceError::NotBuilt).
//! * Feature `flash-attn` turns `cuda` on and has attention in f16 and bf16 calculated by the kernels
//!   of `candle-flash-attn`, which are tried when the card is opened.
//! * A program built with the feature links `libcuda` and does not start on a machine without the
//!   driver, so a program for any machine is built without it.
//! * Weights are loaded and used on one stream of the card. candle's default is a stream for each
//!   thread without any order between them, and a model that is loaded by one thread and run by
//!   another could read weights that have not arrived.
//!
//! Limits: one card a process; bf16 from compute capability 8.0 on, f16 from 5.3 on.

#[cfg(not(feature = "cuda"))]
mod absent;
mod card;
#[cfg(feature = "cuda")]
mod driver;

#[cfg(not(feature = "cuda"))]
use absent as driver;

pub use card::Card;
pub use driver::{place, probe};
pub use shelfscan_provider_kit::Placement;

/// Name of the back end.
pub const NAME: &str = "cuda";
