//! Which of two objects that show the same pixels is the hidden one.

use super::{VideoOptions, footprint::Footprint};
use crate::suppress::Overlap;

/// What is known of an object before its frame is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hidden {
    /// Always in view so far.
    Never,
    /// Last in this frame.
    Last(usize),
    /// It is about to be removed and gives way to all.
    Leaving,
}

impl Hidden {
    /// A number that grows with how recently it was hidden.
    fn recency(self) -> i64 {
        match self {
            Self::Never => -1,
            Self::Last(frame) => frame as i64,
            Self::Leaving => i64::MAX,
        }
    }
}

/// Which masks are to be blanked: of two that overlap by enough, the one hidden more recently.
pub(crate) fn hidden_behind_others(
    masks: &[Footprint],
    history: &[Hidden],
    options: &VideoOptions,
) -> Vec<bool> {
    let may_hide = |i: usize| options.unoccluded_may_hide || history[i] != Hidden::Never;
    let mut hidden = vec![false; masks.len()];
    for i in 0..masks.len() {
        for j in i + 1..masks.len() {
            let (a, b) = (history[i].recency(), history[j].recency());
            // The comparison is the cheap test, so it comes before the masks.
            let loser = match a.cmp(&b) {
                std::cmp::Ordering::Greater if may_hide(j) => i,
                std::cmp::Ordering::Less if may_hide(i) => j,
                _ => continue,
            };
            if !hidden[loser] {
                let overlap = masks[i].overlap(&masks[j], Overlap::Iou);
                hidden[loser] = overlap >= options.occlusion_overlap;
            }
        }
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(from: usize, to: usize) -> Footprint {
        let logits: Vec<f32> = (0..64)
            .map(|i| {
                if (from..to).contains(&(i % 8)) {
                    1.0
                } else {
                    -1.0
                }
            })
            .collect();
        Footprint::new(&logits, 8)
    }

    #[test]
    fn the_one_hidden_last_gives_way() {
        let masks = [square(0, 4), square(0, 4), square(4, 8)];
        let judge = |history: [Hidden; 3], options: &VideoOptions| {
            hidden_behind_others(&masks, &history, options)
        };
        let options = VideoOptions::default();
        let (never, last) = (Hidden::Never, Hidden::Last);
        assert_eq!(
            judge([last(3), last(7), never], &options),
            [false, true, false]
        );
        assert_eq!(
            judge([last(7), last(3), never], &options),
            [true, false, false]
        );
        assert_eq!(judge([never, last(3), never], &options), [false; 3]);
        assert_eq!(judge([last(3), last(3), never], &options), [false; 3]);
        let leaving = judge([last(9), Hidden::Leaving, never], &options);
        assert_eq!(leaving, [false, true, false]);
        let may = VideoOptions {
            unoccluded_may_hide: true,
            ..options
        };
        assert_eq!(judge([never, last(3), never], &may), [false, true, false]);
    }

    #[test]
    fn masks_that_share_little_leave_each_other_alone() {
        let masks = [square(0, 4), square(1, 5)];
        let history = [Hidden::Last(1), Hidden::Last(2)];
        let hidden = hidden_behind_others(&masks, &history, &VideoOptions::default());
        assert_eq!(hidden, [false, false]);
    }
}
