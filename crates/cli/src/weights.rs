//! From what `--weights` says to a file: names are looked up in the cache, and what is missing is
//! downloaded before a model is opened.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use shelfscan_hub::{Fetched, Hub, HubFile, HubOptions, Phase, Progress, Purpose, Reference};

use crate::{
    args::{HubSettings, ModelSettings},
    builtin,
    printer::Printer,
    progress::DEFAULT_EVERY_SECS,
};

const BAR: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";

/// The hub of the settings; opens nothing. The only place that looks at its variables.
pub(crate) fn hub(settings: &HubSettings) -> Hub {
    let mut options = HubOptions::from_variables(|name| std::env::var_os(name));
    if let Some(endpoint) = settings.hub_endpoint.as_ref().filter(|e| !e.is_empty()) {
        options.endpoint.clone_from(endpoint);
    }
    if let Some(cache) = settings
        .hub_cache
        .as_ref()
        .filter(|c| !c.as_os_str().is_empty())
    {
        options.cache = Some(cache.clone());
    }
    if let Some(offline) = settings.offline {
        options.offline = offline;
    }
    Hub::new(options)
}

/// True for a path that is none but names a model on the hub.
pub(crate) fn is_reference(path: &Path) -> bool {
    !matches!(Reference::parse(path.as_os_str()), Ok(Reference::Path(_)))
}

/// The settings with files in the place of names. Whatever of it is not in the cache is downloaded
/// here, with a line and a bar, so that a warm-up finds everything on the disk.
pub(crate) fn fetch(
    mut models: ModelSettings,
    detector: bool,
    embedder: bool,
    printer: &Arc<Printer>,
) -> anyhow::Result<ModelSettings> {
    let hub = hub(&models.hub);
    let wanted = [
        (detector, &mut models.weights, Purpose::Detector),
        (embedder, &mut models.embedder_weights, Purpose::Embedder),
    ];
    for (_, setting, purpose) in wanted.into_iter().filter(|(wanted, ..)| *wanted) {
        // The name of what is built in stands for leaving the option out.
        if setting.as_deref().and_then(built_in) == Some(purpose) {
            *setting = None;
        }
        if let Some(path) = setting {
            *path = file(path, &hub, printer)?;
        }
    }
    Ok(models)
}

/// What a model is for that is part of this program and named so; `None` for everything else, and
/// where a file has that name.
pub(crate) fn built_in(name: &Path) -> Option<Purpose> {
    if name.exists() {
        return None;
    }
    let mut models = builtin::list().into_iter();
    models.find_map(|(model, purpose, _)| (name.as_os_str() == model).then_some(purpose))
}

fn file(path: &Path, hub: &Hub, printer: &Arc<Printer>) -> anyhow::Result<PathBuf> {
    let file = match Reference::parse(path.as_os_str())? {
        Reference::Path(path) => return Ok(path),
        Reference::Hub(file) => file,
    };
    if let Some(cached) = hub.find(&file)? {
        tracing::info!("{file} is in the cache: {}", cached.path.display());
        return Ok(cached.path);
    }
    Ok(pull(&file, hub, printer)?.file.path)
}

/// Downloads a file with a bar on a terminal, a line now and then elsewhere.
pub(crate) fn pull(file: &HubFile, hub: &Hub, printer: &Arc<Printer>) -> anyhow::Result<Fetched> {
    let mut meter = Meter::new(Arc::clone(printer), file.to_string());
    if !hub.options().offline {
        printer.note(&format!(
            "asking {} for {} of {} at {}",
            hub.options().endpoint,
            file.file(),
            file.repo(),
            file.revision()
        ));
    }
    let fetched = hub.pull(file, &mut |progress| meter.tell(progress));
    meter.end();
    Ok(fetched?)
}

/// How far a file is.
pub(crate) struct Meter {
    printer: Arc<Printer>,
    what: String,
    bar: Option<ProgressBar>,
    phase: Option<Phase>,
    last: Instant,
}

impl Meter {
    pub(crate) fn new(printer: Arc<Printer>, what: String) -> Self {
        let bar = printer.can_redraw().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template(BAR);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            printer.set_bar(Some(bar.clone()));
            bar
        });
        Self {
            printer,
            what,
            bar,
            phase: None,
            last: Instant::now(),
        }
    }

    pub(crate) fn tell(&mut self, progress: Progress) -> ControlFlow<()> {
        let new_phase = self.phase != Some(progress.phase);
        self.phase = Some(progress.phase);
        if let Some(bar) = &self.bar {
            if new_phase {
                bar.set_message(format!("{} {}", word(progress.phase), self.what));
                bar.set_length(progress.total_bytes);
                bar.reset_eta();
            }
            bar.set_position(progress.done_bytes);
        } else if self.last.elapsed() >= Duration::from_secs_f64(DEFAULT_EVERY_SECS) {
            self.last = Instant::now();
            self.printer.note(&line(&self.what, progress));
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.printer.set_bar(None);
        }
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting for another process to download",
        Phase::Resuming => "reading the part that is there of",
        Phase::Downloading => "downloading",
        Phase::Verifying => "checking",
    }
}

fn line(what: &str, progress: Progress) -> String {
    let (done, total) = (progress.done_bytes, progress.total_bytes);
    let (done, total) = (HumanBytes(done), HumanBytes(total));
    format!("{} {what}: {done} of {total}", word(progress.phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_what_and_how_far() {
        let progress = Progress {
            phase: Phase::Downloading,
            done_bytes: 3 << 20,
            total_bytes: 12 << 20,
        };
        assert_eq!(
            line("sam3.1", progress),
            "downloading sam3.1: 3.00 MiB of 12.00 MiB"
        );
        ProgressStyle::with_template(BAR).unwrap();
    }

    #[test]
    fn files_are_files_and_names_are_names() {
        for name in ["sam3.1", "dinov2-small", "hf:me/packs", "hf:no such"] {
            assert!(is_reference(Path::new(name)), "{name}");
        }
        for path in [
            "sam3.1.pt",
            "./sam3.1",
            "models/shelf-tiny",
            "/w/dinov2-small",
        ] {
            assert!(!is_reference(Path::new(path)), "{path}");
        }
    }
}
