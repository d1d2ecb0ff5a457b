//! What a scan finds, and how it fails.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;
use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, ProviderInfo, SourceId, TextPrompt,
    VideoFrame,
};
use shelfscan_pipeline::{
    Annotate, CancelHandle, Existing, FrameRecord, FrameSession, Progress, Region, RunStatus,
    RunsOn, ScanObserver, ScanOptions, ScanPlan, Scanner, names,
};
use shelfscan_testkit::scripted::{ScriptedProvider, detection};
use shelfscan_video::{ReadOptions, Source};

use crate::drawn::{Drawn, only, pan, visible};

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn schema(name: &str) -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/schemas")
        .join(name);
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn assert_valid(schema: &jsonschema::Validator, value: &Value) {
    let errors: Vec<String> = schema.iter_errors(value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {value}");
}

#[test]
fn a_pan_forth_and_back_counts_every_facing_once() {
    let drawn = pan(90);
    let out = drawn.out("out");
    let done = drawn.scan(&out, Existing::Refuse);
    assert_eq!(
        done.run.status,
        RunStatus::Complete,
        "{:?}",
        done.run.reason
    );
    assert_eq!(done.run.frames.processed, 90);
    assert_eq!(done.facings.len(), drawn.true_facings());
    assert_eq!(done.run.counts[0].facings, done.facings.len() as u64);
    let returned = done.facings.iter().filter(|f| f.tracks.len() > 1).count();
    assert!(returned > 0, "the pan returns to packs it had lost");
}

#[test]
fn a_source_of_one_frame_shows_its_facings_once() {
    let drawn = pan(20);
    let mut options = ScanOptions::default();
    options.read.max_frames = Some(1);
    let done = only(drawn.scanner(options, None).run().unwrap());
    let truth = visible(&drawn.clip).detections();
    assert_eq!(done.facings.len(), truth[0].detections.len());
    assert!(!done.facings.is_empty());
}

#[test]
fn every_file_follows_its_published_schema() {
    let drawn = pan(40);
    let out = drawn.out("out");
    let done = drawn.scan(&out, Existing::Refuse);
    let dir = out.join(&done.folder);
    let run: Value =
        serde_json::from_str(&fs::read_to_string(dir.join(names::RUN)).unwrap()).unwrap();
    assert_valid(&schema("run.schema.json"), &run);
    let (frame, track) = (schema("frame.schema.json"), schema("track.schema.json"));
    let frames = lines(&dir.join(names::DETECTIONS));
    assert_eq!(frames.len(), 40);
    for line in &frames {
        assert_valid(&frame, line);
    }
    let tracks = lines(&dir.join(names::TRACKS));
    assert!(!tracks.is_empty());
    for line in &tracks {
        assert_valid(&track, line);
        let crop = line["best_crop"]["path"].as_str().unwrap();
        assert!(dir.join(crop).exists());
    }
    let facings = fs::read_to_string(dir.join(names::FACINGS)).unwrap();
    assert_eq!(facings.lines().count(), done.facings.len() + 1);
    assert!(facings.starts_with("facing_id,label,status,sku,"));
}

#[test]
fn frames_pushed_one_by_one_give_the_tracks_of_the_file() {
    let drawn = pan(60);
    let file = only(drawn.scanner(ScanOptions::default(), None).run().unwrap());
    let mut reader = shelfscan_video::open(&drawn.source(), &ReadOptions::default()).unwrap();
    let mut provider = drawn.replay();
    provider.warmup().unwrap();
    let mut session = FrameSession::new(
        &drawn.source().id(),
        &ScanOptions::default(),
        provider.as_mut(),
        None,
    )
    .unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        session.push(frame).unwrap();
    }
    let (tracks, facings) = session.finish().unwrap();
    assert_eq!((tracks, facings), (file.tracks, file.facings));
}

#[test]
fn two_sources_each_count_from_one_and_are_named_apart() {
    let drawn = pan(30);
    fs::create_dir(drawn.dir.path().join("b")).unwrap();
    fs::copy(
        drawn.dir.path().join("clip.y4m"),
        drawn.dir.path().join("b/clip.y4m"),
    )
    .unwrap();
    let sources = vec![
        drawn.source(),
        Source::File(drawn.dir.path().join("b/clip.y4m")),
    ];
    let plan = ScanPlan::new(
        ScanOptions::default(),
        sources,
        Some(&drawn.out("out")),
        None,
    )
    .unwrap();
    let report = Scanner::new(plan, drawn.replay()).run().unwrap();
    assert!(report.is_complete());
    let ids = |i: usize| -> Vec<u64> {
        report.sources[i]
            .tracks
            .iter()
            .map(|t| t.track_id.0)
            .collect()
    };
    assert_eq!(ids(0), ids(1));
    assert_eq!(ids(0)[0], 1);
    let folders: BTreeSet<&str> = report.sources.iter().map(|s| s.folder.as_str()).collect();
    assert_eq!(folders.len(), 2);
}

/// Detects until its fifth frame, then needs a warm-up, as a worker process that died does.
#[derive(Default)]
struct Fragile {
    frames: u32,
    starts: u32,
    warm: bool,
}

impl InferenceProvider for Fragile {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            name: "fragile".into(),
            device: "fragile:0".into(),
            assigns_track_ids: false,
            tracking_delay_frames: 0,
            models: Vec::new(),
        }
    }

    fn warmup(&mut self) -> Result<(), InferenceError> {
        self.starts += u32::from(!self.warm);
        self.warm = true;
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        _: &[TextPrompt],
    ) -> Result<FrameDetections, InferenceError> {
        self.frames += 1;
        self.warm &= self.frames != 5;
        if !self.warm {
            return Err(InferenceError::Worker {
                call: "detect_text_prompts",
                reason: "it ended with signal: 9".into(),
                stderr_tail: String::new(),
            });
        }
        Ok(FrameDetections {
            frame_index: frame.index,
            ..FrameDetections::default()
        })
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>, InferenceError> {
        Ok(vec![self.detect_text_prompts(frame, prompts)?])
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>, InferenceError> {
        Ok(vec![self.detect_text_prompts(frame, &[])?])
    }

    fn shutdown(&mut self) -> Result<(), InferenceError> {
        Ok(())
    }
}

#[test]
fn a_provider_that_died_in_one_source_is_warmed_up_for_the_next_and_the_device_is_recorded() {
    let drawn = pan(8);
    fs::copy(
        drawn.dir.path().join("clip.y4m"),
        drawn.dir.path().join("later.y4m"),
    )
    .unwrap();
    let sources = vec![
        drawn.source(),
        Source::File(drawn.dir.path().join("later.y4m")),
    ];
    let out = drawn.out("out");
    let plan = ScanPlan::new(ScanOptions::default(), sources, Some(&out), None).unwrap();
    let report = Scanner::new(plan, Box::new(Fragile::default()))
        .with_device(RunsOn {
            device: "fragile:0".into(),
            dtype: "f32".into(),
            why: "as asked".into(),
        })
        .run()
        .unwrap();
    let [first, second] = report.sources.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(first.run.status, RunStatus::Failed);
    let reason = first.run.reason.as_deref().unwrap();
    assert!(reason.contains("signal: 9"), "{reason}");
    assert_eq!(second.run.status, RunStatus::Complete);
    assert_eq!(second.run.frames.processed, 8);
    for source in &report.sources {
        let text = fs::read_to_string(out.join(&source.folder).join(names::RUN)).unwrap();
        let run: Value = serde_json::from_str(&text).unwrap();
        assert_valid(&schema("run.schema.json"), &run);
        assert_eq!(run["runs_on"]["device"], "fragile:0");
    }
}

#[test]
fn black_frames_first_in_the_middle_and_last_are_empty_and_harmless() {
    let drawn = pan(40);
    let mut frames = crate::drawn::visible(&drawn.clip).detections();
    for i in [0, 1, 20, 21, 38, 39] {
        frames[i].detections.clear();
    }
    crate::drawn::write_detections(&drawn.detections, &frames);
    let done = drawn.scan(&drawn.out("out"), Existing::Refuse);
    assert_eq!(done.run.status, RunStatus::Complete);
    assert_eq!(
        lines(&drawn.out("out").join(&done.folder).join(names::DETECTIONS)).len(),
        40
    );

    for frame in &mut frames {
        frame.detections.clear();
    }
    crate::drawn::write_detections(&drawn.detections, &frames);
    let empty = drawn.scan(&drawn.out("empty"), Existing::Refuse);
    assert_eq!(empty.run.status, RunStatus::Complete);
    assert_eq!((empty.run.tracks, empty.run.facings), (0, 0));
}

#[test]
fn three_phrases_take_one_pass_over_the_frames_and_keep_their_names() {
    let drawn = pan(20);
    let provider = ScriptedProvider::new(|_| {
        Ok(vec![
            detection("bottle", 0.9, [10.0, 10.0, 60.0, 90.0], None),
            detection("can", 0.8, [100.0, 10.0, 150.0, 90.0], None),
            detection("price tag", 0.7, [200.0, 10.0, 260.0, 40.0], None),
        ])
    });
    let calls = provider.calls();
    let options = ScanOptions {
        prompts: ["bottle", "can", "price tag"]
            .map(|p| shelfscan_inference_core::TextPrompt::new(p).unwrap())
            .into(),
        ..ScanOptions::default()
    };
    let plan = ScanPlan::new(options, vec![drawn.source()], None, None).unwrap();
    let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
    assert_eq!(calls.frames(), 20);
    let labels: BTreeSet<&str> = done.tracks.iter().map(|t| &*t.label).collect();
    assert_eq!(labels, BTreeSet::from(["bottle", "can", "price tag"]));
}

#[test]
fn counts_are_kept_for_each_region_and_nothing_outside_them_is_found() {
    let drawn = pan(20);
    let script = || {
        ScriptedProvider::new(|_| {
            Ok(vec![
                detection("product", 0.9, [10.0, 10.0, 60.0, 90.0], None),
                detection("product", 0.8, [100.0, 10.0, 150.0, 90.0], None),
                detection("product", 0.7, [200.0, 10.0, 260.0, 90.0], None),
            ])
        })
    };
    let region = |name: &str, bbox: [f32; 4]| Region {
        name: name.into(),
        bbox: bbox.into(),
    };
    let run = |regions: Vec<Region>| {
        let mut options = ScanOptions {
            regions,
            ..ScanOptions::default()
        };
        options.associate.motion_compensation = false;
        let plan = ScanPlan::new(options, vec![drawn.source()], None, None).unwrap();
        only(Scanner::new(plan, Box::new(script())).run().unwrap())
    };
    let done = run(vec![
        region("left", [0.0, 0.0, 160.0, 200.0]),
        region("empty", [270.0, 0.0, 320.0, 200.0]),
    ]);
    assert_eq!(done.facings.len(), 2);
    assert!(
        done.facings
            .iter()
            .all(|f| f.region.as_deref() == Some("left"))
    );

    let outside = run(vec![region("far", [4000.0, 0.0, 4100.0, 90.0])]);
    assert_eq!(outside.run.status, RunStatus::Failed);
    let reason = outside.run.reason.unwrap();
    assert!(
        reason.contains("`far`") && reason.contains("outside"),
        "{reason}"
    );
}

#[test]
fn one_bad_source_is_one_failed_row_and_the_others_are_done() {
    let drawn = pan(20);
    let text = drawn.dir.path().join("a.txt.mp4");
    let empty = drawn.dir.path().join("z.mp4");
    fs::write(&text, "no video").unwrap();
    fs::write(&empty, "").unwrap();
    let sources = vec![Source::File(text), drawn.source(), Source::File(empty)];
    let out = drawn.out("out");
    let plan = ScanPlan::new(ScanOptions::default(), sources, Some(&out), None).unwrap();
    let report = Scanner::new(plan, drawn.replay()).run().unwrap();
    let status: Vec<RunStatus> = report.sources.iter().map(|s| s.run.status).collect();
    assert_eq!(
        status,
        [RunStatus::Failed, RunStatus::Complete, RunStatus::Failed]
    );
    assert!(!report.is_complete());
    for source in &report.sources {
        let run: Value = serde_json::from_str(
            &fs::read_to_string(out.join(&source.folder).join(names::RUN)).unwrap(),
        )
        .unwrap();
        assert_eq!(
            run["status"].as_str().unwrap() == "complete",
            source.run.status == RunStatus::Complete
        );
    }
}

#[test]
fn a_failure_every_source_would_meet_stops_the_run_and_keeps_the_finished_frames() {
    let drawn = pan(20);
    let provider = ScriptedProvider::new(|frame| {
        if frame.index == 7 {
            return Err(InferenceError::NonFinite {
                stage: "mask decoder".into(),
            });
        }
        Ok(vec![])
    });
    let sources = vec![
        drawn.source(),
        Source::File(drawn.dir.path().join("truth.jsonl")),
    ];
    let out = drawn.out("out");
    let plan = ScanPlan::new(ScanOptions::default(), sources, Some(&out), None).unwrap();
    let report = Scanner::new(plan, Box::new(provider)).run().unwrap();
    assert_eq!(report.sources.len(), 1, "the second source is not tried");
    let failed = &report.sources[0];
    assert_eq!(failed.run.status, RunStatus::Failed);
    let reason = failed.run.reason.as_deref().unwrap();
    assert!(
        reason.contains("mask decoder") && reason.contains("last good frame 6"),
        "{reason}"
    );
    assert_eq!(
        lines(&out.join(&failed.folder).join(names::DETECTIONS)).len(),
        7
    );
}

#[test]
fn a_provider_that_panics_costs_its_source_and_not_the_process() {
    let drawn = pan(20);
    let mut first = true;
    let provider = ScriptedProvider::new(move |frame| {
        assert!(
            frame.index != 3 || !std::mem::take(&mut first),
            "on purpose"
        );
        Ok(vec![])
    });
    fs::copy(
        drawn.dir.path().join("clip.y4m"),
        drawn.dir.path().join("again.y4m"),
    )
    .unwrap();
    let sources = vec![
        drawn.source(),
        Source::File(drawn.dir.path().join("again.y4m")),
    ];
    let plan = ScanPlan::new(ScanOptions::default(), sources, None, None).unwrap();
    let report = Scanner::new(plan, Box::new(provider)).run().unwrap();
    let status: Vec<RunStatus> = report.sources.iter().map(|s| s.run.status).collect();
    assert_eq!(status, [RunStatus::Failed, RunStatus::Complete]);
    assert!(
        report.sources[0]
            .run
            .reason
            .as_deref()
            .unwrap()
            .contains("on purpose")
    );
}

#[test]
fn values_that_are_not_numbers_are_null_with_a_notice_and_are_not_tracked() {
    let drawn = pan(10);
    let provider = ScriptedProvider::new(|_| {
        Ok(vec![
            detection("product", f32::NAN, [10.0, 10.0, 60.0, 90.0], None),
            detection("product", 0.8, [f32::NAN, 10.0, 150.0, 90.0], None),
            detection("product", 0.7, [200.0, 10.0, 260.0, 90.0], None),
        ])
    });
    let out = drawn.out("out");
    let mut options = ScanOptions::default();
    // The boxes stand still although the picture moves.
    options.associate.motion_compensation = false;
    let plan = ScanPlan::new(options, vec![drawn.source()], Some(&out), None).unwrap();
    let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
    assert_eq!(done.run.status, RunStatus::Complete);
    assert_eq!(done.facings.len(), 1);
    assert_eq!(&*done.run.notices[0].code, "value_not_finite");
    assert_eq!(done.run.notices[0].count, 10);
    let frames = lines(&out.join(&done.folder).join(names::DETECTIONS));
    assert_eq!(frames.len(), 10);
    let nulls = frames[0]["detections"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["score"].is_null())
        .count();
    assert_eq!(nulls, 1);
}

#[test]
fn more_detections_than_the_cap_are_cut_with_a_notice() {
    let drawn = pan(5);
    let provider = ScriptedProvider::new(|_| {
        Ok((0..300)
            .map(|i| {
                let x = (i % 30) as f32 * 10.0;
                let y = (i / 30) as f32 * 12.0;
                detection(
                    "product",
                    0.9 - i as f32 * 1e-3,
                    [x, y, x + 8.0, y + 10.0],
                    None,
                )
            })
            .collect())
    });
    let options = ScanOptions {
        max_detections: 30,
        ..ScanOptions::default()
    };
    let plan = ScanPlan::new(options, vec![drawn.source()], None, None).unwrap();
    let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
    assert_eq!(done.facings.len(), 30);
    assert_eq!(&*done.run.notices[0].code, "detection_cap_hit");
}

#[test]
fn an_app_hears_every_frame_and_can_stop_the_scan() {
    struct App {
        stop: CancelHandle,
        frames: AtomicU64,
        order: Mutex<Vec<u64>>,
    }
    impl ScanObserver for App {
        fn frame(&self, _: &SourceId, record: &FrameRecord) {
            self.order.lock().unwrap().push(record.frame_index);
        }
        fn progress(&self, progress: &Progress<'_>) {
            assert_eq!(progress.expected, Some(60));
            if self.frames.fetch_add(1, Ordering::SeqCst) == 9 {
                self.stop.cancel();
            }
        }
    }
    let drawn = pan(60);
    let mut scanner = drawn.scanner(ScanOptions::default(), Some(&drawn.out("out")));
    let app = Arc::new(App {
        stop: scanner.cancel_handle(),
        frames: AtomicU64::new(0),
        order: Mutex::new(Vec::new()),
    });
    scanner = scanner.with_observer(app.clone());
    let report = scanner.run().unwrap();
    assert!(report.cancelled);
    let stopped = only(report);
    assert_eq!(stopped.run.status, RunStatus::Interrupted);
    let heard = app.order.lock().unwrap().clone();
    assert!(heard.len() >= 10 && heard.len() < 60, "{}", heard.len());
    assert!(heard.windows(2).all(|w| w[0] < w[1]));

    let resumed = drawn.scan(&drawn.out("out"), Existing::Resume);
    assert_eq!(resumed.run.status, RunStatus::Complete);
    assert_eq!(resumed.facings.len(), drawn.true_facings());
}

#[test]
fn annotated_frames_are_written_for_every_processed_frame() {
    let drawn = pan(12);
    let mut options = ScanOptions::default();
    options.outputs.annotate = Annotate::Frames;
    options.read.every = 3;
    let out = drawn.out("out");
    let done = only(drawn.scanner(options, Some(&out)).run().unwrap());
    assert_eq!(
        done.run.status,
        RunStatus::Complete,
        "{:?}",
        done.run.reason
    );
    let folder = out.join(&done.folder).join(names::ANNOTATED_FRAMES);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 4);
    assert!(done.run.timings.stages.contains_key("annotate"));
}

#[test]
fn a_provider_with_its_own_ids_keeps_them() {
    let drawn: Drawn = pan(30);
    let truth = drawn.clip.tracked_detections(false);
    let provider = ScriptedProvider::from_frames(truth.into_iter().map(|f| f.detections).collect())
        .with_own_ids()
        .with_delay(4);
    let plan = ScanPlan::new(ScanOptions::default(), vec![drawn.source()], None, None).unwrap();
    let done = only(Scanner::new(plan, Box::new(provider)).run().unwrap());
    assert_eq!(done.run.frames.processed, 30);
    let ids: BTreeSet<u64> = done.tracks.iter().map(|t| t.track_id.0).collect();
    let wanted: BTreeSet<u64> = drawn.clip.truth().ids().iter().map(|id| id.0).collect();
    assert_eq!(ids, wanted);
}
