//! The bytes of a checkpoint: a file mapped into memory, whose pages are handed back once they were
//! copied out, or bytes that are in memory already.
#![allow(unsafe_code)]

use std::{
    borrow::Cow,
    fs::File,
    path::{Path, PathBuf},
};

use crate::Error;

#[derive(Debug)]
enum Data {
    Map(memmap2::Mmap),
    Memory(Cow<'static, [u8]>),
}

/// A read-only map of a whole file, or bytes under a name that stands in for its path.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    data: Data,
}

impl MappedFile {
    /// Maps `path`; an empty file is an error, because it cannot be mapped.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_path_buf(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if !meta.is_file() || meta.len() == 0 {
            return Err(Error::broken(path, "the file is empty or not a plain file"));
        }
        // SAFETY: the map is only read, and bytes are copied out before use, so that a writer who
        // changes the file meanwhile can at worst change numbers. A file cut short under the map
        // raises a bus error, as for every program that maps files; the docs of `Checkpoint` say
        // that the file has to stay as it is while it is open.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(Self {
            path: path.to_path_buf(),
            data: Data::Map(map),
        })
    }

    /// Bytes that are in memory already.
    pub(super) fn from_bytes(name: &str, bytes: Cow<'static, [u8]>) -> Self {
        Self {
            path: PathBuf::from(name),
            data: Data::Memory(bytes),
        }
    }

    /// True for a file, whose bytes are better read in pieces than through the map.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.data, Data::Map(_))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Map(map) => map,
            Data::Memory(bytes) => bytes,
        }
    }

    /// Drops the pages of a range that was copied out, so that a load does not hold the file and
    /// the tensors in memory at once. Reading the range again brings them back.
    pub(super) fn release(&self, start: usize, len: usize) {
        #[cfg(unix)]
        if let Data::Map(map) = &self.data
            && len > 1 << 20
        {
            // SAFETY: the map is read-only and backed by a file, so dropped pages are read from the
            // file again at the next access; no reference into them sees a change.
            let dropped = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
            };
            // The hint may be refused, which costs memory and nothing else.
            drop(dropped);
        }
        #[cfg(not(unix))]
        let _unused = (start, len);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn released_pages_hold_the_same_bytes_when_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        assert_eq!(map.bytes(), bytes);
        map.release(5, 2_500_000);
        assert_eq!(map.bytes(), bytes);
    }

    #[test]
    fn an_empty_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = MappedFile::open(file.path()).unwrap_err().to_string();
        assert!(error.contains("empty"), "{error}");
    }
}
