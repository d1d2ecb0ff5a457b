//! Folders of clips, good and bad, from end to end.

use std::collections::BTreeSet;

use serde_json::Value;
use shelfscan_inference_core::FrameDetections;
use shelfscan_testkit::scripted::detection;

use crate::support::{Place, assert_same, ffmpeg, flat, nothing};

/// Two good clips between an empty file, a text that is called a video, and a clip without a frame.
fn good_and_bad() -> Place {
    let place = Place::new();
    place.pan("clips/a_good", 3, 12);
    place.pan("clips/e_good", 4, 12);
    std::fs::rename(
        place.path("truth/clips/a_good.y4m"),
        place.path("truth/a_good.y4m"),
    )
    .unwrap();
    std::fs::rename(
        place.path("truth/clips/e_good.y4m"),
        place.path("truth/e_good.y4m"),
    )
    .unwrap();
    place.write("clips/b_empty.mp4", "");
    place.write(
        "clips/c_text.mp4",
        "this is a shopping list, not a video\n".repeat(40),
    );
    place.y4m("clips/d_no_frame.y4m", &[]);
    place
}

#[test]
fn one_bad_file_is_one_bad_row_and_the_others_are_done() {
    let place = good_and_bad();
    let ran = place
        .sh("scan clips --detections truth --out out --ffmpeg never")
        .exits(1);
    let rows: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "source", "status", "frames", "facings", "known", "unknown", "reason"
        ]
    );
    let status: Vec<(&str, &str)> = rows[1..].iter().map(|r| (r[0], r[1])).collect();
    assert_eq!(
        status,
        [
            ("clips/a_good.y4m", "complete"),
            ("clips/b_empty.mp4", "failed"),
            ("clips/c_text.mp4", "failed"),
            ("clips/d_no_frame.y4m", "failed"),
            ("clips/e_good.y4m", "complete"),
        ]
    );
    assert!(
        rows[2].join(" ").contains("the file is empty"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("5 sources: 2 complete, 3 failed"),
        "{}",
        ran.stderr
    );

    let summary = place.json("out/summary.json");
    assert_eq!(summary["status"], "incomplete");
    assert_eq!(summary["sources"][0]["frames"]["processed"], 12);
    for (folder, status) in [("a_good.y4m", "complete"), ("d_no_frame.y4m", "failed")] {
        assert_eq!(
            place.json(format!("out/{folder}/run.json"))["status"],
            status
        );
    }
}

#[test]
fn with_ffmpeg_the_bad_files_fail_for_their_own_reasons() {
    if !ffmpeg("reading a text that is called a video") {
        return;
    }
    let place = good_and_bad();
    let ran = place
        .sh("scan clips --detections truth --out out --json")
        .exits(1);
    let summary = ran.json();
    let reason = |i: usize| summary["sources"][i]["reason"].as_str().unwrap().to_owned();
    assert!(!reason(2).contains("was not found"), "{}", reason(2));
    assert!(reason(2).ends_with("clips/c_text.mp4"), "{}", reason(2));
    assert_eq!(summary["sources"][4]["status"], "complete");
}

#[test]
fn a_missing_ffmpeg_is_one_sentence_with_the_install_line_and_the_variable() {
    let place = Place::new();
    let mp4 = b"\0\0\0\x18ftypisom\0\0\x02\0isomiso2mp41\0\0\0\x08free";
    place.write("clip.mp4", mp4);
    place.write("truth.jsonl", "");
    let mut command = place.command("scan clip.mp4 --detections truth.jsonl --out out".split(' '));
    let ran = crate::support::finish(command.env("PATH", place.path("nowhere"))).exits(1);
    let warning = ran
        .stderr
        .lines()
        .find(|l| l.starts_with("warning:"))
        .unwrap();
    assert!(
        warning.contains("ffmpeg is needed") && warning.contains("apt install ffmpeg"),
        "{warning}"
    );
    assert!(ran.stderr.contains("SHELFSCAN_FFMPEG"), "{}", ran.stderr);
    let mut command = place.command("scan clip.mp4 --detections truth.jsonl --out out2".split(' '));
    let ran = crate::support::finish(command.env("SHELFSCAN_FFMPEG", "/no/such/ffmpeg")).exits(1);
    assert!(
        ran.stderr.contains("looked for /no/such/ffmpeg"),
        "{}",
        ran.stderr
    );
}

#[test]
fn ids_start_at_one_in_every_source() {
    let place = Place::new();
    place.pan("a", 3, 12);
    place.pan("b", 4, 12);
    place
        .sh("scan a.y4m b.y4m --detections truth --out out")
        .exits(0);
    for source in ["a.y4m", "b.y4m"] {
        let ids: BTreeSet<u64> = place
            .lines(format!("out/{source}/tracks.jsonl"))
            .iter()
            .map(|t| t["track_id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids.first(), Some(&1), "{source}");
        assert_eq!(ids.last().copied(), Some(ids.len() as u64), "{source}");
    }
}

#[test]
fn frames_without_an_object_are_rows_with_empty_lists() {
    let place = Place::new();
    let frames: Vec<_> = (0..9).map(|_| flat(0)).collect();
    place.y4m("black.y4m", &frames);
    place.y4m("gaps.y4m", &frames);
    place.truth("black.y4m", &nothing(9));
    let objects = |i: u64| match i {
        0 | 4 | 8 => vec![],
        _ => vec![detection("product", 0.9, [40.0, 40.0, 90.0, 140.0], None)],
    };
    let gaps: Vec<FrameDetections> = (0..9)
        .map(|i| FrameDetections {
            frame_index: i,
            detections: objects(i),
            notices: vec![],
        })
        .collect();
    place.truth("gaps.y4m", &gaps);
    let ran = place
        .sh("scan black.y4m gaps.y4m --detections truth --out out --json")
        .exits(0);
    let summary = ran.json();
    assert_eq!(summary["sources"][0]["facings"], 0);
    assert_eq!(summary["sources"][1]["facings"], 1);
    let counts = |source: &str| -> Vec<usize> {
        place
            .lines(format!("out/{source}/detections.jsonl"))
            .iter()
            .map(|l| l["detections"].as_array().unwrap().len())
            .collect()
    };
    assert_eq!(counts("black.y4m"), [0; 9]);
    assert_eq!(counts("gaps.y4m"), [0, 1, 1, 1, 0, 1, 1, 1, 0]);
    assert_eq!(place.read("out/black.y4m/facings.csv").lines().count(), 1);
}

#[test]
fn one_thread_and_eight_give_the_same_bytes() {
    let place = Place::new();
    place.pan("a", 3, 20);
    for threads in [1, 8] {
        let line = format!(
            "scan a.y4m --detections truth --out out{threads} --threads {threads} --annotate frames"
        );
        place.sh(&line).exits(0);
    }
    assert_same(&place.results("out1"), &place.results("out8"));
}

#[test]
fn shards_are_disjoint_complete_and_the_same_on_every_machine() {
    let place = Place::new();
    for i in 0..7 {
        place.write(format!("clips/{i}.y4m"), "x");
    }
    let forward: Vec<String> = (0..7).map(|i| format!("clips/{i}.y4m")).collect();
    let backward: Vec<String> = forward.iter().rev().cloned().collect();
    let mut all = Vec::new();
    for shard in 1..=3 {
        let planned = |sources: &[String]| -> Vec<String> {
            let shard = format!("--out out --dry-run --shard {shard}/3");
            let args = ["scan"]
                .into_iter()
                .chain(sources.iter().map(String::as_str))
                .chain(shard.split(' '));
            let plan = place.run(args).exits(0).json();
            let sources = plan["sources"].as_array().unwrap();
            sources
                .iter()
                .map(|s| s["folder"].as_str().unwrap().to_owned())
                .collect()
        };
        let mine = planned(&forward);
        assert_eq!(mine, planned(&backward));
        assert_eq!(mine, planned(&["clips".to_owned()]));
        all.extend(mine);
    }
    all.sort();
    assert_eq!(all, (0..7).map(|i| format!("{i}.y4m")).collect::<Vec<_>>());
    place.sh("scan clips --out out --shard 4/3").exits(2);
}

#[test]
fn counts_are_given_for_each_phrase_and_region() {
    let place = Place::new();
    let frames: Vec<_> = (0..6).map(|_| flat(90)).collect();
    place.y4m("a.y4m", &frames);
    let found = || {
        vec![
            detection("can", 0.9, [20.0, 20.0, 60.0, 100.0], None),
            detection("can", 0.9, [100.0, 20.0, 140.0, 100.0], None),
            detection("price tag", 0.9, [20.0, 180.0, 80.0, 200.0], None),
            detection("can", 0.9, [250.0, 20.0, 290.0, 100.0], None),
        ]
    };
    let frames: Vec<FrameDetections> = (0..6)
        .map(|i| FrameDetections {
            frame_index: i,
            detections: found(),
            notices: vec![],
        })
        .collect();
    place.truth("a.y4m", &frames);
    let scan = |out: &str, regions: &[&str]| {
        let mut args: Vec<String> =
            format!("scan a.y4m --detections truth --out {out} --prompt can --prompt")
                .split(' ')
                .map(Into::into)
                .collect();
        args.push("price tag=label".into());
        for region in regions {
            args.extend(["--region".into(), (*region).to_owned()]);
        }
        place.run(args)
    };
    scan("out", &["top=0,0,200,120", "bottom=0,120,320,240"]).exits(0);
    let counts = place.read("out/a.y4m/counts.csv");
    let mut rows: Vec<&str> = counts.lines().skip(1).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["can,top,not_asked,,2", "label,bottom,not_asked,,1"]);

    let ran = scan("out2", &["far=900,0,1000,50"]).exits(2);
    assert!(
        ran.stderr
            .contains("region `far` lies outside the 320x240 picture of a.y4m"),
        "{}",
        ran.stderr
    );
    assert!(!place.path("out2").exists());
    let ran = scan("out3", &["flat=5,5,5,90"]).exits(2);
    assert!(ran.stderr.contains("NAME=x0,y0,x1,y1"), "{}", ran.stderr);
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    let place = Place::new();
    place.pan("a", 3, 6);
    let plan = place
        .sh("scan a.y4m --out out --dry-run --every 3 --prompt can --threads 2")
        .exits(0)
        .json();
    assert!(!place.path("out").exists());
    assert_eq!(plan["sources"][0]["folder"], "a.y4m");
    assert_eq!(plan["options"]["read"]["every"], 3);
    assert_eq!(plan["options"]["prompts"][0]["phrase"], "can");
    assert_eq!(plan["threads"], 2);
    place
        .sh("scan a.y4m --detections truth --out out --every 3 --prompt can")
        .exits(0);
    assert_eq!(place.json("out/a.y4m/run.json")["plan"], plan["options"]);
}

#[test]
fn results_are_never_replaced_by_mistake() {
    let place = Place::new();
    place.pan("a", 3, 6);
    let line = "scan a.y4m --detections truth --out out";
    place.sh(line).exits(0);
    let before = place.results("out");
    let ran = place.sh(line).exits(2);
    assert!(
        ran.stderr.contains("hint: go on with --resume"),
        "{}",
        ran.stderr
    );
    assert_same(&before, &place.results("out"));
    place.sh(&format!("{line} --resume")).exits(0);
    assert_same(&before, &place.results("out"));
    place.sh(&format!("{line} --overwrite")).exits(0);
    assert_same(&before, &place.results("out"));
    let ran = place
        .sh("scan a.y4m --detections out --out out --overwrite")
        .exits(2);
    assert!(
        ran.stderr.contains("would be overwritten"),
        "{}",
        ran.stderr
    );
}

#[test]
fn detections_of_other_sources_are_not_taken_for_these() {
    let place = Place::new();
    place.pan("a", 3, 6);
    place.pan("b", 3, 6);
    let ran = place
        .sh("scan a.y4m b.y4m --detections truth/a.y4m/detections.jsonl --out out")
        .exits(2);
    assert!(
        ran.stderr
            .contains("one file of detections cannot serve 2 sources"),
        "{}",
        ran.stderr
    );
    std::fs::remove_dir_all(place.path("truth/b.y4m")).unwrap();
    let ran = place
        .sh("scan a.y4m b.y4m --detections truth --out out --json")
        .exits(1);
    assert!(
        ran.stderr.contains("1 of 2 sources have no detections"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.json()["sources"][0]["status"], "complete");
    assert_eq!(ran.json()["sources"][1]["status"], "failed");
    let ran = place
        .sh("scan b.y4m --detections truth --out out2")
        .exits(2);
    assert!(
        ran.stderr.contains("none of the sources has detections"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_value_that_is_no_number_costs_no_row() {
    let place = Place::new();
    place.y4m("a.y4m", &[flat(9), flat(9), flat(9)]);
    let line = |i: u64, score: &str| {
        format!(
            "{{\"frame_index\":{i},\"detections\":[{{\"label\":\"product\",\"prompt\":\"product\",\"score\":{score},\"box\":[10,10,60,90]}}]}}\n"
        )
    };
    let text = line(0, "0.9") + &line(1, "null") + &line(2, "0.8");
    place.write("d.jsonl", text);
    let ran = place
        .sh("scan a.y4m --detections d.jsonl --out out")
        .exits(0);
    assert!(ran.stderr.contains("warning:"), "{}", ran.stderr);
    let lines = place.lines("out/a.y4m/detections.jsonl");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["detections"][0]["score"], Value::Null);
}
