//! What is remembered of each object between frames.

use std::collections::BTreeMap;

use shelfscan_inference_core::TrackId;

use super::VideoOptions;

/// A followed object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its id, never given again.
    pub id: TrackId,
    /// Probability of the detection it was born from.
    pub score: f32,
    /// Frame of its birth.
    pub born: usize,
    /// Detection frames in which no detection overlapped it enough; only grows.
    pub unmatched: u32,
    /// Detection frames in a row, to the last one, with a detection of its own.
    pub consecutive: u32,
    /// Frame in which it was confirmed.
    pub confirmed: Option<usize>,
    /// Last frame in which it was empty or hidden behind another object.
    pub last_hidden: Option<usize>,
    /// Last frame with a detection of its own, or with one that may be its own.
    pub last_seen: usize,
}

impl Object {
    pub(crate) fn new(id: TrackId, score: f32, frame: usize) -> Self {
        Self {
            id,
            score,
            born: frame,
            unmatched: 0,
            consecutive: 0,
            confirmed: None,
            last_hidden: None,
            last_seen: frame,
        }
    }

    /// True while a bad record still removes it.
    pub(crate) fn on_trial(&self, frame: usize, options: &VideoOptions) -> bool {
        frame < self.born + options.trial_frames()
    }

    /// Counts a detection frame with or without a detection of its own.
    pub(crate) fn count(&mut self, matched: bool, frame: usize, options: &VideoOptions) {
        self.consecutive = if matched { self.consecutive + 1 } else { 0 };
        if self.confirmed.is_none() && self.consecutive >= options.confirm_consecutive {
            self.confirmed = Some(frame);
        }
    }
}

/// How often pairs of objects shared a detection, for pairs whose younger one is on trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedDetections {
    /// By older and younger object.
    counts: BTreeMap<(TrackId, TrackId), u32>,
}

impl SharedDetections {
    /// Counts one detection that belongs to both.
    pub(crate) fn add(&mut self, older: &Object, younger: &Object) {
        *self.counts.entry((older.id, younger.id)).or_default() += 1;
    }

    /// Most detections that `object` shared with one object born before it.
    pub(crate) fn most(&self, object: &Object, all: &[Object]) -> u32 {
        let older = all.iter().filter(|other| other.born < object.born);
        let counts = older.filter_map(|other| self.counts.get(&(other.id, object.id)));
        counts.copied().max().unwrap_or(0)
    }

    /// Forgets pairs that no longer matter.
    pub(crate) fn retain(&mut self, matters: impl Fn(TrackId, TrackId) -> bool) {
        self.counts.retain(|(a, b), _| matters(*a, *b));
    }

    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmation_needs_detections_in_a_row_and_stays() {
        let options = VideoOptions::default();
        let mut object = Object::new(TrackId(1), 0.9, 0);
        for (frame, matched) in [true, true, false, true, true, true, false]
            .into_iter()
            .enumerate()
        {
            object.count(matched, frame, &options);
        }
        assert_eq!((object.confirmed, object.consecutive), (Some(5), 0));
    }

    #[test]
    fn only_detections_shared_with_an_older_object_count() {
        let objects = [
            Object::new(TrackId(1), 0.9, 0),
            Object::new(TrackId(2), 0.9, 0),
            Object::new(TrackId(3), 0.9, 4),
        ];
        let mut shared = SharedDetections::default();
        shared.add(&objects[0], &objects[1]);
        shared.add(&objects[0], &objects[2]);
        shared.add(&objects[1], &objects[2]);
        shared.add(&objects[1], &objects[2]);
        assert_eq!(shared.most(&objects[1], &objects), 0);
        assert_eq!(shared.most(&objects[2], &objects), 2);
        shared.retain(|a, _| a == TrackId(1));
        assert_eq!(shared.most(&objects[2], &objects), 1);
    }
}
