//! A long scan does not grow. Alone in its process, so that no other test is measured with it.
#![allow(clippy::unwrap_used)]

#[path = "../it/drawn.rs"]
#[allow(dead_code)]
mod drawn;

use std::{fs, sync::Arc, sync::Mutex};

use shelfscan_inference_core::SourceId;
use shelfscan_pipeline::{FrameRecord, RunStatus, ScanObserver, ScanOptions, ScanPlan, Scanner};
use shelfscan_testkit::shelf::{Shelf, ShelfClip, ShelfPlan};
use shelfscan_video::Source;

use drawn::{only, write_detections, write_y4m};

/// Resident memory of this process in bytes; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[derive(Default)]
struct Watch {
    samples: Mutex<Vec<(u64, u64)>>,
}

impl ScanObserver for Watch {
    fn frame(&self, _: &SourceId, record: &FrameRecord) {
        if record.frame_index.is_multiple_of(100)
            && let Some(bytes) = resident_bytes()
        {
            self.samples
                .lock()
                .unwrap()
                .push((record.frame_index, bytes));
        }
    }
}

#[test]
fn three_thousand_frames_grow_less_than_five_percent_after_frame_three_hundred() {
    const FRAMES: u64 = 3000;
    let shelf = Arc::new(Shelf::draw(&ShelfPlan {
        seed: 5,
        rows: 2,
        packs_per_row: 12,
        ..ShelfPlan::default()
    }));
    let height = shelf.picture.height().min(200);
    // One pan is drawn and played again and again, so tracks are born and lost all the time.
    let pan = ShelfClip::forth_and_back(shelf, 100, 240, height);
    let images: Vec<_> = pan.frames().map(|f| f.image).collect();
    let truth = drawn::visible(&pan).detections();
    let dir = tempfile::tempdir().unwrap();
    let clip = dir.path().join("long.y4m");
    write_y4m(&clip, images.iter().cycle().take(FRAMES as usize));
    let mut frames = Vec::new();
    for (i, frame) in truth.iter().cycle().take(FRAMES as usize).enumerate() {
        let mut frame = frame.clone();
        frame.frame_index = i as u64;
        frames.push(frame);
    }
    let detections = dir.path().join("long.jsonl");
    write_detections(&detections, &frames);
    drop(frames);

    let out = dir.path().join("out");
    let plan = ScanPlan::new(
        ScanOptions::default(),
        vec![Source::File(clip)],
        Some(&out),
        None,
    )
    .unwrap();
    let provider = shelfscan_pipeline::ReplayProvider::new(
        shelfscan_pipeline::ReplayFiles::Single(detections),
        false,
    );
    let watch = Arc::new(Watch::default());
    let done = only(
        Scanner::new(plan, Box::new(provider))
            .with_observer(watch.clone())
            .run()
            .unwrap(),
    );
    assert_eq!(done.run.status, RunStatus::Complete);
    assert_eq!(done.run.frames.processed, FRAMES);
    assert!(done.tracks.len() < 3000, "{} tracks", done.tracks.len());
    let samples = watch.samples.lock().unwrap();
    let Some(&(_, early)) = samples.iter().find(|(frame, _)| *frame == 300) else {
        println!("skipped: this system does not tell resident memory");
        return;
    };
    let latest = samples.iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(
        latest as f64 <= early as f64 * 1.05,
        "{early} bytes at frame 300, {latest} later"
    );
}
