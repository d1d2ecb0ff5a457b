//! Animated GIF, WebP and PNG, each frame as it stands on the screen.

use std::{
    fs::File,
    io::BufReader,
    path::Path,
    sync::mpsc::{Receiver, sync_channel},
};

use image::{
    AnimationDecoder, Delay, Frame, Frames, ImageDecoder, ImageFormat, ImageResult, Rgba,
    codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder},
};
use shelfscan_inference_core::{FrameTime, Notice, RgbImage, SourceId};

use crate::{
    Limits, ReadOptions, Result, SourceInfo, VideoError,
    picture::{alpha_notice, check_size, decode_limits, explain, flatten},
    select::Choice,
    sequential::{Sequential, Step, Steps},
};

/// Delays up to this are taken for "as fast as possible" and shown for [`SHOWN_SECS`], as browsers
/// do.
const TOO_SHORT_SECS: f64 = 0.0105;
const SHOWN_SECS: f64 = 0.1;

type Input = BufReader<File>;

/// Decodes on a thread of its own, as the decoders' frames cannot move between threads.
pub(crate) struct AnimationReader {
    frames: Receiver<std::result::Result<Frame, String>>,
    secs: f64,
    estimated: bool,
    was_transparent: bool,
}

impl AnimationReader {
    /// Opens an animation; `None` when the file is a still picture.
    ///
    /// # Errors
    /// The file cannot be read or its pictures are over the limit.
    pub(crate) fn open(
        path: &Path,
        format: ImageFormat,
        source: SourceId,
        options: &ReadOptions,
    ) -> Result<Option<Sequential<Self>>> {
        let Some(size) = animated_size(path, format, &options.limits)? else {
            return Ok(None);
        };
        let (sender, frames) = sync_channel(1);
        let (file, limits) = (path.to_path_buf(), options.limits.clone());
        std::thread::Builder::new()
            .name("animation".into())
            .spawn(move || {
                let frames = match open_frames(&file, format, &limits) {
                    Ok(frames) => frames,
                    Err(error) => {
                        sender.send(Err(error.to_string())).ok();
                        return;
                    }
                };
                for frame in frames {
                    let failed = frame.is_err();
                    // A receiver that has gone wants no more frames.
                    if sender.send(frame.map_err(|e| e.to_string())).is_err() || failed {
                        return;
                    }
                }
            })
            .map_err(|error| VideoError::io("starting the decoder", path, error))?;
        let name = if format == ImageFormat::Png {
            "apng".to_owned()
        } else {
            format!("{format:?}").to_ascii_lowercase()
        };
        let info = SourceInfo {
            codec: name.clone(),
            container: name.clone(),
            width: size.0,
            height: size.1,
            reader: name,
            ..SourceInfo::default()
        };
        let steps = Self {
            frames,
            secs: 0.0,
            estimated: false,
            was_transparent: false,
        };
        Ok(Some(Sequential::new(steps, info, source, options)))
    }
}

impl Steps for AnimationReader {
    fn step(&mut self, choose: &mut dyn FnMut(FrameTime) -> Choice) -> Step {
        let frame = match self.frames.recv() {
            Err(_) => return Step::End,
            Ok(Err(reason)) => return Step::Broken(reason),
            Ok(Ok(frame)) => frame,
        };
        let time = FrameTime {
            secs: self.secs,
            estimated: self.estimated,
        };
        let (step, guessed) = shown_secs(frame.delay());
        self.secs += step;
        self.estimated |= guessed;
        match choose(time) {
            Choice::Skip => Step::Skipped,
            Choice::Stop => Step::Stop,
            Choice::Deliver => {
                let buffer = frame.into_buffer();
                let (width, height) = buffer.dimensions();
                let (pixels, was_transparent) = flatten(buffer.into_raw());
                self.was_transparent |= was_transparent;
                match RgbImage::new(width, height, pixels) {
                    Ok(image) => Step::Frame(image, time),
                    Err(error) => Step::Lost(error.to_string()),
                }
            }
        }
    }

    fn notices(&self) -> Vec<Notice> {
        self.was_transparent
            .then(alpha_notice)
            .into_iter()
            .collect()
    }
}

/// How long a frame is shown, and whether that had to be guessed.
fn shown_secs(delay: Delay) -> (f64, bool) {
    let (numerator, denominator) = delay.numer_denom_ms();
    let secs = f64::from(numerator) / f64::from(denominator.max(1)) / 1000.0;
    if secs < TOO_SHORT_SECS {
        (SHOWN_SECS, true)
    } else {
        (secs, false)
    }
}

fn input(path: &Path) -> Result<Input> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| VideoError::io("opening the animation", path, error))
}

/// The size of an animation that is within the limits; `None` for anything else.
fn animated_size(path: &Path, format: ImageFormat, limits: &Limits) -> Result<Option<(u32, u32)>> {
    let explain = |error| explain(error, path, limits);
    let size = match format {
        ImageFormat::Gif => {
            let decoder = GifDecoder::new(input(path)?).map_err(explain)?;
            Some(decoder.dimensions())
        }
        ImageFormat::WebP => {
            let decoder = WebPDecoder::new(input(path)?).map_err(explain)?;
            decoder.has_animation().then(|| decoder.dimensions())
        }
        ImageFormat::Png => {
            let decoder =
                PngDecoder::with_limits(input(path)?, decode_limits(limits)).map_err(explain)?;
            let animated = decoder.is_apng().map_err(explain)?;
            animated.then(|| decoder.dimensions())
        }
        _ => None,
    };
    if let Some((width, height)) = size {
        check_size(width, height, limits, || path.display().to_string())?;
    }
    Ok(size)
}

fn open_frames(path: &Path, format: ImageFormat, limits: &Limits) -> ImageResult<Frames<'static>> {
    let input = BufReader::new(File::open(path)?);
    let inner = decode_limits(limits);
    Ok(match format {
        ImageFormat::Gif => {
            let mut decoder = GifDecoder::new(input)?;
            decoder.set_limits(inner)?;
            decoder.into_frames()
        }
        ImageFormat::WebP => {
            let mut decoder = WebPDecoder::new(input)?;
            decoder.set_limits(inner)?;
            decoder.set_background_color(Rgba([255, 255, 255, 0]))?;
            decoder.into_frames()
        }
        _ => PngDecoder::with_limits(input, inner)?.apng()?.into_frames(),
    })
}

#[cfg(test)]
mod tests {
    use image::{RgbaImage, codecs::gif::GifEncoder};

    use super::*;
    use crate::{FrameReader, ReadStatus};

    fn gif(delays_ms: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = GifEncoder::new(&mut bytes);
        for (i, &delay) in delays_ms.iter().enumerate() {
            let picture = RgbaImage::from_pixel(20, 10, Rgba([i as u8 * 40, 0, 0, 255]));
            let delay = Delay::from_numer_denom_ms(delay, 1);
            encoder
                .encode_frame(Frame::from_parts(picture, 0, 0, delay))
                .unwrap();
        }
        drop(encoder);
        bytes
    }

    fn read(bytes: &[u8], options: &ReadOptions) -> (Vec<(u64, f64, u8)>, crate::ReadSummary) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gif");
        std::fs::write(&path, bytes).unwrap();
        let mut reader =
            AnimationReader::open(&path, ImageFormat::Gif, SourceId::new("a"), options)
                .unwrap()
                .unwrap();
        let mut seen = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            let red = frame.image.pixel(3, 3).unwrap()[0];
            seen.push((frame.index, (frame.time.secs * 1e6).round() / 1e6, red));
        }
        (seen, reader.summary())
    }

    #[test]
    fn times_are_the_sums_of_the_delays() {
        let (seen, summary) = read(&gif(&[100, 250, 50, 100]), &ReadOptions::default());
        assert_eq!(
            seen,
            [(0, 0.0, 0), (1, 0.1, 40), (2, 0.35, 80), (3, 0.4, 120)]
        );
        assert_eq!(summary.status, ReadStatus::Complete);
    }

    #[test]
    fn a_window_and_a_stride_keep_index_and_time() {
        let options = ReadOptions {
            every: 2,
            start_secs: Some(0.1),
            ..Default::default()
        };
        let (seen, _) = read(&gif(&[100; 6]), &options);
        assert_eq!(seen, [(2, 0.2, 80), (4, 0.4, 160)]);
    }

    #[test]
    fn a_cut_animation_gives_its_good_frames_and_a_partial_status() {
        let bytes = gif(&[100; 5]);
        let (seen, summary) = read(&bytes[..bytes.len() - 40], &ReadOptions::default());
        assert!(!seen.is_empty() && seen.len() < 5, "{}", seen.len());
        assert!(matches!(summary.status, ReadStatus::Partial { .. }));
    }

    #[test]
    fn a_frame_without_a_delay_is_shown_for_a_tenth_and_flagged() {
        assert_eq!(shown_secs(Delay::from_numer_denom_ms(0, 1)), (0.1, true));
        assert_eq!(shown_secs(Delay::from_numer_denom_ms(20, 1)), (0.02, false));
    }
}
