//! Scans that are killed, interrupted and resumed.
#![cfg(unix)]

use std::{
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shelfscan_testkit::seeded::Seeded;

use crate::support::{Place, Ran, assert_same};

/// Frames of the clip that scans are broken off in.
const FRAMES: u32 = 90;

const SCAN: &str = "scan a.y4m --detections truth --annotate frames";

/// Waits until the journal has `lines` whole lines; false when the scan ended before.
fn wait_for_lines(journal: &Path, lines: usize, child: &mut Child) -> bool {
    loop {
        let bytes = std::fs::read(journal).unwrap_or_default();
        if bytes.split(|b| *b == b'\n').count() > lines {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(place: &Place, out: &str) -> Child {
    place
        .command(format!("{SCAN} --out {out}").split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The whole lines of a journal, each of which has to parse, and their number.
fn whole_lines(place: &Place, out: &str) -> usize {
    let text = place.read(format!("{out}/a.y4m/detections.jsonl"));
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    for (number, line) in whole.lines().enumerate() {
        let value: Value = serde_json::from_str(line)
            .unwrap_or_else(|e| panic!("line {number} does not parse: {e}"));
        assert_eq!(value["frame_index"], number as u64);
    }
    whole.lines().count()
}

#[test]
fn a_scan_killed_at_ten_random_frames_and_resumed_equals_an_unbroken_one() {
    let place = Place::new();
    place.pan("a", 3, FRAMES);
    place.sh(&format!("{SCAN} --out unbroken")).exits(0);
    let unbroken = place.results("unbroken/a.y4m");
    let mut rng = Seeded::new(20);
    let mut broken = 0;
    for _ in 0..10 {
        let out = "broken";
        let at = 1 + rng.below(FRAMES - 10) as usize;
        let mut child = start(&place, out);
        let journal = place.path(format!("{out}/a.y4m/detections.jsonl"));
        let in_time = wait_for_lines(&journal, at, &mut child);
        child.kill().unwrap();
        wait(child);
        let lines = whole_lines(&place, out);
        let status = place.json(format!("{out}/a.y4m/run.json"))["status"].clone();
        let summary = place.json(format!("{out}/summary.json"))["status"].clone();
        if in_time && lines < FRAMES as usize {
            broken += 1;
            assert_eq!((status, summary), ("running".into(), "running".into()));
        }
        place.sh(&format!("{SCAN} --out {out} --resume")).exits(0);
        assert_same(&unbroken, &place.results("broken/a.y4m"));
        assert_eq!(place.json("broken/summary.json")["status"], "complete");
        std::fs::remove_dir_all(place.path(out)).unwrap();
    }
    assert!(
        broken >= 5,
        "only {broken} of 10 scans were caught in the middle"
    );
}

#[test]
fn an_interrupt_ends_with_130_and_a_journal_that_can_be_resumed() {
    let place = Place::new();
    place.pan("a", 3, FRAMES);
    place.sh(&format!("{SCAN} --out unbroken")).exits(0);
    let mut child = start(&place, "out");
    let journal = place.path("out/a.y4m/detections.jsonl");
    assert!(wait_for_lines(&journal, 5, &mut child));
    signal(&child, Signal::INT);
    let ran = wait(child).exits(130);
    assert!(
        ran.stderr.contains("stopping after the frame at hand"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("--resume"), "{}", ran.stderr);
    assert!(ran.stdout.contains("interrupted"), "{}", ran.stdout);
    assert!(whole_lines(&place, "out") < FRAMES as usize);
    let run = place.json("out/a.y4m/run.json");
    assert_eq!(run["status"], "interrupted");
    assert_eq!(place.json("out/summary.json")["status"], "interrupted");
    place.sh(&format!("{SCAN} --out out --resume")).exits(0);
    assert_same(
        &place.results("unbroken/a.y4m"),
        &place.results("out/a.y4m"),
    );
}

#[test]
fn a_page_of_an_interrupted_or_killed_scan_says_so_and_shows_what_is_there() {
    let place = Place::new();
    place.pan("a", 3, FRAMES);
    for (how, out, status, code) in [
        (Signal::INT, "asked", "interrupted", 130),
        (Signal::KILL, "killed", "running", -1),
    ] {
        let mut child = start(&place, out);
        let journal = place.path(format!("{out}/a.y4m/detections.jsonl"));
        assert!(wait_for_lines(&journal, 8, &mut child));
        signal(&child, how);
        wait(child).exits(code);
        place.sh(&format!("report {out}/a.y4m")).exits(0);
        let html = place.read(format!("{out}/a.y4m/report.html"));
        let line = format!("<span class=\"status {status}\">{status}</span>");
        assert!(html.contains(&line), "{status}");
        assert!(
            html.contains("src=\"data:image/jpeg;base64,"),
            "views of {out}"
        );
        assert_eq!(
            html.contains("go on with the same command and --resume"),
            how == Signal::KILL
        );
        place.sh(&format!("{SCAN} --out {out} --resume")).exits(0);
        place.sh(&format!("report {out}/a.y4m")).exits(0);
        let html = place.read(format!("{out}/a.y4m/report.html"));
        assert!(html.contains("status complete"));
    }
}

#[test]
fn a_request_to_terminate_is_an_interrupt_too_and_later_sources_are_not_started() {
    let place = Place::new();
    place.pan("a", 3, FRAMES);
    place.pan("b", 4, 4);
    let mut child = place
        .command("scan a.y4m b.y4m --detections truth --out out".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_for_lines(
        &place.path("out/a.y4m/detections.jsonl"),
        2,
        &mut child
    ));
    signal(&child, Signal::TERM);
    wait(child).exits(130);
    let summary = place.json("out/summary.json");
    assert_eq!(summary["sources"][0]["status"], "interrupted");
    assert_eq!(summary["sources"][1]["status"], "not_started");
}

#[test]
fn a_resumed_scan_has_to_be_asked_the_same() {
    let place = Place::new();
    place.pan("a", 3, 6);
    place
        .sh("scan a.y4m --detections truth --out out --max-frames 3")
        .exits(0);
    place
        .sh("scan a.y4m --detections truth --out out --max-frames 5 --resume")
        .exits(1)
        .gives("`read.max_frames` was set otherwise");
    assert_eq!(place.lines("out/a.y4m/detections.jsonl").len(), 3);
}

#[test]
fn a_resumed_scan_has_to_look_at_frames_the_same_way() {
    let place = Place::new();
    place.pan("a", 3, 4);
    place
        .sh("scan a.y4m --tiles off --out out --max-frames 2")
        .exits(0);
    let run = place.json("out/a.y4m/run.json");
    let look = run["provider"]["models"][0]["preprocessing"]
        .as_str()
        .unwrap();
    assert!(look.ends_with("/tiles-off/duplicates-0.5"), "{look}");
    for other in ["--tiles auto", "--tiles off --duplicate-overlap 0.7"] {
        place
            .sh(&format!(
                "scan a.y4m {other} --out out --max-frames 2 --resume"
            ))
            .exits(1)
            .gives("frames were looked at otherwise");
    }
}
