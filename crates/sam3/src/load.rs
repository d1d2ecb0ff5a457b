//! Opens a SAM 3.1 checkpoint under any of the names it is published with.
//!
//! * Meta's file: `detector...` and `tracker.model...`, as a pickle or safetensors, bare or below
//!   `module.`, `model.` or a dictionary key. The single-file repackaging for ComfyUI has the same
//!   names without derived tables.
//! * mlx-community's conversion: other names, split projections and channels-last kernels.

use std::path::Path;

use candle_core::{DType, Device};
use shelfscan_model_kit::weights::{Checkpoint, LoadReport, WeightReader};

use crate::{Detector, Error, Result, Sam3Config, mlx};

/// A tensor that every detector has, below its prefix.
const PROBE: &str = "backbone.vision_backbone.trunk.pos_embed";
/// What wraps the names of a checkpoint, besides the parts of the model itself.
const WRAPPERS: [&str; 4] = ["module.", "model.", "sam3_model.", "detector."];

/// Opens `path` and gives every tensor the name Meta's file has for it.
///
/// # Errors
/// [`Error::OtherModel`] for SAM 3.0, [`Error::Weights`] for a broken file or one without a
/// tensor of this model.
pub fn open_checkpoint(path: &Path, config: &Sam3Config) -> Result<Checkpoint> {
    canonical_checkpoint(Checkpoint::open(path)?, config)
}

/// As [`open_checkpoint`], for a checkpoint that is open already.
///
/// # Errors
/// As [`open_checkpoint`].
pub fn canonical_checkpoint(checkpoint: Checkpoint, config: &Sam3Config) -> Result<Checkpoint> {
    if checkpoint.info(mlx::PROBE).is_some() {
        return mlx::canonical(checkpoint, config);
    }
    refuse_sam3_0(&checkpoint)?;
    let (checkpoint, prefix) = checkpoint.without_prefix(PROBE, &WRAPPERS)?;
    // What wraps the detector wraps the tracker as well.
    let outer = prefix
        .strip_suffix("detector.")
        .unwrap_or(&prefix)
        .to_owned();
    let canonical = checkpoint.renamed(|key| {
        let key = key.strip_prefix(outer.as_str()).unwrap_or(key);
        if let Some(rest) = key.strip_prefix("sam2_predictor.") {
            return Some(format!("tracker.{rest}"));
        }
        let known = key.starts_with("tracker.") || key.starts_with("detector.");
        Some(if known {
            key.to_owned()
        } else {
            format!("detector.{key}")
        })
    })?;
    Ok(canonical)
}

/// SAM 3.0 has a fourth neck level, its second neck under another name, and another tracker.
fn refuse_sam3_0(checkpoint: &Checkpoint) -> Result<()> {
    let sign = |key: &str| {
        key.contains("vision_backbone.sam2_convs.")
            || key.contains("vision_backbone.convs.3.")
            || key.contains("inst_interactive_predictor.")
    };
    if checkpoint.keys().any(sign) {
        return Err(Error::OtherModel {
            path: checkpoint.path().to_path_buf(),
            found: "a SAM 3.0 checkpoint",
            remedy: "pass SAM 3.1, published as sam3.1_multiplex",
        });
    }
    Ok(())
}

/// Loads a detector.
///
/// # Errors
/// As [`open_checkpoint`] and [`Detector::new`].
pub fn load_detector(
    path: &Path,
    config: &Sam3Config,
    dtype: DType,
    device: &Device,
) -> Result<(Detector, LoadReport)> {
    detector_from(Checkpoint::open(path)?, config, dtype, device)
}

/// As [`load_detector`], for a checkpoint that is open already.
///
/// # Errors
/// As [`load_detector`], but for opening the file.
pub fn detector_from(
    checkpoint: Checkpoint,
    config: &Sam3Config,
    dtype: DType,
    device: &Device,
) -> Result<(Detector, LoadReport)> {
    let checkpoint = canonical_checkpoint(checkpoint, config)?;
    Detector::new(&WeightReader::new(checkpoint, dtype, device), config)
}
