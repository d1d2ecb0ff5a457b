//! Model weights by name: from a path, from the Hugging Face cache on this machine, or from the hub.
//!
//! ```
//! use shelfscan_hub::{Hub, HubOptions, Reference};
//!
//! # fn main() -> shelfscan_hub::Result<()> {
//! let hub = Hub::new(HubOptions::from_variables(|name| std::env::var_os(name)));
//! if let Reference::Hub(file) = "dinov2-small".parse()? {
//!     let cached = hub.find(&file)?; // opens no socket; `hub.fetch` downloads what is missing
//!     println!("{file}: {}", cached.map_or("not here".into(), |c| c.path.display().to_string()));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`Reference`] reads a path, a known name, or `hf:OWNER/NAME[@REVISION][:FILE]`.
//! * [`Hub`] finds, fetches and checks files. Interrupted downloads go on where they stopped, size
//!   and hash are checked before a file gets its name, and whatever is cached opens no socket.
//! * [`Error`] tells apart no token, a bad token, a licence that was not accepted, and what is not
//!   found, each with its next step. Tokens are never printed.
//!
//! There are no cargo features. The cache is laid out as `huggingface_hub` lays it out, so that the
//! Python tools and this crate share their files and locks. The environment is not read: whoever
//! calls says how to look variables up ([`HubOptions::from_variables`]).
//!
//! The client is made of [`ureq`] with rustls rather than of the crate `hf-hub`. That one (1.0)
//! starts a download over when it broke off, checks no hash of plain downloads, asks the
//! hub about a branch although the file is cached, reads the environment by itself, and brings an
//! asynchronous runtime with about two hundred crates, one of them under MPL-2.0.
//!
//! Limits: models alone, no data sets or spaces; one file at a time over one connection; files in
//! the hub's chunked storage are had through its plain downloads.

mod cache;
mod digest;
mod error;
mod http;
mod hub;
mod lock;
mod options;
mod reference;
mod token;

pub use cache::{CachedFile, free_bytes};
pub use digest::HashKind;
pub use error::{Error, Result};
pub use hub::{Checked, Fetched, Hub, Observer, Phase, Progress};
pub use options::{DEFAULT_ENDPOINT, HubOptions};
pub use reference::{
    DEFAULT_FILE, DEFAULT_REVISION, HubFile, KNOWN, KnownModel, Purpose, Reference,
};
pub use token::{Token, TokenPlaces, TokenSource};
