//! `doctor`: what this program and this machine can do.

use std::{path::PathBuf, sync::Arc};

use indicatif::HumanBytes;
use serde::Serialize;
use shelfscan_hub::{Hub, free_bytes};
use shelfscan_inference_core::InferenceError;
use shelfscan_video::{CameraInfo, FfmpegLocation};

use super::models::{self, Listed};
use crate::{
    args::{DoctorArgs, GlobalArgs, Prefer},
    backend,
    config::{Config, FILE_NAME},
    exit::Exit,
    isolation::{Configuration, Models},
    printer::{Printer, clean_cell},
    resolve,
    selfcheck::{self, SelfCheck},
    weights,
};

/// Everything that was found out.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Cargo features this program was built with.
    features: Vec<&'static str>,
    /// Processor and system, such as `x86_64-linux`.
    platform: String,
    threads: usize,
    devices: Vec<Device>,
    ffmpeg: Ffmpeg,
    cameras: Vec<CameraInfo>,
    /// The settings file in use.
    config: Option<PathBuf>,
    hub: HubReport,
    self_check: SelfCheck,
    /// True when nothing is wrong; what is absent and not asked for is not wrong.
    ok: bool,
}

#[derive(Serialize)]
struct Device {
    name: String,
    usable: bool,
    /// What it is, or why it cannot be used and what to do about it.
    about: String,
    /// Types the models can calculate in there.
    dtypes: Vec<&'static str>,
    /// True for the one that is used when none is named.
    picked: bool,
}

#[derive(Serialize)]
struct Ffmpeg {
    path: Option<PathBuf>,
    version: Option<String>,
    /// Why there is none, and what to do about it.
    error: Option<String>,
}

#[derive(Serialize)]
struct HubReport {
    endpoint: String,
    offline: bool,
    cache: Option<PathBuf>,
    free_bytes: Option<u64>,
    /// The variable or file the token comes from; never the token.
    token_from: Option<String>,
    models: Vec<Listed>,
    /// What is wrong with the cache or the token, and what to do about it.
    problems: Vec<String>,
}

pub(crate) fn run(
    args: DoctorArgs,
    global: &GlobalArgs,
    printer: &Arc<Printer>,
) -> anyhow::Result<Exit> {
    let config = Config::load(global)?;
    let models = args.models.prefer(config.models);
    if args.print_expected {
        let embedder = opened(&models, printer)?.embedder()?;
        let expected = serde_json::to_string(&selfcheck::expected_of(&*embedder)?)?;
        printer.data(&(expected + "\n"))?;
        return Ok(Exit::Done);
    }
    let read = resolve::read_options(&args.reader.prefer(config.reader));
    let hub = hub_report(&weights::hub(&models.hub));
    let devices = devices(&models);
    let self_check = match opened(&models, printer) {
        Ok(opened) => selfcheck::run(opened.detector(), opened.embedder())?,
        Err(error) => SelfCheck {
            problems: vec![format!("the models cannot be opened: {error:#}")],
            ..SelfCheck::default()
        },
    };
    let ffmpeg = match shelfscan_video::find_ffmpeg(&read.ffmpeg) {
        Ok(info) => Ffmpeg {
            path: Some(info.path),
            version: Some(info.version),
            error: None,
        },
        Err(error) => Ffmpeg {
            path: None,
            version: None,
            error: Some(error.to_string()),
        },
    };
    // One that was named is wanted; without one much is read all the same.
    let named = matches!(read.ffmpeg, FfmpegLocation::Path(_));
    let missing = ffmpeg.error.clone().filter(|_| named);
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        features: features(),
        platform: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        devices,
        ffmpeg,
        cameras: shelfscan_video::list_cameras(&read.ffmpeg),
        config: config_in_use(global),
        ok: self_check.problems.is_empty() && hub.problems.is_empty() && missing.is_none(),
        hub,
        self_check,
    };
    if args.json {
        printer.json(&report)?;
    } else {
        printer.data(&text(&report))?;
    }
    for problem in report
        .hub
        .problems
        .iter()
        .chain(&report.self_check.problems)
        .chain(&missing)
    {
        printer.error(problem);
    }
    Ok(if report.ok { Exit::Done } else { Exit::Failed })
}

/// The models that are built in or were named.
fn opened(models: &crate::args::ModelSettings, printer: &Arc<Printer>) -> anyhow::Result<Models> {
    let configuration = Configuration {
        models: models.clone(),
        ..Configuration::default()
    };
    Models::new(configuration, (true, true), printer)
}

fn features() -> Vec<&'static str> {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("flash-attn", cfg!(feature = "flash-attn")),
        ("metal", cfg!(feature = "metal")),
        ("tiny-models", cfg!(feature = "tiny-models")),
    ];
    let on = all.into_iter().filter(|(_, on)| *on);
    on.map(|(name, _)| name).collect()
}

fn devices(models: &crate::args::ModelSettings) -> Vec<Device> {
    let picked = backend::route(models)
        .ok()
        .map(|route| route.device.to_string());
    backend::devices()
        .into_iter()
        .map(|(device, answers)| {
            let name = device.to_string();
            let mut dtypes = Vec::new();
            let mut about = String::new();
            for (dtype, answer) in answers {
                match answer {
                    Ok(what) => {
                        about = what;
                        dtypes.push(dtype.name());
                    }
                    Err(error) if dtypes.is_empty() => about = reason(&error),
                    Err(_) => {}
                }
            }
            Device {
                usable: !dtypes.is_empty(),
                picked: picked.as_ref() == Some(&name),
                name,
                about,
                dtypes,
            }
        })
        .collect()
}

fn reason(error: &InferenceError) -> String {
    error.to_string()
}

fn hub_report(hub: &Hub) -> HubReport {
    let mut problems = Vec::new();
    let mut told = |error: shelfscan_hub::Error| problems.push(error.to_string());
    let token_from = hub.token_source().unwrap_or_else(|error| {
        told(error);
        None
    });
    let models = match &hub.options().cache {
        // Nothing asks for a cache as long as the built-in models do.
        None => Vec::new(),
        Some(_) => models::listed(hub).unwrap_or_else(|error| {
            told(error);
            Vec::new()
        }),
    };
    let cache = hub.options().cache.clone();
    HubReport {
        endpoint: hub.options().endpoint.clone(),
        offline: hub.options().offline,
        free_bytes: cache.as_deref().and_then(free_bytes),
        cache,
        token_from: token_from.map(|from| from.to_string()),
        models,
        problems,
    }
}

fn config_in_use(global: &GlobalArgs) -> Option<PathBuf> {
    if global.no_config {
        return None;
    }
    let path = global.config.clone().unwrap_or_else(|| FILE_NAME.into());
    path.is_file().then_some(path)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        text += &format!("{name:<12}{}\n", clean_cell(value));
    };
    fact(
        "shelfscan",
        &format!(
            "{} on {}, {} threads",
            report.version, report.platform, report.threads
        ),
    );
    let features = report.features.join(", ");
    fact(
        "built with",
        if features.is_empty() {
            "no features"
        } else {
            &features
        },
    );
    for device in &report.devices {
        let mut about = device.about.clone();
        if device.usable {
            about += &format!("; {}", device.dtypes.join(", "));
        }
        if device.picked {
            about += "; picked";
        }
        fact(&device.name, &about);
    }
    match (
        &report.ffmpeg.path,
        &report.ffmpeg.version,
        &report.ffmpeg.error,
    ) {
        (Some(path), Some(version), _) => {
            fact("ffmpeg", &format!("{version}, {}", path.display()));
        }
        (_, _, error) => fact("ffmpeg", error.as_deref().unwrap_or("none")),
    }
    let cameras: Vec<String> = report
        .cameras
        .iter()
        .map(|c| format!("camera:{} {}", c.index, c.name))
        .collect();
    fact(
        "cameras",
        &if cameras.is_empty() {
            "none".into()
        } else {
            cameras.join("; ")
        },
    );
    let config = report.config.as_ref().map(|p| p.display().to_string());
    fact("settings", config.as_deref().unwrap_or("no file"));
    let hub = &report.hub;
    let offline = if hub.offline { ", switched off" } else { "" };
    fact("hub", &format!("{}{offline}", hub.endpoint));
    fact(
        "token from",
        hub.token_from
            .as_deref()
            .unwrap_or("nowhere; only gated models need one"),
    );
    let free = hub
        .free_bytes
        .map_or(String::new(), |b| format!(", {} free", HumanBytes(b)));
    match &hub.cache {
        Some(cache) => fact("cache", &format!("{}{free}", cache.display())),
        None => fact(
            "cache",
            "no home folder; name one with HF_HOME or HF_HUB_CACHE",
        ),
    }
    let check = &report.self_check;
    if let Some(d) = &check.detector {
        fact(
            "self-check",
            &format!(
                "{} on {} finds {} of {} known packs and {} more, {:.1} s",
                d.model, d.device, d.found, d.known, d.extra, d.secs
            ),
        );
    }
    if let Some(e) = &check.embedder {
        let kept = e
            .kept
            .map_or(String::new(), |k| format!(", {k:.4} to what is kept"));
        fact(
            "self-check",
            &format!(
                "{} sees packs of one SKU at cosine {:.3}, of two at {:.3}{kept}, {:.1} s",
                e.model, e.same, e.other, e.secs
            ),
        );
    }
    text += "\n";
    text += &models::table(&hub.models);
    text += if report.ok {
        "\nall is well\n"
    } else {
        "\nsomething is wrong\n"
    };
    text
}
