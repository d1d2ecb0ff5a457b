//! Every video of the collection has its expected outcome here.

use std::collections::BTreeSet;

use shelfscan_inference_core::RgbImage;
use shelfscan_video::{FfmpegLocation, ReadOptions, ReadStatus, Source, VideoError, open, probe};

use crate::common::{collection, ffmpeg, mean_difference, read, run};

/// What reading a file must give.
enum Outcome {
    /// That many frames of this size, the first and last time in seconds, all good.
    Whole(u32, u32, u64, f64, f64),
    /// That many frames of this size, with a damaged place.
    Damaged(u32, u32, u64),
    /// An error of this name.
    Error(&'static str),
}
use Outcome::{Damaged, Error, Whole};

const VIDEOS: &[(&str, Outcome)] = &[
    ("derived_audio_only.mp4", Error("NoVideoStream")),
    ("derived_cola_640x360.gif", Whole(640, 360, 30, 0.0, 2.9)),
    (
        "derived_cola_audio_start6.9s.ts",
        Whole(640, 360, 90, 6.9, 9.866667),
    ),
    ("derived_cola_bitflips.mp4", Damaged(640, 360, 89)),
    (
        "derived_cola_fragmented.mp4",
        Whole(640, 360, 90, 0.066667, 3.033333),
    ),
    (
        "derived_cola_h264_high10.mp4",
        Whole(640, 360, 60, 0.0, 1.966667),
    ),
    (
        "derived_cola_h264_yuv444_641x361.mp4",
        Whole(641, 361, 60, 0.0, 1.966667),
    ),
    (
        "derived_cola_hevc_hvc1.mp4",
        Whole(1280, 720, 90, 0.0, 2.966667),
    ),
    (
        "derived_cola_hevc_main10.mkv",
        Whole(1280, 720, 60, 0.0, 1.967),
    ),
    (
        "derived_cola_mjpeg_853x479.avi",
        Whole(853, 479, 60, 0.0, 1.966667),
    ),
    // Pixels of 16:15 are made square.
    (
        "derived_cola_mpeg2_interlaced_anamorphic.mpg",
        Whole(768, 576, 74, 0.54, 3.46),
    ),
    (
        "derived_cola_single_frame.mp4",
        Whole(1280, 720, 1, 0.0, 0.0),
    ),
    (
        "derived_cola_truncated_faststart.mp4",
        Damaged(1280, 720, 105),
    ),
    ("derived_cola_vfr.mp4", Whole(1280, 720, 79, 0.0, 3.966667)),
    ("derived_cola_vp9.webm", Whole(854, 480, 90, 0.0, 2.967)),
    ("derived_empty_0_bytes.mp4", Error("EmptyFile")),
    (
        "derived_pan_cola_1280x720.mp4",
        Whole(1280, 720, 210, 0.0, 6.966667),
    ),
    ("derived_text_named.mp4", Error("Unreadable")),
    ("real_decord_corrupted.mp4", Damaged(1280, 720, 49)),
    ("real_decord_unordered.mov", Whole(50, 50, 4, 0.0, 0.09375)),
    ("real_decord_video_0.mov", Whole(568, 320, 3, 0.0, 0.066667)),
    (
        "real_decord_video_270.mov",
        Whole(320, 568, 3, 0.0, 0.066667),
    ),
    (
        "real_decord_video_90.mov",
        Whole(320, 568, 3, 0.0, 0.066667),
    ),
    (
        "real_intel_bottle-detection.gif",
        Whole(480, 270, 45, 0.0, 2.93),
    ),
    (
        "real_intel_bottle-detection.mp4",
        Whole(640, 360, 1189, 0.0, 39.821229),
    ),
    // A decoder that grumbles about one packet loses no picture.
    (
        "real_opencv_box_handheld.mp4",
        Whole(640, 480, 455, 0.0, 15.151),
    ),
    (
        "real_opencv_tree_cinepak.avi",
        Whole(320, 240, 68, 0.0, 29.533481),
    ),
];

fn error_name(error: &VideoError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '{', '('])
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn every_video_of_the_collection_gives_its_expected_outcome() {
    let (Some(folder), Some(_)) = (collection(), ffmpeg()) else {
        return;
    };
    let mut open_rows: BTreeSet<String> = std::fs::read_to_string(folder.join("manifest.csv"))
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap().to_owned())
        .collect();
    let mut wrong = Vec::new();
    for (name, outcome) in VIDEOS {
        open_rows.remove(*name);
        let path = folder.join(name);
        let mut reader = match (open(&Source::File(path), &ReadOptions::default()), outcome) {
            (Ok(reader), _) => reader,
            (Err(error), Error(wanted)) if error_name(&error) == *wanted => continue,
            (Err(error), _) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let (mut count, mut times, mut size) = (0, Vec::new(), (0, 0));
        let mut next_index = 0;
        while let Some(frame) = reader.next_frame().unwrap() {
            assert_eq!(frame.index, next_index, "{name}");
            assert!(!frame.time.estimated, "{name}");
            next_index += 1;
            count += 1;
            times.push(frame.time.secs);
            size = (frame.image.width(), frame.image.height());
        }
        let summary = reader.summary();
        let info = reader.info();
        let is_whole = summary.status == ReadStatus::Complete;
        let times = (times[0], times[times.len() - 1]);
        let fits = match outcome {
            Whole(w, h, n, first, last) => {
                let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
                is_whole
                    && (size, count) == ((*w, *h), *n)
                    && near(times.0, *first)
                    && near(times.1, *last)
            }
            Damaged(w, h, n) => {
                let places = summary.notices.iter().any(|n| &*n.code == "damaged_place");
                !is_whole && places && (size, count) == ((*w, *h), *n)
            }
            Error(_) => false,
        };
        if !fits || (info.width, info.height) != size || summary.delivered != count {
            wrong.push(format!(
                "{name}: {size:?} {count} {times:?} {}",
                summary.status
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        open_rows.is_empty(),
        "without an expectation: {open_rows:?}"
    );
}

#[test]
fn a_probe_keeps_what_is_declared_apart_from_what_came_out() {
    let (Some(folder), Some(_)) = (collection(), ffmpeg()) else {
        return;
    };
    let path = folder.join("real_opencv_tree_cinepak.avi");
    let info = probe(&Source::File(path.clone()), &ReadOptions::default()).unwrap();
    let (frames, summary) = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(
        (info.codec.as_str(), info.reader.as_str()),
        ("cinepak", "ffmpeg")
    );
    if let Some(declared) = info.declared_frames {
        assert_ne!(declared, frames.len() as u64);
        assert!(
            summary
                .notices
                .iter()
                .any(|n| &*n.code == "frame_count_differs")
        );
    }
    assert_eq!(summary.decoded, 68);
}

#[test]
fn turned_phone_clips_equal_what_ffmpeg_itself_shows() {
    let (Some(folder), Some(ffmpeg)) = (collection(), ffmpeg()) else {
        return;
    };
    for (name, degrees) in [("video_0", 0), ("video_90", 90), ("video_270", 270)] {
        let path = folder.join(format!("real_decord_{name}.mov"));
        let info = probe(&Source::File(path.clone()), &ReadOptions::default()).unwrap();
        assert_eq!(info.rotation_degrees, degrees, "{name}");
        let (frames, _) = read(&path, &ReadOptions::default()).unwrap();
        let text = path.to_string_lossy();
        let arguments = [
            "-i",
            &text,
            "-frames:v",
            "1",
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-",
        ];
        let shown = run(ffmpeg, &arguments);
        let first: &RgbImage = &frames[0].image;
        assert!(mean_difference(first.pixels(), &shown) < 0.5, "{name}");
    }
}

#[test]
fn a_window_of_an_awkward_file_equals_the_whole_read_filtered() {
    let (Some(folder), Some(_)) = (collection(), ffmpeg()) else {
        return;
    };
    for (name, start, end) in [
        ("derived_cola_vfr.mp4", 2.05, 3.0),
        ("derived_pan_cola_1280x720.mp4", 3.0, 3.5),
        ("derived_cola_fragmented.mp4", 1.5, 2.5),
        ("derived_cola_audio_start6.9s.ts", 8.0, 9.0),
        ("derived_cola_vp9.webm", 1.9, 2.6),
        ("derived_cola_hevc_main10.mkv", 1.2, 1.6),
        ("derived_cola_mjpeg_853x479.avi", 1.0, 1.5),
        ("real_opencv_tree_cinepak.avi", 10.0, 15.0),
    ] {
        let path = folder.join(name);
        let (all, _) = read(&path, &ReadOptions::default()).unwrap();
        let options = ReadOptions {
            start_secs: Some(start),
            end_secs: Some(end),
            ..ReadOptions::default()
        };
        let (window, _) = read(&path, &options).unwrap();
        let wanted: Vec<_> = all
            .iter()
            .filter(|f| f.time.secs >= start && f.time.secs < end)
            .collect();
        assert!(!wanted.is_empty(), "{name}");
        assert_eq!(window.len(), wanted.len(), "{name}");
        for (got, wanted) in window.iter().zip(wanted) {
            assert_eq!((got.index, got.time), (wanted.index, wanted.time), "{name}");
            assert!(got.image == wanted.image, "{name}: frame {}", got.index);
        }
    }
}

#[test]
fn without_ffmpeg_a_clip_names_what_to_install_and_the_rest_is_read() {
    let Some(folder) = collection() else {
        return;
    };
    let options = ReadOptions {
        ffmpeg: FfmpegLocation::Never,
        ..ReadOptions::default()
    };
    let clip = folder.join("derived_cola_single_frame.mp4");
    let error = read(&clip, &options).unwrap_err();
    assert!(matches!(error, VideoError::FfmpegMissing { .. }), "{error}");
    for (name, count) in [
        ("derived_cola_640x360.gif", 30),
        ("derived_cola_mjpeg_853x479.avi", 60),
        ("images/real_pillow_iss634.webp", 42),
        ("images/derived_shelf.bmp", 1),
    ] {
        let (frames, summary) = read(&folder.join(name), &options).unwrap();
        assert_eq!(
            (frames.len(), summary.status),
            (count, ReadStatus::Complete),
            "{name}"
        );
    }
}
