//! The fixed start of a message.

use super::ProtocolError;

/// Version of the messages; both sides have to agree on it.
pub const VERSION: u16 = 1;
/// Length of a header.
pub const HEADER_BYTES: usize = 20;
/// Most bytes of meta: a thousand detections with large masks are a third of it.
pub const MAX_META_BYTES: u32 = 64 << 20;
/// Most bytes of bulk: a picture of 350 megapixels.
pub const MAX_BULK_BYTES: u32 = 1 << 30;

const MAGIC: [u8; 4] = *b"SSWP";

/// The start of a message: what follows, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the message, a number of its own for each request and response.
    pub kind: u16,
    /// Number of the call the message belongs to.
    pub call: u32,
    /// Bytes of meta that follow.
    pub meta_bytes: u32,
    /// Bytes of bulk that follow meta.
    pub bulk_bytes: u32,
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.call.to_le_bytes(),
            &self.meta_bytes.to_le_bytes(),
            &self.bulk_bytes.to_le_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    /// Reads a header and checks its lengths.
    ///
    /// # Errors
    /// The bytes are no header, of another version, or announce more than the limits allow.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, ProtocolError> {
        let [m0, m1, m2, m3, v0, v1, k0, k1, rest @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(ProtocolError::NotAMessage([m0, m1, m2, m3]));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(ProtocolError::OtherVersion { got: version });
        }
        let [c0, c1, c2, c3, n0, n1, n2, n3, b0, b1, b2, b3] = rest;
        let header = Self {
            kind: u16::from_le_bytes([k0, k1]),
            call: u32::from_le_bytes([c0, c1, c2, c3]),
            meta_bytes: u32::from_le_bytes([n0, n1, n2, n3]),
            bulk_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
        };
        at_most("meta bytes", u64::from(header.meta_bytes), MAX_META_BYTES)?;
        at_most("bulk bytes", u64::from(header.bulk_bytes), MAX_BULK_BYTES)?;
        Ok(header)
    }
}

/// Checks a size against its limit.
pub(super) fn at_most(what: &'static str, size: u64, limit: u32) -> Result<u32, ProtocolError> {
    u32::try_from(size)
        .ok()
        .filter(|size| *size <= limit)
        .ok_or(ProtocolError::TooLarge {
            what,
            size,
            limit: u64::from(limit),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        kind: 3,
        call: 0x0102_0304,
        meta_bytes: 77,
        bulk_bytes: 6_220_800,
    };

    #[test]
    fn a_header_survives_and_its_bytes_are_what_the_table_says() {
        let bytes = HEADER.encode();
        assert_eq!(Header::decode(&bytes), Ok(HEADER));
        assert_eq!(&bytes[..8], b"SSWP\x01\0\x03\0");
        assert_eq!(&bytes[8..12], [4, 3, 2, 1]);
    }

    #[test]
    fn text_another_version_and_too_long_a_message_are_told_apart() {
        let text = *b"thread 'main' panick";
        assert_eq!(
            Header::decode(&text),
            Err(ProtocolError::NotAMessage(*b"thre"))
        );
        let mut newer = HEADER.encode();
        newer[4] = 9;
        assert_eq!(
            Header::decode(&newer),
            Err(ProtocolError::OtherVersion { got: 9 })
        );
        let long = Header {
            bulk_bytes: MAX_BULK_BYTES + 1,
            ..HEADER
        };
        assert!(matches!(
            Header::decode(&long.encode()),
            Err(ProtocolError::TooLarge { .. })
        ));
    }
}
