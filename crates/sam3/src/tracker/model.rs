//! The weights of the tracker and what they do, one call a stage.

use candle_core::{DType, Device, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, Linear, Sampling, resize_2d},
    weights::{TensorSpec, WeightReader},
};

use super::{
    features::{Seen, TrackerFeatures, once},
    mask_decoder::{Decoded, DecoderKind, FineMaps, MaskDecoder},
    memory_attention::{MemoryAttention, MemoryPrecision},
    memory_encoder::MemoryEncoder,
    multiplex::{Multiplex, Slot},
    prompt::{Click, PromptEncoder, RandomPlaces},
};
use crate::{
    Error, Result, Sam3Config,
    error::AtStage,
    layers::{Conv, ReluStack, linear},
    position::{sine_ages, sine_map},
    vision::{Neck, NeckKind},
};

const STAGE: &str = "the tracker";

/// Logit of every pixel of an object that is not in the picture.
pub(crate) const ABSENT: f32 = -1024.0;

/// Objects that go through the interactive decoder at once; each has a map of its own there.
const INTERACTIVE_AT_ONCE: usize = 8;

/// How far a logit may lie from zero for a single mask to count as unsure there.
const STABILITY_DELTA: f32 = 0.05;
/// Share of sure pixels below which the best of several masks is taken instead.
const STABILITY_THRESHOLD: f32 = 0.98;

/// Objects as a decoder sees them, in their order.
#[derive(Debug)]
pub struct SeenObjects {
    /// Mask logits `[n, side, side]` in `f32`.
    pub masks: Tensor,
    /// Logit of each object being in the picture, `[n]`.
    pub scores: Vec<f32>,
    /// Object pointers `[n, c]`.
    pub pointers: Tensor,
}

/// The tracker half of SAM 3.1.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Memory attention.
    pub attention: MemoryAttention,
    /// Memory encoder.
    pub encoder: MemoryEncoder,
    /// Decoder for buckets of followed objects.
    pub decoder: MaskDecoder,
    /// Decoder for single objects with a prompt.
    pub interactive_decoder: MaskDecoder,
    /// Clicks and masks as tokens.
    pub prompts: PromptEncoder,
    /// Sine encoding of the token map, `[1, side * side, c]`.
    pub positions: Tensor,
    /// Places of the token map for the propagation decoder, `[1, side * side, c]`.
    pub decoder_positions: Tensor,
    propagation: Neck,
    interactive: Neck,
    /// Rows of the time table, `[frames, c]`.
    times: Tensor,
    /// Stands for the missing memory in the interactive path, `[1, c, 1, 1]`.
    no_memory: Tensor,
    /// Added to the memory for each slot whose object is not seen, `[slots, c]`.
    no_object: Tensor,
    /// Added to the mask tokens of used and unused slots, `[slots, c]`.
    used: Tensor,
    unused: Tensor,
    mask_down: Conv,
    no_object_pointer: Linear,
    pointer_age: Linear,
    pointer: ReluStack,
    interactive_pointer: ReluStack,
    config: Sam3Config,
    dtype: DType,
    device: Device,
}

impl Tracker {
    /// Builds the tracker from canonical names: everything below `tracker.model` and the two necks
    /// it reads. The account is the caller's to settle, since a detector reads the same file.
    ///
    /// # Errors
    /// The sizes do not make a model, or the weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> Result<Self> {
        config.validate()?;
        let vision = weights.pp("detector.backbone.vision_backbone");
        let w = weights.pp("tracker.model");
        let (t, d) = (&config.tracker, config.d_model);
        let (dtype, device) = (weights.dtype(), weights.device().clone());
        let (side, slots) = (config.grid(), t.multiplex_count);
        let places = RandomPlaces::new(&w.pp("image_pe_layer"), config)?;
        let times = w.get((t.num_maskmem, 1, 1, d), "maskmem_tpos_enc")?;
        let no_memory = w.get((1, 1, d), "interactivity_no_mem_embed")?;
        Ok(Self {
            attention: MemoryAttention::new(&w.pp("transformer.encoder"), config)?,
            encoder: MemoryEncoder::new(&w.pp("maskmem_backbone"), config)?,
            decoder: MaskDecoder::new(&w.pp("sam_mask_decoder"), config, DecoderKind::Propagation)?,
            interactive_decoder: MaskDecoder::new(
                &w.pp("interactive_sam_mask_decoder"),
                config,
                DecoderKind::Interactive,
            )?,
            prompts: PromptEncoder::new(&w.pp("interactive_sam_prompt_encoder"), config)?,
            positions: sine_map(side, side, d, dtype, &device).at(STAGE)?,
            decoder_positions: places.map(side, dtype, &device).at(STAGE)?,
            propagation: Neck::new(&vision, config, NeckKind::Propagation)?,
            interactive: Neck::new(&vision, config, NeckKind::Interactive)?,
            times: times.reshape((t.num_maskmem, d)).at(STAGE)?,
            no_memory: no_memory.reshape((1, d, 1, 1)).at(STAGE)?,
            no_object: w.get((slots, d), "no_obj_embed_spatial")?,
            used: w.get((slots, d), "output_valid_embed")?,
            unused: w.get((slots, d), "output_invalid_embed")?,
            mask_down: Conv::strided(&w.pp("interactive_mask_downsample"), (1, 1), 4, (4, 0))?,
            no_object_pointer: linear(&w.pp("no_obj_ptr_linear"), d, d)?,
            pointer_age: linear(&w.pp("obj_ptr_tpos_proj"), d, d)?,
            pointer: ReluStack::new(&w.pp("obj_ptr_proj"), &[d; 4])?,
            interactive_pointer: ReluStack::new(&w.pp("interactive_obj_ptr_proj"), &[d; 4])?,
            config: config.clone(),
            dtype,
            device,
        })
    }

    /// Names and shapes of every weight it reads, in alphabetical order.
    ///
    /// # Errors
    /// The sizes do not make a model.
    pub fn layout(config: &Sam3Config) -> Result<Vec<TensorSpec>> {
        // Half precision keeps the operators from packing weights.
        let weights = WeightReader::recording(DType::F16, &Device::Cpu);
        Self::new(&weights, config)?;
        Ok(weights.specs())
    }

    /// The sizes.
    pub fn config(&self) -> &Sam3Config {
        &self.config
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The propagation neck's map of the trunk's size.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn propagation<'a>(&self, seen: &'a TrackerFeatures) -> Result<&'a Seen> {
        once(&seen.propagation, || {
            tokens(self.propagation.coarse(&seen.trunk)?)
        })
    }

    /// What the propagation decoder draws with.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn propagation_fine<'a>(&self, seen: &'a TrackerFeatures) -> Result<&'a FineMaps> {
        once(&seen.propagation_fine, || {
            self.decoder.fine_maps(&self.propagation.fine(&seen.trunk)?)
        })
    }

    /// The interactive neck's map of the trunk's size, marked as seen without memory.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn interactive<'a>(&self, seen: &'a TrackerFeatures) -> Result<&'a Seen> {
        once(&seen.interactive, || {
            let map = self.interactive.coarse(&seen.trunk)?;
            tokens(map.broadcast_add(&self.no_memory).at(STAGE)?)
        })
    }

    /// What the interactive decoder draws with.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn interactive_fine<'a>(&self, seen: &'a TrackerFeatures) -> Result<&'a FineMaps> {
        once(&seen.interactive_fine, || {
            let fine = self.interactive.fine(&seen.trunk)?;
            self.interactive_decoder.fine_maps(&fine)
        })
    }

    /// Row `i` of the time table, `[1, 1, c]`, added to the keys of a remembered map.
    ///
    /// # Errors
    /// There is no such row.
    pub fn time(&self, i: usize) -> Result<Tensor> {
        self.times
            .narrow(0, i, 1)
            .and_then(|t| t.unsqueeze(0))
            .at(STAGE)
    }

    /// Encodings `[ages, c]` of how long ago pointers were made; ages are shares of the longest.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn pointer_ages(&self, ages: &[f32]) -> Result<Tensor> {
        let d = self.config.d_model;
        Tensor::from_vec(sine_ages(ages, d), (ages.len(), d), &self.device)
            .and_then(|t| self.pointer_age.forward(&t.to_dtype(self.dtype)?))
            .at(STAGE)
    }

    /// What the propagation decoder makes of each bucket's `[1, n, c]` in the light of memory:
    /// `conditioned` is `[buckets, n, c]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn decode(&self, conditioned: &Tensor, slots: &Multiplex) -> Result<Decoded> {
        let marks = || {
            let used: Vec<u8> = slots
                .buckets()
                .iter()
                .flatten()
                .map(|slot| u8::from(matches!(slot, Slot::Object(_))))
                .collect();
            let (b, s, d) = (slots.buckets().len(), slots.slots(), self.config.d_model);
            let used = Tensor::from_vec(used, (b, s, 1), &self.device)?;
            let spread = |t: &Tensor| t.unsqueeze(0)?.broadcast_as((b, s, d));
            used.broadcast_as((b, s, d))?
                .where_cond(&spread(&self.used)?, &spread(&self.unused)?)
        };
        let extra = marks().at(STAGE)?;
        let places = &self.decoder_positions;
        self.decoder.decode(conditioned, places, Some(&extra), None)
    }

    /// Picks and draws the best mask of each object.
    ///
    /// # Errors
    /// A value that is not finite, or the tensor library failed.
    pub fn draw(
        &self,
        decoded: &Decoded,
        fine: &FineMaps,
        slots: &Multiplex,
    ) -> Result<SeenObjects> {
        let scores: Vec<Vec<f32>> = floats(&decoded.scores)?;
        let qualities = decoded.qualities.flatten(0, 1).at(STAGE)?;
        let qualities: Vec<Vec<f32>> = floats(&qualities)?;
        let places = slots.places();
        let best: Vec<usize> = places
            .iter()
            .map(|(b, s)| first_best(&qualities[b * slots.slots() + s]))
            .collect();
        let scores: Vec<f32> = places.iter().map(|(b, s)| scores[*b][*s]).collect();
        finite(&scores)?;
        let masks = self.config.tracker.num_multimask;
        let run = || {
            let rows: Vec<u32> = places
                .iter()
                .zip(&best)
                .map(|((b, s), m)| ((b * slots.slots() + s) * masks + m) as u32)
                .collect();
            let rows = Tensor::from_vec(rows, places.len(), &self.device)?;
            let tokens = decoded.tokens.flatten(0, 2)?.index_select(&rows, 0)?;
            let pointers = self.pointer.forward(&tokens)?;
            self.where_seen(&pointers, &scores)
        };
        let pointers = run().at(STAGE)?;
        let chosen: Vec<(usize, usize, usize)> = places
            .iter()
            .zip(&best)
            .zip(&scores)
            .filter(|(_, score)| **score > 0.0)
            .map(|(((b, s), m), _)| (*b, *s, *m))
            .collect();
        let drawn = if chosen.is_empty() {
            None
        } else {
            Some(self.decoder.draw(decoded, fine, &chosen)?)
        };
        let masks = self.with_absent(drawn, &scores).at(STAGE)?;
        Ok(SeenObjects {
            masks,
            scores,
            pointers,
        })
    }

    /// Puts the masks of the seen objects among those of the others.
    fn with_absent(&self, drawn: Option<Tensor>, scores: &[f32]) -> candle_core::Result<Tensor> {
        let side = self.config.mask_size();
        let absent = Tensor::full(ABSENT, (1, side, side), &self.device)?;
        let Some(drawn) = drawn else {
            return absent.repeat((scores.len(), 1, 1));
        };
        let drawn = drawn.to_dtype(DType::F32)?;
        if scores.iter().all(|score| *score > 0.0) {
            return Ok(drawn);
        }
        let mut next = 0;
        let mut rows = Vec::with_capacity(scores.len());
        for score in scores {
            if *score > 0.0 {
                rows.push(drawn.narrow(0, next, 1)?);
                next += 1;
            } else {
                rows.push(absent.clone());
            }
        }
        Tensor::cat(&rows, 0)
    }

    /// The pointers `[n, c]` of objects that are seen, and for the others what stands for them.
    fn where_seen(&self, pointers: &Tensor, scores: &[f32]) -> candle_core::Result<Tensor> {
        if scores.iter().all(|score| *score > 0.0) {
            return Ok(pointers.clone());
        }
        let seen: Vec<u8> = scores.iter().map(|score| u8::from(*score > 0.0)).collect();
        let seen = Tensor::from_vec(seen, (scores.len(), 1), pointers.device())?;
        let gone = self.no_object_pointer.forward(pointers)?;
        seen.broadcast_as(pointers.dims())?
            .where_cond(pointers, &gone)
    }

    /// The pointers of masks that are given: `masks` is `[n, 1, s, s]` of 0 and 1 with `s` 16 times
    /// the side of the token map, `empty` says which have no pixel. Gives `[n, c]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn mask_pointers(
        &self,
        seen: &TrackerFeatures,
        masks: &Tensor,
        empty: &[bool],
    ) -> Result<Tensor> {
        let picture = &self.interactive(seen)?.map;
        let n = empty.len();
        let mut parts = Vec::with_capacity(n.div_ceil(INTERACTIVE_AT_ONCE));
        for first in (0..n).step_by(INTERACTIVE_AT_ONCE) {
            let count = INTERACTIVE_AT_ONCE.min(n - first);
            let masks = masks.narrow(0, first, count).at(STAGE)?;
            let small = self.mask_down(&masks)?;
            let dense = self.prompts.masks(&small)?;
            let decoded = self.prompted(picture, &dense, &self.prompts.no_clicks()?)?;
            let scores: Vec<Vec<f32>> = floats(&decoded.scores)?;
            let scores: Vec<f32> = scores.concat();
            finite(&scores)?;
            let given: Vec<f32> = empty[first..first + count]
                .iter()
                .map(|empty| if *empty { -1.0 } else { 1.0 })
                .collect();
            let run = || {
                let token = decoded
                    .tokens
                    .narrow(2, 0, 1)?
                    .flatten(0, 2)?
                    .contiguous()?;
                let pointers = self.interactive_pointer.forward(&token)?;
                self.where_seen(&self.where_seen(&pointers, &scores)?, &given)
            };
            parts.push(run().at(STAGE)?);
        }
        Tensor::cat(&parts, 0).at(STAGE)
    }

    /// Masks `[n, 1, s, s]` brought to the size of the prompt encoder, a quarter of theirs.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn mask_down(&self, masks: &Tensor) -> Result<Tensor> {
        let masks = masks.to_dtype(self.dtype).at(STAGE)?;
        self.mask_down.forward(&masks).at(STAGE)
    }

    /// The interactive decoder over `picture` `[1, c, side, side]` with a prompt: `dense`
    /// `[n, c, side, side]` is added to it, `sparse` `[1, k, c]` are further tokens.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn prompted(&self, picture: &Tensor, dense: &Tensor, sparse: &Tensor) -> Result<Decoded> {
        let run = || {
            let picture = picture.broadcast_add(dense)?;
            let tokens = picture.flatten_from(2)?.transpose(1, 2)?.contiguous()?;
            let n = tokens.dim(0)?;
            let (_, k, d) = sparse.dims3()?;
            Ok((tokens, sparse.broadcast_as((n, k, d))?))
        };
        let (picture, sparse) = run().at(STAGE)?;
        let places = self.prompts.positions();
        self.interactive_decoder
            .decode(&picture, places, None, Some(&sparse))
    }

    /// The object that clicks point at. One click may mean several things, so the best of several
    /// masks is taken; more clicks give one mask, unless it is unsure of too many pixels.
    ///
    /// # Errors
    /// No click, one outside the frame, or a value that is not finite.
    pub fn clicked(&self, seen: &TrackerFeatures, clicks: &[Click]) -> Result<SeenObjects> {
        let inside = |c: &Click| (0.0..=1.0).contains(&c.x) && (0.0..=1.0).contains(&c.y);
        if clicks.is_empty() || !clicks.iter().all(inside) {
            return Err(Error::InvalidInput(
                "pass at least one click, with places in 0 to 1 of the frame".into(),
            ));
        }
        let picture = &self.interactive(seen)?.map;
        let sparse = self.prompts.clicks(clicks)?;
        let decoded = self.prompted(picture, self.prompts.no_mask(), &sparse)?;
        let fine = self.interactive_fine(seen)?;
        let qualities = decoded.qualities.flatten_all().at(STAGE)?;
        let qualities: Vec<f32> = qualities
            .to_dtype(DType::F32)
            .and_then(|q| q.to_vec1())
            .at(STAGE)?;
        let scores: Vec<Vec<f32>> = floats(&decoded.scores)?;
        let scores = scores.concat();
        finite(&scores)?;
        finite(&qualities)?;
        let best = 1 + first_best(&qualities[1..]);
        let (mut mask, token) = if clicks.len() == 1 {
            (best, best)
        } else {
            (0, 0)
        };
        let mut drawn = self
            .interactive_decoder
            .draw(&decoded, fine, &[(0, 0, mask)])?;
        if mask == 0 && stability(&drawn).at(STAGE)? < STABILITY_THRESHOLD {
            mask = best;
            drawn = self
                .interactive_decoder
                .draw(&decoded, fine, &[(0, 0, mask)])?;
        }
        let run = || {
            let token = decoded
                .tokens
                .narrow(2, token, 1)?
                .flatten(0, 2)?
                .contiguous()?;
            let pointers = self.interactive_pointer.forward(&token)?;
            let drawn = (scores[0] > 0.0).then_some(drawn);
            Ok((
                self.where_seen(&pointers, &scores)?,
                self.with_absent(drawn, &scores)?,
            ))
        };
        let (pointers, masks) = run().at(STAGE)?;
        Ok(SeenObjects {
            masks,
            scores,
            pointers,
        })
    }

    /// The memory of a frame, `[buckets, side * side, c]`, made bucket by bucket. `masks` gives the
    /// logits `[objects, h, w]` of the objects it is asked for; `present` and `given` say for every
    /// object of the state whether it is in the frame, and whether its mask was given there.
    ///
    /// # Errors
    /// The tensor library failed, or `masks` did.
    pub fn encode(
        &self,
        seen: &TrackerFeatures,
        slots: &Multiplex,
        (present, given): (&[bool], &[bool]),
        precision: MemoryPrecision,
        mut masks: impl FnMut(&[usize]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let map = &self.propagation(seen)?.map;
        let mut buckets = Vec::with_capacity(slots.buckets().len());
        for bucket in slots.buckets() {
            let objects: Vec<usize> = bucket
                .iter()
                .filter_map(|slot| match slot {
                    Slot::Object(object) => Some(*object),
                    Slot::Free | Slot::Removed => None,
                })
                .collect();
            let logits = masks(&objects)?;
            let input = self.encoder_input(bucket, &logits, given).at(STAGE)?;
            let memory = self.encoder.forward(map, &input)?;
            let run = || {
                let memory = memory.broadcast_add(&self.absence(bucket, present)?)?;
                let tokens = memory.flatten_from(2)?.transpose(1, 2)?.contiguous()?;
                precision.store(&tokens)
            };
            buckets.push(run().at(STAGE)?);
        }
        Tensor::cat(&buckets, 0).at(STAGE)
    }

    /// Two channels a slot, `[1, 2 slots, s, s]`; `logits` are those of the bucket's objects.
    fn encoder_input(
        &self,
        bucket: &[Slot],
        logits: &Tensor,
        given: &[bool],
    ) -> candle_core::Result<Tensor> {
        let (n, h, w) = logits.dims3()?;
        let logits = logits.reshape((1, n, h, w))?;
        let side = self.encoder.side();
        let spread = Activation::Sigmoid.forward(&logits)?.affine(2.0, -1.0)?;
        // Resized before the slots are filled in, so that free slots cost nothing.
        let spread = if (h, w) == (side, side) {
            spread
        } else {
            resize_2d(&spread, side, side, Sampling::bilinear(true))?
        };
        let spread = spread.to_dtype(self.dtype)?;
        let zeros = Tensor::zeros((1, 1, side, side), self.dtype, &self.device)?;
        let ones = Tensor::ones((1, 1, side, side), self.dtype, &self.device)?;
        let mut channels = Vec::with_capacity(2 * bucket.len());
        let mut next = 0;
        for slot in bucket {
            channels.push(if matches!(slot, Slot::Object(_)) {
                next += 1;
                spread.narrow(1, next - 1, 1)?
            } else {
                zeros.clone()
            });
        }
        for slot in bucket {
            channels.push(match slot {
                Slot::Object(object) if given.get(*object) == Some(&true) => ones.clone(),
                _ => zeros.clone(),
            });
        }
        Tensor::cat(&channels, 1)
    }

    /// What is added to the memory for the slots without an object in the frame, `[1, c, 1, 1]`.
    fn absence(&self, bucket: &[Slot], present: &[bool]) -> candle_core::Result<Tensor> {
        let missing: Vec<f32> = bucket
            .iter()
            .map(|slot| match slot {
                Slot::Object(object) if present.get(*object) == Some(&true) => 0.0,
                _ => 1.0,
            })
            .collect();
        let missing = Tensor::from_vec(missing, (1, bucket.len()), &self.device)?;
        let added = missing.to_dtype(self.dtype)?.matmul(&self.no_object)?;
        added.reshape((1, (), 1, 1))
    }
}

/// Pointers `[n, c]` in the slots of their objects, `[buckets, slots, c]`; zeros in the others.
pub(crate) fn in_slots(pointers: &Tensor, slots: &Multiplex) -> Result<Tensor> {
    let run = || {
        let (n, d) = pointers.dims2()?;
        let row = |slot: &Slot| match slot {
            Slot::Object(object) => *object as u32,
            Slot::Free | Slot::Removed => n as u32,
        };
        let rows: Vec<u32> = slots.buckets().iter().flatten().map(row).collect();
        let zeros = Tensor::zeros((1, d), pointers.dtype(), pointers.device())?;
        let padded = Tensor::cat(&[pointers, &zeros], 0)?;
        let rows = Tensor::new(rows, pointers.device())?;
        let muxed = padded.index_select(&rows, 0)?;
        muxed.reshape((slots.buckets().len(), slots.slots(), d))
    };
    run().at(STAGE)
}

/// A map and its tokens.
fn tokens(map: Tensor) -> Result<Seen> {
    let tokens = map
        .flatten_from(2)
        .and_then(|t| t.transpose(1, 2)?.contiguous())
        .at(STAGE)?;
    Ok(Seen { map, tokens })
}

fn floats(x: &Tensor) -> Result<Vec<Vec<f32>>> {
    x.to_dtype(DType::F32).and_then(|x| x.to_vec2()).at(STAGE)
}

fn finite(values: &[f32]) -> Result<()> {
    if values.iter().all(|v| v.is_finite()) {
        Ok(())
    } else {
        Err(Error::NonFinite { stage: STAGE })
    }
}

/// Index of the largest value, the first of equals.
fn first_best(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best
}

/// Pixels that are surely the object over those that may be.
fn stability(mask: &Tensor) -> candle_core::Result<f32> {
    let values: Vec<f32> = mask.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    let above = |bar: f32| values.iter().filter(|v| **v > bar).count();
    let (sure, possible) = (above(STABILITY_DELTA), above(-STABILITY_DELTA));
    Ok(if possible == 0 {
        1.0
    } else {
        sure as f32 / possible as f32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker_layout;

    #[test]
    fn the_tracker_reads_what_a_detector_expects_to_find_beside_it() {
        let config = Sam3Config::sam3_1();
        let read = Tracker::layout(&config).unwrap();
        let expected = WeightReader::recording(DType::F16, &Device::Cpu);
        let vision = expected.pp("detector.backbone.vision_backbone");
        tracker_layout::expect(&vision, &expected.pp("tracker.model"), &config);
        assert_eq!(read, expected.specs());
        let own = read.iter().filter(|spec| spec.key.starts_with("tracker."));
        assert_eq!(own.count(), 457);
    }

    #[test]
    fn the_first_of_equally_good_masks_is_taken() {
        assert_eq!(first_best(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(first_best(&[2.0, 2.0]), 0);
    }
}
