//! `eval`: how well identification works on pictures whose answers are known.

use std::{fs, path::Path, sync::Arc};

use anyhow::Context;
use shelfscan_gallery::eval::{
    ColourHistogram, EmbedderMethod, EvalOptions, EvalReport, EvalSet, LocalFeatures, Method,
    evaluate,
};

use super::enroll::{Meter, clean_lines, decode, interruptible};
use crate::{
    args::{EvalArgs, EvalCommand, EvalGalleryArgs, Prefer},
    builtin,
    config::Config,
    exit::Exit,
    isolation::{Configuration, Models},
    printer::Printer,
};

pub(crate) fn run(args: EvalArgs, config: Config, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    match args.command {
        EvalCommand::Gallery(args) => gallery(args, config, printer),
    }
}

fn gallery(args: EvalGalleryArgs, config: Config, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    let set = match &args.manifest {
        Some(manifest) => EvalSet::from_manifest(&args.folder, manifest)?,
        None => EvalSet::from_folder(&args.folder)?,
    };
    let options = EvalOptions {
        views: args.views,
        repeats: args.repeats,
        seed: args.seed,
        skus: args.skus,
        excluded_sessions: args.exclude_session,
    };
    options.validate()?;
    let models = args.models.prefer(config.models);
    let embedder = if models.embedder_weights.is_some() || builtin::embedder().is_some() {
        let configuration = Configuration {
            models,
            ..Configuration::default()
        };
        Some(Models::new(configuration, (false, true), printer)?.embedder()?)
    } else {
        printer.note("without --embedder-weights only the baselines are measured");
        None
    };
    let (colour, local) = (ColourHistogram, LocalFeatures::default());
    let learned = match &embedder {
        Some(embedder) => {
            let name = embedder.fingerprint()?.model;
            Some(EmbedderMethod::new(&**embedder, name))
        }
        None => None,
    };
    let mut methods: Vec<&dyn Method> = Vec::new();
    if let Some(learned) = &learned {
        methods.push(learned);
    }
    methods.extend([&colour as &dyn Method, &local]);
    let meter = Meter::new(Arc::clone(printer), "looked at");
    let report = interruptible(printer, &meter, |progress| {
        evaluate(&set, &methods, &decode, Some(progress), &options)
    })?;
    let table = clean_lines(&report.to_string());
    if let Some(out) = &args.out {
        write(out, &report, &table)?;
    }
    if args.json {
        printer.json(&report)?;
    } else {
        printer.data(&table)?;
    }
    Ok(Exit::Done)
}

fn write(out: &Path, report: &EvalReport, table: &str) -> anyhow::Result<()> {
    fs::create_dir_all(out)
        .with_context(|| format!("making the folder failed: {}", out.display()))?;
    let json = serde_json::to_string_pretty(report)? + "\n";
    for (name, text) in [
        ("report.json", json.as_str()),
        ("table.txt", table),
        ("plot.svg", &report.to_svg()),
    ] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("writing failed: {}", path.display()))?;
    }
    Ok(())
}
