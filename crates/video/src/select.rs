//! The decision which frames of a source are delivered, made from index and time alone.

use crate::ReadOptions;

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Hand it out.
    Deliver,
    /// Go on to the next one.
    Skip,
    /// Neither this one nor any later one is wanted.
    Stop,
}

/// Walks through the frames of a source in presentation order and picks those that were asked for.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    options: ReadOptions,
    last_cell: Option<i64>,
    /// Key frames seen so far; stands in for the index when only they are wanted.
    keyframes: u64,
    delivered: u64,
}

impl Selector {
    pub(crate) fn new(options: &ReadOptions) -> Self {
        Self {
            options: options.clone(),
            last_cell: None,
            keyframes: 0,
            delivered: 0,
        }
    }

    /// True once `max_frames` were delivered, so that no further frame need be decoded.
    pub(crate) fn is_full(&self) -> bool {
        self.options
            .max_frames
            .is_some_and(|max| self.delivered >= max)
    }

    /// Notes that the frame just chosen could not be delivered after all.
    pub(crate) fn take_back(&mut self) {
        self.delivered = self.delivered.saturating_sub(1);
    }

    /// Decides about the frame `index` shown at `secs`. Frames come in ascending order.
    pub(crate) fn choose(&mut self, index: u64, secs: f64, is_key: bool) -> Choice {
        let options = &self.options;
        if self.is_full() || options.end_secs.is_some_and(|end| secs >= end) {
            return Choice::Stop;
        }
        let mut ordinal = index;
        if options.keyframes_only {
            if !is_key {
                return Choice::Skip;
            }
            ordinal = self.keyframes;
            self.keyframes += 1;
        }
        if options.start_secs.is_some_and(|start| secs < start) {
            return Choice::Skip;
        }
        if let Some(fps) = options.fps {
            let cell = cell(secs, fps);
            if self.last_cell.is_some_and(|last| cell <= last) {
                return Choice::Skip;
            }
            self.last_cell = Some(cell);
        } else if !ordinal.is_multiple_of(u64::from(options.every.max(1))) {
            return Choice::Skip;
        }
        if options.after_index.is_some_and(|after| index <= after) {
            return Choice::Skip;
        }
        self.delivered += 1;
        Choice::Deliver
    }
}

/// Number of the `1 / fps` long cell a time falls into. The small lift keeps a frame that lies on
/// a cell's edge, up to rounding of its time, in the cell that begins there.
pub(crate) fn cell(secs: f64, fps: f64) -> i64 {
    (secs * fps + CELL_LIFT).floor() as i64
}

/// A thousandth of a cell; far above rounding errors and far below any frame distance.
pub(crate) const CELL_LIFT: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(options: &ReadOptions, times: &[f64]) -> Vec<u64> {
        let mut selector = Selector::new(options);
        let mut picked = Vec::new();
        for (i, &secs) in times.iter().enumerate() {
            match selector.choose(i as u64, secs, i % 4 == 0) {
                Choice::Deliver => picked.push(i as u64),
                Choice::Skip => {}
                Choice::Stop => break,
            }
        }
        picked
    }

    fn tenths(count: usize) -> Vec<f64> {
        (0..count).map(|i| i as f64 / 10.0).collect()
    }

    #[test]
    fn a_stride_counts_source_frames_also_inside_a_window() {
        let options = ReadOptions {
            every: 5,
            start_secs: Some(0.7),
            end_secs: Some(2.5),
            ..Default::default()
        };
        assert_eq!(picked(&options, &tenths(40)), [10, 15, 20]);
    }

    #[test]
    fn a_rate_takes_the_first_frame_of_each_cell_of_the_clock() {
        let options = ReadOptions {
            fps: Some(2.0),
            ..Default::default()
        };
        assert_eq!(picked(&options, &tenths(14)), [0, 5, 10]);
        // A gap longer than a cell gives one frame, not two.
        assert_eq!(picked(&options, &[0.0, 0.1, 2.2, 2.3, 2.5]), [0, 2, 4]);
    }

    #[test]
    fn a_resumed_read_goes_on_where_the_unbroken_one_would() {
        let whole = ReadOptions {
            fps: Some(3.0),
            ..Default::default()
        };
        let all = picked(&whole, &tenths(50));
        for (i, &after) in all.iter().enumerate() {
            let rest = ReadOptions {
                after_index: Some(after),
                ..whole.clone()
            };
            assert_eq!(picked(&rest, &tenths(50)), all[i + 1..]);
        }
    }

    #[test]
    fn a_limit_stops_at_once_and_key_frames_are_counted_among_themselves() {
        let options = ReadOptions {
            keyframes_only: true,
            every: 2,
            max_frames: Some(2),
            ..Default::default()
        };
        assert_eq!(picked(&options, &tenths(40)), [0, 8]);
        let none = ReadOptions {
            max_frames: Some(0),
            ..Default::default()
        };
        assert_eq!(picked(&none, &tenths(3)), [] as [u64; 0]);
    }
}
