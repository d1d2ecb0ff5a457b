//! Who owns a pixel that several masks claim.

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use shelfscan_model_kit::ops::{Sampling, resize_2d};

use crate::{MaskLogits, Result, error::AtStage};

const STAGE: &str = "overlapping masks";

/// Logit of a pixel that a mask lost.
pub(crate) const LOST: f32 = -10.0;

/// Masks enlarged at a time.
const AT_ONCE: usize = 8;

/// The masks `which`, enlarged to `side` x `side`, one after the other.
pub(crate) fn enlarge(masks: &MaskLogits, which: &[usize], side: usize) -> Result<Vec<f32>> {
    let mut values = Vec::with_capacity(which.len() * masks.side * masks.side);
    for i in which {
        values.extend_from_slice(masks.mask(*i));
    }
    let shape = (which.len(), 1, masks.side, masks.side);
    Tensor::from_vec(values, shape, &Device::Cpu)
        .and_then(|t| resize_2d(&t, side, side, Sampling::bilinear(false)))
        .and_then(|t| t.flatten_all()?.to_vec1())
        .at(STAGE)
}

/// For every pixel the mask with the highest logit, the first of equals.
#[derive(Debug)]
pub struct Contest {
    /// Row by row.
    owners: Vec<u32>,
    /// Positive pixels of each mask, and how many of them it owns.
    areas: Vec<(usize, usize)>,
}

impl Contest {
    /// Enlarges the masks (`count` of them) to `side` x `side` pixels and compares them there, a few
    /// at a time.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn hold(masks: &MaskLogits, count: usize, side: usize) -> Result<Self> {
        let mut best = vec![f32::NEG_INFINITY; side * side];
        let mut owners = vec![0u32; side * side];
        let mut areas = vec![(0, 0); count];
        let all: Vec<usize> = (0..count).collect();
        for which in all.chunks(AT_ONCE) {
            let large = enlarge(masks, which, side)?;
            let planes: Vec<&[f32]> = large.chunks_exact(side * side).collect();
            for (i, plane) in which.iter().zip(&planes) {
                areas[*i].0 = plane.par_iter().filter(|v| **v > 0.0).count();
            }
            best.par_chunks_mut(side)
                .zip(owners.par_chunks_mut(side))
                .enumerate()
                .for_each(|(row, (best, owners))| {
                    for (i, plane) in which.iter().zip(&planes) {
                        let line = &plane[row * side..][..side];
                        for ((best, owner), v) in best.iter_mut().zip(&mut *owners).zip(line) {
                            if v > best {
                                (*best, *owner) = (*v, *i as u32);
                            }
                        }
                    }
                });
        }
        for (best, owner) in best.iter().zip(&owners) {
            if *best > 0.0 {
                areas[*owner as usize].1 += 1;
            }
        }
        Ok(Self { owners, areas })
    }

    /// Masks that own less than `share` of their pixels. A mask alone always keeps its own.
    pub fn shrunk(&self, share: f32) -> Vec<bool> {
        let lost = |(area, own): &(usize, usize)| ((*own as f32) / (*area).max(1) as f32) < share;
        let several = self.areas.len() > 1;
        self.areas.iter().map(|a| several && lost(a)).collect()
    }

    /// Masks with a pixel, whoever owns it.
    pub fn present(&self) -> Vec<bool> {
        self.areas.iter().map(|(area, _)| *area > 0).collect()
    }

    /// Lowers the pixels of mask `i` (enlarged, row by row) that others own.
    pub fn settle(&self, i: usize, plane: &mut [f32]) {
        for (v, owner) in plane.iter_mut().zip(&self.owners) {
            if *owner as usize != i {
                *v = v.min(LOST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(planes: &[[f32; 4]]) -> MaskLogits {
        MaskLogits {
            side: 2,
            values: planes.concat(),
        }
    }

    #[test]
    fn the_highest_logit_owns_a_pixel_and_the_first_of_equals() {
        let masks = masks(&[[1.0, 2.0, -3.0, 4.0], [1.0, 3.0, -1.0, -4.0]]);
        let contest = Contest::hold(&masks, 2, 2).unwrap();
        assert_eq!(contest.owners, [0, 1, 1, 0]);
        assert_eq!(contest.areas, [(3, 2), (2, 1)]);
        let mut second = masks.mask(1).to_vec();
        contest.settle(1, &mut second);
        assert_eq!(second, [LOST, 3.0, -1.0, LOST]);
    }

    #[test]
    fn a_mask_that_loses_most_of_itself_has_shrunk_unless_it_is_alone() {
        let both = masks(&[[9.0, 9.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0]]);
        let contest = Contest::hold(&both, 2, 2).unwrap();
        assert_eq!(contest.shrunk(0.3), [false, true]);
        assert_eq!(contest.present(), [true, true]);
        let alone = masks(&[[-1.0; 4]]);
        let contest = Contest::hold(&alone, 1, 2).unwrap();
        assert_eq!(
            (contest.shrunk(0.3), contest.present()),
            (vec![false], vec![false])
        );
    }

    #[test]
    fn more_masks_than_fit_at_once_are_compared_all_the_same() {
        let planes: Vec<[f32; 4]> = (0..3 * AT_ONCE as i32)
            .map(|i| [(i % 5) as f32, i as f32, -i as f32, 1.0])
            .collect();
        let contest = Contest::hold(&masks(&planes), planes.len(), 2).unwrap();
        assert_eq!(contest.owners, [4, 3 * AT_ONCE as u32 - 1, 0, 0]);
    }
}
