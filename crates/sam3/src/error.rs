//! What can go wrong in the detector, grouped by what to do about it.

use std::path::PathBuf;

use shelfscan_inference_core::InferenceError;
use shelfscan_model_kit::weights_error;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint is missing, broken or does not fit. Remedy: get the right file.
    #[error(transparent)]
    Weights(#[from] shelfscan_model_kit::Error),
    /// The checkpoint is of another model. Remedy: get the right file.
    #[error("this is {found}; {remedy}: {}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to pass instead.
        remedy: &'static str,
    },
    /// Sizes that do not make a model. Remedy: the configuration.
    #[error("the model configuration cannot be used: {0}")]
    Config(String),
    /// An argument is unusable. Remedy: pass something else.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// A stage produced NaN or infinity. Remedy: other weights or a wider type.
    #[error(
        "{stage} produced a value that is not finite; the weights are damaged or the type is too narrow"
    )]
    NonFinite {
        /// The stage of the model.
        stage: &'static str,
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

impl From<Error> for InferenceError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidInput(text) => Self::InvalidInput(text),
            Error::NonFinite { stage } => Self::NonFinite {
                stage: stage.into(),
            },
            Error::OtherModel {
                path,
                found,
                remedy,
            } => Self::Weights {
                path,
                reason: format!("this is {found}"),
                remedy: remedy.into(),
            },
            Error::Weights(kit) => weights_error(kit.weights_fault(), kit, "SAM 3.1"),
            Error::Config(_) => Self::InvalidInput(error.to_string()),
            Error::Tensor { stage, source } => Self::backend(stage, source),
        }
    }
}

/// What a model without the mask branch answers to a question about masks.
pub(crate) fn no_masks() -> Error {
    Error::InvalidInput("this model draws no masks; ask it for boxes".into())
}

/// Names the stage of a tensor operation that failed.
pub(crate) trait AtStage<T> {
    fn at(self, stage: &'static str) -> Result<T>;
}

impl<T> AtStage<T> for candle_core::Result<T> {
    fn at(self, stage: &'static str) -> Result<T> {
        self.map_err(|source| Error::Tensor { stage, source })
    }
}
