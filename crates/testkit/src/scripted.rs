//! A provider that answers from a script, and counts what it was asked.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shelfscan_inference_core::{
    Detection, FrameDetections, InferenceError, InferenceProvider, Lifecycle, ModelFingerprint,
    ProviderInfo, Result, TextPrompt, TrackId, VideoFrame,
};

/// How often each contract call was made; shared with the provider that counts.
#[derive(Debug, Default)]
pub struct Calls {
    /// `warmup`
    pub warmup: AtomicUsize,
    /// `detect_text_prompts`
    pub detect: AtomicUsize,
    /// `start_tracking`
    pub start: AtomicUsize,
    /// `track_next`
    pub track: AtomicUsize,
    /// `shutdown`
    pub shutdown: AtomicUsize,
}

impl Calls {
    /// Frames the provider was given, by any method.
    pub fn frames(&self) -> usize {
        [&self.detect, &self.start, &self.track]
            .iter()
            .map(|c| c.load(Ordering::SeqCst))
            .sum()
    }
}

type Script = Box<dyn FnMut(&VideoFrame) -> Result<Vec<Detection>> + Send>;

/// A provider whose answers come from a closure. It keeps the whole contract, so it can stand for
/// any back end in a test.
pub struct ScriptedProvider {
    script: Script,
    life: Lifecycle,
    calls: Arc<Calls>,
    own_ids: bool,
    delay_frames: usize,
    held: Vec<FrameDetections>,
    prompts: Vec<TextPrompt>,
    last_index: Option<u64>,
}

impl ScriptedProvider {
    /// Answers each frame with what `script` returns, filtered by the prompts asked for.
    pub fn new(script: impl FnMut(&VideoFrame) -> Result<Vec<Detection>> + Send + 'static) -> Self {
        Self {
            script: Box::new(script),
            life: Lifecycle::default(),
            calls: Arc::default(),
            own_ids: false,
            delay_frames: 0,
            held: Vec::new(),
            prompts: Vec::new(),
            last_index: None,
        }
    }

    /// Answers frame `i` with `frames[i]`, and nothing past the end.
    pub fn from_frames(frames: Vec<Vec<Detection>>) -> Self {
        Self::new(move |frame| {
            Ok(frames
                .get(frame.index as usize)
                .cloned()
                .unwrap_or_default())
        })
    }

    /// Keeps the ids in the script while tracking, as a model with its own tracker does.
    #[must_use]
    pub fn with_own_ids(mut self) -> Self {
        self.own_ids = true;
        self
    }

    /// Holds every tracking result back for `frames` frames.
    #[must_use]
    pub fn with_delay(mut self, frames: usize) -> Self {
        self.delay_frames = frames;
        self
    }

    /// The counters, which stay readable after the provider was given away.
    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    fn answer(&mut self, frame: &VideoFrame, tracking: bool) -> Result<FrameDetections> {
        let mut detections = (self.script)(frame)?;
        if !self.prompts.is_empty() {
            detections.retain(|d| self.prompts.iter().any(|p| p.label == d.label));
        }
        if !(tracking && self.own_ids) {
            for detection in &mut detections {
                detection.track_id = None;
            }
        }
        detections.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(FrameDetections {
            frame_index: frame.index,
            detections,
            notices: Vec::new(),
        })
    }

    fn push(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        let answer = self.answer(frame, true)?;
        self.held.push(answer);
        let ready = self.held.len().saturating_sub(self.delay_frames);
        Ok(self.held.drain(..ready).collect())
    }
}

impl InferenceProvider for ScriptedProvider {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            name: "scripted".into(),
            device: "cpu".into(),
            assigns_track_ids: self.own_ids,
            tracking_delay_frames: self.delay_frames as u32,
            models: vec![ModelFingerprint {
                model: "script".into(),
                weights_hash: "0".into(),
                preprocessing: "none".into(),
            }],
        }
    }

    fn warmup(&mut self) -> Result<()> {
        self.calls.warmup.fetch_add(1, Ordering::SeqCst);
        self.life.begin_warmup()?;
        self.life.warmed_up();
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections> {
        self.life.check_detect()?;
        TextPrompt::need_any(prompts)?;
        self.calls.detect.fetch_add(1, Ordering::SeqCst);
        let open = std::mem::replace(&mut self.prompts, prompts.to_vec());
        let answer = self.answer(frame, false);
        self.prompts = open;
        answer
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.life.check_start()?;
        TextPrompt::need_any(prompts)?;
        self.calls.start.fetch_add(1, Ordering::SeqCst);
        self.held.clear();
        self.prompts = prompts.to_vec();
        self.last_index = Some(frame.index);
        self.life.started();
        self.push(frame)
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.life.check_track("track_next")?;
        self.calls.track.fetch_add(1, Ordering::SeqCst);
        if self.last_index.is_some_and(|last| frame.index <= last) {
            return Err(InferenceError::InvalidInput(format!(
                "frame {} does not come after the last one",
                frame.index
            )));
        }
        self.last_index = Some(frame.index);
        self.push(frame)
    }

    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        self.life.check_track("finish_tracking")?;
        self.life.stopped();
        Ok(std::mem::take(&mut self.held))
    }

    fn shutdown(&mut self) -> Result<()> {
        self.calls.shutdown.fetch_add(1, Ordering::SeqCst);
        self.life.shut_down();
        self.held.clear();
        Ok(())
    }
}

/// A detection with the label as its prompt, for scripts.
pub fn detection(label: &str, score: f32, bbox: [f32; 4], track: Option<u64>) -> Detection {
    Detection {
        label: label.into(),
        prompt: label.into(),
        score,
        bbox: bbox.into(),
        mask: None,
        track_id: track.map(TrackId),
    }
}
