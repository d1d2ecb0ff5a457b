//! What a gallery says about one crop.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Which evidence named the SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Channel {
    /// The look of the pack, by its embedding.
    Packaging,
    /// A barcode or QR code that was decoded; it overrules packaging.
    Tag,
}

/// A SKU near a crop, with the view of it that came closest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The SKU, by the name of its enrolled folder.
    pub sku: Arc<str>,
    /// Cosine of the best view, -1 to 1.
    pub score: f32,
    /// The best view, as the path of its picture below the enrolled folder.
    pub view: Arc<str>,
}

/// The answer for one crop. No SKU means *unknown*, which is an answer too: the nearest are listed,
/// none is close enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The SKU, or `None` for unknown.
    pub sku: Option<Arc<str>>,
    /// What spoke; `None` for unknown.
    pub channel: Option<Channel>,
    /// Cosine of the nearest SKU's best view, -1 to 1.
    pub score: f32,
    /// Distance of the nearest SKU's score to the next SKU's; the score itself when there is one SKU.
    pub margin: f32,
    /// The nearest SKUs, best first, at most three.
    pub nearest: Vec<Candidate>,
}
