//! What a scan leaves behind for all sources together: a table and `summary.json`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Serialize;
use shelfscan_pipeline::{
    FrameCounts, IdentityStatus, RunFile, RunStatus, ScanPlan, Shard, SourceReport,
};

use crate::{
    printer::clean_cell,
    table::{Align, Table},
};

/// Name and version of the layout of `summary.json`.
const SCHEMA: &str = "shelfscan.summary/1";

/// How a source ended, or that it was not come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RowStatus {
    NotStarted,
    Running,
    Complete,
    Partial,
    Interrupted,
    Failed,
}

impl From<RunStatus> for RowStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::Complete => Self::Complete,
            RunStatus::Partial => Self::Partial,
            RunStatus::Interrupted => Self::Interrupted,
            RunStatus::Failed => Self::Failed,
        }
    }
}

impl RowStatus {
    fn word(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// How a whole scan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScanStatus {
    /// Still going, or ended without a word: a killed process leaves this behind.
    Running,
    /// Every source is complete.
    Complete,
    /// Some source failed or is incomplete.
    Incomplete,
    /// Stopped from outside.
    Interrupted,
}

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    source: String,
    folder: String,
    status: RowStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    frames: FrameCounts,
    facings: u64,
    /// Facings with a SKU; absent when no gallery was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<u64>,
    /// Facings the gallery does not know; absent when no gallery was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<u64>,
}

/// The content of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    schema: &'static str,
    version: &'static str,
    pub(crate) status: ScanStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<Shard>,
    sources: Vec<Row>,
    #[serde(skip)]
    path: PathBuf,
}

impl Summary {
    /// The summary before the first source.
    pub(crate) fn new(plan: &ScanPlan, out: &Path, shard: Option<Shard>) -> Self {
        let name = match shard {
            // Shards may write into one folder on a shared disk.
            Some(Shard { index, count }) => format!("summary-{index}-of-{count}.json"),
            None => "summary.json".into(),
        };
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            status: ScanStatus::Running,
            shard,
            sources: plan
                .sources
                .iter()
                .map(|s| Row {
                    source: s.source.id().as_str().to_owned(),
                    folder: s.folder.clone(),
                    status: RowStatus::NotStarted,
                    reason: None,
                    frames: FrameCounts::default(),
                    facings: 0,
                    known: None,
                    unknown: None,
                })
                .collect(),
            path: out.join(name),
        }
    }

    /// Takes in what came of a source.
    pub(crate) fn take(&mut self, report: &SourceReport) {
        if let Some(row) = self.sources.iter_mut().find(|r| r.folder == report.folder) {
            row.status = report.run.status.into();
            row.reason.clone_from(&report.run.reason);
            row.frames = report.run.frames.clone();
            row.facings = report.run.facings;
            (row.known, row.unknown) = known_and_unknown(&report.run);
        }
    }

    /// True when a source did not end well for a reason that has this word in it.
    pub(crate) fn speaks_of(&self, word: &str) -> bool {
        self.sources
            .iter()
            .filter_map(|r| r.reason.as_deref())
            .any(|reason| reason.contains(word))
    }

    /// Ends the scan.
    pub(crate) fn finish(&mut self, cancelled: bool) {
        self.status = if cancelled {
            ScanStatus::Interrupted
        } else if self.sources.iter().all(|r| r.status == RowStatus::Complete) {
            ScanStatus::Complete
        } else {
            ScanStatus::Incomplete
        };
    }

    /// Writes the file whole, aside and then renamed.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let aside = self.path.with_extension("json.part");
        fs::write(&aside, text)
            .and_then(|()| fs::rename(&aside, &self.path))
            .with_context(|| format!("the summary cannot be written: {}", self.path.display()))
    }

    /// The table for people.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new([
            ("source", Align::Left),
            ("status", Align::Left),
            ("frames", Align::Right),
            ("facings", Align::Right),
            ("known", Align::Right),
            ("unknown", Align::Right),
            ("reason", Align::Left),
        ]);
        let number = |n: Option<u64>| n.map_or_else(|| "-".into(), |n| n.to_string());
        for row in &self.sources {
            table.row([
                clean_cell(&row.source),
                row.status.word().into(),
                row.frames.processed.to_string(),
                row.facings.to_string(),
                number(row.known),
                number(row.unknown),
                row.reason.as_deref().map(clean_cell).unwrap_or_default(),
            ]);
        }
        table
    }

    /// How many sources ended each way, in words.
    pub(crate) fn totals(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.sources {
            *counts.entry(row.status.word()).or_default() += 1;
        }
        let parts: Vec<String> = counts
            .iter()
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        let noun = if self.sources.len() == 1 {
            "source"
        } else {
            "sources"
        };
        format!("{} {noun}: {}", self.sources.len(), parts.join(", "))
    }
}

fn known_and_unknown(run: &RunFile) -> (Option<u64>, Option<u64>) {
    if run.gallery.is_none() {
        return (None, None);
    }
    let sum = |status: IdentityStatus| {
        let counts = run.counts.iter().filter(|c| c.status == status);
        Some(counts.map(|c| c.facings).sum())
    };
    (
        sum(IdentityStatus::Identified),
        sum(IdentityStatus::Unknown),
    )
}
