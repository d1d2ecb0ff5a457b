//! The commands around a scan.

use std::path::Path;

use crate::support::Place;

#[test]
fn a_run_equals_itself_and_a_changed_one_is_over_the_tolerance() {
    let place = Place::new();
    place.pan("a", 3, 10);
    place.sh("scan a.y4m --detections truth --out one").exits(0);
    place.sh("scan a.y4m --detections truth --out two").exits(0);
    let ran = place.sh("diff one two").exits(0);
    assert!(
        ran.stdout
            .ends_with("1 of 1 sources are within the tolerances\n"),
        "{}",
        ran.stdout
    );

    let path = "two/a.y4m/detections.jsonl";
    let mut lines = place.lines(path);
    let first = &mut lines[4]["detections"][0];
    for side in 0..4 {
        let moved = first["box"][side].as_f64().unwrap() + 2.5;
        first["box"][side] = moved.into();
    }
    first["score"] = 0.5.into();
    lines[6]["detections"].as_array_mut().unwrap().remove(0);
    let text: String = lines.iter().map(|l| l.to_string() + "\n").collect();
    place.write(path, text);
    let ran = place.sh("diff one two").exits(1);
    for line in [
        "a.y4m: over; 10 frames and ",
        "  1 detections are missing and 0 extra, up to 1 in a frame, where 0 are tolerated",
        "  1 boxes moved by more than 1 px, the furthest by 2.50",
        "  1 scores moved by more than 0.01, the furthest by 0.4000",
        "    frame 4: 1 moved, 1 rescored; up to 2.50 px and 0.4000",
        "    frame 6: 1 missing; up to 0.00 px and 0.0000",
    ] {
        let said = ran.stdout.lines().any(|l| l.starts_with(line));
        assert!(said, "{line}\n{}", ran.stdout);
    }
    assert!(
        ran.stdout
            .ends_with("\n1 of 1 sources are over the tolerances\n"),
        "{}",
        ran.stdout
    );
    // Folder of a source, bare files and a mix are compared alike.
    for pair in ["one/a.y4m two/a.y4m", "one two/a.y4m/detections.jsonl"] {
        let ran = place.sh(&format!("diff {pair}")).exits(1);
        assert!(
            ran.stdout.contains("frame 4: 1 moved, 1 rescored"),
            "{}",
            ran.stdout
        );
    }
    let report = place.sh("diff one two --json").exits(1).json();
    assert_eq!(report["sources"][0]["totals"]["moved"], 1);
    assert_eq!(report["within"], false);
    place
        .sh("diff one two --box-px 3 --score 0.5 --count 1")
        .exits(0);
    place.write(
        "shelfscan.toml",
        "[diff]\nbox-px = 3\nscore = 0.5\ncount = 1\n",
    );
    place.sh("diff one two").exits(0);
    place.sh("diff one two --box-px 2").exits(1);
    place.sh("diff one nothing").exits(2);
    place.sh("diff one two --min-iou 0").exits(2);
}

#[test]
fn a_source_is_probed_as_text_and_as_json_and_a_bad_one_is_named() {
    let place = Place::new();
    place.pan("a", 3, 4);
    let ran = place.sh("probe a.y4m").exits(0);
    assert!(ran.stdout.contains("size      320x240"), "{}", ran.stdout);
    let report = place.sh("probe a.y4m --json").exits(0).json();
    assert_eq!(report["sources"][0]["info"]["width"], 320);
    place.write("b.mp4", "");
    let ran = place.sh("probe a.y4m b.mp4").exits(1);
    assert!(
        ran.stdout.contains("error     the file is empty"),
        "{}",
        ran.stdout
    );
    place.sh("probe none.mp4").exits(2);
    place.sh("probe").exits(2);
    let report = place.sh("probe --cameras --json").exits(0).json();
    assert!(report["cameras"].is_array());
}

#[test]
fn a_camera_that_is_not_there_is_named_with_those_that_are() {
    let place = Place::new();
    place.write("none.jsonl", "");
    let ran = place.sh("scan --camera 97 --detections none.jsonl --out out --max-frames 3");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("camera 97 does not open") || ran.stdout.contains("ffmpeg is needed"),
        "{}",
        ran.stdout
    );
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = place.sh(&format!("completions {shell}")).exits(0);
        assert!(
            ran.stdout.contains("overwrite") && ran.stdout.contains("shelfscan"),
            "{shell}"
        );
    }
    place.sh("completions tcsh").exits(2);
}

#[test]
fn the_manual_is_one_page_or_a_page_for_every_command() {
    let place = Place::new();
    let ran = place.sh("man").exits(0);
    assert!(ran.stdout.contains(".TH shelfscan 1"), "{}", ran.stdout);
    place.sh("man --dir pages").exits(0);
    for page in ["shelfscan.1", "shelfscan-scan.1", "shelfscan-gallery-add.1"] {
        assert!(place.path("pages").join(page).is_file(), "{page}");
    }
}

#[test]
fn the_reference_of_the_command_line_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let made = Place::new().sh("man --markdown").exits(0).stdout;
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference/cli.md is out of date; make it with `cargo run -p shelfscan-cli -- man --markdown > docs/reference/cli.md`"
    );
}

#[test]
fn the_help_lists_the_commands_and_a_slip_gets_the_nearest() {
    let place = Place::new();
    let help = place.sh("--help").exits(0).stdout;
    insta::assert_snapshot!(help, @r"
    Says which products stand on a shelf, how many facings each has and where, from recorded video or a
    camera, and what it does not know

    Usage: shelfscan [OPTIONS] <COMMAND>

    Commands:
      demo         Draw a shelf, enrol its products, scan it and hold the counts against the truth: a
                   first look that needs nothing but this program
      scan         Find, follow, identify and count products in videos, pictures or a camera's view
      probe        Say what is in a source, or which cameras there are
      report       Make a page with counts, pictures and a timeline out of the results of a scan
      diff         Compare two runs and say what moved
      enroll       Make a gallery out of a folder with one folder of pictures per SKU
      gallery      Look after a gallery
      eval         Measure how well something works on pictures whose answers are known
      models       Get the large models, and see which are there
      doctor       Say what this program and this machine can do, and try the models on a picture whose
                   packs are known
      synth        Draw a clip of a shelf with its exact truth, and pictures to enrol its products with
      completions  Print a completion script for a shell
      man          Print the manual
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
      -v, --verbose...     Say more about what is going on; twice for every detail
      -q, --quiet          Say nothing but errors and results
          --config <FILE>  Take settings from this file rather than from shelfscan.toml in the current
                           folder
          --no-config      Take settings from no file

    Exit codes: 0 done; 1 a source failed or is incomplete, or a check failed; 2 usage or configuration;
    3 unexpected; 130 interrupted, go on with --resume.

    Results go to standard output and --out, words about them to standard error.
    ");
    let ran = place.sh("scna a.mp4").exits(2);
    assert!(ran.stderr.contains("'scan'"), "{}", ran.stderr);
    let ran = place.sh("scan a.mp4 --out o --promt x").exits(2);
    assert!(ran.stderr.contains("--prompt"), "{}", ran.stderr);
    let ran = place.sh("scan no-such.mp4 --out o").exits(2);
    insta::assert_snapshot!(ran.stderr, @"error: no such file or folder; check the path: no-such.mp4");
    assert!(
        place
            .sh("--version")
            .exits(0)
            .stdout
            .starts_with("shelfscan ")
    );
    place.sh("").exits(2);
}
