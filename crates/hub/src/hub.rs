//! From a reference to a file on this machine.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::Duration,
};

use ureq::{Body, http::Response};

use crate::{
    Error, HashKind, HubFile, HubOptions, Result,
    cache::{self, CachedFile, RepoCache, free_bytes, io_error, is_commit, make_parent},
    digest::{CHUNK, Hasher},
    http::{Ask, Client, in_words},
    lock::{self, Waited},
    token::TokenSource,
};

/// Endings of files that hold weights.
const ENDINGS: [&str; 3] = [".safetensors", ".pt", ".pth"];
/// A connection that brought this much before it broke off was a good one.
const GOOD_BYTES: u64 = 8 << 20;
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(20);

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process downloads the same file.
    Waiting,
    /// The part that is there already is read and hashed.
    Resuming,
    /// Bytes come in.
    Downloading,
    /// A file is read and hashed.
    Verifying,
}

/// How far a download or a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes of the file that are done.
    pub done_bytes: u64,
    /// Bytes of the whole file; 0 while not known.
    pub total_bytes: u64,
}

/// Is told how far it is, about once a megabyte; a break stops the work.
pub type Observer<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// A file and how it came here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The file.
    pub file: CachedFile,
    /// Bytes that were downloaded for it just now; 0 when it was in the cache.
    pub downloaded_bytes: u64,
}

/// What a check of a cached file's bytes came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Hash of the bytes in hex: SHA-256, or git's SHA-1 when the cache promises one.
    pub hash: String,
    /// How it was made.
    pub kind: HashKind,
    /// Whether it is the promised one; `None` when the cache holds no promise, as where links
    /// cannot be made.
    pub as_promised: Option<bool>,
}

/// What the hub says about a file.
#[derive(Clone, Debug)]
struct About {
    commit: String,
    /// Name of the blob: its hash, or another tag of a server that is not the hub itself.
    tag: String,
    bytes: u64,
}

/// How one connection ended.
enum Came {
    Whole,
    Broken(String),
    /// Nothing came at all.
    Silent,
    Stopped,
}

/// A hub and its cache.
///
/// Nothing is opened before a file is asked for that the cache does not hold.
#[derive(Debug)]
pub struct Hub {
    options: HubOptions,
    client: OnceLock<Client>,
}

impl Hub {
    /// A hub at the place the options name; opens nothing.
    pub fn new(options: HubOptions) -> Self {
        Self {
            options,
            client: OnceLock::new(),
        }
    }

    /// Where everything is.
    pub fn options(&self) -> &HubOptions {
        &self.options
    }

    /// Folder of the cache, which need not exist.
    ///
    /// # Errors
    /// [`Error::NoCache`] when none is known.
    pub fn cache(&self) -> Result<&Path> {
        self.options.cache.as_deref().ok_or(Error::NoCache)
    }

    /// Where the token comes from that would be sent.
    ///
    /// # Errors
    /// As [`TokenPlaces::find`](crate::TokenPlaces::find).
    pub fn token_source(&self) -> Result<Option<TokenSource>> {
        let found = self.options.tokens.find()?;
        Ok(found.map(|(_, source)| source))
    }

    /// The file, when the cache holds it. Never opens a socket.
    ///
    /// # Errors
    /// [`Error::NoCache`].
    pub fn find(&self, file: &HubFile) -> Result<Option<CachedFile>> {
        Ok(RepoCache::new(self.cache()?, file.repo()).find(file))
    }

    /// All files of weights in the cache, by repository, commit and name. Never opens a socket.
    ///
    /// # Errors
    /// [`Error::NoCache`], [`Error::Io`] for a cache that cannot be read.
    pub fn list(&self) -> Result<Vec<CachedFile>> {
        cache::list(self.cache()?, &ENDINGS)
    }

    /// The file from the cache, else from the hub. Whatever is in the cache is taken as it is and
    /// opens no socket, also when the branch has moved on since.
    ///
    /// A download that broke off goes on where it stopped; size and hash are checked before the
    /// file gets its name.
    ///
    /// # Errors
    /// [`Error::NotCached`] when it is not there and [`HubOptions::offline`] is set; else whatever
    /// keeps it from being downloaded, each with the next step.
    pub fn fetch(&self, file: &HubFile, observer: &mut Observer<'_>) -> Result<Fetched> {
        match self.find(file)? {
            Some(file) => Ok(Fetched {
                file,
                downloaded_bytes: 0,
            }),
            None => self.pull(file, observer),
        }
    }

    /// The file as the hub has it now: asks the hub also when the cache holds one, and downloads
    /// only what the cache has not. Offline it is what the cache holds.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn pull(&self, file: &HubFile, observer: &mut Observer<'_>) -> Result<Fetched> {
        if self.options.offline {
            return match self.find(file)? {
                Some(file) => Ok(Fetched {
                    file,
                    downloaded_bytes: 0,
                }),
                None => Err(Error::NotCached {
                    what: file.to_string(),
                    cache: self.cache()?.to_path_buf(),
                }),
            };
        }
        let repo = RepoCache::new(self.cache()?, file.repo());
        let client = self.client()?;
        let about = self.about(client, file)?;
        let mut download = Download {
            options: &self.options,
            cache: self.cache()?,
            client,
            file,
            about: &about,
            partial: repo.partial(&about.tag),
            observer,
            came_bytes: 0,
        };
        let blob = repo.blob(&about.tag);
        if !is_whole(&blob, about.bytes) {
            let _held = download.lock(&repo.lock(&about.tag))?;
            // Whoever held the lock before may have brought it.
            if !is_whole(&blob, about.bytes) {
                download.run()?;
                fs::rename(&download.partial, &blob).map_err(io_error(&blob))?;
            }
        }
        let downloaded_bytes = download.came_bytes;
        let path = repo.publish(file, &about.commit, &about.tag)?;
        let known = HashKind::of(&about.tag).map(|_| about.tag.clone());
        Ok(Fetched {
            file: CachedFile {
                path,
                repo: file.repo().into(),
                commit: about.commit,
                file: file.file().into(),
                bytes: about.bytes,
                hash: known,
            },
            downloaded_bytes,
        })
    }

    /// Reads a cached file and compares its hash with the one it was stored under.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Stopped`] when `observer` breaks off.
    pub fn check(&self, file: &CachedFile, observer: &mut Observer<'_>) -> Result<Checked> {
        let kind = file.hash.as_deref().and_then(HashKind::of);
        let kind = kind.unwrap_or(HashKind::Sha256);
        let mut hasher = Hasher::new(kind, file.bytes);
        let mut stopped = false;
        hasher
            .update_from(&file.path, u64::MAX, |done_bytes| {
                let told = observer(Progress {
                    phase: Phase::Verifying,
                    done_bytes,
                    total_bytes: file.bytes,
                });
                stopped = told.is_break();
                told
            })
            .map_err(io_error(&file.path))?;
        if stopped {
            return Err(Error::Stopped {
                done_bytes: 0,
                total_bytes: file.bytes,
                partial: file.path.clone(),
            });
        }
        let hash = hasher.finish();
        Ok(Checked {
            as_promised: file.hash.as_ref().map(|promised| *promised == hash),
            hash,
            kind,
        })
    }

    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::new(&self.options)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Asks what the file is, without its bytes. A hub in trouble is asked again.
    fn about(&self, client: &Client, file: &HubFile) -> Result<About> {
        let address = client.address(file, file.revision());
        let mut attempt = 1;
        loop {
            let response = client
                .send(&address, Ask::About)
                .map_err(|e| client.unreachable(&e))?;
            let status = response.status().as_u16();
            if response.headers().contains_key("x-repo-commit") && status < 400 {
                return about_from(client, &response);
            }
            let error = client.refusal(&response, file);
            let again = matches!(error, Error::Server { status: 500.., .. });
            if !again || attempt >= self.options.attempts {
                return Err(error);
            }
            self.options.pause_after(attempt);
            attempt += 1;
        }
    }
}

impl HubOptions {
    /// Sleeps before the attempt after number `attempt`.
    fn pause_after(&self, attempt: u32) {
        let factor = 1 << attempt.saturating_sub(1).min(10);
        thread::sleep(self.pause.saturating_mul(factor).min(MAX_PAUSE));
    }
}

fn about_from(client: &Client, response: &Response<Body>) -> Result<About> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let commit = header("x-repo-commit").unwrap_or_default();
    if !is_commit(commit) {
        return Err(client.no_hub("its commit is no hash"));
    }
    let tag = header("x-linked-etag").or_else(|| header("etag"));
    let tag = tag.unwrap_or_default();
    let tag = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if tag.is_empty() || tag.len() > 128 || !tag.bytes().all(plain) {
        return Err(client.no_hub("it gives no usable ETag"));
    }
    let bytes = header("x-linked-size").or_else(|| header("content-length"));
    let Some(bytes) = bytes.and_then(|v| v.trim().parse().ok()) else {
        return Err(client.no_hub("it gives no size"));
    };
    Ok(About {
        commit: commit.into(),
        tag: tag.into(),
        bytes,
    })
}

fn is_whole(blob: &Path, bytes: u64) -> bool {
    fs::metadata(blob).is_ok_and(|m| m.is_file() && m.len() == bytes)
}

/// One file on its way.
struct Download<'a, 'o> {
    options: &'a HubOptions,
    cache: &'a Path,
    client: &'a Client,
    file: &'a HubFile,
    about: &'a About,
    partial: PathBuf,
    observer: &'a mut Observer<'o>,
    came_bytes: u64,
}

impl Download<'_, '_> {
    fn lock(&mut self, path: &Path) -> Result<Waited> {
        let total_bytes = self.about.bytes;
        let waited = lock::wait_for(path, &self.partial, self.options.stall, |done_bytes| {
            let told = (self.observer)(Progress {
                phase: Phase::Waiting,
                done_bytes,
                total_bytes,
            });
            told.is_continue()
        })?;
        match waited {
            Waited::Held(_) => Ok(waited),
            Waited::Stopped => Err(self.stopped(0)),
            Waited::Stuck(since) => Err(Error::Busy {
                what: self.file.to_string(),
                secs: since.as_secs(),
                lock: path.to_path_buf(),
            }),
        }
    }

    /// Brings the partial file to the promised bytes.
    fn run(&mut self) -> Result<()> {
        make_parent(&self.partial)?;
        let resumed = self.size() > 0;
        match self.attempts() {
            // What was there before may have been damaged all along.
            Err(Error::Damaged { .. }) if resumed => self.attempts(),
            other => other,
        }
    }

    fn attempts(&mut self) -> Result<()> {
        self.check_space()?;
        let kind = HashKind::of(&self.about.tag);
        let mut hasher = kind.map(|kind| Hasher::new(kind, self.about.bytes));
        if self.size() > self.about.bytes {
            self.throw_away()?;
        }
        self.take_in(hasher.as_mut())?;
        let mut failures = 0;
        while self.size() < self.about.bytes {
            let before = self.size();
            match self.connection(before, &mut hasher)? {
                Came::Whole => break,
                Came::Stopped => return Err(self.stopped(self.size())),
                Came::Silent => {
                    let secs = self.options.stall.as_secs_f64();
                    return Err(self.interrupted(format!("nothing came for {secs} s")));
                }
                Came::Broken(reason) => {
                    let after = self.size();
                    tracing::info!("the download broke off at {after} bytes: {reason}");
                    if after.saturating_sub(before) >= GOOD_BYTES {
                        failures = 0;
                    }
                    failures += 1;
                    if failures >= self.options.attempts {
                        return Err(self.interrupted(reason));
                    }
                    self.options.pause_after(failures);
                }
            }
        }
        // An empty file needs no connection.
        if self.about.bytes == 0 {
            self.open(0)?;
        }
        let found = hasher.map(Hasher::finish);
        match found {
            Some(found) if found != self.about.tag => {
                let reason = format!("its hash is {found} and not {}", self.about.tag);
                self.damaged(reason)
            }
            _ => Ok(()),
        }
    }

    /// Hashes the part that is there.
    fn take_in(&mut self, hasher: Option<&mut Hasher>) -> Result<()> {
        let there = self.size();
        let (Some(hasher), true) = (hasher, there > 0) else {
            return Ok(());
        };
        let total_bytes = self.about.bytes;
        let mut stopped = false;
        let observer = &mut *self.observer;
        hasher
            .update_from(&self.partial, there, |done_bytes| {
                let told = observer(Progress {
                    phase: Phase::Resuming,
                    done_bytes,
                    total_bytes,
                });
                stopped = told.is_break();
                told
            })
            .map_err(io_error(&self.partial))?;
        if stopped {
            return Err(self.stopped(there));
        }
        Ok(())
    }

    /// Asks for the bytes from `from` on and takes what comes.
    fn connection(&mut self, mut from: u64, hasher: &mut Option<Hasher>) -> Result<Came> {
        // At the commit, so that a branch that moves meanwhile does not mix two files.
        let address = self.client.address(self.file, &self.about.commit);
        let response = match self.client.send(&address, Ask::BytesFrom(from)) {
            Ok(response) => response,
            Err(ureq::Error::Timeout(_)) => return Ok(Came::Silent),
            Err(error) => return Ok(Came::Broken(in_words(&error))),
        };
        match response.status().as_u16() {
            206 if begins_at(&response, from, self.about.bytes) => {}
            206 => return self.damaged("another part came than was asked for".into()),
            // This server cannot go on in the middle.
            200 => {
                from = 0;
                if let Some(kind) = HashKind::of(&self.about.tag) {
                    *hasher = Some(Hasher::new(kind, self.about.bytes));
                }
            }
            416 => return self.damaged("it is shorter than the hub says".into()),
            500.. => {
                return Ok(Came::Broken(format!(
                    "the hub answered {}",
                    response.status()
                )));
            }
            _ => return Err(self.client.refusal(&response, self.file)),
        }
        let mut file = self.open(from)?;
        let mut body = response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader();
        let mut done = from;
        let mut buffer = vec![0; CHUNK];
        loop {
            if self.tell(Phase::Downloading, done).is_break() {
                return Ok(Came::Stopped);
            }
            let n = match fill(&mut body, &mut buffer) {
                (0, None) if done == self.about.bytes => return Ok(Came::Whole),
                (0, None) => return Ok(Came::Broken("the connection was closed".into())),
                (0, Some(error)) => {
                    return Ok(match ureq::Error::from(error) {
                        _ if done == self.about.bytes => Came::Whole,
                        ureq::Error::Timeout(_) if done == from => Came::Silent,
                        error => Came::Broken(in_words(&error)),
                    });
                }
                (n, _) => n,
            };
            if done + n as u64 > self.about.bytes {
                return self.damaged("more came than the hub says".into());
            }
            file.write_all(&buffer[..n])
                .map_err(io_error(&self.partial))?;
            if let Some(hasher) = hasher {
                hasher.update(&buffer[..n]);
            }
            done += n as u64;
            self.came_bytes += n as u64;
        }
    }

    /// The partial file, cut to `keep` bytes, at its end.
    fn open(&self, keep: u64) -> Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .append(true)
            .open(&self.partial)
            .map_err(io_error(&self.partial))?;
        file.set_len(keep).map_err(io_error(&self.partial))?;
        Ok(file)
    }

    fn size(&self) -> u64 {
        fs::metadata(&self.partial).map_or(0, |m| m.len())
    }

    fn check_space(&self) -> Result<()> {
        let need_bytes = self.about.bytes.saturating_sub(self.size());
        match free_bytes(self.cache) {
            Some(free_bytes) if free_bytes < need_bytes => Err(Error::NoSpace {
                need_bytes,
                free_bytes,
                cache: self.cache.to_path_buf(),
            }),
            _ => Ok(()),
        }
    }

    fn damaged<T>(&self, reason: String) -> Result<T> {
        self.throw_away()?;
        Err(Error::Damaged {
            what: self.file.to_string(),
            reason,
        })
    }

    fn throw_away(&self) -> Result<()> {
        match fs::remove_file(&self.partial) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error(&self.partial)(e)),
            _ => Ok(()),
        }
    }

    fn interrupted(&self, reason: String) -> Error {
        Error::Interrupted {
            done_bytes: self.size(),
            total_bytes: self.about.bytes,
            reason,
            partial: self.partial.clone(),
        }
    }

    fn stopped(&self, done_bytes: u64) -> Error {
        Error::Stopped {
            done_bytes,
            total_bytes: self.about.bytes,
            partial: self.partial.clone(),
        }
    }

    fn tell(&mut self, phase: Phase, done_bytes: u64) -> ControlFlow<()> {
        (self.observer)(Progress {
            phase,
            done_bytes,
            total_bytes: self.about.bytes,
        })
    }
}

/// True when an answer holds the bytes from `from` on of a file of `total` bytes.
fn begins_at(response: &Response<Body>, from: u64, total: u64) -> bool {
    let range = response.headers().get("content-range");
    let range = range.and_then(|v| v.to_str().ok()).unwrap_or_default();
    let Some((part, whole)) = range.strip_prefix("bytes ").and_then(|r| r.split_once('/')) else {
        return false;
    };
    let start = part.split('-').next().and_then(|s| s.trim().parse().ok());
    start == Some(from) && (whole == "*" || whole.trim().parse() == Ok(total))
}

/// Reads until the buffer is full, the end or an error. Bytes that came before an error count
/// first.
fn fill(body: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut n = 0;
    while n < buffer.len() {
        match body.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (n, Some(e)),
        }
    }
    (n, None)
}
