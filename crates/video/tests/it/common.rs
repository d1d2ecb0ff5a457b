//! What the tests share.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use shelfscan_inference_core::{RgbImage, VideoFrame};
use shelfscan_video::{
    FfmpegInfo, FfmpegLocation, ReadOptions, ReadSummary, Source, VideoError, find_ffmpeg, open,
};

/// The folder of awkward files, when this checkout has it.
pub(crate) fn collection() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/videos");
    if folder.join("manifest.csv").is_file() {
        return Some(folder);
    }
    println!("skipped: the collection of awkward files is not here");
    None
}

/// ffmpeg, when this machine has it.
pub(crate) fn ffmpeg() -> Option<&'static FfmpegInfo> {
    static FOUND: OnceLock<Option<FfmpegInfo>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find_ffmpeg(&FfmpegLocation::SearchPath).ok());
    if found.is_none() {
        println!("skipped: ffmpeg 5.1 or later is not here");
    }
    found.as_ref()
}

pub(crate) type Read = (Vec<VideoFrame>, ReadSummary);

pub(crate) fn read(path: &Path, options: &ReadOptions) -> Result<Read, VideoError> {
    let mut reader = open(&Source::File(path.into()), options)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push(frame);
    }
    Ok((frames, reader.summary()))
}

pub(crate) const WIDTH: u32 = 96;
pub(crate) const HEIGHT: u32 = 48;

/// A picture that shows its number as eight black or white bars, least bit left.
pub(crate) fn numbered(number: u32) -> Vec<u8> {
    (0..HEIGHT)
        .flat_map(|_| (0..WIDTH).map(move |x| (number >> (x / 12) & 1) as u8 * 235 + 10))
        .flat_map(|value| [value; 3])
        .collect()
}

/// The number a picture shows.
pub(crate) fn number_in(image: &RgbImage) -> u32 {
    let bar = image.width() / 8;
    (0..8)
        .map(|bit| {
            let pixel = image
                .pixel(bit * bar + bar / 2, image.height() / 2)
                .unwrap();
            u32::from(pixel[1] > 127) << bit
        })
        .sum()
}

/// Encodes `count` numbered pictures at 25 a second with the given output arguments.
pub(crate) fn encode(ffmpeg: &FfmpegInfo, count: u32, arguments: &[&str], path: &Path) {
    let mut child = Command::new(&ffmpeg.path)
        .args(["-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"])
        .args([
            "-video_size",
            &format!("{WIDTH}x{HEIGHT}"),
            "-framerate",
            "25",
        ])
        .args(["-i", "pipe:0"])
        .args(arguments)
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for number in 0..count {
        stdin.write_all(&numbered(number)).unwrap();
    }
    drop(stdin);
    assert!(
        child.wait().unwrap().success(),
        "encoding {}",
        path.display()
    );
}

pub(crate) fn run(ffmpeg: &FfmpegInfo, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(&ffmpeg.path)
        .args(["-v", "error", "-y", "-nostdin"])
        .args(arguments)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    output.stdout
}

/// Mean absolute difference of two pictures of one size, in steps of 255.
pub(crate) fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a
        .iter()
        .zip(b)
        .map(|(p, q)| u64::from(p.abs_diff(*q)))
        .sum();
    sum as f64 / a.len() as f64
}
