//! Clips written through ffmpeg and read back.

use shelfscan_inference_core::RgbImage;
#[cfg(unix)]
use shelfscan_testkit::program::write_program;
use shelfscan_video::{ClipOptions, ClipWriter, ReadOptions, Source, VideoError, probe};

use crate::common::{ffmpeg, mean_difference, read};

fn plain(width: u32, height: u32, value: u8) -> RgbImage {
    RgbImage::new(width, height, vec![value; (width * height * 3) as usize]).unwrap()
}

#[test]
fn a_clip_of_uneven_times_and_odd_size_lasts_as_long_as_its_source() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("-out:1.mp4");
    let mut writer = ClipWriter::create(&path, ffmpeg, ClipOptions::default()).unwrap();
    // A clock that starts at 6.9 s, with a gap in the middle.
    for (i, secs) in [6.9, 6.95, 7.1, 8.4, 8.5].into_iter().enumerate() {
        writer
            .write(&plain(101, 57, 40 * i as u8 + 20), secs)
            .unwrap();
        assert!(!path.exists());
    }
    writer.finish(Some(8.9)).unwrap();
    let (frames, _) = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(frames.len(), 60);
    assert_eq!(
        (frames[0].image.width(), frames[0].image.height()),
        (102, 58)
    );
    // The third picture is shown from 0.2 s to 1.5 s.
    for (secs, value) in [
        (0.0, 20u8),
        (0.25, 100),
        (1.4, 100),
        (1.55, 140),
        (1.9, 180),
    ] {
        let at = (secs * 30.0f64).round() as usize;
        let shown = frames[at].image.pixel(50, 20).unwrap();
        assert!(shown[0].abs_diff(value) < 5, "{secs}: {shown:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_stride_plays_at_the_speed_of_the_source() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mp4");
    let options = ClipOptions {
        fps: 25.0,
        ..ClipOptions::default()
    };
    let mut writer = ClipWriter::create(&path, ffmpeg, options).unwrap();
    for i in 0..20 {
        writer
            .write(&plain(64, 48, i * 10), f64::from(i) * 0.2)
            .unwrap();
    }
    writer.finish(Some(4.0)).unwrap();
    let info = probe(&Source::File(path), &ReadOptions::default()).unwrap();
    assert!(
        (info.declared_duration_secs.unwrap() - 4.0).abs() < 0.05,
        "{info:?}"
    );
}

#[test]
fn a_frame_of_another_size_is_fitted_into_the_clip() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mp4");
    let mut writer = ClipWriter::create(&path, ffmpeg, ClipOptions::default()).unwrap();
    writer.write(&plain(64, 48, 200), 0.0).unwrap();
    writer.write(&plain(32, 48, 200), 0.1).unwrap();
    writer.finish(None).unwrap();
    let (frames, _) = read(&path, &ReadOptions::default()).unwrap();
    let mut wanted = vec![0u8; 64 * 48 * 3];
    for row in wanted.chunks_mut(64 * 3) {
        row[16 * 3..48 * 3].fill(200);
    }
    let last = frames.last().unwrap();
    assert!(mean_difference(last.image.pixels(), &wanted) < 12.0);
}

#[test]
fn a_clip_that_fails_or_is_given_up_leaves_nothing_behind() {
    let Some(ffmpeg) = ffmpeg() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mp4");
    let create = || ClipWriter::create(&path, ffmpeg, ClipOptions::default()).unwrap();
    let empty = create().finish(None).unwrap_err();
    assert!(matches!(empty, VideoError::Encoder { .. }), "{empty}");
    let mut given_up = create();
    given_up.write(&plain(64, 48, 1), 0.0).unwrap();
    given_up.write(&plain(64, 48, 1), 1.0).unwrap();
    drop(given_up);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = folder.path().join("no/such/folder/out.mp4");
    assert!(ClipWriter::create(&nowhere, ffmpeg, ClipOptions::default()).is_err());
}

#[cfg(unix)]
#[test]
fn an_encoder_that_dies_gives_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("encoder");
    let script = "#!/bin/sh\necho 'Unknown encoder libx264' >&2\nexit 1\n";
    write_program(&program, script).unwrap();
    let ffmpeg = shelfscan_video::FfmpegInfo {
        path: program,
        version: "7.0".into(),
        ffprobe: None,
    };
    let path = folder.path().join("out.mp4");
    let mut writer = ClipWriter::create(&path, &ffmpeg, ClipOptions::default()).unwrap();
    let mut result = Ok(());
    for i in 0..100 {
        result = writer.write(&plain(640, 480, 9), f64::from(i));
        if result.is_err() {
            break;
        }
    }
    let text = result.unwrap_err().to_string();
    assert!(text.contains("Unknown encoder libx264"), "{text}");
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
