//! The only place that names a model back end.

use std::{path::Path, sync::Arc};

use shelfscan_inference_core::{Embedder, InferenceProvider};
use shelfscan_pipeline::{ReplayFiles, ReplayProvider};
use shelfscan_provider_cpu::{
    CpuDetector, DetectOptions, DetectorSource, Dinov2Embedder, EmbedderOptions, WeightSource,
};

use crate::{args::ModelSettings, builtin, exit::Usage};

/// What finds the products.
#[derive(Clone, Debug)]
pub(crate) enum Detector {
    /// Files of an earlier scan.
    Replay { files: ReplayFiles, keep_ids: bool },
    /// A model.
    Model {
        models: ModelSettings,
        /// Score that finds need; the model's own default when `None`.
        min_score: Option<f32>,
    },
}

/// Opens what finds the products; nothing heavy happens before its warm-up.
pub(crate) fn open_provider(detector: Detector) -> anyhow::Result<Box<dyn InferenceProvider>> {
    match detector {
        Detector::Replay { files, keep_ids } => Ok(Box::new(ReplayProvider::new(files, keep_ids))),
        Detector::Model { models, min_score } => {
            let (source, mut options) = detector_source(models.weights.as_deref())?;
            if let Some(score) = min_score {
                options.score_threshold = score;
            }
            if let Some(tiles) = models.tiles {
                options.tiling = tiles.0;
            }
            if let Some(share) = models.duplicate_overlap {
                if !(share > 0.0 && share <= 1.0) {
                    return Err(Usage::new(format!(
                        "--duplicate-overlap cannot be {share}; it is a share above 0, up to 1"
                    ))
                    .into());
                }
                options.duplicate_overlap = (share < 1.0).then_some(share);
            }
            Ok(Box::new(CpuDetector::new(source, options)))
        }
    }
}

fn detector_source(weights: Option<&Path>) -> anyhow::Result<(DetectorSource, DetectOptions)> {
    match weights {
        None => builtin::detector().ok_or_else(|| {
            Usage::new("there is nothing to detect with, and no model is built in")
                .hint("give a SAM 3.1 checkpoint with --weights FILE, or the detections of an earlier scan, also of another machine, with --detections FILE|DIR")
                .into()
        }),
        Some(folder) if folder.is_dir() => {
            Ok((DetectorSource::folder(folder)?, DetectOptions::default()))
        }
        Some(file) => Ok((DetectorSource::sam3_1(file), DetectOptions::default())),
    }
}

/// Opens what tells SKUs apart; nothing heavy happens before its warm-up.
pub(crate) fn open_embedder(models: &ModelSettings) -> anyhow::Result<Arc<dyn Embedder>> {
    let weights = match &models.embedder_weights {
        Some(folder) if folder.is_dir() => folder.join("model.safetensors").into(),
        Some(file) => WeightSource::from(file),
        None => builtin::embedder().ok_or_else(|| {
            Usage::new("there is nothing to tell SKUs apart with, and no model is built in")
                .hint("give a DINOv2 checkpoint with --embedder-weights FILE (.pth or .safetensors)")
        })?,
    };
    let mut options = EmbedderOptions {
        side_px: models.embedder_size,
        ..EmbedderOptions::default()
    };
    options.load.heads = models.embedder_heads;
    Ok(Arc::new(Dinov2Embedder::new(weights, options)))
}

/// One line about the models of a scan that nobody chose, and `None` when somebody did.
pub(crate) fn about_builtin(models: &ModelSettings, gallery: bool) -> Option<String> {
    let detector = models.weights.is_none().then(builtin::about_detector);
    let embedder = (gallery && models.embedder_weights.is_none()).then(builtin::about_embedder);
    let mut parts = detector.into_iter().chain(embedder).flatten();
    let first = parts.next()?;
    let text = parts.fold(format!("built in: {first}"), |text, part| {
        format!("{text}; {part}")
    });
    Some(text)
}
