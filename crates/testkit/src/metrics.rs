//! Tracking scores: identity F1 and the CLEAR counts.
//!
//! Identity scores follow Ristani et al., "Performance measures and a data set for multi-target,
//! multi-camera tracking" (2016): one assignment of found ids to true ids over the whole clip that
//! maximises the boxes both agree on. Misses, false positives and id switches follow Bernardin and
//! Stiefelhagen, "Evaluating multiple object tracking performance" (2008): a pair that matched in
//! the frame before is kept as long as it still overlaps, the rest is assigned anew.

use std::collections::BTreeMap;

use pathfinding::{kuhn_munkres::kuhn_munkres, matrix::Matrix};
use shelfscan_inference_core::BoxXyxy;

/// Ids and boxes of one frame.
pub type IdBoxes = Vec<(u64, BoxXyxy)>;

/// How well found tracks agree with the truth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackScores {
    /// Boxes in the truth.
    pub truth_boxes: usize,
    /// Boxes that were found.
    pub found_boxes: usize,
    /// Boxes both agree on under the best assignment of ids over the clip.
    pub identity_matches: usize,
    /// True boxes without a found one, frame by frame.
    pub misses: usize,
    /// Found boxes without a true one, frame by frame.
    pub false_positives: usize,
    /// Times a true object was matched to another found id than at its match before.
    pub id_switches: usize,
}

impl TrackScores {
    /// Identity F1, 0 to 1: `2 * identity_matches / (truth_boxes + found_boxes)`; 1 when both are
    /// empty.
    pub fn idf1(&self) -> f64 {
        let boxes = self.truth_boxes + self.found_boxes;
        if boxes == 0 {
            return 1.0;
        }
        2.0 * self.identity_matches as f64 / boxes as f64
    }

    /// Multi-object tracking accuracy, at most 1 and below 0 when mistakes outnumber objects.
    pub fn mota(&self) -> f64 {
        let mistakes = self.misses + self.false_positives + self.id_switches;
        1.0 - mistakes as f64 / self.truth_boxes.max(1) as f64
    }
}

/// Scores `found` against `truth`, frame by frame; two boxes agree at an IoU of `min_iou` or more.
///
/// The shorter of the two counts as empty where it ends.
pub fn score_tracks(truth: &[IdBoxes], found: &[IdBoxes], min_iou: f32) -> TrackScores {
    let empty = IdBoxes::new();
    let mut scores = TrackScores::default();
    let mut together: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut last_match: BTreeMap<u64, u64> = BTreeMap::new();
    for index in 0..truth.len().max(found.len()) {
        let truths = truth.get(index).unwrap_or(&empty);
        let founds = found.get(index).unwrap_or(&empty);
        scores.truth_boxes += truths.len();
        scores.found_boxes += founds.len();
        for (true_id, true_box) in truths {
            for (found_id, found_box) in founds {
                if true_box.iou(found_box) >= min_iou {
                    *together.entry((*true_id, *found_id)).or_default() += 1;
                }
            }
        }
        let matches = match_frame(truths, founds, min_iou, &last_match);
        scores.misses += truths.len() - matches.len();
        scores.false_positives += founds.len() - matches.len();
        for (row, column) in matches {
            let (true_id, found_id) = (truths[row].0, founds[column].0);
            if last_match
                .insert(true_id, found_id)
                .is_some_and(|before| before != found_id)
            {
                scores.id_switches += 1;
            }
        }
    }
    scores.identity_matches = best_identity(&together);
    scores
}

/// Pairs `(truth index, found index)` of one frame.
fn match_frame(
    truths: &IdBoxes,
    founds: &IdBoxes,
    min_iou: f32,
    last_match: &BTreeMap<u64, u64>,
) -> Vec<(usize, usize)> {
    let weight = |row: usize, column: usize| {
        let iou = truths[row].1.iou(&founds[column].1);
        if iou < min_iou {
            return 0;
        }
        let kept = last_match.get(&truths[row].0) == Some(&founds[column].0);
        // A kept pair outweighs any set of new ones, a match outweighs any overlap.
        i64::from(kept) * 1_000_000_000_000 + 10_000_000 + (f64::from(iou) * 10_000.0) as i64
    };
    assign(truths.len(), founds.len(), weight)
}

fn best_identity(together: &BTreeMap<(u64, u64), usize>) -> usize {
    let index = |pick: fn(&(u64, u64)) -> u64| {
        let ids: std::collections::BTreeSet<u64> = together.keys().map(pick).collect();
        ids.into_iter().collect::<Vec<u64>>()
    };
    let (truths, founds) = (index(|k| k.0), index(|k| k.1));
    let count = |row: usize, column: usize| {
        together
            .get(&(truths[row], founds[column]))
            .copied()
            .unwrap_or(0)
    };
    assign(truths.len(), founds.len(), |row, column| {
        count(row, column) as i64
    })
    .into_iter()
    .map(|(row, column)| count(row, column))
    .sum()
}

/// The one-to-one assignment of largest total weight; pairs of weight 0 are left out.
fn assign(
    rows: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> i64,
) -> Vec<(usize, usize)> {
    if rows == 0 || columns == 0 {
        return Vec::new();
    }
    // The solver wants no more rows than columns.
    let turned = rows > columns;
    let (short, long) = if turned {
        (columns, rows)
    } else {
        (rows, columns)
    };
    let at = |s: usize, l: usize| if turned { weight(l, s) } else { weight(s, l) };
    let weights = Matrix::from_fn(short, long, |(s, l)| at(s, l));
    let (_, chosen) = kuhn_munkres(&weights);
    chosen
        .into_iter()
        .enumerate()
        .filter(|&(s, l)| at(s, l) > 0)
        .map(|(s, l)| if turned { (l, s) } else { (s, l) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of boxes, `(id, place)`, each 10 wide and 20 apart.
    fn frame(objects: &[(u64, u32)]) -> IdBoxes {
        objects
            .iter()
            .map(|&(id, place)| (id, BoxXyxy::from_xywh(place as f32 * 20.0, 0.0, 10.0, 10.0)))
            .collect()
    }

    #[test]
    fn equal_tracks_under_other_names_are_perfect() {
        let truth = vec![frame(&[(1, 0), (2, 1)]); 5];
        let found = vec![frame(&[(9, 1), (7, 0)]); 5];
        let scores = score_tracks(&truth, &found, 0.5);
        assert_eq!((scores.idf1(), scores.mota()), (1.0, 1.0));
        assert_eq!(scores.id_switches, 0);
    }

    #[test]
    fn a_swap_midway_costs_half_the_identity_and_two_switches() {
        let truth = vec![frame(&[(1, 0), (2, 1)]); 10];
        let mut found = vec![frame(&[(1, 0), (2, 1)]); 5];
        found.extend(vec![frame(&[(2, 0), (1, 1)]); 5]);
        let scores = score_tracks(&truth, &found, 0.5);
        assert_eq!(scores.id_switches, 2);
        assert_eq!(scores.identity_matches, 10);
        assert_eq!(scores.idf1(), 0.5);
        assert_eq!(scores.mota(), 1.0 - 2.0 / 20.0);
    }

    #[test]
    fn a_new_name_after_a_gap_is_one_switch_and_the_longer_part_counts() {
        let truth = vec![frame(&[(1, 0)]); 10];
        let mut found = vec![frame(&[(1, 0)]); 6];
        found.push(frame(&[]));
        found.extend(vec![frame(&[(5, 0)]); 3]);
        let scores = score_tracks(&truth, &found, 0.5);
        assert_eq!((scores.misses, scores.id_switches), (1, 1));
        // 6 agreed boxes of 10 true and 9 found ones.
        assert_eq!(scores.idf1(), 12.0 / 19.0);
    }

    #[test]
    fn misses_and_boxes_of_nothing_are_counted_apart() {
        let truth = vec![frame(&[(1, 0), (2, 1), (3, 2)]); 4];
        let found = vec![frame(&[(1, 0), (8, 7)]); 4];
        let scores = score_tracks(&truth, &found, 0.5);
        assert_eq!((scores.misses, scores.false_positives), (8, 4));
        assert_eq!(scores.idf1(), 8.0 / 20.0);
        assert_eq!(scores.mota(), 0.0);
    }

    #[test]
    fn boxes_below_the_overlap_do_not_agree() {
        let truth = vec![vec![(1, BoxXyxy::from_xywh(0.0, 0.0, 10.0, 10.0))]];
        let found = vec![vec![(1, BoxXyxy::from_xywh(5.0, 0.0, 10.0, 10.0))]];
        assert_eq!(score_tracks(&truth, &found, 0.5).identity_matches, 0);
        assert_eq!(score_tracks(&truth, &found, 0.3).identity_matches, 1);
    }

    #[test]
    fn a_kept_pair_is_preferred_to_a_better_overlap() {
        let place = |x: f32| BoxXyxy::from_xywh(x, 0.0, 10.0, 10.0);
        let truth = vec![vec![(1, place(0.0))], vec![(1, place(0.0))]];
        let found = vec![
            vec![(1, place(0.0))],
            vec![(1, place(2.0)), (2, place(0.0))],
        ];
        assert_eq!(score_tracks(&truth, &found, 0.5).id_switches, 0);
    }

    #[test]
    fn nothing_against_nothing_is_perfect_and_against_something_is_worthless() {
        assert_eq!(score_tracks(&[], &[], 0.5).idf1(), 1.0);
        let found = vec![frame(&[(1, 0)])];
        assert_eq!(score_tracks(&[], &found, 0.5).idf1(), 0.0);
    }
}
