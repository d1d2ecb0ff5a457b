//! Following the objects of one video with the model.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use shelfscan_inference_core::TrackId;
use shelfscan_model_kit::ops::{Sampling, resize_2d};

use super::{
    MaskPropagator, TrackedMasks,
    bank::{FrameMap, FrameMemory, MemoryBank, MemoryLimits},
    contest::{Contest, LOST, enlarge},
    features::TrackerFeatures,
    memory_attention::{MemoryPrecision, MemoryTokens},
    model::Tracker,
    prompt::Click,
    roster::{Placed, Roster},
};
use crate::{Error, MaskLogits, Result, error::AtStage};

const STAGE: &str = "following objects";

/// Logit of a given mask inside; outside it is the negative.
const GIVEN: f32 = 1024.0;
/// The same where a mask is stored next to masks that were carried on.
const GIVEN_BESIDE: f32 = 10.0;
/// Score of an object whose mask was given and has a pixel; the negative without one.
const GIVEN_SCORE: f32 = 10.0;

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

/// The newest frame of a state, whose masks may still be added to.
#[derive(Debug)]
struct Newest {
    frame: usize,
    masks: MaskLogits,
    scores: Vec<f32>,
    /// The memory is that of the final masks.
    remembered: bool,
}

#[derive(Debug, Default)]
struct State {
    bank: MemoryBank,
    newest: Option<Newest>,
}

impl State {
    fn newest(&mut self, frame: usize) -> Result<&mut Newest> {
        let newest = self.newest.as_mut().filter(|n| n.frame == frame);
        newest.ok_or_else(|| {
            Error::InvalidInput(format!("objects have not been carried to frame {frame} yet"))
        })
    }
}

/// Detections at the sizes the tracker takes masks in.
struct Given {
    /// `[n, 1, s, s]` of 0 and 1, on the CPU.
    masks: Tensor,
    empty: Vec<bool>,
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

    /// What of the bank `frame` reads in state `state`, for comparison with the reference.
    ///
    /// # Errors
    /// There is no such state, or the tensor library failed.
    pub fn memory_tokens(&self, state: usize, frame: usize) -> Result<MemoryTokens> {
        let bank = self.states.get(state).map(|state| &state.bank);
        let bank = bank.ok_or_else(|| Error::InvalidInput(format!("there is no state {state}")))?;
        let buckets = self.roster.states()[state].slots.buckets().len();
        self.tokens(bank, buckets, frame)
    }

    /// The memory of a frame in state `state`, `[buckets, side * side, c]`, and the object pointers,
    /// `[buckets, slots, c]`; `None` where nothing is remembered.
    pub fn remembered(&self, state: usize, frame: usize) -> Option<(Option<&Tensor>, &Tensor)> {
        let memory = self.states.get(state)?.bank.get(frame)?;
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
        let state = self.roster.open(&[id]);
        let slots = &self.roster.states()[state].slots;
        let pointers = self.tracker.in_slots(&clicked.pointers, slots)?;
        self.states.push(State {
            bank: MemoryBank::default(),
            newest: Some(Newest {
                frame,
                masks: copy(&masks),
                scores: clicked.scores.clone(),
                remembered: false,
            }),
        });
        self.states[state].bank.condition(
            frame,
            FrameMemory {
                map: None,
                pointers,
                conditioning: vec![id],
            },
        );
        self.encode_settled(state, frame)?;
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
        for state in 0..self.states.len() {
            if self.states[state].bank.is_conditioning(frame) {
                continue;
            }
            let present = self.present(state);
            self.encode(state, frame, &present, |newest, objects| {
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

    /// Objects of a state whose score says they are in its newest frame.
    fn present(&self, state: usize) -> Vec<bool> {
        let scores = self.states[state].newest.iter().flat_map(|n| &n.scores);
        scores.map(|score| *score > 0.0).collect()
    }

    /// Everything `frame` reads of a bank.
    fn tokens(&self, bank: &MemoryBank, buckets: usize, frame: usize) -> Result<MemoryTokens> {
        let tracker = &self.tracker;
        let limits = self.options.memory;
        let frames = self.options.frames.unwrap_or(usize::MAX);
        // With one frame nothing is ever read, so the oldest age is at least 1.
        let reach = limits.pointers.min(frames).max(2);
        let picks = bank.picks(frame, limits, reach);
        let ages: Vec<f32> = picks
            .pointers
            .iter()
            .map(|pick| pick.age as f32 / (reach - 1) as f32)
            .collect();
        let ages = if ages.is_empty() {
            None
        } else {
            Some(tracker.pointer_ages(&ages)?)
        };
        let mut pictures = Vec::new();
        let mut positions = Vec::new();
        let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); buckets];
        let mut cells = 0;
        for pick in &picks.maps {
            let Some(map) = bank.get(pick.frame).and_then(|m| m.map.as_ref()) else {
                continue;
            };
            let time = tracker.time(pick.time)?;
            positions.push(tracker.positions.broadcast_add(&time).at(STAGE)?);
            pictures.push(map.picture.clone());
            cells += map.picture.dims()[1];
            for (b, part) in parts.iter_mut().enumerate() {
                part.push(map.objects.narrow(0, b, 1).at(STAGE)?);
            }
        }
        let slots = tracker.config().tracker.multiplex_count;
        for (i, pick) in picks.pointers.iter().enumerate() {
            let (Some(memory), Some(ages)) = (bank.get(pick.frame), &ages) else {
                continue;
            };
            let age = ages.narrow(0, i, 1).and_then(|a| a.repeat((slots, 1))).at(STAGE)?;
            let age = age.unsqueeze(0).at(STAGE)?;
            pictures.push(age.zeros_like().at(STAGE)?);
            positions.push(age);
            for (b, part) in parts.iter_mut().enumerate() {
                part.push(memory.pointers.narrow(0, b, 1).at(STAGE)?);
            }
        }
        if positions.is_empty() {
            return Err(Error::InvalidInput(format!(
                "nothing is remembered that frame {frame} could read"
            )));
        }
        Ok(MemoryTokens {
            buckets: parts,
            pictures: Tensor::cat(&pictures, 1).at(STAGE)?,
            positions: Tensor::cat(&positions, 1).at(STAGE)?,
            cells,
        })
    }

    /// Carries one state to `frame`.
    fn carry(&mut self, s: usize, frame: usize) -> Result<()> {
        let limits = self.options.memory;
        self.states[s].bank.prune(frame, limits);
        let (tracker, seen) = (&self.tracker, self.seen()?);
        let slots = &self.roster.states()[s].slots;
        let picture = &tracker.propagation(seen)?.tokens;
        let memory = self.tokens(&self.states[s].bank, slots.buckets().len(), frame)?;
        let conditioned = tracker
            .attention
            .forward(picture, &tracker.positions, &memory)?;
        drop(memory);
        let decoded = tracker.decode(&conditioned, slots)?;
        let objects = tracker.draw(&decoded, tracker.propagation_fine(seen)?, slots)?;
        let pointers = tracker.in_slots(&objects.pointers, slots)?;
        let masks = on_host(&objects.masks)?;
        let state = &mut self.states[s];
        state.bank.carry(
            frame,
            FrameMemory {
                map: None,
                pointers,
                conditioning: Vec::new(),
            },
        );
        state.newest = Some(Newest {
            frame,
            masks,
            scores: objects.scores,
            remembered: false,
        });
        Ok(())
    }

    /// Makes the memory of a state's newest frame. `masks` gives the enlarged logits of objects, one
    /// plane after the other, and the side of a plane.
    fn encode(
        &mut self,
        s: usize,
        frame: usize,
        present: &[bool],
        masks: impl Fn(&Newest, &[usize]) -> Result<(Vec<f32>, usize)>,
    ) -> Result<()> {
        let (tracker, seen) = (&self.tracker, self.seen()?);
        let roster = &self.roster.states()[s];
        let state = &self.states[s];
        let Some((newest, memory)) = state.newest.as_ref().zip(state.bank.get(frame)) else {
            return Ok(());
        };
        let given: Vec<bool> = roster
            .ids
            .iter()
            .map(|id| memory.conditioning.contains(id))
            .collect();
        let planes = |objects: &[usize]| {
            let (planes, side) = masks(newest, objects)?;
            Tensor::from_vec(planes, (objects.len(), side, side), &Device::Cpu)
                .and_then(|t| t.to_device(tracker.device()))
                .at(STAGE)
        };
        let flags = (present, given.as_slice());
        let precision = self.options.precision;
        let objects = tracker.encode(seen, &roster.slots, flags, precision, planes)?;
        let picture = tracker.propagation(seen)?.tokens.clone();
        if let Some(memory) = self.states[s].bank.get_mut(frame) {
            memory.map = Some(FrameMap { objects, picture });
        }
        Ok(())
    }

    /// Makes the memory of a frame in which masks were given: every pixel belongs to one object.
    fn encode_settled(&mut self, s: usize, frame: usize) -> Result<()> {
        let side = self.tracker.config().image_size;
        let newest = self.states[s].newest(frame)?;
        let contest = Contest::hold(&newest.masks, newest.scores.len(), side)?;
        let present = self.present(s);
        self.encode(s, frame, &present, |newest, objects| {
            let mut planes = enlarge(&newest.masks, objects, side)?;
            planes
                .par_chunks_exact_mut(side * side)
                .zip(objects)
                .for_each(|(plane, object)| contest.settle(*object, plane));
            Ok((planes, side))
        })
    }

    /// The detections as masks of 0 and 1.
    fn given(&self, detections: &MaskLogits, count: usize) -> Result<Given> {
        let plane = detections.side * detections.side;
        if plane == 0 || detections.values.len() != count * plane {
            return Err(Error::InvalidInput(format!(
                "{count} objects came with {} mask values of side {}",
                detections.values.len(),
                detections.side
            )));
        }
        let side = self.tracker.encoder.side();
        let all: Vec<usize> = (0..count).collect();
        let mut planes = enlarge(detections, &all, side)?;
        let empty = planes
            .par_chunks_exact_mut(side * side)
            .map(|plane| {
                let mut empty = true;
                for v in plane {
                    *v = f32::from(*v > 0.0);
                    empty &= *v == 0.0;
                }
                empty
            })
            .collect();
        let masks = Tensor::from_vec(planes, (count, 1, side, side), &Device::Cpu).at(STAGE)?;
        Ok(Given { masks, empty })
    }

    /// The pointers of given masks.
    fn given_pointers(&self, given: &Given) -> Result<Tensor> {
        let masks = given.masks.to_device(self.tracker.device()).at(STAGE)?;
        self.tracker
            .mask_pointers(self.seen()?, &masks, &given.empty)
    }

    /// Given masks as logits of `mask_side`, without the pixels that more than one of them claims
    /// at the size of the video.
    fn apart(&self, given: &Given) -> Result<Vec<f32>> {
        let (width, height) = self.seen()?.frame_px;
        let (width, height) = (width as usize, height as usize);
        let side = self.mask_side();
        let count = given.empty.len();
        let smooth = Sampling::bilinear(true);
        let at_video = |i: usize| -> candle_core::Result<Vec<f32>> {
            let mask = given.masks.narrow(0, i, 1)?;
            resize_2d(&mask, height, width, smooth)?.flatten_all()?.to_vec1()
        };
        // Enlarged once to count the claims and again to clear them, so that one mask of the
        // video's size exists at a time.
        let mut claims = vec![0u8; width * height];
        for i in 0..count {
            for (claim, v) in claims.iter_mut().zip(at_video(i).at(STAGE)?) {
                *claim = claim.saturating_add(u8::from(v > 0.5));
            }
        }
        let mut out = Vec::with_capacity(count * side * side);
        for i in 0..count {
            let mut mask = at_video(i).at(STAGE)?;
            for (v, claim) in mask.iter_mut().zip(&claims) {
                *v = if *v > 0.5 && *claim == 1 { GIVEN } else { -GIVEN };
            }
            let small = Tensor::from_vec(mask, (1, 1, height, width), &Device::Cpu)
                .and_then(|t| resize_2d(&t, side, side, smooth))
                .and_then(|t| t.flatten_all()?.to_vec1::<f32>())
                .at(STAGE)?;
            out.extend(small);
        }
        Ok(out)
    }

    /// Given masks as logits of `mask_side`, overlaps left in.
    fn beside(&self, given: &Given) -> Result<Vec<f32>> {
        let side = self.mask_side();
        let run = || {
            let logits = given.masks.affine(
                f64::from(2.0 * GIVEN_BESIDE),
                f64::from(-GIVEN_BESIDE),
            )?;
            resize_2d(&logits, side, side, Sampling::bilinear(true))?
                .flatten_all()?
                .to_vec1()
        };
        run().at(STAGE)
    }

    /// Puts given masks, scores and pointers into the newest frame of a state, behind or in place of
    /// those of its objects; `objects` are their positions.
    fn put(&mut self, s: usize, frame: usize, objects: &[usize], given: &Given) -> Result<()> {
        let pointers = self.given_pointers(given)?;
        let conditioning = self.states[s].bank.is_conditioning(frame);
        let remembered = self.states[s].newest(frame)?.remembered;
        // The reference keeps other logits for masks given in a frame that conditions already.
        let masks = if conditioning && remembered {
            self.beside(given)?
        } else {
            self.apart(given)?
        };
        let roster = &self.roster.states()[s];
        let places = roster.slots.places();
        let state = &mut self.states[s];
        let newest = state.newest(frame)?;
        let plane = newest.masks.side * newest.masks.side;
        for ((object, mask), empty) in objects.iter().zip(masks.chunks_exact(plane)).zip(&given.empty) {
            let score = if *empty { -GIVEN_SCORE } else { GIVEN_SCORE };
            if *object < newest.scores.len() {
                newest.masks.values[object * plane..][..plane].copy_from_slice(mask);
                newest.scores[*object] = score;
            } else {
                newest.masks.values.extend_from_slice(mask);
                newest.scores.push(score);
            }
        }
        if let Some(memory) = state.bank.get_mut(frame) {
            for object in objects {
                let id = roster.ids[*object];
                if !memory.conditioning.contains(&id) {
                    memory.conditioning.push(id);
                }
            }
            memory.pointers = replace(&memory.pointers, &pointers, objects, &places).at(STAGE)?;
        }
        Ok(())
    }
}

/// `muxed` `[buckets, slots, c]` with row `i` of `rows` `[n, c]` in the place of `objects[i]`.
fn replace(
    muxed: &Tensor,
    rows: &Tensor,
    objects: &[usize],
    places: &[(usize, usize)],
) -> candle_core::Result<Tensor> {
    let (b, s, d) = muxed.dims3()?;
    let mut order: Vec<u32> = (0..(b * s) as u32).collect();
    for (i, object) in objects.iter().enumerate() {
        let (bucket, slot) = places[*object];
        order[bucket * s + slot] = (b * s + i) as u32;
    }
    let order = Tensor::from_vec(order, b * s, muxed.device())?;
    let all = Tensor::cat(&[&muxed.reshape((b * s, d))?, rows], 0)?;
    all.index_select(&order, 0)?.reshape((b, s, d))
}

fn on_host(masks: &Tensor) -> Result<MaskLogits> {
    let (_, side, _) = masks.dims3().at(STAGE)?;
    let values = masks.flatten_all().and_then(|m| m.to_vec1()).at(STAGE)?;
    Ok(MaskLogits { side, values })
}

fn copy(masks: &MaskLogits) -> MaskLogits {
    MaskLogits {
        side: masks.side,
        values: masks.values.clone(),
    }
}

impl MaskPropagator for TrackerSession {
    fn mask_side(&self) -> usize {
        self.tracker.config().mask_size()
    }

    fn propagate(&mut self, frame: usize) -> Result<TrackedMasks> {
        for s in 0..self.states.len() {
            let stored = self.states[s].newest.as_ref();
            if stored.is_none_or(|newest| newest.frame != frame) {
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
            let newest = self.states[*s].newest(frame)?;
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
            let given = self.given(&own, objects.len())?;
            let objects: Vec<usize> = objects.into_iter().map(|(object, _)| object).collect();
            self.put(s, frame, &objects, &given)?;
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
        if count == 0 {
            return Ok(());
        }
        let side = self.tracker.encoder.side();
        let contest = Contest::hold(&masks.masks, count, side)?;
        let shrunk = contest.shrunk(area_shrink);
        let area = contest.present();
        for s in 0..self.states.len() {
            let rows = self.roster.states()[s].ids.iter().map(|id| {
                masks.ids.binary_search(id).map_err(|_| {
                    Error::InvalidInput(format!("no mask came for object {id}"))
                })
            });
            let rows: Vec<usize> = rows.collect::<Result<_>>()?;
            let present: Vec<bool> = rows.iter().map(|i| area[*i] && !shrunk[*i]).collect();
            self.states[s].newest(frame)?.remembered = true;
            self.encode(s, frame, &present, |_, objects| {
                let which: Vec<usize> = objects.iter().map(|object| rows[*object]).collect();
                let mut planes = enlarge(&masks.masks, &which, side)?;
                for (i, plane) in which.iter().zip(planes.chunks_exact_mut(side * side)) {
                    if shrunk[*i] {
                        plane.iter_mut().for_each(|v| *v = v.min(LOST));
                    }
                }
                Ok((planes, side))
            })?;
        }
        Ok(())
    }

    fn add(&mut self, frame: usize, ids: &[TrackId], detections: &MaskLogits) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.refuse_known(ids)?;
        let given = self.given(detections, ids.len())?;
        match self.roster.add(ids) {
            Placed::Opened(s) => {
                let side = self.mask_side();
                let slots = &self.roster.states()[s].slots;
                let (b, n) = (slots.buckets().len(), slots.slots());
                let d = self.tracker.config().d_model;
                let (dtype, device) = (self.tracker.dtype(), self.tracker.device());
                let pointers = Tensor::zeros((b, n, d), dtype, device).at(STAGE)?;
                let mut state = State::default();
                state.newest = Some(Newest {
                    frame,
                    masks: MaskLogits {
                        side,
                        values: Vec::new(),
                    },
                    scores: Vec::new(),
                    remembered: false,
                });
                state.bank.condition(
                    frame,
                    FrameMemory {
                        map: None,
                        pointers,
                        conditioning: Vec::new(),
                    },
                );
                self.states.push(state);
                let objects: Vec<usize> = (0..ids.len()).collect();
                self.put(s, frame, &objects, &given)?;
                self.encode_settled(s, frame)
            }
            Placed::Joined(s) => {
                let last = self.roster.states()[s].ids.len();
                let objects: Vec<usize> = (last - ids.len()..last).collect();
                self.put(s, frame, &objects, &given)?;
                // A conditioning frame that is gone through again keeps the memory it was given
                // with the final masks, as in the reference.
                let again = self.states[s].bank.is_conditioning(frame);
                if again && self.states[s].newest(frame)?.remembered {
                    return Ok(());
                }
                self.encode_settled(s, frame)
            }
        }
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        let before: Vec<Vec<TrackId>> = self.roster.states().iter().map(|s| s.ids.clone()).collect();
        let changes = self.roster.remove(ids);
        for change in &changes {
            let state = &mut self.states[change.state];
            if change.buckets.is_empty() {
                continue;
            }
            let gone: Vec<TrackId> = change
                .objects
                .iter()
                .map(|object| before[change.state][*object])
                .collect();
            state.bank.forget(&gone);
            if let Some(newest) = &mut state.newest {
                newest.drop_objects(&change.objects);
            }
            for memory in state.bank.all_mut() {
                memory.keep_buckets(&change.buckets).at(STAGE)?;
            }
        }
        let emptied = |s: usize| changes.iter().any(|c| c.state == s && c.buckets.is_empty());
        let mut s = 0;
        self.states.retain(|_| {
            s += 1;
            !emptied(s - 1)
        });
        Ok(())
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }
}

impl Newest {
    fn drop_objects(&mut self, objects: &[usize]) {
        let plane = self.masks.side * self.masks.side;
        for object in objects.iter().rev() {
            if *object < self.scores.len() {
                self.scores.remove(*object);
                self.masks.values.drain(object * plane..(object + 1) * plane);
            }
        }
    }
}

impl FrameMemory {
    fn keep_buckets(&mut self, kept: &[usize]) -> candle_core::Result<()> {
        if kept.len() == self.pointers.dim(0)? {
            return Ok(());
        }
        let rows: Vec<u32> = kept.iter().map(|b| *b as u32).collect();
        let rows = Tensor::new(rows, self.pointers.device())?;
        self.pointers = self.pointers.index_select(&rows, 0)?;
        if let Some(map) = &mut self.map {
            map.objects = map.objects.index_select(&rows, 0)?;
        }
        Ok(())
    }
}
