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
    insta::assert_snapshot!(ran.stdout, @"");
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
    insta::assert_snapshot!(help, @"");
    let ran = place.sh("scna a.mp4").exits(2);
    assert!(ran.stderr.contains("'scan'"), "{}", ran.stderr);
    let ran = place.sh("scan a.mp4 --out o --promt x").exits(2);
    assert!(ran.stderr.contains("--prompt"), "{}", ran.stderr);
    let ran = place.sh("scan no-such.mp4 --out o").exits(2);
    insta::assert_snapshot!(ran.stderr, @"");
    assert!(
        place
            .sh("--version")
            .exits(0)
            .stdout
            .starts_with("shelfscan ")
    );
    place.sh("").exits(2);
}
