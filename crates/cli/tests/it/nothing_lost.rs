//! Nobody's files are lost, and nothing incomplete passes for complete.

use std::fs;

use crate::support::Place;

#[test]
fn a_folder_of_pictures_is_not_written_into_and_its_files_stay() {
    let place = Place::new();
    place
        .sh("synth --seed 3 --frames 2 --size 160x120 --out photos")
        .exits(0);
    place.write("photos/crops/mine.txt", "mine");
    let before = place.results("photos");
    for existing in ["", "--overwrite", "--resume"] {
        place
            .sh(&format!(
                "scan photos --detections photos/truth.jsonl --out . {existing}"
            ))
            .exits(2)
            .tells("written into the source itself");
    }
    assert_eq!(place.results("photos"), before);
}

#[test]
fn files_that_no_run_wrote_are_not_replaced() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place.write("out/a.y4m/counts.csv", "mine");
    for existing in ["", "--overwrite"] {
        place
            .sh(&format!(
                "scan a.y4m --detections truth --out out {existing}"
            ))
            .exits(1)
            .gives("the folder holds counts.csv");
    }
    assert_eq!(place.read("out/a.y4m/counts.csv"), "mine");
    // A file where the folder would be is named, and nothing is laid beside it.
    place.write("taken", "mine");
    place
        .sh("scan a.y4m --detections truth --out taken")
        .exits(2)
        .tells("a file stands where the results would go");
}

#[test]
fn detections_that_end_early_are_cut_or_are_of_another_video_do_not_pass_for_complete() {
    let place = Place::new();
    place.pan("a", 3, 6);
    let path = place.path("truth/a.y4m/detections.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let half: Vec<&str> = whole.lines().take(3).collect();
    fs::write(&path, half.join("\n")).unwrap();
    place
        .sh("scan a.y4m --detections truth --out half")
        .exits(1)
        .gives("no detections are recorded for 3 frames, the first is frame 3");
    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    place
        .sh("scan a.y4m --detections truth --out cut")
        .exits(1)
        .gives("the file is cut in line 6");
    let wide = whole.replace(
        "{\"frame_index\"",
        "{\"width\":7,\"height\":7,\"frame_index\"",
    );
    fs::write(&path, wide).unwrap();
    place
        .sh("scan a.y4m --detections truth --out wide")
        .exits(1)
        .gives("are of frames of 7x7");
}

#[test]
fn detections_of_two_clips_of_one_name_go_to_the_clip_they_are_of() {
    let place = Place::new();
    place.pan("mon/a", 3, 3);
    place.pan("fri/a", 5, 4);
    let line = "scan fri/a.y4m mon/a.y4m --tiles off --out first";
    place.sh(line).exits(0);
    place
        .sh("scan mon/a.y4m --detections first --out again")
        .exits(0);
    let lines = |name: &str| place.lines(format!("{name}/detections.jsonl")).len();
    assert_eq!((lines("first/a.y4m"), lines("first/a.y4m~2")), (4, 3));
    assert_eq!(
        place.json("again/a.y4m/run.json")["facings"],
        place.json("first/a.y4m~2/run.json")["facings"]
    );
}

#[test]
fn a_clip_that_was_replaced_is_not_taken_for_the_old_one() {
    let place = Place::new();
    place.pan("a", 3, 3);
    let line = "scan a.y4m --detections truth --out out";
    place.sh(line).exits(0);
    place.sh(&format!("{line} --resume")).exits(0);
    place.pan("a", 3, 4);
    place
        .sh(&format!("{line} --resume"))
        .exits(1)
        .gives("its source had");
}

#[test]
fn what_an_annotated_clip_needs_is_looked_for_before_the_scan() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place
        .sh("scan a.y4m --detections truth --out out --annotate video --ffmpeg never")
        .exits(2)
        .tells("--annotate frames");
    assert!(!place.path("out").exists());
}

#[test]
fn a_phrase_is_asked_once() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place
        .sh("scan a.y4m --detections truth --out out -p product=a -p product=b")
        .exits(2)
        .tells("is given twice");
}

#[test]
fn the_name_of_a_built_in_model_stands_for_it_and_has_no_file() {
    let place = Place::new();
    place.pan("a", 3, 1);
    place
        .sh("scan a.y4m --weights shelf-tiny --tiles off --out out")
        .exits(0);
    for command in ["path", "verify", "pull"] {
        place
            .sh(&format!("models {command} pack-tiny"))
            .exits(2)
            .tells("pack-tiny is built in");
    }
}
