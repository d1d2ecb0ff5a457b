//! SAM 3.1 on the CPU behind the provider contract.

use std::{borrow::Cow, fs, path::Path, sync::Arc};

use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, Lifecycle, ModelFingerprint, Notice,
    ProviderInfo, Result, RgbImage, TextPrompt, VideoFrame,
};
use shelfscan_model_kit::weights::WeightSource;
use shelfscan_provider_kit::Placement;
use shelfscan_sam3::{
    DetectOptions, Sam3, Sam3Config, Tokenizer, WorkCounts,
    tracker::video::{Sam3Video, VideoOptions, VideoSession, halves_from},
};

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
/// With weights that hold the tracker it follows objects by memory and gives track ids, a few frames
/// later ([`VideoOptions::delay_frames`]). With a detector alone `start_tracking` and `track_next`
/// answer at once with the finds of the frame they are given, a notice says so, and the pipeline
/// associates the finds into tracks. Which of the two it is,
/// [`ProviderInfo::assigns_track_ids`] says once the weights were opened by warm-up.
pub struct CpuDetector {
    source: DetectorSource,
    options: DetectOptions,
    video_options: VideoOptions,
    place: Placement,
    life: Lifecycle,
    model: Option<Arc<Sam3>>,
    /// Detector and tracker, when the weights hold both.
    video: Option<Sam3Video>,
    fingerprints: Vec<ModelFingerprint>,
    session: Session,
}

/// An open tracking session.
enum Session {
    None,
    /// Frame by frame.
    Frames(Vec<TextPrompt>),
    /// By memory.
    Video(Box<VideoSession<Sam3Video>>),
}

impl CpuDetector {
    /// A cold detector; nothing is opened before warm-up.
    pub fn new(source: DetectorSource, options: DetectOptions) -> Self {
        Self {
            source,
            options,
            video_options: VideoOptions::default(),
            place: Placement::cpu(),
            life: Lifecycle::default(),
            model: None,
            video: None,
            fingerprints: Vec::new(),
            session: Session::None,
        }
    }

    /// Sets how objects are followed when the weights hold the tracker. `options` of
    /// [`new`](Self::new) count for single frames alone.
    #[must_use]
    pub fn with_video_options(mut self, options: VideoOptions) -> Self {
        self.video_options = options;
        self
    }

    /// Puts it somewhere else than on the CPU.
    #[must_use]
    pub fn at(mut self, place: Placement) -> Self {
        self.place = place;
        self
    }

    /// How often the expensive parts of the model ran; zero before warm-up.
    pub fn work(&self) -> WorkCounts {
        self.model.as_ref().map(|m| m.work()).unwrap_or_default()
    }

    fn load(&self) -> Result<(Arc<Sam3>, Option<Sam3Video>, ModelFingerprint)> {
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
        let (detector, tracker, _) = halves_from(
            checkpoint,
            &source.config,
            self.place.dtype(),
            &self.place.device()?,
        )?;
        let model = Arc::new(Sam3::new(detector, tokenizer));
        let video = tracker
            .map(|tracker| Sam3Video::new(Arc::clone(&model), Arc::new(tracker)))
            .transpose()?;
        let fingerprint = ModelFingerprint {
            model: source.name.clone(),
            weights_hash: hash,
            preprocessing: self.looked_at(video.is_some()),
        };
        Ok((model, video, fingerprint))
    }

    /// How pictures are looked at, so that runs which differ in it are told apart.
    fn looked_at(&self, tracks: bool) -> String {
        if tracks {
            let video = &self.video_options;
            return format!(
                "{PREPROCESSING}/detect-every-{}/duplicates-{}",
                video.detect_every, video.duplicate_overlap
            );
        }
        let duplicates = match self.options.duplicate_overlap {
            Some(share) => share.to_string(),
            None => "kept".into(),
        };
        format!(
            "{PREPROCESSING}/tiles-{}/duplicates-{duplicates}",
            self.options.tiling
        )
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
            name: self.place.back_end().into(),
            device: self.place.device_name().into(),
            assigns_track_ids: self.video.is_some(),
            tracking_delay_frames: match self.video {
                Some(_) => self.video_options.delay_frames() as u32,
                None => 0,
            },
            models: self.fingerprints.clone(),
        }
    }

    fn warmup(&mut self) -> Result<()> {
        if !self.life.begin_warmup()? {
            return Ok(());
        }
        self.video_options.validate()?;
        let _alone = self.place.enter();
        let (model, video, fingerprint) = self.load()?;
        // A first run touches every weight, so that the first frame is as fast as the later ones.
        let side = self.source.config.patch_size as u32;
        let grey = RgbImage::new(side, side, vec![128; (side * side * 3) as usize])?;
        model.detect(&grey, &[TextPrompt::new("product")?], &self.options)?;
        self.model = Some(model);
        self.video = video;
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
        let _alone = self.place.enter();
        self.find(frame, prompts)
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.life.check_start()?;
        self.life.stopped();
        let _alone = self.place.enter();
        self.session = Session::None;
        let (found, session) = if let Some(video) = &self.video {
            let mut session = VideoSession::new(video.clone(), prompts, &self.video_options)?;
            (session.push(frame)?, Session::Video(Box::new(session)))
        } else {
            let mut found = self.find(frame, prompts)?;
            found.notices.push(Notice::new(
                "no_tracker_weights",
                "the weights hold a detector alone, so tracks are made by association of detections",
            ));
            (vec![found], Session::Frames(prompts.to_vec()))
        };
        self.session = session;
        self.life.started();
        Ok(found)
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.life.check_track("track_next")?;
        let _alone = self.place.enter();
        match &mut self.session {
            Session::None => Ok(Vec::new()),
            Session::Video(session) => Ok(session.push(frame)?),
            Session::Frames(prompts) => {
                let prompts = prompts.clone();
                Ok(vec![self.find(frame, &prompts)?])
            }
        }
    }

    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        self.life.check_track("finish_tracking")?;
        self.life.stopped();
        let _alone = self.place.enter();
        match std::mem::replace(&mut self.session, Session::None) {
            Session::Video(session) => Ok(session.finish()),
            Session::Frames(_) | Session::None => Ok(Vec::new()),
        }
    }

    fn shutdown(&mut self) -> Result<()> {
        self.life.shut_down();
        let _alone = self.place.enter();
        self.session = Session::None;
        self.video = None;
        self.model = None;
        Ok(())
    }
}
