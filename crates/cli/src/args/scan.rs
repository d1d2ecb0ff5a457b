//! Arguments of `scan` and `probe`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use shelfscan_pipeline::Shard;

use super::{
    AnnotateArg, DeviceArg, DtypeArg, HubSettings, PromptArg, RegionArg, TilesArg,
    values::prefer_fields,
};

/// Arguments of `shelfscan scan`.
#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that is typed or not"
)]
pub(crate) struct ScanArgs {
    /// Video files, folders, globs of pictures, addresses (rtsp, http, ...) or camera:N. A folder
    /// gives its videos, one source each; a folder of pictures alone is one source.
    #[arg(value_name = "SOURCE", required_unless_present = "camera")]
    pub(crate) sources: Vec<String>,
    /// Scan a camera by its number; the same as camera:N.
    #[arg(long, value_name = "N")]
    pub(crate) camera: Vec<u32>,
    /// Folder for the results; each source gets a folder below it.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Take detections from a file, or from the --out folder of an earlier scan, rather than from
    /// a model.
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) detections: Option<PathBuf>,
    /// Go on where an earlier scan stopped; finished sources are left as they are.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace the results of an earlier scan.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) overwrite: bool,
    /// Scan only the K-th of N shares of the sources, for N machines with the same list.
    #[arg(long, value_name = "K/N", value_parser = parse_shard)]
    pub(crate) shard: Option<Shard>,
    /// Print the plan as JSON and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the summary as JSON rather than as a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: ScanSettings,
    #[command(flatten)]
    pub(crate) reader: ReaderSettings,
    #[command(flatten)]
    pub(crate) models: ModelSettings,
}

fn parse_shard(text: &str) -> Result<Shard, String> {
    text.parse()
        .map_err(|e: shelfscan_pipeline::PipelineError| e.to_string())
}

/// Settings of a scan that a file may hold, under `[scan]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ScanSettings {
    /// A phrase to look for; give it again for more phrases, all of which are found in one pass.
    /// PHRASE=LABEL labels the finds otherwise. [default: product]
    #[arg(short, long, value_name = "TEXT", help_heading = "What to find")]
    pub(crate) prompt: Vec<PromptArg>,
    /// The gallery that names the SKUs; without one products are counted and not named.
    #[arg(short, long, value_name = "DIR", help_heading = "What to find")]
    pub(crate) gallery: Option<PathBuf>,
    /// A part of the picture to look at, in source pixels; give it again for more parts. Counts
    /// are given for each.
    #[arg(long, value_name = "NAME=X0,Y0,X1,Y1", help_heading = "What to find")]
    pub(crate) region: Vec<RegionArg>,
    /// Least score of a find, 0 to 1; without it the model's own, which is 0.5
    #[arg(long, value_name = "SCORE", help_heading = "What to find")]
    pub(crate) min_score: Option<f32>,
    /// Keep at most this many detections of a frame, the best first. [default: 1000]
    #[arg(long, value_name = "N", help_heading = "What to find")]
    pub(crate) max_detections: Option<u32>,

    /// Look at every N-th frame. [default: 1]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "fps",
        help_heading = "Which frames"
    )]
    pub(crate) every: Option<u32>,
    /// Look at no more than this many frames a second.
    #[arg(long, value_name = "RATE", help_heading = "Which frames")]
    pub(crate) fps: Option<f64>,
    /// Start at this second of the source's own clock.
    #[arg(
        long,
        value_name = "SECS",
        allow_negative_numbers = true,
        help_heading = "Which frames"
    )]
    pub(crate) start: Option<f64>,
    /// Stop at this second of the source's own clock.
    #[arg(
        long,
        value_name = "SECS",
        allow_negative_numbers = true,
        help_heading = "Which frames"
    )]
    pub(crate) end: Option<f64>,
    /// Stop after this many frames.
    #[arg(long, value_name = "N", help_heading = "Which frames")]
    pub(crate) max_frames: Option<u64>,
    /// Look at key frames only, which is fast.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Which frames")]
    pub(crate) keyframes_only: Option<bool>,
    /// How many pictures of a folder make a second. [default: 1]
    #[arg(long, value_name = "N", help_heading = "Which frames")]
    pub(crate) pictures_per_sec: Option<f64>,
    /// Take videos from the folders in a folder as well.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Which frames")]
    pub(crate) recursive: Option<bool>,

    /// Detections a track needs before it counts; all frames of a source that has fewer. [default: 3]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) confirm_hits: Option<u32>,
    /// Frames a track that does not count yet may miss before it starts anew. [default: 5]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) tentative_gap_frames: Option<u32>,
    /// Frames a track may miss before it ends. [default: 30]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) max_gap_frames: Option<u32>,
    /// Score from which detections are matched first. [default: 0.4]
    #[arg(long, value_name = "SCORE", help_heading = "Tracking")]
    pub(crate) high_score: Option<f32>,
    /// Score a detection needs to start a track; above --high-score. [default: 0.5]
    #[arg(long, value_name = "SCORE", help_heading = "Tracking")]
    pub(crate) new_track_score: Option<f32>,
    /// Overlap with its track that a detection of a high score needs, 0 to 1. [default: 0.2]
    #[arg(long, value_name = "IOU", help_heading = "Tracking")]
    pub(crate) match_iou: Option<f32>,
    /// Overlap with its track that a detection of a low score needs, 0 to 1. [default: 0.5]
    #[arg(long, value_name = "IOU", help_heading = "Tracking")]
    pub(crate) low_match_iou: Option<f32>,
    /// Overlap of two detections above which they are one, 0 to 1. [default: 0.8]
    #[arg(long, value_name = "IOU", help_heading = "Tracking")]
    pub(crate) duplicate_iou: Option<f32>,
    /// Tracks that are followed at one time. [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) max_live_tracks: Option<u32>,
    /// Views of the shelf that are remembered to find the camera's place again. [default: 200]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) max_key_frames: Option<u32>,
    /// Do not follow the camera's motion.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Tracking")]
    pub(crate) no_motion_compensation: Option<bool>,
    /// How far two sights of one facing may lie apart, as a share of its size. [default: 0.4]
    #[arg(long, value_name = "SHARE", help_heading = "Tracking")]
    pub(crate) facing_shift: Option<f32>,
    /// How much larger one sight of a facing may be than another. [default: 1.7]
    #[arg(long, value_name = "FACTOR", help_heading = "Tracking")]
    pub(crate) facing_growth: Option<f32>,
    /// How far something may move over the shelf and still stand, as a share of its size.
    /// [default: 0.6]
    #[arg(long, value_name = "SHARE", help_heading = "Tracking")]
    pub(crate) facing_travel: Option<f32>,
    /// Tracks whose places are remembered. [default: 5000]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) facing_tracks: Option<u32>,
    /// Detect in every N-th frame alone, N at most 30, and follow what was found in between; for models
    /// that track by themselves, others detect in every frame. [default: 1]
    #[arg(long, value_name = "N", help_heading = "Tracking")]
    pub(crate) detect_every: Option<u32>,
    /// Keep the track ids of --detections rather than tracking anew.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Tracking")]
    pub(crate) keep_ids: Option<bool>,

    /// Crops of a track that are identified, the largest and sharpest first. [default: 3]
    #[arg(long, value_name = "N", help_heading = "Identity")]
    pub(crate) crops_per_track: Option<u32>,
    /// Crops that are embedded in one call. [default: 16]
    #[arg(long, value_name = "N", help_heading = "Identity")]
    pub(crate) identity_batch: Option<u32>,
    /// Frames after which a batch is embedded although it is not full. [default: 15]
    #[arg(long, value_name = "N", help_heading = "Identity")]
    pub(crate) identity_wait_frames: Option<u32>,
    /// Do not identify crops whose shorter side is below this, in source pixels. [default: 12]
    #[arg(long, value_name = "PX", help_heading = "Identity")]
    pub(crate) min_crop_px: Option<u32>,

    /// A record with boxes, ids and SKUs for people to look at. [default: off]
    #[arg(long, value_name = "KIND", value_enum, help_heading = "Output")]
    pub(crate) annotate: Option<AnnotateArg>,
    /// Leave the masks out of detections.jsonl, which makes it much smaller.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Output")]
    pub(crate) no_masks: Option<bool>,
    /// Do not save the best crop of every track.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Output")]
    pub(crate) no_crops: Option<bool>,
    /// Write report.html, a page with counts, pictures and a timeline, into each source's folder.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Output")]
    pub(crate) report: Option<bool>,
    /// Threads to use; results do not depend on it. [default: one each core]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) threads: Option<usize>,
    /// Seconds between lines about the progress where no bar can be drawn. [default: 10]
    #[arg(long, value_name = "SECS", help_heading = "Output")]
    pub(crate) progress_secs: Option<f64>,
}

prefer_fields!(ScanSettings {
    prompt,
    gallery,
    region,
    min_score,
    max_detections,
    every,
    fps,
    start,
    end,
    max_frames,
    keyframes_only,
    pictures_per_sec,
    recursive,
    confirm_hits,
    tentative_gap_frames,
    max_gap_frames,
    high_score,
    new_track_score,
    match_iou,
    low_match_iou,
    duplicate_iou,
    max_live_tracks,
    max_key_frames,
    no_motion_compensation,
    facing_shift,
    facing_growth,
    facing_travel,
    facing_tracks,
    detect_every,
    keep_ids,
    crops_per_track,
    identity_batch,
    identity_wait_frames,
    min_crop_px,
    annotate,
    no_masks,
    no_crops,
    report,
    threads,
    progress_secs,
});

/// How sources are read; a file may hold it under `[reader]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Reading")]
pub(crate) struct ReaderSettings {
    /// The ffmpeg program, or `never` to do without one. [default: the one on the search path]
    #[arg(long, value_name = "PATH", env = "SHELFSCAN_FFMPEG", value_parser = super::hub::maybe_empty())]
    pub(crate) ffmpeg: Option<PathBuf>,
    /// Seconds a source may give nothing before it is given up. [default: 30]
    #[arg(long, value_name = "SECS")]
    pub(crate) stall_secs: Option<f64>,
    /// Refuse pictures of more pixels than this. [default: 178956970]
    #[arg(long, value_name = "N")]
    pub(crate) max_pixels: Option<u64>,
}

prefer_fields!(ReaderSettings {
    ffmpeg,
    stall_secs,
    max_pixels
});

/// Which models to use; a file may hold it under `[models]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Models")]
pub(crate) struct ModelSettings {
    /// What finds the products: a SAM 3.1 checkpoint, a folder with a smaller model of its kind
    /// (model.safetensors, config.json, merges.txt), or a model that is downloaded when it is not
    /// there: sam3.1, or hf:OWNER/NAME[@REVISION][:FILE]. [default: the built-in shelf-tiny]
    #[arg(long, value_name = "FILE|DIR|MODEL")]
    pub(crate) weights: Option<PathBuf>,
    /// Cut pictures into overlapping tiles before the detector looks at them: off, auto, columns and
    /// rows as in 2x2, or those and the whole picture as in whole+2x2. For full bays and small packs.
    /// [default: off; auto for shelf-tiny]
    #[arg(long, value_name = "TILES")]
    pub(crate) tiles: Option<TilesArg>,
    /// Of two finds of a phrase whose masks share more than this part of the smaller one, the
    /// better stays; 1 keeps both. [default: 0.5; 0.1 for a model that tracks by itself]
    #[arg(long, value_name = "SHARE")]
    pub(crate) duplicate_overlap: Option<f32>,
    /// What tells SKUs apart: a DINOv2 checkpoint, a folder with model.safetensors, or a model that
    /// is downloaded when it is not there: dinov2-small, dinov2-base, dinov2-large, or
    /// hf:OWNER/NAME[@REVISION][:FILE]. [default: the built-in pack-tiny]
    #[arg(long, value_name = "FILE|DIR|MODEL")]
    pub(crate) embedder_weights: Option<PathBuf>,
    /// Attention heads of the DINOv2 checkpoint. [default: one per 64 channels]
    #[arg(long, value_name = "N")]
    pub(crate) embedder_heads: Option<usize>,
    /// Side of the square a crop is embedded at, in pixels, a multiple of 14. [default: 224, or
    /// what the checkpoint was made for when that is smaller]
    #[arg(long, value_name = "PX")]
    pub(crate) embedder_size: Option<usize>,
    /// What the models run on: auto, cpu, cuda, cuda:N for card N, or metal. Nothing takes the place
    /// of a device that is named. [default: auto, the fastest there is]
    #[arg(long, value_name = "DEVICE", help_heading = "Device")]
    pub(crate) device: Option<DeviceArg>,
    /// Type the models calculate in: f32, bf16 or f16; the CPU has f32. [default: f32]
    #[arg(long, value_name = "TYPE", help_heading = "Device")]
    pub(crate) dtype: Option<DtypeArg>,
    /// Run the models in a process of their own, which may crash or hang without taking the scan
    /// along. [default: on for metal, off elsewhere]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Device")]
    pub(crate) isolate: Option<bool>,
    /// Seconds a call to the models' process may take before it is ended, loading included.
    /// [default: 120]
    #[arg(long, value_name = "SECS", help_heading = "Device")]
    pub(crate) call_deadline_secs: Option<f64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) hub: HubSettings,
}

prefer_fields!(ModelSettings {
    weights,
    tiles,
    duplicate_overlap,
    embedder_weights,
    embedder_heads,
    embedder_size,
    device,
    dtype,
    isolate,
    call_deadline_secs,
    hub,
});

/// Arguments of `shelfscan probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Video files, folders, globs of pictures, addresses or camera:N.
    #[arg(value_name = "SOURCE", required_unless_present = "cameras")]
    pub(crate) sources: Vec<String>,
    /// List the cameras that are plugged in and the modes they offer.
    #[arg(long)]
    pub(crate) cameras: bool,
    /// Take videos from the folders in a folder as well.
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reader: ReaderSettings,
}
