//! Following the objects of one video with the model.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use shelfscan_inference_core::TrackId;

use super::{
    MaskPropagator, TrackedMasks,
    bank::{FrameMap, FrameMemory, MemoryLimits},
    contest::{Contest, LOST, enlarge},
    features::TrackerFeatures,
    given::Given,
    memory_attention::{MemoryPrecision, MemoryTokens},
    model::{Tracker, in_slots},
    prompt::Click,
    roster::{Placed, Roster},
    state::{Newest, State},
};
use crate::{Error, MaskLogits, Result, error::AtStage};

const STAGE: &str = "following objects";

/// How a [`TrackerSession`] follows; the default is a video of unknown length, remembered as in the
/// reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many frames the video has, where that is known. The reference sets the ages of object
    /// pointers in relation to it when there are fewer than [`MemoryLimits::pointers`].
    pub frames: Option<usize>,
    /// How memories are kept.
    pub precision: MemoryPrecision,
    /// How far back objects are remembered.
    pub memory: MemoryLimits,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            frames: None,
            precision: MemoryPrecision::default(),
            memory: MemoryLimits {
                conditioning: 4,
                maps: 7,
                pointers: 16,
            },
        }
    }
}

/// What a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Frames remembered, over all states.
    pub frames: usize,
    /// Those of them with a map of every bucket.
    pub maps: usize,
}

/// The objects of one video, their memories and the frame that is looked at.
///
/// For every frame call [`see`](Self::see), then what [`MaskPropagator`] says.
#[derive(Debug)]
pub struct TrackerSession {
    tracker: Arc<Tracker>,
    options: SessionOptions,
    roster: Roster,
    states: Vec<State>,
    features: Option<Arc<TrackerFeatures>>,
}

impl TrackerSession {
    /// No object yet.
    ///
    /// # Errors
    /// Nothing is to be remembered, or more than the model can tell apart.
    pub fn new(tracker: Arc<Tracker>, options: SessionOptions) -> Result<Self> {
        let (rows, memory) = (tracker.config().tracker.num_maskmem, options.memory);
        if memory.conditioning == 0 || memory.pointers == 0 || !(1..=rows).contains(&memory.maps) {
            return Err(Error::InvalidInput(format!(
                "memory limits {memory:?} cannot be kept; this model remembers 1 to {rows} maps"
            )));
        }
        Ok(Self {
            roster: Roster::new(tracker.config().tracker.multiplex_count),
            tracker,
            options,
            states: Vec::new(),
            features: None,
        })
    }

    /// Looks at the next frame, whose features may be shared with other sessions. Those of the frame
    /// before are dropped.
    pub fn see(&mut self, features: Arc<TrackerFeatures>) {
        self.features = Some(features);
    }

    /// What is held right now.
    pub fn memory_use(&self) -> MemoryUse {
        let sizes = self.states.iter().map(|state| state.bank.size());
        sizes.fold(MemoryUse::default(), |sum, (frames, maps)| MemoryUse {
            frames: sum.frames + frames,
            maps: sum.maps + maps,
        })
    }

    /// What `frame` reads of the memory of state `s`.
    ///
    /// # Errors
    /// There is no such state, or the tensor library failed.
    pub fn memory_tokens(&self, s: usize, frame: usize) -> Result<MemoryTokens> {
        let both = self.states.get(s).zip(self.roster.states().get(s));
        let (state, own) =
            both.ok_or_else(|| Error::InvalidInput(format!("there is no state {s}")))?;
        let buckets = own.slots.buckets().len();
        state.tokens(&self.tracker, &self.options, buckets, frame)
    }

    /// The memory of a frame in state `s`, `[buckets, side * side, c]`, and the object pointers,
    /// `[buckets, slots, c]`; `None` where nothing is remembered.
    pub fn remembered(&self, s: usize, frame: usize) -> Option<(Option<&Tensor>, &Tensor)> {
        let memory = self.states.get(s)?.bank.get(frame)?;
        Some((memory.map.as_ref().map(|m| &m.objects), &memory.pointers))
    }

    /// Begins following the object that clicks in `frame` point at, in a state of its own. Gives its
    /// mask logits and score.
    ///
    /// # Errors
    /// The id is followed already, a click is unusable, or a failure of the model.
    pub fn add_clicked(
        &mut self,
        frame: usize,
        id: TrackId,
        clicks: &[Click],
    ) -> Result<TrackedMasks> {
        self.refuse_known(&[id])?;
        let clicked = self.tracker.clicked(self.seen()?, clicks)?;
        let masks = on_host(&clicked.masks)?;
        let s = self.roster.open(&[id]);
        let slots = &self.roster.states()[s].slots;
        let pointers = in_slots(&clicked.pointers, slots)?;
        let newest = Newest {
            frame,
            masks: MaskLogits {
                side: masks.side,
                values: masks.values.clone(),
            },
            scores: clicked.scores.clone(),
            remembered: false,
        };
        self.states.push(State::begin(newest, pointers, vec![id]));
        self.encode_settled(s)?;
        Ok(TrackedMasks {
            ids: vec![id],
            masks,
            scores: clicked.scores,
        })
    }

    /// Carries every object to `frame` and remembers the masks as they came out, for following
    /// without detections.
    ///
    /// # Errors
    /// A failure of the model.
    pub fn follow(&mut self, frame: usize) -> Result<TrackedMasks> {
        let masks = self.propagate(frame)?;
        let side = self.tracker.config().image_size;
        for s in 0..self.states.len() {
            if self.states[s].bank.is_conditioning(frame) {
                continue;
            }
            let present = self.states[s].present();
            self.encode(s, &present, |newest, objects| {
                enlarge(&newest.masks, objects, side).map(|planes| (planes, side))
            })?;
        }
        Ok(masks)
    }

    fn seen(&self) -> Result<&TrackerFeatures> {
        self.features
            .as_deref()
            .ok_or_else(|| Error::InvalidInput("no frame has been seen yet".into()))
    }

    fn refuse_known(&self, ids: &[TrackId]) -> Result<()> {
        for (i, id) in ids.iter().enumerate() {
            if self.roster.find(*id).is_some() || ids[..i].contains(id) {
                return Err(Error::InvalidInput(format!(
                    "object {id} is followed already; give every object an id of its own"
                )));
            }
        }
        Ok(())
    }

    /// Carries one state to `frame`.
    fn carry(&mut self, s: usize, frame: usize) -> Result<()> {
        self.states[s].bank.prune(frame, self.options.memory);
        let (tracker, seen) = (&self.tracker, self.seen()?);
        let slots = &self.roster.states()[s].slots;
        let picture = &tracker.propagation(seen)?.tokens;
        let memory = self.memory_tokens(s, frame)?;
        let conditioned = tracker
            .attention
            .forward(picture, &tracker.positions, &memory)?;
        drop(memory);
        let decoded = tracker.decode(&conditioned, slots)?;
        let objects = tracker.draw(&decoded, tracker.propagation_fine(seen)?, slots)?;
        let pointers = in_slots(&objects.pointers, slots)?;
        let newest = Newest {
            frame,
            masks: on_host(&objects.masks)?,
            scores: objects.scores,
            remembered: false,
        };
        let state = &mut self.states[s];
        state.newest = newest;
        state.bank.carry(
            frame,
            FrameMemory {
                map: None,
                pointers,
                conditioning: Vec::new(),
            },
        );
        Ok(())
    }

    /// Makes the memory of a state's newest frame. `masks` gives the enlarged logits of objects, one
    /// plane after the other, and the side of a plane.
    fn encode(
        &mut self,
        s: usize,
        present: &[bool],
        masks: impl Fn(&Newest, &[usize]) -> Result<(Vec<f32>, usize)>,
    ) -> Result<()> {
        let (tracker, seen) = (&self.tracker, self.seen()?);
        let (own, state) = (&self.roster.states()[s], &self.states[s]);
        let frame = state.newest.frame;
        let given: Vec<bool> = match state.bank.get(frame) {
            Some(memory) => own
                .ids
                .iter()
                .map(|id| memory.conditioning.contains(id))
                .collect(),
            None => Vec::new(),
        };
        let planes = |objects: &[usize]| {
            let (planes, side) = masks(&state.newest, objects)?;
            Tensor::from_vec(planes, (objects.len(), side, side), &Device::Cpu)
                .and_then(|t| t.to_device(tracker.device()))
                .at(STAGE)
        };
        let flags = (present, given.as_slice());
        let precision = self.options.precision;
        let objects = tracker.encode(seen, &own.slots, flags, precision, planes)?;
        let picture = tracker.propagation(seen)?.tokens.clone();
        if let Some(memory) = self.states[s].bank.get_mut(frame) {
            memory.map = Some(FrameMap { objects, picture });
        }
        Ok(())
    }

    /// Makes the memory of a frame in which masks were given: every pixel belongs to one object.
    fn encode_settled(&mut self, s: usize) -> Result<()> {
        let side = self.tracker.config().image_size;
        let newest = &self.states[s].newest;
        let contest = Contest::hold(&newest.masks, newest.scores.len(), side)?;
        let present = self.states[s].present();
        self.encode(s, &present, |newest, objects| {
            let mut planes = enlarge(&newest.masks, objects, side)?;
            planes
                .par_chunks_exact_mut(side * side)
                .zip(objects)
                .for_each(|(plane, object)| contest.settle(*object, plane));
            Ok((planes, side))
        })
    }

    /// Detections as masks, as logits that are stored, and as pointers.
    fn given(&self, detections: &MaskLogits, count: usize) -> Result<(Given, Vec<f32>, Tensor)> {
        let given = Given::new(detections, count, self.tracker.encoder.side())?;
        let seen = self.seen()?;
        let stored = given.apart(seen.frame_px, self.mask_side())?;
        let masks = given.masks.to_device(self.tracker.device()).at(STAGE)?;
        let pointers = self.tracker.mask_pointers(seen, &masks, &given.empty)?;
        Ok((given, stored, pointers))
    }
}

fn on_host(masks: &Tensor) -> Result<MaskLogits> {
    let (_, side, _) = masks.dims3().at(STAGE)?;
    let values = masks.flatten_all().and_then(|m| m.to_vec1()).at(STAGE)?;
    Ok(MaskLogits { side, values })
}

impl MaskPropagator for TrackerSession {
    fn mask_side(&self) -> usize {
        self.tracker.config().mask_size()
    }

    fn propagate(&mut self, frame: usize) -> Result<TrackedMasks> {
        for s in 0..self.states.len() {
            if self.states[s].newest.frame != frame {
                self.carry(s, frame)?;
            }
        }
        let mut rows: Vec<(TrackId, usize, usize)> = Vec::with_capacity(self.roster.objects());
        for (s, state) in self.roster.states().iter().enumerate() {
            rows.extend(state.ids.iter().enumerate().map(|(o, id)| (*id, s, o)));
        }
        rows.sort_by_key(|(id, ..)| *id);
        let side = self.mask_side();
        let mut values = Vec::with_capacity(rows.len() * side * side);
        let mut scores = Vec::with_capacity(rows.len());
        for (_, s, object) in &rows {
            let newest = &self.states[*s].newest;
            values.extend_from_slice(newest.masks.mask(*object));
            scores.push(newest.scores[*object]);
        }
        Ok(TrackedMasks {
            ids: rows.into_iter().map(|(id, ..)| id).collect(),
            masks: MaskLogits { side, values },
            scores,
        })
    }

    fn recondition(
        &mut self,
        frame: usize,
        ids: &[TrackId],
        detections: &MaskLogits,
    ) -> Result<()> {
        let mut by_state: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.states.len()];
        for (i, id) in ids.iter().enumerate() {
            let Some((s, object)) = self.roster.find(*id) else {
                return Err(Error::InvalidInput(format!("object {id} is not followed")));
            };
            self.states[s].at(frame)?;
            by_state[s].push((object, i));
        }
        for (s, objects) in by_state.into_iter().enumerate() {
            if objects.is_empty() {
                continue;
            }
            let mut own = MaskLogits {
                side: detections.side,
                values: Vec::new(),
            };
            for (_, i) in &objects {
                own.values.extend_from_slice(detections.mask(*i));
            }
            let (given, stored, pointers) = self.given(&own, objects.len())?;
            let objects: Vec<usize> = objects.into_iter().map(|(object, _)| object).collect();
            let own = &self.roster.states()[s];
            self.states[s].put(own, &objects, (&given, &stored), &pointers)?;
        }
        Ok(())
    }

    fn remember(&mut self, frame: usize, masks: &TrackedMasks, area_shrink: f32) -> Result<()> {
        let count = masks.ids.len();
        let plane = masks.masks.side * masks.masks.side;
        if count != self.roster.objects() || masks.masks.values.len() != count * plane {
            return Err(Error::InvalidInput(format!(
                "{count} masks came for {} objects",
                self.roster.objects()
            )));
        }
        let mut rows = Vec::with_capacity(self.states.len());
        for (state, own) in self.states.iter_mut().zip(self.roster.states()) {
            state.at(frame)?;
            let row = |id: &TrackId| {
                let row = masks.ids.binary_search(id);
                row.map_err(|_| Error::InvalidInput(format!("no mask came for object {id}")))
            };
            rows.push(own.ids.iter().map(row).collect::<Result<Vec<usize>>>()?);
        }
        if count == 0 {
            return Ok(());
        }
        let side = self.tracker.encoder.side();
        let contest = Contest::hold(&masks.masks, count, side)?;
        let (shrunk, area) = (contest.shrunk(area_shrink), contest.present());
        drop(contest);
        for (s, rows) in rows.iter().enumerate() {
            let present: Vec<bool> = rows.iter().map(|i| area[*i] && !shrunk[*i]).collect();
            self.encode(s, &present, |_, objects| {
                let which: Vec<usize> = objects.iter().map(|object| rows[*object]).collect();
                let mut planes = enlarge(&masks.masks, &which, side)?;
                for (i, plane) in which.iter().zip(planes.chunks_exact_mut(side * side)) {
                    if shrunk[*i] {
                        for v in plane {
                            *v = v.min(LOST);
                        }
                    }
                }
                Ok((planes, side))
            })?;
            self.states[s].newest.remembered = true;
        }
        Ok(())
    }

    fn add(&mut self, frame: usize, ids: &[TrackId], detections: &MaskLogits) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.refuse_known(ids)?;
        for state in &mut self.states {
            state.at(frame)?;
        }
        let (given, stored, pointers) = self.given(detections, ids.len())?;
        let (s, first) = match self.roster.add(ids) {
            Placed::Joined(s) => (s, self.roster.states()[s].ids.len() - ids.len()),
            Placed::Opened(s) => {
                let slots = &self.roster.states()[s].slots;
                let shape = (slots.buckets().len(), slots.slots(), pointers.dims()[1]);
                let empty = Tensor::zeros(shape, pointers.dtype(), pointers.device()).at(STAGE)?;
                let newest = Newest::empty(frame, self.mask_side());
                self.states.push(State::begin(newest, empty, Vec::new()));
                (s, 0)
            }
        };
        let objects: Vec<usize> = (first..first + ids.len()).collect();
        let (own, state) = (&self.roster.states()[s], &mut self.states[s]);
        state.put(own, &objects, (&given, &stored), &pointers)?;
        // A conditioning frame that is gone through again keeps the memory of its final masks, as
        // in the reference.
        if state.bank.is_conditioning(frame) && state.newest.remembered {
            return Ok(());
        }
        self.encode_settled(s)
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        let changes = self.roster.remove(ids);
        let mut emptied = vec![false; self.states.len()];
        for change in &changes {
            if change.buckets.is_empty() {
                emptied[change.state] = true;
            } else {
                self.states[change.state].drop_objects(change)?;
            }
        }
        let mut emptied = emptied.into_iter();
        self.states.retain(|_| emptied.next() != Some(true));
        Ok(())
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
