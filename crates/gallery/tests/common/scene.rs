//! A drawn set of SKUs and the gallery made of it, in a folder of their own.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;

use shelfscan_gallery::{
    EnrollOptions, Gallery, GalleryError, LoadReport, Recognizer, RecognizerOptions,
};
use tempfile::TempDir;

use super::{GridEmbedder, decode, draw_skus};

pub(crate) struct Scene {
    pub(crate) root: TempDir,
}

impl Scene {
    pub(crate) fn new(skus: u64, views: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        draw_skus(&root.path().join("skus"), skus, views, 24);
        Self { root }
    }

    pub(crate) fn skus(&self) -> std::path::PathBuf {
        self.root.path().join("skus")
    }

    pub(crate) fn dir(&self) -> std::path::PathBuf {
        self.root.path().join("gallery")
    }

    pub(crate) fn enroll(&self, embedder: &GridEmbedder) -> shelfscan_gallery::EnrollReport {
        self.enroll_with(embedder, &EnrollOptions::default())
            .unwrap()
    }

    pub(crate) fn enroll_with(
        &self,
        embedder: &GridEmbedder,
        options: &EnrollOptions,
    ) -> Result<shelfscan_gallery::EnrollReport, GalleryError> {
        Gallery::enroll(&self.skus(), &self.dir(), &embedder.tools(), options).map(|(_, r)| r)
    }

    pub(crate) fn load(
        &self,
        embedder: GridEmbedder,
    ) -> (Recognizer, LoadReport, Arc<GridEmbedder>) {
        let embedder = Arc::new(embedder);
        let gallery = Gallery::open(&self.dir()).unwrap();
        let options = RecognizerOptions::default();
        let (recognizer, report) =
            Recognizer::load(gallery, embedder.clone(), &decode, None, &options).unwrap();
        (recognizer, report, embedder)
    }
}
