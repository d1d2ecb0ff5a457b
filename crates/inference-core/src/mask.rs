//! Masks as COCO run lengths.
//!
//! A mask of a pack in a 4K frame is a few hundred bytes this way, so hundreds of them a frame stay
//! cheap. Runs go down the columns, starting with background, as in the COCO API; the text form is
//! COCO's compressed string, so the files open in its tools.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::BoxXyxy;

/// Why a mask could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// The map's length is not `width * height`.
    #[error("a {width}x{height} mask needs {wanted} values, got {got}")]
    WrongLength {
        /// Mask width in pixels.
        width: u32,
        /// Mask height in pixels.
        height: u32,
        /// `width * height`.
        wanted: u64,
        /// Values given.
        got: u64,
    },
    /// The runs do not add up to the picture.
    #[error("run lengths cover {got} pixels of a {width}x{height} mask")]
    WrongCover {
        /// Mask width in pixels.
        width: u32,
        /// Mask height in pixels.
        height: u32,
        /// Pixels the runs cover.
        got: u64,
    },
    /// The compressed text holds a byte COCO never writes, ends early or overflows.
    #[error("compressed run lengths are damaged at byte {at}")]
    BadText {
        /// Byte offset into the text.
        at: usize,
    },
}

/// A binary mask over a picture of `width` x `height` source pixels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mask {
    width: u32,
    height: u32,
    /// Column-major run lengths, background first.
    runs: Vec<u32>,
}

impl Mask {
    /// A mask without a set pixel.
    pub fn empty(width: u32, height: u32) -> Self {
        let total = width.saturating_mul(height);
        Self {
            width,
            height,
            runs: if total == 0 { vec![] } else { vec![total] },
        }
    }

    /// From a row-major map, `height * width` values, any non-zero value being set.
    ///
    /// # Errors
    /// [`MaskError::WrongLength`] when the map does not fit the size.
    pub fn from_binary(width: u32, height: u32, map: &[u8]) -> Result<Self, MaskError> {
        check_length(width, height, map.len())?;
        Ok(Self::from_fn(width, height, |x, y| {
            map[y as usize * width as usize + x as usize] != 0
        }))
    }

    /// From row-major logits `[height, width]`; a pixel is set where its logit is above `threshold`.
    ///
    /// # Errors
    /// [`MaskError::WrongLength`] when the map does not fit the size.
    pub fn from_logits(
        width: u32,
        height: u32,
        logits: &[f32],
        threshold: f32,
    ) -> Result<Self, MaskError> {
        check_length(width, height, logits.len())?;
        Ok(Self::from_fn(width, height, |x, y| {
            logits[y as usize * width as usize + x as usize] > threshold
        }))
    }

    /// The whole pixels that lie under a box, cut to the picture.
    pub fn from_box(width: u32, height: u32, region: &BoxXyxy) -> Self {
        let cut = region.clamped(width, height);
        let (x0, x1) = (cut.x0.round() as u32, cut.x1.round() as u32);
        let (y0, y1) = (cut.y0.round() as u32, cut.y1.round() as u32);
        if !region.is_valid() || x1 <= x0 || y1 <= y0 {
            return Self::empty(width, height);
        }
        let mut builder = RunBuilder::default();
        builder.push(false, x0 * height);
        for _ in x0..x1 {
            builder.push(false, y0);
            builder.push(true, y1 - y0);
            builder.push(false, height - y1);
        }
        builder.push(false, (width - x1) * height);
        builder.finish(width, height)
    }

    /// From a predicate over `(x, y)`.
    pub fn from_fn(width: u32, height: u32, mut set: impl FnMut(u32, u32) -> bool) -> Self {
        let mut builder = RunBuilder::default();
        for x in 0..width {
            for y in 0..height {
                builder.push(set(x, y), 1);
            }
        }
        builder.finish(width, height)
    }

    /// Width of the picture in source pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height of the picture in source pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Column-major run lengths, background first.
    pub fn runs(&self) -> &[u32] {
        &self.runs
    }

    /// Number of set pixels.
    pub fn area(&self) -> u64 {
        self.runs
            .iter()
            .skip(1)
            .step_by(2)
            .map(|&r| u64::from(r))
            .sum()
    }

    /// True when no pixel is set.
    pub fn is_empty(&self) -> bool {
        self.area() == 0
    }

    /// The tight box around the set pixels, or `None` when there are none.
    pub fn bounding_box(&self) -> Option<BoxXyxy> {
        let h = u64::from(self.height);
        let (mut x0, mut x1, mut y0, mut y1) = (u64::MAX, 0, u64::MAX, 0);
        for (start, end) in self.spans() {
            let (first, last) = (start / h, (end - 1) / h);
            x0 = x0.min(first);
            x1 = x1.max(last + 1);
            if first == last {
                y0 = y0.min(start % h);
                y1 = y1.max((end - 1) % h + 1);
            } else {
                // A run that goes on into the next column touches both picture edges.
                (y0, y1) = (0, h);
            }
        }
        (x1 > 0).then(|| BoxXyxy::new(x0 as f32, y0 as f32, x1 as f32, y1 as f32))
    }

    /// Number of pixels set in both; 0 when the sizes differ.
    pub fn intersection_area(&self, other: &Self) -> u64 {
        if (self.width, self.height) != (other.width, other.height) {
            return 0;
        }
        let (mut a, mut b) = (self.spans().peekable(), other.spans().peekable());
        let mut total = 0;
        while let (Some(&(a0, a1)), Some(&(b0, b1))) = (a.peek(), b.peek()) {
            total += a1.min(b1).saturating_sub(a0.max(b0));
            if a1 <= b1 {
                a.next();
            } else {
                b.next();
            }
        }
        total
    }

    /// Intersection over union, 0 when both are empty or the sizes differ.
    pub fn iou(&self, other: &Self) -> f32 {
        let inter = self.intersection_area(other);
        let union = self.area() + other.area() - inter;
        if union == 0 {
            0.0
        } else {
            inter as f32 / union as f32
        }
    }

    /// Intersection over the smaller area, 0 when either is empty or the sizes differ.
    pub fn iom(&self, other: &Self) -> f32 {
        let smaller = self.area().min(other.area());
        if smaller == 0 {
            0.0
        } else {
            self.intersection_area(other) as f32 / smaller as f32
        }
    }

    /// The row-major map, `height * width` values of 0 or 1.
    pub fn to_binary(&self) -> Vec<u8> {
        let (w, h) = (self.width as usize, u64::from(self.height));
        let mut map = vec![0; w * self.height as usize];
        for (start, end) in self.spans() {
            for at in start..end {
                map[(at % h) as usize * w + (at / h) as usize] = 1;
            }
        }
        map
    }

    /// This mask placed at `(x, y)` in a larger picture; what falls outside is cut off.
    #[must_use]
    pub fn placed(&self, x: i64, y: i64, width: u32, height: u32) -> Self {
        let map = self.to_binary();
        let (w, h) = (i64::from(self.width), i64::from(self.height));
        Self::from_fn(width, height, |px, py| {
            let (sx, sy) = (i64::from(px) - x, i64::from(py) - y);
            sx >= 0 && sy >= 0 && sx < w && sy < h && map[(sy * w + sx) as usize] != 0
        })
    }

    /// COCO's compressed text: differences to the run before last, 5 bits a character.
    pub fn to_coco_string(&self) -> String {
        let mut text = String::new();
        for (i, &run) in self.runs.iter().enumerate() {
            let mut value = i64::from(run);
            if i > 2 {
                value -= i64::from(self.runs[i - 2]);
            }
            loop {
                let mut bits = (value & 0x1f) as u8;
                value >>= 5;
                let more = if bits & 0x10 != 0 {
                    value != -1
                } else {
                    value != 0
                };
                if more {
                    bits |= 0x20;
                }
                text.push(char::from(bits + 48));
                if !more {
                    break;
                }
            }
        }
        text
    }

    /// Reads COCO's compressed text for a picture of `width` x `height` pixels.
    ///
    /// Memory is bounded by the text's length; a hostile text is an error.
    ///
    /// # Errors
    /// [`MaskError::BadText`] or [`MaskError::WrongCover`].
    pub fn from_coco_string(width: u32, height: u32, text: &str) -> Result<Self, MaskError> {
        let mut runs: Vec<u32> = Vec::new();
        let mut bytes = text.bytes().enumerate();
        while let Some((at, first)) = bytes.next() {
            let (mut value, mut shift, mut byte, mut pos) = (0i64, 0u32, first, at);
            loop {
                let bits = byte
                    .checked_sub(48)
                    .filter(|b| *b < 64 && shift <= 30)
                    .ok_or(MaskError::BadText { at: pos })?;
                value |= i64::from(bits & 0x1f) << shift;
                shift += 5;
                if bits & 0x20 == 0 {
                    if bits & 0x10 != 0 {
                        value |= -1i64 << shift;
                    }
                    break;
                }
                (pos, byte) = bytes.next().ok_or(MaskError::BadText { at: text.len() })?;
            }
            if runs.len() > 2 {
                value += i64::from(runs[runs.len() - 2]);
            }
            runs.push(u32::try_from(value).map_err(|_| MaskError::BadText { at })?);
        }
        Self::from_runs(width, height, runs)
    }

    /// From column-major run lengths, background first.
    ///
    /// # Errors
    /// [`MaskError::WrongCover`] when the runs do not add up to the picture, or the picture has
    /// more than `u32::MAX` pixels.
    pub fn from_runs(width: u32, height: u32, runs: Vec<u32>) -> Result<Self, MaskError> {
        let got: u64 = runs.iter().map(|&r| u64::from(r)).sum();
        let pixels = u64::from(width) * u64::from(height);
        if got != pixels || pixels > u64::from(u32::MAX) {
            return Err(MaskError::WrongCover { width, height, got });
        }
        // Zero-length runs inside would make equal masks unequal.
        let mut builder = RunBuilder::default();
        for (i, run) in runs.into_iter().enumerate() {
            builder.push(i % 2 == 1, run);
        }
        Ok(builder.finish(width, height))
    }

    /// Set spans `[start, end)` in column-major order.
    fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = 0u64;
        self.runs.iter().enumerate().filter_map(move |(i, &run)| {
            let start = at;
            at += u64::from(run);
            (i % 2 == 1 && run > 0).then_some((start, at))
        })
    }
}

fn check_length(width: u32, height: u32, got: usize) -> Result<(), MaskError> {
    let wanted = u64::from(width) * u64::from(height);
    if got as u64 == wanted {
        Ok(())
    } else {
        Err(MaskError::WrongLength {
            width,
            height,
            wanted,
            got: got as u64,
        })
    }
}

/// Collects runs, joining neighbours of one value.
#[derive(Default)]
struct RunBuilder {
    runs: Vec<u32>,
}

impl RunBuilder {
    fn push(&mut self, set: bool, length: u32) {
        if length == 0 {
            return;
        }
        if self.runs.is_empty() && set {
            self.runs.push(0);
        }
        // Odd positions are set, so the last run has the wanted value when the parities agree.
        let last_is_set = self.runs.len().is_multiple_of(2);
        match self.runs.last_mut() {
            Some(last) if last_is_set == set => *last += length,
            _ => self.runs.push(length),
        }
    }

    fn finish(self, width: u32, height: u32) -> Mask {
        Mask {
            width,
            height,
            runs: self.runs,
        }
    }
}

/// COCO's JSON shape: `{"size": [height, width], "counts": "..."}`.
#[derive(Serialize, Deserialize)]
struct CocoRle {
    size: [u32; 2],
    counts: String,
}

impl Serialize for Mask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CocoRle {
            size: [self.height, self.width],
            counts: self.to_coco_string(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Mask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rle = CocoRle::deserialize(deserializer)?;
        let [height, width] = rle.size;
        Self::from_coco_string(width, height, &rle.counts).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_compressed_text_equals_the_coco_api_on_a_known_mask() {
        // Worked by hand from the format: runs 6, 1, 40, 4, 5, 4, 5, 4, 21 over 9x10 pixels.
        let mask = Mask::from_runs(9, 10, vec![6, 1, 40, 4, 5, 4, 5, 4, 21]).unwrap();
        assert_eq!(mask.to_coco_string(), "61X13mN000`0");
    }

    #[test]
    fn a_box_mask_has_the_area_and_the_box_it_was_made_from() {
        let region = BoxXyxy::new(3.0, 2.0, 7.0, 9.0);
        let mask = Mask::from_box(12, 10, &region);
        assert_eq!(mask.area(), 28);
        assert_eq!(mask.bounding_box(), Some(region));
        assert_eq!(mask, Mask::from_binary(12, 10, &mask.to_binary()).unwrap());
    }

    #[test]
    fn a_full_mask_starts_with_an_empty_background_run() {
        let mask = Mask::from_fn(4, 3, |_, _| true);
        assert_eq!(mask.runs(), [0, 12]);
        assert_eq!(mask.bounding_box(), Some(BoxXyxy::new(0.0, 0.0, 4.0, 3.0)));
    }

    #[test]
    fn runs_over_more_pixels_than_a_run_can_count_are_refused() {
        assert!(Mask::from_runs(u32::MAX, 2, vec![u32::MAX, 0, u32::MAX]).is_err());
    }

    #[test]
    fn hostile_text_is_an_error() {
        for text in ["~", "o", "oooooooooooooooo", "\u{1F600}", "0", "/", "PPPP"] {
            assert!(Mask::from_coco_string(4, 4, text).is_err(), "{text}");
        }
    }

    #[test]
    fn masks_of_different_pictures_never_overlap() {
        let a = Mask::from_fn(4, 4, |_, _| true);
        assert_eq!(a.iou(&Mask::from_fn(2, 8, |_, _| true)), 0.0);
    }

    #[test]
    fn a_placed_mask_keeps_its_shape_and_is_cut_at_the_edge() {
        let mask = Mask::from_box(4, 4, &BoxXyxy::new(1.0, 1.0, 4.0, 3.0));
        let placed = mask.placed(7, 2, 10, 10);
        assert_eq!(
            placed.bounding_box(),
            Some(BoxXyxy::new(8.0, 3.0, 10.0, 5.0))
        );
    }

    proptest! {
        #[test]
        fn any_map_survives_text_and_json(w in 1u32..24, h in 1u32..24, seed: u64) {
            let map: Vec<u8> = (0..u64::from(w * h))
                .map(|i| u8::from((seed.rotate_left((i % 64) as u32) ^ i).count_ones() % 3 == 0))
                .collect();
            let mask = Mask::from_binary(w, h, &map).unwrap();
            prop_assert_eq!(mask.to_binary(), map);
            let text = serde_json::to_string(&mask).unwrap();
            prop_assert_eq!(serde_json::from_str::<Mask>(&text).unwrap(), mask);
        }

        #[test]
        fn overlap_equals_counting_pixels(seed: u64) {
            let cell = |k: u32| Mask::from_fn(13, 7, move |x, y| {
                (seed >> ((x * 7 + y * 3 + k) % 64)) & 1 == 1
            });
            let (a, b) = (cell(0), cell(5));
            let both = a.to_binary().iter().zip(b.to_binary()).filter(|(p, q)| **p + q == 2).count();
            prop_assert_eq!(a.intersection_area(&b), both as u64);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".*", w in 0u32..2000, h in 0u32..2000) {
            if let Ok(mask) = Mask::from_coco_string(w, h, &text) {
                prop_assert!(mask.area() <= u64::from(w) * u64::from(h));
            }
        }
    }
}
