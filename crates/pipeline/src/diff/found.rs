//! Which results are compared with which.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{PipelineError, Result, journal::names};

/// The results of one source.
pub(super) struct Recorded {
    pub(super) detections: PathBuf,
    /// The folder, unless a bare file was given.
    pub(super) dir: Option<PathBuf>,
}

pub(super) enum Found {
    One(String, Recorded),
    Many(BTreeMap<String, Recorded>),
}

pub(super) struct Pair {
    pub(super) name: String,
    pub(super) expected: Option<Recorded>,
    pub(super) actual: Option<Recorded>,
}

pub(super) fn find(path: &Path) -> Result<Found> {
    let name = |path: &Path| {
        path.file_name().map_or_else(
            || path.display().to_string(),
            |n| n.to_string_lossy().into_owned(),
        )
    };
    let recorded = |dir: &Path| Recorded {
        detections: dir.join(names::DETECTIONS),
        dir: Some(dir.to_owned()),
    };
    if path.is_file() {
        let file = Recorded {
            detections: path.to_owned(),
            dir: None,
        };
        return Ok(Found::One(name(path), file));
    }
    if holds_run(path) {
        return Ok(Found::One(name(path), recorded(path)));
    }
    let entries = fs::read_dir(path).map_err(PipelineError::io("listing the folder", path))?;
    let mut many = BTreeMap::new();
    for entry in entries {
        let dir = entry
            .map_err(PipelineError::io("listing the folder", path))?
            .path();
        if holds_run(&dir) {
            many.insert(name(&dir), recorded(&dir));
        }
    }
    if many.is_empty() {
        return Err(PipelineError::Usage(format!(
            "there is no run to compare; give the --out folder of a scan, the folder of one source, or a {}: {}",
            names::DETECTIONS,
            path.display()
        )));
    }
    Ok(Found::Many(many))
}

fn holds_run(dir: &Path) -> bool {
    dir.join(names::RUN).is_file() || dir.join(names::DETECTIONS).is_file()
}

pub(super) fn pair_up(
    expected: Found,
    actual: Found,
    expected_path: &Path,
    actual_path: &Path,
) -> Result<Vec<Pair>> {
    let only = |many: BTreeMap<String, Recorded>, path: &Path| {
        let count = many.len();
        let mut all = many.into_iter();
        match (all.next(), count) {
            (Some(one), 1) => Ok(one),
            _ => Err(PipelineError::Usage(format!(
                "one source cannot be compared with {count}; name one of the folders in it: {}",
                path.display()
            ))),
        }
    };
    let (expected, actual) = match (expected, actual) {
        (Found::Many(mut expected), Found::Many(mut actual)) => {
            let folders: BTreeSet<String> = expected.keys().chain(actual.keys()).cloned().collect();
            return Ok(folders
                .into_iter()
                .map(|name| Pair {
                    expected: expected.remove(&name),
                    actual: actual.remove(&name),
                    name,
                })
                .collect());
        }
        (Found::One(_, expected), Found::One(name, actual)) => (expected, (name, actual)),
        (Found::Many(many), Found::One(name, actual)) => {
            (only(many, expected_path)?.1, (name, actual))
        }
        (Found::One(_, expected), Found::Many(many)) => (expected, only(many, actual_path)?),
    };
    Ok(vec![Pair {
        name: actual.0,
        expected: Some(expected),
        actual: Some(actual.1),
    }])
}
