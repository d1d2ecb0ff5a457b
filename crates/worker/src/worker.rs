//! A worker that models share.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use shelfscan_inference_core::{
    InferenceError, ProviderInfo, Result,
    protocol::{Request, Response},
};

use crate::{
    client::{WorkerEmbedder, WorkerProvider},
    command::{NO_WORDS, WorkerCommand},
    link::Link,
    turns::Turns,
};

/// How long a worker that was asked to end may take.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// How calls to a worker go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// How long a call may take, from its first byte to the last one of its answer; 120 seconds by
    /// default.
    pub deadline: Duration,
    /// The same for a warm-up, which starts the process and loads the weights; 120 seconds by
    /// default.
    pub warmup_deadline: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_mins(2),
            warmup_deadline: Duration::from_mins(2),
        }
    }
}

impl WorkerOptions {
    /// Options with another deadline for calls.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Options with another deadline for warm-ups.
    #[must_use]
    pub fn with_warmup_deadline(mut self, deadline: Duration) -> Self {
        self.warmup_deadline = deadline;
        self
    }
}

/// A process that holds a detector, an embedder or both. A clone is the same process.
///
/// Nothing is started before the first warm-up or the first question of the embedder.
#[derive(Clone)]
pub struct Worker {
    shared: Arc<Shared>,
}

struct Shared {
    launch: Launch,
    configuration: Vec<u8>,
    options: WorkerOptions,
    state: Turns<State>,
}

type Launch = Box<dyn Fn() -> std::io::Result<Link> + Send + Sync>;

struct State {
    /// Counts the processes that were started, so that a model knows whether the one it warmed up
    /// is still there.
    generation: u64,
    now: Now,
}

enum Now {
    NotStarted,
    Running(Link),
    Failed,
    Ended,
}

impl Worker {
    /// A worker that `command` will run. `configuration` is handed to it first, and says how the
    /// models are made.
    pub fn new(command: WorkerCommand, configuration: Vec<u8>, options: WorkerOptions) -> Self {
        let launch = move || command.start().and_then(Link::with_process);
        Self::launched_by(Box::new(launch), configuration, options)
    }

    pub(crate) fn launched_by(
        launch: Launch,
        configuration: Vec<u8>,
        options: WorkerOptions,
    ) -> Self {
        let state = State {
            generation: 0,
            now: Now::NotStarted,
        };
        Self {
            shared: Arc::new(Shared {
                launch,
                configuration,
                options,
                state: Turns::new(state),
            }),
        }
    }

    /// The worker's detector. `cold` is what it says of itself before it is warm.
    pub fn provider(&self, cold: ProviderInfo) -> WorkerProvider {
        WorkerProvider::new(self.clone(), cold)
    }

    /// The worker's embedder.
    pub fn embedder(&self) -> WorkerEmbedder {
        WorkerEmbedder::new(self.clone())
    }

    /// The process as the system numbers it, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.shared.state.take(|state| match &state.now {
            Now::Running(link) => link.process_id(),
            _ => None,
        })
    }

    /// Starts the process unless it runs. With `again`, also after it failed. Returns the
    /// generation.
    pub(crate) fn start(&self, call: &'static str, again: bool) -> Result<u64> {
        self.shared.state.take(|state| {
            match state.now {
                Now::Running(_) => return Ok(state.generation),
                Now::Failed if !again => return Err(down(call)),
                Now::Ended => return Err(ended(call)),
                Now::NotStarted | Now::Failed => {}
            }
            let link = (self.shared.launch)().map_err(|e| InferenceError::Worker {
                call,
                reason: format!("it did not start ({e})"),
                stderr_tail: NO_WORDS.into(),
            })?;
            state.now = Now::Running(link);
            state.generation += 1;
            let request = Request::Configure(self.shared.configuration.clone());
            let configured = self.exchange(state, call, request, |response| match response {
                Response::Info(_) => Ok(()),
                other => Err(unasked(&other)),
            });
            // A worker that refuses its configuration has no models to ask.
            if let (Err(_), Now::Running(link)) = (&configured, &mut state.now) {
                link.end();
                state.now = Now::Failed;
            }
            configured.map(|()| state.generation)
        })
    }

    /// Asks a running worker. `check` turns the answer into what was asked for, or says what is
    /// wrong with it.
    pub(crate) fn ask<T>(
        &self,
        request: Request,
        generation: Option<u64>,
        check: impl FnOnce(Response) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let call = request.call_name();
        self.shared.state.take(|state| {
            if matches!(state.now, Now::Ended) {
                return Err(ended(call));
            }
            // A worker that was started anew knows nothing of what an older one was told.
            if generation.is_some_and(|warm| warm != state.generation) {
                return Err(down(call));
            }
            self.exchange(state, call, request, check)
        })
    }

    /// Whether the process of this generation still runs.
    pub(crate) fn runs(&self, generation: u64) -> bool {
        self.shared
            .state
            .take(|state| state.generation == generation && matches!(state.now, Now::Running(_)))
    }

    /// Asks the process to end, gives it five seconds, then ends it.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.shared.state.take(|state| {
            let Now::Running(mut link) = std::mem::replace(&mut state.now, Now::Ended) else {
                return Ok(());
            };
            let asked_at = Instant::now();
            let number = link.next_call();
            let asked = match Request::Shutdown.encode(number) {
                Ok(message) => link.call(message, SHUTDOWN),
                Err(error) => Err(error.to_string()),
            };
            let reason = match asked {
                // One that hung while it was asked has had its five seconds.
                Err(reason) => reason,
                Ok(_) if !link.close(SHUTDOWN.saturating_sub(asked_at.elapsed())) => format!(
                    "it did not end within {} s and was ended",
                    SHUTDOWN.as_secs()
                ),
                Ok(Response::Failed(error)) => return Err(error),
                Ok(_) => return Ok(()),
            };
            Err(InferenceError::Worker {
                call: "shutdown",
                reason,
                stderr_tail: link.end(),
            })
        })
    }

    fn exchange<T>(
        &self,
        state: &mut State,
        call: &'static str,
        request: Request,
        check: impl FnOnce(Response) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let Now::Running(link) = &mut state.now else {
            return Err(down(call));
        };
        let loads = matches!(
            request,
            Request::Configure(_)
                | Request::Warmup
                | Request::WarmupEmbedder
                | Request::Fingerprint
        );
        let number = link.next_call();
        let message = request.encode(number).map_err(|e| {
            InferenceError::InvalidInput(format!("it cannot cross to a worker: {e}"))
        })?;
        // Whatever starts the process waits as long as a warm-up does.
        let options = &self.shared.options;
        let deadline = if loads {
            options.warmup_deadline
        } else {
            options.deadline
        };
        let answer = match link.call(message, deadline) {
            Ok(Response::Failed(error)) => return Err(error),
            Ok(response) => check(response),
            Err(reason) => Err(reason),
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(reason) => {
                let stderr_tail = link.end();
                state.now = Now::Failed;
                Err(InferenceError::Worker {
                    call,
                    reason,
                    stderr_tail,
                })
            }
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

/// What is wrong with an answer to another question.
pub(crate) fn unasked(response: &Response) -> String {
    let what = match response {
        Response::Info(_) => "what it is",
        Response::Done => "that it is done",
        Response::Found(_) => "what it found",
        Response::Fingerprint(_) => "a fingerprint",
        Response::Embeddings(_) => "embeddings",
        _ => "something else",
    };
    format!("it answered nonsense: {what}, which was not asked")
}

fn down(call: &'static str) -> InferenceError {
    InferenceError::Worker {
        call,
        reason: "it has failed before and is not running; warm it up to start it anew".into(),
        stderr_tail: NO_WORDS.into(),
    }
}

fn ended(call: &'static str) -> InferenceError {
    InferenceError::OutOfOrder {
        call,
        state: "shut down",
        remedy: "make a new provider",
    }
}
