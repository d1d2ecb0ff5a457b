//! `scan`: sources in, counted and identified facings out.

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use serde_json::json;
use shelfscan_gallery::{Gallery, Recognizer, RecognizerOptions};
use shelfscan_pipeline::{
    Annotate, CancelHandle, Existing, Identify, ReplayFiles, ScanPlan, Scanner, SourceReport,
    read_run,
};
use shelfscan_video::{PictureSet, Source};

use super::{
    enroll::{Meter, decode},
    report,
};
use crate::{
    args::{ModelSettings, Prefer, ScanArgs},
    backend::{self, Detector},
    config::Config,
    detections,
    exit::{self, Exit, Usage},
    interrupt,
    isolation::{self, Configuration, Models},
    printer::{Printer, clean},
    progress::{self, Watch},
    resolve,
    singular::singular,
    sources,
    summary::{ScanStatus, Summary},
};

pub(crate) fn run(args: &ScanArgs, config: Config, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    let settings = resolve::scan_settings(args.settings.clone(), config.scan);
    let reader = args.reader.clone().prefer(config.reader);
    let models = args.models.clone().prefer(config.models);
    let every = progress_interval(settings.progress_secs)?;
    let options = resolve::scan_options(&settings, &reader)?;
    let found = sources::expand(
        &args.sources,
        &args.camera,
        settings.recursive.unwrap_or_default(),
    )?;
    for note in &found.notes {
        printer.note(note);
    }
    let plan = ScanPlan::new(options, found.sources, Some(&args.out), args.shard)?;
    let existing = existing(args);
    let keep_ids = settings.keep_ids.unwrap_or_default();
    let replay = match &args.detections {
        Some(path) => Some(detections::find(path, &plan, printer)?),
        None if settings.keep_ids == Some(true) && args.settings.keep_ids.is_some() => {
            return Err(
                Usage::new("--keep-ids keeps the ids of recorded detections")
                    .hint("give them with --detections")
                    .into(),
            );
        }
        None => None,
    };
    if args.dry_run {
        let gallery = settings.gallery.as_deref();
        printer.json(&plan_json(
            args,
            &plan,
            existing,
            replay.as_ref(),
            gallery,
            &models,
        )?)?;
        return Ok(Exit::Done);
    }
    check_regions(&plan)?;
    check_apart(&plan)?;
    check_free(&plan, existing)?;
    check_annotation(&plan)?;
    let (model, gallery) = (replay.is_none(), settings.gallery.is_some());
    let tiles = models.tiles.is_some_and(|tiles| tiles.cuts());
    let configuration = Configuration {
        models,
        min_score: settings.min_score,
        detect_every: settings.detect_every,
        threads: settings.threads,
    };
    let opened = settings.gallery.as_deref().map(Gallery::open).transpose()?;
    // Recorded detections without a gallery need no model, and so no device.
    let models = (model || gallery)
        .then(|| Models::new(configuration, (model, gallery), printer))
        .transpose()?;
    if let Some(models) = &models {
        if let Some(line) = backend::about_builtin(models.settings(), model, gallery) {
            printer.note(&line);
        }
        printer.note(&models.route().line());
    }
    let mut provider = match (replay, &models) {
        (Some(files), _) => backend::open_provider(Detector::Replay { files, keep_ids })?,
        (None, Some(models)) => models.detector()?,
        (None, None) => return Err(Usage::new("there is nothing to detect with").into()),
    };
    isolation::set_threads(settings.threads)?;
    let identify = match (opened, &models) {
        (Some(gallery), Some(models)) => Some(load_gallery(gallery, models, printer)?),
        _ => None,
    };

    let read = plan.options.read.clone();
    let folders: Vec<_> = plan
        .sources
        .iter()
        .map(|s| args.out.join(&s.folder))
        .collect();
    let prompts: Vec<Arc<str>> = plan
        .options
        .prompts
        .iter()
        .map(|p| p.phrase.clone())
        .collect();
    let summary = Arc::new(Mutex::new(Summary::new(&plan, &args.out, args.shard)));
    let (watch, ticker) = {
        let (summary, warn) = (Arc::clone(&summary), Arc::clone(printer));
        let finished = move |report: &SourceReport| {
            let mut summary = lock(&summary);
            summary.take(report);
            if let Err(error) = summary.write() {
                warn.warning(&format!("{error:#}"));
            }
        };
        Watch::start(
            Arc::clone(printer),
            plan.sources.len(),
            every,
            Box::new(finished),
        )
    };
    let cancel = CancelHandle::new();
    {
        let cancel = cancel.clone();
        interrupt::install(Arc::clone(printer), move || cancel.cancel())?;
    }
    // Before the first file is written, so that wrong weights leave nothing behind.
    provider.warmup()?;
    let tracks = provider.info().assigns_track_ids;
    if model && !tracks {
        printer.note("these weights hold no tracker, so tracks are made by association");
    }
    if !tracks && settings.detect_every.is_some_and(|n| n > 1) {
        printer.warning(
            "--detect-every has no effect: what detects here does not track by itself, so every frame is detected",
        );
    }
    if tracks && tiles {
        printer.warning("--tiles has no effect: what tracks by itself looks at whole frames");
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("making the folder failed: {}", args.out.display()))?;
    lock(&summary).write()?;
    let mut scanner = Scanner::new(plan, provider)
        .with_observer(watch.clone())
        .with_existing(existing)
        .with_cancel(cancel.clone());
    if let Some(identify) = identify {
        scanner = scanner.with_identity(identify);
    }
    if let Some(models) = &models {
        scanner = scanner.with_device(models.route().into());
    }
    let ran = scanner.run();
    drop(ticker);
    if let Err(error) = scanner.into_provider().shutdown() {
        printer.warning(&error.to_string());
    }
    let mut summary = lock(&summary);
    summary.finish(cancel.is_cancelled());
    summary.write()?;
    ran?;
    let reported = settings.report != Some(true) || report::write_beside(&folders, &read, printer);

    for phrase in watch.without_finds(prompts.iter().map(AsRef::as_ref)) {
        tell_nothing_found(phrase, printer);
    }
    if summary.speaks_of("ffmpeg")
        && shelfscan_video::find_ffmpeg(&read.ffmpeg).is_err_and(|e| e.is_about_ffmpeg())
    {
        printer.hint(exit::FFMPEG_HINT);
    }
    printer.note(&summary.totals());
    if args.json {
        printer.json(&*summary)?;
    } else {
        printer.data(&summary.table().to_string())?;
    }
    Ok(match summary.status {
        ScanStatus::Complete if reported => Exit::Done,
        ScanStatus::Interrupted => {
            printer.hint("go on with the same command and --resume");
            Exit::Interrupted
        }
        ScanStatus::Complete | ScanStatus::Running | ScanStatus::Incomplete => Exit::Failed,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn existing(args: &ScanArgs) -> Existing {
    if args.resume {
        Existing::Resume
    } else if args.overwrite {
        Existing::Overwrite
    } else {
        Existing::Refuse
    }
}

fn progress_interval(secs: Option<f64>) -> anyhow::Result<Duration> {
    let secs = secs.unwrap_or(progress::DEFAULT_EVERY_SECS);
    Duration::try_from_secs_f64(secs)
        .ok()
        .filter(|d| !d.is_zero())
        .ok_or_else(|| {
            Usage::new(format!(
                "--progress-secs cannot be {secs}; it has to be above 0"
            ))
            .into()
        })
}

/// The decided plan, for people and scripts.
fn plan_json(
    args: &ScanArgs,
    plan: &ScanPlan,
    existing: Existing,
    replay: Option<&ReplayFiles>,
    gallery: Option<&Path>,
    models: &ModelSettings,
) -> anyhow::Result<serde_json::Value> {
    let detector = match replay {
        Some(ReplayFiles::Single(path)) => json!({ "detections": [path] }),
        Some(ReplayFiles::PerSource(files)) => {
            json!({ "detections": files.values().collect::<Vec<_>>() })
        }
        None => json!({ "weights": models.weights }),
    };
    Ok(json!({
        "sources": plan
            .sources
            .iter()
            .map(|s| json!({ "source": s.source.id(), "folder": s.folder }))
            .collect::<Vec<_>>(),
        "out": args.out,
        "existing": existing,
        "shard": args.shard,
        "detector": detector,
        "gallery": gallery,
        "embedder_weights": gallery.and(models.embedder_weights.as_deref()),
        "threads": plan.options.identity.resolved_workers(),
        "options": plan.recorded()?,
    }))
}

/// A region outside the picture is a slip on the command line, so it is found before the first
/// frame. Sources that do not open are left to the scan, which says why.
fn check_regions(plan: &ScanPlan) -> anyhow::Result<()> {
    if plan.options.regions.is_empty() {
        return Ok(());
    }
    for source in plan.sources.iter().filter(|s| !s.source.is_live()) {
        let Ok(info) = shelfscan_video::probe(&source.source, &plan.options.read) else {
            continue;
        };
        for region in &plan.options.regions {
            if !region.bbox.clamped(info.width, info.height).is_valid() {
                let error = Usage::new(format!(
                    "region `{}` lies outside the {}x{} picture of {}",
                    region.name,
                    info.width,
                    info.height,
                    source.source.id()
                ));
                return Err(error
                    .hint("regions are in source pixels of the upright picture, NAME=x0,y0,x1,y1")
                    .into());
            }
        }
    }
    Ok(())
}

/// A source is not written into, whatever else is to be replaced.
fn check_apart(plan: &ScanPlan) -> anyhow::Result<()> {
    let Some(out) = &plan.out else {
        return Ok(());
    };
    let real = |path: &Path| path.canonicalize().ok();
    for source in &plan.sources {
        let of_source = match &source.source {
            Source::File(path) | Source::Pictures(PictureSet::Folder(path)) => real(path),
            _ => None,
        };
        let folder = out.join(&source.folder);
        if of_source.is_some() && of_source == real(&folder) {
            return Err(Usage::new(format!(
                "the results would be written into the source itself: {}",
                folder.display()
            ))
            .hint("name another --out")
            .into());
        }
    }
    Ok(())
}

/// What an annotated clip needs is looked for before the scan, not after it.
fn check_annotation(plan: &ScanPlan) -> anyhow::Result<()> {
    if plan.options.outputs.annotate == Annotate::Video {
        shelfscan_video::find_ffmpeg(&plan.options.read.ffmpeg).map_err(|error| {
            Usage::new(format!("an annotated clip cannot be written: {error}"))
                .hint("`--annotate frames` writes pictures and needs no ffmpeg")
        })?;
    }
    Ok(())
}

/// Results of an earlier scan are never replaced by mistake.
fn check_free(plan: &ScanPlan, existing: Existing) -> anyhow::Result<()> {
    let Some(out) = plan.out.as_ref().filter(|_| existing == Existing::Refuse) else {
        return Ok(());
    };
    let folders = || plan.sources.iter().map(|s| out.join(&s.folder));
    if let Some(file) = std::iter::once(out.clone())
        .chain(folders())
        .find(|path| path.is_file())
    {
        return Err(Usage::new(format!(
            "a file stands where the results would go: {}",
            file.display()
        ))
        .hint("name another --out")
        .into());
    }
    let taken: Vec<_> = folders()
        .filter(|dir| !matches!(read_run(dir), Ok(None)))
        .collect();
    match taken.first() {
        None => Ok(()),
        Some(first) => Err(Usage::new(format!(
            "{} of {} sources have results there already, the first in {}",
            taken.len(),
            plan.sources.len(),
            first.display()
        ))
        .hint("go on with --resume, replace them with --overwrite, or name another --out")
        .into()),
    }
}

fn load_gallery(
    gallery: Gallery,
    models: &Models,
    printer: &Arc<Printer>,
) -> anyhow::Result<Arc<dyn Identify>> {
    let embedder = models.embedder()?;
    let meter = Meter::new(Arc::clone(printer), "embedded");
    let loaded = Recognizer::load(
        gallery,
        embedder,
        &decode,
        Some(&|progress| {
            meter.tell(progress);
            ControlFlow::Continue(())
        }),
        &RecognizerOptions::default(),
    );
    meter.end();
    let (recognizer, loaded) = loaded?;
    tracing::info!(
        "gallery of {} SKUs and {} views; cache: {}; thresholds: {}",
        loaded.skus,
        loaded.views,
        loaded.cache,
        loaded.thresholds
    );
    if let Some(reason) = &loaded.cache.reason {
        printer.note(&format!("the gallery's views are embedded again: {reason}"));
    }
    for notice in &loaded.notices {
        printer.warning(notice);
    }
    if let Some(first) = loaded.unreadable.first() {
        printer.warning(&format!(
            "{} pictures of the gallery cannot be read, the first is {}: {}",
            loaded.unreadable.len(),
            clean(&first.view),
            first.reason
        ));
    }
    Ok(Arc::new(recognizer))
}

fn tell_nothing_found(phrase: &str, printer: &Printer) {
    printer.warning(&format!("nothing was found for `{phrase}`"));
    if let Some(one) = singular(phrase) {
        printer.hint(&format!(
            "a phrase names one object; try --prompt \"{one}\""
        ));
    }
}
