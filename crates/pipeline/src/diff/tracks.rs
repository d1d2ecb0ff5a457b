//! Counts of facings, and tracks and what they were taken for.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    sync::Arc,
};

use shelfscan_inference_core::TrackId;

use super::{
    CountDiff, DiffTolerances, SourceDiff, TrackChange, TrackDiff, found::Recorded, frames::Links,
};
use crate::{Count, IdentityStatus, PipelineError, Result, RunFile, TrackSummary, journal::names};

pub(super) fn compare_counts(
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

pub(super) fn compare_tracks(
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
