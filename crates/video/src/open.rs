//! Which reader opens which source.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use image::ImageFormat;

use crate::{
    FrameReader, ReadOptions, Result, Source, SourceInfo, VideoError,
    animation::AnimationReader,
    avi::AviReader,
    camera::camera_input,
    ffmpeg::{FfmpegReader, Input, Target, file_argument, find_for},
    picture::picture_format,
    pictures::PicturesReader,
    y4m_reader::Y4mReader,
};

/// Bytes that are enough to tell every format read here by its signature.
const HEAD_BYTES: u64 = 64 << 10;

/// Opens a source for reading; its size is known afterwards.
///
/// What can be read without ffmpeg always is, so that the result does not depend on it.
///
/// # Errors
/// A named reason why not one frame can be read, see [`VideoError`].
pub fn open(source: &Source, options: &ReadOptions) -> Result<Box<dyn FrameReader>> {
    options.validate()?;
    match source {
        Source::Pictures(set) => Ok(Box::new(PicturesReader::open(
            set.files()?,
            "folder",
            source.id(),
            options,
        )?)),
        Source::File(path) => open_file(path, source, options),
        Source::Url(address) => {
            let mut input = Input {
                address: address.into(),
                ..Input::default()
            };
            if address
                .get(..4)
                .is_some_and(|s| s.eq_ignore_ascii_case("rtsp"))
            {
                // Over UDP a lost packet is a torn picture.
                input.before = vec!["-rtsp_transport".into(), "tcp".into()];
            }
            through_ffmpeg(source, input, None, false, options, "addresses")
        }
        Source::Camera(index) => {
            let ffmpeg = find_for(&options.ffmpeg, "cameras")?;
            let input = camera_input(&ffmpeg, *index)?;
            through_ffmpeg(source, input, None, false, options, "cameras")
        }
    }
}

/// Says what is in a source; decodes no more than its first frame.
///
/// # Errors
/// As [`open`].
pub fn probe(source: &Source, options: &ReadOptions) -> Result<SourceInfo> {
    let first = ReadOptions {
        max_frames: Some(1),
        limits: options.limits.clone(),
        ffmpeg: options.ffmpeg.clone(),
        pictures_per_sec: options.pictures_per_sec,
        ..ReadOptions::default()
    };
    open(source, &first).map(|reader| reader.info().clone())
}

fn open_file(path: &Path, source: &Source, options: &ReadOptions) -> Result<Box<dyn FrameReader>> {
    let head = head(path)?;
    if let Some(format) = picture_format(&head, path) {
        if let Some(reader) = AnimationReader::open(path, format, source.id(), options)? {
            return Ok(Box::new(reader));
        }
        if READABLE.contains(&format) {
            return Ok(Box::new(PicturesReader::open(
                vec![PathBuf::from(path)],
                "picture",
                source.id(),
                options,
            )?));
        }
    }
    if head.starts_with(b"YUV4MPEG2 ") {
        return Ok(Box::new(Y4mReader::open(path, source.id(), options)?));
    }
    if head.starts_with(b"RIFF")
        && let Some(reader) = AviReader::open(path, source.id(), options)?
    {
        return Ok(Box::new(reader));
    }
    let input = Input {
        // A play list that names other places must not be followed out of the machine.
        before: vec!["-protocol_whitelist".into(), "file,crypto,data".into()],
        address: file_argument(path),
    };
    let what = path.extension().and_then(|e| e.to_str()).map_or_else(
        || "this kind of file".to_owned(),
        |ending| format!("{ending} files"),
    );
    through_ffmpeg(source, input, Some(path), has_index(&head), options, &what)
}

/// Picture formats that are decoded here.
const READABLE: [ImageFormat; 9] = [
    ImageFormat::Bmp,
    ImageFormat::Gif,
    ImageFormat::Ico,
    ImageFormat::Jpeg,
    ImageFormat::Png,
    ImageFormat::Pnm,
    ImageFormat::Tga,
    ImageFormat::Tiff,
    ImageFormat::WebP,
];

fn through_ffmpeg(
    source: &Source,
    input: Input,
    file: Option<&Path>,
    has_index: bool,
    options: &ReadOptions,
    needed_for: &str,
) -> Result<Box<dyn FrameReader>> {
    let ffmpeg = find_for(&options.ffmpeg, needed_for)?;
    let target = Target {
        input,
        file: file.map(PathBuf::from),
        has_index,
        live: source.is_live(),
        name: source.to_string(),
        source: source.id(),
    };
    Ok(Box::new(FfmpegReader::open(ffmpeg, target, options)?))
}

/// True for containers with an index of their packets: ISO media and Matroska. Others are decoded
/// from the start, as a jump in them may land on a frame that does not decode.
fn has_index(head: &[u8]) -> bool {
    let iso = head.get(4..8).is_some_and(|kind| {
        [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"]
            .iter()
            .any(|k| *k == kind)
    });
    iso || head.starts_with(&[0x1a, 0x45, 0xdf, 0xa3])
}

/// The first bytes of a file that is there and not empty.
fn head(path: &Path) -> Result<Vec<u8>> {
    let io = |error| VideoError::io("opening the file", path, error);
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(io)?;
    if head.is_empty() {
        return Err(VideoError::EmptyFile { path: path.into() });
    }
    Ok(head)
}
