//! What a scan found, as it is written and returned.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{BoxXyxy, EmbedderFingerprint, Notice, ProviderInfo, TrackId};
use shelfscan_video::SourceInfo;

use crate::{FacingId, Identity, IdentityStatus};

/// Name and version of the layout of `run.json`.
pub const RUN_SCHEMA: &str = "shelfscan.run/1";

/// How a source ended. Only [`RunStatus::Complete`] means that everything asked for is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Still going, or ended without a word: a killed process leaves this behind.
    Running,
    /// Everything asked for was read and processed.
    Complete,
    /// The source is damaged; its good frames were processed.
    Partial,
    /// It was stopped from outside; it can be resumed.
    Interrupted,
    /// It could not be read or processed; finished frames are kept.
    Failed,
}

/// One confirmed track: a line of `tracks.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrackSummary {
    /// The track, unique within its source.
    pub track_id: TrackId,
    /// The facing it is a sight of.
    pub facing_id: FacingId,
    /// Label of the prompt that found it.
    pub label: Arc<str>,
    /// What it is.
    pub identity: Identity,
    /// First frame it was seen in, also before it was confirmed.
    pub first_frame: u64,
    /// Last frame it was seen in.
    pub last_frame: u64,
    /// Time of the first frame, in seconds of the source's clock.
    pub first_secs: f64,
    /// Time of the last frame, in seconds of the source's clock.
    pub last_secs: f64,
    /// Number of frames it was seen in.
    pub frames: u32,
    /// Mean of its boxes, in source pixels.
    pub mean_box: BoxXyxy,
    /// Mean of its detection scores, 0 to 1.
    pub mean_score: f32,
    /// The region most of its boxes lie in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// Its best crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_crop: Option<BestCrop>,
}

/// The picture that shows a track best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestCrop {
    /// Frame it was cut from.
    pub frame_index: u64,
    /// Time of that frame, in seconds of the source's clock.
    pub time_secs: f64,
    /// Path below the source's folder, when crops are saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// One facing: a pack that stands at one place, however often the camera saw it. A row of
/// `facings.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facing {
    /// The facing, unique within its source.
    pub facing_id: FacingId,
    /// Label of the prompt that found it.
    pub label: Arc<str>,
    /// What it is, by the crops of all its tracks.
    pub identity: Identity,
    /// The region it lies in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// First frame it was seen in.
    pub first_frame: u64,
    /// Last frame it was seen in.
    pub last_frame: u64,
    /// Time of the first frame, in seconds of the source's clock.
    pub first_secs: f64,
    /// Time of the last frame, in seconds of the source's clock.
    pub last_secs: f64,
    /// Number of frames it was seen in.
    pub frames: u32,
    /// Mean box of the track that saw it longest, in source pixels.
    pub mean_box: BoxXyxy,
    /// Its tracks, in order.
    pub tracks: Vec<TrackId>,
    /// Its best crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_crop: Option<BestCrop>,
}

/// How many facings a SKU has. A row of `counts.csv`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Count {
    /// Label of the prompt.
    pub label: Arc<str>,
    /// The region, when regions were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// Whether the row is a SKU, the unknown ones, or those never asked about.
    pub status: IdentityStatus,
    /// The SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<Arc<str>>,
    /// Number of facings.
    pub facings: u64,
}

/// Counts facings by label, region and SKU, in that order.
pub fn count_facings(facings: &[Facing]) -> Vec<Count> {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for f in facings {
        let key = (
            f.label.clone(),
            f.region.clone(),
            f.identity.status,
            f.identity.sku.clone(),
        );
        *counts.entry(key).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|((label, region, status, sku), facings)| Count {
            label,
            region,
            status,
            sku,
            facings,
        })
        .collect()
}

/// Frames of a source, from several points of view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameCounts {
    /// Frames the container says it has. Containers err.
    pub declared: Option<u64>,
    /// Frames that came out of the decoder, also those that were skipped on purpose.
    pub decoded: u64,
    /// Frames that went through the model.
    pub processed: u64,
    /// Frames a camera delivered that were dropped because the model was busy.
    pub dropped: u64,
    /// Frames or pictures that were due and could not be decoded.
    pub undecodable: u64,
}

/// A notice and how often it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeCount {
    /// A stable name in `snake_case`.
    pub code: Arc<str>,
    /// The sentence of the first time.
    pub message: String,
    /// How often it came.
    pub count: u64,
    /// The first frame it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_frame: Option<u64>,
}

/// Most kinds of notices a run records; the kinds are fixed, so this is a bound, not a limit anyone
/// meets.
const MAX_NOTICE_KINDS: usize = 64;

/// Collects notices in bounded space, by kind, in order of their first coming.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoticeBook {
    kinds: Vec<NoticeCount>,
}

impl NoticeBook {
    /// Counts a notice; `true` the first time its kind comes.
    pub(crate) fn add(&mut self, notice: &Notice, frame: Option<u64>) -> bool {
        if let Some(known) = self.kinds.iter_mut().find(|n| n.code == notice.code) {
            known.count += 1;
            return false;
        }
        if self.kinds.len() >= MAX_NOTICE_KINDS {
            return false;
        }
        self.kinds.push(NoticeCount {
            code: notice.code.clone(),
            message: notice.message.clone(),
            count: 1,
            first_frame: frame,
        });
        true
    }

    /// What came of one kind.
    pub(crate) fn get(&self, code: &str) -> Option<&NoticeCount> {
        self.kinds.iter().find(|n| &*n.code == code)
    }

    pub(crate) fn into_counts(mut self) -> Vec<NoticeCount> {
        // Threads may report in any order; the file must not show it.
        self.kinds
            .sort_by(|a, b| (a.first_frame, &a.code).cmp(&(b.first_frame, &b.code)));
        self.kinds
    }
}

/// Work done by one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// Time spent working, in seconds; waiting does not count.
    pub busy_secs: f64,
    /// Frames, crops or rows worked on.
    pub items: u64,
}

/// Where the time went. The only part of the output that differs between equal runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// From opening the source to the last byte, in seconds.
    pub wall_secs: f64,
    /// Threads that embedded crops.
    pub identity_workers: usize,
    /// Time of each stage.
    pub stages: BTreeMap<String, StageTime>,
}

/// The content of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Version of shelfscan.
    pub version: String,
    /// How the source ended.
    pub status: RunStatus,
    /// Why, when it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The source, as it was given.
    pub source: String,
    /// Bytes of its files, by which a source that was replaced is told; absent for what is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_bytes: Option<u64>,
    /// What is in it, once it was opened.
    pub info: Option<SourceInfo>,
    /// Everything that was decided before the first frame.
    pub plan: serde_json::Value,
    /// The model that detected.
    pub provider: ProviderInfo,
    /// What the models ran on, when that was decided for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_on: Option<RunsOn>,
    /// Fingerprint of the gallery and its embedder, when identities were asked for.
    pub gallery: Option<String>,
    /// The model that embedded crops, when identities were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder: Option<EmbedderFingerprint>,
    /// Frames from several points of view.
    pub frames: FrameCounts,
    /// Number of confirmed tracks.
    pub tracks: u64,
    /// Number of facings.
    pub facings: u64,
    /// Facings by label, region and SKU.
    pub counts: Vec<Count>,
    /// What the reader has to know.
    pub notices: Vec<NoticeCount>,
    /// Where the time went.
    pub timings: Timings,
}

/// A device that was decided on, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsOn {
    /// The device, such as `cpu` or `cuda:0`.
    pub device: String,
    /// The type models calculate in, such as `f32`.
    pub dtype: String,
    /// What led to it, for people.
    pub why: String,
}

/// What came of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceReport {
    /// Folder of its results below the output folder.
    pub folder: String,
    /// The content of its `run.json`.
    pub run: RunFile,
    /// Its facings; empty when an earlier run had already finished the source.
    pub facings: Vec<Facing>,
    /// Its tracks; empty when an earlier run had already finished the source.
    pub tracks: Vec<TrackSummary>,
    /// True when the failure would befall every later source as well.
    pub fatal: bool,
}

/// What came of a whole scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanReport {
    /// The sources, in the order of the plan.
    pub sources: Vec<SourceReport>,
    /// True when the scan was stopped from outside.
    pub cancelled: bool,
}

impl ScanReport {
    /// True when every source is complete.
    pub fn is_complete(&self) -> bool {
        !self.cancelled
            && self
                .sources
                .iter()
                .all(|s| s.run.status == RunStatus::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_the_bound_of_notices_stays_bounded_and_counts_repeats() {
        let mut book = NoticeBook::default();
        for i in 0..MAX_NOTICE_KINDS * 10 {
            book.add(&Notice::new(&format!("kind_{i}"), "text"), Some(i as u64));
        }
        assert!(!book.add(&Notice::new("kind_3", "other text"), Some(999)));
        let counts = book.into_counts();
        assert_eq!(counts.len(), MAX_NOTICE_KINDS);
        assert_eq!((counts[3].count, counts[3].message.as_str()), (2, "text"));
    }

    #[test]
    fn facings_are_counted_by_label_region_and_sku() {
        let facing = |id, sku: Option<&str>, region: Option<&str>| Facing {
            facing_id: FacingId(id),
            label: "product".into(),
            identity: Identity {
                status: if sku.is_some() {
                    IdentityStatus::Identified
                } else {
                    IdentityStatus::Unknown
                },
                sku: sku.map(Into::into),
                ..Identity::not_asked()
            },
            region: region.map(Into::into),
            first_frame: 0,
            last_frame: 9,
            first_secs: 0.0,
            last_secs: 0.3,
            frames: 10,
            mean_box: BoxXyxy::new(0.0, 0.0, 1.0, 1.0),
            tracks: vec![TrackId(id)],
            best_crop: None,
        };
        let counts = count_facings(&[
            facing(1, Some("cola"), None),
            facing(2, Some("cola"), None),
            facing(3, None, None),
            facing(4, Some("cola"), Some("top")),
        ]);
        let rows: Vec<(Option<&str>, Option<&str>, u64)> = counts
            .iter()
            .map(|c| (c.region.as_deref(), c.sku.as_deref(), c.facings))
            .collect();
        assert_eq!(
            rows,
            [
                (None, Some("cola"), 2),
                (None, None, 1),
                (Some("top"), Some("cola"), 1)
            ]
        );
    }
}
