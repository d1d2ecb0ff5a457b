//! Stands for the system's Metal where there is none.

use candle_core::DType;
use shelfscan_inference_core::{InferenceError, Result};
use shelfscan_provider_kit::Placement;

use crate::{Gpu, NAME};

/// Asks the system about the GPU.
///
/// # Errors
/// [`InferenceError::NotBuilt`], because there is no Metal here.
pub fn probe() -> Result<Gpu> {
    Err(not_built())
}

/// Puts models on the GPU.
///
/// # Errors
/// [`InferenceError::NotBuilt`], because there is no Metal here.
pub fn place(_dtype: DType) -> Result<Placement> {
    Err(not_built())
}

fn not_built() -> InferenceError {
    let remedy = if cfg!(target_os = "macos") {
        "build it with: cargo build --release -p shelfscan-cli --features metal"
    } else {
        "Metal is on macOS alone; pass --device cpu, or --device cuda with an NVIDIA card"
    };
    InferenceError::NotBuilt {
        backend: NAME.into(),
        remedy: remedy.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_metal_knows_its_name_and_what_to_do() {
        let text = probe().unwrap_err().to_string();
        assert!(
            text.starts_with("this build has no metal back end; "),
            "{text}"
        );
        assert!(
            text.contains("metal") && text.contains("cargo build") || text.contains("--device")
        );
    }
}
