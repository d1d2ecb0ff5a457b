//! What moved between two runs.
//!
//! Detections of a frame are paired within their label by overlap, the best overlap first, so ids
//! and the order in the file do not matter. Ids are compared by what they hold together: a run
//! whose tracks are numbered otherwise is the same run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use shelfscan_inference_core::{BoxXyxy, TrackId};

use crate::{
    Count, DetectionRecord, FrameRecord, IdentityStatus, PipelineError, Result, RunFile, RunStatus,
    TrackSummary,
    journal::{names, read_run},
    records::RecordReader,
};

/// Frames are taken at the same time when their times differ by less than this, in seconds.
const SAME_TIME_SECS: f64 = 0.001;

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

/// The results of one source.
struct Recorded {
    detections: PathBuf,
    /// The folder, unless a bare file was given.
    dir: Option<PathBuf>,
}

enum Found {
    One(String, Recorded),
    Many(BTreeMap<String, Recorded>),
}

struct Pair {
    name: String,
    expected: Option<Recorded>,
    actual: Option<Recorded>,
}

fn find(path: &Path) -> Result<Found> {
    let name = |path: &Path| {
        path.file_name().map_or_else(
            || path.display().to_string(),
            |n| n.to_string_lossy().into_owned(),
        )
    };
    let recorded = |dir: &Path| Recorded {
        detections: dir.join(names::DETECTIONS),
        dir: Some(dir.to_owned()),
    };
    if path.is_file() {
        let file = Recorded {
            detections: path.to_owned(),
            dir: None,
        };
        return Ok(Found::One(name(path), file));
    }
    if holds_run(path) {
        return Ok(Found::One(name(path), recorded(path)));
    }
    let entries = fs::read_dir(path).map_err(PipelineError::io("listing the folder", path))?;
    let mut many = BTreeMap::new();
    for entry in entries {
        let dir = entry
            .map_err(PipelineError::io("listing the folder", path))?
            .path();
        if holds_run(&dir) {
            many.insert(name(&dir), recorded(&dir));
        }
    }
    if many.is_empty() {
        return Err(PipelineError::Usage(format!(
            "there is no run to compare; give the --out folder of a scan, the folder of one source, or a {}: {}",
            names::DETECTIONS,
            path.display()
        )));
    }
    Ok(Found::Many(many))
}

fn holds_run(dir: &Path) -> bool {
    dir.join(names::RUN).is_file() || dir.join(names::DETECTIONS).is_file()
}

fn pair_up(
    expected: Found,
    actual: Found,
    expected_path: &Path,
    actual_path: &Path,
) -> Result<Vec<Pair>> {
    let only = |many: BTreeMap<String, Recorded>, path: &Path| {
        let count = many.len();
        let mut all = many.into_iter();
        match (all.next(), count) {
            (Some(one), 1) => Ok(one),
            _ => Err(PipelineError::Usage(format!(
                "one source cannot be compared with {count}; name one of the folders in it: {}",
                path.display()
            ))),
        }
    };
    let (expected, actual) = match (expected, actual) {
        (Found::Many(mut expected), Found::Many(mut actual)) => {
            let folders: BTreeSet<String> = expected.keys().chain(actual.keys()).cloned().collect();
            return Ok(folders
                .into_iter()
                .map(|name| Pair {
                    expected: expected.remove(&name),
                    actual: actual.remove(&name),
                    name,
                })
                .collect());
        }
        (Found::One(_, expected), Found::One(name, actual)) => (expected, (name, actual)),
        (Found::Many(many), Found::One(name, actual)) => {
            (only(many, expected_path)?.1, (name, actual))
        }
        (Found::One(_, expected), Found::Many(many)) => (expected, only(many, actual_path)?),
    };
    Ok(vec![Pair {
        name: actual.0,
        expected: Some(expected),
        actual: Some(actual.1),
    }])
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

/// How many frames an expected and another id were seen on one object.
type Links = BTreeMap<TrackId, BTreeMap<TrackId, u64>>;

struct Lines(Option<RecordReader>);

impl Lines {
    fn open(recorded: &Recorded) -> Result<Self> {
        if recorded.dir.is_some() && !recorded.detections.exists() {
            return Ok(Self(None));
        }
        RecordReader::open(&recorded.detections, true).map(|reader| Self(Some(reader)))
    }

    fn next(&mut self) -> Result<Option<FrameRecord>> {
        match &mut self.0 {
            Some(reader) => reader.next_record(),
            None => Ok(None),
        }
    }
}

fn compare_frames(
    diff: &mut SourceDiff,
    expected: &Recorded,
    actual: &Recorded,
    tolerances: &DiffTolerances,
) -> Result<Links> {
    let (mut before, mut now) = (Lines::open(expected)?, Lines::open(actual)?);
    let (mut e, mut a) = (before.next()?, now.next()?);
    let mut links = Links::new();
    let mut worst_frame = 0;
    loop {
        match (&e, &a) {
            (None, None) => break,
            (Some(x), Some(y)) if x.frame_index == y.frame_index => {
                let frame = compare_frame(diff, x, y, tolerances, &mut links);
                worst_frame = worst_frame.max(frame.missing.max(frame.extra));
                if frame.missing + frame.extra + frame.moved + frame.rescored > 0 {
                    diff.totals.changed_frames += 1;
                    if diff.frames.len() < tolerances.listed {
                        diff.frames.push(frame);
                    }
                }
                (e, a) = (before.next()?, now.next()?);
            }
            (Some(x), y) if y.as_ref().is_none_or(|y| x.frame_index < y.frame_index) => {
                diff.totals.missing_frames += 1;
                e = before.next()?;
            }
            _ => {
                diff.totals.extra_frames += 1;
                a = now.next()?;
            }
        }
    }
    let totals = &diff.totals;
    let mut over = |count: u64, text: String| {
        if count > 0 {
            diff.over.push(text);
        }
    };
    over(
        totals.missing_frames,
        format!("{} frames are missing", totals.missing_frames),
    );
    over(
        totals.extra_frames,
        format!("{} frames were not expected", totals.extra_frames),
    );
    over(
        totals.retimed_frames,
        format!("{} frames have another time", totals.retimed_frames),
    );
    over(
        u64::from(worst_frame > tolerances.count),
        format!(
            "{} detections are missing and {} extra, up to {worst_frame} in a frame, where {} are tolerated",
            totals.missing, totals.extra, tolerances.count
        ),
    );
    over(
        totals.moved,
        format!(
            "{} boxes moved by more than {} px, the furthest by {:.2}",
            totals.moved, tolerances.box_px, totals.max_box_px
        ),
    );
    over(
        totals.rescored,
        format!(
            "{} scores moved by more than {}, the furthest by {:.4}",
            totals.rescored, tolerances.score, totals.max_score
        ),
    );
    Ok(links)
}

fn compare_frame(
    diff: &mut SourceDiff,
    expected: &FrameRecord,
    actual: &FrameRecord,
    tolerances: &DiffTolerances,
    links: &mut Links,
) -> FrameDiff {
    let pairs = match_boxes(&expected.detections, &actual.detections, tolerances.min_iou);
    let mut frame = FrameDiff {
        frame_index: expected.frame_index,
        missing: (expected.detections.len() - pairs.len()) as u64,
        extra: (actual.detections.len() - pairs.len()) as u64,
        ..FrameDiff::default()
    };
    for &(e, a) in &pairs {
        let (e, a) = (&expected.detections[e], &actual.detections[a]);
        let moved = distance(e.bbox.iter().zip(&a.bbox));
        let rescored = distance([(&e.score, &a.score)]);
        frame.moved += u64::from(moved > tolerances.box_px);
        frame.rescored += u64::from(rescored > tolerances.score);
        frame.max_box_px = frame.max_box_px.max(moved);
        frame.max_score = frame.max_score.max(rescored);
        if let (Some(e), Some(a)) = (e.track_id, a.track_id) {
            *links.entry(e).or_default().entry(a).or_default() += 1;
        }
    }
    let totals = &mut diff.totals;
    totals.frames += 1;
    totals.matched += pairs.len() as u64;
    totals.missing += frame.missing;
    totals.extra += frame.extra;
    totals.moved += frame.moved;
    totals.rescored += frame.rescored;
    totals.max_box_px = totals.max_box_px.max(frame.max_box_px);
    totals.max_score = totals.max_score.max(frame.max_score);
    if let (Some(e), Some(a)) = (expected.time_secs, actual.time_secs)
        && (e - a).abs() >= SAME_TIME_SECS
    {
        totals.retimed_frames += 1;
    }
    frame
}

/// The largest difference; infinite when one of a pair is a number and the other is not.
fn distance<'a>(pairs: impl IntoIterator<Item = (&'a f32, &'a f32)>) -> f32 {
    pairs
        .into_iter()
        .map(|(e, a)| match (e.is_finite(), a.is_finite()) {
            (true, true) => (e - a).abs(),
            (false, false) => 0.0,
            _ => f32::INFINITY,
        })
        .fold(0.0, f32::max)
}

/// Pairs detections of one label, the best overlap first; among equal overlaps the nearest scores,
/// then the first in the file. Returns positions in both lists.
fn match_boxes(
    expected: &[DetectionRecord],
    actual: &[DetectionRecord],
    min_iou: f32,
) -> Vec<(usize, usize)> {
    let mut candidates = Vec::new();
    for (i, e) in expected.iter().enumerate() {
        let bbox = BoxXyxy::from(e.bbox);
        for (j, a) in actual.iter().enumerate() {
            if e.label != a.label {
                continue;
            }
            // A broken box has no overlap with anything, not even with itself.
            let iou = if same_numbers(&e.bbox, &a.bbox) {
                1.0
            } else {
                bbox.iou(&BoxXyxy::from(a.bbox))
            };
            if iou >= min_iou {
                let apart = distance([(&e.score, &a.score)]);
                candidates.push((iou, apart, i, j));
            }
        }
    }
    candidates.sort_by(|x, y| {
        y.0.total_cmp(&x.0)
            .then(x.1.total_cmp(&y.1))
            .then((x.2, x.3).cmp(&(y.2, y.3)))
    });
    let (mut left, mut right) = (vec![true; expected.len()], vec![true; actual.len()]);
    let mut pairs = Vec::new();
    for (_, _, i, j) in candidates {
        if left[i] && right[j] {
            (left[i], right[j]) = (false, false);
            pairs.push((i, j));
        }
    }
    pairs
}

fn same_numbers(e: &[f32; 4], a: &[f32; 4]) -> bool {
    e.iter()
        .zip(a)
        .all(|(e, a)| e == a || (!e.is_finite() && !a.is_finite()))
}

fn compare_counts(
    diff: &mut SourceDiff,
    before: &RunFile,
    now: &RunFile,
    tolerances: &DiffTolerances,
) {
    type Key = (Arc<str>, Option<Arc<str>>, IdentityStatus, Option<Arc<str>>);
    let mut rows: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    let key = |c: &Count| (c.label.clone(), c.region.clone(), c.status, c.sku.clone());
    for count in &before.counts {
        rows.entry(key(count)).or_default().0 += count.facings;
    }
    for count in &now.counts {
        rows.entry(key(count)).or_default().1 += count.facings;
    }
    let mut over = 0;
    for ((label, region, status, sku), (expected, actual)) in rows {
        if expected == actual {
            continue;
        }
        diff.totals.changed_counts += 1;
        over += u64::from(expected.abs_diff(actual) > tolerances.count);
        if diff.counts.len() < tolerances.listed {
            diff.counts.push(CountDiff {
                label,
                region,
                status,
                sku,
                expected,
                actual,
            });
        }
    }
    if over > 0 {
        diff.over.push(format!(
            "{over} counts differ by more than {}",
            tolerances.count
        ));
    }
}

fn compare_tracks(
    diff: &mut SourceDiff,
    expected: &Recorded,
    actual: &Recorded,
    links: &Links,
    tolerances: &DiffTolerances,
) -> Result<()> {
    let (before, now) = (identities(expected)?, identities(actual)?);
    let mut taken: BTreeMap<TrackId, TrackId> = BTreeMap::new();
    for (&track, partners) in links {
        // The longest partner; of equally long ones the first.
        let Some((&partner, _)) = partners
            .iter()
            .max_by_key(|(id, n)| (**n, std::cmp::Reverse(**id)))
        else {
            continue;
        };
        let mut add =
            |change, expected_identity: Option<String>, actual_identity: Option<String>| {
                diff.totals.changed_tracks += 1;
                if diff.tracks.len() < tolerances.listed {
                    diff.tracks.push(TrackDiff {
                        change,
                        expected: track,
                        actual: partner,
                        expected_identity,
                        actual_identity,
                    });
                }
            };
        if partners.len() > 1 {
            add(TrackChange::Split, None, None);
        }
        if taken.insert(partner, track).is_some() {
            add(TrackChange::Joined, None, None);
        }
        if let (Some(e), Some(a)) = (before.get(&track), now.get(&partner))
            && e != a
        {
            add(TrackChange::Identity, Some(e.clone()), Some(a.clone()));
        }
    }
    let changed = diff.totals.changed_tracks;
    if changed > tolerances.identity {
        diff.over.push(format!(
            "{changed} tracks have another identity, are split or are joined, where {} are tolerated",
            tolerances.identity
        ));
    }
    Ok(())
}

/// What each track is, in words.
fn identities(recorded: &Recorded) -> Result<BTreeMap<TrackId, String>> {
    let mut found = BTreeMap::new();
    let Some(path) = recorded.dir.as_ref().map(|dir| dir.join(names::TRACKS)) else {
        return Ok(found);
    };
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(PipelineError::io("opening", path)(e)),
    };
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(PipelineError::io("reading", &path))?;
        if line.trim().is_empty() {
            continue;
        }
        let track: TrackSummary =
            serde_json::from_str(&line).map_err(|e| PipelineError::Record {
                path: path.clone(),
                line: number as u64 + 1,
                reason: e.to_string(),
                remedy: "scan again".into(),
            })?;
        let text = match (&track.identity.sku, track.identity.status) {
            (Some(sku), IdentityStatus::Identified) => sku.to_string(),
            (_, IdentityStatus::NotAsked) => "not asked".into(),
            _ => "unknown".into(),
        };
        found.insert(track.track_id, text);
    }
    Ok(found)
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
    use proptest::prelude::*;

    use super::*;

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
