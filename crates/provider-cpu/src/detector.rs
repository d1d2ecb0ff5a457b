//! SAM 3.1 on the CPU behind the provider contract.

use std::{borrow::Cow, fs, path::Path};

use candle_core::{DType, Device};
use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, Lifecycle, ModelFingerprint, ProviderInfo, Result,
    RgbImage, TextPrompt, VideoFrame,
};
use shelfscan_model_kit::weights::WeightSource;
use shelfscan_sam3::{DetectOptions, Sam3, Sam3Config, Tokenizer, WorkCounts, detector_from};

/// Steps before the model, for fingerprints.
const PREPROCESSING: &str = "stretch-bilinear-antialias-u8-half";

/// Where a detector's weights and words come from.
#[derive(Clone, Debug)]
pub struct DetectorSource {
    /// The checkpoint: `.pt`, `.pth` or `.safetensors`.
    pub weights: WeightSource,
    /// Sizes of the model.
    pub config: Sam3Config,
    /// Table of merges in CLIP's text format, for a model with a vocabulary of its own.
    pub merges: Option<Cow<'static, str>>,
    /// Name of the model in results, such as `sam3.1`.
    pub name: String,
}

impl DetectorSource {
    /// The released SAM 3.1.
    pub fn sam3_1(weights: impl Into<WeightSource>) -> Self {
        Self {
            weights: weights.into(),
            config: Sam3Config::sam3_1(),
            merges: None,
            name: "sam3.1".into(),
        }
    }

    /// A model of other sizes in a folder: `model.safetensors`, its sizes in `config.json` and,
    /// when it has a vocabulary of its own, `merges.txt`. The folder's name is the model's.
    ///
    /// # Errors
    /// [`InferenceError::Weights`] when `config.json` is missing or no such model.
    pub fn folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let config_path = folder.join("config.json");
        let config = read_text(&config_path)?;
        let merges_path = folder.join("merges.txt");
        let merges = match fs::exists(&merges_path) {
            Ok(true) => Some(Cow::Owned(read_text(&merges_path)?)),
            _ => None,
        };
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned());
        Ok(Self {
            weights: folder.join("model.safetensors").into(),
            config: Sam3Config::from_json(&config).map_err(|e| InferenceError::Weights {
                path: config_path,
                reason: e.to_string(),
                remedy: "restore the file that belongs to the weights".into(),
            })?,
            merges,
            name: name.unwrap_or_else(|| "model".into()),
        })
    }
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| InferenceError::Weights {
        path: path.to_path_buf(),
        reason: e.to_string(),
        remedy: "a folder with a model holds model.safetensors and config.json".into(),
    })
}

/// SAM 3.1 on the CPU in `f32`.
///
/// It detects frame by frame and gives no track ids: `start_tracking` and `track_next` answer at
/// once with the finds of the frame they are given, and the pipeline associates them into tracks,
/// as [`ProviderInfo::assigns_track_ids`] says.
#[derive(Debug)]
pub struct CpuDetector {
    source: DetectorSource,
    options: DetectOptions,
    life: Lifecycle,
    model: Option<Sam3>,
    fingerprints: Vec<ModelFingerprint>,
    session: Vec<TextPrompt>,
}

impl CpuDetector {
    /// A cold detector; nothing is opened before warm-up.
    pub fn new(source: DetectorSource, options: DetectOptions) -> Self {
        Self {
            source,
            options,
            life: Lifecycle::default(),
            model: None,
            fingerprints: Vec::new(),
            session: Vec::new(),
        }
    }

    /// How often the expensive parts of the model ran; zero before warm-up.
    pub fn work(&self) -> WorkCounts {
        self.model.as_ref().map(Sam3::work).unwrap_or_default()
    }

    fn load(&self) -> Result<(Sam3, ModelFingerprint)> {
        let source = &self.source;
        let tokenizer = match &source.merges {
            Some(table) => {
                let (merges, context) = (source.config.merges, source.config.context_length);
                Tokenizer::with_merges(table.as_bytes(), merges, context)?
            }
            None => Tokenizer::new(source.config.context_length)?,
        };
        let checkpoint = source.weights.open().map_err(shelfscan_sam3::Error::from)?;
        let hash = checkpoint.sha256().map_err(shelfscan_sam3::Error::from)?;
        let (detector, _) =
            detector_from(checkpoint, &source.config, DType::F32, &Device::Cpu)?;
        let fingerprint = ModelFingerprint {
            model: source.name.clone(),
            weights_hash: hash,
            preprocessing: PREPROCESSING.into(),
        };
        Ok((Sam3::new(detector, tokenizer), fingerprint))
    }

    fn find(&self, frame: &VideoFrame, prompts: &[TextPrompt]) -> Result<FrameDetections> {
        let Some(model) = &self.model else {
            // The life cycle lets no call through without a model.
            return Ok(FrameDetections::default());
        };
        let found = model.detect(&frame.image, prompts, &self.options)?;
        Ok(FrameDetections {
            frame_index: frame.index,
            detections: found.detections,
            notices: found.notices,
        })
    }
}

impl InferenceProvider for CpuDetector {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            name: "cpu".into(),
            device: "cpu".into(),
            assigns_track_ids: false,
            tracking_delay_frames: 0,
            models: self.fingerprints.clone(),
        }
    }

    fn warmup(&mut self) -> Result<()> {
        if !self.life.begin_warmup()? {
            return Ok(());
        }
        let (model, fingerprint) = self.load()?;
        // A first run touches every weight, so that the first frame is as fast as the later ones.
        let side = self.source.config.patch_size as u32;
        let grey = RgbImage::new(side, side, vec![128; (side * side * 3) as usize])?;
        model.detect(&grey, &[TextPrompt::new("product")?], &self.options)?;
        self.model = Some(model);
        self.fingerprints = vec![fingerprint];
        self.life.warmed_up();
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections> {
        self.life.check_detect()?;
        self.find(frame, prompts)
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.life.check_start()?;
        self.life.stopped();
        let found = self.find(frame, prompts)?;
        self.session = prompts.to_vec();
        self.life.started();
        Ok(vec![found])
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.life.check_track("track_next")?;
        Ok(vec![self.find(frame, &self.session)?])
    }

    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        self.life.check_track("finish_tracking")?;
        self.life.stopped();
        self.session.clear();
        Ok(Vec::new())
    }

    fn shutdown(&mut self) -> Result<()> {
        self.life.shut_down();
        self.model = None;
        self.session.clear();
        Ok(())
    }
}
