//! A child process that cannot block us: its messages are always drained, its silence is bounded,
//! and it dies with its reader.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::scrub::Scrubber;

/// What is kept of the end of a child's messages.
pub(crate) const TAIL_BYTES: usize = 4096;

/// Longest line of messages that is looked at; the rest of a longer one is thrown away.
const MAX_LINE_BYTES: usize = 16 << 10;

/// How long a child may take to end after it closed its output or was killed.
const EXIT_GRACE: Duration = Duration::from_secs(5);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who ended a child before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killer {
    /// The watchdog, because nothing came.
    Watchdog,
    /// The caller, through the cancel handle.
    Caller,
    /// The reader itself, because it has all it wants.
    Reader,
}

/// A running child that can be ended from any thread.
pub(crate) struct Guard {
    child: Mutex<Child>,
    killer: Mutex<Option<Killer>>,
}

impl Guard {
    /// Starts the command in a process group of its own, so that helpers it starts end with it and
    /// an interrupt typed at the terminal reaches only us, who end it in order.
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Arc<Self>> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        Ok(Arc::new(Self {
            child: Mutex::new(command.spawn()?),
            killer: Mutex::new(None),
        }))
    }

    /// Takes the pipes that were asked for.
    pub(crate) fn pipes<T>(&self, take: impl FnOnce(&mut Child) -> T) -> T {
        take(&mut lock(&self.child))
    }

    /// Ends the child at once; only the first reason is kept.
    pub(crate) fn kill(&self, killer: Killer) {
        lock(&self.killer).get_or_insert(killer);
        let mut child = lock(&self.child);
        if matches!(child.try_wait(), Ok(None)) {
            #[cfg(unix)]
            {
                // The group may be gone already; the child itself is ended below in any case.
                let pid = rustix::process::Pid::from_child(&child);
                rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).ok();
            }
            child.kill().ok();
        }
    }

    pub(crate) fn killer(&self) -> Option<Killer> {
        *lock(&self.killer)
    }

    /// Waits for the end of a child that closed its output; one that lingers is ended.
    pub(crate) fn wait(&self) -> Option<ExitStatus> {
        self.wait_for(EXIT_GRACE).or_else(|| {
            self.kill(Killer::Watchdog);
            self.wait_for(EXIT_GRACE)
        })
    }

    /// Waits for a child that works on after its input ended, until it ends or is ended.
    pub(crate) fn wait_to_end(&self) -> Option<ExitStatus> {
        while self.killer().is_none() {
            if let Some(status) = self.wait_for(Duration::from_millis(500)) {
                return Some(status);
            }
        }
        self.wait_for(EXIT_GRACE)
    }

    fn wait_for(&self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            match lock(&self.child).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => {}
                Ok(None) | Err(_) => return None,
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill(Killer::Reader);
        self.wait_for(EXIT_GRACE);
    }
}

/// How a process ended, in words.
pub(crate) fn describe(status: Option<ExitStatus>) -> String {
    match status {
        None => "it did not end".into(),
        Some(status) => status.to_string(),
    }
}

/// Ends a child that gives nothing while something is waited for.
pub(crate) struct Watchdog {
    state: Arc<WatchState>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct WatchState {
    inner: Mutex<Watched>,
    changed: Condvar,
}

struct Watched {
    waiting_since: Option<Instant>,
    stop: bool,
}

impl WatchState {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Watched {
                waiting_since: None,
                stop: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// A state that nobody watches.
    #[cfg(test)]
    pub(crate) fn idle() -> Arc<Self> {
        Self::new()
    }

    /// Notes that something came, from any thread.
    pub(crate) fn touch(&self) {
        if let Some(since) = &mut lock(&self.inner).waiting_since {
            *since = Instant::now();
        }
    }

    fn set(&self, change: impl FnOnce(&mut Watched)) {
        change(&mut lock(&self.inner));
        self.changed.notify_all();
    }
}

impl Watchdog {
    pub(crate) fn new(guard: &Arc<Guard>, limit: Duration) -> std::io::Result<Self> {
        let state = WatchState::new();
        let (watched, guard) = (Arc::clone(&state), Arc::downgrade(guard));
        let thread = std::thread::Builder::new()
            .name("decoder-watchdog".into())
            .spawn(move || {
                let mut inner = lock(&watched.inner);
                while !inner.stop {
                    inner = match inner.waiting_since.map(|since| since.elapsed()) {
                        None => watched
                            .changed
                            .wait(inner)
                            .unwrap_or_else(PoisonError::into_inner),
                        Some(waited) if waited < limit => {
                            watched
                                .changed
                                .wait_timeout(inner, limit.saturating_sub(waited))
                                .unwrap_or_else(PoisonError::into_inner)
                                .0
                        }
                        Some(_) => {
                            if let Some(guard) = guard.upgrade() {
                                guard.kill(Killer::Watchdog);
                            }
                            return;
                        }
                    };
                }
            })?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    pub(crate) fn state(&self) -> Arc<WatchState> {
        Arc::clone(&self.state)
    }

    /// Runs `wait` under watch.
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.state.set(|s| s.waiting_since = Some(Instant::now()));
        let result = wait();
        self.state.set(|s| s.waiting_since = None);
        result
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.state.set(|s| s.stop = true);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The last bytes of a stream of lines.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
}

impl Tail {
    pub(crate) fn push(&mut self, line: &[u8]) {
        let line = &line[line.len().saturating_sub(TAIL_BYTES - 1)..];
        let over = (self.bytes.len() + line.len() + 1).saturating_sub(TAIL_BYTES);
        self.bytes.drain(..over.min(self.bytes.len()));
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
    }

    /// The kept bytes as text, without control characters that could upset a terminal.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes)
            .chars()
            .filter(|c| *c == '\n' || !c.is_control())
            .collect::<String>()
            .trim_end()
            .to_owned()
    }
}

/// Calls `each` with every line of a stream until it ends; a line over the limit is cut short.
pub(crate) fn for_each_line(stream: impl Read, mut each: impl FnMut(&[u8])) {
    let mut stream = BufReader::with_capacity(32 << 10, stream);
    let mut line = Vec::new();
    loop {
        let (used, ended) = match stream.fill_buf() {
            Ok([]) | Err(_) => break,
            Ok(bytes) => {
                let end = bytes.iter().position(|b| *b == b'\n' || *b == b'\r');
                let part = &bytes[..end.unwrap_or(bytes.len())];
                let room = MAX_LINE_BYTES - line.len();
                line.extend_from_slice(&part[..part.len().min(room)]);
                (part.len() + usize::from(end.is_some()), end.is_some())
            }
        };
        stream.consume(used);
        if ended {
            each(&line);
            line.clear();
        }
    }
    if !line.is_empty() {
        each(&line);
    }
}

/// Drains a child's messages on a thread of its own, so that a flood of them never blocks it. All
/// of them pass the scrubber, so that no password comes further than this.
pub(crate) fn drain(
    stderr: ChildStderr,
    scrubber: Scrubber,
    mut each: impl FnMut(&[u8]) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("decoder-messages".into())
        .spawn(move || for_each_line(stderr, |line| each(&scrubber.scrub(line))))
}

/// What a short-lived program left behind.
pub(crate) struct Finished {
    pub(crate) status: Option<ExitStatus>,
    /// Its messages from the beginning, at most 256 KiB.
    pub(crate) messages: String,
    /// True when it was ended because it gave nothing for too long.
    pub(crate) stalled: bool,
}

/// Runs a program to its end, handing every line of its output to `each`.
pub(crate) fn run(
    command: &mut Command,
    stall: Duration,
    mut each: impl FnMut(&[u8]),
) -> std::io::Result<Finished> {
    const MAX_MESSAGES: usize = 256 << 10;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let guard = Guard::spawn(command)?;
    let (stdout, stderr) = guard.pipes(|child| (child.stdout.take(), child.stderr.take()));
    let watchdog = Watchdog::new(&guard, stall)?;
    let watch = watchdog.state();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&messages);
    let drain = match stderr {
        Some(stderr) => Some(drain(stderr, Scrubber::default(), move |line| {
            let mut kept = lock(&kept);
            if kept.len() + line.len() < MAX_MESSAGES {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
        })?),
        None => None,
    };
    watchdog.during(|| {
        if let Some(stdout) = stdout {
            for_each_line(stdout, |line| {
                watch.touch();
                each(line);
            });
        }
        if let Some(drain) = drain {
            drain.join().ok();
        }
    });
    let status = guard.wait();
    let messages = String::from_utf8_lossy(&lock(&messages)).into_owned();
    Ok(Finished {
        status,
        messages,
        stalled: guard.killer() == Some(Killer::Watchdog),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_tail_keeps_the_last_bytes_however_much_is_pushed() {
        let mut tail = Tail::default();
        for i in 0..TAIL_BYTES {
            tail.push(format!("line {i} of noise").as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= TAIL_BYTES && text.len() > TAIL_BYTES - 64);
        assert!(text.ends_with(&format!("line {} of noise", TAIL_BYTES - 1)));
        tail.push(&vec![b'x'; TAIL_BYTES * 10]);
        assert!(tail.text().len() < TAIL_BYTES);
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_not_collected() {
        let mut lengths = Vec::new();
        let flood = std::io::repeat(b'a').take(10 * MAX_LINE_BYTES as u64);
        for_each_line(flood.chain(&b"\nb"[..]), |line| lengths.push(line.len()));
        assert_eq!(lengths, [MAX_LINE_BYTES, 1]);
    }

    #[cfg(unix)]
    #[test]
    fn a_silent_program_is_ended_together_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & sleep 600"]);
        let finished = run(&mut command, Duration::from_millis(200), |_| {}).unwrap();
        assert!(finished.stalled);
    }

    proptest! {
        #[test]
        fn lines_are_split_like_the_text_says(lines in proptest::collection::vec("[a-z ]{0,9}", 0..9)) {
            let mut got = Vec::new();
            for_each_line(lines.join("\n").as_bytes(), |line| {
                got.push(String::from_utf8_lossy(line).into_owned());
            });
            let mut wanted = lines;
            if wanted.last().is_some_and(String::is_empty) {
                wanted.pop();
            }
            prop_assert_eq!(got, wanted);
        }
    }
}
