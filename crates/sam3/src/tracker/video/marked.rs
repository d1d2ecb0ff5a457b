//! Objects that are marked by boxes rather than named.

use shelfscan_inference_core::BoxXyxy;

use super::RawDetections;
use crate::{Error, ExemplarBox, Exemplars, Result};

/// A find that shares less than this of its union with a box is not what the box marks.
const LEAST_OVERLAP: f32 = 0.3;

/// Boxes `[cx, cy, w, h]` in 0 to 1 as examples.
pub(crate) fn checked(boxes: &[[f32; 4]]) -> Result<Exemplars> {
    let inside = |[cx, cy, w, h]: &[f32; 4]| {
        let side =
            |middle: f32, size: f32| size > 0.0 && size <= 1.0 && (0.0..=1.0).contains(&middle);
        side(*cx, *w) && side(*cy, *h)
    };
    if boxes.is_empty() || !boxes.iter().all(inside) {
        return Err(Error::InvalidInput(format!(
            "boxes {boxes:?} mark no object; give centre and size in 0 to 1 of the picture"
        )));
    }
    let positive = |cxcywh: &[f32; 4]| ExemplarBox {
        cxcywh: *cxcywh,
        positive: true,
    };
    Ok(Exemplars {
        boxes: boxes.iter().map(positive).collect(),
        points: Vec::new(),
    })
}

/// For every box the find that fits it best, in the finds' order; and how many boxes have none. A
/// find is taken for one box only.
pub(crate) fn nearest(found: &RawDetections, marked: &Exemplars) -> (RawDetections, usize) {
    let mut taken = vec![false; found.scores.len()];
    let mut missed = 0;
    for mark in &marked.boxes {
        let overlaps = found
            .boxes
            .iter()
            .map(|found| corners(*found).iou(&corners(mark.cxcywh)));
        let free = overlaps.enumerate().filter(|(i, _)| !taken[*i]);
        let best = free.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        match best {
            Some((i, over)) if over >= LEAST_OVERLAP => taken[i] = true,
            _ => missed += 1,
        }
    }
    let side = found.masks.side;
    let mut own = RawDetections::none(side);
    for i in (0..taken.len()).filter(|i| taken[*i]) {
        own.scores.push(found.scores[i]);
        own.boxes.push(found.boxes[i]);
        own.masks.values.extend_from_slice(found.masks.mask(i));
    }
    (own, missed)
}

fn corners([cx, cy, w, h]: [f32; 4]) -> BoxXyxy {
    BoxXyxy::from_xywh(cx - w / 2.0, cy - h / 2.0, w, h)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MaskLogits;

    fn found(boxes: &[[f32; 4]]) -> RawDetections {
        RawDetections {
            scores: (0..boxes.len()).map(|i| 0.9 - i as f32 / 10.0).collect(),
            boxes: boxes.to_vec(),
            masks: MaskLogits {
                side: 1,
                values: (0..boxes.len()).map(|i| i as f32).collect(),
            },
            full: false,
        }
    }

    #[test]
    fn each_box_takes_the_find_that_fits_it_and_not_a_better_scored_one() {
        let finds = [
            [0.2, 0.2, 0.2, 0.2],
            [0.5, 0.5, 0.2, 0.2],
            [0.51, 0.5, 0.2, 0.2],
        ];
        let marked = checked(&[[0.51, 0.5, 0.2, 0.2]]).unwrap();
        let (own, missed) = nearest(&found(&finds), &marked);
        assert_eq!(
            (own.boxes, own.masks.values, missed),
            (vec![finds[2]], vec![2.0], 0)
        );
    }

    #[test]
    fn a_find_answers_one_box_and_a_box_with_nothing_in_it_is_missed() {
        let finds = [[0.5, 0.5, 0.2, 0.2]];
        let twice = checked(&[[0.5, 0.5, 0.2, 0.2], [0.52, 0.5, 0.2, 0.2]]).unwrap();
        let (own, missed) = nearest(&found(&finds), &twice);
        assert_eq!((own.scores.len(), missed), (1, 1));
        let elsewhere = checked(&[[0.1, 0.1, 0.1, 0.1]]).unwrap();
        assert_eq!(nearest(&found(&finds), &elsewhere).1, 1);
    }

    #[test]
    fn boxes_that_mark_nothing_are_refused() {
        for boxes in [
            &[][..],
            &[[0.5, 0.5, 0.0, 0.1]],
            &[[1.5, 0.5, 0.1, 0.1]],
            &[[f32::NAN, 0.5, 0.1, 0.1]],
        ] {
            assert!(checked(boxes).unwrap_err().to_string().contains("0 to 1"));
        }
    }
}
