//! Every pixel of the picture to one object.

use shelfscan_inference_core::{BoxXyxy, Mask};

/// Takes pixels away from masks that a mask earlier in `order` covers. All masks have one size;
/// `boxes` are theirs before.
pub(crate) fn separate(masks: &mut [Mask], boxes: &[BoxXyxy], order: &[usize]) {
    let meets = |i: usize| {
        let others = boxes.iter().enumerate().filter(|(j, _)| *j != i);
        let mut shared = others.map(|(_, other)| boxes[i].intersection(other).area());
        shared.any(|area| area > 0.0)
    };
    let mut taken: Option<Bits> = None;
    for &i in order {
        if meets(i) {
            let mask = &masks[i];
            let pixels = mask.width() as usize * mask.height() as usize;
            let taken = taken.get_or_insert_with(|| Bits::new(pixels));
            masks[i] = free_part(mask, taken);
        }
    }
}

/// The part of a mask that is not taken yet, which is taken then.
fn free_part(mask: &Mask, taken: &mut Bits) -> Mask {
    let mut runs: Vec<u32> = vec![0];
    let mut push = |set: bool, n: u32| {
        // Even positions hold background.
        if runs.len().is_multiple_of(2) != set {
            runs.push(0);
        }
        if let Some(last) = runs.last_mut() {
            *last += n;
        }
    };
    let mut at = 0usize;
    for (i, &run) in mask.runs().iter().enumerate() {
        if i % 2 == 0 {
            push(false, run);
        } else {
            for pixel in at..at + run as usize {
                push(taken.take(pixel), 1);
            }
        }
        at += run as usize;
    }
    let (width, height) = (mask.width(), mask.height());
    // The runs cover what the mask's own covered.
    Mask::from_runs(width, height, runs).unwrap_or_else(|_| Mask::empty(width, height))
}

struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
        }
    }

    /// Sets a bit; true when it was free.
    fn take(&mut self, i: usize) -> bool {
        let (word, bit) = (&mut self.words[i / 64], 1u64 << (i % 64));
        let free = *word & bit == 0;
        *word |= bit;
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_pixel_goes_to_the_first_that_covers_it(
            squares in proptest::collection::vec((0u32..30, 0u32..20, 1u32..12, 1u32..12), 1..6),
        ) {
            let mut masks: Vec<Mask> = squares
                .iter()
                .map(|(x, y, w, h)| {
                    let b = BoxXyxy::from_xywh(*x as f32, *y as f32, *w as f32, *h as f32);
                    Mask::from_box(32, 24, &b)
                })
                .collect();
            let before: Vec<Vec<u8>> = masks.iter().map(Mask::to_binary).collect();
            let boxes: Vec<BoxXyxy> =
                masks.iter().map(|m| m.bounding_box().unwrap()).collect();
            let order: Vec<usize> = (0..masks.len()).rev().collect();
            separate(&mut masks, &boxes, &order);
            let after: Vec<Vec<u8>> = masks.iter().map(Mask::to_binary).collect();
            for pixel in 0..32 * 24 {
                let owner = order.iter().find(|i| before[**i][pixel] != 0);
                for (i, mask) in after.iter().enumerate() {
                    prop_assert_eq!(mask[pixel] != 0, owner == Some(&i));
                }
            }
        }
    }
}
