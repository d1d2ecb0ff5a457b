//! Real footage, when it and ffmpeg are at hand.

use std::{collections::BTreeMap, path::PathBuf};

use shelfscan_inference_core::BoxXyxy;
use shelfscan_pipeline::{
    Annotate, FrameRecord, ReplayFiles, ReplayProvider, RunStatus, ScanOptions, ScanPlan, Scanner,
    names,
};
use shelfscan_testkit::{
    metrics::score_tracks,
    scripted::{ScriptedProvider, detection},
    shared,
    truth::{Truth, write_detections},
};
use shelfscan_video::{FfmpegLocation, ReadOptions, Source, find_ffmpeg};

use crate::drawn::only;

/// A clip of the reference data, or `None` with a line when it cannot be read here.
fn clip(name: &str) -> Option<PathBuf> {
    let path = shared::file(&format!("data/videos/{name}"));
    if path.is_none() || find_ffmpeg(&FfmpegLocation::SearchPath).is_err() {
        shared::skip_line(&format!("{name}: it needs the reference data and ffmpeg"));
        return None;
    }
    path
}

/// A quarter of a pack has to be in view for a detector to find it, and in three frames for the
/// truth to call it a facing.
const MIN_VISIBLE: f32 = 0.25;
const MIN_FRAMES: usize = 3;

#[test]
fn a_pan_that_returns_to_its_first_bay_keeps_ids_and_counts_each_facing_once() {
    let Some(path) = clip("derived_pan_cola_1280x720.mp4") else {
        return;
    };
    let truth = Truth::read_tracks_csv(&path.with_extension("tracks.csv"))
        .unwrap()
        .only(|o| &*o.label == "product" && o.visible_fraction >= MIN_VISIBLE);
    let dir = tempfile::tempdir().unwrap();
    let detections = dir.path().join("truth.jsonl");
    write_detections(&detections, &truth.detections()).unwrap();
    let out = dir.path().join("out");
    let plan = ScanPlan::new(
        ScanOptions::default(),
        vec![Source::File(path)],
        Some(&out),
        None,
    )
    .unwrap();
    let provider = ReplayProvider::new(ReplayFiles::Single(detections), false);
    let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
    assert_eq!(
        done.run.status,
        RunStatus::Complete,
        "{:?}",
        done.run.reason
    );
    assert_eq!(done.run.frames.processed, 210);

    let facing_of: BTreeMap<u64, u64> = done
        .tracks
        .iter()
        .map(|t| (t.track_id.0, t.facing_id.0))
        .collect();
    let text = std::fs::read_to_string(out.join(&done.folder).join(names::DETECTIONS)).unwrap();
    let found: Vec<Vec<(u64, BoxXyxy)>> = text
        .lines()
        .map(|line| serde_json::from_str::<FrameRecord>(line).unwrap())
        .map(|record| {
            record
                .detections
                .iter()
                .filter_map(|d| Some((facing_of[&d.track_id?.0], BoxXyxy::from(d.bbox))))
                .collect()
        })
        .collect();
    let scores = score_tracks(&truth.id_boxes(), &found, 0.5);
    let wanted = truth.facings("product", MIN_VISIBLE, MIN_FRAMES).len();
    println!(
        "IDF1 {:.4}, {} id switches, {} facings found of {wanted}",
        scores.idf1(),
        scores.id_switches,
        done.facings.len()
    );
    assert!(scores.idf1() >= 0.95, "IDF1 {}", scores.idf1());
    let off = done.facings.len().abs_diff(wanted);
    assert!(
        off * 50 <= wanted,
        "{} facings found, {wanted} in truth",
        done.facings.len()
    );
}

#[test]
fn real_clips_run_through_and_their_annotated_videos_last_as_long() {
    for (name, frames) in [
        ("real_intel_bottle-detection.mp4", 1189),
        ("real_opencv_box_handheld.mp4", 455),
    ] {
        let Some(path) = clip(name) else {
            return;
        };
        let provider = ScriptedProvider::new(|frame| {
            let (w, h) = (frame.image.width() as f32, frame.image.height() as f32);
            Ok(vec![detection(
                "product",
                0.9,
                [w * 0.3, h * 0.3, w * 0.6, h * 0.8],
                None,
            )])
        });
        let dir = tempfile::tempdir().unwrap();
        let mut options = ScanOptions::default();
        options.outputs.annotate = Annotate::Video;
        options.read.every = 5;
        let plan = ScanPlan::new(
            options,
            vec![Source::File(path.clone())],
            Some(dir.path()),
            None,
        )
        .unwrap();
        let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
        // The second clip has a slice that ffmpeg reports; all of its frames come out all the same.
        assert!(
            matches!(done.run.status, RunStatus::Complete | RunStatus::Partial),
            "{name}: {:?}",
            done.run.reason
        );
        assert_eq!(done.run.frames.decoded, frames, "{name}");
        let annotated = Source::File(dir.path().join(&done.folder).join(names::ANNOTATED_VIDEO));
        let before = shelfscan_video::probe(&Source::File(path), &ReadOptions::default()).unwrap();
        let after = shelfscan_video::probe(&annotated, &ReadOptions::default()).unwrap();
        let (a, b) = (
            before.declared_duration_secs.unwrap(),
            after.declared_duration_secs.unwrap(),
        );
        assert!((a - b).abs() < 0.4, "{name}: {a} s became {b} s");
    }
}
