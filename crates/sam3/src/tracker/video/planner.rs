//! One frame of one prompt: what the detector saw meets what memory carried on.
//!
//! Follows the description of `_det_track_one_frame` and what it calls in
//! `sam3/model/sam3_video_base.py`, with the multiplex tracker of SAM 3.1 behind a trait.

use rayon::prelude::*;
use shelfscan_inference_core::TrackId;

use super::{
    VideoOptions,
    associate::Association,
    candidates::Candidates,
    footprint::Footprint,
    mend::mend,
    objects::{Object, SharedDetections},
    occlusion::{Hidden, hidden_behind_others},
};
use crate::{
    Error, MaskLogits, Result,
    tracker::{MaskPropagator, TrackedMasks},
};

/// What the mask of a hidden object is blanked with.
const BLANK_LOGIT: f32 = -10.0;

/// Gives out track ids, one set for all prompts of a video; the first is 1.
#[derive(Clone, Debug, Default)]
pub struct TrackIds {
    given: u64,
}

impl TrackIds {
    fn next(&mut self) -> TrackId {
        self.given += 1;
        TrackId(self.given)
    }
}

/// What was decided in a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameReport {
    /// Objects that were carried on, ascending.
    pub carried: Vec<TrackId>,
    /// Candidate and object for each detection that belongs to an object beyond doubt.
    pub matches: Vec<(usize, TrackId)>,
    /// Objects in view without a detection.
    pub unmatched: Vec<TrackId>,
    /// Candidate and id for each newborn.
    pub births: Vec<(usize, TrackId)>,
    /// Newcomers that were left out, because there were too many objects.
    pub left_out: usize,
    /// Objects whose mask was brought in line with a detection.
    pub reconditioned: Vec<TrackId>,
    /// Carried objects whose mask was changed, by reconditioning or since they are hidden.
    pub changed: Vec<TrackId>,
    /// Objects that were confirmed.
    pub confirmed: Vec<TrackId>,
    /// Objects on trial that were found to be none.
    pub rejected: Vec<TrackId>,
    /// Objects that were not seen for too long.
    pub retired: Vec<TrackId>,
}

/// An object as it is shown in a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShownObject {
    /// The object.
    pub id: TrackId,
    /// Probability of the detection it was born from.
    pub score: f32,
    /// Probability of it being in this frame, which decides who gets a pixel.
    pub presence: f32,
}

/// Everything about one frame.
#[derive(Debug)]
pub struct PlannedFrame {
    /// What was decided.
    pub report: FrameReport,
    /// Every object of the frame but the rejected ones, ascending.
    pub objects: Vec<ShownObject>,
    /// Their masks, `[objects, side * side]`.
    pub masks: MaskLogits,
}

/// The objects of one prompt through a video.
#[derive(Clone, Debug)]
pub struct Planner {
    options: VideoOptions,
    /// Ascending by id.
    objects: Vec<Object>,
    shared: SharedDetections,
    /// Last detection frame, and the one before it.
    detected: Option<usize>,
    detected_before: Option<usize>,
}

impl Planner {
    /// Nothing is followed yet.
    ///
    /// # Errors
    /// An option that cannot be met.
    pub fn new(options: &VideoOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            options: options.clone(),
            objects: Vec::new(),
            shared: SharedDetections::default(),
            detected: None,
            detected_before: None,
        })
    }

    /// The objects that are followed, ascending by id.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Entries of every table that is kept between frames.
    pub fn state_entries(&self) -> usize {
        self.objects.len() + self.shared.len()
    }

    /// Takes a frame through all steps. `found` is `None` in a frame without detection. A frame may
    /// be given twice in a row, as the first one is.
    ///
    /// # Errors
    /// The tracker failed, or answered for other objects.
    pub fn step<P: MaskPropagator + ?Sized>(
        &mut self,
        frame: usize,
        found: Option<&Candidates<'_>>,
        tracker: &mut P,
        ids: &mut TrackIds,
    ) -> Result<PlannedFrame> {
        let mut tracked = self.carry_on(frame, tracker)?;
        let side = tracked.masks.side;
        if let Some(found) = found
            && found.side() != side
        {
            return Err(Error::InvalidInput(format!(
                "detections come in masks of {} cells a side, the tracker's have {side}",
                found.side()
            )));
        }
        self.mend_all(&mut tracked.masks);
        let mut masks: Vec<Footprint> = (0..tracked.ids.len())
            .map(|t| Footprint::new(tracked.masks.mask(t), side))
            .collect();
        let mut report = FrameReport {
            carried: tracked.ids.clone(),
            ..FrameReport::default()
        };
        let mut births = Vec::new();
        let mut leaving = vec![false; masks.len()];
        if let Some(found) = found {
            self.detection_frame(frame);
            let links = Association::new(found, &masks, &self.options);
            births = self.births(found, &links, &mut report);
            self.judge(frame, &links, found, &masks, &mut report, &mut leaving);
            let due = self.reconditioning_is_due(frame);
            let changes = if due {
                self.reconditions(found, &links, &births, &tracked.scores)
            } else {
                Vec::new()
            };
            if !changes.is_empty() {
                report.reconditioned = changes.iter().map(|c| self.objects[c.0].id).collect();
                tracker.recondition(
                    frame,
                    &report.reconditioned,
                    &found.masks(changes.iter().map(|(_, d)| *d)),
                )?;
                self.replace_masks(found, &changes, &mut tracked, &mut masks, &mut report);
            }
            self.confirm(frame, &links, found, &mut report);
        }
        self.hide(frame, &mut tracked, &masks, &leaving, &mut report);
        report.changed.sort_unstable();
        report.changed.dedup();
        self.retire(frame, found.is_some(), &leaving, &mut report);
        if !tracked.ids.is_empty() {
            tracker.remember(frame, &tracked, self.options.area_shrink)?;
        }

        let mut objects = Vec::with_capacity(masks.len() + births.len());
        for (t, object) in self.objects.iter().enumerate() {
            if !leaving[t] {
                objects.push(ShownObject {
                    id: object.id,
                    score: object.score,
                    presence: sigmoid(tracked.scores[t]),
                });
            }
        }
        let mut shown = tracked.masks;
        drop_rows(&mut shown, &leaving);
        if let Some(found) = found
            && !births.is_empty()
        {
            let mut newborn = found.masks(births.iter().copied());
            let mut names = Vec::with_capacity(births.len());
            for row in births {
                let (id, score) = (ids.next(), found.rows[row].score);
                let mut object = Object::new(id, score, frame);
                object.count(true, frame, &self.options);
                if object.confirmed.is_some() {
                    report.confirmed.push(id);
                }
                objects.push(ShownObject {
                    id,
                    score,
                    presence: score,
                });
                self.objects.push(object);
                report.births.push((row, id));
                names.push(id);
            }
            tracker.add(frame, &names, &newborn)?;
            self.mend_all(&mut newborn);
            shown.values.extend_from_slice(&newborn.values);
        }
        self.forget(frame, tracker, &report)?;
        Ok(PlannedFrame {
            report,
            objects,
            masks: shown,
        })
    }

    fn carry_on<P: MaskPropagator + ?Sized>(
        &self,
        frame: usize,
        tracker: &mut P,
    ) -> Result<TrackedMasks> {
        let side = tracker.mask_side();
        if self.objects.is_empty() {
            return Ok(TrackedMasks {
                ids: Vec::new(),
                masks: MaskLogits {
                    side,
                    values: Vec::new(),
                },
                scores: Vec::new(),
            });
        }
        let tracked = tracker.propagate(frame)?;
        let n = self.objects.len();
        let ours = self.objects.iter().map(|object| object.id);
        let fits = ours.eq(tracked.ids.iter().copied())
            && tracked.scores.len() == n
            && tracked.masks.values.len() == n * tracked.masks.side * tracked.masks.side;
        if fits {
            Ok(tracked)
        } else {
            Err(Error::InvalidInput(format!(
                "the tracker follows {} objects where {n} were given to it; hand every frame to it once, in order",
                tracked.ids.len()
            )))
        }
    }

    /// Carried masks are mended before anything is decided by them; newborns go into memory as the
    /// detector drew them.
    fn mend_all(&self, masks: &mut MaskLogits) {
        let (side, most) = (masks.side, self.options.mend_cells);
        if most > 0 {
            let each = masks.values.par_chunks_exact_mut((side * side).max(1));
            each.for_each(|mask| mend(mask, side, most));
        }
    }

    fn detection_frame(&mut self, frame: usize) {
        if self.detected != Some(frame) {
            self.detected_before = self.detected.replace(frame);
        }
    }

    /// True in the first detection frame of each period.
    fn reconditioning_is_due(&self, frame: usize) -> bool {
        let every = self.options.recondition_every;
        if every == 0 {
            return false;
        }
        match self.detected_before {
            Some(before) => frame / every > before / every,
            None => frame.is_multiple_of(every),
        }
    }

    /// Candidates that objects are born from, in their order.
    fn births(
        &self,
        found: &Candidates<'_>,
        links: &Association,
        report: &mut FrameReport,
    ) -> Vec<usize> {
        let options = &self.options;
        let mut rows: Vec<usize> = (0..found.len())
            .filter(|d| {
                let row = &found.rows[*d];
                // With nothing followed yet the reference takes border cases as well.
                let taken = row.kept || self.objects.is_empty();
                taken
                    && row.score >= options.birth_score
                    && links.is_free(*d, options.match_overlap)
            })
            .collect();
        let room = options.max_objects.saturating_sub(self.objects.len());
        if rows.len() > room {
            report.left_out = rows.len() - room;
            rows.sort_by(|a, b| {
                let score = |d: &usize| found.rows[*d].score;
                score(b).total_cmp(&score(a)).then(a.cmp(b))
            });
            rows.truncate(room);
            rows.sort_unstable();
        }
        rows
    }

    /// Keeps the books of objects on trial and says which of them go.
    fn judge(
        &mut self,
        frame: usize,
        links: &Association,
        found: &Candidates<'_>,
        masks: &[Footprint],
        report: &mut FrameReport,
        leaving: &mut [bool],
    ) {
        let options = &self.options;
        for d in 0..found.len() {
            let partners: Vec<usize> = links.partners(d, options.match_overlap).collect();
            for (k, &j) in partners.iter().enumerate() {
                let younger = &self.objects[j];
                report.matches.push((d, younger.id));
                if younger.on_trial(frame, options) {
                    for &i in &partners[..k] {
                        self.shared.add(&self.objects[i], younger);
                    }
                }
            }
        }
        for (t, object) in self.objects.iter_mut().enumerate() {
            let seen = links.is_seen(t, options.track_overlap);
            if seen {
                object.last_seen = frame;
            } else if !masks[t].is_empty() {
                object.unmatched += 1;
                report.unmatched.push(object.id);
            }
        }
        for (t, object) in self.objects.iter().enumerate() {
            let bad = || {
                object.unmatched >= options.trial_unmatched()
                    || self.shared.most(object, &self.objects) >= options.trial_duplicates()
            };
            if object.on_trial(frame, options) && bad() {
                leaving[t] = true;
                report.rejected.push(object.id);
            }
        }
    }

    /// Object and candidate of every mask that is to be replaced, ascending.
    fn reconditions(
        &self,
        found: &Candidates<'_>,
        links: &Association,
        births: &[usize],
        scores: &[f32],
    ) -> Vec<(usize, usize)> {
        let options = &self.options;
        let mut chosen: Vec<Option<usize>> = vec![None; self.objects.len()];
        for d in 0..found.len() {
            let row = &found.rows[d];
            if !row.kept || row.score < options.high_confidence || births.contains(&d) {
                continue;
            }
            if let Some((t, overlap)) = links.best(d)
                && overlap >= options.recondition_overlap
                && sigmoid(scores[t]) > options.high_confidence
            {
                chosen[t] = Some(d);
            }
        }
        let all = chosen.into_iter().enumerate();
        all.filter_map(|(t, d)| Some((t, d?))).collect()
    }

    /// Brings the masks of objects in line with their detections: where both agree on a pixel the
    /// object's own logit stays.
    fn replace_masks(
        &self,
        found: &Candidates<'_>,
        changes: &[(usize, usize)],
        tracked: &mut TrackedMasks,
        masks: &mut [Footprint],
        report: &mut FrameReport,
    ) {
        let side = tracked.masks.side;
        let cells = side * side;
        for (t, d) in changes {
            let own = tracked.masks.values.get_mut(t * cells..(t + 1) * cells);
            let own = own.unwrap_or_default();
            let mut changed = false;
            for (old, new) in own.iter_mut().zip(found.mask(*d)) {
                if (*old > 0.0) != (*new > 0.0) {
                    *old = *new;
                    changed = true;
                }
            }
            if changed {
                mend(own, side, self.options.mend_cells);
                masks[*t] = Footprint::new(own, side);
                report.changed.push(self.objects[*t].id);
            }
        }
    }

    fn confirm(
        &mut self,
        frame: usize,
        links: &Association,
        found: &Candidates<'_>,
        report: &mut FrameReport,
    ) {
        let mut matched = vec![false; self.objects.len()];
        for d in 0..found.len() {
            for t in links.partners(d, self.options.match_overlap) {
                matched[t] = true;
            }
        }
        for (object, matched) in self.objects.iter_mut().zip(matched) {
            let before = object.confirmed;
            object.count(matched, frame, &self.options);
            if matched {
                object.last_seen = frame;
            }
            if before != object.confirmed {
                report.confirmed.push(object.id);
            }
        }
    }

    /// Blanks masks that lie behind others and notes who was not in view.
    fn hide(
        &mut self,
        frame: usize,
        tracked: &mut TrackedMasks,
        masks: &[Footprint],
        leaving: &[bool],
        report: &mut FrameReport,
    ) {
        let history: Vec<Hidden> = self
            .objects
            .iter()
            .zip(leaving)
            .map(|(object, leaving)| match (leaving, object.last_hidden) {
                (true, _) => Hidden::Leaving,
                (false, Some(last)) => Hidden::Last(last),
                (false, None) => Hidden::Never,
            })
            .collect();
        let hidden = hidden_behind_others(masks, &history, &self.options);
        let cells = tracked.masks.side * tracked.masks.side;
        let rows = tracked.masks.values.chunks_exact_mut(cells.max(1));
        for (((object, mask), hidden), row) in
            self.objects.iter_mut().zip(masks).zip(hidden).zip(rows)
        {
            if hidden {
                row.fill(BLANK_LOGIT);
                report.changed.push(object.id);
            }
            if hidden || mask.is_empty() {
                object.last_hidden = Some(frame);
            }
        }
    }

    fn retire(
        &mut self,
        frame: usize,
        detection: bool,
        leaving: &[bool],
        report: &mut FrameReport,
    ) {
        let Some(after) = self.options.retire_after.filter(|_| detection) else {
            return;
        };
        let after = after.max(2 * self.options.detect_every);
        for (object, leaving) in self.objects.iter().zip(leaving) {
            if !leaving && frame > object.last_seen + after {
                report.retired.push(object.id);
            }
        }
    }

    /// Takes the objects out that go.
    fn forget<P: MaskPropagator + ?Sized>(
        &mut self,
        frame: usize,
        tracker: &mut P,
        report: &FrameReport,
    ) -> Result<()> {
        let mut gone = report.rejected.clone();
        gone.extend(&report.retired);
        if !gone.is_empty() {
            tracker.remove(&gone)?;
            self.objects.retain(|object| !gone.contains(&object.id));
        }
        let (objects, options) = (&self.objects, &self.options);
        self.shared.retain(|older, younger| {
            let find = |id| objects.binary_search_by_key(&id, |o: &Object| o.id).ok();
            let trial = find(younger).is_some_and(|j| objects[j].on_trial(frame + 1, options));
            trial && find(older).is_some()
        });
        Ok(())
    }
}

/// Takes masks out without copying those before the first of them.
fn drop_rows(masks: &mut MaskLogits, gone: &[bool]) {
    let cells = masks.side * masks.side;
    let mut kept = 0;
    for (t, gone) in gone.iter().enumerate() {
        if !gone {
            if kept < t {
                masks
                    .values
                    .copy_within(t * cells..(t + 1) * cells, kept * cells);
            }
            kept += 1;
        }
    }
    masks.values.truncate(kept * cells);
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
