//! What can go wrong in a model, grouped by what the reader can do about it.

use std::path::PathBuf;

/// Result of a provider or embedder call.
pub type Result<T, E = InferenceError> = std::result::Result<T, E>;

/// Why a model call failed. Each message ends in the next step to take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InferenceError {
    /// The back end exists, but this build leaves it out. Remedy: rebuild with a feature.
    #[error("this build has no {backend} back end; {remedy}")]
    NotBuilt {
        /// Name of the back end, as given to `--device`.
        backend: String,
        /// How to get a build that has it.
        remedy: String,
    },
    /// The driver or card is missing or too old. Remedy: another device or driver.
    #[error("device {device} cannot be used: {reason}; {remedy}")]
    DeviceUnavailable {
        /// The device that was asked for, such as `cuda:0`.
        device: String,
        /// What the device or its driver answered.
        reason: String,
        /// The next step.
        remedy: String,
    },
    /// A checkpoint is missing, gated, broken or of another model. Remedy: get the right file.
    #[error("weights cannot be used: {reason}; {remedy}: {}", path.display())]
    Weights {
        /// The file, or the place it was looked for.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The next step.
        remedy: String,
    },
    /// The caller broke the order of calls. Remedy: call the named method first.
    #[error("{call} was called while the provider was {state}; {remedy}")]
    OutOfOrder {
        /// The method that was called.
        call: &'static str,
        /// The state the provider was in, in words.
        state: &'static str,
        /// Which call was due.
        remedy: &'static str,
    },
    /// An argument is unusable. Remedy: pass something else.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// Memory ran out. Remedy: lower what the message names.
    #[error("out of memory: {need} needed, {have} there; lower {lower}")]
    OutOfMemory {
        /// What the step needs, in words with units.
        need: String,
        /// What the device has, in words with units.
        have: String,
        /// The option to lower.
        lower: String,
    },
    /// A stage produced NaN or infinity. Remedy: other weights or a wider dtype.
    #[error(
        "{stage} produced a value that is not finite; the weights are damaged or the dtype is too narrow"
    )]
    NonFinite {
        /// The stage of the model.
        stage: String,
    },
    /// A worker process died, hung or answered nonsense. Remedy: restart it, which warms it again.
    #[error("worker failed in {call}: {reason}; its last lines were:\n{stderr_tail}")]
    Worker {
        /// The contract call that was under way.
        call: &'static str,
        /// What happened to the worker.
        reason: String,
        /// The end of its standard error.
        stderr_tail: String,
    },
    /// Anything else a back end reports. Remedy: see the source.
    #[error("{stage} failed")]
    Backend {
        /// The stage of the model.
        stage: String,
        /// The back end's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl InferenceError {
    /// Wraps a back end's own error with the stage it came from.
    pub fn backend(
        stage: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Backend {
            stage: stage.into(),
            source: source.into(),
        }
    }

    /// True when every later frame would fail the same way, so that a scan should stop at once.
    pub fn is_fatal_for_run(&self) -> bool {
        !matches!(self, Self::InvalidInput(_) | Self::Worker { .. })
    }

    /// True when the same call may succeed after the provider was restarted.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Worker { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_device_the_reason_and_the_remedy() {
        let error = InferenceError::DeviceUnavailable {
            device: "cuda:1".into(),
            reason: "there is one card".into(),
            remedy: "pass --device cuda:0".into(),
        };
        assert_eq!(
            error.to_string(),
            "device cuda:1 cannot be used: there is one card; pass --device cuda:0"
        );
        assert!(error.is_fatal_for_run());
    }

    #[test]
    fn only_a_worker_failure_is_worth_a_retry() {
        let worker = InferenceError::Worker {
            call: "track_next",
            reason: "killed".into(),
            stderr_tail: String::new(),
        };
        assert!(worker.is_retryable() && !worker.is_fatal_for_run());
        assert!(!InferenceError::InvalidInput("empty prompt".into()).is_retryable());
    }
}
