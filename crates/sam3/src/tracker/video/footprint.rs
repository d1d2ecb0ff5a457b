//! Binary masks with their extents, so that far-apart masks cost nothing to compare.

use crate::suppress::{BitMask, Overlap};

/// A binary mask and the rectangle it lies in.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    pub(crate) bits: BitMask,
    /// First and last column, first and last row; `None` for an empty mask.
    extent: Option<[usize; 4]>,
}

impl Footprint {
    /// Set where a logit of the `side` x `side` map is above 0.
    pub(crate) fn new(logits: &[f32], side: usize) -> Self {
        let mut extent: Option<[usize; 4]> = None;
        for (y, row) in logits.chunks_exact(side.max(1)).enumerate() {
            let Some(first) = row.iter().position(|v| *v > 0.0) else {
                continue;
            };
            let last = row.iter().rposition(|v| *v > 0.0).unwrap_or(first);
            extent = Some(match extent {
                Some([x0, x1, y0, _]) => [x0.min(first), x1.max(last), y0, y],
                None => [first, last, y, y],
            });
        }
        Self {
            bits: BitMask::from_logits(logits),
            extent,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extent.is_none()
    }

    /// As [`Overlap::of`].
    pub(crate) fn overlap(&self, other: &Self, metric: Overlap) -> f32 {
        let (Some(a), Some(b)) = (self.extent, other.extent) else {
            return 0.0;
        };
        let apart = a[1] < b[0] || b[1] < a[0] || a[3] < b[2] || b[3] < a[2];
        if apart {
            0.0
        } else {
            metric.of(&self.bits, &other.bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_shortcut_gives_what_whole_masks_give(
            a in proptest::collection::vec(-2i8..2, 81),
            b in proptest::collection::vec(-6i8..2, 81),
        ) {
            let logits = |v: &[i8]| v.iter().map(|i| f32::from(*i)).collect::<Vec<_>>();
            let (a, b) = (logits(&a), logits(&b));
            for metric in [Overlap::Iou, Overlap::Iom] {
                let whole = metric.of(&BitMask::from_logits(&a), &BitMask::from_logits(&b));
                let short = Footprint::new(&a, 9).overlap(&Footprint::new(&b, 9), metric);
                prop_assert_eq!(short, whole);
            }
        }
    }
}
