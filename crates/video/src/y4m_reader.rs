//! Uncompressed YUV4MPEG2 files.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use shelfscan_inference_core::{FrameTime, RgbImage, SourceId};
use y4m::Colorspace;

use crate::{
    ReadOptions, Result, SourceInfo, VideoError,
    picture::check_size,
    select::Choice,
    sequential::{Sequential, Step, Steps, unreadable},
};

/// Frames a second of a file whose header does not say.
const ASSUMED_FPS: f64 = 25.0;

/// Reads a Y4M file. Colours are BT.601, as nothing in the format says otherwise; the range is the
/// limited one unless the header says `XCOLORRANGE=FULL`.
pub(crate) struct Y4mReader {
    decoder: y4m::Decoder<Counted<BufReader<File>>>,
    /// Bytes taken from the file, which tell a clean end from one inside a frame.
    taken: Arc<AtomicU64>,
    file_bytes: u64,
    layout: Layout,
    /// Frames a second by the header, when it says so.
    declared: Option<f64>,
    index: u64,
}

/// Counts what is read through it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// How the planes of a frame lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    width: usize,
    height: usize,
    /// Chroma samples are shared by `1 << shift` pixels; `None` for grey.
    chroma: Option<(u32, u32)>,
    bits: usize,
    full_range: bool,
}

impl Y4mReader {
    pub(crate) fn open(
        path: &Path,
        source: SourceId,
        options: &ReadOptions,
    ) -> Result<Sequential<Self>> {
        let io = |error| VideoError::io("opening the file", path, error);
        let file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let bytes =
            usize::try_from(options.limits.max_pixels.saturating_mul(6)).unwrap_or(usize::MAX);
        let taken = Arc::new(AtomicU64::new(0));
        let input = Counted {
            inner: BufReader::with_capacity(256 << 10, file),
            count: Arc::clone(&taken),
        };
        let decoder = y4m::Decoder::new_with_limits(input, y4m::Limits { bytes })
            .map_err(|error| unreadable(format!("the Y4M header is broken: {error}"), path))?;
        let (width, height) = (decoder.get_width(), decoder.get_height());
        let side = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        check_size(side(width), side(height), &options.limits, || {
            path.display().to_string()
        })?;
        if width == 0 || height == 0 {
            return Err(unreadable("its pictures have no size", path));
        }
        let colours = decoder.get_colorspace();
        let layout = Layout {
            width,
            height,
            chroma: chroma_shifts(colours).ok_or_else(|| {
                unreadable(format!("colour format {colours:?} is not read"), path)
            })?,
            bits: decoder.get_bit_depth(),
            full_range: decoder
                .get_raw_params()
                .windows(16)
                .any(|part| part == b"XCOLORRANGE=FULL"),
        };
        let rate = decoder.get_framerate();
        let declared = (rate.num > 0 && rate.den > 0).then(|| rate.num as f64 / rate.den as f64);
        // Each frame has a line of its own in front, which is `FRAME` and seldom more.
        let body = file_bytes.saturating_sub(taken.load(Ordering::Relaxed));
        let frames = body / (layout.frame_bytes() as u64 + 6);
        let info = SourceInfo {
            codec: "rawvideo".into(),
            container: "y4m".into(),
            width: side(width),
            height: side(height),
            declared_fps: declared,
            declared_frames: Some(frames),
            declared_duration_secs: declared.map(|fps| frames as f64 / fps),
            pixel_format: Some(format!("{colours:?}")),
            reader: "y4m".into(),
            ..SourceInfo::default()
        };
        let steps = Self {
            decoder,
            taken,
            file_bytes,
            layout,
            declared,
            index: 0,
        };
        Ok(Sequential::new(steps, info, source, options))
    }
}

impl Steps for Y4mReader {
    fn step(&mut self, choose: &mut dyn FnMut(FrameTime) -> Choice) -> Step {
        let time = match self.declared {
            Some(fps) => FrameTime::exact(self.index as f64 / fps),
            None => FrameTime::estimated(self.index as f64 / ASSUMED_FPS),
        };
        let before = self.taken.load(Ordering::Relaxed);
        let frame = match self.decoder.read_frame() {
            Ok(frame) => frame,
            Err(y4m::Error::EOF) if before >= self.file_bytes => return Step::End,
            Err(y4m::Error::EOF) => return Step::Broken("the file ends inside a frame".into()),
            Err(error) => return Step::Broken(format!("the file breaks off: {error}")),
        };
        self.index += 1;
        match choose(time) {
            Choice::Skip => Step::Skipped,
            Choice::Stop => Step::Stop,
            Choice::Deliver => {
                let planes = [
                    frame.get_y_plane(),
                    frame.get_u_plane(),
                    frame.get_v_plane(),
                ];
                let pixels = self.layout.to_rgb(planes);
                match RgbImage::new(self.layout.width as u32, self.layout.height as u32, pixels) {
                    Ok(image) => Step::Frame(image, time),
                    Err(error) => Step::Lost(error.to_string()),
                }
            }
        }
    }
}

impl Layout {
    fn frame_bytes(&self) -> usize {
        let chroma = self.chroma.map_or(0, |(x, y)| {
            2 * shrunk(self.width, x) * shrunk(self.height, y)
        });
        (self.width * self.height + chroma) * self.bits.div_ceil(8)
    }

    /// RGB pixels of one frame's Y, U and V planes.
    fn to_rgb(self, [luma, blue, red]: [&[u8]; 3]) -> Vec<u8> {
        let wide = self.bits > 8;
        let scale = 1.0 / (1u32 << (self.bits - 8)) as f32;
        let sample = |plane: &[u8], at: usize| -> f32 {
            if wide {
                let value = plane
                    .get(at * 2..at * 2 + 2)
                    .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
                f32::from(value) * scale
            } else {
                plane.get(at).map_or(0.0, |b| f32::from(*b))
            }
        };
        let (offset, luma_gain, chroma_gain) = if self.full_range {
            (0.0, 1.0, 1.0)
        } else {
            (16.0, 255.0 / 219.0, 255.0 / 224.0)
        };
        let mut pixels = Vec::with_capacity(self.width * self.height * 3);
        for y in 0..self.height {
            for x in 0..self.width {
                let l = (sample(luma, y * self.width + x) - offset) * luma_gain;
                let (cb, cr) = self.chroma.map_or((0.0, 0.0), |(sx, sy)| {
                    let at = (y >> sy) * shrunk(self.width, sx) + (x >> sx);
                    let centred = |plane| (sample(plane, at) - 128.0) * chroma_gain;
                    (centred(blue), centred(red))
                });
                // BT.601.
                let rgb = [
                    l + 1.402 * cr,
                    l - 0.344_136 * cb - 0.714_136 * cr,
                    l + 1.772 * cb,
                ];
                pixels.extend(rgb.map(|value| value.round().clamp(0.0, 255.0) as u8));
            }
        }
        pixels
    }
}

fn shrunk(length: usize, shift: u32) -> usize {
    length.div_ceil(1 << shift)
}

/// By how many bits chroma is coarser in x and y; the outer `None` is a format not read.
#[allow(clippy::option_option)]
fn chroma_shifts(colours: Colorspace) -> Option<Option<(u32, u32)>> {
    Some(match colours {
        Colorspace::Cmono | Colorspace::Cmono12 => None,
        Colorspace::C422 | Colorspace::C422p10 | Colorspace::C422p12 => Some((1, 0)),
        Colorspace::C444 | Colorspace::C444p10 | Colorspace::C444p12 => Some((0, 0)),
        Colorspace::C420
        | Colorspace::C420p10
        | Colorspace::C420p12
        | Colorspace::C420jpeg
        | Colorspace::C420paldv
        | Colorspace::C420mpeg2 => Some((1, 1)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FrameReader, ReadStatus};

    fn file(header: &str, frames: &[Vec<u8>]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.y4m");
        let mut bytes = format!("YUV4MPEG2 {header}\n").into_bytes();
        for frame in frames {
            bytes.extend_from_slice(b"FRAME\n");
            bytes.extend_from_slice(frame);
        }
        std::fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// A 3x3 frame of one colour, 4:2:0, so that both sides are odd.
    fn plain(y: u8, u: u8, v: u8) -> Vec<u8> {
        [vec![y; 9], vec![u; 4], vec![v; 4]].concat()
    }

    #[test]
    fn frames_of_odd_size_come_with_the_declared_rate() {
        let (_folder, path) = file(
            "W3 H3 F30000:1001 C420jpeg",
            &[plain(235, 128, 128), plain(81, 90, 240)],
        );
        let mut reader =
            Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()).unwrap();
        assert_eq!(reader.info().declared_frames, Some(2));
        let white = reader.next_frame().unwrap().unwrap();
        assert_eq!(white.image.pixel(2, 2), Some([255, 255, 255]));
        let red = reader.next_frame().unwrap().unwrap();
        let [r, g, b] = red.image.pixel(1, 1).unwrap();
        assert!(r > 250 && g < 4 && b < 4, "{r} {g} {b}");
        assert!((red.time.secs - 1001.0 / 30000.0).abs() < 1e-9);
        assert!(reader.next_frame().unwrap().is_none());
        assert_eq!(reader.summary().status, ReadStatus::Complete);
    }

    #[test]
    fn ten_bits_and_full_range_give_the_same_grey() {
        let deep: Vec<u8> = [[0x00u8, 0x02]; 4 * 3].concat(); // 512 of 1023 in all three planes
        let (_folder, path) = file("W2 H2 F25:1 C444p10 XCOLORRANGE=FULL", &[deep]);
        let mut reader =
            Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!(frame.image.pixel(0, 1), Some([128, 128, 128]));
    }

    #[test]
    fn a_file_cut_inside_a_frame_keeps_the_whole_ones() {
        let (_folder, path) = file("W3 H3 F25:1", &[plain(100, 128, 128), plain(100, 128, 128)]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let mut reader =
            Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()).unwrap();
        assert!(reader.next_frame().unwrap().is_some());
        assert!(reader.next_frame().unwrap().is_none());
        let status = reader.summary().status;
        assert!(status.to_string().contains("after 1 frames"), "{status}");
    }

    #[test]
    fn a_header_alone_is_a_file_without_frames_and_a_giant_one_is_refused() {
        let (_folder, path) = file("W3 H3 F25:1", &[]);
        let mut reader =
            Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()).unwrap();
        assert!(matches!(
            reader.next_frame(),
            Err(VideoError::NoFrames { .. })
        ));
        let (_folder, path) = file("W90000 H90000 F25:1", &[]);
        assert!(Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()).is_err());
    }

    proptest! {
        #[test]
        fn any_header_and_body_end_without_a_panic(header in "[WHFCAIX0-9: a-z]{0,40}", body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let (_folder, path) = file(&header, &[body]);
            if let Ok(mut reader) = Y4mReader::open(&path, SourceId::new("a"), &ReadOptions::default()) {
                while let Ok(Some(_)) = reader.next_frame() {}
            }
        }
    }
}
