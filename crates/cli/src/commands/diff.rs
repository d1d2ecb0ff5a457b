//! `diff`: what moved between two runs.

use std::fmt::{self, Write};

use shelfscan_pipeline::{DiffReport, IdentityStatus, SourceDiff, TrackChange, diff};

use crate::{
    args::{DiffArgs, Prefer},
    config::Config,
    exit::Exit,
    printer::{Printer, clean_cell},
    resolve,
};

pub(crate) fn run(args: DiffArgs, config: Config, printer: &Printer) -> anyhow::Result<Exit> {
    let tolerances = resolve::tolerances(&args.settings.prefer(config.diff))?;
    let report = diff(&args.expected, &args.actual, &tolerances)?;
    if args.json {
        printer.json(&report)?;
    } else {
        let mut text = String::new();
        write_report(&mut text, &report)?;
        printer.data(&text)?;
    }
    Ok(if report.within {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn write_report(f: &mut String, report: &DiffReport) -> fmt::Result {
    for source in &report.sources {
        write_source(f, source)?;
    }
    let over = report.sources.iter().filter(|s| !s.over.is_empty()).count();
    let all = report.sources.len();
    if over == 0 {
        writeln!(f, "{all} of {all} sources are within the tolerances")
    } else {
        writeln!(f, "{over} of {all} sources are over the tolerances")
    }
}

fn write_source(f: &mut String, source: &SourceDiff) -> fmt::Result {
    let t = &source.totals;
    let verdict = if source.over.is_empty() {
        "within"
    } else {
        "over"
    };
    writeln!(
        f,
        "{}: {verdict}; {} frames and {} detections compared, boxes moved by up to {:.2} px, scores by up to {:.4}",
        clean_cell(&source.source),
        t.frames,
        t.matched,
        t.max_box_px,
        t.max_score
    )?;
    for reason in &source.over {
        writeln!(f, "  {}", clean_cell(reason))?;
    }
    for frame in &source.frames {
        let parts: Vec<String> = [
            (frame.missing, "missing"),
            (frame.extra, "extra"),
            (frame.moved, "moved"),
            (frame.rescored, "rescored"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}"))
        .collect();
        writeln!(
            f,
            "    frame {}: {}; up to {:.2} px and {:.4}",
            frame.frame_index,
            parts.join(", "),
            frame.max_box_px,
            frame.max_score
        )?;
    }
    more(f, t.changed_frames, source.frames.len(), "frames")?;
    for count in &source.counts {
        let mut what = clean_cell(&count.label);
        if let Some(region) = &count.region {
            what += &format!(" in {}", clean_cell(region));
        }
        match (&count.sku, count.status) {
            (Some(sku), _) => what += &format!(", {}", clean_cell(sku)),
            (None, IdentityStatus::NotAsked) => {}
            (None, _) => what += ", unknown",
        }
        writeln!(
            f,
            "    facings of {what}: {}, expected {}",
            count.actual, count.expected
        )?;
    }
    more(f, t.changed_counts, source.counts.len(), "counts")?;
    for track in &source.tracks {
        match track.change {
            TrackChange::Identity => writeln!(
                f,
                "    track {} ({} here): {}, expected {}",
                track.expected,
                track.actual,
                clean_cell(track.actual_identity.as_deref().unwrap_or_default()),
                clean_cell(track.expected_identity.as_deref().unwrap_or_default()),
            )?,
            TrackChange::Split => writeln!(f, "    track {}: split into several", track.expected)?,
            TrackChange::Joined => writeln!(
                f,
                "    track {}: joined with another, {} here",
                track.expected, track.actual
            )?,
        }
    }
    more(f, t.changed_tracks, source.tracks.len(), "tracks")
}

fn more(f: &mut String, all: u64, shown: usize, what: &str) -> fmt::Result {
    match all.saturating_sub(shown as u64) {
        0 => Ok(()),
        hidden => writeln!(f, "    and {hidden} more {what}; list more with --list"),
    }
}
