//! What can go wrong with a source or an output, grouped by what the reader can do about it.

use std::path::PathBuf;

/// Result of reading or writing frames.
pub type Result<T, E = VideoError> = std::result::Result<T, E>;

/// How ffmpeg is installed on the usual systems; part of every message that asks for it.
pub(crate) const FFMPEG_INSTALL: &str = "install it (Debian and Ubuntu: `apt install ffmpeg`, macOS: `brew install ffmpeg`, Windows: `winget install ffmpeg`) or give its path";

/// Why a source could not be read or an output not be written.
///
/// Each message says what to do next and ends in the path or address it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VideoError {
    /// The text names no kind of source. Remedy: write it differently.
    #[error(
        "this is no source: {reason}; give a file, a folder, a glob, an address or camera:N: {text}"
    )]
    InvalidSource {
        /// What is wrong with it.
        reason: String,
        /// The text that was given.
        text: String,
    },
    /// An option has a value that cannot work. Remedy: another value.
    #[error("{option} cannot be {value}; {remedy}")]
    InvalidOption {
        /// Name of the option, as the field is called.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What it has to be.
        remedy: &'static str,
    },
    /// There is no such file. Remedy: check the path.
    #[error("no such file or folder; check the path: {}", path.display())]
    NotFound {
        /// The path that was looked for.
        path: PathBuf,
    },
    /// The file holds no byte. Remedy: copy it again.
    #[error("the file is empty (0 bytes); copy or record it again: {}", path.display())]
    EmptyFile {
        /// The empty file.
        path: PathBuf,
    },
    /// A folder or pattern without pictures. Remedy: another folder or pattern.
    #[error("no picture here ({extensions}); check the folder or the pattern: {pattern}")]
    NoPictures {
        /// Which names count as pictures.
        extensions: String,
        /// The folder or pattern.
        pattern: String,
    },
    /// The content is no video or is broken beyond its first frame. Remedy: another copy.
    #[error("no video can be read from it ({reason}); play it elsewhere or copy it again: {name}")]
    Unreadable {
        /// What the decoder answered.
        reason: String,
        /// The file or address.
        name: String,
    },
    /// The file plays, but has no moving picture. Remedy: another file.
    #[error("it has no video stream, only sound or data; give the file with the pictures: {name}")]
    NoVideoStream {
        /// The file or address.
        name: String,
    },
    /// There is a video stream, but not one frame comes out of it. Remedy: record it again.
    #[error("its video stream has no frame ({reason}); record or export it again: {name}")]
    NoFrames {
        /// What the decoder answered.
        reason: String,
        /// The file or address.
        name: String,
    },
    /// ffmpeg is needed and not there. Remedy: install it.
    #[error("ffmpeg is needed for {needed_for} and was not found; {FFMPEG_INSTALL}; looked for {}", looked_for.display())]
    FfmpegMissing {
        /// What it is needed for.
        needed_for: String,
        /// The program that was looked for.
        looked_for: PathBuf,
    },
    /// ffmpeg is older than 5.1 or is no ffmpeg. Remedy: update it.
    #[error("ffmpeg 5.1 or later is needed, this one says `{found}`; update it or give the path of a newer one: {}", path.display())]
    FfmpegUnusable {
        /// The first line it printed, or why it did not start.
        found: String,
        /// The program that was tried.
        path: PathBuf,
    },
    /// A picture is larger than the stated limit. Remedy: raise the limit if it is meant.
    #[error(
        "a picture of {width}x{height} pixels is over the limit of {max_pixels} pixels; raise the limit if it is meant: {name}"
    )]
    PictureTooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The limit, [`Limits::max_pixels`](crate::Limits::max_pixels).
        max_pixels: u64,
        /// The file or address.
        name: String,
    },
    /// Decoding a picture takes more memory than pictures of the stated limit do. Remedy: raise the
    /// limit if it is meant.
    #[error("the picture needs more memory than one of {max_pixels} pixels does; raise the limit if it is meant: {}", path.display())]
    PictureHeavy {
        /// The limit, [`Limits::max_pixels`](crate::Limits::max_pixels).
        max_pixels: u64,
        /// The picture.
        path: PathBuf,
    },
    /// A picture is cut or damaged, so that a part of it would be grey. Remedy: copy it again.
    #[error("the picture is cut or damaged ({reason}); copy it again: {}", path.display())]
    PictureDamaged {
        /// What is missing.
        reason: String,
        /// The picture.
        path: PathBuf,
    },
    /// A folder or pattern with pictures of which none can be read. Remedy: that of the first.
    #[error("none of {count} pictures can be read, the first because {first}")]
    PicturesUnreadable {
        /// How many there are.
        count: usize,
        /// What is wrong with the first; its message ends in its path.
        first: Box<VideoError>,
    },
    /// A kind of picture this crate does not decode. Remedy: convert it.
    #[error("this kind of picture is not read ({reason}); convert it to PNG or JPEG: {}", path.display())]
    PictureUnsupported {
        /// What the file is, as far as known.
        reason: String,
        /// The picture.
        path: PathBuf,
    },
    /// The camera does not exist or does not open. Remedy: another index, or free it.
    #[error("camera {index} does not open ({reason}); {}", openable_text(openable))]
    Camera {
        /// The index that was asked for.
        index: u32,
        /// What the system answered.
        reason: String,
        /// The cameras that do open.
        openable: Vec<u32>,
    },
    /// The decoder gave nothing for too long and was ended. Remedy: try again, or a longer limit.
    #[error(
        "no frame came for {secs:.1} s and the decoder was ended; check the connection or raise the stall limit{}: {name}",
        tail_text(stderr_tail)
    )]
    Stalled {
        /// How long nothing came, in seconds.
        secs: f64,
        /// The end of the decoder's messages, at most 4 KiB.
        stderr_tail: String,
        /// The file or address.
        name: String,
    },
    /// The decoder process failed before its first frame. Remedy: see its last lines.
    #[error(
        "the decoder failed ({reason}); try the file in another player{}: {name}",
        tail_text(stderr_tail)
    )]
    DecoderFailed {
        /// How the process ended.
        reason: String,
        /// The end of the decoder's messages, at most 4 KiB.
        stderr_tail: String,
        /// The file or address.
        name: String,
    },
    /// The caller's cancel handle was used before the first frame.
    #[error("reading was cancelled: {name}")]
    Cancelled {
        /// The file or address.
        name: String,
    },
    /// The annotated video could not be written. Remedy: see the encoder's last lines.
    #[error("the video could not be written ({reason}){}: {}", tail_text(stderr_tail), path.display())]
    Encoder {
        /// How the process ended.
        reason: String,
        /// The end of the encoder's messages, at most 4 KiB.
        stderr_tail: String,
        /// The output.
        path: PathBuf,
    },
    /// The system refused a file operation. Remedy: rights, space, or the path.
    #[error("{doing} failed ({source}); check the rights and the free space: {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's own error.
        #[source]
        source: std::io::Error,
        /// The file or folder.
        path: PathBuf,
    },
}

impl VideoError {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
        source: std::io::Error,
    ) -> Self {
        let path = path.into();
        if source.kind() == std::io::ErrorKind::NotFound {
            return Self::NotFound { path };
        }
        Self::Io {
            doing,
            source,
            path,
        }
    }

    /// True when the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Stalled { .. } | Self::Camera { .. })
    }

    /// True when every source that needs ffmpeg would fail the same way.
    pub fn is_about_ffmpeg(&self) -> bool {
        matches!(
            self,
            Self::FfmpegMissing { .. } | Self::FfmpegUnusable { .. }
        )
    }
}

fn openable_text(openable: &[u32]) -> String {
    if openable.is_empty() {
        return "no camera opens on this machine; plug one in or check the rights".into();
    }
    let list: Vec<String> = openable.iter().map(u32::to_string).collect();
    format!("those that open: {}", list.join(", "))
}

fn tail_text(tail: &str) -> String {
    let tail = tail.trim();
    if tail.is_empty() {
        String::new()
    } else {
        format!("; its last lines were:\n{tail}\nthis was")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_to_do_and_ends_in_the_path() {
        let error = VideoError::EmptyFile {
            path: "clips/a.mp4".into(),
        };
        assert_eq!(
            error.to_string(),
            "the file is empty (0 bytes); copy or record it again: clips/a.mp4"
        );
    }

    #[test]
    fn a_missing_ffmpeg_is_one_sentence_with_the_install_line() {
        let error = VideoError::FfmpegMissing {
            needed_for: "MP4 files".into(),
            looked_for: "ffmpeg".into(),
        };
        let text = error.to_string();
        assert!(
            text.contains("apt install ffmpeg") && !text.contains('\n'),
            "{text}"
        );
        assert!(error.is_about_ffmpeg() && !error.is_retryable());
    }

    #[test]
    fn a_wrong_camera_lists_those_that_open() {
        let error = |openable: Vec<u32>| {
            VideoError::Camera {
                index: 9,
                reason: "no such device".into(),
                openable,
            }
            .to_string()
        };
        assert!(error(vec![0, 2]).ends_with("those that open: 0, 2"));
        assert!(error(vec![]).contains("no camera opens"));
    }
}
