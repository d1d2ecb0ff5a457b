//! The books of one source: which tracks there are, what was seen of each, which crops to embed.
//!
//! Everything here is a function of the frames and detections that went in, never of threads or
//! the clock, so the same input gives the same tracks, facings and bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shelfscan_gallery::Answer;
use shelfscan_inference_core::{
    BoxXyxy, Detection, FrameDetections, Notice, RgbImage, TrackId, VideoFrame,
};

use crate::{
    BestCrop, DetectionRecord, Facing, FrameRecord, Identity, PipelineError, Result, ScanOptions,
    TrackSummary,
    associate::FacingId,
    crops::{CropCandidate, CropPool, better_by, quality},
    identity::{CropJob, Identify},
    ids::Ids,
    vote::vote,
};

/// After this many processed frames without a sight of it, a track's crops are embedded and its
/// pictures freed. It may come back all the same.
const IDLE_STEPS: u64 = 30;

struct TrackState {
    label: Arc<str>,
    first_frame: u64,
    last_frame: u64,
    first_secs: f64,
    last_secs: f64,
    frames: u32,
    box_sums: [f64; 4],
    score_sum: f64,
    region_hits: Vec<u32>,
    last_step: u64,
    pool: CropPool,
    best: Option<CropCandidate>,
    /// Frame, time and quality of the best crop so far, also after its picture was freed.
    best_seen: Option<(u64, f64, f32)>,
    saved_crop: Option<String>,
    answers: Vec<Answer>,
}

/// A picture to save as a track's best crop.
pub(crate) struct CropToSave {
    pub(crate) track: TrackId,
    pub(crate) image: RgbImage,
}

/// What came of one frame.
pub(crate) struct Step {
    /// The line to write.
    pub(crate) record: FrameRecord,
    /// Crops to embed.
    pub(crate) jobs: Vec<CropJob>,
    /// Pictures to save.
    pub(crate) saves: Vec<CropToSave>,
}

/// The books of one source. Frames go in one by one, in order.
pub(crate) struct Book {
    options: ScanOptions,
    ids: Ids,
    identify: Option<Arc<dyn Identify>>,
    /// Boxed, because the map's own nodes are half empty when keys only ever rise.
    tracks: BTreeMap<TrackId, Box<TrackState>>,
    /// Tracks whose pictures are still held.
    active: BTreeSet<TrackId>,
    steps: u64,
    regions_checked: bool,
}

impl Book {
    /// Books for a source. With `own_ids` the provider's ids are kept, otherwise detections are
    /// associated here.
    pub(crate) fn new(
        options: &ScanOptions,
        own_ids: bool,
        identify: Option<Arc<dyn Identify>>,
    ) -> Result<Self> {
        Ok(Self {
            ids: Ids::new(&options.associate, own_ids)?,
            options: options.clone(),
            identify,
            tracks: BTreeMap::new(),
            active: BTreeSet::new(),
            steps: 0,
            regions_checked: false,
        })
    }

    /// Says that there are no more than so many frames.
    pub(crate) fn expect_frames(&mut self, frames: u64) {
        self.ids.expect_frames(frames);
    }

    /// Takes a frame and what was found in it.
    pub(crate) fn step(&mut self, frame: &VideoFrame, found: FrameDetections) -> Result<Step> {
        self.check_regions(frame)?;
        self.steps += 1;
        let mut notices = found.notices;
        let kept = self.clean(found.detections, &mut notices);
        let usable: Vec<usize> = (0..kept.len())
            .filter(|&i| kept[i].score.is_finite() && kept[i].bbox.is_valid())
            .collect();
        let tracked: Vec<Detection> = usable.iter().map(|&i| kept[i].clone()).collect();
        let outcome = self.ids.step(frame, &tracked);
        let mut ids: Vec<Option<TrackId>> = vec![None; kept.len()];
        for (&i, id) in usable.iter().zip(&outcome.ids) {
            ids[i] = *id;
        }
        for early in &outcome.earlier {
            self.sight(
                early.track,
                &early.label,
                early.frame_index,
                early.time_secs,
                &early.bbox,
                early.score,
            );
        }
        let mut jobs = Vec::new();
        for (detection, id) in kept.iter().zip(&ids) {
            if let Some(id) = *id {
                self.sight(
                    id,
                    &detection.label,
                    frame.index,
                    frame.time.secs,
                    &detection.bbox,
                    detection.score,
                );
                jobs.extend(self.look(id, frame, detection));
            }
        }
        let (idle_jobs, saves) = self.retire(IDLE_STEPS);
        jobs.extend(idle_jobs);
        let with_masks = self.options.outputs.masks;
        let record = FrameRecord {
            frame_index: frame.index,
            time_secs: Some(frame.time.secs),
            time_estimated: frame.time.estimated,
            width: Some(frame.image.width()),
            height: Some(frame.image.height()),
            detections: kept
                .into_iter()
                .zip(ids)
                .map(|(d, track_id)| DetectionRecord {
                    label: d.label,
                    prompt: d.prompt,
                    score: d.score,
                    bbox: d.bbox.into(),
                    mask: d.mask.filter(|_| with_masks),
                    track_id,
                })
                .collect(),
            notices,
        };
        Ok(Step {
            record,
            jobs,
            saves,
        })
    }

    /// The crops and pictures still held at the end of the source.
    pub(crate) fn finish(&mut self) -> (Vec<CropJob>, Vec<CropToSave>) {
        self.retire(0)
    }

    /// Notes the answer to a crop.
    pub(crate) fn answer(&mut self, track: TrackId, answer: Answer) {
        if let Some(state) = self.tracks.get_mut(&track) {
            state.answers.push(answer);
        }
    }

    /// What a track is, by the answers so far.
    pub(crate) fn identity(&self, track: TrackId) -> Identity {
        self.tracks
            .get(&track)
            .map_or_else(Identity::not_asked, |state| vote(&state.answers))
    }

    /// Notes where a track's best crop was saved.
    pub(crate) fn saved(&mut self, track: TrackId, path: String) {
        if let Some(state) = self.tracks.get_mut(&track) {
            state.saved_crop = Some(path);
        }
    }

    /// Number of processed frames so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// All confirmed tracks and the facings they are sights of, in order of their ids.
    pub(crate) fn summarise(&mut self) -> (Vec<TrackSummary>, Vec<Facing>) {
        let facing_of = self.ids.facings(self.tracks.keys().copied());
        let tracks: Vec<TrackSummary> = self
            .tracks
            .iter()
            .map(|(&id, state)| {
                let facing = facing_of.get(&id).copied().unwrap_or(FacingId(id.0));
                state.summary(id, facing, &self.options)
            })
            .collect();
        let mut groups: BTreeMap<FacingId, Vec<&TrackSummary>> = BTreeMap::new();
        for track in &tracks {
            groups.entry(track.facing_id).or_default().push(track);
        }
        let facings = groups
            .into_iter()
            .filter_map(|(id, members)| self.facing(id, &members))
            .collect();
        (tracks, facings)
    }

    fn check_regions(&mut self, frame: &VideoFrame) -> Result<()> {
        if std::mem::replace(&mut self.regions_checked, true) {
            return Ok(());
        }
        let (w, h) = (frame.image.width(), frame.image.height());
        for region in &self.options.regions {
            if !region.bbox.clamped(w, h).is_valid() {
                return Err(PipelineError::Usage(format!(
                    "region `{}` lies outside the {w}x{h} frame of {}; give it in source pixels of the upright picture",
                    region.name, frame.source
                )));
            }
        }
        Ok(())
    }

    /// Drops what was not asked for. Broken values stay in the record, as a witness.
    fn clean(&self, mut found: Vec<Detection>, notices: &mut Vec<Notice>) -> Vec<Detection> {
        let min = self.options.min_score;
        found.retain(|d| {
            let broken = !d.score.is_finite() || !d.bbox.is_valid();
            broken || (d.score >= min && self.region_of(&d.bbox).is_ok())
        });
        let broken = found
            .iter()
            .filter(|d| !d.score.is_finite() || !d.bbox.is_valid())
            .count();
        if broken > 0 {
            notices.push(Notice::new(
                "value_not_finite",
                format!("{broken} detections have a score or box that is not a number; they are not tracked"),
            ));
        }
        let cap = self.options.max_detections as usize;
        if found.len() > cap {
            notices.push(Notice::new(
                "detection_cap_hit",
                format!(
                    "{} detections in one frame, the best {cap} were kept",
                    found.len()
                ),
            ));
            found.truncate(cap);
        }
        found
    }

    /// The region a box lies in, by its centre: `Ok(None)` when there are no regions, an error when
    /// it lies outside all of them.
    fn region_of(&self, bbox: &BoxXyxy) -> Result<Option<usize>, ()> {
        if self.options.regions.is_empty() {
            return Ok(None);
        }
        let (x, y) = bbox.center();
        self.options
            .regions
            .iter()
            .position(|r| x >= r.bbox.x0 && x < r.bbox.x1 && y >= r.bbox.y0 && y < r.bbox.y1)
            .map(Some)
            .ok_or(())
    }

    fn sight(
        &mut self,
        id: TrackId,
        label: &Arc<str>,
        frame: u64,
        secs: f64,
        bbox: &BoxXyxy,
        score: f32,
    ) {
        let region = self.region_of(bbox).ok().flatten();
        let regions = self.options.regions.len();
        let limit = self.options.identity.crops_per_track;
        let step = self.steps;
        let state = self.tracks.entry(id).or_insert_with(|| {
            Box::new(TrackState {
                label: label.clone(),
                first_frame: frame,
                last_frame: frame,
                first_secs: secs,
                last_secs: secs,
                frames: 0,
                box_sums: [0.0; 4],
                score_sum: 0.0,
                region_hits: vec![0; regions],
                last_step: step,
                pool: CropPool::new(limit),
                best: None,
                best_seen: None,
                saved_crop: None,
                answers: Vec::new(),
            })
        });
        state.last_frame = frame;
        state.last_secs = secs;
        state.frames += 1;
        state.last_step = step;
        state.score_sum += f64::from(score);
        for (sum, value) in state.box_sums.iter_mut().zip(<[f32; 4]>::from(*bbox)) {
            *sum += f64::from(value);
        }
        if let Some(hits) = region.and_then(|r| state.region_hits.get_mut(r)) {
            *hits += 1;
        }
        self.active.insert(id);
    }

    /// Keeps a crop of this sight if it is one of the best, and returns the one that is due.
    fn look(&mut self, id: TrackId, frame: &VideoFrame, detection: &Detection) -> Option<CropJob> {
        let min_side = self.options.identity.min_side_px as f32;
        let state = self.tracks.get_mut(&id)?;
        let bbox = &detection.bbox;
        if bbox.width().min(bbox.height()) >= min_side {
            let quality = quality(&frame.image, bbox);
            let best = state.best_seen.map_or(0.0, |(_, _, q)| q);
            let by = better_by(&frame.image, bbox);
            let is_best = quality > best * by;
            if is_best || (self.identify.is_some() && state.pool.wants(quality / by)) {
                let image = match &self.identify {
                    Some(identify) => identify.crop(&frame.image, bbox, detection.mask.as_ref()),
                    None => frame.image.crop(bbox),
                };
                if let Some(image) = image {
                    let crop = CropCandidate {
                        frame_index: frame.index,
                        quality,
                        image,
                    };
                    if is_best {
                        state.best_seen = Some((frame.index, frame.time.secs, quality));
                        state.best = Some(crop.clone());
                    }
                    if self.identify.is_some() {
                        state.pool.offer(crop);
                    }
                }
            }
        }
        let seen = state.frames;
        let crop = state.pool.due(seen)?;
        Some(CropJob {
            track: id,
            frame_index: crop.frame_index,
            image: crop.image,
        })
    }

    /// Empties the pools of tracks that were not seen for `idle` steps.
    fn retire(&mut self, idle: u64) -> (Vec<CropJob>, Vec<CropToSave>) {
        let (mut jobs, mut saves) = (Vec::new(), Vec::new());
        let steps = self.steps;
        let tracks = &mut self.tracks;
        self.active.retain(|&track| {
            let Some(state) = tracks.get_mut(&track) else {
                return false;
            };
            if steps - state.last_step < idle {
                return true;
            }
            jobs.extend(state.pool.rest().into_iter().map(|crop| CropJob {
                track,
                frame_index: crop.frame_index,
                image: crop.image,
            }));
            if let Some(best) = state.best.take() {
                saves.push(CropToSave {
                    track,
                    image: best.image,
                });
            }
            false
        });
        (jobs, saves)
    }

    fn facing(&self, id: FacingId, members: &[&TrackSummary]) -> Option<Facing> {
        let first = members.iter().min_by_key(|t| (t.first_frame, t.track_id))?;
        let last = members.iter().max_by_key(|t| (t.last_frame, t.track_id))?;
        // The track that saw it longest speaks for its place and its picture.
        let main = members
            .iter()
            .max_by(|a, b| (a.frames, b.track_id).cmp(&(b.frames, a.track_id)))?;
        let answers: Vec<Answer> = members
            .iter()
            .filter_map(|t| self.tracks.get(&t.track_id))
            .flat_map(|state| state.answers.iter().cloned())
            .collect();
        Some(Facing {
            facing_id: id,
            label: main.label.clone(),
            identity: vote(&answers),
            region: main.region.clone(),
            first_frame: first.first_frame,
            last_frame: last.last_frame,
            first_secs: first.first_secs,
            last_secs: last.last_secs,
            frames: members.iter().map(|t| t.frames).sum(),
            mean_box: main.mean_box,
            tracks: members.iter().map(|t| t.track_id).collect(),
            best_crop: main.best_crop.clone(),
        })
    }
}

impl TrackState {
    fn summary(
        &self,
        track_id: TrackId,
        facing_id: FacingId,
        options: &ScanOptions,
    ) -> TrackSummary {
        let n = f64::from(self.frames.max(1));
        let [x0, y0, x1, y1] = self.box_sums.map(|sum| (sum / n) as f32);
        let region = self
            .region_hits
            .iter()
            .enumerate()
            .max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0)))
            .filter(|(_, hits)| **hits > 0)
            .and_then(|(i, _)| options.regions.get(i))
            .map(|r| r.name.as_str().into());
        TrackSummary {
            track_id,
            facing_id,
            label: self.label.clone(),
            identity: vote(&self.answers),
            first_frame: self.first_frame,
            last_frame: self.last_frame,
            first_secs: self.first_secs,
            last_secs: self.last_secs,
            frames: self.frames,
            mean_box: BoxXyxy::new(x0, y0, x1, y1),
            mean_score: (self.score_sum / n) as f32,
            region,
            best_crop: self.best_seen.map(|(frame_index, time_secs, _)| BestCrop {
                frame_index,
                time_secs,
                path: self.saved_crop.clone(),
            }),
        }
    }
}
