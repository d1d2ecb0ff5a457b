//! What enrolment, listing and verifying say: plain data first, a text for people second.

use std::fmt;

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    CacheState, CacheUse, CropPolicy, IgnoredPath, Resemblance, SkuMetadata, ThresholdBasis,
    Thresholds, UnreadableView, calibrate::skus_to_promise, table::Table,
};

/// Lines of one kind that a text shows; the data has them all.
const SHOWN: usize = 10;
/// What is said where there are none.
const NO_THRESHOLDS: &str = "thresholds: not set until the views are embedded";

/// What an enrolment did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnrollReport {
    /// SKUs in the gallery.
    pub skus: usize,
    /// Views in the gallery.
    pub views: usize,
    /// Views embedded in this run.
    pub embedded: usize,
    /// Views whose vector was there already.
    pub reused: usize,
    /// Views that could not be decoded and are never matched.
    pub unreadable: Vec<UnreadableView>,
    /// Files and folders that were left aside.
    pub ignored: Vec<IgnoredPath>,
    /// SKUs of the metadata file that have no folder.
    pub unused_metadata: Vec<String>,
    /// Columns of the metadata file that were left aside.
    pub ignored_columns: Vec<String>,
    /// How packs will be cut out of frames.
    pub crop_policy: CropPolicy,
    /// What embedded the views; its `preprocessing` names the resize rule.
    pub embedder: EmbedderFingerprint,
    /// When an answer is known.
    pub thresholds: Thresholds,
    /// Look-alike SKUs and repeated views.
    pub resemblance: Resemblance,
    /// What became of the cache.
    pub cache: CacheUse,
}

/// What a removal did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoveReport {
    /// SKUs taken out.
    pub skus: Vec<String>,
    /// Views taken out.
    pub views: usize,
    /// The thresholds, measured again on what is left; `None` when the cache does not hold all of
    /// its vectors, so that the next load measures them.
    pub thresholds: Option<Thresholds>,
}

/// One SKU of a [`GalleryListing`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedSku {
    /// Name of its folder.
    pub sku: String,
    /// Name, GTIN and price.
    #[serde(flatten)]
    pub metadata: SkuMetadata,
    /// Its views in order.
    pub views: Vec<String>,
    /// Those of them that could not be decoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableView>,
}

/// What a gallery holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GalleryListing {
    /// How packs are cut out of frames.
    pub crop_policy: CropPolicy,
    /// What embedded the views.
    pub embedder: Option<EmbedderFingerprint>,
    /// When an answer is known.
    pub thresholds: Option<Thresholds>,
    /// The SKUs by name.
    pub skus: Vec<ListedSku>,
}

/// What is wrong with a gallery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Views that were checked.
    pub views: usize,
    /// Views whose file is gone.
    pub missing: Vec<String>,
    /// Views whose file has other bytes than were enrolled.
    pub changed: Vec<String>,
    /// Views that cannot be decoded. They are no fault of the gallery.
    pub unreadable: Vec<UnreadableView>,
    /// How far the cache fits; `None` before anything was embedded.
    pub cache: Option<CacheUse>,
    /// True when every file is the enrolled one and the cache fits whole.
    pub ok: bool,
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "score >= {:.3} and margin >= {:.3}, ",
            self.score, self.margin
        )?;
        match &self.basis {
            ThresholdBasis::Calibrated {
                known,
                strangers,
                stranger_skus,
                false_accept,
                false_accept_bound,
                false_reject,
                mistaken,
            } => {
                write!(
                    f,
                    "measured on {known} held-out views and {strangers} strangers of {stranger_skus} SKUs: {:.1} % false accepts (at most {:.1} % of new packs, with 95 % confidence; asked for {:.1} %), {:.1} % false rejects, {:.1} % mistaken",
                    false_accept * 100.0,
                    false_accept_bound * 100.0,
                    self.target_false_accept * 100.0,
                    false_reject * 100.0,
                    mistaken * 100.0
                )?;
                if *false_accept_bound > self.target_false_accept {
                    write!(
                        f,
                        "; these are too few SKUs to promise {:.1} %: it takes {} SKUs",
                        self.target_false_accept * 100.0,
                        skus_to_promise(self.target_false_accept)
                    )?;
                }
                Ok(())
            }
            ThresholdBasis::Default { reason } => write!(f, "defaults: {reason}"),
        }
    }
}

impl fmt::Display for CacheUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            CacheState::Hit => "fits",
            CacheState::Partial => "fits in part",
            CacheState::Absent => "absent",
            CacheState::Refused => "not used",
        };
        write!(f, "{state}, {} views reused", self.reused)?;
        if let Some(reason) = &self.reason {
            write!(f, "; {reason}")?;
        }
        if let Some(first) = self.refused_rows.first() {
            write!(
                f,
                "; {} rows refused, the first is row {} ({}): {}",
                self.refused, first.row, first.view, first.reason
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for EnrollReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} SKUs, {} views: {} embedded, {} reused, {} unreadable",
            self.skus,
            self.views,
            self.embedded,
            self.reused,
            self.unreadable.len()
        )?;
        writeln!(f, "crop policy: {}", self.crop_policy)?;
        writeln!(
            f,
            "embedder: {} ({})",
            self.embedder.model, self.embedder.preprocessing
        )?;
        writeln!(f, "thresholds: {}", self.thresholds)?;
        some(f, "unreadable", &self.unreadable, |view| {
            format!("{}: {}", view.view, view.reason)
        })?;
        some(f, "left aside", &self.ignored, |ignored| {
            format!("{}: {}", ignored.path, ignored.reason)
        })?;
        some(
            f,
            "metadata without a folder",
            &self.unused_metadata,
            Clone::clone,
        )?;
        some(
            f,
            "metadata columns left aside",
            &self.ignored_columns,
            Clone::clone,
        )?;
        self.resemblance.fmt(f)
    }
}

impl fmt::Display for Resemblance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.look_alike_count > 0 {
            writeln!(f, "look-alike SKUs: {}", self.look_alike_count)?;
            let mut table = Table::new(["  sku", "other", "score", "mistaken views"]);
            for pair in self.look_alikes.iter().take(SHOWN) {
                table.row([
                    format!("  {}", pair.sku),
                    pair.other.clone(),
                    format!("{:.3}", pair.score),
                    pair.mistaken_views.to_string(),
                ]);
            }
            write!(f, "{table}")?;
        }
        if self.near_duplicate_count > 0 {
            writeln!(f, "repeated views: {}", self.near_duplicate_count)?;
            for pair in self.near_duplicates.iter().take(SHOWN) {
                writeln!(f, "  {} repeats {}", pair.other_view, pair.view)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for RemoveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "removed {} ({} views)", self.skus.join(", "), self.views)?;
        match &self.thresholds {
            Some(thresholds) => writeln!(f, "thresholds: {thresholds}"),
            None => writeln!(f, "{NO_THRESHOLDS}"),
        }
    }
}

impl fmt::Display for GalleryListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["sku", "views", "unreadable", "gtin", "price", "name"]);
        for sku in &self.skus {
            let metadata = &sku.metadata;
            table.row([
                sku.sku.clone(),
                sku.views.len().to_string(),
                sku.unreadable.len().to_string(),
                metadata
                    .gtin
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
                metadata
                    .price
                    .map_or_else(String::new, |price| format!("{price:.2}")),
                metadata.name.clone().unwrap_or_default(),
            ]);
        }
        write!(f, "{table}")?;
        writeln!(f, "crop policy: {}", self.crop_policy)?;
        if let Some(embedder) = &self.embedder {
            writeln!(
                f,
                "embedder: {} ({})",
                embedder.model, embedder.preprocessing
            )?;
        }
        match &self.thresholds {
            Some(thresholds) => writeln!(f, "thresholds: {thresholds}"),
            None => writeln!(f, "{NO_THRESHOLDS}"),
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} views, {} missing, {} changed, {} unreadable",
            if self.ok { "ok" } else { "not ok" },
            self.views,
            self.missing.len(),
            self.changed.len(),
            self.unreadable.len()
        )?;
        some(f, "missing", &self.missing, Clone::clone)?;
        some(f, "changed", &self.changed, Clone::clone)?;
        some(f, "unreadable", &self.unreadable, |view| {
            format!("{}: {}", view.view, view.reason)
        })?;
        match &self.cache {
            Some(cache) => writeln!(f, "cache: {cache}"),
            None => writeln!(f, "cache: nothing was embedded yet"),
        }
    }
}

fn some<T>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    items: &[T],
    text: impl Fn(&T) -> String,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}: {}", items.len())?;
    for item in items.iter().take(SHOWN) {
        writeln!(f, "  {}", text(item))?;
    }
    if items.len() > SHOWN {
        writeln!(f, "  and {} more", items.len() - SHOWN)?;
    }
    Ok(())
}
