//! The only place that names a model back end.

use std::sync::Arc;

use shelfscan_inference_core::{Embedder, InferenceProvider};
use shelfscan_pipeline::{ReplayFiles, ReplayProvider};
use shelfscan_provider_cpu::{
    CpuDetector, DetectOptions, DetectorSource, Dinov2Embedder, EmbedderOptions,
};

use crate::{args::ModelSettings, exit::Usage};

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
            let Some(weights) = models.weights else {
                return Err(Usage::new("there is nothing to detect with")
                    .hint("give a SAM 3.1 checkpoint with --weights FILE, or the detections of an earlier scan, also of another machine, with --detections FILE|DIR")
                    .into());
            };
            let mut options = DetectOptions::default();
            if let Some(score) = min_score {
                options.score_threshold = score;
            }
            Ok(Box::new(CpuDetector::new(
                DetectorSource::sam3_1(weights),
                options,
            )))
        }
    }
}

/// Opens what tells SKUs apart; nothing heavy happens before its warm-up.
pub(crate) fn open_embedder(models: &ModelSettings) -> anyhow::Result<Arc<dyn Embedder>> {
    let Some(weights) = &models.embedder_weights else {
        return Err(Usage::new("there is no model to tell SKUs apart with")
            .hint("give a DINOv2 checkpoint with --embedder-weights FILE (.pth or .safetensors)")
            .into());
    };
    let mut options = EmbedderOptions {
        side_px: models.embedder_size,
        ..EmbedderOptions::default()
    };
    options.load.heads = models.embedder_heads;
    Ok(Arc::new(Dinov2Embedder::new(weights, options)))
}
