//! Small holes and specks of masks.
//!
//! Follows the description of `fill_holes_in_mask_scores` in `sam3/model/sam3_tracker_utils.py`.

/// What the cells of a filled hole are set to.
const FILLED: f32 = 0.1;
/// What the cells of a removed speck are set to.
const REMOVED: f32 = -0.1;

/// Fills holes of at most `most` cells in a `side` x `side` map of logits and removes specks of at
/// most as many, but never more than half of what is set; so a small object stays. Cells that touch
/// at a corner belong together, in holes as in specks.
pub(crate) fn mend(logits: &mut [f32], side: usize, most: usize) {
    if most == 0 || side == 0 {
        return;
    }
    replace_small(logits, side, most, false, FILLED);
    let set = logits.iter().filter(|v| **v > 0.0).count();
    replace_small(logits, side, most.min(set / 2), true, REMOVED);
}

/// Sets every connected part of at most `most` cells whose logits are above 0 (`set`) or are not.
fn replace_small(logits: &mut [f32], side: usize, most: usize, set: bool, value: f32) {
    let belongs = |v: f32| (v > 0.0) == set;
    let mut seen = vec![false; logits.len()];
    let mut part: Vec<usize> = Vec::new();
    for start in 0..logits.len() {
        if seen[start] || !belongs(logits[start]) {
            continue;
        }
        part.clear();
        part.push(start);
        seen[start] = true;
        let mut next = 0;
        while let Some(&at) = part.get(next) {
            next += 1;
            let (x, y) = (at % side, at / side);
            for ny in y.saturating_sub(1)..=y + 1 {
                for nx in x.saturating_sub(1)..=(x + 1).min(side - 1) {
                    let other = ny * side + nx;
                    if other < logits.len() && !seen[other] && belongs(logits[other]) {
                        seen[other] = true;
                        part.push(other);
                    }
                }
            }
        }
        if part.len() <= most {
            for at in &part {
                logits[*at] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rows: &[&str]) -> Vec<f32> {
        let cells = rows.iter().flat_map(|row| row.chars());
        cells.map(|c| if c == '#' { 4.0 } else { -4.0 }).collect()
    }

    fn shown(logits: &[f32], side: usize) -> Vec<String> {
        let row = |row: &[f32]| {
            row.iter()
                .map(|v| if *v > 0.0 { '#' } else { '.' })
                .collect()
        };
        logits.chunks(side).map(row).collect()
    }

    #[test]
    fn a_hole_of_one_cell_is_filled_and_a_larger_one_is_kept() {
        let picture = [
            "########", "#.####.#", "#####.##", "########", "########", "........", "........",
            "........",
        ];
        let mut mask = drawn(&picture);
        mend(&mut mask, 8, 1);
        let mut want = picture.map(str::to_owned);
        want[1] = "######.#".into();
        assert_eq!(
            shown(&mask, 8),
            want,
            "cells that touch at a corner are one hole of two"
        );
        mend(&mut mask, 8, 2);
        (want[1], want[2]) = ("########".into(), "########".into());
        assert_eq!(shown(&mask, 8), want);
        assert!((mask[8 + 1] - FILLED).abs() < 1e-9);
    }

    #[test]
    fn specks_go_but_an_object_that_is_all_there_is_stays() {
        let mut mask = drawn(&["#.....", "....##", "....##", "....##", "......", ".#...."]);
        mend(&mut mask, 6, 2);
        let want = ["......", "....##", "....##", "....##", "......", "......"];
        assert_eq!(shown(&mask, 6), want);
        let mut small = drawn(&["....", ".#..", "....", "...."]);
        mend(&mut small, 4, 8);
        assert_eq!(shown(&small, 4), ["....", ".#..", "....", "...."]);
    }

    #[test]
    fn without_a_limit_nothing_is_touched() {
        let mut mask = drawn(&["#.#", "###", "###"]);
        let before = mask.clone();
        mend(&mut mask, 3, 0);
        assert_eq!(mask, before);
    }
}
