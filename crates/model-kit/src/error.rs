//! What can go wrong with weights and pictures, grouped by what to do about it.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a checkpoint, a picture or a file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or written. Remedy: the path or its permissions.
    #[error("cannot read or write the file, check that it exists and may be used ({source}): {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is cut, hostile or of another kind. Remedy: get the file again.
    #[error("{reason}; get the file again or pass another: {}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No tensor of the model is in the file. Remedy: a checkpoint of this model.
    #[error("no tensor of this model is in the file, which should hold {probe} (nearest: {nearest}); pass a checkpoint of this model: {}", path.display())]
    NoMatch {
        /// The file.
        path: PathBuf,
        /// A tensor that every checkpoint of the model has.
        probe: String,
        /// The existing keys that look most like it.
        nearest: String,
    },
    /// A tensor is not in the file. Remedy: a checkpoint of this model and version.
    #[error("tensor {key}{shape} is not in the file (nearest: {nearest}); pass a checkpoint of this model: {}", path.display())]
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
    #[error("the checkpoint does not fit the model: {}; pass a checkpoint of this model and version: {}", account(problems, unused), path.display())]
    Unaccounted {
        /// The file.
        path: PathBuf,
        /// Missing and misshapen tensors, one sentence each.
        problems: Vec<String>,
        /// Keys of the file that no part of the model read.
        unused: Vec<String>,
    },
    /// A weight is NaN or infinite. Remedy: get the file again, or a wider type.
    #[error("tensor {key} holds a value that is not finite (element {at}); get the file again or load it in a wider type: {}", path.display())]
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

impl Error {
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
