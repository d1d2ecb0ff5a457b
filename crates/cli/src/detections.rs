//! Finding the recorded detections of each source.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use shelfscan_pipeline::{ReplayFiles, ScanPlan, names, read_run};

use crate::{exit::Usage, printer::Printer};

/// What `--detections` means for the sources of a plan: a file for the only source, or the
/// `--out` folder of an earlier scan with a file for each.
pub(crate) fn find(path: &Path, plan: &ScanPlan, printer: &Printer) -> anyhow::Result<ReplayFiles> {
    let many = plan.sources.len();
    let bare = if path.is_dir() {
        path.join(names::DETECTIONS)
    } else {
        path.to_owned()
    };
    if bare.is_file() {
        if many > 1 {
            let error = Usage::new(format!(
                "one file of detections cannot serve {many} sources: {}",
                bare.display()
            ));
            return Err(error
                .hint("give the --out folder of the scan that made them, or scan one source")
                .into());
        }
        check_apart(&bare, plan)?;
        return Ok(ReplayFiles::Single(bare));
    }
    if !path.is_dir() {
        let error = Usage::new(format!("there are no detections here: {}", path.display()));
        return Err(error
            .hint("--detections takes a detections.jsonl or the --out folder of an earlier scan")
            .into());
    }
    let mut files = BTreeMap::new();
    let mut missing = Vec::new();
    let recorded = by_source(path);
    for source in &plan.sources {
        let named = recorded.get(source.source.id().as_str());
        let folder = named.map_or_else(|| path.join(&source.folder), Clone::clone);
        let file = folder.join(names::DETECTIONS);
        if file.is_file() {
            check_apart(&file, plan)?;
            files.insert(source.source.id(), file);
        } else {
            missing.push(file);
        }
    }
    if let Some(first) = missing.first() {
        if files.is_empty() && many > 0 {
            let error = Usage::new(format!(
                "none of the sources has detections there; looked for {}",
                first.display()
            ));
            return Err(error
                .hint("the folders below --detections have to be named as those of this scan; --dry-run shows the names")
                .into());
        }
        printer.warning(&format!(
            "{} of {many} sources have no detections and will fail; the first looked for is {}",
            missing.len(),
            first.display()
        ));
    }
    Ok(ReplayFiles::PerSource(files))
}

/// The folders of an earlier scan by the source their runs name.
fn by_source(out: &Path) -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
        .into_iter()
        .filter_map(|folder| {
            let run = read_run(&folder).ok()??;
            Some((run.source, folder))
        })
        .collect()
}

/// Refuses to read detections from where the scan is about to write its own.
fn check_apart(file: &Path, plan: &ScanPlan) -> anyhow::Result<()> {
    let Some(out) = &plan.out else {
        return Ok(());
    };
    let real = |path: &Path| path.canonicalize().ok();
    let clash = plan.sources.iter().any(|source| {
        let own = out.join(&source.folder).join(names::DETECTIONS);
        real(&own).is_some_and(|own| Some(own) == real(file))
    });
    if clash {
        let error = Usage::new(format!(
            "the detections would be overwritten by the scan's own: {}",
            file.display()
        ));
        return Err(error.hint("name another --out").into());
    }
    Ok(())
}
