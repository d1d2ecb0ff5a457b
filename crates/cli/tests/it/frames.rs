//! Which frames are looked at.

use image::{Delay, Frame, codecs::gif::GifEncoder};
use serde_json::Value;

use crate::support::{Place, SIZE, ffmpeg, nothing};

fn indices(lines: &[Value]) -> Vec<u64> {
    lines
        .iter()
        .map(|l| l["frame_index"].as_u64().unwrap())
        .collect()
}

/// Index and time of every row.
fn moments(lines: &[Value]) -> Vec<(u64, f64)> {
    lines
        .iter()
        .map(|l| {
            (
                l["frame_index"].as_u64().unwrap(),
                l["time_secs"].as_f64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn every_fifth_frame_keeps_its_number_and_its_time() {
    let place = Place::new();
    place.pan("a", 3, 23);
    place
        .sh("scan a.y4m --detections truth --out out --every 5 --annotate frames")
        .exits(0);
    let rows = moments(&place.lines("out/a.y4m/detections.jsonl"));
    assert_eq!(
        rows.iter().map(|r| r.0).collect::<Vec<_>>(),
        [0, 5, 10, 15, 20]
    );
    for (index, secs) in rows {
        assert!(
            (secs - index as f64 / 30.0).abs() < 1e-3,
            "frame {index} at {secs}"
        );
    }
    let pictures = std::fs::read_dir(place.path("out/a.y4m/annotated"))
        .unwrap()
        .count();
    assert_eq!(pictures, 5);
    let run = place.json("out/a.y4m/run.json");
    assert_eq!(run["frames"]["processed"], 5);
}

#[test]
fn an_annotated_video_of_every_fifth_frame_lasts_as_long_as_its_source() {
    if !ffmpeg("the length of an annotated video") {
        return;
    }
    let place = Place::new();
    place.pan("a", 3, 60);
    place
        .sh("scan a.y4m --detections truth --out out --every 5 --annotate video")
        .exits(0);
    let report = place
        .sh("probe out/a.y4m/annotated.mp4 --json")
        .exits(0)
        .json();
    let secs = report["sources"][0]["info"]["declared_duration_secs"]
        .as_f64()
        .unwrap();
    assert!((secs - 2.0).abs() <= 5.5 / 30.0, "{secs} s");
}

#[test]
fn a_time_window_gives_the_frames_of_a_full_read_filtered() {
    let place = Place::new();
    place.pan("even", 3, 45);
    // Delays of 40, 120, 80 ms and so on: a clip of uneven rate that needs no ffmpeg.
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    for i in 0..30u32 {
        let picture = image::RgbaImage::from_pixel(64, 48, image::Rgba([i as u8 * 8, 90, 40, 255]));
        let delay = Delay::from_numer_denom_ms(40 + 40 * (i * 2 % 3), 1);
        encoder
            .encode_frame(Frame::from_parts(picture, 0, 0, delay))
            .unwrap();
    }
    drop(encoder);
    place.write("uneven.gif", bytes);
    place.truth("uneven.gif", &nothing(30));
    for source in ["even.y4m", "uneven.gif"] {
        let scan = |out: &str, window: &str| {
            let line = format!("scan {source} --detections truth --out {out} {window}");
            place.sh(&line).exits(0);
            moments(&place.lines(format!("{out}/{source}/detections.jsonl")))
        };
        let all = scan(&format!("all-{source}"), "");
        assert!(all.len() >= 30);
        let part = scan(&format!("part-{source}"), "--start 0.5 --end 1.2");
        let expected: Vec<_> = all
            .into_iter()
            .filter(|(_, s)| (0.5..1.2).contains(s))
            .collect();
        assert_eq!(part, expected, "{source}");
        assert!(part.len() > 5);
    }
}

#[test]
fn a_limit_of_frames_gives_exactly_that_many_and_does_not_read_on() {
    let place = Place::new();
    place.pan("a", 3, 90);
    place
        .sh("scan a.y4m --detections truth --out out --max-frames 10")
        .exits(0);
    let lines = place.lines("out/a.y4m/detections.jsonl");
    assert_eq!(indices(&lines), (0..10).collect::<Vec<_>>());
    let decoded = place.json("out/a.y4m/run.json")["frames"]["decoded"]
        .as_u64()
        .unwrap();
    assert!(decoded < 30, "{decoded} of 90 frames were decoded for 10");
}

#[test]
fn a_folder_of_pictures_is_one_source_and_a_folder_of_clips_is_many() {
    let place = Place::new();
    for i in [1, 2, 10] {
        let picture = image::RgbImage::from_pixel(SIZE.0, SIZE.1, image::Rgb([i as u8; 3]));
        std::fs::create_dir_all(place.path("shelf")).unwrap();
        picture.save(place.path(format!("shelf/{i}.png"))).unwrap();
    }
    place.truth("shelf", &nothing(3));
    let ran = place
        .sh("scan shelf --detections truth --out out --json --pictures-per-sec 2")
        .exits(0);
    assert_eq!(ran.json()["sources"].as_array().unwrap().len(), 1);
    let rows = moments(&place.lines("out/shelf/detections.jsonl"));
    assert_eq!(rows, [(0, 0.0), (1, 0.5), (2, 1.0)]);
}

#[test]
fn contradictions_are_usage_errors() {
    let place = Place::new();
    place.pan("a", 3, 2);
    for line in [
        "--every 0",
        "--every 2 --fps 3",
        "--fps 0",
        "--start 5 --end 2",
        "--min-score 2",
        "--threads 0",
        "--progress-secs 0",
        "--crops-per-track 0",
        "--keep-ids",
        "--resume --overwrite",
        "--shard 0/2",
        "--confirm-hits 0",
    ] {
        let ran = place.sh(&format!("scan a.y4m --out out {line}"));
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("error:"), "{line}: {}", ran.stderr);
        assert!(!place.path("out").exists(), "{line}");
    }
}
