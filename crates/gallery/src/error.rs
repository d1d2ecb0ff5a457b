//! What can go wrong with a gallery, grouped by what the reader can do about it.

use std::path::PathBuf;

use shelfscan_inference_core::InferenceError;

/// Result of a gallery call.
pub type Result<T, E = GalleryError> = std::result::Result<T, E>;

/// Why a gallery call failed. Each message ends in the next step to take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GalleryError {
    /// The gallery folder is missing, foreign or damaged. Remedy: name another, or remove it
    /// and enrol again.
    #[error("gallery cannot be used: {reason}; {remedy}: {}", path.display())]
    Gallery {
        /// The gallery folder or its index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The next step.
        remedy: &'static str,
    },
    /// The folder to enrol has nothing to enrol. Remedy: lay it out as one folder per SKU.
    #[error("nothing to enrol: {reason}; put each SKU's pictures in a folder named after it: {}", path.display())]
    NothingToEnroll {
        /// The folder that was searched.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The gallery would pass its bound. Remedy: enrol less or raise the bound.
    #[error("{got} views are more than the bound of {bound}; enrol fewer or raise the bound")]
    TooManyViews {
        /// Views that would be enrolled.
        got: usize,
        /// The bound.
        bound: usize,
    },
    /// The crop policy asked for is not the one the gallery was enrolled with.
    #[error(
        "gallery was enrolled with crop policy {enrolled}, asked for {asked}; ask for {enrolled} or enrol again"
    )]
    CropPolicyMismatch {
        /// Policy stored with the gallery.
        enrolled: String,
        /// Policy asked for.
        asked: String,
    },
    /// A SKU that is not enrolled was named. Remedy: use a listed name.
    #[error("no SKU named {sku} is enrolled; nearest names: {}", near.join(", "))]
    UnknownSku {
        /// The name that was given.
        sku: String,
        /// The nearest enrolled names.
        near: Vec<String>,
    },
    /// A cell of a CSV file is unusable. Remedy: mend the named line.
    #[error("line {line}, column {column}: {reason}: {}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// Line in the file, from 1, the header being line 1.
        line: u64,
        /// Name of the column, or its number when it has no name.
        column: String,
        /// What is wrong and what to write instead.
        reason: String,
    },
    /// The cache of embeddings is cut, damaged or hostile. Remedy: it is built again.
    #[error("cache is not usable: {reason}; it is built again when the gallery is loaded: {}", path.display())]
    Cache {
        /// The cache file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A picture cannot be read. Remedy: replace it.
    #[error("picture cannot be read: {reason}; replace it or take it out: {}", path.display())]
    Picture {
        /// The picture.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// An argument is unusable. Remedy: pass something else.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The caller stopped the work. What was embedded so far is kept and not embedded again.
    #[error("stopped after {embedded} of {wanted} views; run it again to go on from there")]
    Stopped {
        /// Views embedded so far, in this run and the ones before.
        embedded: usize,
        /// Views to embed in all.
        wanted: usize,
    },
    /// The disk refused. Remedy: see the system's reason.
    #[error("cannot {action}: {source}: {}", path.display())]
    Io {
        /// What was being done, such as `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The embedder failed. Remedy: see its own message.
    #[error("embedder failed")]
    Embedder(#[from] InferenceError),
}

impl GalleryError {
    /// Wraps a system error with what was being done to which path.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_to_do_and_puts_the_path_last() {
        let error = GalleryError::Csv {
            path: "skus.csv".into(),
            line: 7,
            column: "gtin".into(),
            reason: "the check digit is 4, not 3".into(),
        };
        assert_eq!(
            error.to_string(),
            "line 7, column gtin: the check digit is 4, not 3: skus.csv"
        );
    }
}
