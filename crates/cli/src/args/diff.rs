//! Arguments of `diff`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::values::prefer_fields;

/// Arguments of `shelfscan diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The run to compare with: an --out folder, the folder of one source, or a detections.jsonl.
    pub(crate) expected: PathBuf,
    /// The run to check.
    pub(crate) actual: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: DiffSettings,
}

/// Tolerances; a file may hold them under `[diff]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Tolerances")]
pub(crate) struct DiffSettings {
    /// How far a side of a box may move, in source pixels. [default: 1]
    #[arg(long, value_name = "PX")]
    pub(crate) box_px: Option<f32>,
    /// How far a score may move. [default: 0.01]
    #[arg(long, value_name = "SCORE")]
    pub(crate) score: Option<f32>,
    /// How many detections a frame may have more or less, and facings a count. [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How many tracks may have another SKU, be split or be joined. [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) identity: Option<u64>,
    /// Overlap below which two boxes are two objects, 0 to 1. [default: 0.5]
    #[arg(long, value_name = "IOU")]
    pub(crate) min_iou: Option<f32>,
    /// List at most this many frames, counts and tracks one by one. [default: 20]
    #[arg(long, value_name = "N")]
    pub(crate) list: Option<usize>,
}

prefer_fields!(DiffSettings {
    box_px,
    score,
    count,
    identity,
    min_iou,
    list
});
