//! One call at a time over two streams, each with a deadline.

use std::{
    io::{Read, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    thread,
    time::Duration,
};

use shelfscan_inference_core::protocol::{Encoded, Response};

use crate::{
    command::{NO_WORDS, Process, Started},
    wire::{self, Arrived},
};

/// How long a worker whose streams broke may take to be gone, so that its exit code is known.
const GRACE: Duration = Duration::from_millis(500);

/// What the threads at the two streams tell.
enum Event {
    Arrived(Arrived),
    /// A stream broke; how the process ended says more.
    Broken(String),
    /// Something else arrived, which says more than how the process ended.
    Nonsense(String),
}

/// The streams of a worker, and its process when it has one.
pub(crate) struct Link {
    /// Gone once standard input is to be closed.
    outgoing: Option<Sender<Encoded>>,
    events: Receiver<Event>,
    calls: u32,
    process: Option<Process>,
}

impl Link {
    pub(crate) fn with_process(started: Started) -> std::io::Result<Self> {
        let mut link = Self::over(started.stdout, started.stdin)?;
        link.process = Some(started.process);
        Ok(link)
    }

    /// A link over two streams; threads read and write, so that a deadline holds although a pipe
    /// does not move.
    pub(crate) fn over(
        mut from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        let (outgoing, to_send) = channel::<Encoded>();
        // Holds one event: a worker that talks without being asked is stopped by its own pipe.
        let (events, arriving) = sync_channel(1);
        let on_write = events.clone();
        let builder = |name: &str| thread::Builder::new().name(name.into());
        builder("worker-stdout").spawn(move || while tell(&events, wire::read(&mut from)) {})?;
        builder("worker-stdin").spawn(move || {
            for message in to_send {
                if let Err(error) = wire::write(&mut to, &message) {
                    // No one waits for the reason when the link is gone.
                    let text = format!("it takes no more calls ({error})");
                    on_write.send(Event::Broken(text)).ok();
                    return;
                }
            }
        })?;
        Ok(Self {
            outgoing: Some(outgoing),
            events: arriving,
            calls: 0,
            process: None,
        })
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The number of the next call.
    pub(crate) fn next_call(&mut self) -> u32 {
        self.calls = self.calls.wrapping_add(1);
        self.calls
    }

    /// Sends a call and waits for its answer; an error says what the worker did instead.
    pub(crate) fn call(
        &mut self,
        message: Encoded,
        deadline: Duration,
    ) -> std::result::Result<Response, String> {
        let sent = self.outgoing.as_ref().map(|to| to.send(message));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.gone());
        }
        match self.events.recv_timeout(deadline) {
            Ok(Event::Arrived(Arrived { header, meta, bulk })) if header.call == self.calls => {
                Response::decode(&header, &meta, &bulk)
                    .map_err(|e| format!("it answered nonsense: {e}"))
            }
            Ok(Event::Arrived(Arrived { header, .. })) => Err(format!(
                "it answered nonsense: call {} when call {} was asked",
                header.call, self.calls
            )),
            Ok(Event::Broken(reason)) => Err(self.why(reason)),
            Ok(Event::Nonsense(reason)) => Err(reason),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "it gave no answer within {} s and was ended",
                deadline.as_secs_f64()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    /// Closes the worker's standard input and gives it up to `limit` to end; false when it had to be
    /// ended.
    pub(crate) fn close(&mut self, limit: Duration) -> bool {
        self.outgoing = None;
        match &mut self.process {
            Some(process) => process.wait(limit).is_some(),
            None => true,
        }
    }

    /// Ends the process and returns the end of its standard error.
    pub(crate) fn end(&mut self) -> String {
        self.outgoing = None;
        match &mut self.process {
            Some(process) => {
                process.end();
                process.last_words()
            }
            None => NO_WORDS.into(),
        }
    }

    fn gone(&mut self) -> String {
        self.why("its streams are closed".into())
    }

    /// How the process ended, which says more than a broken stream.
    fn why(&mut self, reason: String) -> String {
        match self.process.as_mut().and_then(|p| p.wait(GRACE)) {
            Some(status) => format!("it ended with {status}"),
            None => reason,
        }
    }
}

/// Tells what was read; false when there is nothing more to read.
fn tell(events: &SyncSender<Event>, read: Result<Option<Arrived>, wire::WireError>) -> bool {
    let (event, more) = match read {
        Ok(Some(arrived)) => (Event::Arrived(arrived), true),
        Ok(None) => (Event::Broken("it closed its output".into()), false),
        Err(wire::WireError::Protocol(error)) => {
            let text = format!("it answered nonsense: {error}");
            (Event::Nonsense(text), false)
        }
        Err(error) => (Event::Broken(error.to_string()), false),
    };
    events.send(event).is_ok() && more
}
