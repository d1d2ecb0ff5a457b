//! Asks macOS, through candle's own binding.

use std::sync::OnceLock;

use candle_core::{DType, Device};
use shelfscan_inference_core::{InferenceError, Result};
use shelfscan_provider_kit::Placement;

use crate::{Gpu, NAME};

/// The one device of the process. A second handle would have a queue and a kernel cache of its own.
static DEVICE: OnceLock<Device> = OnceLock::new();

/// Asks macOS about the GPU.
///
/// # Errors
/// [`InferenceError::DeviceUnavailable`] when macOS shows no GPU, as in some virtual machines.
pub fn probe() -> Result<Gpu> {
    // candle panics on a machine without a GPU, so it is asked only when there is one.
    let found = candle_metal_kernels::metal::Device::all();
    match found.first() {
        Some(gpu) => Ok(Gpu {
            memory_bytes: gpu.recommended_max_working_set_size() as u64,
            allocated_bytes: gpu.current_allocated_size() as u64,
        }),
        None => Err(unusable("macOS shows no GPU")),
    }
}

/// Puts models on the GPU; it is opened by the first warm-up.
///
/// # Errors
/// No GPU, as of [`probe`], or a type it does not calculate in.
pub fn place(dtype: DType) -> Result<Placement> {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(InferenceError::InvalidInput(format!(
            "models do not calculate in {dtype:?}; f32, bf16 and f16 are there"
        )));
    }
    probe()?;
    Ok(Placement::exclusive(NAME, NAME, dtype, || {
        if let Some(device) = DEVICE.get() {
            return Ok(device.clone());
        }
        let device = Device::new_metal(0).map_err(|error| unusable(error))?;
        Ok(DEVICE.get_or_init(|| device).clone())
    }))
}

fn unusable(reason: impl std::fmt::Display) -> InferenceError {
    InferenceError::DeviceUnavailable {
        device: NAME.into(),
        reason: reason.to_string(),
        remedy: "update macOS, or pass --device cpu".into(),
    }
}
