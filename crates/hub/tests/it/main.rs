//! Against a hub on this machine that answers and misbehaves as the real one does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod downloads;
mod refusals;

use std::{fs, ops::ControlFlow, path::Path, time::Duration};

use shelfscan_hub::{Error, Fetched, Hub, HubFile, HubOptions, Progress, TokenPlaces};
use shelfscan_testkit::hub::MockHub;
use tempfile::TempDir;

/// A mock hub with one file, and a cache for it.
pub(crate) struct Place {
    pub(crate) mock: MockHub,
    /// Removed with the place.
    _dir: TempDir,
    pub(crate) options: HubOptions,
    pub(crate) bytes: Vec<u8>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let mock = MockHub::start();
        let dir = tempfile::tempdir().unwrap();
        // Three megabytes and a bit that do not repeat.
        let bytes: Vec<u8> = (0..800_001_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        mock.add("me/packs", "model.safetensors", &bytes);
        let options = HubOptions {
            endpoint: mock.endpoint(),
            cache: Some(dir.path().join("hub")),
            pause: Duration::from_millis(1),
            stall: Duration::from_secs(30),
            ..HubOptions::default()
        };
        Self {
            mock,
            _dir: dir,
            options,
            bytes,
        }
    }

    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.options.tokens = TokenPlaces {
            hf_token: Some(token.into()),
            ..TokenPlaces::default()
        };
        self
    }

    pub(crate) fn fetch(&self, reference: &HubFile) -> Result<Fetched, Error> {
        Hub::new(self.options.clone()).fetch(reference, &mut |_| ControlFlow::Continue(()))
    }

    pub(crate) fn cache(&self) -> &Path {
        self.options.cache.as_deref().unwrap()
    }

    /// Names of the blobs that are there, whole or not.
    pub(crate) fn blobs(&self) -> Vec<String> {
        let dir = self.cache().join("models--me--packs/blobs");
        let Ok(entries) = fs::read_dir(dir) else {
            return Vec::new();
        };
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

pub(crate) fn packs() -> HubFile {
    HubFile::new("me/packs", "main", "model.safetensors").unwrap()
}

/// Continues for ever and remembers what it was told.
pub(crate) fn remember(told: &mut Vec<Progress>) -> impl FnMut(Progress) -> ControlFlow<()> + '_ {
    |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    }
}
