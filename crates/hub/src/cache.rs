//! The cache on disk, laid out as `huggingface_hub` does, so that both find each other's files.
//!
//! ```text
//! models--OWNER--NAME/refs/REVISION              the commit a branch or tag stood at
//! models--OWNER--NAME/snapshots/COMMIT/FILE      a link to the blob
//! models--OWNER--NAME/blobs/HASH                 the bytes
//! models--OWNER--NAME/blobs/HASH.incomplete      the part that came before a download broke off
//! .locks/models--OWNER--NAME/HASH.lock           held while a blob is downloaded
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, HubFile, Result};

/// Hex digits of a commit.
const COMMIT_DIGITS: usize = 40;
/// Most files a listing looks at; a cache has a few hundred.
const MAX_LISTED: usize = 10_000;
/// Deepest folder in a snapshot a listing goes into.
const MAX_DEPTH: usize = 8;

/// A file that is in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The repository.
    pub repo: String,
    /// The commit it was downloaded at.
    pub commit: String,
    /// Path inside the repository.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The hash its bytes have to have, when the cache knows it: SHA-256 for large files, git's
    /// SHA-1 for small ones.
    pub hash: Option<String>,
}

/// The folder of one repository, and the paths in it.
#[derive(Clone, Debug)]
pub(crate) struct RepoCache {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, repo: &str) -> Self {
        let folder = format!("models--{}", repo.replace('/', "--"));
        Self {
            root: cache.join(&folder),
            locks: cache.join(".locks").join(folder),
        }
    }

    pub(crate) fn blob(&self, hash: &str) -> PathBuf {
        self.root.join("blobs").join(hash)
    }

    pub(crate) fn partial(&self, hash: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{hash}.incomplete"))
    }

    pub(crate) fn lock(&self, hash: &str) -> PathBuf {
        self.locks.join(format!("{hash}.lock"))
    }

    fn snapshot(&self, commit: &str, file: &str) -> PathBuf {
        self.root.join("snapshots").join(commit).join(file)
    }

    /// The commit `revision` stood at when it was last asked for.
    fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.into());
        }
        let text = fs::read_to_string(self.root.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|c| is_commit(c))
    }

    /// The file at the revision, when it is there.
    pub(crate) fn find(&self, file: &HubFile) -> Option<CachedFile> {
        let commit = self.commit(file.revision())?;
        let path = self.snapshot(&commit, file.file());
        let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some(CachedFile {
            hash: hash_of_link(&path),
            path,
            repo: file.repo().into(),
            commit,
            file: file.file().into(),
            bytes: meta.len(),
        })
    }

    /// Makes the blob `hash` the file `file` of `commit`, and `commit` what `revision` stands at.
    pub(crate) fn publish(&self, file: &HubFile, commit: &str, hash: &str) -> Result<PathBuf> {
        let path = self.snapshot(commit, file.file());
        make_parent(&path)?;
        let blob = self.blob(hash);
        let fresh = fresh_name(&path);
        link(&blob, &fresh, file.file())
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(io_error(&path))?;
        if !is_commit(file.revision()) {
            let path = self.root.join("refs").join(file.revision());
            make_parent(&path)?;
            let fresh = fresh_name(&path);
            fs::write(&fresh, commit)
                .and_then(|()| fs::rename(&fresh, &path))
                .map_err(io_error(&path))?;
        }
        Ok(path)
    }
}

/// Files of models in the cache whose names end in one of `endings`, in order of repository,
/// commit and file.
pub(crate) fn list(cache: &Path, endings: &[&str]) -> Result<Vec<CachedFile>> {
    let mut found = Vec::new();
    for repo_dir in folders(cache)? {
        let name = name_of(&repo_dir);
        let Some(repo) = name.strip_prefix("models--") else {
            continue;
        };
        let repo = repo.replacen("--", "/", 1);
        for snapshot in folders(&repo_dir.join("snapshots"))? {
            let commit = name_of(&snapshot);
            let mut files = Vec::new();
            walk(&snapshot, MAX_DEPTH, endings, &mut files)?;
            for path in files {
                if found.len() >= MAX_LISTED {
                    return Ok(found);
                }
                // A link whose blob was deleted is no file.
                let Ok(meta) = fs::metadata(&path) else {
                    continue;
                };
                let inner = path.strip_prefix(&snapshot).unwrap_or(&path);
                let parts: Vec<_> = inner.iter().map(|p| p.to_string_lossy()).collect();
                found.push(CachedFile {
                    repo: repo.clone(),
                    commit: commit.clone(),
                    file: parts.join("/"),
                    bytes: meta.len(),
                    hash: hash_of_link(&path),
                    path,
                });
            }
        }
    }
    Ok(found)
}

fn walk(dir: &Path, depth: usize, endings: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(dir)? {
        let is_dir = fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
        if is_dir && depth > 0 {
            walk(&path, depth - 1, endings, files)?;
        } else if !is_dir && endings.iter().any(|e| name_of(&path).ends_with(e)) {
            files.push(path);
        }
        if files.len() >= MAX_LISTED {
            break;
        }
    }
    Ok(())
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = entries(dir)?;
    found.retain(|path| path.is_dir());
    Ok(found)
}

/// What lies in a folder, by name; nothing when there is no such folder.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = match fs::read_dir(dir) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io_error(dir)(source)),
    };
    let mut found = Vec::new();
    for entry in read {
        found.push(entry.map_err(io_error(dir))?.path());
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// True for the full hash of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == COMMIT_DIGITS && is_hex(text)
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of the blob a link of a snapshot points to, when that is a hash.
fn hash_of_link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    let name = target.file_name()?.to_str()?;
    let is_hash = matches!(name.len(), 40 | 64) && is_hex(name);
    is_hash.then(|| name.to_owned())
}

/// A link to `blob` at `path`, which is `file` of a snapshot; a second name or a copy of the blob
/// where links cannot be made.
fn link(blob: &Path, path: &Path, file: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    if symlink(blob, path, file).is_ok() || fs::hard_link(blob, path).is_ok() {
        return Ok(());
    }
    fs::copy(blob, path).map(drop)
}

/// Relative, so that the cache can be moved: out of the file's folders, COMMIT and `snapshots`.
#[cfg(unix)]
fn symlink(blob: &Path, path: &Path, file: &str) -> io::Result<()> {
    let mut target = PathBuf::new();
    for _ in 0..=file.split('/').count() {
        target.push("..");
    }
    target.push("blobs");
    target.push(blob.file_name().unwrap_or_default());
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What `path` is called until it is whole. Threads publish one file at the same time, so a process's
/// number alone would not keep them apart.
fn fresh_name(path: &Path) -> PathBuf {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}-{thread:?}.new"));
    path.with_file_name(name)
}

pub(crate) fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(dir) => fs::create_dir_all(dir).map_err(io_error(dir)),
        None => Ok(()),
    }
}

pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_path_buf();
    move |source| Error::Io {
        path: path.clone(),
        source,
    }
}

/// Bytes that may still be written below `dir`, or below the nearest folder above it that exists.
/// `None` where the system does not say.
#[cfg(unix)]
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let there = dir.ancestors().find(|d| d.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes that may still be written below `dir`. `None` where the system does not say.
#[cfg(not(unix))]
pub fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn published(cache: &Path, file: &HubFile) -> CachedFile {
        let repo = RepoCache::new(cache, file.repo());
        make_parent(&repo.blob(HASH)).unwrap();
        fs::write(repo.blob(HASH), "weights").unwrap();
        repo.publish(file, COMMIT, HASH).unwrap();
        repo.find(file).unwrap()
    }

    #[test]
    fn threads_that_publish_one_file_do_not_take_it_from_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = HubFile::new("me/packs", "main", "w.pt").unwrap();
        let found = published(dir.path(), &file);
        let repo = RepoCache::new(dir.path(), file.repo());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let path = repo.publish(&file, COMMIT, HASH).unwrap();
                        assert_eq!(path, found.path);
                    }
                });
            }
        });
        let left = fs::read_dir(found.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn a_published_file_is_found_by_branch_and_by_commit_also_after_the_cache_moved() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("hub");
        let file = HubFile::new("me/packs", "main", "small/w.pt").unwrap();
        let found = published(&cache, &file);
        assert_eq!(
            found.path,
            cache.join(format!("models--me--packs/snapshots/{COMMIT}/small/w.pt"))
        );
        assert_eq!((found.bytes, found.commit.as_str()), (7, COMMIT));
        let moved = dir.path().join("moved");
        fs::rename(&cache, &moved).unwrap();
        let repo = RepoCache::new(&moved, "me/packs");
        for revision in ["main", COMMIT] {
            let file = HubFile::new("me/packs", revision, "small/w.pt").unwrap();
            assert_eq!(
                fs::read(repo.find(&file).unwrap().path).unwrap(),
                b"weights"
            );
        }
        assert_eq!(
            repo.find(&HubFile::new("me/packs", "v2", "small/w.pt").unwrap()),
            None
        );
        if cfg!(unix) {
            assert_eq!(repo.find(&file).unwrap().hash.as_deref(), Some(HASH));
        }
    }

    #[test]
    fn publishing_twice_replaces_the_link() {
        let dir = tempfile::tempdir().unwrap();
        let file = HubFile::new("me/packs", "main", "w.pt").unwrap();
        assert_eq!(published(dir.path(), &file), published(dir.path(), &file));
    }

    #[test]
    fn a_listing_names_weights_in_order_and_leaves_out_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(list(&dir.path().join("none"), &[".pt"]).unwrap(), []);
        for name in ["me/b--x", "me/b", "a"] {
            // Names the hub itself may hold although references to it are refused.
            let repo = RepoCache::new(dir.path(), name);
            make_parent(&repo.blob(HASH)).unwrap();
            fs::write(repo.blob(HASH), "weights").unwrap();
            let file = HubFile::new("x/y", COMMIT, "sub/w.pt").unwrap();
            repo.publish(&file, COMMIT, HASH).unwrap();
            let file = HubFile::new("x/y", COMMIT, "README.md").unwrap();
            repo.publish(&file, COMMIT, HASH).unwrap();
        }
        let found = list(dir.path(), &[".pt", ".safetensors"]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|f| (f.repo.as_str(), f.file.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("a", "sub/w.pt"),
                ("me/b", "sub/w.pt"),
                ("me/b--x", "sub/w.pt")
            ]
        );
        fs::remove_file(RepoCache::new(dir.path(), "a").blob(HASH)).unwrap();
        if cfg!(unix) {
            assert_eq!(list(dir.path(), &[".pt"]).unwrap().len(), 2);
        }
    }

    #[test]
    fn the_free_space_of_a_folder_to_be_is_that_of_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        if cfg!(unix) {
            assert!(free_bytes(&dir.path().join("a/b/c")).unwrap() > 0);
        }
    }
}
