//! Every stage of the tracker against the reference, on a small model with random weights.
#![allow(clippy::unwrap_used)]

#[path = "sam3_support/places.rs"]
mod places;
#[path = "sam3_support/tracker.rs"]
mod tracker_support;

use std::path::PathBuf;

use candle_core::Tensor;
use places::{shared, small_config};
use shelfscan_inference_core::TrackId;
use shelfscan_model_kit::ops::{Sampling, resize_2d};
use shelfscan_sam3::{
    MaskLogits,
    tracker::{
        Click, ClickKind, Contest, Decoded, MaskPropagator, MemoryPrecision, SessionOptions, Slot,
        TrackerFeatures, TrackerSession,
    },
};
use tracker_support::{Model, Stages, as_logits, floats, frame};

const SEEDS: [&str; 2] = ["seed0", "seed1"];
/// Bars of the reference's own noise between builds and thread counts, times ten.
const FEATURES: f32 = 1e-4;
const MASKS: f32 = 3e-4;
/// The same for logits of a thousand, in which single precision is that much coarser.
const GIVEN_MASKS: f32 = 1e-3;
/// Rounding of memories to bf16 falls differently in a few places.
const ROUNDED: f32 = 5e-2;

/// Weights, stage tensors and frames of a seed.
struct Reference {
    model: Model,
    stages: Stages,
    frames: (Vec<usize>, Vec<f32>),
}

impl Reference {
    /// None, with a line printed, when they do not lie beside the workspace.
    fn open(seed: &str) -> Option<Self> {
        let all = shared("sam3/fixtures")?;
        let weights: PathBuf = all.join(seed).join("model.safetensors");
        let video = Stages::open(&all.join("seed0/video_random.safetensors"));
        Some(Self {
            model: Model::open(&[weights], small_config()),
            stages: Stages::open(&all.join(seed).join("tracker.safetensors")),
            frames: video.get("frames_u8"),
        })
    }

    fn see(&self, t: usize) -> std::sync::Arc<TrackerFeatures> {
        self.model.features(&frame(&self.frames, t))
    }

    /// A session in which the five objects of the reference were given in frame 0.
    fn begin(&self, precision: MemoryPrecision) -> TrackerSession {
        let mut session = self.session(precision);
        session.see(self.see(0));
        let (shape, bits) = self.stages.bits("in.masks_256_packed");
        session
            .add(0, &self.ids(), &as_logits(&shape, &bits))
            .unwrap();
        session
    }

    fn session(&self, precision: MemoryPrecision) -> TrackerSession {
        let options = SessionOptions {
            frames: Some(6),
            precision,
            ..SessionOptions::default()
        };
        TrackerSession::new(self.model.tracker.clone(), options).unwrap()
    }

    fn ids(&self) -> Vec<TrackId> {
        let ids = self.stages.values("in.obj_ids");
        ids.iter().map(|id| TrackId(*id as u64)).collect()
    }

    fn check_memory(&self, session: &TrackerSession, t: usize, bar: f32) {
        let (map, pointers) = session.remembered(0, t).unwrap();
        let map = map.unwrap().transpose(1, 2).unwrap();
        self.stages
            .check(&format!("frame{t}.maskmem_features"), &map, bar);
        self.stages
            .check(&format!("frame{t}.obj_ptr_mux"), pointers, bar);
    }
}

#[test]
fn objects_are_followed_as_by_the_reference() {
    for seed in SEEDS {
        let Some(mut reference) = Reference::open(seed) else {
            return;
        };
        for precision in [MemoryPrecision::Full, MemoryPrecision::Bf16] {
            let full = precision == MemoryPrecision::Full;
            reference.stages.variant = if full { "f32mem." } else { "" };
            reference.stages.checked.set(0);
            let (features, masks) = if full {
                (FEATURES, MASKS)
            } else {
                (ROUNDED, ROUNDED)
            };
            let mut session = reference.begin(precision);
            let stages = &reference.stages;
            let stored = session.propagate(0).unwrap();
            assert_eq!(stored.ids, reference.ids());
            stages.check_values("frame0.object_score_logits", &stored.scores, 0.0);
            stages.check_values("frame0.pred_masks", &stored.masks.values, GIVEN_MASKS);
            reference.check_memory(&session, 0, features);
            for t in 1..4 {
                session.see(reference.see(t));
                let got = session.follow(t).unwrap();
                let key = |name: &str| format!("frame{t}.{name}");
                stages.check_values(&key("object_score_logits"), &got.scores, features);
                stages.check_values(&key("low_res_masks"), &got.masks.values, masks);
                reference.check_memory(&session, t, features);
            }
            let least = if seed == "seed0" || !full { 16 } else { 8 };
            assert!(
                stages.checked.get() >= least,
                "{} stages",
                stages.checked.get()
            );
        }
    }
}

#[test]
fn slots_are_filled_in_order_and_free_ones_stay_empty() {
    let Some(reference) = Reference::open("seed0") else {
        return;
    };
    let session = reference.begin(MemoryPrecision::Full);
    let states = session.roster().states();
    assert_eq!(states.len(), 1);
    let slots = states[0].slots.buckets().iter().flatten();
    let numbers: Vec<f32> = slots
        .map(|slot| match slot {
            Slot::Object(object) => *object as f32,
            Slot::Free => -1.0,
            Slot::Removed => -1116.0,
        })
        .collect();
    assert_eq!(numbers, reference.stages.values("frame0.assignments"));
}

#[test]
fn memory_attention_follows_the_reference_layer_by_layer() {
    for seed in SEEDS {
        let Some(mut reference) = Reference::open(seed) else {
            return;
        };
        let tracker = reference.model.tracker.clone();
        let attend = |session: &TrackerSession, t: usize| {
            let seen = reference.see(t);
            let memory = session.memory_tokens(0, t).unwrap();
            let picture = &tracker.propagation(&seen).unwrap().tokens;
            let stages = tracker
                .attention
                .forward_stages(picture, &tracker.positions, &memory);
            (memory, picture.clone(), stages.unwrap())
        };
        // The layers were recorded with rounded memory, the result of all with whole memory too.
        for precision in [MemoryPrecision::Bf16, MemoryPrecision::Full] {
            let mut session = reference.begin(precision);
            let exact = precision == MemoryPrecision::Full;
            for t in 1..4 {
                let (memory, picture, got) = attend(&session, t);
                let key = |name: &str| format!("frame{t}.memattn.{name}");
                let stages = &reference.stages;
                let bar = if exact { FEATURES } else { ROUNDED };
                let out = got.out.transpose(0, 1).unwrap();
                if exact {
                    let key = format!("f32mem.{}", key("out"));
                    stages.check(&key, &out, bar);
                } else {
                    stages.check(&key("out"), &out, bar);
                    for (i, layer) in got.layers.iter().enumerate() {
                        stages.check(&key(&format!("layer{i}")), layer, bar);
                    }
                    let parts = memory.buckets.iter().map(|parts| {
                        let parts: Vec<Tensor> = parts
                            .iter()
                            .map(|p| p.to_dtype(candle_core::DType::F32).unwrap())
                            .collect();
                        Tensor::cat(&parts, 1).unwrap()
                    });
                    let objects = Tensor::cat(&parts.collect::<Vec<_>>(), 0).unwrap();
                    stages.check(&key("in.memory"), &objects.transpose(0, 1).unwrap(), bar);
                    let cells = memory.pictures.narrow(1, 0, memory.cells).unwrap();
                    stages.check(&key("in.memory_image"), &cells, FEATURES);
                    let n = memory.buckets.len();
                    let positions = memory.positions.repeat((n, 1, 1)).unwrap();
                    let positions = positions.transpose(0, 1).unwrap();
                    stages.check(&key("in.memory_pos"), &positions, FEATURES);
                    let source = picture.repeat((n, 1, 1)).unwrap().transpose(0, 1).unwrap();
                    stages.check(&key("in.src"), &source, FEATURES);
                    if stages.has(&key("num_obj_ptr_tokens")) {
                        let pointers = memory.positions.dims()[1] - memory.cells;
                        let want = stages.values(&key("num_obj_ptr_tokens"));
                        assert_eq!(want, [pointers as f32]);
                    }
                }
                session.see(reference.see(t));
                session.follow(t).unwrap();
            }
        }
        reference.stages.variant = "";
        // Frame 3 reads the conditioning frame, then one and two frames back.
        let ages = tracker
            .pointer_ages(&[3.0 / 5.0, 1.0 / 5.0, 2.0 / 5.0])
            .unwrap();
        reference
            .stages
            .check("frame3.tpos_proj_out", &ages, FEATURES);
    }
}

#[test]
fn the_mask_decoder_follows_the_reference() {
    for seed in SEEDS {
        let Some(reference) = Reference::open(seed) else {
            return;
        };
        let stages = &reference.stages;
        let tracker = &reference.model.tracker;
        let session = reference.begin(MemoryPrecision::Bf16);
        let slots = &session.roster().states()[0].slots;
        let seen = reference.see(1);
        let key = |name: &str| format!("frame1.maskdec.{name}");
        let places = tracker.decoder_positions.transpose(1, 2).unwrap();
        stages.check(&key("image_pe"), &places, 1e-5);
        let input = stages.tensor(&key("image_embed")).flatten_from(2).unwrap();
        let input = input.transpose(1, 2).unwrap().contiguous().unwrap();
        let decoded = tracker.decode(&input, slots).unwrap();
        stages.check(&key("iou"), &decoded.qualities, FEATURES);
        stages.check(&key("obj_score"), &decoded.scores, FEATURES);
        stages.check(&key("tokens"), &decoded.tokens, FEATURES);
        stages.check(&key("twoway_tokens_in"), &decoded.stages.start, FEATURES);
        for (i, layer) in decoded.stages.layers.iter().enumerate() {
            stages.check(&key(&format!("twoway_layer{i}_tokens")), layer, FEATURES);
        }
        stages.check(&key("twoway_tokens_out"), &decoded.stages.tokens, FEATURES);
        stages.check(&key("twoway_image_out"), &decoded.stages.picture, FEATURES);
        let fine = tracker.propagation_fine(&seen).unwrap();
        let all: Vec<(usize, usize, usize)> =
            (0..2 * 4 * 3).map(|i| (i / 12, i / 3 % 4, i % 3)).collect();
        let drawn = tracker.decoder.draw(&decoded, fine, &all).unwrap();
        stages.check(&key("masks"), &drawn, MASKS);
        let objects = tracker.draw(&decoded, fine, slots).unwrap();
        stages.check(
            "frame1.object_score_logits",
            &vector(&objects.scores),
            FEATURES,
        );
        stages.check("frame1.low_res_masks", &objects.masks, MASKS);
        // Recorded before pointers of objects that are not in the frame are replaced.
        if objects.scores.iter().all(|score| *score > 0.0) {
            stages.check("frame1.obj_ptr_raw", &objects.pointers, FEATURES);
        }
    }
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, values.len(), &candle_core::Device::Cpu).unwrap()
}

#[test]
fn the_necks_give_what_the_decoders_draw_with() {
    for seed in SEEDS {
        let Some(reference) = Reference::open(seed) else {
            return;
        };
        let (stages, tracker) = (&reference.stages, &reference.model.tracker);
        let seen = reference.see(0);
        // The propagation decoder first draws in frame 1.
        let next = reference.see(1);
        let (large, middle) = tracker.propagation_fine(&next).unwrap();
        stages.check("highres_s0_propagation", large, FEATURES);
        stages.check("highres_s1_propagation", middle, FEATURES);
        let (large, middle) = tracker.interactive_fine(&seen).unwrap();
        stages.check("highres_s0_interactive", large, FEATURES);
        stages.check("highres_s1_interactive", middle, FEATURES);
        let map = &tracker.propagation(&seen).unwrap().map;
        stages.check("memenc.pix_feat", map, FEATURES);
        let map = &tracker.interactive(&seen).unwrap().map;
        stages.check("maskinput.image_embed", map, FEATURES);
    }
}

#[test]
fn given_masks_become_pointers_as_in_the_reference() {
    for seed in SEEDS {
        let Some(reference) = Reference::open(seed) else {
            return;
        };
        let (stages, tracker) = (&reference.stages, &reference.model.tracker);
        let seen = reference.see(0);
        let (shape, bits) = stages.bits("in.masks_256_packed");
        let values: Vec<f32> = bits.iter().map(|b| f32::from(u8::from(*b))).collect();
        let shape = (shape[0], 1, shape[1], shape[2]);
        let masks = Tensor::from_vec(values, shape, &candle_core::Device::Cpu).unwrap();
        let small = tracker.mask_down(&masks).unwrap();
        stages.check("maskinput.downsample_out", &small, FEATURES);
        let picture = &tracker.interactive(&seen).unwrap().map;
        let dense = tracker.prompts.masks(&small).unwrap();
        let sparse = tracker.prompts.no_clicks().unwrap();
        let repeated = sparse.repeat((5, 1, 1)).unwrap();
        stages.check("maskinput.sparse", &repeated, FEATURES);
        let places = tracker.prompts.positions().transpose(1, 2).unwrap();
        stages.check("maskinput.image_pe", &places, 1e-5);
        let decoded = tracker.prompted(picture, &dense, &sparse).unwrap();
        stages.check("maskinput.dec_obj_score", &decoded.scores, FEATURES);
        stages.check(
            "maskinput.dec_tokens",
            &decoded.tokens.narrow(2, 0, 1).unwrap(),
            FEATURES,
        );
        let empty: Vec<bool> = bits
            .chunks_exact(256 * 256)
            .map(|mask| !mask.contains(&true))
            .collect();
        assert!(empty.contains(&true), "one mask of the reference is empty");
        let pointers = tracker.mask_pointers(&seen, &masks, &empty).unwrap();
        let session = reference.begin(MemoryPrecision::Full);
        let (_, muxed) = session.remembered(0, 0).unwrap();
        let muxed = muxed.flatten(0, 1).unwrap().narrow(0, 0, 5).unwrap();
        assert_eq!(floats(&pointers), floats(&muxed));
        stages.check(
            "frame0.obj_ptr_mux",
            session.remembered(0, 0).unwrap().1,
            FEATURES,
        );
    }
}

#[test]
fn clicks_begin_an_object_as_in_the_reference() {
    for seed in SEEDS {
        let Some(reference) = Reference::open(seed) else {
            return;
        };
        let (stages, tracker) = (&reference.stages, &reference.model.tracker);
        let seen = reference.see(0);
        for case in ["points1", "points3"] {
            let key = |name: &str| format!("{case}.{name}");
            let places = stages.values(&key("rel_xy"));
            let kinds: &[ClickKind] = match case {
                "points1" => &[ClickKind::On],
                _ => &[ClickKind::On, ClickKind::Beside, ClickKind::On],
            };
            let clicks: Vec<Click> = places
                .chunks_exact(2)
                .zip(kinds)
                .map(|(place, kind)| Click {
                    x: place[0],
                    y: place[1],
                    kind: *kind,
                })
                .collect();
            let sparse = tracker.prompts.clicks(&clicks).unwrap();
            stages.check(&key("sparse"), &sparse, FEATURES);
            let no_mask = tracker.prompts.no_mask();
            if stages.has(&key("dense")) {
                stages.check(&key("dense"), no_mask, FEATURES);
            }
            let picture = &tracker.interactive(&seen).unwrap().map;
            let decoded = tracker.prompted(picture, no_mask, &sparse).unwrap();
            stages.check(&key("dec_obj_score"), &decoded.scores, FEATURES);
            if clicks.len() == 1 {
                let several = |t: &Tensor| t.narrow(2, 1, 3).unwrap();
                stages.check(&key("dec_iou"), &several(&decoded.qualities), FEATURES);
                stages.check(&key("dec_tokens"), &several(&decoded.tokens), FEATURES);
                let drawn = draw(&reference, &decoded, &seen, &[1, 2, 3]);
                stages.check(&key("dec_masks"), &drawn, MASKS);
            } else {
                let token = decoded.tokens.narrow(2, 0, 1).unwrap();
                stages.check(&key("dec_tokens"), &token, FEATURES);
                // The quality is that of the mask that was taken in the end.
                let want = stages.values(&key("dec_iou"))[0];
                let known = floats(&decoded.qualities);
                assert!(
                    known.iter().any(|q| (q - want).abs() < FEATURES),
                    "{known:?}"
                );
            }
            let mut session = reference.session(MemoryPrecision::Full);
            session.see(seen.clone());
            let got = session.add_clicked(0, TrackId(1), &clicks).unwrap();
            stages.check_values(&key("pred_masks"), &got.masks.values, MASKS);
            let (_, pointers) = session.remembered(0, 0).unwrap();
            stages.check(&key("obj_ptr_mux"), pointers, FEATURES);
            let side = got.masks.side;
            let mask = vector(&got.masks.values)
                .reshape((1, 1, side, side))
                .unwrap();
            let large = resize_2d(&mask, 150, 200, Sampling::bilinear(false)).unwrap();
            let rows = large.narrow(2, 40, 20).unwrap();
            stages.check(&key("video_res_masks_rows40_60"), &rows, MASKS);
        }
    }
}

fn draw(
    reference: &Reference,
    decoded: &Decoded,
    seen: &TrackerFeatures,
    masks: &[usize],
) -> Tensor {
    let tracker = &reference.model.tracker;
    let fine = tracker.interactive_fine(seen).unwrap();
    let chosen: Vec<(usize, usize, usize)> = masks.iter().map(|mask| (0, 0, *mask)).collect();
    tracker
        .interactive_decoder
        .draw(decoded, fine, &chosen)
        .unwrap()
}

#[test]
fn the_memory_encoder_follows_the_reference_on_masks_of_another_size() {
    let Some(reference) = Reference::open("seed0") else {
        return;
    };
    let (stages, tracker) = (&reference.stages, &reference.model.tracker);
    let map = stages.tensor("memenc.pix_feat");
    let masks = stages.tensor("memenc_unit.masks_64");
    let side = tracker.encoder.side();
    assert_eq!(side, 256);
    let large = resize_2d(&masks, side, side, Sampling::bilinear(true)).unwrap();
    let rows = large.narrow(1, 0, 1).unwrap().narrow(2, 0, 8).unwrap();
    stages.check("memenc_unit.masks_resized_256_ch0_rows0_8", &rows, 1e-5);
    let out = tracker.encoder.forward(&map, &masks).unwrap();
    stages.check("memenc_unit.out", &out, FEATURES);
    let positions = tracker.positions.transpose(1, 2).unwrap();
    stages.check("memenc_unit.pos", &positions, 1e-5);
}

#[test]
fn overlapping_masks_are_settled_as_in_the_reference() {
    let Some(all) = shared("sam3/fixtures") else {
        return;
    };
    let stages = Stages::open(&all.join("common/nms_overlap.safetensors"));
    let (shape, values) = stages.get("overlap.logits");
    let (count, side) = (shape[0], shape[2]);
    let masks = MaskLogits { side, values };
    let contest = Contest::hold(&masks, count, side).unwrap();
    let mut settled = masks.values.clone();
    for (i, plane) in settled.chunks_exact_mut(side * side).enumerate() {
        contest.settle(i, plane);
    }
    stages.check_values("overlap.pixelwise", &settled, 1e-6);
    // None of them loses enough of itself to be held back from memory.
    assert_eq!(contest.shrunk(0.3), vec![false; count]);
    stages.check_values("overlap.area_shrink_suppressed", &masks.values, 0.0);
}
