//! Which reader opens which source.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{
    FrameReader, ReadOptions, Result, Source, SourceInfo, VideoError, pictures::PicturesReader,
};

/// Bytes that are enough to tell every format read here by its signature.
const HEAD_BYTES: u64 = 4096;

/// Opens a source for reading; its size is known afterwards.
///
/// # Errors
/// A named reason why not one frame can be read, see [`VideoError`].
pub fn open(source: &Source, options: &ReadOptions) -> Result<Box<dyn FrameReader>> {
    options.validate()?;
    match source {
        Source::Pictures(set) => Ok(Box::new(PicturesReader::open(
            set.files()?,
            "folder",
            set.to_string(),
            source.id(),
            options,
        )?)),
        Source::File(path) => open_file(path, source, options),
        Source::Url(_) | Source::Camera(_) => Err(VideoError::Unreadable {
            reason: "no reader".into(),
            name: source.to_string(),
        }),
    }
}

/// Says what is in a source without reading its frames.
///
/// # Errors
/// As [`open`].
pub fn probe(source: &Source, options: &ReadOptions) -> Result<SourceInfo> {
    open(source, options).map(|reader| reader.info().clone())
}

fn open_file(path: &Path, source: &Source, options: &ReadOptions) -> Result<Box<dyn FrameReader>> {
    let head = head(path)?;
    if crate::picture::picture_format(&head, path).is_some() {
        return Ok(Box::new(PicturesReader::open(
            vec![PathBuf::from(path)],
            "picture",
            source.to_string(),
            source.id(),
            options,
        )?));
    }
    Err(VideoError::Unreadable {
        reason: "no reader".into(),
        name: source.to_string(),
    })
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
