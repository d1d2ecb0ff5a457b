//! Fingerprints of files.

use std::{fs::File, io::Read, path::Path};

use sha2::{Digest, Sha256};

use crate::Error;

/// SHA-256 of a file in hex, read in pieces.
pub(crate) fn sha256_of_file(path: &Path) -> Result<String, Error> {
    let io = |source| Error::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(io)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    Ok(hex(hash))
}

/// The digest in hex.
pub(super) fn hex(hash: Sha256) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    hash.finalize()
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}
