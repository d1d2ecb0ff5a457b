//! `synth`: a drawn clip with its truth, and pictures to enrol its products with.

use std::sync::Arc;

use indicatif::ProgressBar;
use shelfscan_inference_core::SourceId;
use shelfscan_synth::{
    CLIP_FILE, CameraPath, Clip, ExportOptions, ExportReport, FACINGS_FILE, FrameFormat, Motion,
    Shelf, ShelfPlan, SynthError, TRUTH_FILE, VIEWS_FOLDER, export, pick_skus,
};

use crate::{
    args::{FormatArg, PlanArg, SynthArgs},
    exit::{Exit, Usage},
    printer::{Printer, clean_cell},
    table::{Align, Table},
};

/// Longer side of a picture to enrol.
const VIEW_PX: u32 = 224;

pub(crate) fn run(args: &SynthArgs, printer: &Printer) -> anyhow::Result<Exit> {
    let report = draw(args, printer).map_err(told)?;
    if args.json {
        printer.json(&report)?;
    } else {
        printer.data(&text(args, &report))?;
    }
    Ok(Exit::Done)
}

fn draw(args: &SynthArgs, printer: &Printer) -> shelfscan_synth::Result<ExportReport> {
    let skus = pick_skus(args.seed, args.skus.saturating_add(args.strangers));
    let enrolled: Vec<_> = skus.iter().copied().take(args.skus).collect();
    let plan = ShelfPlan {
        rows: args.rows,
        ..ShelfPlan::new(args.seed, skus, args.size.width, args.size.height)
    };
    let shelf = Arc::new(Shelf::draw(&plan, &[])?);
    let path = CameraPath::new(motion(args.plan), args.seed, args.frames, &shelf)?;
    let clip = Clip {
        fps: args.fps,
        source: SourceId::new("drawn shelf"),
        ..Clip::new(shelf, path, args.seed)
    };
    let options = ExportOptions {
        format: match args.format {
            FormatArg::Jpeg => FrameFormat::Jpeg,
            FormatArg::Png => FrameFormat::Png,
            FormatArg::Y4m => FrameFormat::Y4m,
        },
        enrolled: &enrolled,
        views: args.views,
        view_px: VIEW_PX,
        masks: !args.no_masks,
        pictures: &[],
    };
    let bar = printer.can_redraw().then(|| {
        let bar = ProgressBar::new(u64::from(args.frames));
        printer.set_bar(Some(bar.clone()));
        bar
    });
    let report = export(&clip, &args.out, &options, |done| {
        if let Some(bar) = &bar {
            bar.set_position(done);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
        printer.set_bar(None);
    }
    report
}

fn motion(plan: PlanArg) -> Motion {
    match plan {
        PlanArg::Pan => Motion::Pan,
        PlanArg::Return => Motion::Return,
        PlanArg::Shake => Motion::Shake,
        PlanArg::Still => Motion::Still,
        PlanArg::Zoom => Motion::Zoom,
    }
}

/// What is wrong with the command line is told as such.
fn told(error: SynthError) -> anyhow::Error {
    match error {
        SynthError::OutOfRange(_) | SynthError::NotEmpty(_) => Usage::new(error.to_string()).into(),
        other => other.into(),
    }
}

fn text(args: &SynthArgs, report: &ExportReport) -> String {
    let mut table = Table::new([
        ("SKU", Align::Left),
        ("views", Align::Right),
        ("facings", Align::Right),
    ]);
    for (name, count) in &report.facings {
        let views = if report.enrolled.contains(name) {
            args.views.to_string()
        } else {
            "none".into()
        };
        table.row([clean_cell(name), views, count.to_string()]);
    }
    let out = args.out.display().to_string();
    let out = clean_cell(&out);
    let source = match args.format {
        FormatArg::Y4m => format!("{out}/{CLIP_FILE}"),
        FormatArg::Jpeg | FormatArg::Png => out.clone(),
    };
    let source = quoted(&source);
    let rate = match args.format {
        FormatArg::Y4m => String::new(),
        FormatArg::Jpeg | FormatArg::Png => format!(" --pictures-per-sec {}", args.fps),
    };
    let mut text = format!(
        "{table}{} frames of {} facings in {out}; truth in {TRUTH_FILE} and {FACINGS_FILE}\n",
        report.frames,
        report.total_facings(),
    );
    text += &format!("scan it:   shelfscan scan {source}{rate} --out RUN\n");
    text += &format!(
        "replay it: shelfscan scan {source}{rate} --detections {} --out RUN\n",
        quoted(&format!("{out}/{TRUTH_FILE}"))
    );
    if report.views > 0 {
        let views = quoted(&format!("{out}/{VIEWS_FOLDER}"));
        text += &format!("enrol it:  shelfscan enroll {views} --gallery GALLERY\n");
    }
    text
}

/// A path as it is typed in a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:=@,".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}
