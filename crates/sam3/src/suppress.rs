//! Video detector post-processing: duplicates go, and what is cut by the picture's border.
//!
//! Follows the description of the reference's per-frame step: a score threshold, suppression on
//! binary masks at the model's own size, and a border rule on box centres. Ties go to the lower
//! index everywhere, so that equal input gives equal output.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

/// A binary mask as words, for fast overlaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMask {
    words: Vec<u64>,
    area: u32,
}

impl BitMask {
    /// Set where `set` is true.
    pub fn new(set: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut words = vec![0u64; set.len().div_ceil(64)];
        for (i, bit) in set.enumerate() {
            words[i / 64] |= u64::from(bit) << (i % 64);
        }
        let area = words.iter().map(|w| w.count_ones()).sum();
        Self { words, area }
    }

    /// Set where a logit is above 0.
    pub fn from_logits(logits: &[f32]) -> Self {
        let word = |values: &[f32]| {
            let bits = values.iter().enumerate();
            bits.fold(0u64, |word, (i, v)| word | (u64::from(*v > 0.0) << i))
        };
        let words: Vec<u64> = logits.chunks(64).map(word).collect();
        let area = words.iter().map(|w| w.count_ones()).sum();
        Self { words, area }
    }

    /// Set pixels.
    pub fn area(&self) -> u32 {
        self.area
    }

    fn shared(&self, other: &Self) -> u32 {
        let pairs = self.words.iter().zip(&other.words);
        pairs.map(|(a, b)| (a & b).count_ones()).sum()
    }
}

/// How much two masks are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Intersection over union.
    Iou,
    /// Intersection over the smaller area.
    Iom,
}

impl Overlap {
    /// 0 for masks that do not meet.
    pub fn of(self, a: &BitMask, b: &BitMask) -> f32 {
        let both = a.shared(b);
        let over = match self {
            Self::Iou => a.area + b.area - both,
            Self::Iom => a.area.min(b.area),
        };
        both as f32 / (over as f32 + 1e-8)
    }
}

/// Whether a mask that was itself suppressed still suppresses others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// It does not: plain greedy suppression, as in propagation.
    Greedy,
    /// It does, as on the frame a video session starts with. There the reference divides the
    /// intersection by the better mask's area where [`Overlap::Iom`] would take the smaller one.
    Matrix,
}

/// Which detections stay: score above `score`, and no better one overlaps by more than `overlap`.
pub fn suppress<M: Borrow<BitMask>>(
    probabilities: &[f32],
    masks: &[M],
    score: f32,
    metric: Overlap,
    overlap: f32,
    chain: Chain,
) -> Vec<bool> {
    let mut order: Vec<usize> = (0..probabilities.len().min(masks.len()))
        .filter(|i| probabilities[*i] > score)
        .collect();
    order.sort_by(|a, b| {
        probabilities[*b]
            .total_cmp(&probabilities[*a])
            .then(a.cmp(b))
    });
    let mut keep = vec![false; probabilities.len()];
    let mut judges: Vec<usize> = Vec::new();
    for i in order {
        let free = judges.iter().all(|j| {
            let (judge, mask) = (masks[*j].borrow(), masks[i].borrow());
            let share = match (chain, metric) {
                (Chain::Matrix, Overlap::Iom) => {
                    judge.shared(mask) as f32 / (judge.area as f32 + 1e-8)
                }
                _ => metric.of(judge, mask),
            };
            share <= overlap
        });
        keep[i] = free;
        if free || chain == Chain::Matrix {
            judges.push(i);
        }
    }
    keep
}

/// True when a box's centre lies inside by more than `margin` of the picture on all sides. The box
/// is `[cx, cy, w, h]` in 0 to 1.
pub fn centre_inside([cx, cy, ..]: [f32; 4], margin: f32) -> bool {
    let inside = |v: f32| v > margin && v < 1.0 - margin;
    inside(cx) && inside(cy)
}

/// The order that brings kept detections to the front and changes nothing else.
pub fn kept_first(keep: &[bool]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keep.len()).collect();
    order.sort_by_key(|i| !keep[*i]);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(from: usize, to: usize) -> BitMask {
        BitMask::new((0..200).map(|i| (from..to).contains(&i)))
    }

    #[test]
    fn two_stacked_duplicates_become_one_and_neighbours_stay() {
        let masks = [stripe(0, 50), stripe(0, 50), stripe(60, 90)];
        let keep = suppress(
            &[0.8, 0.9, 0.5],
            &masks,
            0.4,
            Overlap::Iom,
            0.5,
            Chain::Greedy,
        );
        assert_eq!(keep, [false, true, true]);
    }

    #[test]
    fn a_suppressed_mask_suppresses_only_in_the_matrix_form() {
        let masks = [stripe(0, 50), stripe(40, 90), stripe(80, 130)];
        let run = |chain| suppress(&[0.9, 0.8, 0.7], &masks, 0.0, Overlap::Iom, 0.1, chain);
        assert_eq!(run(Chain::Greedy), [true, false, true]);
        assert_eq!(run(Chain::Matrix), [true, false, false]);
    }

    #[test]
    fn kept_ones_come_first_in_their_own_order() {
        assert_eq!(kept_first(&[false, true, false, true]), [1, 3, 0, 2]);
    }

    #[test]
    fn an_empty_mask_overlaps_nothing() {
        let keep = suppress(
            &[0.9, 0.9],
            &[stripe(0, 0), stripe(0, 0)],
            0.5,
            Overlap::Iou,
            0.1,
            Chain::Greedy,
        );
        assert_eq!(keep, [true, true]);
    }

    #[test]
    fn the_border_rule_looks_at_centres() {
        assert!(centre_inside([0.5, 0.5, 0.9, 0.9], 0.025));
        assert!(!centre_inside([0.02, 0.5, 0.01, 0.1], 0.025));
    }
}
