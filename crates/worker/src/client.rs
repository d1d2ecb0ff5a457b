//! The contracts, kept by asking a worker.

use std::sync::OnceLock;

use shelfscan_inference_core::{
    Embedder, EmbedderFingerprint, Embeddings, FrameDetections, InferenceProvider, Lifecycle,
    ProviderInfo, Result, RgbImage, TextPrompt, VideoFrame,
    protocol::{Request, Response},
};

use crate::worker::{Worker, unasked};

type Checked<T> = std::result::Result<T, String>;

/// A detector in a worker.
///
/// After [`InferenceError::Worker`](shelfscan_inference_core::InferenceError::Worker) every call
/// fails the same way until [`warmup`](InferenceProvider::warmup), which starts a new process and
/// loads the model again; sessions that were open are gone. Shutting it down ends the process, also
/// for the worker's embedder.
#[derive(Debug)]
pub struct WorkerProvider {
    worker: Worker,
    life: Lifecycle,
    info: ProviderInfo,
    /// The process that was warmed up.
    generation: u64,
    /// Index of the next frame a session may answer with, and of the last it was given.
    session: (u64, u64),
}

impl WorkerProvider {
    pub(crate) fn new(worker: Worker, cold: ProviderInfo) -> Self {
        Self {
            worker,
            life: Lifecycle::default(),
            info: cold,
            generation: 0,
            session: (0, 0),
        }
    }

    fn track(&mut self, request: Request) -> Result<Vec<FrameDetections>> {
        let (mut next, last) = self.session;
        let found = self
            .worker
            .ask(request, Some(self.generation), |response| {
                let found = found(response)?;
                for frame in &found {
                    if frame.frame_index < next || frame.frame_index > last {
                        return Err(out_of_turn(frame.frame_index));
                    }
                    next = frame.frame_index + 1;
                    check(frame)?;
                }
                Ok(found)
            })?;
        self.session.0 = next;
        Ok(found)
    }
}

impl InferenceProvider for WorkerProvider {
    fn info(&self) -> ProviderInfo {
        self.info.clone()
    }

    fn warmup(&mut self) -> Result<()> {
        if !self.life.begin_warmup()? && self.worker.runs(self.generation) {
            return Ok(());
        }
        self.life.stopped();
        let generation = self.worker.start("warmup", true)?;
        self.info = self.worker.ask(
            Request::Warmup,
            Some(generation),
            |response| match response {
                Response::Info(info) => Ok(info),
                other => Err(unasked(&other)),
            },
        )?;
        self.generation = generation;
        self.life.warmed_up();
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections> {
        self.life.check_detect()?;
        let request = Request::Detect(frame.clone(), prompts.to_vec());
        self.worker.ask(request, Some(self.generation), |response| {
            let mut found = found(response)?;
            match (found.pop(), found.is_empty()) {
                (Some(one), true) if one.frame_index == frame.index => check(&one).map(|()| one),
                (Some(one), true) => Err(out_of_turn(one.frame_index)),
                _ => Err("it answered nonsense: not one frame for one frame".into()),
            }
        })
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.life.check_start()?;
        self.life.stopped();
        self.session = (frame.index, frame.index);
        let found = self.track(Request::Start(frame.clone(), prompts.to_vec()))?;
        self.life.started();
        Ok(found)
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.life.check_track("track_next")?;
        self.session.1 = self.session.1.max(frame.index);
        self.track(Request::Track(frame.clone()))
    }

    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        self.life.check_track("finish_tracking")?;
        self.life.stopped();
        self.track(Request::Finish)
    }

    fn shutdown(&mut self) -> Result<()> {
        self.life.shut_down();
        self.worker.shut_down()
    }
}

fn found(response: Response) -> Checked<Vec<FrameDetections>> {
    match response {
        Response::Found(found) => Ok(found),
        other => Err(unasked(&other)),
    }
}

fn out_of_turn(index: u64) -> String {
    format!("it answered nonsense: frame {index} out of turn")
}

/// Numbers that the rest of a scan relies on.
fn check(frame: &FrameDetections) -> Checked<()> {
    for detection in &frame.detections {
        let sides: [f32; 4] = detection.bbox.into();
        if !sides.iter().all(|side| side.is_finite()) || !(0.0..=1.0).contains(&detection.score) {
            return Err(format!(
                "it answered nonsense: a box at {sides:?} with score {}",
                detection.score
            ));
        }
    }
    Ok(())
}

/// An embedder in a worker, for any number of threads; their calls are answered one by one, in the
/// order in which they came.
#[derive(Debug)]
pub struct WorkerEmbedder {
    worker: Worker,
    fingerprint: OnceLock<EmbedderFingerprint>,
}

impl WorkerEmbedder {
    pub(crate) fn new(worker: Worker) -> Self {
        Self {
            worker,
            fingerprint: OnceLock::new(),
        }
    }
}

impl Embedder for WorkerEmbedder {
    fn fingerprint(&self) -> Result<EmbedderFingerprint> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        self.worker.start("fingerprint", false)?;
        let print = self
            .worker
            .ask(Request::Fingerprint, None, |response| match response {
                Response::Fingerprint(print) => Ok(print),
                other => Err(unasked(&other)),
            })?;
        Ok(self.fingerprint.get_or_init(|| print).clone())
    }

    fn warmup(&self) -> Result<()> {
        self.worker.start("warmup", true)?;
        self.worker
            .ask(Request::WarmupEmbedder, None, |response| match response {
                Response::Done => Ok(()),
                other => Err(unasked(&other)),
            })
    }

    fn embed(&self, crops: &[RgbImage]) -> Result<Embeddings> {
        self.worker.start("embed", false)?;
        self.worker.ask(
            Request::Embed(crops.to_vec()),
            None,
            |response| match response {
                Response::Embeddings(rows) if rows.len() != crops.len() => Err(format!(
                    "it answered nonsense: {} vectors for {} crops",
                    rows.len(),
                    crops.len()
                )),
                Response::Embeddings(rows) if rows.values().iter().any(|v| !v.is_finite()) => {
                    Err("it answered nonsense: a vector that is not finite".into())
                }
                Response::Embeddings(rows) => Ok(rows),
                other => Err(unasked(&other)),
            },
        )
    }
}
