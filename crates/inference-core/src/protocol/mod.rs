//! Messages between a program and a worker process, as bytes.
//!
//! This module turns messages into bytes and back; it reads and writes nothing itself. A message on
//! the wire is a header of [`HEADER_BYTES`], then *meta*, the small values field by field, then
//! *bulk*, pixels or vectors as they lie in memory. Numbers are little-endian.
//!
//! | Bytes | Header field |
//! |---|---|
//! | 4 | `SSWP` |
//! | 2 | version, [`VERSION`] |
//! | 2 | kind of the message |
//! | 4 | number of the call; an answer bears the number of its call |
//! | 4 | length of meta, at most [`MAX_META_BYTES`] |
//! | 4 | length of bulk, at most [`MAX_BULK_BYTES`] |
//!
//! Bulk stands apart so that a frame is never copied to be sent, and its pixels are received in the
//! vector they stay in. Every length is checked against what is really there before anything is
//! allocated for it, so damaged or hostile bytes are a [`ProtocolError`] and cost little.
//!
//! ```
//! use shelfscan_inference_core::{RgbImage, protocol::{Header, Request}};
//!
//! let crops = vec![RgbImage::new(2, 1, vec![0, 1, 2, 3, 4, 5])?];
//! let sent = Request::Embed(crops).encode(7)?;
//! let bytes: Vec<u8> = sent.parts().flatten().copied().collect();
//!
//! let (header, rest) = bytes.split_first_chunk().expect("a whole header");
//! let header = Header::decode(header)?;
//! let (meta, bulk) = rest.split_at(header.meta_bytes as usize);
//! assert!(matches!(Request::decode(&header, meta, bulk.to_vec())?, Request::Embed(crops) if crops.len() == 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod failure;
mod header;
mod message;
mod values;

pub use header::{HEADER_BYTES, Header, MAX_BULK_BYTES, MAX_META_BYTES, VERSION};
pub use message::{Encoded, Request, Response};

/// Why bytes are no message, or a message cannot be written as bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Something else was written where a message has to begin.
    #[error("{0:02x?} is not how a message begins; the other side wrote something else")]
    NotAMessage([u8; 4]),
    /// The other side is of another version of the program.
    #[error("the other side speaks version {got}, this one {VERSION}; start both from one program")]
    OtherVersion {
        /// Version in the header.
        got: u16,
    },
    /// A kind that is not known, or not of this direction.
    #[error("a message of kind {0} has no place here")]
    UnexpectedKind(u16),
    /// A length is over its limit.
    #[error("{what} of {size} is over the limit of {limit}")]
    TooLarge {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The largest size.
        limit: u64,
    },
    /// The message breaks off, goes on too long or holds a value that cannot be.
    #[error("the message is damaged at its {0}")]
    Damaged(&'static str),
}
