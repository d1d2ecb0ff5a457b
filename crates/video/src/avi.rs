//! AVI files with a JPEG for each frame, walked chunk by chunk.
//!
//! The layout is that of RIFF: a four letter name, a length, the content, padded to even length.
//! Frames lie in the `movi` list as `NNdc` or `NNdb`, where `NN` is the number of the stream; large
//! files go on in further `RIFF AVIX` parts (OpenDML).

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use image::ImageFormat;
use shelfscan_inference_core::{FrameTime, SourceId};

use crate::{
    Limits, ReadOptions, Result, SourceInfo, VideoError,
    picture::{check_size, decode},
    select::Choice,
    sequential::{Sequential, Step, Steps},
};

/// Names of the codecs that are a JPEG for each frame.
const MJPEG: [&[u8; 4]; 5] = [b"MJPG", b"mjpg", b"JPEG", b"jpeg", b"dmb1"];

/// Largest compressed frame that is read, in bytes.
const MAX_FRAME_BYTES: u32 = 256 << 20;

/// Lists of a header that are entered: three and one for each stream.
const MAX_LISTS: usize = 64;

/// What the header says about the video stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Header {
    stream: u32,
    codec: [u8; 4],
    width: u32,
    height: u32,
    /// Frames a second are `rate / scale`.
    rate: u32,
    scale: u32,
    start: u32,
    length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Chunk {
    name: [u8; 4],
    size: u32,
    /// Position of its content in the file.
    at: u64,
}

/// Walks the chunks of an AVI file from front to back.
struct Walker<R> {
    input: R,
    length: u64,
    position: u64,
}

impl<R: Read + Seek> Walker<R> {
    fn new(mut input: R) -> std::io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        input.seek(SeekFrom::Start(0))?;
        Ok(Self {
            input,
            length,
            position: 0,
        })
    }

    /// The next chunk's name and size; `None` at the end or inside a cut chunk header.
    fn chunk(&mut self) -> std::io::Result<Option<Chunk>> {
        if self.position + 8 > self.length {
            return Ok(None);
        }
        let mut head = [0; 8];
        self.go(self.position)?;
        self.input.read_exact(&mut head)?;
        let chunk = Chunk {
            name: [head[0], head[1], head[2], head[3]],
            size: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            at: self.position + 8,
        };
        self.position = chunk.at;
        Ok(Some(chunk))
    }

    fn skip(&mut self, chunk: Chunk) {
        self.position = chunk.at + u64::from(chunk.size) + u64::from(chunk.size % 2);
    }

    /// The first bytes of a chunk, at most `limit`.
    fn content(&mut self, chunk: Chunk, limit: u32) -> std::io::Result<Vec<u8>> {
        self.go(chunk.at)?;
        let mut bytes = Vec::new();
        let limit = u64::from(chunk.size.min(limit));
        (&mut self.input).take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn go(&mut self, to: u64) -> std::io::Result<()> {
        // Relative seeks keep what the buffer holds.
        let here = self.input.stream_position()?;
        let step = to as i64 - here as i64;
        if step != 0 {
            self.input.seek(SeekFrom::Current(step))?;
        }
        Ok(())
    }

    /// Reads the header up to the first frame list; `None` when this is no AVI with video.
    fn header(&mut self) -> std::io::Result<Option<Header>> {
        let mut found: Option<Header> = None;
        let mut current = Header::default();
        let (mut streams, mut lists) = (0u32, 0usize);
        while let Some(chunk) = self.chunk()? {
            match &chunk.name {
                b"RIFF" | b"LIST" => {
                    let kind = self.content(chunk, 4)?;
                    if kind == b"movi" {
                        self.position = chunk.at + 4;
                        return Ok(found.filter(|h| h.rate > 0 && h.scale > 0));
                    }
                    if [&b"AVI "[..], b"hdrl", b"strl"].contains(&&*kind) {
                        lists += 1;
                        if lists > MAX_LISTS {
                            return Ok(None);
                        }
                        self.position = chunk.at + 4;
                    } else {
                        self.skip(chunk);
                    }
                }
                b"strh" => {
                    let bytes = self.content(chunk, 56)?;
                    current = stream_header(&bytes).unwrap_or_default();
                    current.stream = streams;
                    streams += 1;
                    self.skip(chunk);
                    if bytes.get(..4) != Some(b"vids") {
                        current.rate = 0;
                    }
                }
                b"strf" => {
                    let bytes = self.content(chunk, 40)?;
                    if found.is_none() && current.rate > 0 && bitmap_header(&bytes, &mut current) {
                        found = Some(current.clone());
                    }
                    self.skip(chunk);
                }
                _ => self.skip(chunk),
            }
        }
        Ok(None)
    }

    /// The next chunk of the video stream, entering the lists it may lie in.
    fn frame(&mut self, stream: u32) -> std::io::Result<Option<Chunk>> {
        while let Some(chunk) = self.chunk()? {
            if &chunk.name == b"RIFF" || &chunk.name == b"LIST" {
                let kind = self.content(chunk, 4)?;
                if [&b"AVIX"[..], b"movi", b"rec "].contains(&&*kind) {
                    self.position = chunk.at + 4;
                    continue;
                }
            } else if is_frame_of(chunk.name, stream) {
                return Ok(Some(chunk));
            }
            self.skip(chunk);
        }
        Ok(None)
    }
}

fn is_frame_of(name: [u8; 4], stream: u32) -> bool {
    let digit = |c: u8| char::from(c).to_digit(10);
    let number = digit(name[0]).zip(digit(name[1])).map(|(a, b)| a * 10 + b);
    number == Some(stream) && (&name[2..] == b"dc" || &name[2..] == b"db")
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([part[0], part[1], part[2], part[3]]))
}

fn stream_header(bytes: &[u8]) -> Option<Header> {
    Some(Header {
        scale: le32(bytes, 20)?,
        rate: le32(bytes, 24)?,
        start: le32(bytes, 28)?,
        length: le32(bytes, 32)?,
        ..Header::default()
    })
}

fn bitmap_header(bytes: &[u8], header: &mut Header) -> bool {
    let (Some(width), Some(height), Some(codec)) =
        (le32(bytes, 4), le32(bytes, 8), bytes.get(16..20))
    else {
        return false;
    };
    // A negative height says that rows run downwards.
    (header.width, header.height) = (width, (height as i32).unsigned_abs());
    header.codec.copy_from_slice(codec);
    true
}

/// Reads the frames of an MJPEG AVI.
pub(crate) struct AviReader {
    walker: Walker<BufReader<File>>,
    header: Header,
    path: PathBuf,
    limits: Limits,
    /// Frames so far, repeated ones included, as they take their time too.
    ticks: u64,
}

impl AviReader {
    /// Opens the file; `None` when it is no AVI with MJPEG frames, one whole picture each.
    ///
    /// # Errors
    /// The file cannot be read or its pictures are over the limit.
    pub(crate) fn open(
        path: &Path,
        source: SourceId,
        options: &ReadOptions,
    ) -> Result<Option<Sequential<Self>>> {
        let io = |error| VideoError::io("opening the file", path, error);
        let file = File::open(path).map_err(io)?;
        let mut walker = Walker::new(BufReader::with_capacity(256 << 10, file)).map_err(io)?;
        let Ok(Some(header)) = walker.header() else {
            return Ok(None);
        };
        if !MJPEG.contains(&&header.codec) {
            return Ok(None);
        }
        let limits = &options.limits;
        check_size(header.width, header.height, limits, || {
            path.display().to_string()
        })?;
        let start = walker.position;
        if let Ok(Some(chunk)) = walker.frame(header.stream)
            && let Ok(bytes) = walker.content(chunk, MAX_FRAME_BYTES)
            && let Ok(picture) = decode(&bytes, ImageFormat::Jpeg, path, limits)
            && picture.image.height() * 2 <= header.height + 1
        {
            // Half the height: two interlaced fields a frame, which ffmpeg weaves.
            return Ok(None);
        }
        walker.position = start;
        let fps = f64::from(header.rate) / f64::from(header.scale);
        let frames = u64::from(header.length);
        let info = SourceInfo {
            codec: "mjpeg".into(),
            container: "avi".into(),
            width: header.width,
            height: header.height,
            declared_fps: Some(fps),
            declared_frames: (frames > 0).then_some(frames),
            declared_duration_secs: (frames > 0).then(|| frames as f64 / fps),
            start_secs: f64::from(header.start) / fps,
            reader: "avi-mjpeg".into(),
            ..SourceInfo::default()
        };
        let steps = Self {
            walker,
            header,
            path: path.into(),
            limits: limits.clone(),
            ticks: 0,
        };
        Ok(Some(Sequential::new(steps, info, source, options)))
    }
}

impl Steps for AviReader {
    fn step(&mut self, choose: &mut dyn FnMut(FrameTime) -> Choice) -> Step {
        loop {
            let chunk = match self.walker.frame(self.header.stream) {
                Ok(Some(chunk)) => chunk,
                Ok(None) if self.walker.position > self.walker.length + 1 => {
                    return Step::Broken("the file ends inside a part".into());
                }
                Ok(None) => return Step::End,
                Err(error) => return Step::Broken(error.to_string()),
            };
            let secs = (self.ticks + u64::from(self.header.start)) as f64
                * f64::from(self.header.scale)
                / f64::from(self.header.rate);
            self.ticks += 1;
            self.walker.skip(chunk);
            if chunk.size == 0 {
                // An empty chunk shows the last frame once more.
                continue;
            }
            let time = FrameTime::exact(secs);
            if chunk.at + u64::from(chunk.size) > self.walker.length {
                return Step::Broken("the file ends inside a frame".into());
            }
            match choose(time) {
                Choice::Skip => return Step::Skipped,
                Choice::Stop => return Step::Stop,
                Choice::Deliver => {}
            }
            let decoded = self
                .walker
                .content(chunk, MAX_FRAME_BYTES)
                .map_err(|error| error.to_string())
                .and_then(|bytes| {
                    decode(&bytes, ImageFormat::Jpeg, &self.path, &self.limits)
                        .map_err(|error| error.to_string())
                });
            return match decoded {
                Ok(picture) => Step::Frame(picture.image, time),
                Err(reason) => Step::Lost(reason),
            };
        }
    }
}

// Chunk names are byte strings, which are references by themselves.
#[cfg(test)]
#[allow(clippy::trivially_copy_pass_by_ref)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::{FrameReader, ReadStatus};

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let mut bytes = name.to_vec();
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len() + content.len() % 2, 0);
        bytes
    }

    fn list(name: &[u8; 4], kind: &[u8; 4], parts: &[Vec<u8>]) -> Vec<u8> {
        chunk(name, &[kind.to_vec(), parts.concat()].concat())
    }

    fn jpeg(red: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let pixels: Vec<u8> = [red, 0, 0].repeat(33 * 17);
        image::codecs::jpeg::JpegEncoder::new(&mut bytes)
            .encode(&pixels, 33, 17, image::ExtendedColorType::Rgb8)
            .unwrap();
        bytes
    }

    /// An AVI with sound as stream 0 and the frames as stream 1, in two OpenDML parts.
    fn avi(frames: &[Vec<u8>]) -> Vec<u8> {
        let strh = |kind: &[u8; 4], scale: u32, rate: u32| {
            let mut bytes = kind.to_vec();
            bytes.resize(56, 0);
            bytes[20..24].copy_from_slice(&scale.to_le_bytes());
            bytes[24..28].copy_from_slice(&rate.to_le_bytes());
            bytes[32..36].copy_from_slice(&(frames.len() as u32).to_le_bytes());
            chunk(b"strh", &bytes)
        };
        let mut bitmap = vec![0; 40];
        bitmap[4..8].copy_from_slice(&33u32.to_le_bytes());
        bitmap[8..12].copy_from_slice(&17u32.to_le_bytes());
        bitmap[16..20].copy_from_slice(b"MJPG");
        let header = list(
            b"LIST",
            b"hdrl",
            &[
                chunk(b"avih", &[0; 56]),
                list(
                    b"LIST",
                    b"strl",
                    &[strh(b"auds", 1, 8000), chunk(b"strf", &[0; 18])],
                ),
                list(
                    b"LIST",
                    b"strl",
                    &[strh(b"vids", 1001, 30000), chunk(b"strf", &bitmap)],
                ),
            ],
        );
        let part = |frames: &[Vec<u8>]| {
            let chunks: Vec<Vec<u8>> = frames
                .iter()
                .flat_map(|f| [chunk(b"00wb", &[1, 2, 3]), chunk(b"01dc", f)])
                .collect();
            list(
                b"LIST",
                b"movi",
                &[list(b"LIST", b"rec ", &chunks), chunk(b"ix01", &[0; 7])],
            )
        };
        let half = frames.len() / 2;
        [
            list(
                b"RIFF",
                b"AVI ",
                &[header, chunk(b"JUNK", &[9; 5]), part(&frames[..half])],
            ),
            list(b"RIFF", b"AVIX", &[part(&frames[half..])]),
        ]
        .concat()
    }

    type Seen = Vec<(u64, f64, u8)>;

    fn read(bytes: &[u8], options: &ReadOptions) -> Option<(Seen, crate::ReadSummary)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.avi");
        std::fs::write(&path, bytes).unwrap();
        let mut reader = AviReader::open(&path, SourceId::new("a"), options).unwrap()?;
        let mut seen = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            seen.push((
                frame.index,
                frame.time.secs,
                frame.image.pixel(9, 9).unwrap()[0],
            ));
        }
        Some((seen, reader.summary()))
    }

    #[test]
    fn frames_of_both_parts_come_in_order_with_exact_times() {
        let frames: Vec<Vec<u8>> = (0..4).map(|i| jpeg(i * 60)).collect();
        let (seen, summary) = read(&avi(&frames), &ReadOptions::default()).unwrap();
        assert_eq!(seen.len(), 4);
        for (i, (index, secs, red)) in seen.into_iter().enumerate() {
            assert_eq!(index, i as u64);
            assert!((secs - i as f64 * 1001.0 / 30000.0).abs() < 1e-12);
            assert!(i32::from(red).abs_diff(i as i32 * 60) < 8);
        }
        assert_eq!(summary.status, ReadStatus::Complete);
    }

    #[test]
    fn a_broken_frame_is_lost_alone_and_a_cut_file_keeps_the_rest() {
        let whole = jpeg(200);
        let mut frames = vec![whole.clone(); 4];
        frames[1].truncate(whole.len() / 2);
        let bytes = avi(&frames);
        let (seen, summary) = read(&bytes, &ReadOptions::default()).unwrap();
        assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(summary.dropped, 1);
        let (seen, summary) =
            read(&bytes[..bytes.len() - whole.len()], &ReadOptions::default()).unwrap();
        assert_eq!(seen.len(), 2);
        assert!(matches!(summary.status, ReadStatus::Partial { .. }));
    }

    #[test]
    fn a_file_of_broken_frames_alone_is_an_error() {
        let whole = jpeg(200);
        let frames = vec![whole[..whole.len() / 2].to_vec(); 3];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.avi");
        std::fs::write(&path, avi(&frames)).unwrap();
        let options = ReadOptions::default();
        let reader = AviReader::open(&path, SourceId::new("clips/a.avi"), &options);
        let error = reader.unwrap().unwrap().next_frame().unwrap_err();
        assert!(matches!(error, VideoError::Unreadable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("frame 0 is lost: the picture is cut or damaged (the JPEG ends"),
            "{text}"
        );
        assert!(text.ends_with("clips/a.avi"), "{text}");
    }

    #[test]
    fn an_empty_chunk_takes_its_time_and_gives_no_frame() {
        let frames = vec![jpeg(10), Vec::new(), jpeg(20), jpeg(30)];
        let (seen, _) = read(&avi(&frames), &ReadOptions::default()).unwrap();
        let times: Vec<i64> = seen
            .iter()
            .map(|s| (s.1 * 30000.0 / 1001.0).round() as i64)
            .collect();
        assert_eq!(times, [0, 2, 3]);
        assert_eq!(seen[1].0, 1);
    }

    #[test]
    fn another_codec_is_left_to_ffmpeg() {
        let mut bytes = avi(&[jpeg(1), jpeg(2)]);
        let at = bytes.windows(4).position(|w| w == b"MJPG").unwrap();
        bytes[at..at + 4].copy_from_slice(b"cvid");
        assert!(read(&bytes, &ReadOptions::default()).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn flipped_and_cut_bytes_end_without_a_panic(
            flips in proptest::collection::vec((0usize..2000, any::<u8>()), 0..12),
            cut in 0usize..2000,
        ) {
            let mut bytes = avi(&[vec![7; 30], vec![8; 31]]);
            for (at, value) in flips {
                let length = bytes.len();
                bytes[at % length] = value;
            }
            bytes.truncate(bytes.len() - cut % bytes.len());
            let mut walker = Walker::new(Cursor::new(bytes)).unwrap();
            if let Ok(Some(header)) = walker.header() {
                let mut steps = 0;
                while let Ok(Some(chunk)) = walker.frame(header.stream) {
                    walker.skip(chunk);
                    steps += 1;
                    prop_assert!(steps < 10_000);
                }
            }
        }
    }
}
