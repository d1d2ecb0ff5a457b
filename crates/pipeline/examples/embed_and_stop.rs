//! Runs a scan inside an app: hears how it goes, and stops it after a number of frames.
//!
//! `cargo run -p shelfscan-pipeline --example embed_and_stop -- clip.mp4 detections.jsonl`

#![allow(clippy::print_stdout)]

use std::{error::Error, sync::Arc};

use shelfscan_inference_core::SourceId;
use shelfscan_pipeline::{
    CancelHandle, FrameRecord, Progress, ReplayFiles, ReplayProvider, ScanObserver, ScanOptions,
    ScanPlan, Scanner,
};
use shelfscan_video::Source;

/// What the app wants to hear, and when it has heard enough.
struct App {
    stop: CancelHandle,
    enough_frames: u64,
}

impl ScanObserver for App {
    fn frame(&self, source: &SourceId, record: &FrameRecord) {
        println!(
            "{source} frame {}: {} found",
            record.frame_index,
            record.detections.len()
        );
    }

    fn progress(&self, progress: &Progress<'_>) {
        if progress.frames >= self.enough_frames {
            self.stop.cancel();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let clip = arguments
        .next()
        .ok_or("give a video or a folder of pictures")?;
    let detections = arguments.next().ok_or("give a detections.jsonl")?;

    let plan = ScanPlan::new(
        ScanOptions::default(),
        vec![Source::parse(&clip)?],
        None,
        None,
    )?;
    let provider = ReplayProvider::new(ReplayFiles::Single(detections.into()), false);
    let stop = CancelHandle::new();
    let app = Arc::new(App {
        stop: stop.clone(),
        enough_frames: 100,
    });

    // The scan may run on any thread; here the app waits for it on another.
    let scan = std::thread::spawn(move || {
        Scanner::new(plan, Box::new(provider))
            .with_observer(app)
            .with_cancel(stop)
            .run()
    });
    let report = scan.join().map_err(|_| "the scan panicked")??;
    println!(
        "stopped: {}, facings so far: {}",
        report.cancelled,
        report.sources.first().map_or(0, |s| s.run.facings)
    );
    Ok(())
}
