//! The Metal back end: SAM 3.1 and DINOv2 on Apple silicon.
//!
//! It gives a [`Placement`] for the models of `shelfscan-provider-kit`, after asking the system what
//! there is.
//!
//! ```
//! use candle_core::DType;
//! use shelfscan_provider_metal::{place, probe};
//!
//! match probe() {
//!     Ok(gpu) => println!("{gpu}: {:?}", place(DType::F32)),
//!     Err(error) => println!("{error}"), // says what is missing and what to do
//! }
//! ```
//!
//! * Feature `metal` builds it on macOS. Without the feature, and on any other system, every call is
//!   [`InferenceError::NotBuilt`](shelfscan_inference_core::InferenceError::NotBuilt).
//! * There is one device in a process, and one thread at a time uses it from loading to reading back:
//!   two handles to a card have queues and kernel caches of their own, and candle loses fences when
//!   one thread waits for the device while another one encodes.
//! * Kernels are compiled from source when they are used first, which is slow and holds every other
//!   thread up; the warm-up of a model runs the whole of it once, alone.
//!
//! Limits: the first GPU of the machine; types f32, bf16 and f16.

#[cfg(not(all(feature = "metal", target_os = "macos")))]
mod absent;
#[cfg(all(feature = "metal", target_os = "macos"))]
mod system;

#[cfg(not(all(feature = "metal", target_os = "macos")))]
use absent as system;

pub use shelfscan_provider_kit::Placement;
pub use system::{place, probe};

/// Name of the back end, and of its one device.
pub const NAME: &str = "metal";

/// The GPU as macOS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Memory a process should not go beyond, in bytes.
    pub memory_bytes: u64,
    /// Memory this process holds now, in bytes.
    pub allocated_bytes: u64,
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(f, "the GPU of this Mac, {gib:.0} GiB")
    }
}
