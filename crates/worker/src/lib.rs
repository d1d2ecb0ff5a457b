//! A model in a process of its own, behind the same contracts as one in this process.
//!
//! A driver that crashes, hangs or leaks takes its process with it. With this crate that is a worker
//! and not the scan: [`Worker`] starts a command that runs [`serve`], and its
//! [`provider`](Worker::provider) and [`embedder`](Worker::embedder) keep the contracts of
//! `shelfscan-inference-core` by asking it.
//!
//! ```no_run
//! use shelfscan_inference_core::{Embedder, InferenceProvider, ProviderInfo};
//! use shelfscan_worker::{Worker, WorkerCommand, WorkerOptions};
//!
//! # fn run(cold: ProviderInfo) -> shelfscan_inference_core::Result<()> {
//! let command = WorkerCommand::new("my-program").arg("serve");
//! let worker = Worker::new(command, b"how to make the models".to_vec(), WorkerOptions::default());
//! let mut provider = worker.provider(cold); // the process starts with the first warm-up
//! provider.warmup()?;
//! worker.embedder().warmup()?; // the same process, one call at a time
//! provider.shutdown()?; // asks, waits five seconds, then ends it
//! # Ok(())
//! # }
//! ```
//!
//! * Frames cross as raw pixels, never encoded, and are not copied on the way to the pipe; see
//!   `shelfscan_inference_core::protocol`.
//! * Every call has a deadline. A worker that dies, hangs or answers nonsense is ended, and the call
//!   is [`InferenceError::Worker`](shelfscan_inference_core::InferenceError::Worker) with the end of
//!   the worker's standard error.
//! * A worker that failed stays down until the caller warms it up again, which starts a new one and
//!   loads the models anew. An open tracking session is lost with the process.
//! * No worker outlives the program that started it: its standard input ends with the program.
//!
//! There are no cargo features. Limits: one call at a time, also when several threads share the
//! embedder; a picture of at most 350 megapixels.

mod client;
mod command;
mod link;
mod serve;
mod turns;
mod wire;
mod worker;

pub use client::{WorkerEmbedder, WorkerProvider};
pub use command::WorkerCommand;
pub use serve::{ServeError, Served, serve};
pub use worker::{Worker, WorkerOptions};
