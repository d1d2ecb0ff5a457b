//! SAM 3.1 behind a video session.

use std::sync::Arc;

use candle_core::{DType, Device};
use shelfscan_inference_core::{Notice, RgbImage, TextPrompt};

use shelfscan_model_kit::weights::{Checkpoint, LoadReport, WeightReader};

use super::{RawDetections, VideoModel};
use crate::{
    Detector, Error, Exemplars, Grounding, ImageFeatures, Result, Sam3, Sam3Config,
    canonical_checkpoint,
    model::{PHRASES_AT_ONCE, notices},
    phrases::batch,
    tracker::{MemoryPrecision, SessionOptions, Tracker, TrackerFeatures, TrackerSession},
};

/// Both halves of an open checkpoint; the tracker is `None` when the file holds a detector alone.
///
/// # Errors
/// As [`canonical_checkpoint`], [`Tracker::new`] and [`Detector::new`].
pub fn halves_from(
    checkpoint: Checkpoint,
    config: &Sam3Config,
    dtype: DType,
    device: &Device,
) -> Result<(Detector, Option<Tracker>, LoadReport)> {
    let weights = WeightReader::new(canonical_checkpoint(checkpoint, config)?, dtype, device);
    let held = weights.pp("tracker.model").has("maskmem_tpos_enc");
    let tracker = held.then(|| Tracker::new(&weights, config)).transpose()?;
    let (detector, report) = Detector::new(&weights, config)?;
    Ok((detector, tracker, report))
}

/// Detector and tracker of one checkpoint, shared by any number of sessions.
#[derive(Clone, Debug)]
pub struct Sam3Video {
    sam3: Arc<Sam3>,
    tracker: Arc<Tracker>,
    precision: MemoryPrecision,
    frames: Option<usize>,
}

/// What both halves of the model see of one frame.
#[derive(Debug)]
pub struct VideoFeatures {
    image: ImageFeatures,
    tracker: Arc<TrackerFeatures>,
}

impl VideoFeatures {
    /// From what the detector sees of a frame of `width` x `height` source pixels.
    ///
    /// # Errors
    /// The frame has no pixel.
    pub fn new(image: ImageFeatures, size_px: (u32, u32)) -> Result<Self> {
        Ok(Self {
            tracker: Arc::new(TrackerFeatures::new(&image.trunk, size_px)?),
            image,
        })
    }
}

impl Sam3Video {
    /// Puts the halves together. They have to come from one checkpoint.
    ///
    /// # Errors
    /// Their sizes differ, or the detector draws no masks.
    pub fn new(sam3: Arc<Sam3>, tracker: Arc<Tracker>) -> Result<Self> {
        let config = sam3.detector().config();
        if config != tracker.config() {
            return Err(Error::Config(
                "detector and tracker have other sizes".into(),
            ));
        }
        if sam3.detector().segmentation.is_none() {
            return Err(Error::Config(
                "the detector draws no masks, which a tracker starts from".into(),
            ));
        }
        Ok(Self {
            sam3,
            tracker,
            precision: MemoryPrecision::default(),
            frames: None,
        })
    }

    /// How memories are kept; rounded to bfloat16 unless this says otherwise.
    #[must_use]
    pub fn with_precision(mut self, precision: MemoryPrecision) -> Self {
        self.precision = precision;
        self
    }

    /// Says how many frames a video has. With fewer than 16 the reference scales ages by that, so
    /// this gives its numbers; without, every video is treated alike.
    #[must_use]
    pub fn with_known_length(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    /// The detector.
    pub fn sam3(&self) -> &Sam3 {
        &self.sam3
    }

    /// What prompt `b` found above a threshold, with masks.
    fn drawn(
        &self,
        features: &VideoFeatures,
        found: &Grounding,
        b: usize,
        score_threshold: f32,
    ) -> Result<RawDetections> {
        let probabilities: Vec<f32> = found
            .joint_logits(b)
            .into_iter()
            .map(|logit| 1.0 / (1.0 + (-logit).exp()))
            .collect();
        let queries: Vec<usize> = (0..probabilities.len())
            .filter(|q| probabilities[*q] > score_threshold)
            .collect();
        let boxes = found.boxes(b);
        Ok(RawDetections {
            scores: queries.iter().map(|q| probabilities[*q]).collect(),
            boxes: queries
                .iter()
                .filter_map(|q| boxes.get(*q).copied())
                .collect(),
            masks: self
                .sam3
                .detector()
                .masks(&features.image, found, b, &queries)?,
            full: queries.len() == probabilities.len(),
        })
    }
}

impl VideoModel for Sam3Video {
    type Features = VideoFeatures;
    type Tracker = TrackerSession;

    fn features(&self, picture: &RgbImage) -> Result<VideoFeatures> {
        let image = self.sam3.image_features(picture)?;
        VideoFeatures::new(image, (picture.width(), picture.height()))
    }

    fn detections(
        &self,
        features: &VideoFeatures,
        prompts: &[TextPrompt],
        score_threshold: f32,
    ) -> Result<Vec<RawDetections>> {
        let phrases = self.sam3.phrases(prompts)?;
        let mut out = Vec::with_capacity(prompts.len());
        for group in phrases.chunks(PHRASES_AT_ONCE) {
            let detector = self.sam3.detector();
            let found = detector.ground(&features.image, &batch(group)?, &[])?;
            for b in 0..found.len() {
                out.push(self.drawn(features, &found, b, score_threshold)?);
            }
        }
        Ok(out)
    }

    fn like(
        &self,
        features: &VideoFeatures,
        prompt: &TextPrompt,
        examples: &Exemplars,
        score_threshold: f32,
    ) -> Result<RawDetections> {
        let phrases = self.sam3.phrases(std::slice::from_ref(prompt))?;
        let examples = std::slice::from_ref(examples);
        let detector = self.sam3.detector();
        let found = detector.ground(&features.image, &batch(&phrases)?, examples)?;
        self.drawn(features, &found, 0, score_threshold)
    }

    fn tracker(&self) -> Result<TrackerSession> {
        let options = SessionOptions {
            precision: self.precision,
            frames: self.frames,
            ..SessionOptions::default()
        };
        TrackerSession::new(Arc::clone(&self.tracker), options)
    }

    fn hand_over(
        &self,
        features: &VideoFeatures,
        _: usize,
        tracker: &mut TrackerSession,
    ) -> Result<()> {
        tracker.see(Arc::clone(&features.tracker));
        Ok(())
    }

    fn notices(&self, prompt: &TextPrompt) -> Result<Vec<Notice>> {
        let prompts = std::slice::from_ref(prompt);
        let phrases = self.sam3.phrases(prompts)?;
        Ok(notices(prompts, &phrases, &[false], 0))
    }
}
