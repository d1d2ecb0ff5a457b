//! Detections, frame by frame.

use std::collections::BTreeMap;

use shelfscan_inference_core::{BoxXyxy, TrackId};

use super::{DiffTolerances, FrameDiff, SourceDiff, found::Recorded};
use crate::{DetectionRecord, FrameRecord, Result, records::RecordReader};

/// Frames are taken at the same time when their times differ by less than this, in seconds.
const SAME_TIME_SECS: f64 = 0.001;

/// How many frames an expected and another id were seen on one object.
pub(super) type Links = BTreeMap<TrackId, BTreeMap<TrackId, u64>>;

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

pub(super) fn compare_frames(
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
pub(super) fn match_boxes(
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
