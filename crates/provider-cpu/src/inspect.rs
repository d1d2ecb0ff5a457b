//! What a checkpoint is, with every tensor accounted for.

use std::path::Path;

use candle_core::{DType, Device};
use serde::Serialize;
use shelfscan_dinov2::Dinov2;
use shelfscan_inference_core::Result;
use shelfscan_model_kit::{
    Error as KitError,
    weights::{Checkpoint, LoadReport, WeightSource},
    weights_error,
};
use shelfscan_sam3::{Sam3Config, detector_from};

use crate::DetectorSource;

/// What a file that is looked at may hold.
const EITHER: &str = "SAM 3.1 or DINOv2";

/// A checkpoint that loads, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointLayout {
    /// The model, such as `sam3.1` or `dinov2-small`.
    pub model: String,
    /// Tensors the model reads.
    pub tensors: usize,
    /// Numbers in them.
    pub parameters: usize,
    /// Tensors that are left out on purpose, such as tables that are computed.
    pub left_out: usize,
}

impl CheckpointLayout {
    fn new(model: String, report: &LoadReport) -> Self {
        Self {
            model,
            tensors: report.tensors,
            parameters: report.parameters,
            left_out: report.ignored.len(),
        }
    }
}

/// Loads a SAM 3.1 or DINOv2 checkpoint, or a folder with a model, and says what it is. Every
/// tensor is looked at, so one that is missing, unknown or misshapen is found, and in all but the
/// tracker's, which are read when it is opened, one that is not finite.
///
/// # Errors
/// [`InferenceError::Weights`](shelfscan_inference_core::InferenceError::Weights) that names what is wrong.
pub fn inspect(path: &Path) -> Result<CheckpointLayout> {
    if path.is_dir() {
        if path.join("merges.txt").is_file() {
            let source = DetectorSource::folder(path)?;
            return detector(&source.weights, &source.config, source.name);
        }
        return inspect(&path.join("model.safetensors"));
    }
    let source = WeightSource::from(path);
    let open = || {
        source
            .open()
            .map_err(|e| weights_error(e.weights_fault(), e, EITHER))
    };
    match embedder(open()?) {
        Ok(layout) => Ok(layout),
        // None of its names is DINOv2's.
        Err(shelfscan_dinov2::Error::Weights(KitError::NoMatch { .. })) => {
            detector(&source, &Sam3Config::sam3_1(), "sam3.1".into())
        }
        Err(error) => Err(weights_error(error.weights_fault(), error, EITHER)),
    }
}

fn embedder(checkpoint: Checkpoint) -> shelfscan_dinov2::Result<CheckpointLayout> {
    let load = shelfscan_dinov2::LoadOptions::default();
    let model = Dinov2::from_checkpoint(checkpoint, load, DType::F32, &Device::Cpu)?;
    let name = model.config().to_string();
    Ok(CheckpointLayout::new(name, model.load_report()))
}

fn detector(source: &WeightSource, config: &Sam3Config, name: String) -> Result<CheckpointLayout> {
    let checkpoint = source
        .open()
        .map_err(|e| weights_error(e.weights_fault(), e, EITHER))?;
    let (_, report) = detector_from(checkpoint, config, DType::F32, &Device::Cpu)?;
    Ok(CheckpointLayout::new(name, &report))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    fn models() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
    }

    #[test]
    fn the_small_models_are_known_by_their_tensors_alone() {
        let embedder = inspect(&models().join("pack-tiny")).unwrap();
        assert!(embedder.model.starts_with("dinov2-"), "{embedder:?}");
        assert!(
            embedder.tensors > 50 && embedder.parameters > 1_000_000,
            "{embedder:?}"
        );
        let detector = inspect(&models().join("shelf-tiny")).unwrap();
        assert_eq!(detector.model, "shelf-tiny");
        assert!(
            detector.tensors > 200 && detector.parameters > 1_000_000,
            "{detector:?}"
        );
    }

    #[test]
    fn a_checkpoint_of_neither_model_and_one_that_lacks_a_tensor_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.safetensors");
        fs::write(&path, "no weights").unwrap();
        let text = inspect(&path).unwrap_err().to_string();
        assert!(text.contains("w.safetensors"), "{text}");
        // One name of the header is another: one tensor is missing and one unknown.
        let bytes = fs::read(models().join("pack-tiny/model.safetensors")).unwrap();
        let name = b"norm.weight\"";
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
        let mut renamed = bytes;
        renamed[at] = b'm';
        fs::write(&path, renamed).unwrap();
        let text = inspect(&path).unwrap_err().to_string();
        assert!(text.contains("morm.weight"), "{text}");
    }
}
