//! Two small trained models, compiled in.
//!
//! `shelf-tiny` finds products with SAM 3.1's detector at 5.2 million parameters, `pack-tiny` tells
//! SKUs apart with DINOv2's structure at 2.8 million. They were trained by this project so that
//! the whole way from video to counted facings runs without a download; their cards in
//! `models/*/README.md` give their data, figures and limits. The large models run through the same
//! code.
//!
//! ```
//! use shelfscan_tiny_models::{PACK_TINY, SHELF_TINY};
//!
//! assert!(SHELF_TINY.merges.is_some() && PACK_TINY.merges.is_none());
//! assert!(SHELF_TINY.weights.len() <= 12_000_000 && PACK_TINY.weights.len() <= 12_000_000);
//! ```
//!
//! There are no cargo features; whoever links this crate carries 16 MB. It knows no model code:
//! hand the bytes to a loader that takes them from memory.

/// One model: what a folder with it would hold.
#[derive(Clone, Copy)]
pub struct TinyModel {
    /// Its name in results.
    pub name: &'static str,
    /// `model.safetensors`.
    pub weights: &'static [u8],
    /// `config.json`.
    pub config: &'static str,
    /// `merges.txt`, for a model with a vocabulary.
    pub merges: Option<&'static str>,
    /// What it is good for, in a few words.
    pub about: &'static str,
}

impl std::fmt::Debug for TinyModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TinyModel")
            .field("name", &self.name)
            .field("weights", &self.weights.len())
            .finish_non_exhaustive()
    }
}

/// The detector.
pub const SHELF_TINY: TinyModel = TinyModel {
    name: "shelf-tiny",
    weights: include_bytes!("../../../models/shelf-tiny/model.safetensors"),
    config: include_str!("../../../models/shelf-tiny/config.json"),
    merges: Some(include_str!("../../../models/shelf-tiny/merges.txt")),
    about: "a small detector for trying things out; SAM 3.1 finds more and understands more words",
};

/// The embedder.
pub const PACK_TINY: TinyModel = TinyModel {
    name: "pack-tiny",
    weights: include_bytes!("../../../models/pack-tiny/model.safetensors"),
    config: include_str!("../../../models/pack-tiny/config.json"),
    merges: None,
    about: "a small embedder of packs; DINOv2 tells more SKUs apart",
};
