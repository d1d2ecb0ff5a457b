//! The scan: frames in, tracked and identified facings out.
//!
//! ```no_run
//! use shelfscan_pipeline::{ReplayFiles, ReplayProvider, ScanOptions, ScanPlan, Scanner};
//! let clip = shelfscan_video::Source::parse("aisle.mp4")?;
//! let plan = ScanPlan::new(ScanOptions::default(), vec![clip], Some("out".as_ref()), None)?;
//! let model = ReplayProvider::new(ReplayFiles::Single("detections.jsonl".into()), false);
//! for facing in &Scanner::new(plan, Box::new(model)).run()?.sources[0].facings {
//!     println!("{} {:?}", facing.label, facing.identity.sku);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Scanner`] runs a plan over files and cameras; [`FrameSession`] takes frames one by one.
//! * Any [`InferenceProvider`](shelfscan_inference_core::InferenceProvider) detects; those that give
//!   no track ids get the association of [`associate`].
//! * [`Identify`] names the SKU of a track; a loaded
//!   [`Recognizer`](shelfscan_gallery::Recognizer) is one.
//! * [`CancelHandle`] stops a scan, [`ScanObserver`] hears how it goes.
//! * The folder of a source is a journal that can be resumed; [`names`] lists its files.
//!
//! There are no cargo features. Limits: one provider, so sources are scanned one after the other;
//! at most 1,000 detections a frame by default; a facing is found again after the camera left it
//! only while the camera moves along a mostly flat shelf.

mod annotate;
pub mod associate;
mod book;
mod cancel;
mod crops;
mod detect;
mod diff;
mod error;
mod identity;
mod ids;
mod journal;
mod observer;
mod options;
mod outcome;
mod output;
mod plan;
mod queue;
mod records;
mod replay;
mod report;
mod same_run;
mod scan;
mod session;
mod track;
mod vote;

pub use annotate::{UNCONFIRMED_COLOR, identity_color};
pub use associate::FacingId;
pub use cancel::CancelHandle;
pub use diff::{
    CountDiff, DiffReport, DiffTolerances, DiffTotals, FrameDiff, SourceDiff, TrackChange,
    TrackDiff, diff,
};
pub use error::{PipelineError, Result};
pub use identity::Identify;
pub use journal::{Existing, names, read_run};
pub use observer::{Phase, Progress, ScanObserver, Silent};
pub use options::{Annotate, DEFAULT_PROMPT, IdentityOptions, OutputOptions, Region, ScanOptions};
pub use plan::{ScanPlan, Shard, SourcePlan};
pub use records::{DetectionRecord, FrameRecord};
pub use replay::{ReplayFiles, ReplayProvider};
pub use report::{
    BestCrop, Count, Facing, FrameCounts, NoticeCount, RUN_SCHEMA, RunFile, RunStatus, RunsOn,
    ScanReport, SourceReport, StageTime, Timings, TrackSummary, count_facings,
};
pub use scan::Scanner;
pub use session::FrameSession;
pub use vote::{Identity, IdentityStatus, vote};
