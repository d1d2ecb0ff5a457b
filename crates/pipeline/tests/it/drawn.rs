//! A drawn clip as a Y4M file, which is read without ffmpeg, and its truth as detections.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use shelfscan_inference_core::{FrameDetections, RgbImage};
use shelfscan_pipeline::{
    Existing, ReplayFiles, ReplayProvider, ScanOptions, ScanPlan, ScanReport, Scanner, SourceReport,
};
use shelfscan_testkit::{
    shelf::{Shelf, ShelfClip, ShelfPlan},
    truth::{self, Truth},
    y4m::write_y4m,
};
use shelfscan_video::Source;
use tempfile::TempDir;

/// A clip on disk.
pub(crate) struct Drawn {
    pub(crate) dir: TempDir,
    pub(crate) clip: ShelfClip,
    pub(crate) detections: PathBuf,
}

/// The packs of which at least a tenth is in view; no detector sees less.
pub(crate) fn visible(clip: &ShelfClip) -> Truth {
    clip.truth().only(|o| o.visible_fraction >= MIN_VISIBLE)
}

const MIN_VISIBLE: f32 = 0.1;

/// A pan over two rows of packs, forth and back.
pub(crate) fn pan(frames: u32) -> Drawn {
    let plan = ShelfPlan {
        seed: 11,
        rows: 2,
        packs_per_row: 8,
        ..ShelfPlan::default()
    };
    let shelf = Arc::new(Shelf::draw(&plan));
    let height = shelf.picture.height();
    Drawn::new(ShelfClip::forth_and_back(shelf, frames, 420, height))
}

impl Drawn {
    pub(crate) fn new(clip: ShelfClip) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let images: Vec<RgbImage> = clip.frames().map(|f| f.image).collect();
        write_y4m(&dir.path().join("clip.y4m"), &images).unwrap();
        let detections = dir.path().join("truth.jsonl");
        write_detections(&detections, &visible(&clip).detections());
        Self {
            dir,
            clip,
            detections,
        }
    }

    pub(crate) fn source(&self) -> Source {
        Source::File(self.dir.path().join("clip.y4m"))
    }

    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn replay(&self) -> Box<ReplayProvider> {
        Box::new(ReplayProvider::new(
            ReplayFiles::Single(self.detections.clone()),
            false,
        ))
    }

    pub(crate) fn scanner(&self, options: ScanOptions, out: Option<&Path>) -> Scanner {
        let plan = ScanPlan::new(options, vec![self.source()], out, None).unwrap();
        Scanner::new(plan, self.replay())
    }

    pub(crate) fn scan(&self, out: &Path, existing: Existing) -> SourceReport {
        let report = self
            .scanner(ScanOptions::default(), Some(out))
            .with_existing(existing)
            .run()
            .unwrap();
        only(report)
    }

    /// Facings of the truth: in view in three frames, which is what the association asks for.
    pub(crate) fn true_facings(&self) -> usize {
        self.clip.truth().facings("product", MIN_VISIBLE, 3).len()
    }
}

pub(crate) fn only(mut report: ScanReport) -> SourceReport {
    assert_eq!(report.sources.len(), 1);
    report.sources.remove(0)
}

pub(crate) fn write_detections(path: &Path, frames: &[FrameDetections]) {
    truth::write_detections(path, frames).unwrap();
}
