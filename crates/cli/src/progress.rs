//! How far a scan is: a bar on a terminal, a plain line now and then elsewhere.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use shelfscan_inference_core::{Notice, SourceId};
use shelfscan_pipeline::{FrameRecord, Phase, Progress, RunStatus, ScanObserver, SourceReport};
use shelfscan_video::SourceInfo;

use crate::printer::{Printer, clean};

/// Seconds between plain lines.
pub(crate) const DEFAULT_EVERY_SECS: f64 = 10.0;

const BAR: &str = "{prefix} {msg} {wide_bar} {pos}/{len} {per_sec}, {eta} left";
const NO_END: &str = "{prefix} {msg} {spinner} {pos} frames, {per_sec}";

/// Told about every source that is done.
pub(crate) type Finished = Box<dyn Fn(&SourceReport) + Send + Sync>;

/// Watches a scan for the terminal and for the summary.
pub(crate) struct Watch {
    printer: Arc<Printer>,
    state: Arc<(Mutex<State>, Condvar)>,
    bar: Option<ProgressBar>,
    finished: Finished,
}

#[derive(Default)]
struct State {
    ended: bool,
    source: String,
    number: usize,
    of: usize,
    phase: Option<Phase>,
    frames: u64,
    expected: Option<u64>,
    /// Finds by phrase, over all sources.
    finds: BTreeMap<String, u64>,
    /// Frames that were looked at, over all sources.
    looked_at: u64,
}

/// Prints plain lines until it is dropped.
pub(crate) struct Ticker {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    printer: Arc<Printer>,
}

impl Drop for Ticker {
    fn drop(&mut self) {
        lock(&self.state.0).ended = true;
        self.state.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has nothing to tell the scan.
            drop(thread.join());
        }
        self.printer.set_bar(None);
    }
}

impl Watch {
    /// A watch over `of` sources; `finished` is told about each that is done.
    pub(crate) fn start(
        printer: Arc<Printer>,
        of: usize,
        every: Duration,
        finished: Finished,
    ) -> (Arc<Self>, Ticker) {
        let state = Arc::new((
            Mutex::new(State {
                of,
                ..State::default()
            }),
            Condvar::new(),
        ));
        let bar = printer.can_redraw().then(|| {
            let bar = ProgressBar::no_length();
            bar.set_style(style(NO_END));
            bar.enable_steady_tick(Duration::from_millis(200));
            printer.set_bar(Some(bar.clone()));
            bar
        });
        let plain = bar.is_none() && !printer.is_quiet();
        let thread = plain.then(|| {
            let (state, printer) = (Arc::clone(&state), Arc::clone(&printer));
            std::thread::spawn(move || tick(&state, &printer, every))
        });
        let ticker = Ticker {
            state: Arc::clone(&state),
            thread,
            printer: Arc::clone(&printer),
        };
        let watch = Arc::new(Self {
            printer,
            state,
            bar,
            finished,
        });
        (watch, ticker)
    }

    /// Phrases that found nothing although frames were looked at.
    pub(crate) fn without_finds<'p>(&self, phrases: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
        let state = lock(&self.state.0);
        if state.looked_at == 0 {
            return Vec::new();
        }
        phrases
            .filter(|phrase| !state.finds.contains_key(*phrase))
            .collect()
    }
}

impl ScanObserver for Watch {
    fn source_started(&self, source: &SourceId, info: &SourceInfo) {
        let name = clean(source.as_str());
        tracing::info!(
            source = %name,
            "{} {} {}x{}, read by {}",
            info.container, info.codec, info.width, info.height, info.reader
        );
        let mut state = lock(&self.state.0);
        state.number += 1;
        state.phase = None;
        state.frames = 0;
        state.expected = None;
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("[{}/{}] {name}", state.number, state.of));
        }
        state.source = name;
    }

    fn frame(&self, _: &SourceId, record: &FrameRecord) {
        let mut state = lock(&self.state.0);
        state.looked_at += 1;
        for detection in &record.detections {
            if let Some(count) = state.finds.get_mut(&*detection.prompt) {
                *count += 1;
            } else {
                state.finds.insert(detection.prompt.to_string(), 1);
            }
        }
    }

    fn progress(&self, progress: &Progress<'_>) {
        let mut state = lock(&self.state.0);
        let new_phase = state.phase != Some(progress.phase);
        state.phase = Some(progress.phase);
        state.frames = progress.frames;
        state.expected = progress.expected;
        drop(state);
        if let Some(bar) = &self.bar {
            if new_phase {
                bar.reset();
                bar.set_message(word(progress.phase));
                bar.set_style(style(if progress.expected.is_some() {
                    BAR
                } else {
                    NO_END
                }));
            }
            if let Some(expected) = progress.expected {
                bar.set_length(expected.max(progress.frames));
            }
            bar.set_position(progress.frames);
        }
    }

    fn notice(&self, source: &SourceId, notice: &Notice) {
        self.printer
            .warning(&format!("{}: {}", clean(source.as_str()), notice.message));
    }

    fn source_finished(&self, report: &SourceReport) {
        let name = clean(&report.run.source);
        match (report.run.status, &report.run.reason) {
            (RunStatus::Complete | RunStatus::Interrupted, _) | (_, None) => {
                tracing::info!(source = %name, "{:?}, {} facings", report.run.status, report.run.facings);
            }
            (_, Some(reason)) => self.printer.warning(&format!("{name}: {reason}")),
        }
        (self.finished)(report);
    }
}

/// Prints a line each time the interval has passed, also when no frame came meanwhile.
fn tick(shared: &(Mutex<State>, Condvar), printer: &Printer, every: Duration) {
    let mut before: Option<(String, Option<Phase>, u64)> = None;
    let mut since = Instant::now();
    loop {
        let guard = lock(&shared.0);
        let (state, timeout) = shared
            .1
            .wait_timeout_while(guard, every, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if state.ended || !timeout.timed_out() {
            return;
        }
        let fresh = match &before {
            Some((source, phase, frames)) if *source == state.source && *phase == state.phase => {
                state.frames.saturating_sub(*frames)
            }
            _ => state.frames,
        };
        let text = line(&state, fresh as f64 / since.elapsed().as_secs_f64());
        before = Some((state.source.clone(), state.phase, state.frames));
        drop(state);
        since = Instant::now();
        printer.note(&text);
    }
}

/// A plain line about the progress; `rate` in frames a second since the last one.
fn line(state: &State, rate: f64) -> String {
    let Some(phase) = state.phase else {
        return if state.source.is_empty() {
            "getting ready".into()
        } else {
            format!("[{}/{}] {}: opening", state.number, state.of, state.source)
        };
    };
    let mut text = format!(
        "[{}/{}] {}: {}, frame {}",
        state.number,
        state.of,
        state.source,
        word(phase),
        state.frames
    );
    if let Some(expected) = state.expected.filter(|n| *n > 0) {
        text += &format!(" of {expected}");
    }
    text += &format!(", {rate:.1} frames/s");
    if let Some(expected) = state.expected.filter(|n| *n > state.frames)
        && rate > 0.0
    {
        let left = Duration::try_from_secs_f64((expected - state.frames) as f64 / rate)
            .unwrap_or(Duration::MAX);
        text += &format!(", {} left", indicatif::HumanDuration(left));
    }
    text
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Scanning => "scanning",
        Phase::Identifying => "identifying",
        Phase::Annotating => "annotating",
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: Option<Phase>, frames: u64, expected: Option<u64>) -> State {
        State {
            source: "clip.mp4".into(),
            number: 1,
            of: 3,
            phase,
            frames,
            expected,
            ..State::default()
        }
    }

    #[test]
    fn a_plain_line_says_what_how_far_how_fast_and_how_long() {
        assert_eq!(
            line(&state(Some(Phase::Scanning), 120, Some(600)), 24.0),
            "[1/3] clip.mp4: scanning, frame 120 of 600, 24.0 frames/s, 20 seconds left"
        );
        assert_eq!(
            line(&state(Some(Phase::Annotating), 700, Some(600)), 24.0),
            "[1/3] clip.mp4: annotating, frame 700 of 600, 24.0 frames/s"
        );
        assert_eq!(
            line(&state(Some(Phase::Scanning), 5, None), 0.0),
            "[1/3] clip.mp4: scanning, frame 5, 0.0 frames/s"
        );
        assert_eq!(line(&state(None, 0, None), 0.0), "[1/3] clip.mp4: opening");
        assert_eq!(line(&State::default(), 0.0), "getting ready");
    }

    #[test]
    fn both_templates_are_understood() {
        for template in [BAR, NO_END] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn the_ticker_ends_at_once_when_it_is_dropped() {
        let printer = Arc::new(Printer::new(crate::printer::Terminal::default(), false));
        let hour = Duration::from_hours(1);
        let (_watch, ticker) = Watch::start(printer, 1, hour, Box::new(|_| {}));
        drop(ticker);
    }
}
