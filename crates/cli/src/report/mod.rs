//! `report.html`: what a scan found, as one page for people.
//!
//! The page holds its pictures, its style and no script, and asks browsers to load nothing, so it
//! can be mailed, printed and kept. It is made of a run's files alone: the same files give the same
//! bytes. Only the pictures of whole frames need the source once more.

mod counts;
mod frames;
mod page;
mod pictures;
mod section;
mod settings;
mod source;
mod text;
mod timeline;
mod truth;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Deserialize;
use shelfscan_pipeline::{names, read_run};
use shelfscan_video::ReadOptions;

use self::source::SourceRun;
pub(crate) use self::truth::Truth;
use crate::exit::Usage;

/// Pictures of whole frames each source gets by default.
pub(crate) const DEFAULT_KEY_FRAMES: usize = 6;

/// How much goes into a page; what is left out is told in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Caps {
    /// Sources that get a section of their own.
    sections: usize,
    /// Cards of all sources together.
    cards: usize,
    /// Pictures of whole frames of all sources together.
    key_frames: usize,
    /// Rows of a timeline.
    timeline_rows: usize,
}

const CAPS: Caps = Caps {
    sections: 50,
    cards: 500,
    key_frames: 60,
    timeline_rows: 150,
};

/// A source without a section: not come to, or unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Absent {
    source: String,
    /// As in `summary.json`, or `unreadable`.
    status: String,
    reason: String,
}

/// A page about one source, or about all sources of a scan.
#[derive(Debug)]
pub(crate) struct Report {
    sources: Vec<SourceRun>,
    absent: Vec<Absent>,
    /// True for a page about a scan, even of one source.
    of_scan: bool,
    truth: Option<Truth>,
    key_frames: usize,
    reader: ReadOptions,
    caps: Caps,
}

impl Report {
    /// Reads the results of one source, or the `--out` folder of a scan.
    ///
    /// # Errors
    /// There is no run, or the `run.json` of the only source cannot be read. What else is missing or
    /// damaged is told on the page.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let mut report = Self {
            sources: Vec::new(),
            absent: Vec::new(),
            of_scan: false,
            truth: None,
            key_frames: DEFAULT_KEY_FRAMES,
            reader: ReadOptions::default(),
            caps: CAPS,
        };
        if let Some(run) = read_run(dir)? {
            report.sources.push(SourceRun::read(dir, run));
            return Ok(report);
        }
        report.of_scan = true;
        let folders = subfolders(dir)?;
        for folder in &folders {
            match read_run(folder) {
                Ok(Some(run)) => report.sources.push(SourceRun::read(folder, run)),
                Ok(None) => {}
                Err(error) => report.absent.push(Absent {
                    source: folder.display().to_string(),
                    status: "unreadable".into(),
                    reason: error.to_string(),
                }),
            }
        }
        if report.sources.is_empty() {
            return Err(Usage::new(format!("there is no run here: {}", dir.display()))
                .hint("give the --out folder of a scan or the folder of one source, which holds a run.json")
                .into());
        }
        report.add_absent(dir);
        Ok(report)
    }

    /// Holds the counts against what is known to stand on the shelf.
    pub(crate) fn with_truth(mut self, truth: Truth) -> Self {
        self.truth = Some(truth);
        self
    }

    /// Shows at most this many whole frames of each source.
    pub(crate) fn with_key_frames(mut self, count: usize) -> Self {
        self.key_frames = count;
        self
    }

    /// Opens sources with these bounds and this ffmpeg; which frames to read the run says itself.
    pub(crate) fn with_reader(mut self, reader: ReadOptions) -> Self {
        self.reader = reader;
        self
    }

    /// The page.
    pub(crate) fn to_html(&self) -> String {
        page::page(self)
    }

    /// Writes the page whole, aside and then renamed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_html(&self, path: &Path) -> anyhow::Result<()> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".part");
        let aside = PathBuf::from(aside);
        fs::write(&aside, self.to_html())
            .and_then(|()| fs::rename(&aside, path))
            .with_context(|| format!("the report cannot be written: {}", path.display()))
    }

    /// Adds the sources that the scan's summary knows and that left no folder behind.
    fn add_absent(&mut self, dir: &Path) {
        let present: BTreeSet<&str> = self.sources.iter().map(|s| &*s.run.source).collect();
        let mut seen = BTreeSet::new();
        let absent: Vec<Absent> = summaries(dir)
            .into_iter()
            .filter(|row| !present.contains(&*row.source) && seen.insert(row.source.clone()))
            .map(|row| Absent {
                source: row.source,
                status: row.status,
                reason: row.reason.unwrap_or_default(),
            })
            .collect();
        self.absent.extend(absent);
    }
}

/// Folders in a folder, by name.
fn subfolders(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listing = || format!("listing the folder failed: {}", dir.display());
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir).with_context(listing)? {
        let path = entry.with_context(listing)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

#[derive(Deserialize)]
struct SummaryFile {
    sources: Vec<SummaryRow>,
}

#[derive(Deserialize)]
struct SummaryRow {
    source: String,
    status: String,
    #[serde(default)]
    reason: Option<String>,
}

/// The rows of all summaries in a folder: one, or one for each shard.
fn summaries(dir: &Path) -> Vec<SummaryRow> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|n| n.to_str());
            name.is_some_and(|n| n.starts_with("summary"))
                && path.extension().is_some_and(|e| e == "json")
        })
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| serde_json::from_slice::<SummaryFile>(&fs::read(path).ok()?).ok())
        .flat_map(|summary| summary.sources)
        .collect()
}

/// Where the page of a run goes when nothing else is said.
pub(crate) fn default_path(dir: &Path) -> PathBuf {
    dir.join(names::REPORT)
}

#[cfg(test)]
mod tests;
