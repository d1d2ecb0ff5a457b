//! Messages over anything that reads and writes.

use std::io::{self, Read, Write};

use shelfscan_inference_core::protocol::{Encoded, HEADER_BYTES, Header, ProtocolError};

/// Room made for a part before it arrives; more comes as the bytes do, so a header that lies about
/// a length costs no memory.
const ROOM_BYTES: usize = 32 << 20;

/// A message that arrived: its header, meta and bulk.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) header: Header,
    pub(crate) meta: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

/// Why no message arrived.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the stream ended in the middle of a message")]
    CutShort,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the next message; `None` when the stream ended before one began.
pub(crate) fn read(from: &mut impl Read) -> Result<Option<Arrived>, WireError> {
    let mut head = [0; HEADER_BYTES];
    let mut have = 0;
    while have < HEADER_BYTES {
        match from.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            // Too little for a header may still show that it is no message at all.
            Ok(0) => {
                Header::decode(&head)?;
                return Err(WireError::CutShort);
            }
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let header = Header::decode(&head)?;
    let meta = part(from, header.meta_bytes as usize)?;
    let bulk = part(from, header.bulk_bytes as usize)?;
    Ok(Some(Arrived { header, meta, bulk }))
}

fn part(from: &mut impl Read, length: usize) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::with_capacity(length.min(ROOM_BYTES));
    let got = from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    if got == length {
        Ok(bytes)
    } else {
        Err(WireError::CutShort)
    }
}

/// Writes a message, part by part.
pub(crate) fn write(to: &mut impl Write, message: &Encoded) -> io::Result<()> {
    for part in message.parts() {
        to.write_all(part)?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shelfscan_inference_core::{
        RgbImage,
        protocol::{MAX_BULK_BYTES, Request},
    };

    use super::*;

    /// Gives a byte or two at a time.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(1 + self.0.len() % 2);
            (&mut self.0).take(n as u64).read(buf)
        }
    }

    fn bytes() -> Vec<u8> {
        let crops = vec![RgbImage::new(3, 2, (0..18).collect()).unwrap()];
        let message = Request::Embed(crops).encode(5).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &message).unwrap();
        bytes
    }

    #[test]
    fn a_message_arrives_however_slowly_and_the_end_is_told_from_a_cut() {
        let bytes = bytes();
        let mut slow = Trickle(&bytes);
        let got = read(&mut slow).unwrap().unwrap();
        assert_eq!(got.header.call, 5);
        assert_eq!(got.bulk, (0..18).collect::<Vec<u8>>());
        assert!(read(&mut slow).unwrap().is_none());
        for cut in 1..bytes.len() {
            assert!(
                matches!(
                    read(&mut &bytes[..cut]),
                    Err(WireError::CutShort | WireError::Protocol(_))
                ),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_header_that_lies_about_its_length_costs_no_memory() {
        let header = Header {
            kind: 1,
            call: 1,
            meta_bytes: 0,
            bulk_bytes: MAX_BULK_BYTES,
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend([1; 100]);
        assert!(matches!(
            read(&mut bytes.as_slice()),
            Err(WireError::CutShort)
        ));
        assert!(ROOM_BYTES < MAX_BULK_BYTES as usize / 16);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_an_error_or_the_end(bytes: Vec<u8>) {
            prop_assert!(!matches!(read(&mut bytes.as_slice()), Ok(Some(_))));
        }
    }
}
