//! From what was typed to the sources of a scan.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use shelfscan_video::{PictureSet, Source, VideoError};

use crate::exit::Usage;

/// Endings of the names that count as videos in a folder. A file that is named itself is tried
/// whatever its ending.
const VIDEO_EXTENSIONS: [&str; 30] = [
    "3g2", "3gp", "asf", "avi", "dv", "f4v", "flv", "h264", "h265", "hevc", "ivf", "m2ts", "m4v",
    "mjpeg", "mjpg", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "obu", "ogv", "ts", "vob",
    "webm", "wmv", "y4m", "yuv4mpeg",
];

/// Folders within folders that are entered at most.
const MAX_DEPTH: usize = 32;

/// What was typed, opened up.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) sources: Vec<Source>,
    /// What was left aside, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// Reads every text as a source: a folder of videos and a pattern that names videos give one
/// source for each video, a folder or pattern of pictures alone is one source.
pub(crate) fn expand(
    texts: &[String],
    cameras: &[u32],
    recursive: bool,
) -> anyhow::Result<Sources> {
    let mut found = Sources::default();
    for text in texts {
        match Source::parse(text) {
            Ok(Source::Pictures(PictureSet::Folder(folder))) => {
                found.add_folder(&folder, recursive)?;
            }
            Ok(Source::Pictures(set @ PictureSet::Glob(_))) => found.add_pattern(set)?,
            Ok(source) => found.sources.push(source),
            Err(error @ VideoError::NotFound { .. }) => {
                return Err(anyhow::Error::from(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    found
        .sources
        .extend(cameras.iter().map(|n| Source::Camera(*n)));
    Ok(found)
}

impl Sources {
    fn add_folder(&mut self, folder: &Path, recursive: bool) -> anyhow::Result<()> {
        let mut walk = Walk::default();
        walk.list(folder, if recursive { MAX_DEPTH } else { 0 })?;
        let Walk {
            mut videos, inner, ..
        } = walk;
        videos.sort();
        let pictures = PictureSet::Folder(folder.to_owned());
        if videos.is_empty() {
            return match pictures.files() {
                Ok(_) => {
                    self.sources.push(Source::Pictures(pictures));
                    Ok(())
                }
                Err(VideoError::NoPictures { .. }) => {
                    let error = Usage::new(format!(
                        "the folder holds neither videos nor pictures: {}",
                        folder.display()
                    ));
                    Err(if inner > 0 {
                        error.hint("it holds folders; take their videos with --recursive")
                    } else {
                        error.hint("files are told by the endings of their names; name a file itself to have it tried")
                    }
                    .into())
                }
                Err(error) => Err(error.into()),
            };
        }
        if let Ok(files) = pictures.files() {
            self.notes.push(format!(
                "{} pictures beside the videos are left aside: {}",
                files.len(),
                folder.display()
            ));
        }
        self.sources.extend(videos.into_iter().map(Source::File));
        Ok(())
    }

    fn add_pattern(&mut self, set: PictureSet) -> anyhow::Result<()> {
        let files = set.files()?;
        let videos: Vec<PathBuf> = files.iter().filter(|f| is_video(f)).cloned().collect();
        if videos.is_empty() {
            self.sources.push(Source::Pictures(set));
            return Ok(());
        }
        if videos.len() < files.len() {
            self.notes.push(format!(
                "{} files beside the videos are left aside: {set}",
                files.len() - videos.len()
            ));
        }
        self.sources.extend(videos.into_iter().map(Source::File));
        Ok(())
    }
}

/// The videos below a folder. A folder that links lead to again is listed once.
#[derive(Default)]
struct Walk {
    videos: Vec<PathBuf>,
    /// Folders that were met below the first.
    inner: usize,
    been: BTreeSet<PathBuf>,
}

impl Walk {
    fn list(&mut self, folder: &Path, depth: usize) -> anyhow::Result<()> {
        let refused = |e| Usage::unlisted(folder, &e);
        if !self.been.insert(folder.canonicalize().map_err(refused)?) {
            return Ok(());
        }
        let mut paths = fs::read_dir(folder)
            .and_then(|entries| {
                entries
                    .map(|e| Ok(e?.path()))
                    .collect::<io::Result<Vec<_>>>()
            })
            .map_err(refused)?;
        // Which of two ways to a folder counts must not hang on the order of the disk.
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.inner += 1;
                if depth > 0 {
                    self.list(&path, depth - 1)?;
                }
            } else if is_video(&path) && path.is_file() {
                self.videos.push(path);
            }
        }
        Ok(())
    }
}

fn is_video(path: &Path) -> bool {
    path.extension()
        .and_then(|e| e.to_str())
        .is_some_and(|e| VIDEO_EXTENSIONS.contains(&e.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(folder: &Path, names: &[&str]) {
        for name in names {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
    }

    fn names(folder: &Path, text: &str, recursive: bool) -> Vec<String> {
        let text = folder.join(text).display().to_string();
        let found = expand(&[text], &[], recursive).unwrap();
        found
            .sources
            .iter()
            .map(|s| {
                let id = s.id();
                let name = id
                    .as_str()
                    .strip_prefix(&folder.display().to_string())
                    .unwrap();
                name.trim_start_matches('/').to_owned()
            })
            .collect()
    }

    #[test]
    fn a_folder_of_clips_gives_its_videos_in_order_and_goes_deeper_only_when_asked() {
        let root = tempfile::tempdir().unwrap();
        touch(
            root.path(),
            &["b.MOV", "a.mp4", "notes.txt", "still.jpg", "day2/c.mkv"],
        );
        assert_eq!(names(root.path(), "", false), ["a.mp4", "b.MOV"]);
        assert_eq!(
            names(root.path(), "", true),
            ["a.mp4", "b.MOV", "day2/c.mkv"]
        );
        assert_eq!(names(root.path(), "*.mp4", false), ["a.mp4"]);
        let all = expand(&[root.path().display().to_string()], &[], false).unwrap();
        assert!(all.notes[0].contains("1 pictures"), "{:?}", all.notes);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_above_gives_each_video_once() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["a.mp4", "day2/b.mp4"]);
        std::os::unix::fs::symlink(root.path(), root.path().join("day2/again")).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("again")).unwrap();
        assert_eq!(names(root.path(), "", true), ["a.mp4", "day2/b.mp4"]);
    }

    #[test]
    fn a_folder_or_a_pattern_of_pictures_alone_is_one_source() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["1.jpg", "2.jpg"]);
        assert_eq!(names(root.path(), "", false), [""]);
        assert_eq!(names(root.path(), "*.jpg", false), ["*.jpg"]);
    }

    #[test]
    fn a_folder_without_anything_says_so_and_where_to_look() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["readme.txt", "day/1.mp4"]);
        let error = expand(&[root.path().display().to_string()], &[], false).unwrap_err();
        assert!(
            error.to_string().contains("neither videos nor pictures"),
            "{error}"
        );
    }

    #[test]
    fn cameras_by_number_are_sources_like_any_other() {
        let found = expand(&["camera:1".into()], &[0], false).unwrap();
        assert_eq!(found.sources, [Source::Camera(1), Source::Camera(0)]);
    }
}
