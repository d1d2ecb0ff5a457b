//! The tag channel: barcodes and QR codes on packs and shelf labels.
//!
//! A code is sparse evidence: it speaks only when it decodes, its check digit holds and its GTIN is
//! that of one enrolled SKU; then it overrules packaging. Most crops show no readable code, so a
//! look at a few lines of the picture decides first whether decoding is worth its time.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use rayon::prelude::*;
use rxing::{BarcodeFormat, DecodeHints};
use shelfscan_inference_core::RgbImage;

use crate::{Gtin, SkuMetadata};

/// Lines looked at in each direction before decoding: a QR code a quarter as high as the crop has
/// finder patterns of 3 % of it, which at least one of them meets.
const PROBE_LINES: u32 = 64;
/// Change of brightness that counts as an edge of a bar.
const EDGE_CONTRAST: i16 = 40;
/// Edges in a row that a line through a barcode shows; UPC-E, the shortest, has 34.
const BARCODE_EDGES: usize = 26;
/// How many times the narrowest of its last edges' distances a bar may measure.
const WIDEST_BAR: usize = 8;
/// Lines that have to show a code.
const MIN_LINES: usize = 2;

/// Reads codes and knows which SKU they name.
pub(crate) struct TagReader {
    skus: BTreeMap<Gtin, Arc<str>>,
}

impl TagReader {
    pub(crate) fn new(metadata: &BTreeMap<Arc<str>, SkuMetadata>) -> Self {
        Self {
            skus: metadata
                .iter()
                .filter_map(|(sku, metadata)| Some((metadata.gtin.clone()?, sku.clone())))
                .collect(),
        }
    }

    /// True when no SKU has a GTIN, so that no code can name one.
    pub(crate) fn is_empty(&self) -> bool {
        self.skus.is_empty()
    }

    /// The SKU each picture's code names.
    pub(crate) fn read_all(&self, images: &[RgbImage]) -> Vec<Option<Arc<str>>> {
        images.par_iter().map(|image| self.read(image)).collect()
    }

    /// The SKU the picture's code names; `None` without a readable code, for a GTIN that is not
    /// enrolled, and when codes name two SKUs.
    pub(crate) fn read(&self, image: &RgbImage) -> Option<Arc<str>> {
        let luma = luma(image);
        if !may_hold_code(&luma, image.width(), image.height()) {
            return None;
        }
        let mut named: Vec<&Arc<str>> = decode(luma, image.width(), image.height())
            .iter()
            .filter_map(|gtin| self.skus.get(gtin))
            .collect();
        named.sort();
        named.dedup();
        match named[..] {
            [sku] => Some(sku.clone()),
            _ => None,
        }
    }
}

/// Brightness, `[height, width]`.
fn luma(image: &RgbImage) -> Vec<u8> {
    image
        .pixels()
        .chunks_exact(3)
        .map(|p| ((u32::from(p[0]) * 77 + u32::from(p[1]) * 150 + u32::from(p[2]) * 29) >> 8) as u8)
        .collect()
}

/// GTINs of all codes in a picture.
fn decode(luma: Vec<u8>, width: u32, height: u32) -> Vec<Gtin> {
    let mut hints = DecodeHints {
        TryHarder: Some(true),
        PossibleFormats: Some(HashSet::from([
            BarcodeFormat::EAN_13,
            BarcodeFormat::EAN_8,
            BarcodeFormat::UPC_A,
            BarcodeFormat::UPC_E,
            BarcodeFormat::CODE_128,
            BarcodeFormat::QR_CODE,
        ])),
        ..DecodeHints::default()
    };
    rxing::helpers::detect_multiple_in_luma_with_hints(luma, width, height, &mut hints)
        .unwrap_or_default()
        .iter()
        .filter_map(|code| gtin_of(code.getText(), *code.getBarcodeFormat()))
        .collect()
}

/// The GTIN in a code's text: bare digits, a GS1 element string or a GS1 Digital Link.
fn gtin_of(text: &str, format: BarcodeFormat) -> Option<Gtin> {
    let text = text.trim();
    if format == BarcodeFormat::UPC_E {
        return Gtin::parse(&expand_upc_e(text)?).ok();
    }
    if let Ok(gtin) = Gtin::parse(text) {
        return Some(gtin);
    }
    let element = ["]C1", "]Q3", "]d2", "\u{1d}"]
        .iter()
        .find_map(|mark| text.strip_prefix(mark))
        .unwrap_or(text);
    let after = |mark: &str| {
        let rest = &text[text.find(mark)? + mark.len()..];
        Some(
            rest.bytes()
                .take_while(u8::is_ascii_digit)
                .map(char::from)
                .collect::<String>(),
        )
    };
    let fixed = |digits: &str| digits.get(..14).and_then(|gtin| Gtin::parse(gtin).ok());
    after("/01/")
        .and_then(|digits| Gtin::parse(&digits).ok())
        .or_else(|| fixed(&after("(01)")?))
        .or_else(|| fixed(element.strip_prefix("01")?))
}

/// The UPC-A number that an eight-digit UPC-E number leaves the zeros out of.
fn expand_upc_e(text: &str) -> Option<String> {
    let digits: [char; 8] = text.chars().collect::<Vec<_>>().try_into().ok()?;
    let [system, a, b, c, d, e, last, check] = digits;
    let parts: Vec<char> = match last {
        '0'..='2' => vec![system, a, b, last, '0', '0', '0', '0', c, d, e, check],
        '3' => vec![system, a, b, c, '0', '0', '0', '0', '0', d, e, check],
        '4' => vec![system, a, b, c, d, '0', '0', '0', '0', '0', e, check],
        _ => vec![system, a, b, c, d, e, '0', '0', '0', '0', last, check],
    };
    Some(parts.into_iter().collect())
}

/// True when lines through the picture look like those through a code.
fn may_hold_code(luma: &[u8], width: u32, height: u32) -> bool {
    let (w, h) = (width as usize, height as usize);
    let lines_seen = |count: u32, line: &dyn Fn(usize) -> (usize, usize, usize)| {
        let step = count.div_ceil(PROBE_LINES).max(1) as usize;
        let mut edges = Vec::new();
        (0..count as usize)
            .step_by(step)
            .filter(|at| {
                let (start, stride, length) = line(*at);
                find_edges(luma, start, stride, length, &mut edges);
                has_barcode_run(&edges) || has_finder_pattern(&edges)
            })
            .take(MIN_LINES)
            .count()
            >= MIN_LINES
    };
    lines_seen(height, &|y| (y * w, 1, w)) || lines_seen(width, &|x| (x, w, h))
}

/// Places where the brightness along a line turns by at least [`EDGE_CONTRAST`].
fn find_edges(luma: &[u8], start: usize, stride: usize, length: usize, edges: &mut Vec<usize>) {
    edges.clear();
    let mut values = luma
        .iter()
        .skip(start)
        .step_by(stride)
        .take(length)
        .map(|v| i16::from(*v));
    let Some(first) = values.next() else { return };
    let (mut low, mut high) = (first, first);
    let mut rising: Option<bool> = None;
    for (i, value) in values.enumerate() {
        low = low.min(value);
        high = high.max(value);
        if value - low >= EDGE_CONTRAST && rising != Some(true) {
            rising = Some(true);
            high = value;
            edges.push(i + 1);
        } else if high - value >= EDGE_CONTRAST && rising != Some(false) {
            rising = Some(false);
            low = value;
            edges.push(i + 1);
        }
        match rising {
            Some(true) => low = high.max(value) - (high - low).min(EDGE_CONTRAST),
            Some(false) => high = low.min(value) + (high - low).min(EDGE_CONTRAST),
            None => {}
        }
    }
}

/// Many edges close together: bars differ in width by at most a factor of four.
fn has_barcode_run(edges: &[usize]) -> bool {
    let mut run = 1;
    let mut narrow = usize::MAX;
    for pair in edges.windows(2) {
        let gap = pair[1] - pair[0];
        narrow = narrow.min(gap.max(1));
        if gap <= narrow.saturating_mul(WIDEST_BAR) {
            run += 1;
            if run >= BARCODE_EDGES {
                return true;
            }
        } else {
            run = 1;
            narrow = usize::MAX;
        }
    }
    false
}

/// Dark, light, dark, light, dark in the widths 1:1:3:1:1 of a QR code's corner.
fn has_finder_pattern(edges: &[usize]) -> bool {
    edges.windows(6).any(|six| {
        let gaps: [f32; 5] = std::array::from_fn(|i| (six[i + 1] - six[i]) as f32);
        let unit = gaps.iter().sum::<f32>() / 7.0;
        unit >= 1.0
            && [1.0, 1.0, 3.0, 1.0, 1.0]
                .iter()
                .zip(gaps)
                .all(|(share, gap)| (gap - share * unit).abs() <= 0.6 * unit)
    })
}

#[cfg(test)]
mod tests {
    use rxing::{MultiFormatWriter, Writer};

    use super::*;

    const GTIN: &str = "4006381333931";

    /// A busy pack of `width` x `height` pixels: stripes, blocks and grain, but no code.
    fn pack(width: u32, height: u32) -> Vec<u8> {
        let mut pixels = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let grain = (x * 31 + y * 17) % 23;
                let block = ((x / 37) * 53 + (y / 41) * 29) % 160;
                pixels.extend([(60 + block + grain) as u8, (40 + block / 2) as u8, 90]);
            }
        }
        pixels
    }

    /// A code drawn by rxing's own writer, pasted on a pack; `turned` puts it on its side.
    fn with_code(text: &str, format: BarcodeFormat, turned: bool) -> RgbImage {
        let (code_w, code_h) = if format == BarcodeFormat::QR_CODE {
            (120, 120)
        } else {
            (230, 90)
        };
        let code = MultiFormatWriter
            .encode(text, &format, code_w, code_h)
            .unwrap();
        let (width, height) = (320, 400);
        let mut pixels = pack(width, height);
        for y in 0..code.height() {
            for x in 0..code.width() {
                let value = if code.get(x, y) { 20 } else { 235 };
                let (px, py) = if turned {
                    (30 + y, 40 + x)
                } else {
                    (30 + x, 200 + y)
                };
                let at = ((py * width + px) * 3) as usize;
                pixels[at..at + 3].fill(value);
            }
        }
        RgbImage::new(width, height, pixels).unwrap()
    }

    fn reader(gtins: &[(&str, &str)]) -> TagReader {
        TagReader::new(
            &gtins
                .iter()
                .map(|(sku, gtin)| {
                    let metadata = SkuMetadata {
                        gtin: Some(Gtin::parse(gtin).unwrap()),
                        ..SkuMetadata::default()
                    };
                    (Arc::from(*sku), metadata)
                })
                .collect(),
        )
    }

    #[test]
    fn barcodes_and_qr_codes_upright_and_turned_name_their_sku() {
        let reader = reader(&[
            ("pen", GTIN),
            ("eight", "96385074"),
            ("upc", "036000291452"),
        ]);
        let link = format!("https://id.gs1.org/01/0{GTIN}/10/ABC");
        let cases = [
            (GTIN, BarcodeFormat::EAN_13, "pen"),
            ("96385074", BarcodeFormat::EAN_8, "eight"),
            ("036000291452", BarcodeFormat::UPC_A, "upc"),
            (GTIN, BarcodeFormat::QR_CODE, "pen"),
            (&link, BarcodeFormat::QR_CODE, "pen"),
            (GTIN, BarcodeFormat::CODE_128, "pen"),
        ];
        for (text, format, sku) in cases {
            for turned in [false, true] {
                let image = with_code(text, format, turned);
                let got = reader.read(&image);
                assert_eq!(
                    got.as_deref(),
                    Some(sku),
                    "{format:?} {text} turned {turned}"
                );
            }
        }
    }

    #[test]
    fn a_code_of_no_enrolled_sku_says_nothing() {
        let image = with_code(GTIN, BarcodeFormat::EAN_13, false);
        assert_eq!(reader(&[("other", "96385074")]).read(&image), None);
    }

    #[test]
    fn a_pack_without_a_code_is_not_worth_decoding() {
        for (width, height) in [(320, 400), (90, 200), (1, 1), (7, 300)] {
            let image = RgbImage::new(width, height, pack(width, height)).unwrap();
            assert!(
                !may_hold_code(&luma(&image), width, height),
                "{width}x{height}"
            );
        }
        let image = with_code(GTIN, BarcodeFormat::EAN_13, false);
        assert!(may_hold_code(&luma(&image), image.width(), image.height()));
    }

    #[test]
    fn the_look_before_decoding_costs_a_small_part_of_decoding() {
        let image = with_code(GTIN, BarcodeFormat::EAN_13, false);
        let bare = RgbImage::new(320, 400, pack(320, 400)).unwrap();
        let reader = reader(&[("pen", GTIN)]);
        let time = |image: &RgbImage| {
            let start = std::time::Instant::now();
            for _ in 0..20 {
                std::hint::black_box(reader.read(image));
            }
            start.elapsed()
        };
        assert!(time(&bare) * 2 < time(&image));
    }

    #[test]
    fn gtins_are_found_in_the_texts_codes_carry() {
        let cases = [
            ("(01)04006381333931(17)270101", true),
            ("0104006381333931172701", true),
            ("]C10104006381333931", true),
            ("\u{1d}0104006381333931", true),
            ("https://example.com/01/04006381333931?x=1", true),
            ("https://example.com/01/04006381333932", false),
            ("https://example.com/products", false),
            ("01", false),
            ("(01)", false),
            ("01\u{20AC}\u{20AC}\u{20AC}\u{20AC}\u{20AC}", false),
        ];
        for (text, found) in cases {
            let got = gtin_of(text, BarcodeFormat::QR_CODE);
            assert_eq!(got.is_some(), found, "{text}");
        }
        assert_eq!(
            gtin_of("04252614", BarcodeFormat::UPC_E),
            Gtin::parse("042100005264").ok()
        );
    }

    #[test]
    fn two_codes_of_two_skus_leave_the_answer_to_packaging() {
        let upper = with_code(GTIN, BarcodeFormat::EAN_13, false);
        let lower = with_code("96385074", BarcodeFormat::EAN_8, false);
        let mut pixels = upper.into_pixels();
        pixels.extend(lower.into_pixels());
        let both = RgbImage::new(320, 800, pixels).unwrap();
        let two = reader(&[("pen", GTIN), ("eight", "96385074")]);
        assert_eq!(two.read(&both), None);
        assert_eq!(reader(&[("pen", GTIN)]).read(&both).as_deref(), Some("pen"));
    }
}
