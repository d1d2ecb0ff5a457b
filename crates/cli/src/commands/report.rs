//! `report`: the results of a scan as one page for people.

use std::path::{Path, PathBuf};

use shelfscan_pipeline::names;
use shelfscan_video::ReadOptions;

use crate::{
    args::{Prefer, ReportArgs},
    config::Config,
    exit::Exit,
    printer::{Printer, clean},
    report::{Report, Truth, default_path},
    resolve,
};

pub(crate) fn run(args: ReportArgs, config: Config, printer: &Printer) -> anyhow::Result<Exit> {
    let reader = resolve::read_options(&args.reader.prefer(config.reader));
    let mut report = Report::read(&args.run)?
        .with_key_frames(args.key_frames)
        .with_reader(reader);
    if let Some(path) = &args.truth {
        report = report.with_truth(Truth::read_csv(path)?);
    }
    let out = args.out.unwrap_or_else(|| default_path(&args.run));
    report.write_html(&out)?;
    printer.data(&format!("{}\n", clean(&out.display().to_string())))?;
    Ok(Exit::Done)
}

/// Writes a page into each of the folders that hold a run. Returns false, having told why, when one
/// could not be written.
pub(crate) fn write_beside(folders: &[PathBuf], reader: &ReadOptions, printer: &Printer) -> bool {
    let write = |dir: &Path| {
        Report::read(dir)?
            .with_reader(reader.clone())
            .write_html(&default_path(dir))
    };
    let mut all = true;
    for dir in folders.iter().filter(|dir| dir.join(names::RUN).is_file()) {
        if let Err(error) = write(dir) {
            printer.warning(&format!("{error:#}"));
            all = false;
        }
    }
    all
}
