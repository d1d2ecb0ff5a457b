//! Follows the decoder's messages: which frame is which, when it is shown, and whether it is wanted.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use shelfscan_inference_core::FrameTime;

use super::{
    command::Plan,
    damage::Complaints,
    messages::{Banner, Line, Stage, parse_showinfo},
    packets::PacketTimes,
    process::{Tail, WatchState, lock},
};
use crate::{
    ReadOptions,
    select::{Choice, Selector},
};

/// Frames that may lie between the two filters at once; they hand over one by one.
const IN_FLIGHT: usize = 64;

/// Rate that times are guessed from when nothing better is known.
const FALLBACK_FPS: f64 = 25.0;

/// What the reading side has to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    /// The first frame was decoded; its upright size follows from the description.
    First,
    /// A picture of this size comes through the pipe; to be kept when it has a place.
    Picture {
        width: u32,
        height: u32,
        place: Option<(u64, FrameTime)>,
    },
    /// Nothing later is wanted.
    Stop,
    /// The filter's own count is wrong from here on: start again and count here.
    CountHere,
    /// The jump went past what is wanted: start again without it.
    NoJump,
    /// The first frame has another index than was assumed: start again with this one.
    Base(u64),
}

/// What is known of a run, for both sides.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) banner: Banner,
    pub(crate) complaints: Complaints,
    pub(crate) tail: Tail,
    /// Frames that came out of the decoder in this run.
    pub(crate) decoded: u64,
    /// The last of them.
    pub(crate) last: Option<(u64, f64)>,
    pub(crate) estimated: u64,
    pub(crate) jumps_back: u64,
}

#[derive(Clone, Copy, Debug)]
struct SeenFrame {
    pts: Option<i64>,
    place: Option<(u64, FrameTime)>,
}

/// Reads messages line by line on the draining thread and tells the reader what comes.
pub(crate) struct Tracker {
    known: Arc<Mutex<Known>>,
    watch: Arc<WatchState>,
    events: Sender<Event>,
    plan: Plan,
    start_secs: Option<f64>,
    packets: Option<Arc<PacketTimes>>,
    filter_counts: bool,
    selector: Selector,
    seen_tick_secs: Option<f64>,
    in_flight: VecDeque<SeenFrame>,
    next_index: u64,
    last_secs: Option<f64>,
    step_secs: Option<f64>,
    stopped: bool,
}

impl Tracker {
    pub(crate) fn new(
        plan: &Plan,
        options: &ReadOptions,
        filter_counts: bool,
        packets: Option<Arc<PacketTimes>>,
        watch: Arc<WatchState>,
    ) -> (Self, Arc<Mutex<Known>>, Receiver<Event>) {
        let known = Arc::new(Mutex::new(Known::default()));
        // Not bounded here, but by the pipe that carries the pictures: the decoder waits for it.
        let (events, receiver) = channel();
        let tracker = Self {
            known: Arc::clone(&known),
            watch,
            events,
            plan: plan.clone(),
            start_secs: options.start_secs,
            packets,
            filter_counts,
            selector: Selector::new(options),
            seen_tick_secs: None,
            in_flight: VecDeque::with_capacity(IN_FLIGHT),
            next_index: plan.base,
            last_secs: None,
            step_secs: None,
            stopped: false,
        };
        (tracker, known, receiver)
    }

    /// Takes the next message.
    pub(crate) fn push(&mut self, line: &[u8]) {
        if line.starts_with(b"[showinfo@") {
            match parse_showinfo(line) {
                Some(Line::Config { stage, tick_secs }) => self.configured(stage, tick_secs),
                Some(Line::Frame {
                    stage: Stage::Seen,
                    pts,
                    is_key,
                    ..
                }) => self.seen(pts, is_key),
                Some(Line::Frame {
                    stage: Stage::Out,
                    pts,
                    width,
                    height,
                    ..
                }) => self.out(pts, width, height),
                None => {}
            }
            return;
        }
        let text = String::from_utf8_lossy(line);
        let mut known = lock(&self.known);
        if known.decoded == 0 {
            known.banner.push(&text);
        }
        let at = known.last;
        known.complaints.push(&text, at);
        if !text.starts_with("[info]") {
            known.tail.push(line);
        }
    }

    fn send(&self, event: Event) {
        // A reader that has gone wants nothing more; draining goes on so that the child can end.
        self.events.send(event).ok();
    }

    fn configured(&mut self, stage: Stage, tick_secs: f64) {
        if stage == Stage::Out {
            return;
        }
        let again = self.seen_tick_secs.replace(tick_secs).is_some();
        if again && self.filter_counts && !self.stopped {
            self.stopped = true;
            self.send(Event::CountHere);
        }
    }

    fn seen(&mut self, pts: Option<i64>, is_key: bool) {
        self.watch.touch();
        let tick_secs = self.seen_tick_secs.unwrap_or(0.0);
        let exact = pts
            .filter(|_| tick_secs > 0.0)
            .map(|ticks| ticks as f64 * tick_secs);
        let time = self.time(exact);
        let is_first = lock(&self.known).decoded == 0;
        if is_first && !self.stopped {
            self.check_landing(time.secs);
        }
        let index = match (&self.packets, exact) {
            (Some(packets), Some(secs)) if self.plan.skip_nokey => packets.index_at(secs),
            _ => self.next_index,
        };
        self.next_index = index + 1;
        {
            let mut known = lock(&self.known);
            known.decoded += 1;
            known.last = Some((index, time.secs));
            known.estimated += u64::from(time.estimated);
        }
        if is_first {
            self.send(Event::First);
        }
        if self.stopped {
            return;
        }
        let place = match self.selector.choose(index, time.secs, is_key) {
            Choice::Deliver => Some((index, time)),
            Choice::Skip => None,
            Choice::Stop => {
                self.stopped = true;
                self.send(Event::Stop);
                return;
            }
        };
        if self.in_flight.len() == IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(SeenFrame { pts, place });
    }

    /// Checks that a jump landed where it was meant to.
    fn check_landing(&mut self, secs: f64) {
        let (Some(packets), Some(_)) = (&self.packets, self.plan.seek_secs) else {
            return;
        };
        let index = packets.index_at(secs);
        if index > 0 && self.start_secs.is_some_and(|start| secs > start) {
            self.stopped = true;
            self.send(Event::NoJump);
        } else if index != self.plan.base {
            self.stopped = true;
            self.send(Event::Base(index));
        }
    }

    fn out(&mut self, pts: Option<i64>, width: u32, height: u32) {
        self.watch.touch();
        // The frame that leaves is the last that entered, unless the filters held one back.
        let at = self
            .in_flight
            .iter()
            .rposition(|seen| seen.pts == pts)
            .or_else(|| self.in_flight.len().checked_sub(1));
        let place = at.and_then(|at| {
            let seen = self.in_flight.get(at).copied();
            self.in_flight.drain(..=at);
            seen.and_then(|seen| seen.place)
        });
        self.send(Event::Picture {
            width,
            height,
            place,
        });
    }

    /// The time of the next frame; a missing one goes on at the last known pace.
    fn time(&mut self, exact: Option<f64>) -> FrameTime {
        let time = if let Some(secs) = exact {
            if let Some(step) = self.last_secs.map(|last| secs - last) {
                if step > 0.0 {
                    self.step_secs = Some(step);
                } else if step < 0.0 {
                    lock(&self.known).jumps_back += 1;
                }
            }
            FrameTime::exact(secs)
        } else {
            let info = &lock(&self.known).banner.info;
            let step = self.step_secs.unwrap_or_else(|| {
                1.0 / info
                    .declared_fps
                    .filter(|f| *f > 0.0)
                    .unwrap_or(FALLBACK_FPS)
            });
            FrameTime::estimated(self.last_secs.map_or(info.start_secs, |last| last + step))
        };
        self.last_secs = Some(time.secs);
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            seek_secs: None,
            skip_nokey: false,
            base: 0,
            count_in_filter: true,
        }
    }

    fn events(options: &ReadOptions, filter_counts: bool, lines: &[String]) -> (Vec<Event>, Known) {
        let (mut tracker, known, receiver) =
            Tracker::new(&plan(), options, filter_counts, None, WatchState::idle());
        for line in lines {
            tracker.push(line.as_bytes());
        }
        drop(tracker);
        let known = Arc::try_unwrap(known).unwrap().into_inner().unwrap();
        (receiver.iter().collect(), known)
    }

    fn config() -> String {
        "[showinfo@seen @ 0x1] [info] config in time_base: 1/100, frame_rate: 25/1".into()
    }

    fn frame(stage: &str, pts: &str) -> String {
        format!("[showinfo@{stage} @ 0x1] [info] n: 0 pts: {pts} fmt:x s:8x4 iskey:1 type:I")
    }

    #[test]
    fn a_missing_time_is_interpolated_and_flagged() {
        let mut lines = vec![config()];
        for pts in ["100", "104", "NOPTS", "112"] {
            lines.push(frame("seen", pts));
            lines.push(frame("out", pts));
        }
        let (events, known) = events(&ReadOptions::default(), false, &lines);
        let places: Vec<_> = events
            .iter()
            .filter_map(|e| match e {
                Event::Picture { place, .. } => *place,
                _ => None,
            })
            .collect();
        assert_eq!(
            places,
            [
                (0, FrameTime::exact(1.0)),
                (1, FrameTime::exact(1.04)),
                (2, FrameTime::estimated(1.08)),
                (3, FrameTime::exact(1.12)),
            ]
        );
        assert_eq!((known.decoded, known.estimated), (4, 1));
    }

    #[test]
    fn a_picture_that_is_not_wanted_has_no_place() {
        let options = ReadOptions {
            every: 2,
            ..Default::default()
        };
        let mut lines = vec![config()];
        for i in 0..3 {
            lines.push(frame("seen", &(i * 4).to_string()));
            lines.push(frame("out", &(i * 4).to_string()));
        }
        let (events, _) = events(&options, false, &lines);
        let wanted: Vec<bool> = events
            .iter()
            .filter_map(|e| match e {
                Event::Picture { place, .. } => Some(place.is_some()),
                _ => None,
            })
            .collect();
        assert_eq!(wanted, [true, false, true]);
    }

    #[test]
    fn a_filter_that_starts_to_count_anew_is_noticed() {
        let lines = [config(), frame("seen", "0"), config(), frame("seen", "4")];
        let (counting, _) = events(&ReadOptions::default(), true, &lines);
        assert_eq!(counting, [Event::First, Event::CountHere]);
        let (other, _) = events(&ReadOptions::default(), false, &lines);
        assert_eq!(other, [Event::First]);
    }

    #[test]
    fn ten_thousand_skipped_frames_leave_nothing_behind() {
        let (mut tracker, known, _receiver) = Tracker::new(
            &plan(),
            &ReadOptions::default(),
            false,
            None,
            WatchState::idle(),
        );
        for i in 0..10_000 {
            tracker.push(frame("seen", &i.to_string()).as_bytes());
        }
        assert!(tracker.in_flight.len() <= IN_FLIGHT);
        assert_eq!(lock(&known).decoded, 10_000);
    }
}
