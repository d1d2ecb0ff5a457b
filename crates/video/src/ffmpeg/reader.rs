//! Frames through a decoder process.

use std::{
    collections::VecDeque,
    io::Read,
    path::PathBuf,
    process::{ChildStdout, Stdio},
    sync::{Arc, Mutex, Weak, mpsc::Receiver},
    thread::JoinHandle,
    time::Duration,
};

use shelfscan_inference_core::{FrameTime, Notice, SourceId, VideoFrame};

use super::{
    FfmpegInfo,
    command::{Input, Plan, counts_frames, decode_command},
    failure,
    packets::{PacketTimes, declared_frames, packet_times},
    process::{Guard, Killer, Watchdog, describe, drain, lock},
    scrub::Scrubber,
    tracker::{Event, Known, Tracker},
};
use crate::{
    CancelHandle, FrameReader, ReadOptions, ReadStatus, ReadSummary, Result, SourceInfo,
    picture::{check_size, rgb_image},
};

/// How far behind the wanted time a jump is aimed, in seconds, so that the pictures that lean on
/// frames before the key frame come before it.
const SEEK_BACK_SECS: f64 = 1.0;

/// How far the packets are listed past the wanted time, in seconds, as they are stored in another
/// order than shown.
const REORDER_SECS: f64 = 5.0;

/// Frames that may be missing at the end before a file with errors counts as cut.
const TAIL_SLACK: u64 = 2;

/// How often a jump may land elsewhere than foreseen before it is given up.
const MAX_RESTARTS: u32 = 3;

/// One run of the decoder.
struct Run {
    guard: Arc<Guard>,
    watchdog: Watchdog,
    stdout: Option<ChildStdout>,
    events: Receiver<Event>,
    known: Arc<Mutex<Known>>,
    drain: Option<JoinHandle<()>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.guard.kill(Killer::Reader);
        self.stdout = None;
        if let Some(drain) = self.drain.take() {
            drain.join().ok();
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// All that was wanted came, or the source ended.
    Natural,
    /// It broke off, for this reason.
    Broken(String),
}

/// Where a source lies, as far as the decoder is concerned.
pub(crate) struct Target {
    pub(crate) input: Input,
    /// The file behind it, when there is one, for what is read without decoding.
    pub(crate) file: Option<PathBuf>,
    /// True when the container has an index, so that a jump is worth trying.
    pub(crate) has_index: bool,
    pub(crate) live: bool,
    /// Name for messages.
    pub(crate) name: String,
    pub(crate) source: SourceId,
}

/// Reads a source through ffmpeg.
pub(crate) struct FfmpegReader {
    ffmpeg: FfmpegInfo,
    target: Target,
    options: ReadOptions,
    info: SourceInfo,
    plan: Plan,
    packets: Option<Arc<PacketTimes>>,
    run: Option<Run>,
    /// Ends whichever run is current.
    cancel: Arc<Mutex<Cancel>>,
    waiting: VecDeque<Event>,
    delivered: u64,
    last: Option<(u64, FrameTime)>,
    end: Option<End>,
    restarts: u32,
    /// What the last run knew when it ended.
    ended: Option<Known>,
}

#[derive(Default)]
struct Cancel {
    guard: Weak<Guard>,
    asked: bool,
}

impl FfmpegReader {
    pub(crate) fn open(ffmpeg: FfmpegInfo, target: Target, options: &ReadOptions) -> Result<Self> {
        let stall = Duration::from_secs_f64(options.limits.stall_secs);
        let probe = ffmpeg.ffprobe.as_deref().zip(target.file.as_deref());
        let declared = probe.and_then(|(ffprobe, file)| declared_frames(ffprobe, file, stall));
        let mut plan = Plan {
            seek_secs: None,
            skip_nokey: false,
            base: 0,
            count_in_filter: true,
        };
        let mut packets = None;
        if let Some((ffprobe, file)) = probe.filter(|_| target.has_index) {
            if options.keyframes_only {
                packets = packet_times(ffprobe, file, None, stall);
                plan.skip_nokey = packets.is_some();
            } else if let Some(start) = options.start_secs {
                packets = packet_times(ffprobe, file, Some(start + REORDER_SECS), stall);
                if let Some(times) = &packets {
                    let aim = start - SEEK_BACK_SECS;
                    plan.seek_secs = times.key_before(aim).map(|_| aim);
                    plan.base = times.key_before(aim).map_or(0, |key| times.index_at(key));
                }
            }
        }
        let mut reader = Self {
            ffmpeg,
            target,
            options: options.clone(),
            info: SourceInfo::default(),
            plan,
            packets: packets.map(Arc::new),
            run: None,
            cancel: Arc::default(),
            waiting: VecDeque::new(),
            delivered: 0,
            last: None,
            end: None,
            restarts: 0,
            ended: None,
        };
        reader.start()?;
        reader.wait_for_first(declared)?;
        Ok(reader)
    }

    /// Starts the decoder after the present plan.
    fn start(&mut self) -> Result<()> {
        self.run = None;
        let program = &self.ffmpeg.path;
        let io = |error| crate::VideoError::io("starting the decoder", program, error);
        let mut command = decode_command(program, &self.target.input, &self.plan, &self.options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let guard = Guard::spawn(&mut command).map_err(io)?;
        let (stdout, stderr) = guard.pipes(|child| (child.stdout.take(), child.stderr.take()));
        let stall = Duration::from_secs_f64(self.options.limits.stall_secs);
        let watchdog = Watchdog::new(&guard, stall).map_err(io)?;
        let filter_counts = self.plan.count_in_filter && counts_frames(&self.options);
        let (mut tracker, known, events) = Tracker::new(
            &self.plan,
            &self.options,
            filter_counts,
            self.packets.clone(),
            watchdog.state(),
        );
        let drain = match stderr {
            Some(stderr) => {
                let scrubber = Scrubber::of(&self.target.input.address.to_string_lossy());
                Some(drain(stderr, scrubber, move |line| tracker.push(line)).map_err(io)?)
            }
            None => None,
        };
        if let Some(stdout) = &stdout {
            widen(stdout);
        }
        let mut cancel = lock(&self.cancel);
        cancel.guard = Arc::downgrade(&guard);
        if cancel.asked {
            guard.kill(Killer::Caller);
        }
        drop(cancel);
        self.run = Some(Run {
            guard,
            watchdog,
            stdout,
            events,
            known,
            drain,
        });
        Ok(())
    }

    /// Waits until the size is known or the decoder ended without a frame.
    fn wait_for_first(&mut self, declared_frames: Option<u64>) -> Result<()> {
        let mut first = None;
        while first.is_none() {
            match self.event()? {
                Some(Event::First) => first = Some(()),
                Some(event) => self.waiting.push_back(event),
                None => break,
            }
        }
        let info = match (&self.run, &self.ended) {
            (Some(run), _) => lock(&run.known).banner.upright(),
            (None, Some(known)) => known.banner.upright(),
            (None, None) => SourceInfo::default(),
        };
        self.info = SourceInfo {
            declared_frames,
            live: self.target.live,
            reader: "ffmpeg".into(),
            reader_version: Some(self.ffmpeg.version.clone()),
            ..info
        };
        Ok(())
    }

    /// The next event of the current run, carrying out those that change the plan. `None` when the
    /// read is over.
    fn event(&mut self) -> Result<Option<Event>> {
        loop {
            if self.end.is_some() {
                return Ok(None);
            }
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let Some(run) = &self.run else {
                return Ok(None);
            };
            let event = run.watchdog.during(|| run.events.recv().ok());
            match event {
                Some(Event::CountHere) => self.plan.count_in_filter = false,
                Some(Event::Base(base)) if self.restarts < MAX_RESTARTS => self.plan.base = base,
                Some(Event::NoJump | Event::Base(_)) => {
                    self.packets = None;
                    self.plan.seek_secs = None;
                    self.plan.base = 0;
                }
                Some(event) => return Ok(Some(event)),
                None => {
                    self.finish(None)?;
                    return Ok(None);
                }
            }
            self.restarts += 1;
            self.start()?;
        }
    }

    /// Ends the run, joins its threads and keeps what it knew.
    ///
    /// # Errors
    /// Why there is not one frame, when there is none.
    fn finish(&mut self, broken: Option<String>) -> Result<()> {
        let Some(mut run) = self.run.take() else {
            return Ok(());
        };
        run.stdout = None;
        let status = run.guard.wait();
        if let Some(drain) = run.drain.take() {
            drain.join().ok();
        }
        let killer = run.guard.killer();
        let known = std::mem::take(&mut *lock(&run.known));
        if known.decoded == 0 && self.last.is_none() {
            self.end = Some(End::Natural);
            let error = failure::explain(&known, status, killer, &self.target, &self.options);
            self.ended = Some(known);
            return Err(error);
        }
        let place = || {
            known.last.map_or_else(String::new, |(index, secs)| {
                format!(" after frame {index} at {secs:.3} s")
            })
        };
        let reason = match killer {
            Some(Killer::Caller) => Some(format!("reading was cancelled{}", place())),
            Some(Killer::Watchdog) => Some(format!(
                "the decoder gave nothing for {:.1} s{} and was ended",
                self.options.limits.stall_secs,
                place()
            )),
            Some(Killer::Reader) => broken,
            None if status.is_some_and(|s| s.success()) => broken,
            None => Some(format!(
                "the decoder ended with {}{}{}",
                describe(status),
                place(),
                known
                    .complaints
                    .last_error
                    .as_ref()
                    .map_or_else(String::new, |e| format!(": {e}"))
            )),
        };
        self.end = Some(reason.map_or(End::Natural, End::Broken));
        self.ended = Some(known);
        Ok(())
    }

    /// Ends the run because nothing more is wanted of it.
    fn stop(&mut self) -> Result<()> {
        if let Some(run) = &self.run {
            run.guard.kill(Killer::Reader);
        }
        self.finish(None)
    }

    /// Reads one picture of the pipe into memory that becomes the frame.
    fn pixels(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let run = self.run.as_mut()?;
        let stdout = run.stdout.as_mut()?;
        let mut pixels = Vec::with_capacity(bytes);
        let read = run
            .watchdog
            .during(|| stdout.take(bytes as u64).read_to_end(&mut pixels));
        (read.is_ok() && pixels.len() == bytes).then_some(pixels)
    }

    fn is_full(&self) -> bool {
        self.options
            .max_frames
            .is_some_and(|max| self.delivered >= max)
    }
}

impl FrameReader for FfmpegReader {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<VideoFrame>> {
        if self.is_full() {
            self.stop()?;
            return Ok(None);
        }
        loop {
            let (width, height, place) = match self.event()? {
                None => return Ok(None),
                Some(Event::Picture {
                    width,
                    height,
                    place,
                }) => (width, height, place),
                Some(Event::Stop) => {
                    self.stop()?;
                    return Ok(None);
                }
                Some(_) => continue,
            };
            check_size(width, height, &self.options.limits, || {
                self.target.name.clone()
            })?;
            let bytes = width as usize * height as usize * 3;
            let Some(pixels) = self.pixels(bytes) else {
                self.finish(Some("the decoder broke off inside a frame".into()))?;
                return Ok(None);
            };
            // A run that was started again delivers anew what is out already.
            let Some((index, time)) =
                place.filter(|(index, _)| self.last.is_none_or(|(last, _)| *index > last))
            else {
                continue;
            };
            self.last = Some((index, time));
            self.delivered += 1;
            return Ok(Some(VideoFrame {
                image: rgb_image(width, height, pixels, self.target.name.as_ref())?,
                index,
                time,
                source: self.target.source.clone(),
            }));
        }
    }

    fn summary(&self) -> ReadSummary {
        let guard = self.run.as_ref().map(|run| lock(&run.known));
        let known = match (&guard, &self.ended) {
            (Some(known), _) => &**known,
            (None, Some(known)) => known,
            (None, None) => &Known::default(),
        };
        let mut notices = known.complaints.notices();
        let declared = self.info.declared_frames;
        let whole = self.end == Some(End::Natural)
            && !self.is_full()
            && !self.options.keyframes_only
            && self.options.start_secs.is_none()
            && self.options.end_secs.is_none();
        let short = declared.filter(|declared| {
            whole && known.complaints.errors > 0 && known.decoded + TAIL_SLACK < *declared
        });
        if let Some(declared) = declared.filter(|d| whole && *d != known.decoded) {
            notices.push(Notice::new(
                "frame_count_differs",
                format!(
                    "the container declares {declared} frames, {} came out",
                    known.decoded
                ),
            ));
        }
        if known.estimated > 0 {
            notices.push(Notice::new(
                "times_estimated",
                format!(
                    "{} frame(s) had no time; it was interpolated",
                    known.estimated
                ),
            ));
        }
        if known.jumps_back > 0 {
            notices.push(Notice::new(
                "clock_jumped_back",
                format!(
                    "the source's clock jumped back {} time(s)",
                    known.jumps_back
                ),
            ));
        }
        let reason = match &self.end {
            Some(End::Broken(reason)) => Some(reason.clone()),
            _ => known.complaints.damage_text().or_else(|| {
                short.map(|declared| {
                    format!(
                        "only {} of {declared} declared frames came out",
                        known.decoded
                    )
                })
            }),
        };
        ReadSummary {
            decoded: known.decoded,
            delivered: self.delivered,
            dropped: short.map_or(0, |declared| declared - known.decoded),
            status: reason.map_or(ReadStatus::Complete, |reason| ReadStatus::Partial {
                reason,
            }),
            notices,
        }
    }

    fn cancel_handle(&self) -> Option<CancelHandle> {
        let cancel = Arc::clone(&self.cancel);
        Some(Box::new(move || {
            let mut cancel = lock(&cancel);
            cancel.asked = true;
            if let Some(guard) = cancel.guard.upgrade() {
                guard.kill(Killer::Caller);
            }
        }))
    }
}

/// Lets a whole picture row of any size fit the pipe, so that both sides wait less for each other.
fn widen(stdout: &ChildStdout) {
    #[cfg(target_os = "linux")]
    rustix::pipe::fcntl_setpipe_size(stdout, 1 << 20).ok();
    #[cfg(not(target_os = "linux"))]
    let _ = stdout;
}
