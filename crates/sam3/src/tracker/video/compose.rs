//! Frames held back until it is known which of their objects are shown.

use std::collections::{BTreeMap, VecDeque};

use shelfscan_inference_core::{BoxXyxy, Mask, TrackId};

use super::{PlannedFrame, ShownObject, VideoOptions, separate::separate};
use crate::paint::paint;

/// An object of a frame in source pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedObject {
    /// The object.
    pub id: TrackId,
    /// Probability of the detection it was born from.
    pub score: f32,
    /// Where it is, also where others cover it.
    pub bbox: BoxXyxy,
    /// The pixels no other object of its prompt has a better claim to; may be empty.
    pub mask: Mask,
}

struct HeldFrame {
    frame: usize,
    objects: Vec<(ShownObject, BoxXyxy, Mask)>,
}

/// Holds the frames of one prompt back and gives them out without objects that failed their trial
/// or were never confirmed.
#[derive(Default)]
pub struct Composer {
    look_ahead: usize,
    held: VecDeque<HeldFrame>,
    /// Frame in which each object was confirmed, for those that may still appear.
    confirmed: BTreeMap<TrackId, usize>,
    /// Objects that went, with their last frame, in that order.
    gone: VecDeque<(usize, TrackId)>,
}

impl Composer {
    /// Nothing is held yet.
    pub fn new(options: &VideoOptions) -> Self {
        Self {
            look_ahead: options.look_ahead_frames(),
            ..Self::default()
        }
    }

    /// Draws a frame over `width` x `height` source pixels and holds it. The frame held last is
    /// replaced when it is the same one.
    pub fn push(&mut self, frame: usize, planned: &PlannedFrame, (width, height): (u32, u32)) {
        if self.held.back().is_some_and(|last| last.frame == frame) {
            self.held.pop_back();
        }
        let report = &planned.report;
        for id in &report.confirmed {
            self.confirmed.insert(*id, frame);
        }
        for id in &report.rejected {
            self.confirmed.remove(id);
        }
        self.gone
            .extend(report.retired.iter().map(|id| (frame, *id)));
        let masks = paint(&planned.masks.values, planned.masks.side, width, height);
        let objects = planned.objects.iter().zip(masks);
        let objects = objects.filter_map(|(object, mask)| {
            let bbox = mask.bounding_box()?;
            Some((*object, bbox, mask))
        });
        self.held.push_back(HeldFrame {
            frame,
            objects: objects.collect(),
        });
    }

    /// Shows objects in the frames that are held, whatever their record.
    pub(crate) fn confirm(&mut self, ids: impl Iterator<Item = TrackId>) {
        for id in ids {
            self.confirmed.entry(id).or_insert(0);
        }
    }

    /// The frame that is held longest.
    pub fn oldest(&self) -> Option<usize> {
        self.held.front().map(|held| held.frame)
    }

    /// Gives out the frame that is held longest, ascending by id.
    pub fn pop(&mut self) -> Option<Vec<ComposedObject>> {
        let held = self.held.pop_front()?;
        let shown = |id: &TrackId| {
            let confirmed = self.confirmed.get(id);
            confirmed.is_some_and(|at| *at <= held.frame + self.look_ahead)
        };
        let objects: Vec<_> = held
            .objects
            .into_iter()
            .filter(|(object, ..)| shown(&object.id))
            .collect();
        let mut order: Vec<usize> = (0..objects.len()).collect();
        order.sort_by(|a, b| {
            let presence = |i: &usize| objects[*i].0.presence;
            presence(b).total_cmp(&presence(a)).then(a.cmp(b))
        });
        let boxes: Vec<BoxXyxy> = objects.iter().map(|(_, bbox, _)| *bbox).collect();
        let (shown, mut masks): (Vec<ShownObject>, Vec<Mask>) = objects
            .into_iter()
            .map(|(object, _, mask)| (object, mask))
            .unzip();
        separate(&mut masks, &boxes, &order);
        while let Some((_, id)) = self.gone.front().filter(|(at, _)| *at <= held.frame) {
            self.confirmed.remove(id);
            self.gone.pop_front();
        }
        let parts = shown.into_iter().zip(boxes).zip(masks);
        let composed = parts.map(|((object, bbox), mask)| ComposedObject {
            id: object.id,
            score: object.score,
            bbox,
            mask,
        });
        Some(composed.collect())
    }

    /// Entries of every table that is kept between frames.
    pub fn state_entries(&self) -> usize {
        let held: usize = self.held.iter().map(|held| 1 + held.objects.len()).sum();
        held + self.confirmed.len() + self.gone.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MaskLogits, tracker::video::FrameReport};

    const SIDE: usize = 16;

    /// Objects with squares of 8 x 8 cells that start at a cell of the diagonal.
    fn planned(objects: &[(u64, usize, f32)], report: FrameReport) -> PlannedFrame {
        let mut masks = MaskLogits {
            side: SIDE,
            values: Vec::new(),
        };
        let mut shown = Vec::new();
        for (id, from, presence) in objects {
            let inside = |at: usize| (*from..from + 8).contains(&at);
            masks.values.extend((0..SIDE * SIDE).map(|i| {
                if inside(i % SIDE) && inside(i / SIDE) {
                    6.0
                } else {
                    -6.0
                }
            }));
            shown.push(ShownObject {
                id: TrackId(*id),
                score: 0.9,
                presence: *presence,
            });
        }
        PlannedFrame {
            report,
            objects: shown,
            masks,
        }
    }

    fn ids(frame: Option<Vec<ComposedObject>>) -> Vec<u64> {
        frame.unwrap().iter().map(|object| object.id.0).collect()
    }

    #[test]
    fn an_object_shows_up_from_its_birth_once_it_is_confirmed() {
        let mut composer = Composer::new(&VideoOptions::default());
        for frame in 0..5 {
            let mut report = FrameReport::default();
            if frame == 3 {
                report.confirmed = vec![TrackId(1)];
            }
            composer.push(frame, &planned(&[(1, 0, 0.9)], report), (32, 32));
        }
        let shown: Vec<usize> = (0..5).map(|_| ids(composer.pop()).len()).collect();
        assert_eq!(
            shown,
            [0, 1, 1, 1, 1],
            "two frames ahead of its confirmation"
        );
    }

    #[test]
    fn a_rejected_object_is_taken_out_of_frames_that_are_still_held() {
        let mut composer = Composer::new(&VideoOptions::default());
        for frame in 0..4 {
            let report = match frame {
                0 => FrameReport {
                    confirmed: vec![TrackId(1), TrackId(2)],
                    ..FrameReport::default()
                },
                3 => FrameReport {
                    rejected: vec![TrackId(2)],
                    ..FrameReport::default()
                },
                _ => FrameReport::default(),
            };
            composer.push(
                frame,
                &planned(&[(1, 0, 0.9), (2, 8, 0.9)], report),
                (32, 32),
            );
        }
        for _ in 0..4 {
            assert_eq!(ids(composer.pop()), [1]);
        }
        assert_eq!(composer.state_entries(), 1);
    }

    #[test]
    fn a_retired_object_stays_in_the_frames_it_was_in() {
        let mut composer = Composer::new(&VideoOptions::default());
        let confirmed = FrameReport {
            confirmed: vec![TrackId(1)],
            ..FrameReport::default()
        };
        let retired = FrameReport {
            retired: vec![TrackId(1)],
            ..FrameReport::default()
        };
        composer.push(0, &planned(&[(1, 0, 0.9)], confirmed), (32, 32));
        composer.push(1, &planned(&[(1, 0, 0.9)], retired), (32, 32));
        assert_eq!(ids(composer.pop()), [1]);
        assert_eq!(ids(composer.pop()), [1]);
        assert_eq!(composer.state_entries(), 0);
    }

    #[test]
    fn shared_pixels_go_to_the_likelier_object_and_boxes_stay_whole() {
        let mut composer = Composer::new(&VideoOptions::default());
        let report = FrameReport {
            confirmed: vec![TrackId(1), TrackId(2)],
            ..FrameReport::default()
        };
        composer.push(0, &planned(&[(1, 0, 0.5), (2, 4, 0.8)], report), (16, 16));
        let frame = composer.pop().unwrap();
        assert_eq!(frame[0].bbox, BoxXyxy::new(0.0, 0.0, 8.0, 8.0));
        assert_eq!(frame[0].mask.area(), 64 - 16);
        assert_eq!(frame[1].mask.area(), 64);
        assert_eq!(frame[0].mask.intersection_area(&frame[1].mask), 0);
    }
}
