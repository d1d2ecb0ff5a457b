//! The CPU detector against the provider contract.
#![allow(clippy::unwrap_used)]

mod sam3_support;

use sam3_support::{Reference, fixture, small_config, write_checkpoint};
use shelfscan_inference_core::{
    FrameTime, InferenceError, InferenceProvider, RgbImage, SourceId, TextPrompt, VideoFrame,
};
use shelfscan_provider_cpu::{CpuDetector, DetectorSource};
use shelfscan_sam3::DetectOptions;
use shelfscan_testkit::conformance::check_provider;

fn frames() -> Vec<VideoFrame> {
    let image = image::open(fixture("frame.png")).unwrap().to_rgb8();
    (0..3u32)
        .map(|i| {
            // A pan: each frame shows a part of the picture further to the right.
            let part = image::imageops::crop_imm(&image, 8 * i, 0, 200, 224).to_image();
            VideoFrame {
                image: RgbImage::new(part.width(), part.height(), part.into_raw()).unwrap(),
                index: u64::from(i),
                time: FrameTime::exact(f64::from(i) * 0.04),
                source: SourceId::new("pan"),
            }
        })
        .collect()
}

fn source(weights: &std::path::Path) -> DetectorSource {
    DetectorSource {
        weights: weights.into(),
        config: small_config(),
        merges: None,
        name: "small".into(),
    }
}

#[test]
fn the_cpu_detector_keeps_the_provider_contract() {
    let file = write_checkpoint(&Reference::open("seed0").weights());
    let options = DetectOptions {
        score_threshold: 0.2,
        ..DetectOptions::default()
    };
    let make = || -> Box<dyn InferenceProvider> {
        Box::new(CpuDetector::new(source(file.path()), options.clone()))
    };
    let prompts = [
        TextPrompt::new("red box").unwrap(),
        TextPrompt::new("can").unwrap(),
    ];
    check_provider(make, &frames(), &prompts);
}

#[test]
fn a_missing_checkpoint_fails_at_warmup_with_its_path() {
    let path = std::path::Path::new("no/such/sam3.1.pt");
    let mut provider = CpuDetector::new(source(path), DetectOptions::default());
    match provider.warmup() {
        Err(InferenceError::Weights { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{other:?}"),
    }
}
