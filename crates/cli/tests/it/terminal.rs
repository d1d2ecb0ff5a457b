//! What is written where, and how.

use std::{io::Read, process::Stdio};

use crate::support::{Place, finish};

#[test]
fn off_a_terminal_there_are_plain_lines_on_standard_error_and_none_on_standard_output() {
    let place = Place::new();
    place.pan("a", 3, 40);
    let ran = place
        .sh("scan a.y4m --detections truth --out out --progress-secs 0.02")
        .exits(0);
    let lines: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|l| l.starts_with("[1/1] a.y4m: "))
        .collect();
    assert!(lines.len() >= 2, "{}", ran.stderr);
    assert!(
        lines
            .iter()
            .any(|l| l.contains("of 40") && l.contains("frames/s")),
        "{lines:?}"
    );
    assert!(!ran.stdout.contains("frames/s"), "{}", ran.stdout);

    // By default a line comes at most every ten seconds, so this short scan has none.
    let ran = place
        .sh("scan a.y4m --detections truth --out out2")
        .exits(0);
    assert!(!ran.stderr.contains("frames/s"), "{}", ran.stderr);
    let ran = place
        .sh("scan a.y4m --detections truth --out out3 --progress-secs 0.02 -q")
        .exits(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn piped_output_holds_no_escape_codes() {
    let place = Place::new();
    place.pan("a", 3, 10);
    place.write("b.y4m", "");
    let ran = place
        .sh("scan a.y4m b.y4m --detections truth --out out --progress-secs 0.02 -vv")
        .exits(1);
    assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
}

/// Runs a failing scan with standard error on a terminal; returns what the terminal got.
#[cfg(target_os = "linux")]
fn on_a_terminal(variable: Option<(&str, &str)>) -> String {
    use std::os::unix::ffi::OsStrExt;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let place = Place::new();
    place.pan("a", 3, 10);
    place.write("b.y4m", "");
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&own).unwrap();
    unlockpt(&own).unwrap();
    let name = ptsname(&own, Vec::new()).unwrap();
    let other = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(std::ffi::OsStr::from_bytes(name.as_bytes()))
        .unwrap();
    let mut command = place.command("scan a.y4m b.y4m --detections truth --out out".split(' '));
    command
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(other);
    if let Some((name, value)) = variable {
        command.env(name, value);
    }
    let mut child = command.spawn().unwrap();
    // The last open end of the terminal has to be the child's, or reading never ends.
    drop(command);
    let reader = std::thread::spawn(move || {
        let mut own = std::fs::File::from(own);
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        // Reading fails, rather than ends, once the other end is closed.
        while let Ok(n) = own.read(&mut buffer) {
            if n == 0 {
                break;
            }
            text.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    assert_eq!(child.wait().unwrap().code(), Some(1));
    reader.join().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colour_and_a_bar_unless_the_surroundings_say_otherwise() {
    let colour = "\u{1b}[1;33mwarning:";
    let text = on_a_terminal(None);
    assert!(text.contains(colour), "{text:?}");
    let text = on_a_terminal(Some(("NO_COLOR", "1")));
    assert!(
        text.contains("warning:") && !text.contains("\u{1b}[1;3"),
        "{text:?}"
    );
    for variable in [("CI", "true"), ("TERM", "dumb")] {
        let text = on_a_terminal(Some(variable));
        assert!(
            text.contains("warning:") && !text.contains('\u{1b}'),
            "{variable:?}: {text:?}"
        );
    }
}

#[test]
fn a_closed_pipe_ends_quietly_with_zero() {
    let place = Place::new();
    place.pan("a", 3, 4);
    for line in [
        "scan a.y4m --detections truth --out out",
        "completions bash",
        "man --markdown",
        "probe a.y4m",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(line.split(' '));
        let ran = finish(command.stdout(writer));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        assert!(
            !ran.stderr.contains("error") && !ran.stderr.contains("panic"),
            "{}",
            ran.stderr
        );
    }
    // The results are on disk all the same.
    assert_eq!(place.json("out/summary.json")["status"], "complete");
}

#[cfg(unix)]
#[test]
fn names_with_control_characters_are_printed_safely() {
    let place = Place::new();
    place.pan("plain", 3, 4);
    let name = "ev\u{1b}[31mil\nerror: fake\u{202e}gnp.y4m";
    std::fs::rename(place.path("plain.y4m"), place.path(name)).unwrap();
    let plan = place
        .run(["scan", name, "--out", "out", "--dry-run"])
        .exits(0)
        .json();
    let folder = plan["sources"][0]["folder"].as_str().unwrap().to_owned();
    std::fs::rename(
        place.path("truth/plain.y4m"),
        place.path("truth").join(&folder),
    )
    .unwrap();
    let args = [
        "scan",
        name,
        "--out",
        "out",
        "--detections",
        "truth",
        "--progress-secs",
        "0.01",
        "-v",
    ];
    let ran = place.run(args).exits(0);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text:?}"
        );
        assert!(!text.lines().any(|l| l.starts_with("error:")), "{text:?}");
    }
    assert!(ran.stdout.contains("ev�[31mil"), "{}", ran.stdout);
    // The file itself holds the true name.
    assert_eq!(place.json("out/summary.json")["sources"][0]["source"], name);
    let ran = place.run(["probe", "no\u{1b}where.mp4"]).exits(2);
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
}
