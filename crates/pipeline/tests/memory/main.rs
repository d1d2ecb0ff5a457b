//! A long scan does not grow. Alone in its process, so that no other test is measured with it.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    sync::{Arc, Mutex},
};

use shelfscan_inference_core::{FrameTime, RgbImage, SourceId, VideoFrame};
use shelfscan_pipeline::{
    FrameRecord, ReplayFiles, ReplayProvider, RunStatus, ScanObserver, ScanOptions, ScanPlan,
    Scanner,
};
use shelfscan_testkit::{
    shelf::{Shelf, ShelfClip, ShelfPlan},
    truth::write_detections,
};
use shelfscan_video::{
    CancelHandle, FrameReader, ReadStatus, ReadSummary, Source, SourceInfo, VideoError,
};

const FRAMES: u64 = 3000;

/// Plays a short clip again and again, each frame in memory of its own as a decoder would give it.
struct Loop {
    pictures: Arc<Vec<RgbImage>>,
    info: SourceInfo,
    next: u64,
}

impl FrameReader for Loop {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<VideoFrame>, VideoError> {
        let index = self.next;
        if index == FRAMES {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(VideoFrame {
            image: self.pictures[index as usize % self.pictures.len()].clone(),
            index,
            time: FrameTime::exact(index as f64 / 30.0),
            source: SourceId::new("long"),
        }))
    }

    fn summary(&self) -> ReadSummary {
        ReadSummary {
            decoded: self.next,
            delivered: self.next,
            dropped: 0,
            status: ReadStatus::Complete,
            notices: Vec::new(),
        }
    }

    fn cancel_handle(&self) -> Option<CancelHandle> {
        None
    }
}

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
        if record.frame_index.is_multiple_of(20)
            && let Some(bytes) = resident_bytes()
        {
            let mut samples = self.samples.lock().unwrap();
            samples.push((record.frame_index, bytes));
        }
    }
}

#[test]
fn three_thousand_frames_grow_less_than_five_percent_after_frame_three_hundred() {
    let shelf = Arc::new(Shelf::draw(&ShelfPlan {
        seed: 5,
        rows: 2,
        packs_per_row: 12,
        ..ShelfPlan::default()
    }));
    let height = shelf.picture.height().min(200);
    // One pan is played again and again, so tracks are born and lost all the time.
    let pan = ShelfClip::forth_and_back(shelf, 100, 240, height);
    let pictures = Arc::new(pan.frames().map(|f| f.image).collect::<Vec<_>>());
    let truth = pan.truth().only(|o| o.visible_fraction >= 0.1).detections();
    let frames: Vec<_> = truth
        .iter()
        .cycle()
        .take(FRAMES as usize)
        .zip(0..)
        .map(|(frame, index)| {
            let mut frame = frame.clone();
            frame.frame_index = index;
            frame
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let detections = dir.path().join("long.jsonl");
    write_detections(&detections, &frames).unwrap();
    drop(frames);

    let out = dir.path().join("out");
    let sources = vec![Source::File("long".into())];
    let plan = ScanPlan::new(ScanOptions::default(), sources, Some(&out), None).unwrap();
    let provider = ReplayProvider::new(ReplayFiles::Single(detections), false);
    let watch = Arc::new(Watch::default());
    let report = Scanner::new(plan, Box::new(provider))
        .with_opener(move |_, _| {
            Ok(Box::new(Loop {
                pictures: Arc::clone(&pictures),
                info: SourceInfo::default(),
                next: 0,
            }))
        })
        .with_observer(watch.clone())
        .run()
        .unwrap();
    let done = &report.sources[0];
    assert_eq!(done.run.status, RunStatus::Complete);
    assert_eq!(done.run.frames.processed, FRAMES);
    assert!(done.tracks.len() > 200, "{} tracks", done.tracks.len());
    let samples = watch.samples.lock().unwrap();
    // Frames in flight come and go, and how many there are at most depends on how busy the machine is:
    // frames are small beside the whole, and the highest of a stretch counts and not a single look.
    let highest = |from: u64, to: u64| {
        let stretch = samples.iter().filter(|(f, _)| (from..to).contains(f));
        stretch.map(|(_, bytes)| *bytes).max()
    };
    let (Some(early), Some(late)) = (highest(100, 500), highest(500, FRAMES)) else {
        println!("skipped: this system does not tell resident memory");
        return;
    };
    println!("{early} bytes around frame 300, {late} bytes later");
    assert!(
        late as f64 <= early as f64 * 1.05,
        "{early} bytes around frame 300, {late} bytes later"
    );
}
