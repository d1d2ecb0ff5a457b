//! A look at a JPEG's structure, to tell a whole file from a cut one.
//!
//! Decoders fill what is missing with grey and report success, so the marker structure (ITU-T T.81,
//! annex B) is walked before the pixels are believed.

/// Where a JPEG's markers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    /// The picture ends in its end marker.
    Whole,
    /// The bytes end first.
    Cut,
    /// It does not start as a JPEG, or its markers make no sense.
    NotJpeg,
}

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;

/// Walks the markers of the first picture in `bytes`.
pub(crate) fn structure(bytes: &[u8]) -> Structure {
    if !bytes.starts_with(&[0xff, SOI]) {
        return Structure::NotJpeg;
    }
    let mut at = 2;
    loop {
        let Some(marker_at) = next_marker(bytes, at) else {
            return Structure::Cut;
        };
        let marker = bytes[marker_at];
        at = marker_at + 1;
        match marker {
            EOI => return Structure::Whole,
            // Markers without a length: TEM, the restart markers, a stray start of image.
            0x01 | 0xd0..=SOI => {}
            _ => {
                let Some(length) = bytes.get(at..at + 2) else {
                    return Structure::Cut;
                };
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                if length < 2 {
                    return Structure::NotJpeg;
                }
                at += length;
                if at > bytes.len() {
                    return Structure::Cut;
                }
            }
        }
    }
}

/// Position of the next byte that names a marker, at or after `from`. This also steps over the coded
/// data behind a start of scan, in which `ff 00` stands
/// for a byte and `ff ff` pads, so neither names one.
fn next_marker(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|b| *b == 0xff)? + 1;
        match bytes.get(at)? {
            0xff => {}
            0 => at += 1,
            _ => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        let pixels: Vec<u8> = (0..64 * 48 * 3u32).map(|i| (i * 37 % 251) as u8).collect();
        image::codecs::jpeg::JpegEncoder::new(&mut bytes)
            .encode(&pixels, 64, 48, image::ExtendedColorType::Rgb8)
            .unwrap();
        bytes
    }

    #[test]
    fn a_whole_file_is_whole_also_with_bytes_behind_its_end() {
        let mut bytes = encoded();
        assert_eq!(structure(&bytes), Structure::Whole);
        bytes.extend_from_slice(b"trailer");
        assert_eq!(structure(&bytes), Structure::Whole);
        assert_eq!(structure(b"\x89PNG"), Structure::NotJpeg);
    }

    #[test]
    fn every_cut_is_seen() {
        let bytes = encoded();
        for end in 2..bytes.len() - 1 {
            assert_eq!(structure(&bytes[..end]), Structure::Cut, "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_a_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![0xff, SOI];
            bytes.extend(tail);
            structure(&bytes);
        }
    }
}
