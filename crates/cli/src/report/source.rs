//! The results of one source, read back from its folder.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use shelfscan_pipeline::{IdentityStatus, RunFile, RunStatus, identity_color, names};

use super::frames::Frames;

/// A row of `facings.csv`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FacingRow {
    pub(super) facing_id: u64,
    pub(super) label: String,
    pub(super) status: IdentityStatus,
    pub(super) sku: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) score: Option<f32>,
    pub(super) margin: Option<f32>,
    pub(super) votes: u32,
    pub(super) crops: u32,
    pub(super) region: Option<String>,
    pub(super) first_frame: u64,
    pub(super) last_frame: u64,
    pub(super) first_secs: f64,
    pub(super) last_secs: f64,
    pub(super) frames: u32,
    pub(super) best_crop: Option<String>,
    nearest_1: Option<String>,
    nearest_1_score: Option<f32>,
    nearest_2: Option<String>,
    nearest_2_score: Option<f32>,
    nearest_3: Option<String>,
    nearest_3_score: Option<f32>,
}

impl FacingRow {
    /// The SKU, or what stands for one.
    pub(super) fn what(&self) -> &str {
        match (self.status, &self.sku) {
            (IdentityStatus::Identified, Some(sku)) => sku,
            (IdentityStatus::Unknown, _) => "unknown",
            _ => &self.label,
        }
    }

    pub(super) fn color(&self) -> [u8; 3] {
        identity_color(self.facing_id, self.status, self.sku.as_deref())
    }

    /// The nearest SKUs with their similarities, best first.
    pub(super) fn nearest(&self) -> impl Iterator<Item = (&str, Option<f32>)> {
        [
            (&self.nearest_1, self.nearest_1_score),
            (&self.nearest_2, self.nearest_2_score),
            (&self.nearest_3, self.nearest_3_score),
        ]
        .into_iter()
        .filter_map(|(sku, score)| Some((sku.as_deref()?, score)))
    }
}

/// A line of `tracks.jsonl`, as far as the page needs it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TrackLine {
    pub(super) track_id: u64,
    pub(super) facing_id: u64,
    pub(super) first_secs: f64,
    pub(super) last_secs: f64,
}

/// Everything a source's folder says.
#[derive(Debug)]
pub(super) struct SourceRun {
    pub(super) dir: PathBuf,
    pub(super) run: RunFile,
    pub(super) facings: Vec<FacingRow>,
    pub(super) tracks: Vec<TrackLine>,
    pub(super) frames: Frames,
    /// What could not be read, a sentence each.
    pub(super) problems: Vec<String>,
}

impl SourceRun {
    /// Reads the folder of a run. What is missing or damaged besides `run.json` is told on the page.
    pub(super) fn read(dir: &Path, run: RunFile) -> Self {
        let mut problems = Vec::new();
        let has = |name: &str| dir.join(name).exists();
        if !has(names::FACINGS) && matches!(run.status, RunStatus::Running) {
            problems.push(
                "the scan has not come to its end, so tracks, facings and counts are not there yet; \
                 go on with the same command and --resume"
                    .into(),
            );
        }
        let mut facings = Vec::new();
        if has(names::FACINGS)
            && let Err(error) = read_facings(&dir.join(names::FACINGS), &mut facings)
        {
            problems.push(format!("{} is cut or damaged ({error})", names::FACINGS));
        }
        let mut tracks = Vec::new();
        if has(names::TRACKS)
            && let Err(error) = read_tracks(&dir.join(names::TRACKS), &mut tracks)
        {
            problems.push(format!("{} is cut or damaged ({error})", names::TRACKS));
        }
        let facing_of = tracks.iter().map(|t| (t.track_id, t.facing_id)).collect();
        let frames = Frames::read(&dir.join(names::DETECTIONS), &facing_of);
        if let Some(problem) = &frames.problem {
            problems.push(format!("{problem}: {}", names::DETECTIONS));
        }
        Self {
            dir: dir.to_owned(),
            run,
            facings,
            tracks,
            frames,
            problems,
        }
    }

    /// The tracks of each facing, in order.
    pub(super) fn tracks_by_facing(&self) -> BTreeMap<u64, Vec<&TrackLine>> {
        let mut by_facing: BTreeMap<u64, Vec<&TrackLine>> = BTreeMap::new();
        for track in &self.tracks {
            by_facing.entry(track.facing_id).or_default().push(track);
        }
        by_facing
    }

    /// Facings of the three kinds: with a SKU, unknown, never asked about.
    pub(super) fn kinds(&self) -> [u64; 3] {
        let sum = |status| {
            self.run
                .counts
                .iter()
                .filter(|c| c.status == status)
                .map(|c| c.facings)
                .sum()
        };
        [
            sum(IdentityStatus::Identified),
            sum(IdentityStatus::Unknown),
            sum(IdentityStatus::NotAsked),
        ]
    }
}

fn read_facings(path: &Path, facings: &mut Vec<FacingRow>) -> Result<(), csv::Error> {
    for row in csv::Reader::from_path(path)?.deserialize() {
        facings.push(row?);
    }
    Ok(())
}

fn read_tracks(path: &Path, tracks: &mut Vec<TrackLine>) -> std::io::Result<()> {
    for line in BufReader::new(File::open(path)?).lines() {
        tracks.push(serde_json::from_str(&line?)?);
    }
    Ok(())
}
