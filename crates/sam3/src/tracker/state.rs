//! Memory and newest masks of objects that share buckets.

use candle_core::Tensor;
use shelfscan_inference_core::TrackId;

use super::{
    bank::{FrameMemory, MemoryBank},
    given::Given,
    memory_attention::MemoryTokens,
    model::Tracker,
    roster::{Removed, StateObjects},
    session::SessionOptions,
};
use crate::{Error, MaskLogits, Result, error::AtStage};

const STAGE: &str = "the memory of followed objects";

/// The newest frame of a state, whose masks may still be added to.
#[derive(Debug)]
pub(crate) struct Newest {
    pub(crate) frame: usize,
    /// By position of the objects, as are the scores.
    pub(crate) masks: MaskLogits,
    pub(crate) scores: Vec<f32>,
    /// The memory is that of the final masks.
    pub(crate) remembered: bool,
}

impl Newest {
    /// A frame without an object yet.
    pub(crate) fn empty(frame: usize, side: usize) -> Self {
        Self {
            frame,
            masks: MaskLogits {
                side,
                values: Vec::new(),
            },
            scores: Vec::new(),
            remembered: false,
        }
    }
}

/// What belongs to one entry of [`Roster::states`](super::Roster::states).
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bank: MemoryBank,
    pub(crate) newest: Newest,
}

impl State {
    /// A state that begins in the frame of `newest`, with its pointers `[buckets, slots, c]`.
    pub(crate) fn begin(newest: Newest, pointers: Tensor, conditioning: Vec<TrackId>) -> Self {
        let mut bank = MemoryBank::default();
        bank.condition(
            newest.frame,
            FrameMemory {
                map: None,
                pointers,
                conditioning,
            },
        );
        Self { bank, newest }
    }

    /// The newest frame, which has to be `frame`.
    pub(crate) fn at(&mut self, frame: usize) -> Result<&mut Newest> {
        if self.newest.frame == frame {
            return Ok(&mut self.newest);
        }
        Err(Error::InvalidInput(format!(
            "objects were last carried to frame {}, not to frame {frame}",
            self.newest.frame
        )))
    }

    /// Objects whose score says they are in the newest frame.
    pub(crate) fn present(&self) -> Vec<bool> {
        let scores = self.newest.scores.iter();
        scores.map(|score| *score > 0.0).collect()
    }

    /// Everything `frame` reads of the `buckets` of this state.
    pub(crate) fn tokens(
        &self,
        tracker: &Tracker,
        options: &SessionOptions,
        buckets: usize,
        frame: usize,
    ) -> Result<MemoryTokens> {
        let limits = options.memory;
        // In a video of one frame nothing is read, so the oldest age is at least 1.
        let reach = options
            .frames
            .map_or(limits.pointers, |n| n.min(limits.pointers));
        let reach = reach.max(2);
        let picks = self.bank.picks(frame, limits, reach);
        let mut tokens = Gathered::new(buckets);
        for pick in &picks.maps {
            if let Some(map) = self.bank.get(pick.frame).and_then(|m| m.map.as_ref()) {
                let time = tracker.time(pick.time)?;
                let mut run = || {
                    let positions = tracker.positions.broadcast_add(&time)?;
                    tokens.add(&map.objects, map.picture.clone(), positions)
                };
                tokens.cells += run().at(STAGE)?;
            }
        }
        let ages = picks.pointers.iter();
        let ages: Vec<f32> = ages
            .map(|pick| pick.age as f32 / (reach - 1) as f32)
            .collect();
        let ages = tracker.pointer_ages(&ages)?;
        for (i, pick) in picks.pointers.iter().enumerate() {
            if let Some(memory) = self.bank.get(pick.frame) {
                let mut run = || {
                    let slots = memory.pointers.dim(1)?;
                    let age = ages.narrow(0, i, 1)?.repeat((slots, 1))?.unsqueeze(0)?;
                    tokens.add(&memory.pointers, age.zeros_like()?, age)
                };
                run().at(STAGE)?;
            }
        }
        tokens.finish().at(STAGE)
    }

    /// Puts given masks, scores and pointers `[objects, c]` behind or in place of those of the
    /// newest frame; `objects` are positions in `own`.
    pub(crate) fn put(
        &mut self,
        own: &StateObjects,
        objects: &[usize],
        (given, masks): (&Given, &[f32]),
        pointers: &Tensor,
    ) -> Result<()> {
        let newest = &mut self.newest;
        let plane = newest.masks.side * newest.masks.side;
        let planes = masks.chunks_exact(plane.max(1)).zip(given.scores());
        for (object, (mask, score)) in objects.iter().zip(planes) {
            if let Some(old) = newest.scores.get_mut(*object) {
                *old = score;
                newest.masks.values[object * plane..][..plane].copy_from_slice(mask);
            } else {
                newest.scores.push(score);
                newest.masks.values.extend_from_slice(mask);
            }
        }
        if let Some(memory) = self.bank.get_mut(newest.frame) {
            for object in objects {
                let id = own.ids[*object];
                if !memory.conditioning.contains(&id) {
                    memory.conditioning.push(id);
                }
            }
            memory
                .put(pointers, objects, &own.slots.places())
                .at(STAGE)?;
        }
        Ok(())
    }

    /// Drops the objects of a change to this state, and the buckets that are not kept.
    pub(crate) fn drop_objects(&mut self, change: &Removed) -> Result<()> {
        let newest = &mut self.newest;
        let plane = newest.masks.side * newest.masks.side;
        for object in change.objects.iter().rev() {
            if *object < newest.scores.len() {
                newest.scores.remove(*object);
                newest
                    .masks
                    .values
                    .drain(object * plane..(object + 1) * plane);
            }
        }
        self.bank.forget(&change.ids);
        for memory in self.bank.all_mut() {
            memory.keep_buckets(&change.buckets).at(STAGE)?;
        }
        Ok(())
    }
}

/// Tokens on their way together.
struct Gathered {
    buckets: Vec<Vec<Tensor>>,
    pictures: Vec<Tensor>,
    positions: Vec<Tensor>,
    cells: usize,
}

impl Gathered {
    fn new(buckets: usize) -> Self {
        Self {
            buckets: vec![Vec::new(); buckets],
            pictures: Vec::new(),
            positions: Vec::new(),
            cells: 0,
        }
    }

    /// Adds `n` tokens to every bucket and gives `n`: `objects` is `[buckets, n, c]`, the others are
    /// `[1, n, c]`.
    fn add(
        &mut self,
        objects: &Tensor,
        picture: Tensor,
        positions: Tensor,
    ) -> candle_core::Result<usize> {
        for (b, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.push(objects.narrow(0, b, 1)?);
        }
        let n = positions.dim(1)?;
        self.pictures.push(picture);
        self.positions.push(positions);
        Ok(n)
    }

    fn finish(self) -> candle_core::Result<MemoryTokens> {
        Ok(MemoryTokens {
            buckets: self.buckets,
            pictures: Tensor::cat(&self.pictures, 1)?,
            positions: Tensor::cat(&self.positions, 1)?,
            cells: self.cells,
        })
    }
}

impl FrameMemory {
    /// Row `i` of `rows` `[n, c]` becomes the pointer of the object whose place is
    /// `places[objects[i]]`.
    fn put(
        &mut self,
        rows: &Tensor,
        objects: &[usize],
        places: &[(usize, usize)],
    ) -> candle_core::Result<()> {
        let (b, s, d) = self.pointers.dims3()?;
        let mut order: Vec<u32> = (0..(b * s) as u32).collect();
        for (i, object) in objects.iter().enumerate() {
            let (bucket, slot) = places[*object];
            order[bucket * s + slot] = (b * s + i) as u32;
        }
        let order = Tensor::from_vec(order, b * s, self.pointers.device())?;
        let all = Tensor::cat(&[&self.pointers.reshape((b * s, d))?, rows], 0)?;
        self.pointers = all.index_select(&order, 0)?.reshape((b, s, d))?;
        Ok(())
    }

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
