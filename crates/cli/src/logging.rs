//! What the libraries log, on standard error beside the progress bar.

use std::{io, sync::Arc};

use tracing::Level;
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

use crate::printer::Printer;

/// Starts logging: warnings, more with `--verbose`, errors alone with `--quiet`.
pub(crate) fn start(printer: &Arc<Printer>, verbose: u8) {
    let level = match (printer.is_quiet(), verbose) {
        (true, _) => Level::ERROR,
        (_, 0) => Level::WARN,
        (_, 1) => Level::INFO,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from_level(level))
        .with_writer(Lines(Arc::clone(printer)))
        .with_ansi(printer.colour())
        .with_target(verbose > 1)
        .without_time()
        .init();
}

struct Lines(Arc<Printer>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// Takes one event, which comes as one write.
struct Line<'a>(&'a Printer);

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stderr(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
