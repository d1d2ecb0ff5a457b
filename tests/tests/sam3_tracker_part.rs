//! The tracker against the part of the reference that lies with the code.
#![allow(clippy::unwrap_used)]

#[path = "sam3_support/places.rs"]
mod places;
#[path = "sam3_support/tracker.rs"]
mod tracker_support;

use candle_core::Tensor;
use places::{fixture, small_config};
use shelfscan_inference_core::RgbImage;
use shelfscan_sam3::tracker::{MemoryTokens, Multiplex};
use tracker_support::{Model, Stages, close, floats, in_half};

/// Values kept of each stage tensor, as in the script that cut the fixtures.
const LIMIT: usize = 192;
const FEATURES: f32 = 1e-4;
const MASKS: f32 = 3e-4;

fn open() -> (Model, Stages) {
    let file = fixture("tracker.safetensors");
    let files = [fixture("seed0.safetensors"), file.clone()];
    (Model::open(&files, small_config()), Stages::open(&file))
}

fn picture(name: &str) -> RgbImage {
    let image = image::open(fixture(name)).unwrap().to_rgb8();
    RgbImage::new(image.width(), image.height(), image.into_raw()).unwrap()
}

fn check(stages: &Stages, key: &str, got: &Tensor, bar: f32) {
    let got = floats(got);
    let step = got.len().div_ceil(LIMIT);
    let kept: Vec<f32> = got.into_iter().step_by(step).collect();
    close(key, &kept, &stages.values(key), bar);
}

#[test]
fn a_frame_is_seen_in_the_light_of_the_one_before_as_by_the_reference() {
    let (model, stages) = open();
    let tracker = &model.tracker;
    let before = model.features_of(&in_half(&picture("frame.png")), (200, 150));
    let now = model.features(&picture("frame1.png"));

    // Frame 0 was given, one frame ago; its pointers have no place in the picture.
    let maps = stages
        .tensor("frame0.maskmem_features")
        .flatten_from(2)
        .unwrap();
    let maps = maps.transpose(1, 2).unwrap().contiguous().unwrap();
    let pointers = stages.tensor("frame0.obj_ptr_mux");
    let bucket = |b: usize| {
        let part = |t: &Tensor| t.narrow(0, b, 1).unwrap();
        vec![part(&maps), part(&pointers)]
    };
    let age = tracker.pointer_ages(&[1.0 / 5.0]).unwrap();
    check(&stages, "frame1.tpos_proj_out", &age, FEATURES);
    let ages = age.repeat((4, 1)).unwrap().unsqueeze(0).unwrap();
    let time = tracker.time(5).unwrap();
    let cells = tracker.positions.broadcast_add(&time).unwrap();
    let seen = &tracker.propagation(&before).unwrap().tokens;
    let memory = MemoryTokens {
        buckets: vec![bucket(0), bucket(1)],
        pictures: Tensor::cat(&[seen, &ages.zeros_like().unwrap()], 1).unwrap(),
        positions: Tensor::cat(&[&cells, &ages], 1).unwrap(),
        cells: 256,
    };
    let tokens = &tracker.propagation(&now).unwrap().tokens;
    let attention = tracker
        .attention
        .forward_stages(tokens, &tracker.positions, &memory);
    let attention = attention.unwrap();
    for (i, layer) in attention.layers.iter().enumerate() {
        check(
            &stages,
            &format!("frame1.memattn.layer{i}"),
            layer,
            FEATURES,
        );
    }
    let out = attention.out.transpose(0, 1).unwrap();
    check(&stages, "frame1.memattn.out", &out, FEATURES);

    let slots = Multiplex::new(4, 5);
    let decoded = tracker.decode(&attention.out, &slots).unwrap();
    check(
        &stages,
        "frame1.maskdec.twoway_tokens_in",
        &decoded.stages.start,
        FEATURES,
    );
    check(
        &stages,
        "frame1.maskdec.twoway_tokens_out",
        &decoded.stages.tokens,
        FEATURES,
    );
    check(&stages, "frame1.maskdec.iou", &decoded.qualities, FEATURES);
    check(
        &stages,
        "frame1.maskdec.obj_score",
        &decoded.scores,
        FEATURES,
    );
    check(&stages, "frame1.maskdec.tokens", &decoded.tokens, FEATURES);
    let fine = tracker.propagation_fine(&now).unwrap();
    let objects = tracker.draw(&decoded, fine, &slots).unwrap();
    check(&stages, "frame1.low_res_masks", &objects.masks, MASKS);
    check(&stages, "frame1.obj_ptr_raw", &objects.pointers, FEATURES);
    close(
        "scores",
        &objects.scores,
        &stages.values("frame1.object_score_logits"),
        FEATURES,
    );
}

#[test]
fn a_given_mask_becomes_a_pointer_as_in_the_reference() {
    let (model, stages) = open();
    let tracker = &model.tracker;
    let seen = model.features_of(&in_half(&picture("frame.png")), (200, 150));
    let (shape, bits) = stages.bits("in.masks_256_packed");
    let values: Vec<f32> = bits.iter().map(|b| f32::from(u8::from(*b))).collect();
    let shape = (shape[0], 1, shape[1], shape[2]);
    let masks = Tensor::from_vec(values, shape, &candle_core::Device::Cpu).unwrap();
    let small = tracker.mask_down(&masks).unwrap();
    check(&stages, "maskinput.downsample_out", &small, FEATURES);
    let map = &tracker.interactive(&seen).unwrap().map;
    check(&stages, "maskinput.image_embed", map, FEATURES);
    let dense = tracker.prompts.masks(&small).unwrap();
    let sparse = tracker.prompts.no_clicks().unwrap();
    let decoded = tracker.prompted(map, &dense, &sparse).unwrap();
    check(
        &stages,
        "maskinput.dec_obj_score",
        &decoded.scores,
        FEATURES,
    );
    let token = decoded.tokens.narrow(2, 0, 1).unwrap();
    check(&stages, "maskinput.dec_tokens", &token, FEATURES);
    let empty: Vec<bool> = bits
        .chunks_exact(256 * 256)
        .map(|mask| !mask.contains(&true))
        .collect();
    let pointers = tracker.mask_pointers(&seen, &masks, &empty).unwrap();
    let want = stages.values("frame0.obj_ptr_mux");
    close("pointers", &floats(&pointers), &want[..5 * 32], FEATURES);
}
