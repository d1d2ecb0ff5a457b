//! What can be scanned: a file, an address, a camera, a set of pictures.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::SourceId;

use crate::{Result, VideoError, natural};

/// Endings of the names that count as pictures in a folder.
pub(crate) const PICTURE_EXTENSIONS: [&str; 15] = [
    "bmp", "gif", "ico", "jfif", "jpe", "jpeg", "jpg", "mpo", "pgm", "png", "ppm", "tga", "tif",
    "tiff", "webp",
];

/// Address schemes that are live: their frames are lost when not taken.
const LIVE_SCHEMES: [&str; 8] = ["rtsp", "rtsps", "rtmp", "rtmps", "rtp", "srt", "udp", "tcp"];

/// Address schemes that are read like a file.
const FILE_SCHEMES: [&str; 4] = ["http", "https", "ftp", "sftp"];

/// A folder or glob of pictures, read in natural order of their paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureSet {
    /// All pictures of a folder, by the endings of their names; sub-folders are not entered.
    Folder(PathBuf),
    /// All files that match a pattern with `*`, `?`, `[...]` or `**`.
    Glob(String),
}

impl PictureSet {
    /// The files of the set in natural order: `shelf2.jpg` comes before `shelf10.jpg`.
    ///
    /// # Errors
    /// [`VideoError::NoPictures`] when there is none, [`VideoError::NotFound`] for a missing
    /// folder, [`VideoError::InvalidSource`] for a broken pattern.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = match self {
            Self::Folder(folder) => list_folder(folder)?,
            Self::Glob(pattern) => glob::glob(pattern)
                .map_err(|error| VideoError::InvalidSource {
                    reason: format!("the pattern is broken: {error}"),
                    text: pattern.clone(),
                })?
                .filter_map(|entry| entry.ok().filter(|path| path.is_file()))
                .collect(),
        };
        if files.is_empty() {
            return Err(VideoError::NoPictures {
                extensions: PICTURE_EXTENSIONS.join(", "),
                pattern: self.to_string(),
            });
        }
        files.sort_by(|a, b| {
            natural::compare(
                a.as_os_str().as_encoded_bytes(),
                b.as_os_str().as_encoded_bytes(),
            )
        });
        Ok(files)
    }
}

impl fmt::Display for PictureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Glob(pattern) => f.write_str(pattern),
        }
    }
}

fn list_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = std::fs::read_dir(folder)
        .map_err(|error| VideoError::io("listing the folder", folder, error))?;
    let mut files = Vec::new();
    for entry in list {
        let path = entry
            .map_err(|error| VideoError::io("listing the folder", folder, error))?
            .path();
        let is_picture = path
            .extension()
            .and_then(|e| e.to_str())
            .is_some_and(|e| PICTURE_EXTENSIONS.contains(&e.to_ascii_lowercase().as_str()));
        if is_picture && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Where frames come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A video file or a single picture.
    File(PathBuf),
    /// An address with a scheme, such as `rtsp://camera/stream`.
    Url(String),
    /// A camera by its index, counted from 0.
    Camera(u32),
    /// A folder or glob of pictures.
    Pictures(PictureSet),
}

impl Source {
    /// Reads what a user typed: `camera:0`, an address, an existing folder or file, or a glob.
    ///
    /// A text that names an existing file or folder is that, whatever else it looks like.
    ///
    /// # Errors
    /// [`VideoError::InvalidSource`] for an empty text, a camera without a number or an unknown
    /// scheme; [`VideoError::NotFound`] when it is a plain path and nothing is there.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |reason: &str| {
            Err(VideoError::InvalidSource {
                reason: reason.into(),
                text: without_credentials(text),
            })
        };
        if text.trim().is_empty() {
            return invalid("it is empty");
        }
        let path = Path::new(text);
        if path.is_dir() {
            return Ok(Self::Pictures(PictureSet::Folder(path.into())));
        }
        if path.exists() {
            return Ok(Self::File(path.into()));
        }
        if let Some(number) = text.strip_prefix("camera:") {
            return match number.trim().parse() {
                Ok(index) => Ok(Self::Camera(index)),
                Err(_) => invalid("a camera is named by its number, as in camera:0"),
            };
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let scheme = scheme.to_ascii_lowercase();
            if rest.is_empty() || rest.starts_with('-') {
                return invalid("the address has no host");
            }
            if LIVE_SCHEMES.contains(&scheme.as_str()) || FILE_SCHEMES.contains(&scheme.as_str()) {
                return Ok(Self::Url(text.into()));
            }
            return invalid("the scheme is none of rtsp, rtmp, rtp, srt, udp, tcp, http, ftp");
        }
        if text.contains(['*', '?', '[']) {
            return Ok(Self::Pictures(PictureSet::Glob(text.into())));
        }
        Err(VideoError::NotFound { path: path.into() })
    }

    /// The id its frames carry: the path, the address without user and password, or `camera:N`.
    pub fn id(&self) -> SourceId {
        SourceId::new(self.to_string())
    }

    /// True when frames come at their own pace and are lost when not taken.
    pub fn is_live(&self) -> bool {
        match self {
            Self::Camera(_) => true,
            Self::Url(address) => address.split_once("://").is_some_and(|(scheme, _)| {
                LIVE_SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())
            }),
            Self::File(_) | Self::Pictures(_) => false,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(address) => f.write_str(&without_credentials(address)),
            Self::Camera(index) => write!(f, "camera:{index}"),
            Self::Pictures(set) => write!(f, "{set}"),
        }
    }
}

/// `rtsp://user:secret@host/x` without `user:secret@`, so that it can be printed and stored.
fn without_credentials(address: &str) -> String {
    match credentials(address) {
        Some(place) => format!("{}{}", &address[..place.start], &address[place.end..]),
        None => address.into(),
    }
}

/// Where user and password of an address stand, with the `@` behind them.
pub(crate) fn credentials(address: &str) -> Option<Range<usize>> {
    let start = address.find("://")? + 3;
    let rest = &address[start..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    let at = host.rfind('@').or_else(|| {
        // A port is a number; anything else is a password that a slash in it seems to end.
        let (_, port) = host.split_once(':').filter(|_| !host.starts_with('['))?;
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
        rest.rfind('@').filter(|_| !is_port)
    })?;
    Some(start..start + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_what_a_user_means() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("camera:0");
        std::fs::write(&odd, b"x").unwrap();
        assert_eq!(Source::parse("camera:2").unwrap(), Source::Camera(2));
        assert_eq!(
            Source::parse("RTSP://10.0.0.1/s").unwrap(),
            Source::Url("RTSP://10.0.0.1/s".into())
        );
        assert_eq!(
            Source::parse(folder.path().to_str().unwrap()).unwrap(),
            Source::Pictures(PictureSet::Folder(folder.path().into()))
        );
        assert_eq!(
            Source::parse("no/such/*.jpg").unwrap(),
            Source::Pictures(PictureSet::Glob("no/such/*.jpg".into()))
        );
        assert_eq!(
            Source::parse(odd.to_str().unwrap()).unwrap(),
            Source::File(odd)
        );
    }

    #[test]
    fn a_text_that_names_nothing_is_refused_with_the_reason() {
        for text in [
            "",
            "  ",
            "camera:",
            "camera:first",
            "gopher://x",
            "http://",
            "rtsp://-i",
        ] {
            assert!(
                matches!(Source::parse(text), Err(VideoError::InvalidSource { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            Source::parse("no/such/clip.mp4"),
            Err(VideoError::NotFound { .. })
        ));
    }

    #[test]
    fn an_id_never_holds_a_password() {
        let source = Source::Url("rtsp://me:pa@ss@cam.local/a@b".into());
        assert_eq!(source.id().as_str(), "rtsp://cam.local/a@b");
        assert!(source.is_live());
        assert!(!Source::Url("https://host/clip.mp4".into()).is_live());
        for (address, id) in [
            ("rtsp://me:pa/s?s@cam/x", "rtsp://cam/x"),
            ("http://cam:8080/a@b", "http://cam:8080/a@b"),
            ("http://[fe80::1]:80/a@b", "http://[fe80::1]:80/a@b"),
            ("http://cam?mail=a@b", "http://cam?mail=a@b"),
        ] {
            assert_eq!(Source::Url(address.into()).id().as_str(), id);
        }
        let error = Source::parse("gopher://me:secret@host/x").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }

    #[test]
    fn a_folder_gives_its_pictures_in_counting_order_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b10.JPG", "b9.jpg", "notes.txt", "a.png"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        std::fs::create_dir(folder.path().join("c.jpg")).unwrap();
        let names = |set: PictureSet| -> Vec<String> {
            let files = set.files().unwrap();
            files
                .iter()
                .map(|f| f.file_name().unwrap().to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(
            names(PictureSet::Folder(folder.path().into())),
            ["a.png", "b9.jpg", "b10.JPG"]
        );
        let pattern = folder.path().join("b*").to_string_lossy().into_owned();
        assert_eq!(names(PictureSet::Glob(pattern)), ["b9.jpg", "b10.JPG"]);
        let empty = PictureSet::Glob(folder.path().join("z*").to_string_lossy().into_owned());
        assert!(matches!(empty.files(), Err(VideoError::NoPictures { .. })));
    }
}
