//! Folders of SKU pictures, file hashes, and writing without ever leaving half a file.

use std::{
    fs,
    io::{Read, Write},
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shelfscan_inference_core::RgbImage;

use crate::{GalleryError, Result};

/// Turns a file into an upright RGB picture, or says in words why it cannot.
///
/// The gallery reads no picture format itself, so that the same decoder (with its rotation and
/// colour rules) serves views and frames.
pub type PictureDecoder<'a> = dyn Fn(&Path) -> Result<RgbImage, String> + Sync + 'a;

/// Deepest folder below a SKU's folder; a link that points upwards ends there.
const MAX_DEPTH: usize = 8;

/// Endings of files that are taken for pictures, in lower case.
const PICTURE_ENDINGS: [&str; 15] = [
    "avif", "bmp", "gif", "heic", "heif", "ico", "jpeg", "jpg", "pgm", "png", "pnm", "ppm", "tga",
    "tiff", "webp",
];

/// A file or folder that enrolment leaves aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredPath {
    /// Path below the enrolled folder.
    pub path: String,
    /// Why it was left aside.
    pub reason: String,
}

/// A picture below an enrolled folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundView {
    /// Path below the enrolled folder, with `/` on every system.
    pub(crate) view: String,
    pub(crate) path: PathBuf,
}

/// What a folder of one folder per SKU holds, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct FoundSkus {
    pub(crate) skus: Vec<(String, Vec<FoundView>)>,
    pub(crate) ignored: Vec<IgnoredPath>,
}

/// Lists the SKU folders below `folder`; files are judged by their ending alone.
pub(crate) fn find_skus(folder: &Path) -> Result<FoundSkus> {
    let mut found = FoundSkus::default();
    for (name, path) in sorted_entries(folder)? {
        let Some(name) = name else {
            found.ignore(path.to_string_lossy(), "its name is not Unicode; rename it");
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        if !path.is_dir() {
            let reason = "it lies beside the SKU folders, not in one";
            found.ignore(&name, reason);
            continue;
        }
        let mut views = Vec::new();
        collect_views(&path, &name, MAX_DEPTH, &mut views, &mut found)?;
        if views.is_empty() {
            found.ignore(&name, "the folder has no picture");
        } else {
            views.sort_by(|a, b| a.view.cmp(&b.view));
            found.skus.push((name, views));
        }
    }
    Ok(found)
}

impl FoundSkus {
    fn ignore(&mut self, path: impl Into<String>, reason: &str) {
        self.ignored.push(IgnoredPath {
            path: path.into(),
            reason: reason.into(),
        });
    }
}

fn collect_views(
    folder: &Path,
    prefix: &str,
    depth: usize,
    views: &mut Vec<FoundView>,
    found: &mut FoundSkus,
) -> Result<()> {
    for (name, path) in sorted_entries(folder)? {
        let Some(name) = name else {
            found.ignore(path.to_string_lossy(), "its name is not Unicode; rename it");
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let view = format!("{prefix}/{name}");
        if path.is_dir() {
            if depth == 0 {
                found.ignore(view, "folders are nested too deep");
            } else {
                collect_views(&path, &view, depth - 1, views, found)?;
            }
        } else if is_picture_name(&name) {
            views.push(FoundView { view, path });
        } else {
            found.ignore(view, "its ending is not that of a picture");
        }
    }
    Ok(())
}

pub(crate) fn is_picture_name(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, ending)| {
        let ending = ending.to_lowercase();
        !stem.is_empty() && (ending == "tif" || PICTURE_ENDINGS.contains(&ending.as_str()))
    })
}

/// Entries of a folder sorted by name; the name is `None` when it is not Unicode.
fn sorted_entries(folder: &Path) -> Result<Vec<(Option<String>, PathBuf)>> {
    let mut entries = fs::read_dir(folder)
        .map_err(GalleryError::io("list", folder))?
        .map(|entry| {
            let entry = entry.map_err(GalleryError::io("list", folder))?;
            Ok((entry.file_name().into_string().ok(), entry.path()))
        })
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// SHA-256 of a file in hex, and its length in bytes.
pub(crate) fn hash_file(path: &Path) -> Result<(String, u64)> {
    let mut file = fs::File::open(path).map_err(GalleryError::io("read", path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let read = file
            .read(&mut buffer)
            .map_err(GalleryError::io("read", path))?;
        if read == 0 {
            return Ok((hex(&hasher.finalize()), bytes));
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// SHA-256 of some bytes in hex.
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex of some bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .collect()
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Fails where [`write_atomic`] would fail at once, which is better known before long work.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    let temporary = temporary_beside(path);
    fs::File::create(&temporary)
        .and_then(|_| fs::remove_file(&temporary))
        .map_err(GalleryError::io("write", path))
}

/// Writes a file so that a reader sees the old bytes or the new ones, never a part.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_beside(path);
    let written = fs::File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        // The temporary file is of no use to anyone; its own removal failing changes nothing.
        drop(fs::remove_file(&temporary));
        GalleryError::Io {
            action: "write",
            path: path.into(),
            source,
        }
    })
}

/// Makes a folder and those above it; returns the ones that were not there, innermost first.
pub(crate) fn make_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let missing = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .map(Path::to_path_buf)
        .collect();
    fs::create_dir_all(folder).map_err(GalleryError::io("create", folder))?;
    Ok(missing)
}

/// Removes folders, given innermost first, up to the first that is not empty.
pub(crate) fn remove_empty(folders: impl IntoIterator<Item = impl AsRef<Path>>) {
    for folder in folders {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
}

/// Removes what an interrupted [`write_atomic`] left in a folder, and no other temporary file.
pub(crate) fn remove_temporaries(folder: &Path) -> Result<()> {
    let left = |name: &str| {
        let stem = name.strip_suffix(".tmp")?;
        let (_, process) = stem.rsplit_once('.')?;
        process.parse::<u32>().ok()
    };
    for (name, path) in sorted_entries(folder)? {
        if name.as_deref().and_then(left).is_some() {
            fs::remove_file(&path).map_err(GalleryError::io("remove", path))?;
        }
    }
    Ok(())
}

/// True for a path that stays below the folder it is joined to.
pub(crate) fn stays_inside(path: &Path) -> bool {
    path.components().count() > 0
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skus_and_views_come_sorted_and_the_rest_is_listed() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "zeta/b.JPG",
            "zeta/a.png",
            "zeta/back/c.webp",
            "zeta/notes.txt",
            "alpha/1.tif",
            "alpha/.DS_Store",
            "empty/.keep",
            "loose.png",
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
        let found = find_skus(root.path()).unwrap();
        let names: Vec<_> = found
            .skus
            .iter()
            .flat_map(|(_, views)| views.iter().map(|v| v.view.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                "alpha/1.tif",
                "zeta/a.png",
                "zeta/b.JPG",
                "zeta/back/c.webp"
            ]
        );
        let ignored: Vec<_> = found.ignored.iter().map(|i| i.path.as_str()).collect();
        assert_eq!(ignored, ["empty", "loose.png", "zeta/notes.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_points_upwards_ends() {
        let root = tempfile::tempdir().unwrap();
        let sku = root.path().join("sku");
        fs::create_dir(&sku).unwrap();
        fs::write(sku.join("a.png"), b"x").unwrap();
        std::os::unix::fs::symlink(&sku, sku.join("again")).unwrap();
        let found = find_skus(root.path()).unwrap();
        assert!(found.skus[0].1.len() <= MAX_DEPTH + 1);
        assert!(found.ignored.iter().any(|i| i.reason.contains("deep")));
    }

    #[test]
    fn a_write_leaves_no_temporary_file_and_a_hash_follows_the_bytes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.json");
        write_atomic(&path, b"one").unwrap();
        let (first, _) = hash_file(&path).unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_ne!(hash_file(&path).unwrap().0, first);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert_eq!(hash_file(&path).unwrap(), (hash_bytes(b"two"), 3));
        assert_eq!(hex(&[0, 0xAB, 0xFF]), "00abff");
    }

    #[test]
    fn new_folders_go_again_unless_something_lies_in_them() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b/c");
        let made = make_folders(&inner).unwrap();
        assert_eq!(made.len(), 3);
        assert!(make_folders(&inner).unwrap().is_empty());
        fs::write(root.path().join("a/kept"), b"x").unwrap();
        remove_empty(made);
        let left = |name: &str| root.path().join(name).exists();
        assert!(left("a/kept") && !left("a/b"));
    }

    #[test]
    fn a_folder_that_takes_no_file_is_known_before_work_and_one_that_does_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        check_writable(&root.path().join("x.json")).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        let error = check_writable(&root.path().join("none/x.json")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
    }

    #[test]
    fn a_path_that_climbs_out_is_seen() {
        assert!(stays_inside(Path::new("views/a/b.png")));
        for path in ["../x", "/etc/passwd", "views/../../x", ""] {
            assert!(!stays_inside(Path::new(path)), "{path}");
        }
    }
}
