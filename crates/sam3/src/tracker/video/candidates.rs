//! What the detector saw in a frame, without duplicates and border cases.

use super::{VideoOptions, footprint::Footprint};
use crate::{
    Error, MaskLogits, Result,
    suppress::{BitMask, Chain, centre_inside, suppress},
};

/// Detections of one prompt in one frame, in the detector's own order.
#[derive(Debug)]
pub struct RawDetections {
    /// Probability of each, phrase and presence together.
    pub scores: Vec<f32>,
    /// `[cx, cy, w, h]` in 0 to 1 of the picture.
    pub boxes: Vec<[f32; 4]>,
    /// Their masks, in the same order.
    pub masks: MaskLogits,
    /// True when the detector had no place left for a further one.
    pub full: bool,
}

impl RawDetections {
    /// No detection; masks would be `side` x `side`.
    pub fn none(side: usize) -> Self {
        Self {
            scores: Vec::new(),
            boxes: Vec::new(),
            masks: MaskLogits {
                side,
                values: Vec::new(),
            },
            full: false,
        }
    }

    fn check(&self) -> Result<()> {
        let n = self.scores.len();
        let cells = n * self.masks.side * self.masks.side;
        if self.boxes.len() != n || self.masks.values.len() != cells {
            return Err(Error::InvalidInput(format!(
                "{n} detections came with {} boxes and {} mask values of {cells}",
                self.boxes.len(),
                self.masks.values.len()
            )));
        }
        Ok(())
    }
}

/// One detection that is left.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Row in the raw detections.
    pub(crate) raw: usize,
    pub(crate) score: f32,
    /// False for one at the border, which takes part in nothing but the very first births.
    pub(crate) kept: bool,
    pub(crate) footprint: Footprint,
}

/// Detections of one prompt in one frame after thresholds: those to be taken up first, then those
/// at the border, each in the detector's order.
#[derive(Debug)]
pub struct Candidates<'a> {
    pub(crate) rows: Vec<Candidate>,
    raw: &'a RawDetections,
}

impl<'a> Candidates<'a> {
    /// Drops weak and doubled detections. A video starts with [`Chain::Matrix`], later frames take
    /// [`Chain::Greedy`].
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when scores, boxes and masks do not fit each other.
    pub fn select(raw: &'a RawDetections, chain: Chain, options: &VideoOptions) -> Result<Self> {
        raw.check()?;
        let side = raw.masks.side;
        let all: Vec<Footprint> = (0..raw.scores.len())
            .map(|i| Footprint::new(raw.masks.mask(i), side))
            .collect();
        let bits: Vec<&BitMask> = all.iter().map(|f| &f.bits).collect();
        let distinct = suppress(
            &raw.scores,
            &bits,
            options.score_threshold,
            options.duplicate_metric,
            options.duplicate_overlap,
            chain,
        );
        let mut rows: Vec<Candidate> = all
            .into_iter()
            .enumerate()
            .filter(|(i, _)| distinct[*i])
            .map(|(i, footprint)| Candidate {
                raw: i,
                score: raw.scores[i],
                kept: options
                    .border_margin
                    .is_none_or(|margin| centre_inside(raw.boxes[i], margin)),
                footprint,
            })
            .collect();
        // A stable sort, so that ids do not depend on the machine.
        rows.sort_by_key(|row| !row.kept);
        Ok(Self { rows, raw })
    }

    /// How many are left, border cases included.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when none is left.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many may be taken up; they come first.
    pub fn kept(&self) -> usize {
        self.rows.iter().filter(|row| row.kept).count()
    }

    /// Row of candidate `i` among the raw detections.
    pub fn raw_row(&self, i: usize) -> Option<usize> {
        self.rows.get(i).map(|row| row.raw)
    }

    /// Side of the masks.
    pub(crate) fn side(&self) -> usize {
        self.raw.masks.side
    }

    /// Mask logits of a candidate.
    pub(crate) fn mask(&self, i: usize) -> &[f32] {
        self.rows
            .get(i)
            .map_or(&[], |row| self.raw.masks.mask(row.raw))
    }

    /// Mask logits of several candidates.
    pub(crate) fn masks(&self, rows: impl Iterator<Item = usize>) -> MaskLogits {
        MaskLogits {
            side: self.raw.masks.side,
            values: rows.flat_map(|i| self.mask(i)).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Squares of 4 cells a side on a 16 x 16 map at `(column, row)` cells, with their scores.
    fn raw(squares: &[(usize, usize, f32)]) -> RawDetections {
        let side = 16;
        let mut raw = RawDetections::none(side);
        for (x, y, score) in squares {
            raw.scores.push(*score);
            let centre = |at: usize| (at as f32 + 2.0) / side as f32;
            raw.boxes.push([centre(*x), centre(*y), 0.25, 0.25]);
            raw.masks.values.extend((0..side * side).map(|i| {
                let inside = (*x..x + 4).contains(&(i % side)) && (*y..y + 4).contains(&(i / side));
                if inside { 4.0 } else { -4.0 }
            }));
        }
        raw
    }

    #[test]
    fn weak_and_doubled_detections_go_and_border_cases_come_last() {
        let mut raw = raw(&[
            (0, 0, 0.7),
            (6, 6, 0.8),
            (6, 7, 0.9),
            (11, 0, 0.3),
            (0, 8, 0.5),
        ]);
        raw.boxes[0][0] = 0.01;
        let options = VideoOptions::default();
        let found = Candidates::select(&raw, Chain::Greedy, &options).unwrap();
        let rows: Vec<_> = (0..found.len()).filter_map(|i| found.raw_row(i)).collect();
        assert_eq!((rows, found.kept()), (vec![2, 4, 0], 2));
    }

    #[test]
    fn equal_detections_keep_the_detectors_order() {
        let squares: Vec<_> = (0..9).map(|i| (i % 3 * 5, i / 3 * 5, 0.9)).collect();
        let raw = raw(&squares);
        let found = Candidates::select(&raw, Chain::Greedy, &VideoOptions::default()).unwrap();
        let rows: Vec<_> = (0..found.len()).filter_map(|i| found.raw_row(i)).collect();
        assert_eq!(rows, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn masks_that_are_missing_are_refused() {
        let mut raw = raw(&[(0, 0, 0.7)]);
        raw.masks.values.pop();
        let refused = Candidates::select(&raw, Chain::Greedy, &VideoOptions::default());
        assert!(matches!(refused, Err(Error::InvalidInput(_))));
    }
}
