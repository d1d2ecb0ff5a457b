//! Ctrl-C: the first asks, the second ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Context;

use crate::{exit::Exit, printer::Printer};

/// Calls `ask` on the first interrupt (also on a request to terminate or a hang-up) and ends the
/// process on the second. To be called once in a process.
pub(crate) fn install(
    printer: Arc<Printer>,
    ask: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::SeqCst) {
            end_now();
        }
        printer.note("stopping after the frame at hand; interrupt again to end at once");
        ask();
    })
    .context("setting up the interrupt handler")
}

#[allow(
    clippy::exit,
    reason = "the user asked twice, and the journal survives it"
)]
fn end_now() {
    std::process::exit(Exit::Interrupted as i32);
}
