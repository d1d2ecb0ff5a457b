//! Where a checkpoint's bytes come from.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::Checkpoint;
use crate::Error;

/// A checkpoint that has not been opened yet: a file, or bytes compiled into the program.
#[derive(Clone)]
pub enum WeightSource {
    /// A file, opened and mapped when it is needed.
    File(PathBuf),
    /// Bytes in memory.
    Memory {
        /// Stands for the path in messages and results.
        name: &'static str,
        /// What a file would hold.
        bytes: &'static [u8],
    },
}

impl WeightSource {
    /// Opens it.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(&self) -> Result<Checkpoint, Error> {
        match self {
            Self::File(path) => Checkpoint::open(path),
            Self::Memory { name, bytes } => Checkpoint::from_bytes(name, *bytes),
        }
    }

    /// The file, or the name that stands for one.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Memory { name, .. } => Path::new(name),
        }
    }
}

impl fmt::Debug for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Memory { name, bytes } => f
                .debug_struct("Memory")
                .field("name", name)
                .field("bytes", &bytes.len())
                .finish(),
        }
    }
}

impl<P: Into<PathBuf>> From<P> for WeightSource {
    fn from(path: P) -> Self {
        Self::File(path.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_where_it_is_and_not_what_it_holds() {
        let file = WeightSource::from("folder/model.safetensors");
        assert_eq!(file.path(), Path::new("folder/model.safetensors"));
        let memory = WeightSource::Memory {
            name: "built-in",
            bytes: &[7; 40],
        };
        assert_eq!(memory.path(), Path::new("built-in"));
        assert_eq!(
            format!("{memory:?}"),
            r#"Memory { name: "built-in", bytes: 40 }"#
        );
        let error = memory.open().unwrap_err().to_string();
        assert!(error.contains("built-in"), "{error}");
    }
}
