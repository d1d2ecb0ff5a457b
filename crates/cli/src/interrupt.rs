//! Ctrl-C: the first asks, the second ends.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context;

use crate::{exit::Exit, printer::Printer};

type Ask = Box<dyn Fn() + Send>;

/// What the next interrupt asks; nothing when it was asked already.
static NEXT: OnceLock<Mutex<Option<Ask>>> = OnceLock::new();

/// Calls `ask` on the first interrupt (also on a request to terminate or a hang-up) and ends the
/// process on the second. A command made of several puts each in the place of the one before.
pub(crate) fn install(
    printer: Arc<Printer>,
    ask: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let mut first = false;
    let next = NEXT.get_or_init(|| {
        first = true;
        Mutex::default()
    });
    *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(ask));
    if !first {
        return Ok(());
    }
    ctrlc::set_handler(move || {
        let ask = next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ask) = ask else {
            end_now();
            return;
        };
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
