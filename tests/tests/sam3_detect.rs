//! Detection as a caller sees it: shared work, source pixels, notices, duplicates, tiles.
#![allow(clippy::unwrap_used)]

mod sam3_support;

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use sam3_support::{Reference, fixture, floats, picture, shared, small_config, write_checkpoint};
use shelfscan_inference_core::{Detection, Mask, RgbImage, TextPrompt};
use shelfscan_model_kit::{
    preprocess::{Normalisation, PictureFilter, resize, to_tensor},
    weights::{Checkpoint, TensorSpec},
};
use shelfscan_sam3::{
    DetectOptions, Sam3, Tiling, Tokenizer,
    suppress::{BitMask, Chain, Overlap, suppress},
};

fn model(dtype: DType) -> Sam3 {
    let detector = Reference::open("seed0").detector(dtype);
    Sam3::new(
        detector,
        Tokenizer::new(small_config().context_length).unwrap(),
    )
}

fn frame() -> RgbImage {
    let image = image::open(fixture("frame.png")).unwrap().to_rgb8();
    RgbImage::new(image.width(), image.height(), image.into_raw()).unwrap()
}

fn prompts(phrases: &[&str]) -> Vec<TextPrompt> {
    phrases
        .iter()
        .map(|p| TextPrompt::new(p).unwrap())
        .collect()
}

/// A random model is sure of nothing, so everything is let through.
fn loose() -> DetectOptions {
    DetectOptions {
        score_threshold: 0.2,
        ..DetectOptions::default()
    }
}

#[test]
fn preprocessing_follows_the_reference_to_one_level() {
    let image = image::open(fixture("preprocess.png")).unwrap().to_rgb8();
    let image = RgbImage::new(image.width(), image.height(), image.into_raw()).unwrap();
    let small = resize(&image, 224, 224, PictureFilter::Bilinear).unwrap();
    let tensor = to_tensor(&[small], Normalisation::HALF).unwrap();
    let levels: Vec<f32> = floats(&tensor)
        .iter()
        .map(|v| (v * 0.5 + 0.5) * 255.0)
        .collect();
    let want = Checkpoint::open(fixture("preprocess.safetensors")).unwrap();
    let want = floats(&want.tensor("resized", DType::F32, &Device::Cpu).unwrap());
    let got: Vec<f32> = levels.iter().step_by(97).copied().collect();
    assert_eq!(got.len(), want.len());
    let worst = got
        .iter()
        .zip(&want)
        .fold(0f32, |w, (a, b)| w.max((a - b).abs()));
    assert!(worst <= 1.01, "off by {worst} levels");
}

#[test]
fn three_phrases_share_one_look_at_the_picture_and_keep_their_names() {
    let model = model(DType::F32);
    let asked = prompts(&["red box", "blue can", "a yellow school bus"]);
    let found = model.detect(&frame(), &asked, &loose()).unwrap();
    assert_eq!((model.work().pictures, model.work().phrases), (1, 3));
    assert!(!found.detections.is_empty());
    // Asked alone, each phrase gives the same finds.
    for prompt in &asked {
        let alone = model
            .detect(&frame(), std::slice::from_ref(prompt), &loose())
            .unwrap();
        let together: Vec<_> = found
            .detections
            .iter()
            .filter(|d| d.prompt == prompt.phrase)
            .collect();
        assert_eq!(alone.detections.len(), together.len(), "{}", prompt.phrase);
        for (a, b) in alone.detections.iter().zip(together) {
            assert!((a.score - b.score).abs() < 1e-4 && a.bbox.iou(&b.bbox) > 0.95);
        }
    }
    assert_eq!(model.work().phrases, 3, "features of a phrase are kept");
}

#[test]
fn results_are_in_source_pixels_and_equal_for_equal_input() {
    let model = model(DType::F32);
    for (width, height) in [(200u32, 150u32), (90, 300)] {
        let image = resize(&frame(), width, height, PictureFilter::Bilinear).unwrap();
        let asked = prompts(&["red box"]);
        let found = model.detect(&image, &asked, &loose()).unwrap();
        assert!(!found.detections.is_empty());
        for detection in &found.detections {
            let mask = detection.mask.as_ref().unwrap();
            assert_eq!((mask.width(), mask.height()), (width, height));
            let b = detection.bbox;
            assert!(b.is_valid() && b.x0 >= 0.0 && b.y0 >= 0.0);
            assert!(b.x1 <= width as f32 && b.y1 <= height as f32);
            if let Some(hull) = mask.bounding_box() {
                assert_eq!(hull, b, "the box hugs the mask");
            }
        }
        let again = model.detect(&image, &asked, &loose()).unwrap();
        assert_eq!(again.detections, found.detections);
        let scores: Vec<f32> = found.detections.iter().map(|d| d.score).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    }
}

#[test]
fn the_image_api_follows_the_reference() {
    for seed in ["seed0", "seed1"] {
        let reference = Reference::open(seed);
        let detector = reference.detector(DType::F32);
        let features = detector.image_features(&picture()).unwrap();
        let model = Sam3::new(detector, Tokenizer::new(32).unwrap());
        let options = DetectOptions {
            duplicate_overlap: None,
            masks: false,
            ..DetectOptions::default()
        };
        let found = model
            .detect_in(&features, (200, 150), &prompts(&["red box"]), &[], &options)
            .unwrap();
        let keep = reference.values("grounding.text_only.imgapi.keep");
        let kept = keep.iter().filter(|k| **k > 0.5).count();
        assert_eq!(found.detections.len(), kept, "{seed}");
        // The reference keeps the order of the queries, we sort by score.
        let probabilities = reference.values("grounding.text_only.imgapi.prob");
        let mut order: Vec<usize> = (0..16).filter(|q| keep[*q] > 0.5).collect();
        let mut rows: Vec<usize> = (0..kept).collect();
        let boxes = reference.values("grounding.text_only.imgapi.boxes_px");
        rows.sort_by(|a, b| probabilities[order[*b]].total_cmp(&probabilities[order[*a]]));
        order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
        for ((detection, q), row) in found.detections.iter().zip(&order).zip(&rows) {
            assert!((detection.score - probabilities[*q]).abs() < 1e-4);
            let want = &boxes[row * 4..row * 4 + 4];
            let got: [f32; 4] = detection.bbox.into();
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let want = want.clamp(0.0, if i % 2 == 0 { 200.0 } else { 150.0 });
                assert!((got - want).abs() < 1e-3, "{got} {want}");
            }
        }
    }
}

#[test]
fn masks_in_source_pixels_follow_the_reference() {
    let Some(full) = shared("sam3/fixtures/seed0/grounding.safetensors") else {
        return;
    };
    let bytes = std::fs::read(full).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let packed = file.tensor("text_only.imgapi.masks_packed").unwrap();
    let [n, height, line] = packed.shape().try_into().unwrap();
    let reference = Reference::open("seed0");
    let detector = reference.detector(DType::F32);
    let features = detector.image_features(&picture()).unwrap();
    let model = Sam3::new(detector, Tokenizer::new(32).unwrap());
    let options = DetectOptions {
        duplicate_overlap: None,
        ..DetectOptions::default()
    };
    let found = model
        .detect_in(&features, (200, 150), &prompts(&["red box"]), &[], &options)
        .unwrap();
    assert_eq!(found.detections.len(), n);
    let want: Vec<Mask> = (0..n)
        .map(|i| {
            Mask::from_fn(200, height as u32, |x, y| {
                let at = (i * height + y as usize) * line + x as usize / 8;
                packed.data()[at] >> (7 - x % 8) & 1 == 1
            })
        })
        .collect();
    for detection in &found.detections {
        let mask = detection.mask.as_ref().unwrap();
        let best = want.iter().map(|w| w.iou(mask)).fold(0f32, f32::max);
        let empty = mask.area() == 0 && want.iter().any(|w| w.area() == 0);
        assert!(best > 0.999 || empty, "{best}");
    }
}

#[test]
fn suppression_follows_the_reference() {
    let file = std::fs::read(fixture("nms.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let data = file.tensor(name).unwrap();
        data.data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect()
    };
    let packed = file.tensor("masks").unwrap();
    let [sets, n, height, line] = packed.shape().try_into().unwrap();
    let probabilities = floats("probs");
    let mut compared = 0;
    for set in 0..sets {
        let masks: Vec<BitMask> = (0..n)
            .map(|i| {
                let start = (set * n + i) * height * line;
                let bytes = &packed.data()[start..start + height * line];
                let bit = |j: usize| bytes[j / 8] >> (7 - j % 8) & 1 == 1;
                BitMask::new((0..height * line * 8).map(bit))
            })
            .collect();
        let own = &probabilities[set * n..(set + 1) * n];
        for (chain, chain_name) in [(Chain::Greedy, "batched"), (Chain::Matrix, "single")] {
            for (metric, metric_name) in [(Overlap::Iom, "iom"), (Overlap::Iou, "iou")] {
                for bar in [0.1f32, 0.5] {
                    let name = format!("keep_{chain_name}_{metric_name}_{bar}");
                    let want = &floats(&name)[set * n..(set + 1) * n];
                    let got = suppress(own, &masks, 0.4, metric, bar, chain);
                    let got: Vec<f32> = got.iter().map(|k| f32::from(u8::from(*k))).collect();
                    assert_eq!(got, want, "{name} of set {set}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 16);
}

#[test]
fn a_long_phrase_says_where_it_was_cut_and_a_short_one_says_nothing() {
    let model = model(DType::F32);
    let long = format!("{} zebra", vec!["dog"; 30].join(" "));
    let found = model
        .detect(&frame(), &prompts(&[&long, "dog"]), &loose())
        .unwrap();
    let cut: Vec<_> = found
        .notices
        .iter()
        .filter(|n| &*n.code == "phrase_cut")
        .collect();
    assert_eq!(cut.len(), 1);
    assert!(cut[0].message.contains("zebra"), "{}", cut[0].message);
}

#[test]
fn running_out_of_queries_is_always_a_notice() {
    let model = model(DType::F32);
    let all = DetectOptions {
        score_threshold: 0.0,
        ..DetectOptions::default()
    };
    let found = model
        .detect(&frame(), &prompts(&["red box"]), &all)
        .unwrap();
    assert!(
        found.notices.iter().any(|n| &*n.code == "query_cap_hit"),
        "{:?}",
        found.notices
    );
}

#[test]
fn finding_nothing_for_a_plural_hints_at_the_singular_and_swaps_nothing() {
    let model = model(DType::F32);
    let strict = DetectOptions {
        score_threshold: 0.99,
        ..DetectOptions::default()
    };
    let asked = prompts(&["red boxes", "red box"]);
    let found = model.detect(&frame(), &asked, &strict).unwrap();
    assert!(found.detections.is_empty());
    assert_eq!(found.notices.len(), 1, "{:?}", found.notices);
    assert_eq!(&*found.notices[0].code, "try_singular");
    assert!(found.notices[0].message.contains("\"red box\""));
}

#[test]
fn no_phrase_and_tiles_out_of_range_are_errors_that_say_what_to_pass() {
    let model = model(DType::F32);
    let error = model
        .detect(&frame(), &[], &loose())
        .unwrap_err()
        .to_string();
    assert!(error.contains("at least one phrase"), "{error}");
    let tiled = DetectOptions {
        tiling: Tiling::Grid {
            columns: 0,
            rows: 99,
        },
        ..loose()
    };
    let error = model
        .detect(&frame(), &prompts(&["dog"]), &tiled)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("0x99") && error.contains("1 to 8"),
        "{error}"
    );
}

#[test]
fn tiles_look_at_every_part_and_answer_in_the_whole_picture() {
    let model = model(DType::F32);
    let tiled = DetectOptions {
        tiling: Tiling::Grid {
            columns: 2,
            rows: 2,
        },
        ..loose()
    };
    let found = model
        .detect(&frame(), &prompts(&["red box"]), &tiled)
        .unwrap();
    assert_eq!(model.work().pictures, 4);
    for detection in &found.detections {
        let mask = detection.mask.as_ref().unwrap();
        assert_eq!((mask.width(), mask.height()), (224, 224));
        assert!(detection.bbox.x1 <= 224.0 && detection.bbox.y1 <= 224.0);
    }
}

#[test]
fn more_phrases_than_the_cache_holds_give_the_answers_of_a_fresh_model() {
    let model = model(DType::F32);
    let words: Vec<String> = (0..640)
        .map(|i| format!("thing {}", (i * 37) % 640))
        .collect();
    let no_masks = DetectOptions {
        masks: false,
        ..loose()
    };
    let image = frame();
    let features = model.image_features(&image).unwrap();
    let ask = |model: &Sam3, features: &shelfscan_sam3::ImageFeatures, word: &str| {
        let asked = prompts(&[word]);
        model
            .detect_in(features, (224, 224), &asked, &[], &no_masks)
            .unwrap()
            .detections
    };
    // Ten times the cache's size goes through; a phrase that fell out is encoded again.
    for group in words.chunks(80) {
        let asked: Vec<TextPrompt> = group.iter().map(|w| TextPrompt::new(w).unwrap()).collect();
        model
            .detect_in(&features, (224, 224), &asked, &[], &no_masks)
            .unwrap();
    }
    assert_eq!(model.work().phrases, 640);
    let first = ask(&model, &features, &words[0]);
    assert_eq!(model.work().phrases, 641);
    let fresh = self::model(DType::F32);
    let own = fresh.image_features(&image).unwrap();
    assert_eq!(ask(&fresh, &own, &words[0]), first);
}

/// Intersection over union of all masks of `a`, each with the mask of `b` most like it. Scores of a
/// random model lie close together, so finds are matched by place and not by rank.
fn agreement(a: &[Detection], b: &[Detection]) -> f64 {
    let (mut both, mut either) = (0u64, 0u64);
    for mask in a.iter().filter_map(|d| d.mask.as_ref()) {
        let other = b
            .iter()
            .filter_map(|d| d.mask.as_ref())
            .max_by(|x, y| x.iou(mask).total_cmp(&y.iou(mask)))
            .unwrap();
        both += mask.intersection_area(other);
        either += mask.area() + other.area() - mask.intersection_area(other);
    }
    both as f64 / either as f64
}

#[test]
fn half_precision_runs_without_mixing_types_and_agrees_with_single() {
    let asked = prompts(&["red box"]);
    let options = DetectOptions {
        duplicate_overlap: None,
        score_threshold: 0.0,
        ..DetectOptions::default()
    };
    let wide = model(DType::F32)
        .detect(&frame(), &asked, &options)
        .unwrap()
        .detections;
    // Logits of random masks lie around zero, where eight bits of fraction turn many of them.
    for (dtype, bar) in [(DType::F16, 0.95), (DType::BF16, 0.8)] {
        let narrow = model(dtype);
        let features = narrow.image_features(&frame()).unwrap();
        let fine = narrow.detector().fine_maps(&features).unwrap();
        for tensor in fine.iter().chain([&features.tokens, &features.trunk]) {
            assert_eq!(tensor.dtype(), dtype, "no stage widens what it hands on");
        }
        let found = narrow
            .detect(&frame(), &asked, &options)
            .unwrap()
            .detections;
        assert_eq!(found.len(), wide.len());
        let iou = agreement(&wide, &found);
        assert!(iou >= bar, "masks in {dtype:?} agree to {iou}");
    }
}

#[test]
fn masks_of_a_trained_model_agree_between_half_and_single_precision() {
    let Some(folder) = shared("sam3/fixtures") else {
        return;
    };
    let table = Checkpoint::open(folder.join("common/token_embedding.safetensors")).unwrap();
    let rest = Checkpoint::open(folder.join("fit/model.safetensors")).unwrap();
    let mut weights = Vec::new();
    for checkpoint in [&table, &rest] {
        for key in checkpoint.keys() {
            let spec = TensorSpec {
                key: key.to_owned(),
                shape: checkpoint.info(key).unwrap().shape.clone(),
            };
            let values = checkpoint.tensor(key, DType::F32, &Device::Cpu).unwrap();
            weights.push((spec, floats(&values)));
        }
    }
    let file = write_checkpoint(&weights);
    let find = |dtype: DType| {
        let (model, report) =
            Sam3::load(file.path(), &small_config(), dtype, &Device::Cpu).unwrap();
        assert_eq!(report.tensors + report.ignored.len(), weights.len());
        model
            .detect(&frame(), &prompts(&["red box"]), &loose())
            .unwrap()
            .detections
    };
    let (wide, narrow) = (find(DType::F32), find(DType::BF16));
    assert!(!wide.is_empty() && wide.len() == narrow.len());
    let iou = agreement(&wide, &narrow);
    assert!(iou >= 0.95, "masks agree to {iou}");
}

#[test]
fn a_picture_of_numbers_that_are_not_finite_is_an_error_that_names_the_stage() {
    let detector = Reference::open("seed0").detector(DType::F32);
    let side = detector.config().image_size;
    let broken = Tensor::full(f32::NAN, (1, 3, side, side), &Device::Cpu).unwrap();
    let error = detector.image_features(&broken).unwrap_err().to_string();
    assert!(
        error.contains("image encoder") && error.contains("not finite"),
        "{error}"
    );
}

#[test]
fn a_small_trained_model_with_its_own_vocabulary_finds_packs_on_a_photo() {
    let (Some(folder), Some(photos)) = (
        shared("training/sam31_tiny_m2"),
        shared("data/shelves/images"),
    ) else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let config = shelfscan_sam3::Sam3Config::from_json(&text).unwrap();
    let path = folder.join("model.safetensors");
    let (detector, report) =
        shelfscan_sam3::load_detector(&path, &config, DType::F32, &Device::Cpu).unwrap();
    assert!(report.parameters > 6_000_000, "{report:?}");
    let table = std::fs::read(folder.join("bpe_2000.txt.gz")).unwrap();
    let tokenizer =
        Tokenizer::with_merges(table.as_slice(), config.merges, config.context_length).unwrap();
    let model = Sam3::new(detector, tokenizer);
    let mut names: Vec<_> = std::fs::read_dir(photos)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    let photo = image::open(&names[0]).unwrap().to_rgb8();
    let photo = RgbImage::new(photo.width(), photo.height(), photo.into_raw()).unwrap();
    let options = DetectOptions {
        score_threshold: 0.4,
        masks: false,
        tiling: Tiling::Grid {
            columns: 2,
            rows: 2,
        },
        ..DetectOptions::default()
    };
    let found = model
        .detect(&photo, &prompts(&["product"]), &options)
        .unwrap();
    assert!(
        found.detections.len() >= 10,
        "{} finds",
        found.detections.len()
    );
}

#[test]
fn one_model_serves_several_threads_with_the_answers_of_one() {
    let model = Arc::new(model(DType::F32));
    let want = model
        .detect(&frame(), &prompts(&["red box"]), &loose())
        .unwrap()
        .detections;
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let model = Arc::clone(&model);
            std::thread::spawn(move || {
                model
                    .detect(&frame(), &prompts(&["red box"]), &loose())
                    .unwrap()
                    .detections
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), want);
    }
}
