//! `enroll` and `gallery add`: pictures in, a gallery out.

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use shelfscan_gallery::{
    EmbedProgress, EmbedTools, EnrollOptions, EnrollReport, Gallery, ProgressObserver,
};
use shelfscan_inference_core::RgbImage;
use shelfscan_video::Limits;

use crate::{
    args::{EnrollArgs, EnrollSettings, ModelSettings, Prefer},
    config::Config,
    exit::{Exit, Usage},
    interrupt,
    isolation::{Configuration, Models},
    printer::{Printer, clean_block},
    progress::DEFAULT_EVERY_SECS,
    resolve,
};

pub(crate) fn run(
    args: EnrollArgs,
    config: Config,
    printer: &Arc<Printer>,
) -> anyhow::Result<Exit> {
    let (settings, models) = (args.settings, args.models);
    // Before a model is downloaded for it.
    fs::read_dir(&args.folder).map_err(|e| Usage::unlisted(&args.folder, &e))?;
    take_in(
        settings,
        models,
        config,
        printer,
        args.json,
        |tools, options| {
            Gallery::enroll(&args.folder, &args.gallery, tools, options).map(|(_, report)| report)
        },
    )
}

/// Embeds new views with `work` and tells what came of it.
pub(super) fn take_in(
    settings: EnrollSettings,
    models: ModelSettings,
    config: Config,
    printer: &Arc<Printer>,
    json: bool,
    work: impl FnOnce(&EmbedTools<'_>, &EnrollOptions) -> shelfscan_gallery::Result<EnrollReport>,
) -> anyhow::Result<Exit> {
    let options = resolve::enroll_options(settings.prefer(config.enroll))?;
    let configuration = Configuration {
        models: models.prefer(config.models),
        ..Configuration::default()
    };
    let embedder = Models::new(configuration, (false, true), printer)?.embedder()?;
    let meter = Meter::new(Arc::clone(printer), "embedded");
    let report = interruptible(printer, &meter, |progress| {
        let tools = EmbedTools {
            embedder: &*embedder,
            decode: &decode,
            progress: Some(progress),
        };
        work(&tools, &options)
    })?;
    if json {
        printer.json(&report)?;
    } else {
        printer.data(&(clean_lines(&report.to_string())))?;
    }
    Ok(Exit::Done)
}

/// Runs `work` with a progress that shows on `meter` and that an interrupt stops.
pub(super) fn interruptible<T>(
    printer: &Arc<Printer>,
    meter: &Meter,
    work: impl FnOnce(&ProgressObserver<'_>) -> shelfscan_gallery::Result<T>,
) -> anyhow::Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    interrupt::install(Arc::clone(printer), move || {
        asked.store(true, Ordering::SeqCst);
    })?;
    let done = work(&|progress| {
        meter.tell(progress);
        if stop.load(Ordering::SeqCst) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    meter.end();
    Ok(done?)
}

/// Reads a picture the way frames are read, so that views and crops look alike.
pub(super) fn decode(path: &Path) -> Result<RgbImage, String> {
    shelfscan_video::load_picture(path, &Limits::default()).map_err(|e| e.to_string())
}

/// Names of folders and files come from outside; the lines of a report stay lines.
pub(super) fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(clean_block).collect();
    lines.join("\n") + "\n"
}

/// How many pictures are done: a bar on a terminal, a plain line now and then elsewhere.
pub(super) struct Meter {
    printer: Arc<Printer>,
    /// What happens to the pictures, as in `embedded 3 of 9 pictures`.
    done: &'static str,
    bar: Option<ProgressBar>,
    last: Mutex<Instant>,
}

impl Meter {
    pub(super) fn new(printer: Arc<Printer>, done: &'static str) -> Self {
        let bar = printer.can_redraw().then(|| {
            let bar = ProgressBar::new(0);
            let style =
                ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(done);
            printer.set_bar(Some(bar.clone()));
            bar
        });
        Self {
            printer,
            done,
            bar,
            last: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn tell(&self, progress: EmbedProgress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.wanted as u64);
            bar.set_position(progress.done as u64);
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= Duration::from_secs_f64(DEFAULT_EVERY_SECS) {
            *last = Instant::now();
            let (done, wanted) = (progress.done, progress.wanted);
            self.printer
                .note(&format!("{} {done} of {wanted} pictures", self.done));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.printer.set_bar(None);
        }
    }
}
