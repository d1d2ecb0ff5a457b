//! `shelfscan.toml`, below the flags and above the defaults.

use crate::support::Place;

/// Every key of this version, as a user's file may hold them. It may grow, and never shrink: files
/// that parse today have to parse in the next version.
const EVERY_KEY: &str = include_str!("every_key.toml");

#[test]
fn flags_stand_above_the_file_and_the_file_above_the_defaults() {
    let place = Place::new();
    place.pan("a", 3, 4);
    place.write(
        "shelfscan.toml",
        "[scan]\nevery = 3\nmin-score = 0.25\nprompt = [\"can\"]\nno-masks = true\n",
    );
    let plan = |line: &str| {
        place
            .sh(&format!("scan a.y4m --out out --dry-run {line}"))
            .exits(0)
            .json()["options"]
            .clone()
    };
    let from_file = plan("");
    assert_eq!(from_file["read"]["every"], 3);
    assert_eq!(from_file["min_score"], 0.25);
    assert_eq!(from_file["prompts"][0]["phrase"], "can");
    assert_eq!(from_file["outputs"]["masks"], false);
    assert_eq!(from_file["max_detections"], 1000);
    let typed = plan("--every 2 --prompt bottle --no-masks=false");
    assert_eq!(typed["read"]["every"], 2);
    assert_eq!(typed["prompts"].as_array().unwrap().len(), 1);
    assert_eq!(typed["prompts"][0]["phrase"], "bottle");
    assert_eq!(typed["outputs"]["masks"], true);
    assert_eq!(typed["min_score"], 0.25);
    assert_eq!(plan("--fps 2")["read"]["every"], 1);
    assert_eq!(plan("--no-config")["read"]["every"], 1);
    place.write("other.toml", "[scan]\nevery = 7\n");
    assert_eq!(plan("--config other.toml")["read"]["every"], 7);
    place
        .sh("scan a.y4m --out out --dry-run --config none.toml")
        .exits(2);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place.write(
        "shelfscan.toml",
        "# shop 7\n[scan]\nevery = 3\nmin-scor = 0.25\n",
    );
    let ran = place.sh("scan a.y4m --out out --dry-run").exits(2);
    insta::assert_snapshot!(ran.stderr, @r"
    error: unknown key `min-scor` in [scan]: line 4 of shelfscan.toml
    hint: did you mean `min-score`?
    ");
    place.write("shelfscan.toml", "[scan]\nevery = \"three\"\n");
    let ran = place.sh("scan a.y4m --out out --dry-run").exits(2);
    assert!(
        ran.stderr.contains("line 2 of shelfscan.toml"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_file_with_every_key_of_this_version_is_understood() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place.write("shelfscan.toml", EVERY_KEY);
    let plan = place.sh("scan a.y4m --out out --dry-run").exits(0).json();
    assert_eq!(plan["options"]["associate"]["confirm_hits"], 4);
    assert_eq!(plan["options"]["regions"][0]["name"], "top");
    place.sh("probe a.y4m").exits(0);
}

#[test]
fn the_page_about_the_file_names_every_key() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut keys = 0;
    for line in EVERY_KEY.lines() {
        let name = line
            .split(['=', ']'])
            .next()
            .unwrap()
            .trim()
            .trim_start_matches('[');
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        keys += 1;
        assert!(
            page.contains(&format!("`{name}`")) || page.contains(&format!("`[{name}]`")),
            "{name}"
        );
    }
    assert!(keys > 40, "{keys}");
}
