//! Mask logits at the model's size to masks over the source picture.

use rayon::prelude::*;
use shelfscan_inference_core::Mask;

/// Low-resolution cells and the share of the upper one, for each output position of one axis:
/// bilinear, pixels are areas.
struct Axis {
    steps: Vec<(usize, usize, f32)>,
}

impl Axis {
    fn new(from: usize, to: u32) -> Self {
        let scale = from as f64 / f64::from(to);
        let steps = (0..to)
            .map(|i| {
                let at = ((f64::from(i) + 0.5) * scale - 0.5).max(0.0);
                let low = (at as usize).min(from - 1);
                (low, (low + 1).min(from - 1), (at - low as f64) as f32)
            })
            .collect();
        Self { steps }
    }
}

/// Enlarges square logit maps `[n, side * side]` to `width` x `height` and sets what is above 0.
///
/// Only columns and rows near a positive logit are computed, so that the cost follows the objects'
/// size and not the picture's.
pub(crate) fn paint(logits: &[f32], side: usize, width: u32, height: u32) -> Vec<Mask> {
    let (across, down) = (Axis::new(side, width), Axis::new(side, height));
    logits
        .par_chunks_exact((side * side).max(1))
        .map(|map| paint_one(map, side, &across, &down))
        .collect()
}

fn paint_one(map: &[f32], side: usize, across: &Axis, down: &Axis) -> Mask {
    let (width, height) = (across.steps.len() as u32, down.steps.len() as u32);
    let mut live_column = vec![false; side];
    let mut live_row = vec![false; side];
    for (row, values) in live_row.iter_mut().zip(map.chunks_exact(side)) {
        for (column, value) in live_column.iter_mut().zip(values) {
            let positive = *value > 0.0;
            *column |= positive;
            *row |= positive;
        }
    }
    let mut runs = Runs::default();
    let mut column = vec![0f32; side];
    for &(x0, x1, t) in &across.steps {
        if !live_column[x0] && !live_column[x1] {
            runs.push(false, height);
            continue;
        }
        for (cell, row) in column.iter_mut().zip(map.chunks_exact(side)) {
            *cell = row[x0] + (row[x1] - row[x0]) * t;
        }
        for &(y0, y1, t) in &down.steps {
            let live = live_row[y0] || live_row[y1];
            runs.push(live && column[y0] + (column[y1] - column[y0]) * t > 0.0, 1);
        }
    }
    // The runs cover the picture by construction.
    Mask::from_runs(width, height, runs.lengths).unwrap_or_else(|_| Mask::empty(width, height))
}

/// Column-major run lengths, background first.
#[derive(Default)]
struct Runs {
    lengths: Vec<u32>,
}

impl Runs {
    fn push(&mut self, set: bool, n: u32) {
        if self.lengths.is_empty() {
            self.lengths.push(0);
        }
        if self.lengths.len().is_multiple_of(2) != set {
            self.lengths.push(0);
        }
        if let Some(last) = self.lengths.last_mut() {
            *last += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use shelfscan_inference_core::BoxXyxy;

    use super::*;

    #[test]
    fn a_drawn_square_comes_back_within_a_pixel_in_any_picture_shape() {
        let squares = [
            (800, 600, [300.0, 200.0, 500.0, 400.0]),
            (600, 800, [200.0, 300.0, 400.0, 500.0]),
            (1000, 1400, [350.0, 500.0, 650.0, 900.0]),
        ];
        for (width, height, [x0, y0, x1, y1]) in squares {
            // The logit falls off with the distance to the edge, as a trained mask's does.
            let side = 288usize;
            let logits: Vec<f32> = (0..side * side)
                .map(|i| {
                    let x = ((i % side) as f32 + 0.5) / side as f32 * width as f32;
                    let y = ((i / side) as f32 + 0.5) / side as f32 * height as f32;
                    (x - x0).min(x1 - x).min(y - y0).min(y1 - y)
                })
                .collect();
            let mask = paint(&logits, side, width, height).remove(0);
            assert_eq!((mask.width(), mask.height()), (width, height));
            let got: [f32; 4] = mask.bounding_box().unwrap().into();
            for (got, want) in got.iter().zip([x0, y0, x1, y1]) {
                assert!(
                    (got - want).abs() <= 1.0,
                    "{got} is not {want} in {width}x{height}"
                );
            }
            let area = BoxXyxy::new(x0, y0, x1, y1).area();
            assert!((mask.area() as f32 - area).abs() / area < 0.02);
        }
    }

    #[test]
    fn nothing_positive_gives_an_empty_mask() {
        let mask = paint(&[-1.0; 16], 4, 30, 20).remove(0);
        assert_eq!(mask, Mask::empty(30, 20));
        assert!(paint(&[], 4, 30, 20).is_empty());
    }
}
