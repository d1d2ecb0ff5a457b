//! `demo`: the whole way from a clip to counted facings, with nothing but this program.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::Context;
use clap::Parser;
use rayon::prelude::*;
use serde::Deserialize;
use shelfscan_pipeline::names;
use shelfscan_synth::{
    CameraPath, Clip, HELD_OUT_FROM, Motion, Shelf, ShelfPlan, Sku, draw_crop, pick_skus,
    write_facings,
};
use shelfscan_video::FrameDirWriter;

use crate::{
    args::{Cli, DemoArgs},
    exit::{Exit, Usage},
    printer::{Printer, clean_cell},
    report::{Report, Truth, default_path},
    table::{Align, Table},
};

/// Products on the shelf, and how many of them nobody enrols.
const SKUS: usize = 14;
const STRANGERS: usize = 3;
/// Pictures of a SKU that are enrolled, and their side.
const VIEWS: u64 = 6;
const VIEW_SIDE_PX: u32 = 160;
const FRAME_PX: (u32, u32) = (960, 540);
const FRAMES_PER_SEC: u32 = 5;
/// Frame widths of shelf that come into view in a second, there and back.
const LENGTH_PER_SEC: f32 = 0.19;
const JPEG_QUALITY: u8 = 90;

pub(crate) fn run(args: &DemoArgs, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    make_room(args)?;
    let places = Places::below(&args.out);
    let known = draw(args, &places, printer)?;
    let started = Instant::now();
    let words = [
        vec![
            "enroll".into(),
            text(&places.views)?,
            "--gallery".into(),
            text(&places.gallery)?,
        ],
        vec![
            "scan".into(),
            text(&places.clip)?,
            "--gallery".into(),
            text(&places.gallery)?,
            "--pictures-per-sec".into(),
            FRAMES_PER_SEC.to_string(),
            "--out".into(),
            text(&places.results)?,
        ],
    ];
    for words in words {
        printer.note(&format!("$ shelfscan {}", words.join(" ")));
        match step(&words, printer)? {
            Exit::Done => {}
            other => return Ok(other),
        }
    }
    let scanned = started.elapsed().as_secs_f64();
    let folder = places.results.join("clip");
    let truth = Truth::read_csv(&places.truth)?;
    let counts = read_counts(&folder.join(names::COUNTS))?;
    let report = default_path(&args.out);
    Report::read(&folder)?
        .with_truth(truth.clone())
        .write_html(&report)?;
    printer.data(&summary(
        &truth, &counts, &known, args.secs, scanned, &report,
    ))?;
    Ok(Exit::Done)
}

/// Where everything goes.
struct Places {
    clip: PathBuf,
    views: PathBuf,
    gallery: PathBuf,
    results: PathBuf,
    truth: PathBuf,
}

impl Places {
    fn below(out: &Path) -> Self {
        Self {
            clip: out.join("clip"),
            views: out.join("views"),
            gallery: out.join("gallery"),
            results: out.join("scan"),
            truth: out.join("truth.csv"),
        }
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .with_context(|| format!("the folder's name is no text: {}", path.display()))
}

/// The folder may be new, empty, or an earlier demo's that may be replaced.
fn make_room(args: &DemoArgs) -> anyhow::Result<()> {
    let out = &args.out;
    let places = Places::below(out);
    let taken = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if !taken {
        return Ok(());
    }
    if !args.overwrite || !places.truth.is_file() {
        let hint = if places.truth.is_file() {
            "replace the earlier demo with --overwrite, or name another --out"
        } else {
            "it holds no demo, so it is left alone; name another --out"
        };
        return Err(
            Usage::new(format!("the folder is not empty: {}", out.display()))
                .hint(hint)
                .into(),
        );
    }
    for dir in [
        &places.clip,
        &places.views,
        &places.gallery,
        &places.results,
    ] {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("removing {}", dir.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Draws the clip, the views of the SKUs that get enrolled, and the table of the truth. Returns the
/// names of those SKUs.
fn draw(
    args: &DemoArgs,
    places: &Places,
    printer: &Arc<Printer>,
) -> anyhow::Result<BTreeSet<String>> {
    // SKUs from the side on which the built-in models were not trained.
    let seed = args.seed.saturating_add(HELD_OUT_FROM);
    let skus = pick_skus(seed, SKUS);
    let (known, strangers) = split(&skus);
    printer.note(&format!(
        "drawing a shelf of {} products, {} of which nobody enrols, and a clip of {} s that pans along it and back",
        skus.len(),
        strangers.len(),
        args.secs
    ));
    let mut plan = ShelfPlan::new(seed, skus.clone(), FRAME_PX.0, FRAME_PX.1);
    plan.length_frames = 1.0 + args.secs as f32 * LENGTH_PER_SEC * 0.5;
    let shelf = Arc::new(Shelf::draw(&plan, &[])?);
    let frames = args.secs * FRAMES_PER_SEC;
    let path = CameraPath::new(Motion::Return, seed, frames, &shelf)?;
    let mut clip = Clip::new(shelf, path, seed);
    clip.fps = f64::from(FRAMES_PER_SEC);
    let writer = FrameDirWriter::create(&places.clip, JPEG_QUALITY)?;
    (0..clip.len()).into_par_iter().try_for_each(|i| {
        writer
            .write(&clip.frame(i).frame.image, i as u64)
            .map(|_| ())
    })?;
    for sku in &known {
        let dir = places.views.join(sku.slug());
        let writer = FrameDirWriter::create(&dir, JPEG_QUALITY)?;
        for view in 0..VIEWS {
            writer.write(&draw_crop(*sku, view, VIEW_SIDE_PX, &[]), view)?;
        }
    }
    write_facings(&clip, &places.truth, &known)?;
    Ok(known.iter().map(|sku| sku.slug()).collect())
}

/// Which SKUs are enrolled. Strangers are of families of their own where there are enough, so that
/// none is a mere variant of what is known.
fn split(skus: &[Sku]) -> (Vec<Sku>, Vec<Sku>) {
    let alone = |sku: &&Sku| skus.iter().filter(|s| s.family() == sku.family()).count() == 1;
    let strangers: Vec<Sku> = skus
        .iter()
        .rev()
        .filter(alone)
        .take(STRANGERS)
        .copied()
        .collect();
    let known = skus.iter().filter(|s| !strangers.contains(s)).copied();
    (known.collect(), strangers)
}

/// Runs a command as if it had been typed, without its own results on standard output, and with what is
/// built in alone, whatever a settings file in this folder says.
fn step(words: &[String], printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    let typed = ["shelfscan", "--no-config"]
        .into_iter()
        .map(str::to_owned)
        .chain(words.iter().cloned());
    let cli = Cli::try_parse_from(typed)?;
    super::run(cli, &Arc::new(printer.without_data()))
}

#[derive(Deserialize)]
struct CountRow {
    sku: String,
    facings: u64,
}

fn read_counts(path: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut table =
        csv::Reader::from_path(path).with_context(|| format!("reading {}", path.display()))?;
    let mut counts = BTreeMap::new();
    for row in table.deserialize() {
        let row: CountRow = row.with_context(|| format!("reading {}", path.display()))?;
        *counts.entry(row.sku).or_default() += row.facings;
    }
    Ok(counts)
}

/// The table of facings against truth and where to look next.
fn summary(
    truth: &Truth,
    counts: &BTreeMap<String, u64>,
    known: &BTreeSet<String>,
    plays: u32,
    scanned: f64,
    report: &Path,
) -> String {
    let mut table = Table::new([
        ("SKU", Align::Left),
        ("on the shelf", Align::Right),
        ("counted", Align::Right),
    ]);
    let of = |counts: &BTreeMap<String, u64>, sku: &str| counts.get(sku).copied().unwrap_or(0);
    for sku in known {
        let row = [
            clean_cell(sku),
            of(&truth.skus, sku).to_string(),
            of(counts, sku).to_string(),
        ];
        table.row(row);
    }
    let counted: u64 = counts.values().sum();
    table.row([
        "unknown".into(),
        truth.strangers().to_string(),
        of(counts, "").to_string(),
    ]);
    table.row(["all".into(), truth.facings.to_string(), counted.to_string()]);
    format!(
        "{table}\nThe clip plays {plays} s; enrolling and scanning it took {scanned:.1} s.\nReport: {}\n",
        report.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_no_variants_of_what_is_enrolled() {
        for seed in 0..20 {
            let skus = pick_skus(HELD_OUT_FROM + seed, SKUS);
            let (known, strangers) = split(&skus);
            assert_eq!(known.len() + strangers.len(), SKUS);
            assert_eq!(strangers.len(), STRANGERS, "seed {seed}");
            for stranger in strangers {
                assert!(known.iter().all(|k| k.family() != stranger.family()));
            }
        }
    }
}
