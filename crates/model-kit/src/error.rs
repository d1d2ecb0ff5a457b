//! What can go wrong with weights and pictures, grouped by what to do about it.

use std::path::{Path, PathBuf};

use shelfscan_inference_core::InferenceError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

const CHECK_FILE: &str = "check that it exists and may be used";
const GET_AGAIN: &str = "get the file again or pass another";
const SAME_MODEL: &str = "pass a checkpoint of this model";
const SAME_VERSION: &str = "pass a checkpoint of this model and version";
const WIDER: &str = "get the file again or load it in a wider type";

/// Why a checkpoint, a picture or a file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or written. Remedy: the path or its permissions.
    #[error("cannot read or write the file ({source}); {remedy}: {}", path.display(), remedy = CHECK_FILE)]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is cut, hostile or of another kind. Remedy: get the file again.
    #[error("{reason}; {remedy}: {}", path.display(), remedy = GET_AGAIN)]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No tensor of the model is in the file. Remedy: a checkpoint of this model.
    #[error("no tensor of this model is in the file, which should hold {probe} (nearest: {nearest}); {remedy}: {}", path.display(), remedy = SAME_MODEL)]
    NoMatch {
        /// The file.
        path: PathBuf,
        /// A tensor that every checkpoint of the model has.
        probe: String,
        /// The existing keys that look most like it.
        nearest: String,
    },
    /// A tensor is not in the file. Remedy: a checkpoint of this model and version.
    #[error("tensor {key}{shape} is not in the file (nearest: {nearest}); {remedy}: {}", path.display(), remedy = SAME_MODEL)]
    Missing {
        /// The file.
        path: PathBuf,
        /// Full key.
        key: String,
        /// ` of shape [..]`, or empty when none was asked for.
        shape: String,
        /// The existing keys that look most like it.
        nearest: String,
    },
    /// The file and the model do not agree. Remedy: a checkpoint of this model and version.
    #[error("the checkpoint does not fit the model: {}; {remedy}: {}", account(problems, unused), path.display(), remedy = SAME_VERSION)]
    Unaccounted {
        /// The file.
        path: PathBuf,
        /// Missing and misshapen tensors, one sentence each.
        problems: Vec<String>,
        /// Keys of the file that no part of the model read.
        unused: Vec<String>,
    },
    /// A weight is NaN or infinite. Remedy: get the file again, or a wider type.
    #[error("tensor {key} holds a value that is not finite (element {at}); {remedy}: {}", path.display(), remedy = WIDER)]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Full key.
        key: String,
        /// Index of the first such element, in row-major order.
        at: usize,
    },
    /// An argument is unusable. Remedy: pass something else.
    #[error("{0}")]
    InvalidInput(String),
    /// The tensor library refused. Remedy: see the source; most often memory or the device.
    #[error("{what} failed")]
    Tensor {
        /// The step, in words.
        what: String,
        /// The library's own error.
        #[source]
        source: candle_core::Error,
    },
}

/// What is wrong with a checkpoint, in the parts that a caller's own message is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// The next step.
    pub remedy: &'static str,
}

/// The contract's error for weights that do not load: about the file when one is to blame. `model` is
/// what it should hold, such as `SAM 3.1`.
pub fn weights_error(
    fault: Option<WeightsFault>,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    model: &str,
) -> InferenceError {
    match fault {
        Some(fault) => InferenceError::Weights {
            path: fault.path,
            reason: fault.reason,
            remedy: fault.remedy.replace("this model", model),
        },
        None => InferenceError::backend("loading weights", error),
    }
}

impl Error {
    /// The parts of a message about a file of weights; `None` when no file is to blame.
    pub fn weights_fault(&self) -> Option<WeightsFault> {
        let (path, remedy) = match self {
            Self::Io { path, .. } => (path, CHECK_FILE),
            Self::Broken { path, .. } => (path, GET_AGAIN),
            Self::NoMatch { path, .. } | Self::Missing { path, .. } => (path, SAME_MODEL),
            Self::Unaccounted { path, .. } => (path, SAME_VERSION),
            Self::NotFinite { path, .. } => (path, WIDER),
            Self::InvalidInput(_) | Self::Tensor { .. } => return None,
        };
        let mut reason = self.to_string();
        let tail = format!("; {remedy}: {}", path.display());
        reason.truncate(reason.strip_suffix(&tail).map_or(reason.len(), str::len));
        Some(WeightsFault {
            path: path.clone(),
            reason,
            remedy,
        })
    }

    /// A broken file, from any text.
    pub(crate) fn broken(path: &Path, reason: impl Into<String>) -> Self {
        Self::Broken {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }
}

/// The first problems and unused keys, so that a message stays readable for a thousand of them.
fn account(problems: &[String], unused: &[String]) -> String {
    let mut parts = Vec::new();
    let few = |items: &[String]| {
        let mut some: Vec<String> = items.iter().take(8).cloned().collect();
        if items.len() > some.len() {
            some.push(format!("and {} more", items.len() - some.len()));
        }
        some.join("; ")
    };
    if !problems.is_empty() {
        parts.push(few(problems));
    }
    if !unused.is_empty() {
        parts.push(format!("unused: {}", few(unused)));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_message_hold_path_and_remedy_once() {
        let path = PathBuf::from("models/x.safetensors");
        let errors = [
            Error::Io {
                path: path.clone(),
                source: std::io::Error::other("gone"),
            },
            Error::broken(&path, "the header is cut"),
            Error::NoMatch {
                path: path.clone(),
                probe: "cls".into(),
                nearest: "none".into(),
            },
            Error::Missing {
                path: path.clone(),
                key: "a".into(),
                shape: " of shape [1]".into(),
                nearest: "b".into(),
            },
            Error::Unaccounted {
                path: path.clone(),
                problems: vec!["a is missing".into()],
                unused: vec!["b".into()],
            },
            Error::NotFinite {
                path: path.clone(),
                key: "a".into(),
                at: 3,
            },
        ];
        for error in errors {
            let fault = error.weights_fault().unwrap();
            assert_eq!(fault.path, path);
            assert!(!fault.reason.contains("models/"), "{}", fault.reason);
            assert!(!fault.reason.contains(fault.remedy), "{}", fault.reason);
            let whole = format!("{}; {}: {}", fault.reason, fault.remedy, path.display());
            assert_eq!(error.to_string(), whole);
        }
        assert_eq!(Error::InvalidInput("b".into()).weights_fault(), None);
    }
}
