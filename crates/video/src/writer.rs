//! Annotated frames out: an H.264 clip through ffmpeg, or JPEG files without it.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use image::{ExtendedColorType, codecs::jpeg::JpegEncoder, imageops};
use shelfscan_inference_core::RgbImage;

use crate::{
    FfmpegInfo, Result, VideoError,
    ffmpeg::{Scrubber, file_argument, process, tool},
};

/// How an annotated clip is encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipOptions {
    /// Frames a second of the clip; frames are repeated or left out to meet it.
    pub fps: f64,
    /// Quality of x264, 0 (lossless) to 51 (worst).
    pub crf: u8,
    /// How long the encoder may take nothing, in seconds.
    pub stall_secs: f64,
}

impl Default for ClipOptions {
    fn default() -> Self {
        Self {
            fps: 30.0,
            crf: 23,
            stall_secs: 60.0,
        }
    }
}

/// Longest stretch a single frame is repeated for, in seconds. A clock that jumps by hours must
/// not fill the disk.
const MAX_HOLD_SECS: f64 = 600.0;

/// Places frames with times of their own on a grid of constant rate.
#[derive(Clone, Copy, Debug)]
struct Grid {
    fps: f64,
    start_secs: f64,
    last_secs: f64,
    written: u64,
}

impl Grid {
    fn new(fps: f64, start_secs: f64) -> Self {
        Self {
            fps,
            start_secs,
            last_secs: start_secs,
            written: 0,
        }
    }

    /// How often the last frame is to be written now that it is known to last until `secs`.
    fn repeats_until(&mut self, secs: f64) -> u64 {
        let step = secs - self.last_secs;
        if !(0.0..=MAX_HOLD_SECS).contains(&step) {
            // The clock jumped: the clip goes on as if a frame's time had passed.
            self.start_secs += step - 1.0 / self.fps;
        }
        self.last_secs = secs;
        let due = ((secs - self.start_secs) * self.fps).round().max(0.0) as u64;
        let repeats = due.saturating_sub(self.written);
        self.written += repeats;
        repeats
    }
}

/// The encoder process and what it needs to be fed.
struct Encoder {
    stdin: Option<ChildStdin>,
    guard: Arc<process::Guard>,
    watchdog: process::Watchdog,
    tail: Arc<Mutex<process::Tail>>,
    drain: Option<JoinHandle<()>>,
    width: u32,
    height: u32,
    grid: Grid,
    held: RgbImage,
}

/// Writes an H.264 MP4 clip that lasts as long as its source.
///
/// Frames carry their own times; they are put on a grid of [`ClipOptions::fps`], so that a source
/// of variable rate, or one read with a stride, plays at its own speed. The size is that of the
/// first frame, made even by a black line; later frames of another size are fitted into it. The
/// file appears under its name only once [`finish`](Self::finish) succeeded.
pub struct ClipWriter {
    path: PathBuf,
    part: PathBuf,
    ffmpeg: FfmpegInfo,
    options: ClipOptions,
    encoder: Option<Encoder>,
    finished: bool,
}

impl ClipWriter {
    /// Prepares a clip; the encoder starts with the first frame.
    ///
    /// # Errors
    /// [`VideoError::InvalidOption`] for a rate or quality out of range, [`VideoError::Io`] when
    /// the folder cannot be written.
    pub fn create(path: &Path, ffmpeg: &FfmpegInfo, options: ClipOptions) -> Result<Self> {
        if !(0.01..=1000.0).contains(&options.fps) {
            return Err(VideoError::InvalidOption {
                option: "fps",
                value: options.fps.to_string(),
                remedy: "it has to lie between 0.01 and 1000",
            });
        }
        if options.crf > 51 {
            return Err(VideoError::InvalidOption {
                option: "crf",
                value: options.crf.to_string(),
                remedy: "it has to lie between 0 and 51",
            });
        }
        let part = part_path(path);
        std::fs::File::create(&part)
            .map_err(|error| VideoError::io("writing the video", path, error))?;
        Ok(Self {
            path: path.into(),
            part,
            ffmpeg: ffmpeg.clone(),
            options,
            encoder: None,
            finished: false,
        })
    }

    /// Adds the frame shown from `secs` on, in seconds of the source's clock, until the next one.
    ///
    /// # Errors
    /// [`VideoError::Encoder`] when the encoder failed; its last lines are in the message.
    pub fn write(&mut self, frame: &RgbImage, secs: f64) -> Result<()> {
        let Some(encoder) = &mut self.encoder else {
            self.encoder = Some(self.start(frame, secs)?);
            return Ok(());
        };
        let repeats = encoder.grid.repeats_until(secs);
        let result = encoder.write_held(repeats);
        encoder.held = fitted(frame, encoder.width, encoder.height);
        result.map_err(|error| self.fail(&error.to_string()))
    }

    /// Ends the clip: the last frame is held until `end_secs`, or for one frame's time, and the
    /// file takes its name.
    ///
    /// # Errors
    /// [`VideoError::Encoder`] when no frame was written or the encoder failed, [`VideoError::Io`]
    /// when the file cannot be renamed.
    pub fn finish(mut self, end_secs: Option<f64>) -> Result<()> {
        let Some(encoder) = &mut self.encoder else {
            return Err(VideoError::Encoder {
                reason: "it has no frame".into(),
                stderr_tail: String::new(),
                path: self.path.clone(),
            });
        };
        let frame_secs = 1.0 / self.options.fps;
        let last = encoder.grid.last_secs;
        let end = end_secs
            .filter(|end| *end > last)
            .unwrap_or(last + frame_secs);
        let repeats = encoder.grid.repeats_until(end);
        // A clip shorter than half a frame still shows its one frame.
        let repeats = if encoder.grid.written == 0 {
            1
        } else {
            repeats
        };
        let written = encoder.write_held(repeats);
        encoder.stdin = None;
        let status = encoder.watchdog.during(|| encoder.guard.wait_to_end());
        if let Some(drain) = encoder.drain.take() {
            drain.join().ok();
        }
        if let Err(error) = written {
            return Err(self.fail(&error.to_string()));
        }
        if !status.is_some_and(|s| s.success()) {
            return Err(self.fail(&process::describe(status)));
        }
        self.encoder = None;
        std::fs::rename(&self.part, &self.path)
            .map_err(|error| VideoError::io("naming the finished video", &self.path, error))?;
        self.finished = true;
        Ok(())
    }

    fn start(&self, first: &RgbImage, secs: f64) -> Result<Encoder> {
        let (width, height) = (first.width(), first.height());
        let io = |error| VideoError::io("starting the encoder", &self.ffmpeg.path, error);
        let mut command = tool(&self.ffmpeg.path);
        command
            .args([
                "-hide_banner",
                "-nostdin",
                "-nostats",
                "-loglevel",
                "warning",
                "-y",
            ])
            .args(["-f", "rawvideo", "-pix_fmt", "rgb24"])
            .args(["-video_size", &format!("{width}x{height}")])
            .args(["-framerate", &self.options.fps.to_string()])
            .args(["-i", "pipe:0", "-an"])
            // 4:2:0 has one colour sample for two pixels either way, so both sides must be even.
            .args(["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"])
            .args([
                "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
            ])
            .args(["-crf", &self.options.crf.to_string()])
            .args(["-movflags", "+faststart", "-f", "mp4"])
            .arg(file_argument(&self.part))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let guard = process::Guard::spawn(&mut command).map_err(io)?;
        let (stdin, stderr) = guard.pipes(|child| (child.stdin.take(), child.stderr.take()));
        let tail = Arc::new(Mutex::new(process::Tail::default()));
        let kept = Arc::clone(&tail);
        let drain = match stderr {
            Some(stderr) => Some(
                process::drain(stderr, Scrubber::default(), move |line| {
                    process::lock(&kept).push(line);
                })
                .map_err(io)?,
            ),
            None => None,
        };
        let stall = Duration::from_secs_f64(self.options.stall_secs.clamp(0.1, 1e6));
        let watchdog = process::Watchdog::new(&guard, stall).map_err(io)?;
        Ok(Encoder {
            stdin,
            guard,
            watchdog,
            tail,
            drain,
            width,
            height,
            grid: Grid::new(self.options.fps, secs),
            held: first.clone(),
        })
    }

    fn fail(&mut self, reason: &str) -> VideoError {
        let mut stderr_tail = String::new();
        if let Some(encoder) = &mut self.encoder {
            encoder.guard.kill(process::Killer::Reader);
            encoder.stdin = None;
            if let Some(drain) = encoder.drain.take() {
                drain.join().ok();
            }
            stderr_tail = process::lock(&encoder.tail).text();
        }
        VideoError::Encoder {
            reason: reason.into(),
            stderr_tail,
            path: self.path.clone(),
        }
    }
}

impl Encoder {
    fn write_held(&mut self, repeats: u64) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it has ended"));
        };
        let (pixels, watch) = (self.held.pixels(), self.watchdog.state());
        self.watchdog.during(|| {
            for _ in 0..repeats {
                stdin.write_all(pixels)?;
                watch.touch();
            }
            Ok(())
        })
    }
}

impl Drop for ClipWriter {
    fn drop(&mut self) {
        self.encoder = None;
        if !self.finished {
            std::fs::remove_file(&self.part).ok();
        }
    }
}

/// The name a file has while it is being written; it keeps the folder, so that the rename stays on
/// one disk.
fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// The frame scaled into `width` x `height`, its shape kept, on black.
fn fitted(frame: &RgbImage, width: u32, height: u32) -> RgbImage {
    if (frame.width(), frame.height()) == (width, height) {
        return frame.clone();
    }
    let scale = (f64::from(width) / f64::from(frame.width()))
        .min(f64::from(height) / f64::from(frame.height()));
    let side =
        |length: u32, limit: u32| ((f64::from(length) * scale).round() as u32).clamp(1, limit);
    let (w, h) = (side(frame.width(), width), side(frame.height(), height));
    let Some(view) = image::ImageBuffer::<image::Rgb<u8>, &[u8]>::from_raw(
        frame.width(),
        frame.height(),
        frame.pixels(),
    ) else {
        return frame.clone();
    };
    let small = imageops::resize(&view, w, h, imageops::FilterType::Triangle);
    let mut canvas = image::RgbImage::new(width, height);
    let (x, y) = (i64::from((width - w) / 2), i64::from((height - h) / 2));
    imageops::replace(&mut canvas, &small, x, y);
    RgbImage::new(width, height, canvas.into_raw()).unwrap_or_else(|_| frame.clone())
}

/// Writes annotated frames as JPEG files, named by frame index: `frame_000042.jpg`.
pub struct FrameDirWriter {
    folder: PathBuf,
    quality: u8,
}

impl FrameDirWriter {
    /// Makes the folder when it is not there.
    ///
    /// # Errors
    /// [`VideoError::Io`] when it cannot be made, [`VideoError::InvalidOption`] for a quality
    /// outside 1 to 100.
    pub fn create(folder: &Path, quality: u8) -> Result<Self> {
        if !(1..=100).contains(&quality) {
            return Err(VideoError::InvalidOption {
                option: "quality",
                value: quality.to_string(),
                remedy: "it has to lie between 1 and 100",
            });
        }
        std::fs::create_dir_all(folder)
            .map_err(|error| VideoError::io("making the folder", folder, error))?;
        Ok(Self {
            folder: folder.into(),
            quality,
        })
    }

    /// Writes one frame and returns its file; a file of that name is replaced as a whole.
    ///
    /// # Errors
    /// [`VideoError::Encoder`] for a frame over 65,535 pixels a side, [`VideoError::Io`].
    pub fn write(&self, frame: &RgbImage, index: u64) -> Result<PathBuf> {
        let path = self.folder.join(format!("frame_{index:06}.jpg"));
        let mut bytes = Vec::new();
        JpegEncoder::new_with_quality(&mut bytes, self.quality)
            .encode(
                frame.pixels(),
                frame.width(),
                frame.height(),
                ExtendedColorType::Rgb8,
            )
            .map_err(|error| VideoError::Encoder {
                reason: error.to_string(),
                stderr_tail: String::new(),
                path: path.clone(),
            })?;
        let part = part_path(&path);
        std::fs::write(&part, &bytes)
            .and_then(|()| std::fs::rename(&part, &path))
            .map_err(|error| VideoError::io("writing the frame", &path, error))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(width: u32, height: u32, value: u8) -> RgbImage {
        RgbImage::new(width, height, vec![value; (width * height * 3) as usize]).unwrap()
    }

    fn total(fps: f64, times: &[f64], end: f64) -> u64 {
        let mut grid = Grid::new(fps, times[0]);
        for &secs in times[1..].iter().chain([&end]) {
            grid.repeats_until(secs);
        }
        grid.written
    }

    #[test]
    fn a_clip_lasts_as_long_as_its_source_whatever_the_frame_times() {
        let strided: Vec<f64> = (0..20).map(|i| 6.9 + f64::from(i) / 6.0).collect();
        assert_eq!(total(30.0, &strided, 6.9 + 20.0 / 6.0), 100);
        assert_eq!(total(30.0, &[0.0, 0.0333, 0.1, 0.7, 0.75], 1.0), 30);
        let dense: Vec<f64> = (0..240).map(|i| f64::from(i) / 120.0).collect();
        assert_eq!(total(30.0, &dense, 2.0), 60);
    }

    #[test]
    fn a_clock_that_jumps_does_not_fill_the_disk() {
        assert!(total(30.0, &[0.0, 0.1, 90_000.0, 90_000.1], 90_000.2) < 20);
        assert!(total(30.0, &[100.0, 100.1, 0.0, 0.1], 0.2) < 20);
    }

    #[test]
    fn a_frame_of_another_size_is_fitted_onto_black() {
        let fit = fitted(&plain(100, 50, 200), 80, 80);
        assert_eq!((fit.width(), fit.height()), (80, 80));
        assert_eq!(fit.pixel(40, 40), Some([200; 3]));
        assert_eq!(fit.pixel(40, 5), Some([0; 3]));
        assert_eq!(fitted(&plain(1, 5000, 9), 16, 16).height(), 16);
    }

    #[test]
    fn frames_are_written_whole_under_their_index() {
        let folder = tempfile::tempdir().unwrap();
        let writer = FrameDirWriter::create(&folder.path().join("a/b"), 90).unwrap();
        let path = writer.write(&plain(33, 17, 120), 42).unwrap();
        assert!(path.ends_with("a/b/frame_000042.jpg"));
        let back = crate::load_picture(&path, &crate::Limits::default()).unwrap();
        assert_eq!((back.width(), back.height()), (33, 17));
        assert_eq!(
            std::fs::read_dir(folder.path().join("a/b"))
                .unwrap()
                .count(),
            1
        );
        assert!(FrameDirWriter::create(folder.path(), 0).is_err());
    }
}
