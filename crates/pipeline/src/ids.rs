//! Track ids and facings, whoever gives the ids.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use shelfscan_inference_core::{BoxXyxy, Detection, TrackId, VideoFrame};

use crate::{
    Result,
    associate::{
        AssociateOptions, Associator, CameraTracker, FacingId, FacingMerger, SeenTrack, TrackEvent,
    },
};

/// A detection of an earlier frame that belongs to a track confirmed just now.
pub(crate) struct EarlierSight {
    pub(crate) track: TrackId,
    pub(crate) label: Arc<str>,
    pub(crate) frame_index: u64,
    pub(crate) time_secs: f64,
    pub(crate) bbox: BoxXyxy,
    pub(crate) score: f32,
}

/// Ids of one frame.
pub(crate) struct FrameIds {
    /// For each detection its track; `None` while unconfirmed.
    pub(crate) ids: Vec<Option<TrackId>>,
    /// Sights the tracks confirmed in this frame had before, oldest first.
    pub(crate) earlier: Vec<EarlierSight>,
}

enum Source {
    /// Detections are associated here.
    Association(Box<Associator>),
    /// The provider gives the ids; the camera is followed for the facings alone.
    Provider(Option<Box<CameraTracker>>),
}

/// Gives every detection its track, and every track its facing.
pub(crate) struct Ids {
    source: Source,
    merger: FacingMerger,
    /// Times of the frames an unconfirmed track can reach back to.
    times: VecDeque<(u64, f64)>,
    reach: usize,
}

impl Ids {
    pub(crate) fn new(options: &AssociateOptions, own_ids: bool) -> Result<Self> {
        let source = if own_ids {
            options.validate()?;
            let camera = options
                .motion_compensation
                .then(|| Box::new(CameraTracker::new(options.camera)));
            Source::Provider(camera)
        } else {
            Source::Association(Box::new(Associator::new(options.clone())?))
        };
        Ok(Self {
            source,
            merger: FacingMerger::new(options.facings.clone()),
            times: VecDeque::new(),
            reach: (options.confirm_hits as usize)
                .saturating_mul(options.tentative_gap_frames as usize + 1)
                .clamp(1, 10_000),
        })
    }

    /// Says how many frames there are at most; a provider's own ids do not depend on it.
    pub(crate) fn expect_frames(&mut self, frames: u64) {
        if let Source::Association(associator) = &mut self.source {
            associator.expect_frames(frames);
        }
    }

    pub(crate) fn step(&mut self, frame: &VideoFrame, detections: &[Detection]) -> FrameIds {
        let mut earlier = Vec::new();
        let (ids, view) = match &mut self.source {
            Source::Association(associator) => {
                let ids = associator.step(frame, detections);
                for event in associator.events() {
                    if let TrackEvent::Confirmed {
                        track,
                        label,
                        earlier: hits,
                    } = event
                    {
                        earlier.extend(hits.iter().map(|hit| {
                            EarlierSight {
                                track: *track,
                                label: label.clone(),
                                frame_index: hit.frame_index,
                                time_secs: self
                                    .times
                                    .iter()
                                    .rev()
                                    .find(|(index, _)| *index == hit.frame_index)
                                    .map_or(frame.time.secs, |(_, secs)| *secs),
                                bbox: hit.bbox,
                                score: hit.score,
                            }
                        }));
                    }
                }
                (ids, Some(associator.camera_shift()))
            }
            Source::Provider(camera) => {
                let ids = detections.iter().map(|d| d.track_id).collect();
                (ids, camera.as_mut().map(|c| c.observe(&frame.image)))
            }
        };
        self.times.push_back((frame.index, frame.time.secs));
        while self.times.len() > self.reach {
            self.times.pop_front();
        }
        if let Some(view) = view {
            let seen: Vec<SeenTrack> = detections
                .iter()
                .zip(&ids)
                .filter_map(|(d, id): (&Detection, &Option<TrackId>)| {
                    Some(SeenTrack {
                        track: (*id)?,
                        label: d.label.clone(),
                        bbox: d.bbox,
                    })
                })
                .collect();
            let size_px = (frame.image.width(), frame.image.height());
            self.merger.observe(&view, size_px, &seen);
        }
        FrameIds { ids, earlier }
    }

    /// The facing of every track, by all that was seen so far.
    pub(crate) fn facings(
        &mut self,
        tracks: impl Iterator<Item = TrackId>,
    ) -> BTreeMap<TrackId, FacingId> {
        self.merger.settle();
        tracks
            .map(|track| (track, self.merger.facing_of(track)))
            .collect()
    }
}
