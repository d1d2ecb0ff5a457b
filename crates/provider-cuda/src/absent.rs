//! Stands for the driver in a build without the feature.

use candle_core::DType;
use shelfscan_inference_core::{InferenceError, Result};
use shelfscan_provider_kit::Placement;

use crate::{Card, NAME};

/// Asks the driver about a card.
///
/// # Errors
/// [`InferenceError::NotBuilt`], because this build has no CUDA.
pub fn probe(_index: usize) -> Result<Card> {
    Err(not_built())
}

/// Puts models on a card.
///
/// # Errors
/// [`InferenceError::NotBuilt`], because this build has no CUDA.
pub fn place(_card: &Card, _dtype: DType) -> Result<Placement> {
    Err(not_built())
}

fn not_built() -> InferenceError {
    InferenceError::NotBuilt {
        backend: NAME.into(),
        remedy: "build it on a machine with the CUDA toolkit: cargo build --release -p shelfscan-cli --features cuda"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_cuda_knows_its_name_and_how_to_get_it() {
        let text = probe(0).unwrap_err().to_string();
        assert!(
            text.starts_with("this build has no cuda back end; "),
            "{text}"
        );
        assert!(text.contains("--features cuda"), "{text}");
    }
}
