//! The hash a file on the hub has to have.

use std::{fs::File, io, ops::ControlFlow, path::Path};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::cache::is_hex;

/// Bytes that are read and hashed at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// What the hub promises about the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashKind {
    /// SHA-256 of the bytes; large files have it.
    Sha256,
    /// SHA-1 of git's header and the bytes; small files that git keeps itself have it.
    GitSha1,
}

impl HashKind {
    /// The kind of a hash in hex; `None` when it is neither.
    pub(crate) fn of(hash: &str) -> Option<Self> {
        match hash.len() {
            64 if is_hex(hash) => Some(Self::Sha256),
            40 if is_hex(hash) => Some(Self::GitSha1),
            _ => None,
        }
    }
}

/// Hashes bytes as they come.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    GitSha1(Sha1),
}

impl Hasher {
    /// For a file of `bytes` bytes, which git's hash begins with.
    pub(crate) fn new(kind: HashKind, bytes: u64) -> Self {
        match kind {
            HashKind::Sha256 => Self::Sha256(Sha256::new()),
            HashKind::GitSha1 => {
                let mut hash = Sha1::new();
                hash.update(format!("blob {bytes}\0").as_bytes());
                Self::GitSha1(hash)
            }
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::GitSha1(hash) => hash.update(bytes),
        }
    }

    /// In hex.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Sha256(hash) => hex(&hash.finalize()),
            Self::GitSha1(hash) => hex(&hash.finalize()),
        }
    }

    /// Takes in the first `bytes` bytes of a file and tells `seen` how many there were so far.
    /// Gives how many it took, fewer when `seen` breaks off or the file is shorter.
    pub(crate) fn update_from(
        &mut self,
        path: &Path,
        bytes: u64,
        mut seen: impl FnMut(u64) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        use io::Read;

        let mut file = File::open(path)?.take(bytes);
        let mut buffer = vec![0; CHUNK];
        let mut done = 0;
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(done);
            }
            self.update(&buffer[..n]);
            done += n as u64;
            if seen(done).is_break() {
                return Ok(done);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    let digits = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]);
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(kind: HashKind, bytes: &[u8]) -> String {
        let mut hasher = Hasher::new(kind, bytes.len() as u64);
        hasher.update(bytes);
        hasher.finish()
    }

    #[test]
    fn hashes_are_those_of_sha256sum_and_git_hash_object() {
        assert_eq!(
            hash(HashKind::Sha256, b"shelf\n"),
            "d2c57c181f994f276c319fa2dce1ea1c4d6c121ff63e8175bcdd5761f09ce54d"
        );
        assert_eq!(
            hash(HashKind::GitSha1, b"shelf\n"),
            "7245faed2bffa17f70bc569a44975a965544005f"
        );
    }

    #[test]
    fn a_file_is_hashed_as_its_bytes_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = vec![7; CHUNK + 5];
        std::fs::write(file.path(), &bytes).unwrap();
        let mut hasher = Hasher::new(HashKind::Sha256, 0);
        let mut seen = Vec::new();
        let tell = |n| {
            seen.push(n);
            ControlFlow::Continue(())
        };
        let done = hasher.update_from(file.path(), u64::MAX, tell).unwrap();
        assert_eq!(done, bytes.len() as u64);
        assert_eq!(hasher.finish(), hash(HashKind::Sha256, &bytes));
        assert_eq!(seen, [CHUNK as u64, bytes.len() as u64]);
    }

    #[test]
    fn the_kind_of_a_hash_is_its_length() {
        assert_eq!(HashKind::of(&"a".repeat(64)), Some(HashKind::Sha256));
        assert_eq!(HashKind::of(&"0".repeat(40)), Some(HashKind::GitSha1));
        for none in ["", "abc", &"A".repeat(64), &"g".repeat(40)] {
            assert_eq!(HashKind::of(none), None);
        }
    }
}
