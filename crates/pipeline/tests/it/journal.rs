//! Stopping at any point and going on gives what an unbroken run gives.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use serde_json::Value;
use shelfscan_pipeline::{
    CancelHandle, Existing, Identify, Progress, RunStatus, ScanObserver, ScanOptions, names,
};

use crate::{
    drawn::{Drawn, only, pan},
    identity::ByColour,
};

struct StopAfter {
    frames: u64,
    stop: CancelHandle,
}

impl ScanObserver for StopAfter {
    fn progress(&self, progress: &Progress<'_>) {
        if progress.frames >= self.frames {
            self.stop.cancel();
        }
    }
}

/// All files of a folder, timings aside.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let mut bytes = fs::read(&path).unwrap();
            if name.ends_with(names::RUN) {
                let mut run: Value = serde_json::from_slice(&bytes).unwrap();
                run["timings"] = Value::Null;
                bytes = serde_json::to_vec(&run).unwrap();
            }
            files.insert(name, bytes);
        }
    }
    files
}

fn run(
    drawn: &Drawn,
    out: &Path,
    existing: Existing,
    stop_after: Option<u64>,
    workers: usize,
) -> RunStatus {
    let mut options = ScanOptions::default();
    options.identity.workers = workers;
    options.identity.batch = 4;
    let identify: Arc<dyn Identify> = Arc::new(ByColour::default());
    let mut scanner = drawn
        .scanner(options, Some(out))
        .with_existing(existing)
        .with_identity(identify);
    if let Some(frames) = stop_after {
        let stop = scanner.cancel_handle();
        scanner = scanner.with_observer(Arc::new(StopAfter { frames, stop }));
    }
    only(scanner.run().unwrap()).run.status
}

#[test]
fn a_scan_stopped_at_ten_places_and_resumed_equals_an_unbroken_one() {
    let drawn = pan(60);
    let whole = drawn.out("whole");
    assert_eq!(
        run(&drawn, &whole, Existing::Refuse, None, 2),
        RunStatus::Complete
    );
    let expected = content(&whole);
    assert!(expected.keys().any(|k| k.contains("crops/")));

    let broken = drawn.out("broken");
    let mut existing = Existing::Refuse;
    for stop in [1, 4, 9, 15, 22, 30, 31, 44, 58, 59] {
        let status = run(&drawn, &broken, existing, Some(stop), 2);
        assert_eq!(status, RunStatus::Interrupted);
        existing = Existing::Resume;
        // A kill may also cut the line that was being written.
        let journal = broken.join("clip.y4m").join(names::DETECTIONS);
        let mut bytes = fs::read(&journal).unwrap();
        bytes.truncate(bytes.len() - (stop as usize * 7) % 40);
        fs::write(&journal, bytes).unwrap();
    }
    assert_eq!(
        run(&drawn, &broken, Existing::Resume, None, 2),
        RunStatus::Complete
    );
    assert_eq!(content(&broken), expected);
}

#[test]
fn one_and_eight_threads_write_the_same_bytes() {
    let drawn = pan(40);
    let (one, eight) = (drawn.out("one"), drawn.out("eight"));
    run(&drawn, &one, Existing::Refuse, None, 1);
    run(&drawn, &eight, Existing::Refuse, None, 8);
    assert_eq!(content(&one), content(&eight));
}

#[test]
fn a_finished_source_is_not_scanned_again() {
    let drawn = pan(20);
    let out = drawn.out("out");
    run(&drawn, &out, Existing::Refuse, None, 1);
    let before = content(&out);
    fs::remove_file(drawn.dir.path().join("clip.y4m")).unwrap();
    assert_eq!(
        run(&drawn, &out, Existing::Resume, None, 1),
        RunStatus::Complete
    );
    assert_eq!(content(&out), before);
}

#[test]
fn a_folder_that_holds_a_run_is_refused_and_left_as_it_is() {
    let drawn = pan(20);
    let out = drawn.out("out");
    run(&drawn, &out, Existing::Refuse, None, 1);
    let before = content(&out);
    assert_eq!(
        run(&drawn, &out, Existing::Refuse, None, 1),
        RunStatus::Failed
    );
    assert_eq!(content(&out), before);
}
