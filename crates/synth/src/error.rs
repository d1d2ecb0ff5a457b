//! What can go wrong, grouped by what to do about it.

use std::path::{Path, PathBuf};

/// Errors of drawing and of writing what was drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// A file or folder cannot be read or written.
    #[error("cannot read or write ({source}): {}", path.display())]
    Io {
        /// What the system said.
        source: std::io::Error,
        /// The file or folder.
        path: PathBuf,
    },
    /// A folder given for photographs has none.
    #[error("give a folder with jpg, png or webp photographs: {}", .0.display())]
    NoPictures(PathBuf),
    /// A folder to write into holds something already.
    #[error("give a folder that is empty or not there yet: {}", .0.display())]
    NotEmpty(PathBuf),
    /// A count, size or rate is out of range; the message says which range.
    #[error("{0}")]
    OutOfRange(String),
    /// A picture cannot be encoded.
    #[error("cannot encode a picture: {0}")]
    Encode(#[from] image::ImageError),
}

impl SynthError {
    /// Names the file an error of the system is about.
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            source,
            path: path.clone(),
        }
    }
}

/// A result of this crate.
pub type Result<T, E = SynthError> = std::result::Result<T, E>;
