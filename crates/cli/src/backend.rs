//! The only place that names a model back end.

use std::{path::Path, sync::Arc};

use shelfscan_inference_core::{Embedder, InferenceError, InferenceProvider};
use shelfscan_pipeline::{ReplayFiles, ReplayProvider};
pub(crate) use shelfscan_provider_cpu::Placement;
use shelfscan_provider_cpu::{
    CpuDetector, DType, DetectOptions, DetectorSource, Dinov2Embedder, EmbedderOptions,
    VideoOptions, WeightSource,
};
use shelfscan_provider_cuda as cuda;
use shelfscan_provider_metal as metal;

use crate::{
    args::{DeviceArg, DtypeArg, ModelSettings},
    builtin,
    exit::Usage,
    routing::{self, Machine, Route},
};

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
        /// Frames from one detection to the next, for a model that tracks by itself.
        detect_every: Option<u32>,
        /// Where it runs.
        place: Placement,
    },
}

/// What this build has to offer on this machine.
struct Here;

impl Machine for Here {
    fn cuda(&self, card: usize, dtype: DtypeArg) -> Result<String, InferenceError> {
        let card = cuda::probe(card)?;
        card.check(dtype.into())?;
        Ok(card.to_string())
    }

    fn metal(&self, dtype: DtypeArg) -> Result<String, InferenceError> {
        let gpu = metal::probe()?;
        metal::place(dtype.into())?;
        Ok(gpu.to_string())
    }
}

impl From<DtypeArg> for DType {
    fn from(dtype: DtypeArg) -> Self {
        match dtype {
            DtypeArg::F32 => Self::F32,
            DtypeArg::Bf16 => Self::BF16,
            DtypeArg::F16 => Self::F16,
        }
    }
}

/// Decides what the models run on.
pub(crate) fn route(models: &ModelSettings) -> Result<Route, InferenceError> {
    routing::route(
        models.device.unwrap_or_default(),
        models.dtype.unwrap_or_default(),
        &Here,
    )
}

/// What a device is for each type, or why it cannot be used.
pub(crate) type Answers = Vec<(DtypeArg, Result<String, InferenceError>)>;

/// Every device a build may have, and for each type what the device is here or why it cannot be
/// used.
pub(crate) fn devices() -> Vec<(DeviceArg, Answers)> {
    let types = [DtypeArg::F32, DtypeArg::Bf16, DtypeArg::F16];
    let about = |answer: &dyn Fn(DtypeArg) -> Result<String, InferenceError>| {
        types.map(|dtype| (dtype, answer(dtype))).into()
    };
    let cpu = vec![(DtypeArg::F32, Ok("always there".into()))];
    vec![
        (DeviceArg::Cpu, cpu),
        (DeviceArg::Cuda(0), about(&|dtype| Here.cuda(0, dtype))),
        (DeviceArg::Metal, about(&|dtype| Here.metal(dtype))),
    ]
}

/// Puts models where it was decided; the device is opened by the first warm-up.
pub(crate) fn place(route: &Route) -> Result<Placement, InferenceError> {
    match route.device {
        DeviceArg::Auto | DeviceArg::Cpu => Ok(Placement::cpu()),
        DeviceArg::Cuda(card) => cuda::place(&cuda::probe(card)?, route.dtype.into()),
        DeviceArg::Metal => metal::place(route.dtype.into()),
    }
}

/// Finds a slip in what is asked of a detector, before anything is downloaded or opened.
pub(crate) fn check(models: &ModelSettings, detect_every: Option<u32>) -> anyhow::Result<()> {
    if let Some(frames) = detect_every {
        let video = VideoOptions {
            detect_every: frames as usize,
            ..VideoOptions::default()
        };
        if video.validate().is_err() {
            return Err(Usage::new(format!(
                "--detect-every cannot be {frames}; it lies between 1, which detects in every frame, and \
                 30, because the frames up to a result are held"
            ))
            .into());
        }
    }
    if let Some(share) = models.duplicate_overlap
        && !(share > 0.0 && share <= 1.0)
    {
        return Err(Usage::new(format!(
            "--duplicate-overlap cannot be {share}; it is a share above 0, up to 1"
        ))
        .into());
    }
    Ok(())
}

/// Opens what finds the products; nothing heavy happens before its warm-up.
pub(crate) fn open_provider(detector: Detector) -> anyhow::Result<Box<dyn InferenceProvider>> {
    match detector {
        Detector::Replay { files, keep_ids } => Ok(Box::new(ReplayProvider::new(files, keep_ids))),
        Detector::Model {
            models,
            min_score,
            detect_every,
            place,
        } => {
            let (source, mut options) = detector_source(models.weights.as_deref())?;
            let mut video = VideoOptions::default();
            if let Some(score) = min_score {
                options.score_threshold = score;
                video.score_threshold = video.score_threshold.min(score);
                video.birth_score = score;
            }
            if let Some(frames) = detect_every {
                video.detect_every = frames as usize;
            }
            if let Some(tiles) = models.tiles {
                options.tiling = tiles.0;
            }
            if let Some(share) = models.duplicate_overlap {
                options.duplicate_overlap = (share < 1.0).then_some(share);
                video.duplicate_overlap = share;
            }
            Ok(Box::new(
                CpuDetector::new(source, options)
                    .with_video_options(video)
                    .at(place),
            ))
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
pub(crate) fn open_embedder(
    models: &ModelSettings,
    place: Placement,
) -> anyhow::Result<Arc<dyn Embedder>> {
    let weights = match &models.embedder_weights {
        Some(folder) if folder.is_dir() => folder.join("model.safetensors").into(),
        Some(file) => WeightSource::from(file),
        None => builtin::embedder().ok_or_else(|| {
            Usage::new("there is nothing to tell SKUs apart with, and no model is built in").hint(
                "give a DINOv2 checkpoint with --embedder-weights FILE (.pth or .safetensors)",
            )
        })?,
    };
    let mut options = EmbedderOptions {
        side_px: models.embedder_size,
        ..EmbedderOptions::default()
    };
    options.load.heads = models.embedder_heads;
    Ok(Arc::new(Dinov2Embedder::at(weights, options, place)))
}

/// One line about the models of a scan that nobody chose, and `None` when somebody did.
pub(crate) fn about_builtin(
    models: &ModelSettings,
    detects: bool,
    gallery: bool,
) -> Option<String> {
    let detector = (detects && models.weights.is_none()).then(builtin::about_detector);
    let embedder = (gallery && models.embedder_weights.is_none()).then(builtin::about_embedder);
    let mut parts = detector.into_iter().chain(embedder).flatten();
    let first = parts.next()?;
    let text = parts.fold(format!("built in: {first}"), |text, part| {
        format!("{text}; {part}")
    });
    Some(text)
}
