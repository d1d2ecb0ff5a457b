//! The CPU detector against the provider contract.
#![allow(clippy::unwrap_used)]

mod sam3_support;
#[path = "sam3_support/tracker.rs"]
mod tracker_support;

use sam3_support::{
    Reference, fixture, shared, small_config, whole::whole_checkpoint, write_checkpoint,
};
use shelfscan_inference_core::{
    FrameTime, InferenceError, InferenceProvider, RgbImage, SourceId, TextPrompt, VideoFrame,
};
use shelfscan_model_kit::weights::TensorSpec;
use shelfscan_pipeline::{FrameSession, ScanOptions, ScanPlan, Scanner};
use shelfscan_provider_cpu::{CpuDetector, DetectorSource, VideoOptions};
use shelfscan_sam3::{DetectOptions, Detector};
use shelfscan_testkit::conformance::check_provider;
use shelfscan_video::{ReadOptions, Source};
use tracker_support::{Stages, frame};

fn frames() -> Vec<VideoFrame> {
    pan(3)
}

/// A pan: each frame shows a part of the picture further to the right.
fn pan(count: u32) -> Vec<VideoFrame> {
    let image = image::open(fixture("frame.png")).unwrap().to_rgb8();
    (0..count)
        .map(|i| {
            let part = image::imageops::crop_imm(&image, 2 * i, 0, 200, 224).to_image();
            VideoFrame {
                image: RgbImage::new(part.width(), part.height(), part.into_raw()).unwrap(),
                index: u64::from(i),
                time: FrameTime::exact(f64::from(i) * 0.04),
                source: SourceId::new("pan"),
            }
        })
        .collect()
}

/// The reference's detector with a tracker of random weights.
fn weights_with_tracker() -> Vec<(TensorSpec, Vec<f32>)> {
    let mut all = Reference::open("seed0").weights();
    let mut state = 7u32;
    for spec in Detector::layout(&small_config()).unwrap() {
        if all.iter().any(|(known, _)| known.key == spec.key) {
            continue;
        }
        let count = spec.shape.iter().product();
        let values = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 24) as f32 * 0.4 - 0.2
        });
        let values = values.take(count).collect();
        all.push((spec, values));
    }
    all
}

/// Options under which the random weights find and follow something.
fn video_options() -> VideoOptions {
    VideoOptions {
        score_threshold: 0.2,
        birth_score: 0.3,
        duplicate_overlap: 0.6,
        border_margin: None,
        hot_start_frames: 3,
        confirm_consecutive: 1,
        ..VideoOptions::default()
    }
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
fn weights_without_a_tracker_say_that_tracks_are_made_by_association() {
    let file = write_checkpoint(&Reference::open("seed0").weights());
    let mut provider = CpuDetector::new(source(file.path()), DetectOptions::default());
    provider.warmup().unwrap();
    let info = provider.info();
    assert!(!info.assigns_track_ids && info.tracking_delay_frames == 0);
    let prompts = [TextPrompt::new("red box").unwrap()];
    let first = provider.start_tracking(&frames()[0], &prompts).unwrap();
    let notice = first[0]
        .notices
        .iter()
        .find(|n| &*n.code == "no_tracker_weights");
    assert!(notice.unwrap().message.contains("association"));
}

#[test]
fn a_detector_with_tracker_weights_keeps_the_provider_contract_and_gives_ids() {
    let file = write_checkpoint(&weights_with_tracker());
    let make = || {
        CpuDetector::new(source(file.path()), DetectOptions::default())
            .with_video_options(video_options())
    };
    let prompts = [
        TextPrompt::new("red box").unwrap(),
        TextPrompt::new("can").unwrap(),
    ];
    let mut provider = make();
    provider.warmup().unwrap();
    let info = provider.info();
    assert!(info.assigns_track_ids);
    assert_eq!(info.tracking_delay_frames, 2);
    let mut found = provider.start_tracking(&frames()[0], &prompts).unwrap();
    for frame in &frames()[1..] {
        found.extend(provider.track_next(frame).unwrap());
    }
    found.extend(provider.finish_tracking().unwrap());
    let mut all = found.iter().flat_map(|f| &f.detections);
    assert!(all.any(|d| d.track_id.is_some()), "something is followed");
    check_provider(|| Box::new(make()), &frames(), &prompts);
}

fn save(picture: &RgbImage, folder: &std::path::Path, index: usize) {
    let (w, h) = (picture.width(), picture.height());
    let picture = image::RgbImage::from_raw(w, h, picture.pixels().to_vec()).unwrap();
    picture
        .save(folder.join(format!("frame{index:02}.png")))
        .unwrap();
}

#[test]
fn frames_of_files_are_scaled_as_the_model_was_trained() {
    let Some(all) = shared("sam3/fixtures") else {
        return;
    };
    let stages = Stages::open(&all.join("fit/video_main.safetensors"));
    let frames = stages.get("frames_u8");
    let folder = tempfile::tempdir().unwrap();
    for t in 0..6 {
        save(&frame(&frames, t), folder.path(), t);
    }
    let file = whole_checkpoint(&all, "fit");
    let mut provider = CpuDetector::new(source(file.path()), DetectOptions::default());
    provider.warmup().unwrap();
    let pictures = Source::parse(folder.path().to_str().unwrap()).unwrap();
    let mut reader = shelfscan_video::open(&pictures, &ReadOptions::default()).unwrap();
    let prompts = [TextPrompt::new("red box").unwrap()];
    let first = reader.next_frame().unwrap().unwrap();
    let mut found = provider.start_tracking(&first, &prompts).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        found.extend(provider.track_next(&frame).unwrap());
    }
    found.extend(provider.finish_tracking().unwrap());
    assert_eq!(found.len(), 6);
    // A picture in 0 to 255 gives this model nothing to see. The reference resizes otherwise, so
    // boxes are near, not equal.
    for (t, found) in found.iter().enumerate() {
        let told = stages.values(&format!("out{t}.boxes_xywh"));
        assert_eq!(found.detections.len(), 4, "frame {t}");
        for detection in &found.detections {
            let at = detection.track_id.unwrap().0 as usize - 1;
            let [x, y, w, h] = *told[at * 4..].first_chunk::<4>().unwrap();
            let want = [x * 200.0, y * 150.0, (x + w) * 200.0, (y + h) * 150.0];
            assert!(
                detection.bbox.iou(&want.into()) > 0.7,
                "frame {t}, object {at}"
            );
        }
    }
}

#[test]
fn a_folder_of_pictures_and_pushed_frames_give_the_same_tracks() {
    let file = write_checkpoint(&weights_with_tracker());
    let make = || {
        CpuDetector::new(source(file.path()), DetectOptions::default())
            .with_video_options(video_options())
    };
    let folder = tempfile::tempdir().unwrap();
    for frame in pan(8) {
        save(&frame.image, folder.path(), frame.index as usize);
    }
    let name = folder.path().to_str().unwrap();
    let pictures = Source::parse(name).unwrap();
    let mut options = ScanOptions {
        prompts: vec![TextPrompt::new("red box").unwrap()],
        ..ScanOptions::default()
    };
    // Random weights lose what they follow soon.
    options.associate.confirm_hits = 1;
    let plan = ScanPlan::new(options.clone(), vec![pictures.clone()], None, None).unwrap();
    let report = Scanner::new(plan, Box::new(make())).run().unwrap();
    let scanned = &report.sources[0];

    let mut provider = make();
    provider.warmup().unwrap();
    let mut session = FrameSession::new(&pictures.id(), &options, &mut provider, None).unwrap();
    let mut reader = shelfscan_video::open(&pictures, &ReadOptions::default()).unwrap();
    let mut early = 0;
    while let Some(frame) = reader.next_frame().unwrap() {
        early += session.push(frame).unwrap().len();
    }
    let (tracks, facings) = session.finish().unwrap();
    assert_eq!(early, 6, "all but the delay came out on the way");
    assert!(!tracks.is_empty());
    assert_eq!(tracks, scanned.tracks);
    assert_eq!(facings, scanned.facings);
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
