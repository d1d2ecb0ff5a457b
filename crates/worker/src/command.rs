//! The process and its standard error.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io::{self, Read},
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// The end of standard error that is kept.
const TAIL_BYTES: usize = 16 << 10;
/// Lines of it that an error shows.
const TAIL_LINES: usize = 20;
/// Stands for standard error that carried nothing.
pub(crate) const NO_WORDS: &str = "(none)";
/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// How long the last of standard error may take after its process has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Room in the pipe to the worker, so that a frame takes few turns between the two processes.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// The command that runs [`serve`](crate::serve) over its standard input and output.
///
/// It inherits the environment and the current folder. On Unix it gets a process group of its own,
/// so that an interrupt typed at the terminal reaches the program alone, which then asks the worker
/// to end.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    program: PathBuf,
    args: Vec<OsString>,
}

impl WorkerCommand {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Starts it.
    pub(crate) fn start(&self) -> io::Result<Started> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let tail = Arc::new(Mutex::new(Tail::default()));
        let (hand_over, started) = mpsc::sync_channel(1);
        let kept = Arc::clone(&tail);
        // Linux tells a process of its parent's death when the thread that started it ends, so it is
        // started by the thread that lives as long as it does.
        thread::Builder::new()
            .name("worker-stderr".into())
            .spawn(move || {
                let mut child = match command.spawn() {
                    Ok(child) => child,
                    Err(error) => {
                        drop(hand_over.send(Err(error)));
                        return;
                    }
                };
                let stderr = child.stderr.take();
                let abandoned = hand_over.send(Ok(child)).is_err();
                if let Some(stderr) = stderr.filter(|_| !abandoned) {
                    drain(stderr, &kept);
                }
                lock(&kept).ended = true;
            })?;
        let mut child = started.recv().map_err(io::Error::other)??;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the worker has no pipes"));
        };
        #[cfg(target_os = "linux")]
        // A smaller pipe is slower and nothing else.
        rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_BYTES).ok();
        Ok(Started {
            stdin,
            stdout,
            process: Process { child, tail },
        })
    }
}

/// A process that was just started.
pub(crate) struct Started {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) process: Process,
}

/// A running process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    tail: Arc<Mutex<Tail>>,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits up to `limit` for it to end by itself.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    /// Ends it at once, when it has not ended by itself.
    pub(crate) fn end(&mut self) {
        // Both fail only when it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// The end of its standard error, once it has ended.
    pub(crate) fn last_words(&self) -> String {
        let end = Instant::now() + LAST_WORDS;
        loop {
            let tail = lock(&self.tail);
            if tail.ended || Instant::now() >= end {
                return tail.text();
            }
            drop(tail);
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn drain(mut stderr: ChildStderr, tail: &Mutex<Tail>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => lock(tail).push(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    kept: VecDeque<u8>,
    cut: bool,
    ended: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let over = (self.kept.len() + new.len()).saturating_sub(TAIL_BYTES);
        self.cut |= over > 0 || new.len() < bytes.len();
        self.kept.drain(..over);
        self.kept.extend(new);
    }

    /// The last lines, without what a terminal would act on.
    fn text(&self) -> String {
        let bytes: Vec<u8> = self.kept.iter().copied().collect();
        if bytes.is_empty() {
            return NO_WORDS.into();
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<&str> = text.lines().collect();
        if self.cut && lines.len() > 1 {
            lines.remove(0);
        }
        let first = lines.len().saturating_sub(TAIL_LINES);
        let plain = |line: &&str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        lines[first..]
            .iter()
            .map(plain)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_whole_lines_of_ten_times_its_size() {
        let mut tail = Tail::default();
        for line in 0..20_000 {
            tail.push(format!("line {line}\n").as_bytes());
            assert!(tail.kept.len() <= TAIL_BYTES);
        }
        let text = tail.text();
        assert!(text.starts_with("line 19980\n"), "{text}");
        assert!(text.ends_with("\nline 19999"), "{text}");
    }

    #[test]
    fn a_worker_that_printed_nothing_is_said_to_have_printed_nothing() {
        assert_eq!(Tail::default().text(), NO_WORDS);
    }

    #[test]
    fn one_endless_line_is_kept_to_the_limit_and_bells_are_left_out() {
        let mut tail = Tail::default();
        tail.push(&vec![b'x'; 1 << 20]);
        assert_eq!(tail.text().len(), TAIL_BYTES);
        tail.push(b"\x1b[2J\x07\xff\n");
        assert!(tail.text().ends_with("x[2J\u{fffd}"));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_once() {
        assert!(WorkerCommand::new("no/such/program").start().is_err());
    }
}
