//! Scans one video with replayed detections and prints its facings.
//!
//! `cargo run -p shelfscan-pipeline --example scan_file -- clip.mp4 detections.jsonl out`

#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path};

use shelfscan_pipeline::{Existing, ReplayFiles, ReplayProvider, ScanOptions, ScanPlan, Scanner};
use shelfscan_video::Source;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [clip, detections, out] = arguments.as_slice() else {
        return Err("give a video, a detections.jsonl and an output folder".into());
    };

    let sources = vec![Source::parse(clip)?];
    let plan = ScanPlan::new(ScanOptions::default(), sources, Some(Path::new(out)), None)?;
    let provider = ReplayProvider::new(ReplayFiles::Single(detections.into()), false);
    let mut scanner = Scanner::new(plan, Box::new(provider)).with_existing(Existing::Resume);

    let report = scanner.run()?;
    for source in &report.sources {
        println!("{}: {:?}", source.run.source, source.run.status);
        for facing in &source.facings {
            println!(
                "  facing {:>3}  {}  {:.1} to {:.1} s  {:?}",
                facing.facing_id.0,
                facing.label,
                facing.first_secs,
                facing.last_secs,
                facing.identity.sku.as_deref().unwrap_or("unknown"),
            );
        }
    }
    Ok(())
}
