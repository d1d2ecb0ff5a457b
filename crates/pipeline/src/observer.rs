//! How a scan tells an app or a terminal what it is doing.

use serde::Serialize;
use shelfscan_inference_core::{Notice, SourceId};
use shelfscan_video::SourceInfo;

use crate::{FrameRecord, SourceReport};

/// What a source is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Frames are read, detected, tracked.
    Scanning,
    /// The last crops are being identified.
    Identifying,
    /// The annotated video or frames are written.
    Annotating,
}

/// How far a source is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The source.
    pub source: &'a SourceId,
    /// What it is busy with.
    pub phase: Phase,
    /// Frames done in this phase.
    pub frames: u64,
    /// Frames expected, as far as the container's word goes; `None` for a camera.
    pub expected: Option<u64>,
}

/// Hears about a scan while it runs. Calls come from the scan's own threads, one at a time for one
/// source, and hold the scan up while they run. Every method may be left out.
pub trait ScanObserver: Send + Sync {
    /// A source was opened.
    fn source_started(&self, source: &SourceId, info: &SourceInfo) {
        let _ = (source, info);
    }

    /// A frame is through. The record is what goes into `detections.jsonl`.
    fn frame(&self, source: &SourceId, record: &FrameRecord) {
        let _ = (source, record);
    }

    /// A source got further; called for every frame of every phase.
    fn progress(&self, progress: &Progress<'_>) {
        let _ = progress;
    }

    /// Something the reader of the result has to know, the first time it happens.
    fn notice(&self, source: &SourceId, notice: &Notice) {
        let _ = (source, notice);
    }

    /// A source is done, well or not.
    fn source_finished(&self, report: &SourceReport) {
        let _ = report;
    }
}

/// Hears everything and does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ScanObserver for Silent {}
