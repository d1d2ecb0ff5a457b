//! The scan: sources in, results out.
//!
//! A decoder thread reads ahead, the provider runs on the caller's thread, and everything behind
//! it (ids, books, journal) on a third, joined by bounded channels. Identities come from workers of
//! their own.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use shelfscan_inference_core::{InferenceProvider, SourceId, VideoFrame};
use shelfscan_video::{FrameReader, ReadOptions, Source, SourceInfo, VideoError};

use crate::{
    Annotate, CancelHandle, Existing, FrameCounts, PipelineError, Progress, Result, RunFile,
    RunStatus, RunsOn, ScanObserver, ScanPlan, ScanReport, Silent, SourcePlan, SourceReport,
    Timings,
    annotate::{self, LiveAnnotator},
    count_facings,
    detect::{DetectStage, Detected},
    identity::Identify,
    journal::{EarlierFrames, Journal, Opened, Work},
    outcome::{Outcome, Stages, explain, panicked},
    output::write_results,
    queue::{FrameQueue, WhenFull},
    report::{RUN_SCHEMA, StageTime},
    track::TrackStage,
};

/// Frames the decoder may be ahead of the provider, and the provider ahead of the books. A 4K frame
/// is 25 MB, so few are enough and many would hurt.
const QUEUE_FRAMES: usize = 4;

/// Scans the sources of a plan with one provider.
///
/// ```no_run
/// use shelfscan_pipeline::{ReplayFiles, ReplayProvider, ScanOptions, ScanPlan, Scanner};
/// use shelfscan_video::Source;
///
/// let sources = vec![Source::parse("aisle 7.mp4")?];
/// let plan = ScanPlan::new(ScanOptions::default(), sources, Some("out".as_ref()), None)?;
/// let provider = ReplayProvider::new(ReplayFiles::Single("detections.jsonl".into()), false);
/// let report = Scanner::new(plan, Box::new(provider)).run()?;
/// println!("{} facings", report.sources[0].run.facings);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scanner {
    plan: ScanPlan,
    provider: Box<dyn InferenceProvider>,
    identify: Option<Arc<dyn Identify>>,
    observer: Arc<dyn ScanObserver>,
    existing: Existing,
    cancel: CancelHandle,
    runs_on: Option<RunsOn>,
    opener: Opener,
}

/// Opens a source for reading.
type Opener = Arc<dyn Fn(&Source, &ReadOptions) -> OpenResult + Send + Sync>;

type OpenResult = std::result::Result<Box<dyn FrameReader>, VideoError>;

impl Scanner {
    /// A scanner that asks for no identities and tells no one.
    pub fn new(plan: ScanPlan, provider: Box<dyn InferenceProvider>) -> Self {
        Self {
            plan,
            provider,
            identify: None,
            observer: Arc::new(Silent),
            existing: Existing::Refuse,
            cancel: CancelHandle::new(),
            runs_on: None,
            opener: Arc::new(shelfscan_video::open),
        }
    }

    /// Asks `identify` what each track is; usually a loaded and warm
    /// [`Recognizer`](shelfscan_gallery::Recognizer).
    #[must_use]
    pub fn with_identity(mut self, identify: Arc<dyn Identify>) -> Self {
        self.identify = Some(identify);
        self
    }

    /// Tells `observer` how the scan goes.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn ScanObserver>) -> Self {
        self.observer = observer;
        self
    }

    /// What to do with results that are there already.
    #[must_use]
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Writes into every `run.json` what the models were put on and why.
    #[must_use]
    pub fn with_device(mut self, runs_on: RunsOn) -> Self {
        self.runs_on = Some(runs_on);
        self
    }

    /// Stops the scan when `cancel` is used.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelHandle) -> Self {
        self.cancel = cancel;
        self
    }

    /// Opens sources with `opener` instead of [`shelfscan_video::open`], for frames that come from
    /// elsewhere. A reader whose info says it is live loses its oldest frame when the provider is
    /// busy, like a camera.
    #[must_use]
    pub fn with_opener(
        mut self,
        opener: impl Fn(&Source, &ReadOptions) -> OpenResult + Send + Sync + 'static,
    ) -> Self {
        self.opener = Arc::new(opener);
        self
    }

    /// What stops this scan.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Warms the provider up and scans every source.
    ///
    /// A source that fails is reported and the next one goes on, unless every later one would fail
    /// the same way.
    ///
    /// # Errors
    /// The provider cannot be warmed up, or the plan cannot be recorded. Failures of single sources
    /// are in the report instead.
    pub fn run(&mut self) -> Result<ScanReport> {
        self.provider.warmup()?;
        let mut report = ScanReport::default();
        let sources = self.plan.sources.clone();
        for source in &sources {
            if self.cancel.is_cancelled() {
                break;
            }
            let done = self.source(source)?;
            self.observer.source_finished(&done);
            let fatal = done.fatal;
            report.sources.push(done);
            if fatal {
                break;
            }
        }
        report.cancelled = self.cancel.is_cancelled();
        Ok(report)
    }

    /// Gives the provider back, still warm.
    pub fn into_provider(self) -> Box<dyn InferenceProvider> {
        self.provider
    }

    fn source(&mut self, plan: &SourcePlan) -> Result<SourceReport> {
        let start = Instant::now();
        let head = self.head(plan)?;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.open(plan, &head)))
            .unwrap_or_else(|panic| Err(panicked("scan", panic.as_ref())));
        self.cancel.set_hook(None);
        let mut outcome = match outcome {
            Ok(Scanned::Finished(run)) => {
                return Ok(SourceReport {
                    folder: plan.folder.clone(),
                    run: *run,
                    facings: Vec::new(),
                    tracks: Vec::new(),
                    fatal: false,
                });
            }
            Ok(Scanned::Now(outcome)) => *outcome,
            Err(error) => Outcome::failed(error),
        };
        let mut run = head;
        run.info = outcome.info.take();
        run.frames = std::mem::take(&mut outcome.frames);
        run.tracks = outcome.tracks.len() as u64;
        run.facings = outcome.facings.len() as u64;
        run.counts = count_facings(&outcome.facings);
        run.notices = std::mem::take(&mut outcome.notices);
        run.timings = std::mem::take(&mut outcome.timings);
        let mut fatal = false;
        (run.status, run.reason) = match (&outcome.error, outcome.cancelled, &outcome.partial) {
            (Some(error), _, _) => {
                fatal = error.is_fatal_for_run();
                (RunStatus::Failed, Some(explain(error)))
            }
            (None, true, _) => (
                RunStatus::Interrupted,
                Some("stopped from outside; go on with --resume".into()),
            ),
            (None, false, Some(reason)) => (RunStatus::Partial, Some(reason.clone())),
            (None, false, None) => (RunStatus::Complete, None),
        };
        if let (Some(reason), Some((frame, secs))) = (&mut run.reason, outcome.last_frame)
            && run.status != RunStatus::Complete
        {
            *reason = format!("{reason} (last good frame {frame} at {secs:.3} s)");
        }
        if let Some(journal) = &outcome.journal {
            let written = write_results(
                journal.dir(),
                &outcome.tracks,
                &outcome.facings,
                &run.counts,
            )
            .and_then(|()| self.annotate(plan, &run, &outcome, journal));
            match written {
                Ok(Annotated::Done(time)) => {
                    run.timings.stages.insert("annotate".into(), time);
                }
                Ok(Annotated::NotWanted) => {}
                Ok(Annotated::Stopped) => {
                    run.status = RunStatus::Interrupted;
                    run.reason = Some("stopped while annotating; go on with --resume".into());
                }
                Err(error) if run.status == RunStatus::Failed => {
                    tracing::warn!("{}", explain(&error));
                }
                Err(error) => {
                    run.status = RunStatus::Failed;
                    run.reason = Some(explain(&error));
                }
            }
            run.timings.wall_secs = start.elapsed().as_secs_f64();
            if let Err(error) = journal.write_run(&run) {
                run.status = RunStatus::Failed;
                run.reason = Some(explain(&error));
            }
        }
        run.timings.wall_secs = start.elapsed().as_secs_f64();
        Ok(SourceReport {
            folder: plan.folder.clone(),
            run,
            facings: outcome.facings,
            tracks: outcome.tracks,
            fatal,
        })
    }

    /// The run file as it stands before the first frame.
    fn head(&self, plan: &SourcePlan) -> Result<RunFile> {
        Ok(RunFile {
            schema: RUN_SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            status: RunStatus::Running,
            reason: None,
            source: plan.source.id().as_str().to_owned(),
            source_bytes: bytes_of(&plan.source),
            info: None,
            plan: self.plan.recorded()?,
            provider: self.provider.info(),
            runs_on: self.runs_on.clone(),
            gallery: self.identify.as_ref().map(|i| i.fingerprint()),
            embedder: self.identify.as_ref().and_then(|i| i.embedder()),
            frames: FrameCounts::default(),
            tracks: 0,
            facings: 0,
            counts: Vec::new(),
            notices: Vec::new(),
            timings: Timings::default(),
        })
    }

    fn open(&mut self, plan: &SourcePlan, head: &RunFile) -> Result<Scanned> {
        if plan.source.is_live() && self.existing == Existing::Resume {
            return Err(PipelineError::Usage(format!(
                "{} is live and cannot be resumed, its frames are gone; leave out --resume and scan into a \
                 new folder",
                plan.source.id()
            )));
        }
        let options = &self.plan.options;
        // A resumed run takes what was detected from the journal. That needs a provider without a
        // memory of its own, and masks in the journal when crops are cut by them.
        let keep_frames =
            !head.provider.assigns_track_ids && (options.outputs.masks || self.identify.is_none());
        let work = match &self.plan.out {
            None => None,
            Some(out) => {
                let dir = out.join(&plan.folder);
                match Journal::open(&dir, head, self.existing, keep_frames)? {
                    Opened::Finished(run) => return Ok(Scanned::Finished(run)),
                    Opened::Work(work) => Some(*work),
                }
            }
        };
        let (journal, earlier, known) = match work {
            Some(Work {
                journal,
                earlier,
                known,
            }) => (Some(journal), earlier, known),
            None => (None, EarlierFrames::none(), BTreeMap::new()),
        };
        let source_id = plan.source.id();
        let mut track = TrackStage::new(
            &source_id,
            options,
            head.provider.assigns_track_ids,
            self.identify.as_ref(),
            known,
            journal,
            Arc::clone(&self.observer),
        )?;
        // A provider that failed in an earlier source starts anew; a warm one has nothing to do.
        let ready = self.provider.warmup().map_err(PipelineError::from);
        let opened = ready.and_then(|()| Ok((self.opener)(&plan.source, &self.plan.options.read)?));
        let reader = match opened {
            Ok(reader) => reader,
            Err(error) => {
                let mut outcome = Outcome::failed(error);
                outcome.journal = track.into_journal();
                return Ok(Scanned::Now(Box::new(outcome)));
            }
        };
        let info = reader.info().clone();
        let live = info.live;
        self.observer.source_started(&source_id, &info);
        track.expect(expected_frames(&info, &options.read));
        if live
            && options.outputs.annotate != Annotate::Off
            && let Some(journal) = track.journal()
        {
            let annotator = LiveAnnotator::create(journal.dir(), options, &info)?;
            track.annotate_live(annotator);
        }
        self.cancel.set_hook(reader.cancel_handle());
        let stages = self.stages(&source_id, reader, track, earlier, live);
        Ok(Scanned::Now(Box::new(stages.into_outcome(info))))
    }

    /// Runs the stages of one source to their end.
    fn stages(
        &mut self,
        source: &SourceId,
        mut reader: Box<dyn FrameReader>,
        mut track: TrackStage,
        earlier: EarlierFrames,
        live: bool,
    ) -> Stages {
        let queue = FrameQueue::new(
            QUEUE_FRAMES,
            if live {
                WhenFull::DropOldest
            } else {
                WhenFull::Wait
            },
        );
        let cancel = &self.cancel;
        let read = &self.plan.options.read;
        let mut detect =
            DetectStage::new(self.provider.as_mut(), &self.plan.options.prompts, earlier);
        let (to_track, from_detect) = crossbeam_channel::bounded::<Detected>(QUEUE_FRAMES);
        std::thread::scope(|scope| {
            let queue = &queue;
            let decoder = scope.spawn(move || {
                let (time, error) = decode(reader.as_mut(), queue, cancel);
                queue.finish();
                (reader.summary(), time, error)
            });
            let tracker = scope.spawn(move || {
                let mut error = None;
                for detected in from_detect {
                    if let Err(e) = track.push(detected) {
                        error = Some(e);
                        break;
                    }
                }
                (track, error)
            });
            let detect_panic = catch_unwind(AssertUnwindSafe(|| {
                drive(&mut detect, queue, &to_track, cancel)
            }));
            let (finished, detect_error) = match detect_panic {
                Ok(Ok(finished)) => (finished, None),
                Ok(Err(error)) => (false, Some(error)),
                Err(panic) => (false, Some(panicked("detection", panic.as_ref()))),
            };
            queue.close();
            if !finished {
                // The decoder may be stuck in a read that no one waits for any more.
                cancel.run_hook();
            }
            drop(to_track);
            let decoded = decoder.join();
            let tracked = tracker.join();
            let mut stages = Stages {
                source: source.clone(),
                track: None,
                read: None,
                error: None,
                cancelled: cancel.is_cancelled(),
                stops_early: read.max_frames.is_some() || read.end_secs.is_some(),
                dropped: queue.dropped(),
                detect_time: detect.time(),
                decode_time: StageTime::default(),
                failures: {
                    let (n, text) = detect.failures();
                    (n, text.map(ToOwned::to_owned))
                },
            };
            let mut errors = Vec::new();
            match tracked {
                Ok((track, error)) => {
                    stages.track = Some(track);
                    errors.extend(error);
                }
                Err(panic) => errors.push(panicked("tracking", panic.as_ref())),
            }
            errors.extend(detect_error);
            match decoded {
                Ok((summary, time, error)) => {
                    stages.read = Some(summary);
                    stages.decode_time = time;
                    errors.extend(error);
                }
                Err(panic) => errors.push(panicked("decoding", panic.as_ref())),
            }
            stages.error = errors.into_iter().next();
            stages
        })
    }

    fn annotate(
        &self,
        plan: &SourcePlan,
        run: &RunFile,
        outcome: &Outcome,
        journal: &Journal,
    ) -> Result<Annotated> {
        let wanted = self.plan.options.outputs.annotate != Annotate::Off;
        let useful = matches!(run.status, RunStatus::Complete | RunStatus::Partial);
        let live = run.info.as_ref().is_some_and(|info| info.live);
        if !wanted || !useful || live {
            return Ok(Annotated::NotWanted);
        }
        let start = Instant::now();
        let source_id = plan.source.id();
        let options = &self.plan.options;
        let frames = annotate::annotate_run(
            (self.opener)(&plan.source, &options.read)?,
            options,
            journal.dir(),
            &outcome.tracks,
            &outcome.facings,
            |frames| {
                self.observer.progress(&Progress {
                    source: &source_id,
                    phase: crate::Phase::Annotating,
                    frames,
                    expected: Some(run.frames.processed),
                });
                !self.cancel.is_cancelled()
            },
        )?;
        Ok(frames.map_or(Annotated::Stopped, |items| {
            Annotated::Done(StageTime {
                busy_secs: start.elapsed().as_secs_f64(),
                items,
            })
        }))
    }
}

/// How annotating a finished run went.
enum Annotated {
    NotWanted,
    Done(StageTime),
    Stopped,
}

enum Scanned {
    /// An earlier run had finished it.
    Finished(Box<RunFile>),
    Now(Box<Outcome>),
}

fn decode(
    reader: &mut dyn FrameReader,
    queue: &FrameQueue<VideoFrame>,
    cancel: &CancelHandle,
) -> (StageTime, Option<PipelineError>) {
    let (mut busy, mut items) = (Duration::ZERO, 0);
    let error = loop {
        if cancel.is_cancelled() {
            break None;
        }
        let start = Instant::now();
        let next = reader.next_frame();
        busy += start.elapsed();
        match next {
            Ok(Some(frame)) => {
                items += 1;
                if !queue.send(frame) {
                    break None;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.into()),
        }
    };
    let time = StageTime {
        busy_secs: busy.as_secs_f64(),
        items,
    };
    (time, error)
}

/// Feeds the provider until the queue ends; `false` when it stopped before.
fn drive(
    detect: &mut DetectStage<'_>,
    queue: &FrameQueue<VideoFrame>,
    to_track: &crossbeam_channel::Sender<Detected>,
    cancel: &CancelHandle,
) -> Result<bool> {
    // Sending fails when the tracking stage ended, which says why itself.
    while let Some(frame) = queue.recv() {
        if cancel.is_cancelled() {
            return Ok(false);
        }
        for detected in detect.push(frame)? {
            if to_track.send(detected).is_err() {
                return Ok(false);
            }
        }
    }
    if cancel.is_cancelled() {
        return Ok(false);
    }
    for detected in detect.finish()? {
        if to_track.send(detected).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes of the files of a source; `None` where there are none or one cannot be asked.
fn bytes_of(source: &Source) -> Option<u64> {
    let length = |path: &Path| std::fs::metadata(path).map(|meta| meta.len()).ok();
    match source {
        Source::File(path) => length(path),
        Source::Pictures(set) => set.files().ok()?.iter().map(|path| length(path)).sum(),
        _ => None,
    }
}

/// How many frames will be processed, by the container's word and the options.
fn expected_frames(info: &SourceInfo, read: &ReadOptions) -> Option<u64> {
    if info.live {
        return read.max_frames;
    }
    let duration = info.declared_duration_secs;
    let share = match (read.start_secs, read.end_secs, duration) {
        (None, None, _) => 1.0,
        (start, end, Some(duration)) if duration > 0.0 => {
            let from = start.map_or(0.0, |s| s - info.start_secs).max(0.0);
            let to = end.map_or(duration, |s| s - info.start_secs).min(duration);
            ((to - from) / duration).clamp(0.0, 1.0)
        }
        _ => return read.max_frames,
    };
    let all = if read.keyframes_only {
        None
    } else if let (Some(fps), Some(duration)) = (read.fps, duration) {
        Some(duration * fps)
    } else {
        info.declared_frames
            .map(|n| n as f64 / f64::from(read.every.max(1)))
    };
    let expected = all.map(|n| (n * share).ceil() as u64);
    match (expected, read.max_frames) {
        (Some(n), Some(max)) => Some(n.min(max)),
        (n, max) => n.or(max),
    }
}
