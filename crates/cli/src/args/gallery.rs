//! Arguments of `enroll`, `gallery` and `eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::{ModelSettings, values::prefer_fields};

/// Arguments of `shelfscan enroll`.
#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// A folder with one folder of pictures per SKU.
    pub(crate) folder: PathBuf,
    /// The gallery to make, or to make equal to the folder.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) gallery: PathBuf,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: EnrollSettings,
    #[command(flatten)]
    pub(crate) models: ModelSettings,
}

/// Settings of enrolment; a file may hold them under `[enroll]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Enrolment")]
pub(crate) struct EnrollSettings {
    /// CSV file with the columns sku, name, gtin and price; all but the first may be left out.
    #[arg(long, value_name = "CSV")]
    pub(crate) metadata: Option<PathBuf>,
    /// How packs are cut out of frames: tight, margin:SHARE, mask-out or mask-out:R,G,B.
    /// [default: that of the gallery, or tight]
    #[arg(long, value_name = "POLICY")]
    pub(crate) crop_policy: Option<String>,
    /// Share of strangers that may be taken for a known SKU, above 0 and at most 0.5.
    /// [default: 0.05]
    #[arg(long, value_name = "SHARE")]
    pub(crate) false_accept_rate: Option<f32>,
    /// Leave the pictures where they are rather than copying them into the gallery.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) reference: Option<bool>,
    /// Pictures that are embedded in one call. [default: 32]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Most pictures the gallery may hold. [default: 200000]
    #[arg(long, value_name = "N")]
    pub(crate) max_views: Option<usize>,
}

prefer_fields!(EnrollSettings {
    metadata,
    crop_policy,
    false_accept_rate,
    reference,
    batch,
    max_views,
});

/// Arguments of `shelfscan gallery`.
#[derive(Debug, Args)]
pub(crate) struct GalleryArgs {
    #[command(subcommand)]
    pub(crate) command: GalleryCommand,
}

/// What to do with a gallery.
#[derive(Debug, Subcommand)]
pub(crate) enum GalleryCommand {
    /// Add SKUs, or new views of SKUs that are enrolled; nothing is taken out.
    Add(Box<GalleryAddArgs>),
    /// Take SKUs out.
    Remove {
        /// The SKUs, by the names of their folders.
        #[arg(value_name = "SKU", required = true)]
        skus: Vec<String>,
        /// The gallery.
        #[arg(short, long, value_name = "DIR")]
        gallery: PathBuf,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the SKUs. Needs no model.
    List {
        /// The gallery.
        #[arg(short, long, value_name = "DIR")]
        gallery: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check that the pictures and the cache are those that were enrolled. Needs no model.
    Verify {
        /// The gallery.
        #[arg(short, long, value_name = "DIR")]
        gallery: PathBuf,
        /// Decode every picture as well.
        #[arg(long)]
        decode: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `shelfscan gallery add`.
#[derive(Debug, Args)]
pub(crate) struct GalleryAddArgs {
    /// A folder with one folder of pictures per SKU.
    pub(crate) folder: PathBuf,
    /// The gallery.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) gallery: PathBuf,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: EnrollSettings,
    #[command(flatten)]
    pub(crate) models: ModelSettings,
}

/// Arguments of `shelfscan eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    pub(crate) command: EvalCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    /// Measure identification on pictures that are held out of the gallery.
    Gallery(EvalGalleryArgs),
}

/// Arguments of `shelfscan eval gallery`.
#[derive(Debug, Args)]
pub(crate) struct EvalGalleryArgs {
    /// A folder with one folder of pictures per SKU.
    pub(crate) folder: PathBuf,
    /// CSV file with the columns path, sku, split (gallery, query or stranger) and, if wanted,
    /// session; without it every picture is enrolled in some draws and asked about in others.
    #[arg(long, value_name = "CSV")]
    pub(crate) manifest: Option<PathBuf>,
    /// Numbers of views to enrol.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,3,4"
    )]
    pub(crate) views: Vec<usize>,
    /// Draws of views to average over, for each number of views.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) repeats: usize,
    /// Seed of the draws.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// SKUs in a draw. [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) skus: Option<usize>,
    /// Sessions of the manifest whose pictures are never enrolled, such as a maker's own.
    #[arg(long, value_name = "NAME", default_value = "iconic")]
    pub(crate) exclude_session: Vec<String>,
    /// Write report.json, table.txt and plot.svg into this folder as well.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) models: ModelSettings,
}
