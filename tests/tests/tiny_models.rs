//! The small trained models against the tool that trained them.
//!
//! `fixtures/shelf_tiny.json` is written by `training/shelf/reference.py` from the committed weights.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use candle_core::{DType, Device};
use serde::Deserialize;
use shelfscan_inference_core::{BoxXyxy, RgbImage, TextPrompt};
use shelfscan_sam3::{DetectOptions, Sam3, Sam3Config, Tokenizer, load_detector};

const BOXES: f32 = 1e-3;
const LOGITS: f32 = 5e-3;

#[derive(Deserialize)]
struct Reference {
    side: u32,
    rectangles: Vec<[u32; 7]>,
    threshold: f32,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    phrase: String,
    ids: Vec<u32>,
    presence: f32,
    scores: Vec<f32>,
    boxes: Vec<f32>,
    kept_before_rounding: Vec<usize>,
}

impl Reference {
    fn read() -> Self {
        let path = root().join("tests/fixtures/shelf_tiny.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn picture(&self) -> RgbImage {
        drawn(self.side, self.side, &self.rectangles)
    }
}

/// Rectangles `[x0, y0, x1, y1, r, g, b]` on black, later ones over earlier ones.
fn drawn(width: u32, height: u32, rectangles: &[[u32; 7]]) -> RgbImage {
    let mut pixels = vec![0u8; (width * height * 3) as usize];
    for [x0, y0, x1, y1, colour @ ..] in rectangles {
        for y in *y0..(*y1).min(height) {
            for x in *x0..(*x1).min(width) {
                let at = ((y * width + x) * 3) as usize;
                pixels[at..at + 3].copy_from_slice(&colour.map(|c| c as u8));
            }
        }
    }
    RgbImage::new(width, height, pixels).unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn shelf_tiny(dtype: DType) -> Sam3 {
    let folder = root().join("models/shelf-tiny");
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let config = Sam3Config::from_json(&text).unwrap();
    let weights = folder.join("model.safetensors");
    let (detector, _) = load_detector(&weights, &config, dtype, &Device::Cpu).unwrap();
    let merges = std::fs::read(folder.join("merges.txt")).unwrap();
    let tokenizer =
        Tokenizer::with_merges(&merges[..], config.merges, config.context_length).unwrap();
    Sam3::new(detector, tokenizer)
}

fn largest_gap(got: impl Iterator<Item = f32>, want: &[f32]) -> f32 {
    let mut count = 0;
    let gap = got.zip(want).fold(0f32, |worst, (a, b)| {
        count += 1;
        worst.max((a - b).abs())
    });
    assert_eq!(count, want.len());
    gap
}

#[test]
fn shelf_tiny_answers_as_the_trainer_does() {
    let reference = Reference::read();
    let model = shelf_tiny(DType::F32);
    let detector = model.detector();
    let features = model.image_features(&reference.picture()).unwrap();
    let folder = root().join("models/shelf-tiny");
    let merges = std::fs::read(folder.join("merges.txt")).unwrap();
    let config = detector.config();
    let tokenizer =
        Tokenizer::with_merges(&merges[..], config.merges, config.context_length).unwrap();
    for want in &reference.prompts {
        let phrase = &want.phrase;
        let ids = tokenizer.encode(phrase);
        assert_eq!(ids.ids(), want.ids, "{phrase}");
        let text = detector.text.forward(&[ids]).unwrap();
        let found = detector.ground(&features, &text, &[]).unwrap();
        let boxes = found.boxes(0).as_flattened().iter().copied();
        let gap = largest_gap(boxes, &want.boxes);
        assert!(gap <= BOXES, "boxes of {phrase:?} are off by {gap}");
        let gap = largest_gap(found.scores[0].iter().copied(), &want.scores);
        assert!(gap <= LOGITS, "scores of {phrase:?} are off by {gap}");
        let gap = (found.presence()[0] - want.presence).abs();
        assert!(gap <= LOGITS, "presence of {phrase:?} is off by {gap}");
        let kept: Vec<usize> = (0..want.scores.len())
            .filter(|q| found.probabilities(0)[*q] > reference.threshold)
            .collect();
        assert_eq!(
            kept, want.kept_before_rounding,
            "the rounded weights decide {phrase:?} otherwise"
        );
    }
    assert!(
        !reference.prompts[0].kept_before_rounding.is_empty(),
        "a picture without finds shows nothing"
    );
}

#[test]
fn shelf_tiny_gives_boxes_without_masks_and_says_so_when_asked_for_one() {
    let reference = Reference::read();
    let model = shelf_tiny(DType::F32);
    let prompts = [TextPrompt::new("product").unwrap()];
    let options = DetectOptions {
        score_threshold: reference.threshold,
        ..DetectOptions::default()
    };
    let found = model
        .detect(&reference.picture(), &prompts, &options)
        .unwrap();
    assert!(!found.detections.is_empty());
    let picture = BoxXyxy::new(0.0, 0.0, reference.side as f32, reference.side as f32);
    for find in &found.detections {
        assert!(find.mask.is_none());
        assert!(find.bbox.intersection(&picture).area() >= 0.999 * find.bbox.area());
    }
    let features = model.image_features(&reference.picture()).unwrap();
    let error = model.detector().fine_maps(&features).unwrap_err();
    assert!(error.to_string().contains("ask it for boxes"), "{error}");
}

#[test]
fn twelve_equal_packs_are_twelve_finds_of_one_phrase() {
    let mut picture = vec![[0, 0, 640, 480, 70, 66, 60]];
    let mut packs = Vec::new();
    for row in 0..3 {
        let y = 48 + row * 150;
        picture.push([0, y + 100, 640, y + 110, 150, 140, 130]);
        for x in (0..4).map(|column| 40 + column * 150) {
            picture.push([x, y, x + 100, y + 100, 180, 30, 40]);
            picture.push([x + 14, y + 20, x + 86, y + 51, 240, 230, 210]);
            picture.push([x + 25, y + 60, x + 76, y + 76, 30, 60, 140]);
            packs.push(BoxXyxy::new(
                x as f32,
                y as f32,
                x as f32 + 100.0,
                y as f32 + 100.0,
            ));
        }
    }
    let picture = drawn(640, 480, &picture);
    let prompts = [TextPrompt::new("product").unwrap()];
    let model = shelf_tiny(DType::F32);
    let found = model
        .detect(&picture, &prompts, &DetectOptions::default())
        .unwrap();
    assert_eq!(found.detections.len(), packs.len());
    for pack in packs {
        let on_it = found.detections.iter().filter(|d| d.bbox.iou(&pack) > 0.5);
        assert_eq!(on_it.count(), 1, "{pack:?}");
    }
}
