//! Which crops of a track are worth embedding.
//!
//! Embedding every crop of every frame is slow, and the hidden and blurred ones mislead. A track
//! keeps its few best crops, largest and sharpest first, and hands them out at set ages, so that
//! what is embedded depends on the frames alone and never on how fast the machine is.

use shelfscan_inference_core::{BoxXyxy, RgbImage};

/// Ages of a track, in frames it was seen, at which its best crop so far is embedded, after the first
/// that is embedded as soon as the track is sure. The rest of its crops follow when it ends.
const EARLY_HITS: [u32; 2] = [10, 30];

/// A crop that may be embedded.
#[derive(Clone, Debug)]
pub(crate) struct CropCandidate {
    pub(crate) frame_index: u64,
    /// Area in pixels times sharpness; larger is better.
    pub(crate) quality: f32,
    pub(crate) image: RgbImage,
}

/// The best crops of one track that were not embedded yet, and how many were.
#[derive(Debug, Default)]
pub(crate) struct CropPool {
    waiting: Vec<CropCandidate>,
    sent: u32,
    best_sent: f32,
    limit: u32,
}

impl CropPool {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// True when a crop of this quality would be kept, so that others need not be cut out.
    pub(crate) fn wants(&self, quality: f32) -> bool {
        let room = self.limit.saturating_sub(self.sent) as usize;
        room > 0
            && (self.waiting.len() < room
                || self.waiting.last().is_some_and(|w| w.quality < quality))
    }

    /// Keeps a crop if it is among the best. Of equal ones the earlier stays.
    pub(crate) fn offer(&mut self, crop: CropCandidate) {
        if !self.wants(crop.quality) {
            return;
        }
        let at = self.waiting.partition_point(|w| w.quality >= crop.quality);
        self.waiting.insert(at, crop);
        let room = self.limit.saturating_sub(self.sent) as usize;
        self.waiting.truncate(room);
    }

    /// The crop to embed now that the track was seen in `hits` frames, if one is due.
    pub(crate) fn due(&mut self, hits: u32) -> Option<CropCandidate> {
        let due = self.sent == 0 || EARLY_HITS.contains(&hits);
        if !due || self.waiting.is_empty() {
            return None;
        }
        // A crop that is no better than the last one would only say the same again.
        if self.sent > 0 && self.waiting[0].quality <= self.best_sent {
            return None;
        }
        self.sent += 1;
        let crop = self.waiting.remove(0);
        self.best_sent = crop.quality;
        Some(crop)
    }

    /// The crops that are left when the track ends, best first.
    pub(crate) fn rest(&mut self) -> Vec<CropCandidate> {
        std::mem::take(&mut self.waiting)
    }
}

/// Points along each side of a box at which detail is measured.
const GRID: usize = 8;

/// How much detail there is under a box: the mean absolute step of the green channel at a grid of
/// points, 0 for flat colour or a box outside the picture.
///
/// A fixed number of points keeps the cost of ranking crops far below that of decoding, whatever
/// the size of the frame.
pub(crate) fn sharpness(image: &RgbImage, bbox: &BoxXyxy) -> f32 {
    let (w, h) = (image.width() as usize, image.height() as usize);
    let cut = bbox.clamped(image.width(), image.height());
    if !cut.is_valid() || w < 2 || h < 2 {
        return 0.0;
    }
    let pixels = image.pixels();
    let mut sum = 0u32;
    for row in 0..GRID {
        let y = (cut.y0 + cut.height() * (row as f32 + 0.5) / GRID as f32) as usize;
        let y = y.min(h - 2);
        for column in 0..GRID {
            let x = (cut.x0 + cut.width() * (column as f32 + 0.5) / GRID as f32) as usize;
            let at = (y * w + x.min(w - 2)) * 3 + 1;
            let here = pixels[at];
            sum += u32::from(here.abs_diff(pixels[at + 3]))
                + u32::from(here.abs_diff(pixels[at + w * 3]));
        }
    }
    sum as f32 / (2 * GRID * GRID) as f32
}

/// How good a crop of this box would be: its visible area times its detail. A pack that touches the
/// edge of the frame is probably cut off and counts a quarter.
pub(crate) fn quality(image: &RgbImage, bbox: &BoxXyxy) -> f32 {
    let cut = bbox.clamped(image.width(), image.height());
    let whole = if at_edge(image, bbox) { 0.25 } else { 1.0 };
    // One step of detail is granted to all, so that flat packs are still ranked by size.
    cut.area() * (1.0 + sharpness(image, bbox)) * whole
}

/// True when a box touches the edge of the frame, so that a part of the pack is probably cut off.
fn at_edge(image: &RgbImage, bbox: &BoxXyxy) -> bool {
    let (w, h) = (image.width() as f32, image.height() as f32);
    bbox.x0 <= 1.0 || bbox.y0 <= 1.0 || bbox.x1 >= w - 1.0 || bbox.y1 >= h - 1.0
}

/// How much better than the best crop so far a new one has to be. Copying a crop out of a frame
/// costs more than all else that is done with a detection; a pack that comes into the frame grows
/// with every frame, and is not worth a copy each time.
pub(crate) fn better_by(image: &RgbImage, bbox: &BoxXyxy) -> f32 {
    if at_edge(image, bbox) { 2.0 } else { 1.25 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crop(frame_index: u64, quality: f32) -> CropCandidate {
        CropCandidate {
            frame_index,
            quality,
            image: RgbImage::new(1, 1, vec![0; 3]).unwrap(),
        }
    }

    #[test]
    fn a_long_track_hands_out_its_best_crops_and_no_more_than_the_limit() {
        let mut pool = CropPool::new(3);
        let mut sent = Vec::new();
        for hit in 1..=3000u32 {
            let quality = if hit == 7 { 100.0 } else { (hit % 50) as f32 };
            pool.offer(crop(u64::from(hit), quality));
            assert!(pool.waiting.len() <= 3);
            sent.extend(pool.due(hit));
        }
        sent.extend(pool.rest());
        assert_eq!(sent.len(), 3);
        assert!(
            sent.iter().any(|c| c.frame_index == 7),
            "the best crop of all is among them"
        );
    }

    #[test]
    fn a_crop_that_is_no_better_is_not_sent_early() {
        let mut pool = CropPool::new(3);
        pool.offer(crop(1, 5.0));
        assert!(pool.due(1).is_some());
        pool.offer(crop(2, 4.0));
        assert!(pool.due(10).is_none());
        assert_eq!(pool.rest().len(), 1);
    }

    fn checker(side: u32) -> RgbImage {
        let pixels = (0..side * side)
            .flat_map(|i| {
                [if (i + i / side).is_multiple_of(2) {
                    0
                } else {
                    255
                }; 3]
            })
            .collect();
        RgbImage::new(side, side, pixels).unwrap()
    }

    #[test]
    fn detail_counts_as_sharp_and_flat_colour_does_not() {
        let whole = BoxXyxy::new(0.0, 0.0, 40.0, 40.0);
        let flat = RgbImage::new(40, 40, vec![90; 4800]).unwrap();
        assert_eq!(sharpness(&flat, &whole), 0.0);
        assert!(sharpness(&checker(40), &whole) > 200.0);
        assert_eq!(sharpness(&checker(40), &whole.translated(99.0, 0.0)), 0.0);
        assert_eq!(
            sharpness(&RgbImage::new(1, 1, vec![1; 3]).unwrap(), &whole),
            0.0
        );
    }

    #[test]
    fn a_pack_cut_off_by_the_frame_is_worth_less_than_a_whole_one() {
        let image = checker(60);
        let inside = BoxXyxy::new(10.0, 10.0, 40.0, 40.0);
        assert!(quality(&image, &inside) > 2.0 * quality(&image, &inside.translated(-12.0, 0.0)));
    }
}
