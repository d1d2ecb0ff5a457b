//! Finds the reference data that may lie beside the checkout.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

/// The folder `shared` beside the workspace root, when it is there.
pub fn dir() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let shared = workspace.parent()?.join("shared");
    shared.is_dir().then_some(shared)
}

/// One file below [`dir`], when it is there.
pub fn file(relative: &str) -> Option<PathBuf> {
    let path = dir()?.join(relative);
    path.is_file().then_some(path)
}

/// Says in one line on standard error that a check was left out and what it needs.
///
/// The line is written past the test harness's capture, so that a skipped test is seen.
pub fn skip_line(what: &str) {
    // A closed standard error must not fail a test that has nothing else to say.
    drop(writeln!(std::io::stderr(), "skipped: {what}"));
}
