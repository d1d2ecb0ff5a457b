//! What can go wrong, grouped by what to do about it.

use std::path::PathBuf;

/// Errors of drawing and of writing what was drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// A file or folder cannot be read or written.
    #[error("cannot read or write: {error}: {}", path.display())]
    Io {
        /// What the system said.
        error: std::io::Error,
        /// The file or folder.
        path: PathBuf,
    },
    /// A folder given for photographs has none.
    #[error("give a folder with jpg, png or webp photographs: {}", .0.display())]
    NoPictures(PathBuf),
    /// A count, size or rate is out of range.
    #[error("{0}")]
    OutOfRange(String),
    /// A picture cannot be encoded.
    #[error("cannot encode a picture: {0}")]
    Encode(#[from] image::ImageError),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, SynthError>;
