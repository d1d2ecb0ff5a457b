//! Clips encoded on the spot, whose pictures show their own numbers.

use std::path::PathBuf;

use shelfscan_inference_core::VideoFrame;
use shelfscan_video::{FfmpegLocation, ReadOptions, ReadStatus, Source, VideoError, open};

use crate::common::{HEIGHT, WIDTH, encode, ffmpeg, mean_difference, number_in, read, run};

const X264: [&str; 6] = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "12"];

struct Clips {
    folder: tempfile::TempDir,
}

impl Clips {
    /// A long clip with B-frames and one key frame every 40, a variable-rate one, and one without
    /// an index, each 120 pictures.
    fn encode() -> Option<(Self, Vec<PathBuf>)> {
        let ffmpeg = ffmpeg()?;
        let clips = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let gop = [
            "-bf",
            "3",
            "-g",
            "40",
            "-keyint_min",
            "40",
            "-sc_threshold",
            "0",
        ];
        let uneven = "setpts='PTS+if(mod(N,3),0.011/TB,0)'";
        let arguments = |extra: &[&'static str]| [&X264[..], &gop, extra].concat();
        let made = [
            ("long.mp4", arguments(&[])),
            (
                "uneven.mp4",
                arguments(&[
                    "-vf",
                    uneven,
                    "-fps_mode",
                    "vfr",
                    "-enc_time_base",
                    "1/1000",
                ]),
            ),
            (
                "uneven.mkv",
                arguments(&[
                    "-vf",
                    uneven,
                    "-fps_mode",
                    "vfr",
                    "-enc_time_base",
                    "1/1000",
                ]),
            ),
            ("plain.ts", arguments(&[])),
        ]
        .map(|(name, arguments)| {
            let path = clips.folder.path().join(name);
            encode(ffmpeg, 120, &arguments, &path);
            path
        });
        Some((clips, made.to_vec()))
    }
}

fn places(frames: &[VideoFrame]) -> Vec<(u64, u32)> {
    frames
        .iter()
        .map(|f| (f.index, number_in(&f.image)))
        .collect()
}

#[test]
fn every_number_comes_once_in_ascending_order() {
    let Some((_clips, paths)) = Clips::encode() else {
        return;
    };
    for path in paths {
        let (frames, summary) = read(&path, &ReadOptions::default()).unwrap();
        let wanted: Vec<(u64, u32)> = (0..120).map(|i| (i, i as u32)).collect();
        assert_eq!(places(&frames), wanted, "{}", path.display());
        assert!(frames.windows(2).all(|f| f[0].time.secs < f[1].time.secs));
        assert_eq!(
            (summary.status, summary.decoded),
            (ReadStatus::Complete, 120)
        );
    }
}

#[test]
fn every_choice_equals_the_whole_read_filtered_and_can_be_resumed() {
    let Some((_clips, paths)) = Clips::encode() else {
        return;
    };
    // Found once, as an app does it.
    let base = || ReadOptions {
        ffmpeg: FfmpegLocation::Checked(ffmpeg().unwrap().clone()),
        ..ReadOptions::default()
    };
    for path in paths {
        let (all, _) = read(&path, &base()).unwrap();
        // Half way between two frames, and exactly on one.
        let start = f64::midpoint(all[88].time.secs, all[89].time.secs);
        let end = all[111].time.secs;
        let window = ReadOptions {
            start_secs: Some(start),
            end_secs: Some(end),
            ..base()
        };
        let inside = |f: &&VideoFrame| f.time.secs >= start && f.time.secs < end;
        let first = all[0].time.secs;
        let tenth = |f: &&VideoFrame| f.index.is_multiple_of(10);
        let mut cell = i64::MIN;
        let two_a_second: Vec<u64> = all
            .iter()
            .filter(|f| {
                let now = (f.time.secs * 2.0 + 1e-3).floor() as i64;
                let is_new = now > cell;
                cell = cell.max(now);
                is_new
            })
            .map(|f| f.index)
            .collect();
        let indices = |frames: Vec<&VideoFrame>| frames.iter().map(|f| f.index).collect::<Vec<_>>();
        for (options, wanted) in [
            (window.clone(), indices(all.iter().filter(inside).collect())),
            (
                ReadOptions {
                    every: 10,
                    ..window
                },
                indices(all.iter().filter(inside).filter(tenth).collect()),
            ),
            (
                ReadOptions {
                    every: 10,
                    ..base()
                },
                indices(all.iter().filter(tenth).collect()),
            ),
            (
                ReadOptions {
                    fps: Some(2.0),
                    ..base()
                },
                two_a_second,
            ),
            (
                ReadOptions {
                    keyframes_only: true,
                    ..base()
                },
                vec![0, 40, 80],
            ),
            (
                ReadOptions {
                    max_frames: Some(10),
                    ..base()
                },
                (0..10).collect(),
            ),
            (
                ReadOptions {
                    start_secs: Some(first + 100.0),
                    ..base()
                },
                vec![],
            ),
        ] {
            let (frames, summary) = read(&path, &options).unwrap();
            let name = path.display();
            assert_eq!(
                frames.iter().map(|f| f.index).collect::<Vec<_>>(),
                wanted,
                "{name} {options:?}"
            );
            assert_eq!(summary.status, ReadStatus::Complete, "{name} {options:?}");
            for frame in &frames {
                let same = &all[frame.index as usize];
                assert_eq!(frame.time, same.time, "{name} {options:?}");
                assert!(
                    frame.image == same.image,
                    "{name} {options:?} {}",
                    frame.index
                );
            }
            // Stopped after any delivered frame, the rest is the rest of the unbroken read.
            for (i, &after) in wanted.iter().enumerate().skip(1).step_by(10).take(2) {
                let resumed = ReadOptions {
                    after_index: Some(after),
                    max_frames: options.max_frames.map(|max| max - i as u64 - 1),
                    ..options.clone()
                };
                let (rest, _) = read(&path, &resumed).unwrap();
                let got: Vec<u64> = rest.iter().map(|f| f.index).collect();
                assert_eq!(got, wanted[i + 1..], "{name} {resumed:?}");
                assert!(rest.iter().all(|f| f.time == all[f.index as usize].time));
            }
        }
    }
}

#[test]
fn pictures_that_change_their_size_come_as_they_are() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    encode(
        ffmpeg,
        25,
        &[&X264[..], &["-bf", "0"]].concat(),
        &at("a.ts"),
    );
    encode(
        ffmpeg,
        25,
        &[&X264[..], &["-bf", "0", "-vf", "scale=192:96"]].concat(),
        &at("b.ts"),
    );
    let both = [
        std::fs::read(at("a.ts")).unwrap(),
        std::fs::read(at("b.ts")).unwrap(),
    ]
    .concat();
    std::fs::write(at("both.ts"), both).unwrap();
    let (all, summary) = read(&at("both.ts"), &ReadOptions::default()).unwrap();
    assert_eq!(all.len(), 50);
    assert_eq!(summary.decoded, 50);
    assert_eq!(
        (all[24].image.width(), all[25].image.width()),
        (WIDTH, WIDTH * 2)
    );
    let options = ReadOptions {
        every: 3,
        ..ReadOptions::default()
    };
    let (some, summary) = read(&at("both.ts"), &options).unwrap();
    let wanted: Vec<(u64, u32)> = all
        .iter()
        .step_by(3)
        .map(|f| (f.index, number_in(&f.image)))
        .collect();
    assert_eq!(places(&some), wanted);
    assert_eq!(summary.decoded, 50);
}

#[test]
fn colours_of_both_ranges_and_matrices_equal_those_of_ffmpeg() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (matrix, range) in [
        ("bt709", "tv"),
        ("bt709", "pc"),
        ("smpte170m", "tv"),
        ("smpte170m", "pc"),
    ] {
        let path = folder.path().join(format!("{matrix}-{range}.mp4"));
        let text = path.to_string_lossy();
        let filter = format!("scale=out_color_matrix={matrix}:out_range={range},format=yuv444p");
        run(
            ffmpeg,
            &[
                "-f",
                "lavfi",
                "-i",
                "smptebars=size=320x240:rate=25",
                "-frames:v",
                "2",
                "-vf",
                &filter,
                "-c:v",
                "libx264",
                "-crf",
                "1",
                "-colorspace",
                matrix,
                "-color_range",
                range,
                &text,
            ],
        );
        let (frames, _) = read(&path, &ReadOptions::default()).unwrap();
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
        let worst = frames[0]
            .image
            .pixels()
            .iter()
            .zip(&shown)
            .map(|(a, b)| a.abs_diff(*b))
            .max();
        assert!(worst <= Some(3), "{matrix} {range}: {worst:?}");
        // The first bar of the test card is three quarters of white.
        let bar = frames[0].image.pixel(10, 60).unwrap();
        assert!(
            bar.iter().all(|v| v.abs_diff(191) <= 6),
            "{matrix} {range}: {bar:?}"
        );
    }
}

#[test]
fn ten_bits_look_like_eight() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let frames = ["yuv420p", "yuv420p10le"].map(|format| {
        let path = folder.path().join(format!("{format}.mkv"));
        encode(ffmpeg, 12, &["-c:v", "ffv1", "-pix_fmt", format], &path);
        read(&path, &ReadOptions::default()).unwrap().0
    });
    for (eight, ten) in frames[0].iter().zip(&frames[1]) {
        assert!(mean_difference(eight.image.pixels(), ten.image.pixels()) < 2.0);
    }
}

#[test]
fn odd_names_are_names() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made.mkv");
    encode(ffmpeg, 3, &["-c:v", "ffv1"], &made);
    let mut names = vec!["-i.mkv", "http:x.mkv", "%03d.mkv", "a b'c\"d.mkv", "ä€.mkv"];
    if cfg!(unix) {
        names.push("line\nbreak|x;$HOME.mkv");
    }
    for name in names {
        let path = folder.path().join(name);
        std::fs::copy(&made, &path).unwrap();
        let (frames, _) = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!(frames.len(), 3, "{name:?}");
    }
}

#[test]
fn a_play_list_is_not_followed_out_of_the_machine() {
    let Some(_) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.mp4");
    let list =
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n";
    std::fs::write(&path, list).unwrap();
    let error = read(&path, &ReadOptions::default()).unwrap_err();
    assert!(!error.is_retryable(), "{error}");
}

#[test]
fn a_cut_clip_keeps_what_comes_before_and_one_without_an_index_is_unreadable() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let noisy = [
        "-vf",
        "noise=alls=40:allf=t",
        "-g",
        "10",
        "-movflags",
        "+faststart",
    ];
    encode(ffmpeg, 60, &[&X264[..], &noisy].concat(), &at("index.mp4"));
    encode(
        ffmpeg,
        60,
        &[&X264[..], &noisy[..4]].concat(),
        &at("no_index.mp4"),
    );
    for name in ["index.mp4", "no_index.mp4"] {
        let bytes = std::fs::read(at(name)).unwrap();
        std::fs::write(at(name), &bytes[..bytes.len() * 9 / 10]).unwrap();
    }
    let (frames, summary) = read(&at("index.mp4"), &ReadOptions::default()).unwrap();
    assert!((40..60).contains(&frames.len()), "{}", frames.len());
    assert!(
        matches!(summary.status, ReadStatus::Partial { .. }),
        "{}",
        summary.status
    );
    let error = read(&at("no_index.mp4"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, VideoError::Unreadable { .. }), "{error}");
}

#[test]
fn a_clip_without_frames_and_one_with_sound_alone_are_named() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (sound, empty) = (at("sound.mka"), at("empty.avi"));
    run(
        ffmpeg,
        &[
            "-f",
            "lavfi",
            "-i",
            "sine=duration=1",
            "-c:a",
            "pcm_s16le",
            &sound,
        ],
    );
    let error = read(sound.as_ref(), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, VideoError::NoVideoStream { .. }), "{error}");
    let silent = [
        "-f",
        "lavfi",
        "-i",
        "testsrc=duration=1:size=64x48",
        "-t",
        "0",
        "-c:v",
        "mpeg4",
        &empty,
    ];
    run(ffmpeg, &silent);
    let error = read(empty.as_ref(), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, VideoError::NoFrames { .. }), "{error}");
}

#[test]
fn a_picture_over_the_limit_is_refused_before_it_is_read() {
    let Some((_clips, paths)) = Clips::encode() else {
        return;
    };
    let mut options = ReadOptions::default();
    options.limits.max_pixels = u64::from(WIDTH * HEIGHT) - 1;
    let error = open(&Source::File(paths[0].clone()), &options)
        .and_then(|mut reader| reader.next_frame())
        .unwrap_err();
    assert!(
        matches!(error, VideoError::PictureTooLarge { .. }),
        "{error}"
    );
}

#[test]
fn a_cancelled_read_ends_as_partial() {
    let Some((_clips, paths)) = Clips::encode() else {
        return;
    };
    let mut reader = open(&Source::File(paths[0].clone()), &ReadOptions::default()).unwrap();
    let cancel = reader.cancel_handle().unwrap();
    assert!(reader.next_frame().unwrap().is_some());
    cancel();
    while reader.next_frame().unwrap().is_some() {}
    let status = reader.summary().status;
    // A short clip may be through the pipe before the handle is used.
    assert!(
        status == ReadStatus::Complete || status.to_string().contains("cancelled"),
        "{status}"
    );
}

#[test]
fn a_wrong_camera_is_an_error_that_lists_the_others() {
    let Some(_) = ffmpeg() else {
        return;
    };
    let error = open(&Source::Camera(99), &ReadOptions::default())
        .err()
        .unwrap();
    assert!(
        matches!(error, VideoError::Camera { index: 99, .. }),
        "{error}"
    );
}
