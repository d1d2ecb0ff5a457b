//! What moved between two runs.
//!
//! Detections of a frame are paired within their label by overlap, the best overlap first, so ids
//! and the order in the file do not matter. Ids are compared by what they hold together: a run
//! whose tracks are numbered otherwise is the same run.

mod found;
mod frames;
mod tracks;

use std::{path::Path, sync::Arc};

use serde::Serialize;
use shelfscan_inference_core::TrackId;

use crate::{IdentityStatus, Result, RunStatus, journal::read_run};
use found::{Pair, Recorded, find, pair_up};
use frames::compare_frames;
use tracks::{compare_counts, compare_tracks};

/// How far two runs may be apart and still count as equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffTolerances {
    /// How far any side of a box may move, in source pixels.
    pub box_px: f32,
    /// How far a score may move.
    pub score: f32,
    /// How many detections of one frame may be missing or extra, and by how many facings a row of
    /// the counts may differ.
    pub count: u64,
    /// How many tracks may have another identity, be split or be joined.
    pub identity: u64,
    /// Boxes that overlap less than this (intersection over union, 0 to 1) are two objects.
    pub min_iou: f32,
    /// Most frames, counts and tracks that are listed one by one. All are counted.
    pub listed: usize,
}

impl Default for DiffTolerances {
    fn default() -> Self {
        Self {
            box_px: 1.0,
            score: 0.01,
            count: 0,
            identity: 0,
            min_iou: 0.5,
            listed: 20,
        }
    }
}

/// One frame in which something is over a tolerance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FrameDiff {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// Expected detections without a partner.
    pub missing: u64,
    /// Detections without an expected partner.
    pub extra: u64,
    /// Pairs whose boxes are further apart than tolerated.
    pub moved: u64,
    /// Pairs whose scores are further apart than tolerated.
    pub rescored: u64,
    /// Largest move of a box side in the frame, in source pixels.
    pub max_box_px: f32,
    /// Largest move of a score in the frame.
    pub max_score: f32,
}

/// A row of the counts that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountDiff {
    /// Label of the prompt.
    pub label: Arc<str>,
    /// The region, when regions were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// Whether the row is a SKU, the unknown ones, or those never asked about.
    pub status: IdentityStatus,
    /// The SKU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<Arc<str>>,
    /// Facings in the expected run.
    pub expected: u64,
    /// Facings in the other run.
    pub actual: u64,
}

/// What changed about a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackChange {
    /// It has another SKU, or became unknown or known.
    Identity,
    /// The other run gives its object more than one id.
    Split,
    /// The other run gives its object and another track's one id.
    Joined,
}

/// A track that is not the same in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrackDiff {
    /// What changed.
    pub change: TrackChange,
    /// The track in the expected run.
    pub expected: TrackId,
    /// The track of the other run that follows its object longest.
    pub actual: TrackId,
    /// What it was: a SKU, `unknown` or `not asked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_identity: Option<String>,
    /// What it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_identity: Option<String>,
}

/// Totals over all frames of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiffTotals {
    /// Frames both runs have.
    pub frames: u64,
    /// Frames only the expected run has.
    pub missing_frames: u64,
    /// Frames only the other run has.
    pub extra_frames: u64,
    /// Frames whose time differs by a millisecond or more.
    pub retimed_frames: u64,
    /// Frames in which something is over a tolerance.
    pub changed_frames: u64,
    /// Detections that were paired.
    pub matched: u64,
    /// Expected detections without a partner, in frames both have.
    pub missing: u64,
    /// Detections without an expected partner, in frames both have.
    pub extra: u64,
    /// Pairs whose boxes are further apart than tolerated.
    pub moved: u64,
    /// Pairs whose scores are further apart than tolerated.
    pub rescored: u64,
    /// Largest move of a box side, in source pixels.
    pub max_box_px: f32,
    /// Largest move of a score.
    pub max_score: f32,
    /// Rows of the counts that differ.
    pub changed_counts: u64,
    /// Tracks that changed.
    pub changed_tracks: u64,
}

/// What moved in one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceDiff {
    /// Folder or file name of the source.
    pub source: String,
    /// How the expected run ended; `None` for a bare file of detections.
    pub expected_status: Option<RunStatus>,
    /// How the other run ended; `None` for a bare file of detections.
    pub actual_status: Option<RunStatus>,
    /// Totals over all frames.
    pub totals: DiffTotals,
    /// The first frames in which something is over a tolerance.
    pub frames: Vec<FrameDiff>,
    /// The first rows of the counts that differ.
    pub counts: Vec<CountDiff>,
    /// The first tracks that changed.
    pub tracks: Vec<TrackDiff>,
    /// Why it is over the tolerances, a sentence each; empty when it is within.
    pub over: Vec<String>,
}

/// What moved between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffReport {
    /// What was tolerated.
    pub tolerances: DiffTolerances,
    /// The sources by name.
    pub sources: Vec<SourceDiff>,
    /// True when nothing is over a tolerance.
    pub within: bool,
}

/// Compares two runs: each a folder of one source, an output folder with such folders, or a file
/// of detections.
///
/// Files are read line by line, so memory grows with the number of tracks and not of frames.
///
/// # Errors
/// A path that is none of these, or a damaged file.
pub fn diff(expected: &Path, actual: &Path, tolerances: &DiffTolerances) -> Result<DiffReport> {
    let sources = pair_up(find(expected)?, find(actual)?, expected, actual)?
        .into_iter()
        .map(|pair| compare(pair, tolerances))
        .collect::<Result<Vec<_>>>()?;
    Ok(DiffReport {
        within: sources.iter().all(|s| s.over.is_empty()),
        tolerances: tolerances.clone(),
        sources,
    })
}

fn compare(pair: Pair, tolerances: &DiffTolerances) -> Result<SourceDiff> {
    let run_of = |side: &Option<Recorded>| match side.as_ref().and_then(|r| r.dir.as_deref()) {
        Some(dir) => read_run(dir),
        None => Ok(None),
    };
    let (expected_run, actual_run) = (run_of(&pair.expected)?, run_of(&pair.actual)?);
    let mut diff = SourceDiff {
        source: pair.name,
        expected_status: expected_run.as_ref().map(|r| r.status),
        actual_status: actual_run.as_ref().map(|r| r.status),
        totals: DiffTotals::default(),
        frames: Vec::new(),
        counts: Vec::new(),
        tracks: Vec::new(),
        over: Vec::new(),
    };
    let (Some(expected), Some(actual)) = (&pair.expected, &pair.actual) else {
        diff.over.push(if pair.expected.is_some() {
            "the source is missing".into()
        } else {
            "the source was not expected".into()
        });
        return Ok(diff);
    };
    if let (Some(before), Some(now)) = (diff.expected_status, diff.actual_status)
        && before != now
    {
        diff.over
            .push(format!("it ended {}, expected {}", word(now), word(before)));
    }
    let links = compare_frames(&mut diff, expected, actual, tolerances)?;
    if let (Some(before), Some(now)) = (&expected_run, &actual_run) {
        compare_counts(&mut diff, before, now, tolerances);
    }
    compare_tracks(&mut diff, expected, actual, &links, tolerances)?;
    Ok(diff)
}

fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "running",
        RunStatus::Complete => "complete",
        RunStatus::Partial => "partial",
        RunStatus::Interrupted => "interrupted",
        RunStatus::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use proptest::prelude::*;

    use super::{frames::match_boxes, *};
    use crate::{DetectionRecord, FrameRecord, names};

    fn detection(label: &str, x: f32, score: f32, track: Option<u64>) -> DetectionRecord {
        DetectionRecord {
            label: label.into(),
            prompt: label.into(),
            score,
            bbox: [x, 0.0, x + 40.0, 60.0],
            mask: None,
            track_id: track.map(TrackId),
        }
    }

    fn frame(index: u64, detections: Vec<DetectionRecord>) -> FrameRecord {
        FrameRecord {
            frame_index: index,
            time_secs: Some(index as f64 / 30.0),
            time_estimated: false,
            width: Some(640),
            height: Some(480),
            detections,
            notices: vec![],
        }
    }

    fn write(dir: &Path, name: &str, frames: &[FrameRecord]) -> PathBuf {
        let path = dir.join(name);
        let text: String = frames
            .iter()
            .map(|f| serde_json::to_string(f).unwrap() + "\n")
            .collect();
        fs::write(&path, text).unwrap();
        path
    }

    fn compared(expected: &[FrameRecord], actual: &[FrameRecord]) -> SourceDiff {
        let dir = tempfile::tempdir().unwrap();
        let (e, a) = (
            write(dir.path(), "e", expected),
            write(dir.path(), "a", actual),
        );
        let report = diff(&e, &a, &DiffTolerances::default()).unwrap();
        assert_eq!(report.within, report.sources[0].over.is_empty());
        report.sources.into_iter().next().unwrap()
    }

    #[test]
    fn the_order_in_the_file_and_the_numbers_of_tracks_do_not_matter() {
        let run = |ids: [u64; 2], turned: bool| -> Vec<FrameRecord> {
            (0..5)
                .map(|i| {
                    let mut found = vec![
                        detection("product", 0.0, 0.9, Some(ids[0])),
                        detection("product", 100.0, 0.9, Some(ids[1])),
                    ];
                    if turned {
                        found.reverse();
                    }
                    frame(i, found)
                })
                .collect()
        };
        let diff = compared(&run([1, 2], false), &run([7, 4], true));
        assert_eq!(diff.over, Vec::<String>::new());
        assert_eq!((diff.totals.frames, diff.totals.matched), (5, 10));
    }

    #[test]
    fn each_kind_of_change_is_counted_and_named() {
        let expected = vec![
            frame(
                0,
                vec![
                    detection("product", 0.0, 0.9, None),
                    detection("tag", 200.0, 0.9, None),
                ],
            ),
            frame(1, vec![detection("product", 0.0, 0.9, None)]),
            frame(2, vec![detection("product", 0.0, 0.9, None)]),
            frame(4, vec![]),
        ];
        let mut late = frame(2, vec![detection("product", 0.0, f32::NAN, None)]);
        late.time_secs = Some(9.0);
        let actual = vec![
            frame(
                0,
                vec![
                    detection("product", 3.0, 0.9, None),
                    detection("product", 200.0, 0.9, None),
                ],
            ),
            frame(1, vec![detection("product", 0.5, 0.905, None)]),
            late,
            frame(3, vec![]),
        ];
        let diff = compared(&expected, &actual);
        let t = &diff.totals;
        assert_eq!((t.frames, t.missing_frames, t.extra_frames), (3, 1, 1));
        assert_eq!((t.matched, t.missing, t.extra), (3, 1, 1));
        assert_eq!((t.moved, t.rescored, t.retimed_frames), (1, 1, 1));
        assert_eq!((t.max_box_px, t.max_score), (3.0, f32::INFINITY));
        let frames: Vec<u64> = diff.frames.iter().map(|f| f.frame_index).collect();
        assert_eq!(frames, [0, 2]);
        assert_eq!(diff.over.len(), 6, "{:?}", diff.over);
    }

    #[test]
    fn a_split_and_a_joined_track_are_told_apart() {
        let one = |i, x, id| frame(i, vec![detection("product", x, 0.9, Some(id))]);
        let expected = [
            one(0, 0.0, 1),
            one(1, 0.0, 1),
            one(2, 0.0, 1),
            one(3, 300.0, 2),
        ];
        let split = [
            one(0, 0.0, 5),
            one(1, 0.0, 5),
            one(2, 0.0, 6),
            one(3, 300.0, 2),
        ];
        let joined = [
            one(0, 0.0, 1),
            one(1, 0.0, 1),
            one(2, 0.0, 1),
            one(3, 300.0, 1),
        ];
        let changes = |actual: &[FrameRecord]| -> Vec<(TrackChange, u64)> {
            let diff = compared(&expected, actual);
            diff.tracks
                .iter()
                .map(|t| (t.change, t.expected.0))
                .collect()
        };
        assert_eq!(changes(&split), [(TrackChange::Split, 1)]);
        assert_eq!(changes(&joined), [(TrackChange::Joined, 2)]);
        assert_eq!(changes(&expected), []);
    }

    #[test]
    fn ten_times_the_bound_of_changes_is_counted_whole_and_listed_to_the_bound() {
        let many = |x| -> Vec<FrameRecord> {
            (0..200)
                .map(|i| frame(i, vec![detection("product", x, 0.9, None)]))
                .collect()
        };
        let diff = compared(&many(0.0), &many(10.0));
        assert_eq!((diff.totals.changed_frames, diff.totals.moved), (200, 200));
        assert_eq!(diff.frames.len(), DiffTolerances::default().listed);
    }

    #[test]
    fn an_out_folder_is_compared_by_source_and_a_foreign_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (out, sources) in [("e", vec!["a", "b"]), ("a", vec!["b", "c"])] {
            for source in sources {
                let folder = dir.path().join(out).join(source);
                fs::create_dir_all(&folder).unwrap();
                write(&folder, names::DETECTIONS, &[frame(0, vec![])]);
            }
        }
        let tolerances = DiffTolerances::default();
        let report = diff(&dir.path().join("e"), &dir.path().join("a"), &tolerances).unwrap();
        let over: Vec<(&str, usize)> = report
            .sources
            .iter()
            .map(|s| (s.source.as_str(), s.over.len()))
            .collect();
        assert_eq!(over, [("a", 1), ("b", 0), ("c", 1)]);
        assert!(!report.within);
        let one = dir.path().join("e/a");
        let text = diff(&one, &dir.path().join("a"), &tolerances)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("one source cannot be compared with 2"),
            "{text}"
        );
        let empty = tempfile::tempdir().unwrap();
        let text = diff(&one, empty.path(), &tolerances)
            .unwrap_err()
            .to_string();
        assert!(text.contains("no run to compare"), "{text}");
    }

    proptest! {
        #[test]
        fn a_run_equals_itself_whatever_is_in_it(
            boxes in proptest::collection::vec((any::<u8>(), 0u8..3, proptest::option::of(0.0f32..1.0)), 0..30)
        ) {
            let found: Vec<DetectionRecord> = boxes
                .iter()
                .map(|(x, label, score)| {
                    detection(["a", "b", "c"][*label as usize], f32::from(*x), score.unwrap_or(f32::NAN), None)
                })
                .collect();
            let pairs = match_boxes(&found, &found, 0.5);
            prop_assert_eq!(pairs.len(), found.len());
            for (i, j) in pairs {
                prop_assert_eq!(found[i].bbox, found[j].bbox);
            }
        }
    }
}
