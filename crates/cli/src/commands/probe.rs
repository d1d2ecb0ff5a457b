//! `probe`: what is in a source, which cameras there are.

use serde::Serialize;
use shelfscan_video::{CameraInfo, CameraMode, SourceInfo};

use crate::{
    args::{Prefer, ProbeArgs},
    config::Config,
    exit::Exit,
    printer::{Printer, clean_cell},
    resolve, sources,
    table::{Align, Table},
};

/// What was found out about one source.
#[derive(Serialize)]
struct Probed {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<SourceInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    cameras: Option<Vec<CameraInfo>>,
    sources: Vec<Probed>,
}

pub(crate) fn run(args: ProbeArgs, config: Config, printer: &Printer) -> anyhow::Result<Exit> {
    let read = resolve::read_options(&args.reader.prefer(config.reader));
    let found = sources::expand(&args.sources, &[], args.recursive)?;
    for note in &found.notes {
        printer.note(note);
    }
    let cameras = args
        .cameras
        .then(|| shelfscan_video::list_cameras(&read.ffmpeg));
    let report = Report {
        cameras,
        sources: found
            .sources
            .iter()
            .map(|source| {
                let probed = shelfscan_video::probe(source, &read);
                let (info, error) = match probed {
                    Ok(info) => (Some(info), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                Probed {
                    source: source.id().as_str().to_owned(),
                    info,
                    error,
                }
            })
            .collect(),
    };
    if args.json {
        printer.json(&report)?;
    } else {
        printer.data(&text(&report))?;
    }
    let failed = report.sources.iter().any(|s| s.error.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    if let Some(cameras) = &report.cameras {
        text += &cameras_text(cameras);
    }
    for probed in &report.sources {
        text += &format!("{}\n", clean_cell(&probed.source));
        for (name, value) in facts(probed) {
            text += &format!("  {name:<10}{}\n", clean_cell(&value));
        }
    }
    text
}

fn facts(probed: &Probed) -> Vec<(&'static str, String)> {
    if let Some(error) = &probed.error {
        return vec![("error", error.clone())];
    }
    let Some(info) = &probed.info else {
        return Vec::new();
    };
    let mut facts = vec![
        ("container", info.container.clone()),
        ("codec", info.codec.clone()),
        ("size", format!("{}x{}", info.width, info.height)),
    ];
    if info.rotation_degrees != 0 {
        facts.push((
            "rotation",
            format!("{} degrees clockwise", info.rotation_degrees),
        ));
    }
    if let Some(format) = &info.pixel_format {
        facts.push(("pixels", format.clone()));
    }
    let known = |value: Option<String>| value.unwrap_or_else(|| "not declared".into());
    facts.push((
        "rate",
        known(info.declared_fps.map(|fps| format!("{fps:.3} frames/s"))),
    ));
    facts.push(("frames", known(info.declared_frames.map(|n| n.to_string()))));
    facts.push((
        "length",
        known(info.declared_duration_secs.map(|s| format!("{s:.3} s"))),
    ));
    if info.start_secs != 0.0 {
        facts.push(("start", format!("{:.3} s", info.start_secs)));
    }
    if info.live {
        facts.push(("live", "yes; frames are lost when not taken".into()));
    }
    let version = info.reader_version.as_deref().unwrap_or_default();
    facts.push(("reader", format!("{} {version}", info.reader)));
    facts
}

fn cameras_text(cameras: &[CameraInfo]) -> String {
    if cameras.is_empty() {
        return "no camera was found\n".into();
    }
    let mut table = Table::new([
        ("camera", Align::Left),
        ("name", Align::Left),
        ("opens", Align::Left),
        ("best mode", Align::Left),
        ("modes", Align::Right),
    ]);
    for camera in cameras {
        table.row([
            format!("camera:{}", camera.index),
            clean_cell(&camera.name),
            if camera.opens { "yes" } else { "no" }.into(),
            camera.modes.first().map(mode_text).unwrap_or_default(),
            camera.modes.len().to_string(),
        ]);
    }
    table.to_string()
}

fn mode_text(mode: &CameraMode) -> String {
    let size = format!(
        "{} {}x{}",
        clean_cell(&mode.format),
        mode.width,
        mode.height
    );
    match mode.max_fps {
        Some(fps) => format!("{size} at {fps:.0} frames/s"),
        None => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cameras_are_listed_with_the_mode_that_will_be_used() {
        assert_eq!(cameras_text(&[]), "no camera was found\n");
        let mode = CameraMode {
            format: "mjpeg".into(),
            compressed: true,
            width: 1280,
            height: 720,
            max_fps: Some(30.0),
        };
        let camera = CameraInfo {
            index: 2,
            name: "Shelf\u{1b}cam".into(),
            opens: true,
            modes: vec![mode],
        };
        let text = cameras_text(&[camera]);
        assert!(
            text.contains("camera:2  Shelf�cam  yes    mjpeg 1280x720 at 30 frames/s"),
            "{text}"
        );
    }
}
