//! A hub on this machine that answers as huggingface.co does, and misbehaves when told to.
//!
//! It speaks plain HTTP on `127.0.0.1`, sends the bytes of large files from `localhost` (another
//! origin, as the real one does), and remembers every request.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The commit of every file.
pub const COMMIT: &str = "5f1e0c0de5f1e0c0de5f1e0c0de5f1e0c0de5f1e";
/// What a token has to be to be known.
pub const GOOD_TOKEN: &str = "hf_goodTokenOfATest";
/// Part of the address bytes come from that nobody but the client may see.
pub const SIGNATURE: &str = "Signature=keyOfATest";

/// Who may have a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Open,
    /// Accounts that accepted the licence; the one of [`GOOD_TOKEN`] did.
    Accepted,
    /// Accounts that accepted the licence; that of [`GOOD_TOKEN`] did not.
    NotAccepted,
    /// Tokens with wider rights than [`GOOD_TOKEN`] has.
    WiderToken,
}

/// What goes wrong with the next answer that carries bytes. Each happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The connection is cut after this many bytes of the answer.
    CutAfter(usize),
    /// The first byte is another one.
    Flipped,
    /// Nothing comes after the head.
    Silence,
    /// The range is not heeded.
    WholeFile,
    /// The answer is this status without bytes.
    Status(u16),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `HEAD` or `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Host it was sent to.
    pub host: String,
    /// First byte that was asked for.
    pub from: Option<u64>,
    /// True when a token came along.
    pub with_token: bool,
}

#[derive(Debug)]
struct File {
    repo: String,
    path: String,
    bytes: Vec<u8>,
    /// Large files are named by SHA-256 and lie elsewhere.
    large: bool,
}

#[derive(Debug)]
struct State {
    files: Vec<File>,
    access: Access,
    mishaps: VecDeque<Mishap>,
    about: VecDeque<(u16, &'static str)>,
    asked: Vec<Asked>,
    connections: usize,
    ended: bool,
}

/// The hub; it ends when it is dropped.
#[derive(Debug)]
pub struct MockHub {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl MockHub {
    /// Starts an empty one.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            files: Vec::new(),
            access: Access::Open,
            mishaps: VecDeque::new(),
            about: VecDeque::new(),
            asked: Vec::new(),
            connections: 0,
            ended: false,
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut state = lock(&shared);
                if state.ended {
                    return;
                }
                state.connections += 1;
                drop(state);
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream, port, &shared));
            }
        });
        Self { port, state }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds a file as the hub keeps checkpoints: named by SHA-256, its bytes elsewhere.
    pub fn add(&self, repo: &str, path: &str, bytes: &[u8]) {
        self.add_file(repo, path, bytes, true);
    }

    /// Adds a file as the hub keeps small texts: named by git's hash, its bytes right here.
    pub fn add_small(&self, repo: &str, path: &str, bytes: &[u8]) {
        self.add_file(repo, path, bytes, false);
    }

    fn add_file(&self, repo: &str, path: &str, bytes: &[u8], large: bool) {
        lock(&self.state).files.push(File {
            repo: repo.into(),
            path: path.into(),
            bytes: bytes.to_vec(),
            large,
        });
    }

    /// Sets who may have the files.
    pub fn set_access(&self, access: Access) {
        lock(&self.state).access = access;
    }

    /// Lets this happen to the next answers with bytes.
    pub fn mishaps(&self, mishaps: impl IntoIterator<Item = Mishap>) {
        lock(&self.state).mishaps.extend(mishaps);
    }

    /// Lets the next question about a file be answered with a status and one more header line.
    pub fn answer_about(&self, status: u16, header: &'static str) {
        lock(&self.state).about.push_back((status, header));
    }

    /// How many connections were opened.
    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.state).asked.clone()
    }
}

impl Drop for MockHub {
    fn drop(&mut self) {
        lock(&self.state).ended = true;
        // Wakes the listener, which then sees that it is over.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name under which the hub keeps a large file.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn git_sha1(bytes: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()).as_bytes());
    hash.update(bytes);
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        for digit in [b >> 4, b & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
        text
    })
}

fn serve(stream: TcpStream, port: u16, state: &Mutex<State>) {
    let Some((asked, token)) = request(&stream) else {
        return;
    };
    let answer = {
        let mut state = lock(state);
        state.asked.push(asked.clone());
        answer(&asked, token.as_deref(), port, &mut state)
    };
    let (mut out, silent) = (stream, answer.silent);
    // A client may hang up at any time.
    drop(out.write_all(&answer.bytes));
    drop(out.flush());
    if silent {
        thread::sleep(Duration::from_secs(5));
    }
}

fn request(stream: &TcpStream) -> Option<(Asked, Option<String>)> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let mut asked = Asked {
        method: words.next()?.into(),
        path: words.next()?.into(),
        host: String::new(),
        from: None,
        with_token: false,
    };
    let mut token = None;
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" => asked.host = value.into(),
            "range" => {
                asked.from = value
                    .strip_prefix("bytes=")?
                    .split('-')
                    .next()?
                    .parse()
                    .ok();
            }
            "authorization" => token = value.strip_prefix("Bearer ").map(ToOwned::to_owned),
            _ => {}
        }
    }
    asked.with_token = token.is_some();
    Some((asked, token))
}

struct Answer {
    bytes: Vec<u8>,
    silent: bool,
}

impl Answer {
    fn head(status: u16, headers: &[String]) -> Self {
        let mut text = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
        for header in headers {
            text += header;
            text += "\r\n";
        }
        text += "\r\n";
        Self {
            bytes: text.into_bytes(),
            silent: false,
        }
    }

    fn refusal(status: u16, code: &str, message: &str) -> Self {
        let mut headers = vec!["Content-Length: 0".to_owned()];
        if !code.is_empty() {
            headers.push(format!("X-Error-Code: {code}"));
        }
        if !message.is_empty() {
            headers.push(format!("X-Error-Message: {message}"));
        }
        Self::head(status, &headers)
    }
}

fn answer(asked: &Asked, token: Option<&str>, port: u16, state: &mut State) -> Answer {
    if let Some(path) = asked.path.strip_prefix("/elsewhere/") {
        let hash = path.split('?').next().unwrap_or_default();
        let index = state.files.iter().position(|f| sha256(&f.bytes) == hash);
        return match index.filter(|_| path.ends_with(SIGNATURE)) {
            Some(index) => bytes(asked, index, state),
            None => Answer::refusal(403, "", "no signature"),
        };
    }
    if asked.method == "HEAD"
        && let Some((status, header)) = state.about.pop_front()
    {
        return Answer::head(status, &["Content-Length: 0".into(), header.into()]);
    }
    if let Some(refusal) = refusal(token, state.access) {
        return refusal;
    }
    let Some((repo, rest)) = asked.path.trim_start_matches('/').split_once("/resolve/") else {
        return Answer::refusal(
            404,
            "",
            "Sorry, we can't find the page you are looking for.",
        );
    };
    let (revision, path) = rest.split_once('/').unwrap_or((rest, ""));
    if repo == "old/name" {
        let to = format!("Location: /me/packs/resolve/{rest}");
        return Answer::head(307, &[to, "Content-Length: 0".into()]);
    }
    if !state.files.iter().any(|f| f.repo == repo) {
        // To strangers it says the same about private repositories.
        let status = if token.is_some() { 404 } else { 401 };
        return Answer::refusal(status, "RepoNotFound", "Repository not found");
    }
    if !["main", COMMIT].contains(&revision) {
        let said = format!("Invalid rev id: {revision}");
        return Answer::refusal(404, "RevisionNotFound", &said);
    }
    let Some(index) = state
        .files
        .iter()
        .position(|f| f.repo == repo && f.path == path)
    else {
        return Answer::refusal(404, "EntryNotFound", "Entry not found");
    };
    let file = &state.files[index];
    if file.large {
        let hash = sha256(&file.bytes);
        return Answer::head(
            302,
            &[
                format!("X-Repo-Commit: {COMMIT}"),
                format!("X-Linked-ETag: \"{hash}\""),
                format!("X-Linked-Size: {}", file.bytes.len()),
                format!("Location: http://localhost:{port}/elsewhere/{hash}?{SIGNATURE}"),
                "Content-Length: 1000".into(),
            ],
        );
    }
    bytes(asked, index, state)
}

fn refusal(token: Option<&str>, access: Access) -> Option<Answer> {
    let gated = "Access to model me/packs is restricted. You must have access to it and be authenticated to access it. Please log in.";
    match (token, access) {
        (Some(token), _) if token != GOOD_TOKEN => {
            // A server that repeats what it was sent must not make the client print it.
            let said = format!("Invalid credentials in Authorization header: {token}");
            Some(Answer::refusal(401, "", &said))
        }
        (_, Access::Open) | (Some(_), Access::Accepted) => None,
        (None, _) => Some(Answer::refusal(401, "GatedRepo", gated)),
        (Some(_), Access::NotAccepted) => Some(Answer::refusal(
            403,
            "GatedRepo",
            "Your request to access model me/packs is awaiting a review from the repo authors.",
        )),
        (Some(_), Access::WiderToken) => Some(Answer::refusal(
            403,
            "",
            "Please enable access to public gated repositories in your fine-grained token settings",
        )),
    }
}

fn bytes(asked: &Asked, index: usize, state: &mut State) -> Answer {
    let head = asked.method == "HEAD";
    let mishap = (!head).then(|| state.mishaps.pop_front()).flatten();
    if let Some(Mishap::Status(status)) = mishap {
        return Answer::refusal(status, "", "");
    }
    let file = &state.files[index];
    let all = file.bytes.len() as u64;
    let from = asked.from.filter(|_| mishap != Some(Mishap::WholeFile));
    if from.is_some_and(|from| from > 0 && from >= all) {
        return Answer::refusal(416, "", "");
    }
    let start = from.unwrap_or(0);
    let hash = if file.large {
        sha256(&file.bytes)
    } else {
        git_sha1(&file.bytes)
    };
    let mut headers = vec![
        format!("X-Repo-Commit: {COMMIT}"),
        format!("ETag: \"{hash}\""),
        format!("Content-Length: {}", all - start),
    ];
    if from.is_some() {
        headers.push(format!(
            "Content-Range: bytes {start}-{}/{all}",
            all.saturating_sub(1)
        ));
    }
    let mut answer = Answer::head(if from.is_some() { 206 } else { 200 }, &headers);
    if head {
        return answer;
    }
    let mut body = file.bytes[start as usize..].to_vec();
    match mishap {
        Some(Mishap::CutAfter(n)) => body.truncate(n),
        Some(Mishap::Flipped) => body[0] ^= 0xff,
        Some(Mishap::Silence) => {
            body.clear();
            answer.silent = true;
        }
        _ => {}
    }
    answer.bytes.extend(body);
    answer
}
