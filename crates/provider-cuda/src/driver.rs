//! Asks the driver, through candle's own binding.

use candle_core::{
    DType, Device,
    cuda_backend::cudarc::driver::{CudaContext, DriverError},
};
use shelfscan_inference_core::{InferenceError, Result};
use shelfscan_provider_kit::Placement;

use crate::{
    NAME,
    card::{Card, no_such_card},
};

/// Asks the driver about a card; nothing stays open.
///
/// # Errors
/// [`InferenceError::DeviceUnavailable`] when there is no driver, or no such card.
pub fn probe(index: usize) -> Result<Card> {
    let failed = |error: DriverError| unusable(index, &error);
    let count = CudaContext::device_count().map_err(failed)?;
    if index >= usize::try_from(count).unwrap_or_default() {
        return Err(no_such_card(index, count.max(0) as usize));
    }
    let context = CudaContext::new(index).map_err(failed)?;
    let (major, minor) = context.compute_capability().map_err(failed)?;
    Ok(Card {
        index,
        name: context.name().map_err(failed)?,
        compute: (major.unsigned_abs(), minor.unsigned_abs()),
        memory_bytes: context.total_mem().map_err(failed)? as u64,
    })
}

/// Puts models on a card that was probed; it is opened by the first warm-up.
///
/// # Errors
/// The card has no kernels for `dtype`; see [`Card::check`].
pub fn place(card: &Card, dtype: DType) -> Result<Placement> {
    card.check(dtype)?;
    let index = card.index;
    Ok(Placement::new(NAME, card.device_name(), dtype, move || {
        // One stream of its own for loading and running, whichever thread does either.
        let device =
            Device::new_cuda_with_stream(index).map_err(|error| unusable(index, &error))?;
        #[cfg(feature = "flash-attn")]
        shelfscan_model_kit::ops::check_flash_attention(&device, dtype).map_err(|error| {
            InferenceError::DeviceUnavailable {
                device: format!("{NAME}:{index}"),
                reason: error.to_string(),
                remedy: "build with CUDA_COMPUTE_CAP set to that of the card or without the \
                         feature flash-attn, or pass --dtype f32"
                    .into(),
            }
        })?;
        Ok(device)
    }))
}

fn unusable(index: usize, error: &dyn std::fmt::Display) -> InferenceError {
    InferenceError::DeviceUnavailable {
        device: format!("cuda:{index}"),
        reason: error.to_string(),
        remedy: "check nvidia-smi, update the driver, or pass --device cpu".into(),
    }
}
