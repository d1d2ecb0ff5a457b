//! SKU views, their cache, matching with a reject option, and its evaluation.
//!
//! A gallery is a folder made from pictures of packs, one folder per SKU. With an
//! [`Embedder`](shelfscan_inference_core::Embedder) it answers crops by their nearest views, and
//! says *unknown* when none is near enough:
//!
//! ```
//! use shelfscan_gallery::{Thresholds, ViewIndex};
//!
//! let mut index = ViewIndex::new(2);
//! index.push("cola", "cola/front.jpg", &[1.0, 0.0]);
//! let nearest = &index.nearest(&[0.6, 0.8])[0][0];
//! let thresholds = Thresholds::defaults(0.05, "there is one view");
//! assert!(thresholds.accept(nearest.score, nearest.score));
//! ```
//!
//! * [`Gallery`] enrols, adds, removes, lists and verifies; only the first two need an embedder.
//! * [`Recognizer`] joins a gallery with an embedder and answers crops.
//! * [`CropPolicy`] cuts crops out of frames the way the gallery expects.
//! * [`eval`] judges any embedder on held-out pictures, beside the baselines it replaces.
//! * [`ViewIndex`] is the search alone, [`MetadataTable`] the SKU list alone.
//!
//! There are no cargo features. Limits: search is exact and in memory, meant for up to a few
//! hundred thousand views; one process writes a gallery at a time; pictures are decoded by the
//! caller, so that views and frames go through one decoder.

mod answer;
mod cache;
mod calibrate;
mod crop;
mod embed;
mod enroll;
mod error;
pub mod eval;
mod files;
mod gallery;
mod index_file;
mod metadata;
mod recognizer;
mod report;
mod search;
mod table;
mod tag;

pub use answer::{Answer, Candidate, Channel};
pub use cache::{CacheState, CacheUse, RefusedRow};
pub use calibrate::{
    DEFAULT_FALSE_ACCEPT, DEFAULT_MARGIN, DEFAULT_SCORE, LookAlike, NearDuplicate, Resemblance,
    ThresholdBasis, Thresholds,
};
pub use crop::CropPolicy;
pub use embed::{EmbedProgress, EmbedTools, ProgressObserver, UnreadableView};
pub use enroll::{EnrollOptions, Pictures};
pub use error::{GalleryError, Result};
pub use files::{IgnoredPath, PictureDecoder};
pub use gallery::Gallery;
pub use metadata::{Gtin, MetadataTable, SkuMetadata};
pub use recognizer::{LoadReport, Recognizer, RecognizerOptions};
pub use report::{EnrollReport, GalleryListing, ListedSku, RemoveReport, VerifyReport};
pub use search::ViewIndex;
