//! What can go wrong, grouped by what to do about it.

use shelfscan_model_kit::WeightsFault;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint is missing, broken or of another model. Remedy: get the right file.
    #[error(transparent)]
    Weights(#[from] shelfscan_model_kit::Error),
    /// The checkpoint is of a DINOv2 that this port does not know. Remedy: another checkpoint or
    /// other load options.
    #[error("{reason}; {remedy}: {}", path.display())]
    Architecture {
        /// The file.
        path: std::path::PathBuf,
        /// What was found.
        reason: String,
        /// The next step.
        remedy: &'static str,
    },
    /// A picture has a size the model cannot take. Remedy: resize it.
    #[error(
        "pixels have shape {shape:?}; pass [b, 3, h, w] with sides that are multiples of {patch}, from {patch} to {max}"
    )]
    Size {
        /// The shape that was passed.
        shape: Vec<usize>,
        /// Side of a patch in pixels.
        patch: usize,
        /// Largest side in pixels.
        max: usize,
    },
    /// The tensor library refused. Remedy: see the source; most often memory or the device.
    #[error("{stage} failed")]
    Tensor {
        /// The stage of the model.
        stage: &'static str,
        /// The library's own error.
        #[source]
        source: candle_core::Error,
    },
}

impl Error {
    /// The parts of a message about a file of weights; `None` when no file is to blame.
    pub fn weights_fault(&self) -> Option<WeightsFault> {
        match self {
            Self::Weights(kit) => kit.weights_fault(),
            Self::Architecture {
                path,
                reason,
                remedy,
            } => Some(WeightsFault {
                path: path.clone(),
                reason: reason.clone(),
                remedy,
            }),
            Self::Size { .. } | Self::Tensor { .. } => None,
        }
    }
}

/// Names the stage of a candle error.
pub(crate) trait At<T> {
    fn at(self, stage: &'static str) -> Result<T>;
}

impl<T> At<T> for candle_core::Result<T> {
    fn at(self, stage: &'static str) -> Result<T> {
        self.map_err(|source| Error::Tensor { stage, source })
    }
}
