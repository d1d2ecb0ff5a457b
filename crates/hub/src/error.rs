//! What can go wrong between a name and a file, grouped by what to do about it.

use std::{io, path::PathBuf};

use crate::token::TokenSource;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be had. Each message ends in the next step, or in the path or address it
/// is about; none holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text names no model. Remedy: write it another way.
    #[error(
        "`{text}` names no model: {reason}; write a path, one of {}, or hf:OWNER/NAME[@REVISION][:FILE]",
        names()
    )]
    Reference {
        /// What was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address of the hub is unusable. Remedy: another address.
    #[error("the hub cannot be at this address, {reason}; give https://HOST: {endpoint}")]
    Endpoint {
        /// The address, without credentials.
        endpoint: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No folder for the cache is known. Remedy: name one.
    #[error(
        "there is no home folder to keep models in; name a folder with HF_HOME or HF_HUB_CACHE"
    )]
    NoCache,
    /// The file is not on this machine and downloads are switched off. Remedy: get it beforehand.
    #[error("{what} is not in the cache and downloads are switched off; get it with `shelfscan models pull {what}` where there is a network, and copy the cache here: {}", cache.display())]
    NotCached {
        /// The reference.
        what: String,
        /// Folder of the cache.
        cache: PathBuf,
    },
    /// The repository is gated and no token was found. Remedy: accept the licence, set a token.
    #[error(
        "{repo} is given only to accounts that accepted its licence, and there is no token; accept it at {page}, make a token with read access at {tokens_page}, and set HF_TOKEN or log in with `hf auth login`"
    )]
    NoToken {
        /// The repository.
        repo: String,
        /// Where its licence is accepted.
        page: String,
        /// Where tokens are made.
        tokens_page: String,
    },
    /// The hub does not know the token, or it is none. Remedy: another token.
    #[error(
        "the token from {from} is not accepted: {reason}; make a new one with read access and put it there"
    )]
    BadToken {
        /// Where it was found.
        from: TokenSource,
        /// What is wrong with it.
        reason: String,
    },
    /// The account has not been let in yet. Remedy: accept the licence, wait for the approval.
    #[error(
        "the token from {from} is known, but its account may not have {repo} yet ({said}); accept the licence or wait for the approval at {page}"
    )]
    NotAccepted {
        /// The repository.
        repo: String,
        /// Where the token was found.
        from: TokenSource,
        /// The hub's words.
        said: String,
        /// Where the licence is accepted.
        page: String,
    },
    /// The token may not read it. Remedy: a token with wider rights.
    #[error(
        "the token from {from} may not read {repo} ({said}); make one with read access to gated repositories at {tokens_page}"
    )]
    Forbidden {
        /// The repository.
        repo: String,
        /// Where the token was found.
        from: TokenSource,
        /// The hub's words.
        said: String,
        /// Where tokens are made.
        tokens_page: String,
    },
    /// There is no such repository, or it does not show itself. Remedy: the name, or a token.
    #[error("no repository {repo} can be seen{}; check the name: {page}", if *anonymous { " without a token" } else { "" })]
    RepoNotFound {
        /// The repository.
        repo: String,
        /// True when no token was sent, so that a private repository looks missing.
        anonymous: bool,
        /// Its address.
        page: String,
    },
    /// The repository has no such branch, tag or commit. Remedy: another one.
    #[error("{repo} has no revision {revision}; the ones it has are at {page}")]
    RevisionNotFound {
        /// The repository.
        repo: String,
        /// What was asked for.
        revision: String,
        /// Where they are listed.
        page: String,
    },
    /// The repository has no such file. Remedy: another one.
    #[error("{repo} has no file {file} at revision {revision}; the ones it has are at {page}")]
    FileNotFound {
        /// The repository.
        repo: String,
        /// The revision.
        revision: String,
        /// What was asked for.
        file: String,
        /// Where they are listed.
        page: String,
    },
    /// Too many requests. Remedy: wait.
    #[error("the hub answers no more requests for now; try again in {}{}", wait(*retry_after_secs), if *anonymous { ", or set HF_TOKEN, which raises the limit" } else { "" })]
    RateLimited {
        /// How long the hub wants to be left alone, when it says so.
        retry_after_secs: Option<u64>,
        /// True when no token was sent.
        anonymous: bool,
    },
    /// No connection. Remedy: the network, a proxy, or a cache that was filled elsewhere.
    #[error(
        "the hub cannot be reached ({reason}); check the network and HTTPS_PROXY, or copy a filled cache here: {endpoint}"
    )]
    Unreachable {
        /// Address of the hub.
        endpoint: String,
        /// What went wrong.
        reason: String,
    },
    /// The hub is in trouble. Remedy: try later.
    #[error("the hub answered {status} ({said}); try again later: {endpoint}")]
    Server {
        /// The status of the answer.
        status: u16,
        /// The hub's words.
        said: String,
        /// Address of the hub.
        endpoint: String,
    },
    /// The other side is no hub. Remedy: the address.
    #[error("this does not answer like a hub, {reason}; check the address: {endpoint}")]
    NoHub {
        /// The address.
        endpoint: String,
        /// What is unlike a hub.
        reason: String,
    },
    /// The download broke off and did not come back. Remedy: run it again, it goes on.
    #[error("the download broke off at {done_bytes} of {total_bytes} bytes ({reason}); run it again to go on from there: {}", partial.display())]
    Interrupted {
        /// Bytes that are there.
        done_bytes: u64,
        /// Bytes of the whole file.
        total_bytes: u64,
        /// What went wrong.
        reason: String,
        /// The part that is there.
        partial: PathBuf,
    },
    /// The caller's progress function asked to stop. Remedy: run it again, it goes on.
    #[error("stopped at {done_bytes} of {total_bytes} bytes; run it again to go on from there: {}", partial.display())]
    Stopped {
        /// Bytes that are there.
        done_bytes: u64,
        /// Bytes of the whole file.
        total_bytes: u64,
        /// The part that is there.
        partial: PathBuf,
    },
    /// What came is not what the hub promised. Remedy: run it again, it starts over.
    #[error("the download of {what} is damaged, {reason}; it was thrown away, run it again")]
    Damaged {
        /// The reference.
        what: String,
        /// What differs.
        reason: String,
    },
    /// The disk is too small. Remedy: room, or another folder.
    #[error("{need_bytes} bytes are needed and {free_bytes} are free; make room or keep models elsewhere with HF_HUB_CACHE: {}", cache.display())]
    NoSpace {
        /// Bytes still to come.
        need_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
        /// Folder of the cache.
        cache: PathBuf,
    },
    /// Another process downloads the same file and does not get on. Remedy: end it.
    #[error("another process has been downloading {what} for {secs} s without getting on; end it and run this again: {}", lock.display())]
    Busy {
        /// The reference.
        what: String,
        /// How long it has stood still.
        secs: u64,
        /// The lock it holds.
        lock: PathBuf,
    },
    /// The file cannot be opened, read or written. Remedy: the path or its permissions.
    #[error("cannot read or write the file, check that it exists and may be used ({source}): {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn names() -> String {
    let names: Vec<&str> = crate::KNOWN.iter().map(|m| m.name).collect();
    names.join(", ")
}

fn wait(secs: Option<u64>) -> String {
    match secs {
        Some(secs) => format!("{secs} s"),
        None => "a few minutes".into(),
    }
}
