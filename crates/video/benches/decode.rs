//! What the way from a file to our memory costs.
//!
//! `cargo bench -p shelfscan-video`. The clip is encoded first, so ffmpeg has to be there; the rows
//! that need it are left out otherwise.
#![allow(clippy::unwrap_used)]

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use divan::{Bencher, counter::ItemsCount};
use shelfscan_inference_core::{BoxXyxy, RgbImage, TrackId};
use shelfscan_video::{
    Annotation, FfmpegInfo, FfmpegLocation, Limits, ReadOptions, Source, annotate, find_ffmpeg,
    load_picture, open,
};

const FRAMES: u64 = 120;

fn main() {
    divan::main();
}

struct Fixture {
    folder: tempfile::TempDir,
    ffmpeg: Option<FfmpegInfo>,
}

impl Fixture {
    fn get() -> &'static Self {
        static FIXTURE: OnceLock<Fixture> = OnceLock::new();
        FIXTURE.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let ffmpeg = find_ffmpeg(&FfmpegLocation::SearchPath).ok();
            if let Some(ffmpeg) = &ffmpeg {
                let made = Command::new(&ffmpeg.path)
                    .args(["-v", "error", "-f", "lavfi", "-i"])
                    .arg(format!(
                        "testsrc2=size=1920x1080:rate=30:duration={}",
                        FRAMES / 30
                    ))
                    .args([
                        "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
                    ])
                    .arg(folder.path().join("clip.mp4"))
                    .status()
                    .unwrap();
                assert!(made.success());
            }
            let noise = image::RgbImage::from_fn(1920, 1080, |x, y| {
                image::Rgb([(x * 7 + y) as u8, (x ^ y) as u8, (y * 3) as u8])
            });
            noise.save(folder.path().join("shelf.jpg")).unwrap();
            Self { folder, ffmpeg }
        })
    }

    fn clip(&self) -> Option<(&FfmpegInfo, PathBuf)> {
        self.ffmpeg.as_ref().map(|f| (f, self.path("clip.mp4")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn count(path: &Path, options: &ReadOptions) -> u64 {
    let mut reader = open(&Source::File(path.into()), options).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        divan::black_box(&frame);
    }
    reader.summary().decoded
}

/// The decoder and the pipe alone: no time stamps are asked for, the bytes are thrown away.
#[divan::bench(sample_count = 5)]
fn pipe_without_time_stamps(bencher: Bencher) {
    let Some((ffmpeg, clip)) = Fixture::get().clip() else {
        return;
    };
    bencher.counter(ItemsCount::new(FRAMES)).bench(|| {
        let mut child = Command::new(&ffmpeg.path)
            .args(["-v", "error", "-nostdin", "-i"])
            .arg(&clip)
            .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut frame = vec![0; 1920 * 1080 * 3];
        let mut stdout = child.stdout.take().unwrap();
        while stdout.read_exact(&mut frame).is_ok() {
            divan::black_box(&frame);
        }
        child.wait().unwrap()
    });
}

#[divan::bench(sample_count = 5, args = ["all", "every 10", "key frames"])]
fn read_1080p(bencher: Bencher, choice: &str) {
    let Some((ffmpeg, clip)) = Fixture::get().clip() else {
        return;
    };
    let options = ReadOptions {
        every: if choice == "every 10" { 10 } else { 1 },
        keyframes_only: choice == "key frames",
        ffmpeg: FfmpegLocation::Checked(ffmpeg.clone()),
        ..ReadOptions::default()
    };
    bencher
        .counter(ItemsCount::new(FRAMES))
        .bench(|| count(&clip, &options));
}

#[divan::bench(sample_count = 20)]
fn load_1080p_jpeg(bencher: Bencher) {
    let path = Fixture::get().path("shelf.jpg");
    bencher.bench(|| load_picture(&path, &Limits::default()).unwrap());
}

#[divan::bench(sample_count = 20)]
fn annotate_1080p_with_100_boxes(bencher: Bencher) {
    let frame = RgbImage::new(1920, 1080, vec![90; 1920 * 1080 * 3]).unwrap();
    let annotations: Vec<Annotation> = (0..100u16)
        .map(|i| Annotation {
            bbox: BoxXyxy::from_xywh(
                f32::from(i % 20) * 95.0,
                f32::from(i / 20) * 200.0,
                80.0,
                180.0,
            ),
            label: "cola 0.5l 0.93".into(),
            track_id: Some(TrackId(u64::from(i))),
            color: None,
            mask: None,
        })
        .collect();
    bencher.bench(|| annotate(&frame, &annotations));
}
