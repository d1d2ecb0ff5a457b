//! Queries of one phrase to finds: duplicates go, masks are painted, boxes hug them.

use shelfscan_inference_core::{BoxXyxy, Mask};

use crate::{
    MaskLogits,
    paint::paint,
    suppress::{BitMask, Chain, Overlap, suppress},
    tiles::{Find, Tile},
};

/// Which boxes, best first, are not covered by a better one.
fn distinct(boxes: &[BoxXyxy], overlap: f32) -> Vec<bool> {
    let mut keep = vec![false; boxes.len()];
    for i in 0..boxes.len() {
        keep[i] = (0..i).all(|j| !keep[j] || boxes[j].iom(&boxes[i]) <= overlap);
    }
    keep
}

/// A box of the model, `[cx, cy, w, h]` in 0 to 1, in pixels of the picture.
pub(crate) fn in_pixels([cx, cy, w, h]: &[f32; 4], width: u32, height: u32) -> BoxXyxy {
    let (sx, sy) = (width as f32, height as f32);
    BoxXyxy::new(
        (cx - 0.5 * w) * sx,
        (cy - 0.5 * h) * sy,
        (cx + 0.5 * w) * sx,
        (cy + 0.5 * h) * sy,
    )
    .clamped(width, height)
}

/// The queries of one phrase over the threshold, best first.
pub(crate) struct Ranked {
    pub(crate) prompt: usize,
    pub(crate) scores: Vec<f32>,
    /// In pixels of the tile.
    pub(crate) boxes: Vec<BoxXyxy>,
    pub(crate) drawn: Option<MaskLogits>,
}

impl Ranked {
    /// What is left without duplicates, in pixels of the tile.
    pub(crate) fn finds(&self, tile: &Tile, duplicate_overlap: Option<f32>) -> Vec<Find> {
        let keep = match (&self.drawn, duplicate_overlap) {
            (_, None) => vec![true; self.scores.len()],
            (Some(drawn), Some(overlap)) => {
                let bits: Vec<BitMask> = (0..self.scores.len())
                    .map(|i| BitMask::from_logits(drawn.mask(i)))
                    .collect();
                suppress(
                    &self.scores,
                    &bits,
                    0.0,
                    Overlap::Iom,
                    overlap,
                    Chain::Greedy,
                )
            }
            (None, Some(overlap)) => distinct(&self.boxes, overlap),
        };
        let kept: Vec<usize> = (0..self.scores.len()).filter(|i| keep[*i]).collect();
        let masks: Vec<Option<Mask>> = match &self.drawn {
            Some(drawn) => {
                let logits: Vec<f32> = kept.iter().flat_map(|i| drawn.mask(*i)).copied().collect();
                let masks = paint(&logits, drawn.side, tile.width, tile.height);
                masks.into_iter().map(Some).collect()
            }
            None => vec![None; kept.len()],
        };
        let finds = kept.into_iter().zip(masks).map(|(i, mask)| {
            // A mask is exact where the box is a guess; an empty one says nothing.
            let hull = mask.as_ref().and_then(Mask::bounding_box);
            Find {
                prompt: self.prompt,
                score: self.scores[i],
                bbox: hull.unwrap_or(self.boxes[i]),
                mask,
            }
        });
        finds.filter(|find| find.bbox.is_valid()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Squares of the unit square as the model would answer them: a box and a mask each, drawn at
    /// the model's own size, every one twice with the worse copy off by a cell.
    fn answered(squares: &[[f32; 4]], (width, height): (u32, u32)) -> Ranked {
        const SIDE: usize = 288;
        let twice = [(0.9, 0.0), (0.6, 1.0 / SIDE as f32)];
        let all: Vec<(f32, [f32; 4])> = twice
            .iter()
            .flat_map(|(score, off)| {
                squares
                    .iter()
                    .map(move |[cx, cy, w, h]| (*score, [cx + off, *cy, *w, *h]))
            })
            .collect();
        let draw = |[cx, cy, w, h]: [f32; 4]| {
            (0..SIDE * SIDE).map(move |i| {
                let x = ((i % SIDE) as f32 + 0.5) / SIDE as f32 - cx;
                let y = ((i / SIDE) as f32 + 0.5) / SIDE as f32 - cy;
                (0.5 * w - x.abs()).min(0.5 * h - y.abs()) * 100.0
            })
        };
        Ranked {
            prompt: 0,
            scores: all.iter().map(|(score, _)| *score).collect(),
            boxes: all
                .iter()
                .map(|(_, square)| in_pixels(square, width, height))
                .collect(),
            drawn: Some(MaskLogits {
                side: SIDE,
                values: all.iter().flat_map(|(_, square)| draw(*square)).collect(),
            }),
        }
    }

    fn finds(squares: &[[f32; 4]], (width, height): (u32, u32)) -> Vec<Find> {
        let tile = Tile {
            x: 0,
            y: 0,
            width,
            height,
        };
        answered(squares, (width, height)).finds(&tile, Some(0.5))
    }

    fn twelve_squares() -> Vec<[f32; 4]> {
        (0..12)
            .map(|i| {
                let (column, row) = ((i % 4) as f32, (i / 4) as f32);
                [0.2 + 0.2 * column, 0.2 + 0.3 * row, 0.15, 0.2]
            })
            .collect()
    }

    #[test]
    fn twelve_equal_squares_that_were_each_found_twice_are_twelve() {
        let squares = twelve_squares();
        let found = finds(&squares, (800, 600));
        assert_eq!(found.len(), 12);
        for (find, square) in found.iter().zip(&squares) {
            assert!((find.score - 0.9).abs() < 1e-6, "the better one stays");
            let want: [f32; 4] = in_pixels(square, 800, 600).into();
            let got: [f32; 4] = find.bbox.into();
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= 1.0, "{got} is not {want}");
            }
        }
    }

    #[test]
    fn a_scene_turned_on_its_side_has_its_boxes_turned() {
        let squares = twelve_squares();
        let turned: Vec<[f32; 4]> = squares
            .iter()
            .map(|[x, y, w, h]| [*y, *x, *h, *w])
            .collect();
        let (wide, tall) = (finds(&squares, (800, 600)), finds(&turned, (600, 800)));
        assert_eq!(wide.len(), tall.len());
        for (a, b) in wide.iter().zip(&tall) {
            let [x0, y0, x1, y1]: [f32; 4] = b.bbox.into();
            let back: [f32; 4] = [y0, x0, y1, x1];
            let want: [f32; 4] = a.bbox.into();
            for (got, want) in back.iter().zip(want) {
                assert!((got - want).abs() <= 1.0, "{got} is not {want}");
            }
        }
    }

    #[test]
    fn a_worse_box_over_a_better_one_goes() {
        let a = BoxXyxy::new(0.0, 0.0, 10.0, 10.0);
        let boxes = [a, a.translated(1.0, 0.0), a.translated(30.0, 0.0)];
        assert_eq!(distinct(&boxes, 0.5), [true, false, true]);
    }
}
