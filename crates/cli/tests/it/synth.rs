//! Drawn clips, through the binary.

use std::fs;

use crate::support::Place;

#[test]
fn a_drawn_folder_is_scanned_replayed_and_counted_right() {
    let place = Place::new();
    let drawn = place
        .sh("synth --seed 3 --frames 16 --size 240x160 --skus 4 --strangers 1 --views 2 --out drawn")
        .exits(0);
    insta::assert_snapshot!(drawn.stdout, @r"
    SKU                      views  facings
    grisia-cistycha-5218064   none        7
    grisia-grodroo-5218060       2        7
    grisia-wasee-5218061         2        4
    shas-duzoobre-3847690        2        1
    shus-chixstoo-7775820        2        7
    16 frames of 26 facings in drawn; truth in truth.jsonl and facings.csv
    scan it:   shelfscan scan drawn --pictures-per-sec 10 --out RUN
    replay it: shelfscan scan drawn --pictures-per-sec 10 --detections drawn/truth.jsonl --out RUN
    enrol it:  shelfscan enroll drawn/views --gallery GALLERY
    ");
    assert_eq!(drawn.stderr, "");
    let pictures = fs::read_dir(place.path("drawn")).unwrap();
    let frames = pictures.filter(|e| {
        e.as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|x| x == "jpg")
    });
    assert_eq!(frames.count(), 16);
    let views = fs::read_dir(place.path("drawn/views")).unwrap().count();
    assert_eq!(views, 4);

    place
        .sh("scan drawn --pictures-per-sec 10 --detections drawn/truth.jsonl --keep-ids --out run")
        .exits(0);
    let counts: u64 = place
        .read("drawn/facings.csv")
        .lines()
        .skip(1)
        .map(|line| line.rsplit_once(',').unwrap().1.parse::<u64>().unwrap())
        .sum();
    let lines = place.lines("run/drawn/detections.jsonl");
    assert_eq!(lines.len(), 16);
    let truth = place.lines("drawn/truth.jsonl");
    for (found, exact) in lines.iter().zip(&truth) {
        let products = exact["detections"].as_array().unwrap();
        let products = products.iter().filter(|d| d["label"] == "product");
        assert_eq!(
            found["detections"].as_array().unwrap().len(),
            products.count()
        );
    }
    assert!(counts >= 5, "{counts}");
}

#[test]
fn the_same_seed_draws_the_same_bytes_and_a_clip_is_one_file() {
    let place = Place::new();
    let line = "synth --seed 1000000 --frames 3 --size 96x64 --skus 2 --views 0 --plan shake --format y4m --quiet --out";
    for out in ["one", "two"] {
        place.sh(&format!("{line} {out}")).exits(0);
    }
    for file in ["clip.y4m", "truth.jsonl", "facings.csv"] {
        let read = |out: &str| fs::read(place.path(format!("{out}/{file}"))).unwrap();
        assert!(read("one") == read("two"), "{file}");
    }
    assert!(!place.path("one/views").exists());
    let probed = place.sh("probe one/clip.y4m --json").exits(0).json();
    assert_eq!(probed["sources"][0]["info"]["width"], 96);
    assert_eq!(probed["sources"][0]["info"]["declared_fps"], 10.0);
}

#[test]
fn what_cannot_be_drawn_is_said_before_anything_is_written() {
    let place = Place::new();
    place.write("full/mine.txt", "mine");
    for (line, said) in [
        (
            "synth --out full",
            "give a folder that is empty or not there yet: full",
        ),
        (
            "synth --out new --frames 0",
            "a clip has 1 to 108000 frames, not 0",
        ),
        (
            "synth --out new --size 10x10",
            "a frame is 64 to 4096 px wide and high, not 10x10",
        ),
        (
            "synth --out new --skus 0 --strangers 0",
            "a shelf has 1 to 200 SKUs, not 0",
        ),
        ("synth --out new --fps nan", "240 frames a second"),
        ("synth --out new --size 640", "960x540"),
    ] {
        let ran = place.sh(line).exits(2);
        assert!(ran.stderr.contains(said), "{line}: {}", ran.stderr);
    }
    assert_eq!(place.read("full/mine.txt"), "mine");
    assert!(!place.path("new").exists());
}
