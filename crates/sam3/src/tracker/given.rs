//! Masks that are given by detections, at the sizes the tracker takes them in.

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use shelfscan_model_kit::ops::{Sampling, resize_2d};

use super::contest::enlarge;
use crate::{Error, MaskLogits, Result, error::AtStage};

const STAGE: &str = "given masks";

/// Logit of a given mask inside; outside it is the negative.
const GIVEN: f32 = 1024.0;
/// Score of an object whose mask was given and has a pixel; the negative without one.
const GIVEN_SCORE: f32 = 10.0;

/// Masks of some objects.
pub(crate) struct Given {
    /// `[n, 1, s, s]` of 0 and 1, on the CPU.
    pub(crate) masks: Tensor,
    /// Which have no pixel.
    pub(crate) empty: Vec<bool>,
}

impl Given {
    /// The positive pixels of `detections` (`count` masks) enlarged to `side` x `side`.
    ///
    /// # Errors
    /// The values are not those of `count` masks.
    pub(crate) fn new(detections: &MaskLogits, count: usize, side: usize) -> Result<Self> {
        let plane = detections.side * detections.side;
        if plane == 0 || detections.values.len() != count * plane {
            return Err(Error::InvalidInput(format!(
                "{count} objects came with {} mask values of side {}",
                detections.values.len(),
                detections.side
            )));
        }
        let all: Vec<usize> = (0..count).collect();
        let mut planes = enlarge(detections, &all, side)?;
        let empty = planes
            .par_chunks_exact_mut(side * side)
            .map(|plane| {
                let mut empty = true;
                for v in plane {
                    *v = f32::from(u8::from(*v > 0.0));
                    empty &= *v == 0.0;
                }
                empty
            })
            .collect();
        let masks = Tensor::from_vec(planes, (count, 1, side, side), &Device::Cpu).at(STAGE)?;
        Ok(Self { masks, empty })
    }

    /// Scores of the objects.
    pub(crate) fn scores(&self) -> impl Iterator<Item = f32> {
        let score = |empty: &bool| if *empty { -GIVEN_SCORE } else { GIVEN_SCORE };
        self.empty.iter().map(score)
    }

    /// Logits of `side` x `side`, one mask after the other, without the pixels that more than one
    /// of them claims in a frame of `width` x `height` pixels.
    ///
    /// # Errors
    /// The tensor library failed.
    pub(crate) fn apart(&self, (width, height): (u32, u32), side: usize) -> Result<Vec<f32>> {
        let (width, height) = (width as usize, height as usize);
        let smooth = Sampling::bilinear(true);
        let in_frame = |i: usize| -> candle_core::Result<Vec<f32>> {
            let mask = self.masks.narrow(0, i, 1)?;
            resize_2d(&mask, height, width, smooth)?
                .flatten_all()?
                .to_vec1()
        };
        // Enlarged once to count the claims and again to clear them, so that one mask of the
        // frame's size exists at a time.
        let mut claims = vec![0u8; width * height];
        for i in 0..self.empty.len() {
            for (claim, v) in claims.iter_mut().zip(in_frame(i).at(STAGE)?) {
                *claim = claim.saturating_add(u8::from(v > 0.5));
            }
        }
        let mut out = Vec::with_capacity(self.empty.len() * side * side);
        for i in 0..self.empty.len() {
            let mut mask = in_frame(i).at(STAGE)?;
            for (v, claim) in mask.iter_mut().zip(&claims) {
                *v = if *v > 0.5 && *claim == 1 {
                    GIVEN
                } else {
                    -GIVEN
                };
            }
            let small = Tensor::from_vec(mask, (1, 1, height, width), &Device::Cpu)
                .and_then(|t| resize_2d(&t, side, side, smooth))
                .and_then(|t| t.flatten_all()?.to_vec1::<f32>())
                .at(STAGE)?;
            out.extend(small);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_that_two_masks_claim_go_to_neither() {
        let mut values = vec![-1.0; 2 * 16];
        values[..8].fill(1.0);
        values[16 + 4..].fill(1.0);
        let detections = MaskLogits { side: 4, values };
        let given = Given::new(&detections, 2, 16).unwrap();
        assert_eq!(given.empty, [false, false]);
        let apart = given.apart((64, 64), 4).unwrap();
        let rows = |mask: &[f32]| -> Vec<bool> { mask.chunks(4).map(|r| r[1] > 0.0).collect() };
        assert_eq!(rows(&apart[..16]), [true, false, false, false]);
        assert_eq!(rows(&apart[16..]), [false, false, true, true]);
    }

    #[test]
    fn an_empty_mask_is_an_object_that_is_not_there() {
        let detections = MaskLogits {
            side: 2,
            values: vec![-1.0, -1.0, -1.0, -1.0, 2.0, -1.0, -1.0, -1.0],
        };
        let given = Given::new(&detections, 2, 8).unwrap();
        assert_eq!(given.empty, [true, false]);
        assert_eq!(given.scores().collect::<Vec<_>>(), [-10.0, 10.0]);
        let error = Given::new(&detections, 3, 8).err().unwrap().to_string();
        assert!(
            error.contains("3 objects came with 8 mask values"),
            "{error}"
        );
    }
}
