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
    /// The device has no memory left. Remedy: free some, or ask for less at once.
    #[error("{stage} ran out of memory ({reason}); {remedy}")]
    OutOfMemory {
        /// The stage of the model.
        stage: String,
        /// What the device or its library answered.
        reason: String,
        /// What to free or lower.
        remedy: String,
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
    /// Wraps a back end's own error with the stage it came from. One that says it is out of memory
    /// becomes [`OutOfMemory`](Self::OutOfMemory).
    pub fn backend(
        stage: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let (stage, source) = (stage.into(), source.into());
        match out_of_memory(source.as_ref()) {
            Some(reason) => Self::OutOfMemory {
                stage,
                reason,
                remedy: "end what else uses the device, ask for fewer phrases at once, or take \
                         --dtype bf16 or --device cpu"
                    .into(),
            },
            None => Self::Backend { stage, source },
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

/// How CUDA, Metal and the C library name a lack of memory, in small letters.
const OUT_OF_MEMORY: [&str; 4] = [
    "out of memory",
    "out_of_memory",
    "outofmemory",
    "insufficient memory",
];

/// The first line of the cause that says memory ran out.
fn out_of_memory(source: &(dyn std::error::Error + 'static)) -> Option<String> {
    std::iter::successors(Some(source), |cause| cause.source())
        .map(ToString::to_string)
        .find(|text| {
            let small = text.to_lowercase();
            OUT_OF_MEMORY.iter().any(|name| small.contains(name))
        })
        .map(|text| text.lines().next().unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_from_other_failures_of_a_back_end() {
        for text in [
            "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n  0: a\n  1: b",
            "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        ] {
            let deep = std::io::Error::other(std::io::Error::other(text));
            let error = InferenceError::backend("trunk", deep);
            assert!(matches!(error, InferenceError::OutOfMemory { .. }));
            let shown = error.to_string();
            assert!(shown.starts_with("trunk ran out of memory ("), "{shown}");
            assert!(
                !shown.contains('\n') && shown.contains("--dtype bf16"),
                "{shown}"
            );
            assert!(error.is_fatal_for_run());
        }
        let other = InferenceError::backend("trunk", "an illegal address");
        assert_eq!(other.to_string(), "trunk failed");
    }

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
