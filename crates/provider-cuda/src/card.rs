//! What the driver says of a card, and what follows from it.

use std::fmt;

use candle_core::DType;
use shelfscan_inference_core::{InferenceError, Result};

/// A card as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Number of the card, as in `cuda:0`.
    pub index: usize,
    /// What its maker calls it.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Memory of the card, in bytes.
    pub memory_bytes: u64,
}

impl Card {
    /// Checks that the card has kernels for a type.
    ///
    /// # Errors
    /// [`InferenceError::DeviceUnavailable`] with the type to take instead.
    pub fn check(&self, dtype: DType) -> Result<()> {
        let (needs, instead) = match dtype {
            DType::BF16 => ((8, 0), "--dtype f16 or --dtype f32"),
            DType::F16 => ((5, 3), "--dtype f32"),
            DType::F32 => return Ok(()),
            other => {
                return Err(InferenceError::InvalidInput(format!(
                    "models do not calculate in {other:?}; f32, bf16 and f16 are there"
                )));
            }
        };
        if self.compute >= needs {
            return Ok(());
        }
        Err(InferenceError::DeviceUnavailable {
            device: self.device_name(),
            reason: format!(
                "{} has compute capability {}.{} and {} needs {}.{}",
                self.name,
                self.compute.0,
                self.compute.1,
                dtype.as_str(),
                needs.0,
                needs.1
            ),
            remedy: format!("pass {instead}"),
        })
    }

    /// The card as `--device` takes it.
    pub fn device_name(&self) -> String {
        format!("cuda:{}", self.index)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, compute capability {}.{}, {:.0} GiB",
            self.name,
            self.compute.0,
            self.compute.1,
            self.memory_bytes as f64 / f64::from(1 << 30)
        )
    }
}

/// The error for a card that is not there, from what the driver counts.
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "only a driver counts cards")
)]
pub(crate) fn no_such_card(index: usize, count: usize) -> InferenceError {
    let (reason, remedy) = match count {
        0 => (
            "the driver finds no card".into(),
            "check nvidia-smi and CUDA_VISIBLE_DEVICES, or pass --device cpu".into(),
        ),
        1 => ("there is one card".into(), "pass --device cuda:0".into()),
        n => (
            format!("there are {n} cards"),
            format!("pass --device cuda:0 up to cuda:{}", n - 1),
        ),
    };
    InferenceError::DeviceUnavailable {
        device: format!("cuda:{index}"),
        reason,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(compute: (u32, u32)) -> Card {
        Card {
            index: 1,
            name: "NVIDIA T4".into(),
            compute,
            memory_bytes: 16 << 30,
        }
    }

    #[test]
    fn a_type_a_card_has_no_kernels_for_is_refused_with_one_that_it_has() {
        let text = card((7, 5)).check(DType::BF16).unwrap_err().to_string();
        assert_eq!(
            text,
            "device cuda:1 cannot be used: NVIDIA T4 has compute capability 7.5 and bf16 needs 8.0; pass --dtype f16 or --dtype f32"
        );
        assert!(card((7, 5)).check(DType::F16).is_ok());
        assert!(card((8, 0)).check(DType::BF16).is_ok());
        assert!(card((5, 2)).check(DType::F16).is_err());
        assert!(card((5, 2)).check(DType::F32).is_ok());
        assert!(card((9, 0)).check(DType::U8).is_err());
    }

    #[test]
    fn a_card_that_is_not_there_is_told_with_those_that_are() {
        let text = |index, count| no_such_card(index, count).to_string();
        assert!(text(0, 0).contains("nvidia-smi"));
        assert!(text(1, 1).ends_with("there is one card; pass --device cuda:0"));
        assert!(text(4, 4).ends_with("pass --device cuda:0 up to cuda:3"));
    }

    #[test]
    fn a_card_is_told_in_one_line() {
        assert_eq!(
            card((7, 5)).to_string(),
            "NVIDIA T4, compute capability 7.5, 16 GiB"
        );
    }
}
