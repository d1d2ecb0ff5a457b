//! A folder, a glob or a single picture, read as a video with one frame a file.

use std::path::PathBuf;

use shelfscan_inference_core::{FrameTime, Notice, SourceId, VideoFrame};

use crate::{
    CancelHandle, FrameReader, ReadOptions, ReadStatus, ReadSummary, Result, SourceInfo,
    VideoError,
    picture::{Picture, read_picture},
    select::{Choice, Selector},
    source::PICTURE_EXTENSIONS,
};

/// Pictures that are named one by one in the notices; the rest is only counted.
const MAX_NAMED: usize = 20;

/// Reads a list of picture files.
pub(crate) struct PicturesReader {
    files: Vec<PathBuf>,
    next: usize,
    info: SourceInfo,
    source: SourceId,
    options: ReadOptions,
    selector: Selector,
    /// The picture that told the size at opening, kept so that it is not decoded twice.
    first: Option<(usize, Result<Picture>)>,
    decoded: u64,
    delivered: u64,
    failed: Vec<String>,
    failed_count: u64,
    transparent: u64,
}

impl PicturesReader {
    /// Opens the files; the first one that can be read gives the size.
    ///
    /// # Errors
    /// The first picture's error when there is only one or a limit forbids it;
    /// [`VideoError::PicturesUnreadable`] when none of several can be read.
    pub(crate) fn open(
        files: Vec<PathBuf>,
        container: &str,
        source: SourceId,
        options: &ReadOptions,
    ) -> Result<Self> {
        let (at, picture) = first_readable(&files, &source, options)?;
        let count = files.len() as u64;
        let info = SourceInfo {
            codec: picture.format.clone(),
            container: container.into(),
            width: picture.image.width(),
            height: picture.image.height(),
            rotation_degrees: picture.rotation_degrees,
            declared_fps: (count > 1).then_some(options.pictures_per_sec),
            declared_frames: Some(count),
            declared_duration_secs: (count > 1).then(|| count as f64 / options.pictures_per_sec),
            pixel_format: None,
            reader: "pictures".into(),
            ..SourceInfo::default()
        };
        Ok(Self {
            files,
            next: 0,
            info,
            source,
            selector: Selector::new(options),
            options: options.clone(),
            first: Some((at, Ok(picture))),
            decoded: 0,
            delivered: 0,
            failed: Vec::new(),
            failed_count: 0,
            transparent: 0,
        })
    }

    fn load(&mut self, at: usize) -> Result<Picture> {
        match self.first.take() {
            Some((kept, picture)) if kept == at => picture,
            other => {
                self.first = other;
                read_picture(&self.files[at], &self.options.limits)
            }
        }
    }
}

impl FrameReader for PicturesReader {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<VideoFrame>> {
        while self.next < self.files.len() {
            let at = self.next;
            let secs = at as f64 / self.options.pictures_per_sec;
            match self.selector.choose(at as u64, secs, true) {
                Choice::Deliver => {}
                Choice::Skip => {
                    self.next += 1;
                    continue;
                }
                Choice::Stop => break,
            }
            self.next += 1;
            match self.load(at) {
                Ok(picture) => {
                    self.decoded += 1;
                    self.delivered += 1;
                    self.transparent += u64::from(!picture.notices.is_empty());
                    return Ok(Some(VideoFrame {
                        image: picture.image,
                        index: at as u64,
                        time: FrameTime::estimated(secs),
                        source: self.source.clone(),
                    }));
                }
                Err(error) => {
                    self.selector.take_back();
                    self.failed_count += 1;
                    if self.failed.len() < MAX_NAMED {
                        self.failed.push(error.to_string());
                    }
                }
            }
        }
        Ok(None)
    }

    fn summary(&self) -> ReadSummary {
        let mut notices: Vec<Notice> = self
            .failed
            .iter()
            .map(|message| Notice::new("picture_unreadable", message.clone()))
            .collect();
        if self.transparent > 0 {
            notices.push(Notice::new(
                "alpha_over_white",
                format!(
                    "transparent parts of {} picture(s) were laid over white",
                    self.transparent
                ),
            ));
        }
        let status = match self.failed.first() {
            None => ReadStatus::Complete,
            Some(first) => ReadStatus::Partial {
                reason: format!(
                    "{} of {} pictures could not be read, the first because {first}",
                    self.failed_count,
                    self.files.len()
                ),
            },
        };
        ReadSummary {
            decoded: self.decoded,
            delivered: self.delivered,
            dropped: self.failed_count,
            status,
            notices,
        }
    }

    fn cancel_handle(&self) -> Option<CancelHandle> {
        None
    }
}

/// The first picture that can be read, with its place.
fn first_readable(
    files: &[PathBuf],
    source: &SourceId,
    options: &ReadOptions,
) -> Result<(usize, Picture)> {
    let mut first_error = None;
    for (at, file) in files.iter().enumerate() {
        match read_picture(file, &options.limits) {
            Ok(picture) => return Ok((at, picture)),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(match first_error {
        Some(error @ (VideoError::PictureTooLarge { .. } | VideoError::PictureHeavy { .. })) => {
            error
        }
        Some(error) if files.len() == 1 => error,
        Some(error) => VideoError::PicturesUnreadable {
            count: files.len(),
            first: Box::new(error),
        },
        None => VideoError::NoPictures {
            extensions: PICTURE_EXTENSIONS.join(", "),
            pattern: source.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use image::DynamicImage;

    use super::*;

    fn open(files: Vec<PathBuf>, options: &ReadOptions) -> Result<PicturesReader> {
        PicturesReader::open(files, "folder", SourceId::new("set"), options)
    }

    #[test]
    fn a_bad_picture_costs_itself_alone_and_the_set_is_partial() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..4)
            .map(|i| {
                let path = folder.path().join(format!("{i}.png"));
                if i == 0 || i == 2 {
                    std::fs::write(&path, b"no picture").unwrap();
                } else {
                    DynamicImage::new_rgb8(8 + i, 4).save(&path).unwrap();
                }
                path
            })
            .collect();
        let mut reader = open(files, &ReadOptions::default()).unwrap();
        assert_eq!(
            (reader.info().width, reader.info().declared_frames),
            (9, Some(4))
        );
        let mut seen = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            seen.push((frame.index, frame.image.width(), frame.time.secs));
        }
        assert_eq!(seen, [(1, 9, 1.0), (3, 11, 3.0)]);
        let summary = reader.summary();
        assert_eq!((summary.delivered, summary.dropped), (2, 2));
        assert!(
            summary.status.to_string().contains("2 of 4"),
            "{}",
            summary.status
        );
    }

    #[test]
    fn a_set_without_one_readable_picture_says_why_the_first_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..3)
            .map(|i| folder.path().join(format!("{i}.png")))
            .collect();
        for file in &files {
            std::fs::write(file, b"\x89PNG\r\n\x1a\nno more").unwrap();
        }
        let alone = open(files[..1].to_vec(), &ReadOptions::default()).err();
        let alone = alone.unwrap();
        assert!(
            matches!(alone, VideoError::PictureDamaged { .. }),
            "{alone:?}"
        );
        let all = open(files, &ReadOptions::default()).err().unwrap();
        assert_eq!(
            all.to_string(),
            format!("none of 3 pictures can be read, the first because {alone}")
        );
    }

    #[test]
    fn a_set_of_pictures_over_the_limit_is_an_error_about_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..3)
            .map(|i| folder.path().join(format!("{i}.png")))
            .collect();
        for file in &files {
            DynamicImage::new_rgb8(8, 4).save(file).unwrap();
        }
        let mut options = ReadOptions::default();
        options.limits.max_pixels = 10;
        let error = open(files, &options).err().unwrap();
        let text = error.to_string();
        assert!(
            matches!(error, VideoError::PictureTooLarge { max_pixels: 10, .. }),
            "{error:?}"
        );
        assert!(text.contains("8x4") && text.ends_with("0.png"), "{text}");
    }

    #[test]
    fn what_is_skipped_is_not_even_opened() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("a.png");
        DynamicImage::new_rgb8(4, 4).save(&good).unwrap();
        let missing = folder.path().join("gone.png");
        let files = vec![good.clone(), missing.clone(), good, missing];
        let options = ReadOptions {
            every: 2,
            ..ReadOptions::default()
        };
        let mut reader = open(files, &options).unwrap();
        assert_eq!(reader.next_frame().unwrap().unwrap().index, 0);
        assert_eq!(reader.next_frame().unwrap().unwrap().index, 2);
        assert!(reader.next_frame().unwrap().is_none());
        assert_eq!(reader.summary().status, ReadStatus::Complete);
    }

    #[test]
    fn many_bad_pictures_keep_the_notices_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("a.png");
        DynamicImage::new_rgb8(4, 4).save(&good).unwrap();
        let mut files = vec![folder.path().join("gone.png"); MAX_NAMED * 10];
        files.push(good);
        let mut reader = open(files, &ReadOptions::default()).unwrap();
        while reader.next_frame().unwrap().is_some() {}
        let summary = reader.summary();
        assert_eq!(summary.dropped, MAX_NAMED as u64 * 10);
        assert_eq!(summary.notices.len(), MAX_NAMED);
    }
}
