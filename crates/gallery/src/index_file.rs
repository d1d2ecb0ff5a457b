//! `gallery.json`: the ordered list of SKUs and views, and what the gallery was made with.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    CropPolicy, GalleryError, Result, SkuMetadata, Thresholds,
    calibrate::DEFAULT_FALSE_ACCEPT,
    files::{hex, stays_inside, write_atomic},
};

/// Name of the index within a gallery folder.
pub(crate) const INDEX_NAME: &str = "gallery.json";
/// Name of the folder of copied pictures within a gallery folder.
pub(crate) const VIEWS_NAME: &str = "views";
/// Version of the index's layout.
pub(crate) const SCHEMA: u32 = 1;
/// Numbers of a vector at most; models have 192 to 1,536.
const MOST_DIMENSIONS: usize = 65_536;
/// Largest index that is read; a view takes about 250 bytes.
const MAX_INDEX_BYTES: u64 = 512 << 20;

/// One enrolled picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewRecord {
    /// Path below the enrolled folder: `SKU/file`.
    pub(crate) view: String,
    /// Where the picture lies: below the gallery folder, or absolute when it is only referenced.
    pub(crate) file: String,
    /// SHA-256 of the file in hex.
    pub(crate) sha256: String,
    /// Why it could not be decoded, when it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreadable: Option<String>,
}

/// One SKU with its views, sorted by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SkuRecord {
    pub(crate) sku: String,
    #[serde(flatten)]
    pub(crate) metadata: SkuMetadata,
    pub(crate) views: Vec<ViewRecord>,
}

/// The whole index. Its order is the order of the cache's rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexFile {
    pub(crate) schema: u32,
    pub(crate) crop_policy: CropPolicy,
    /// What the cache was last made with; its `preprocessing` holds the resize rule.
    #[serde(default)]
    pub(crate) embedder: Option<EmbedderFingerprint>,
    #[serde(default)]
    pub(crate) thresholds: Option<Thresholds>,
    /// The false-accept rate that thresholds are to be measured for, while there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted_false_accept: Option<f32>,
    pub(crate) skus: Vec<SkuRecord>,
}

impl IndexFile {
    pub(crate) fn new(crop_policy: CropPolicy) -> Self {
        Self {
            schema: SCHEMA,
            crop_policy,
            embedder: None,
            thresholds: None,
            wanted_false_accept: None,
            skus: Vec::new(),
        }
    }

    /// The false-accept rate that thresholds are, or are to be, measured for.
    pub(crate) fn target_false_accept(&self) -> f32 {
        self.thresholds
            .as_ref()
            .map(|thresholds| thresholds.target_false_accept)
            .or(self.wanted_false_accept)
            .unwrap_or(DEFAULT_FALSE_ACCEPT)
    }

    pub(crate) fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = Some(thresholds);
        self.wanted_false_accept = None;
    }

    /// Leaves the thresholds to be measured by whoever has all vectors next.
    pub(crate) fn leave_thresholds_open(&mut self) {
        self.wanted_false_accept = Some(self.target_false_accept());
        self.thresholds = None;
    }

    /// All views in order.
    pub(crate) fn views(&self) -> impl Iterator<Item = &ViewRecord> {
        self.skus.iter().flat_map(|sku| &sku.views)
    }

    pub(crate) fn view_count(&self) -> usize {
        self.skus.iter().map(|sku| sku.views.len()).sum()
    }

    /// Hash over the enrolled files and the crop policy, in hex.
    pub(crate) fn content_hash(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.crop_policy.to_string());
        for view in self.views() {
            // Lengths keep two different lists from running into the same bytes.
            hasher.update((view.view.len() as u64).to_le_bytes());
            hasher.update(&view.view);
            hasher.update(&view.sha256);
        }
        hex(&hasher.finalize())
    }

    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(INDEX_NAME);
        let damaged = |reason: String| GalleryError::Gallery {
            path: path.clone(),
            reason,
            remedy: "remove the folder, or name another, and enrol again",
        };
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(GalleryError::Gallery {
                    path: dir.into(),
                    reason: format!("the folder has no {INDEX_NAME}"),
                    remedy: "name a folder made by `shelfscan enroll`",
                });
            }
            Err(error) => return Err(GalleryError::io("read", &path)(error)),
        };
        if length > MAX_INDEX_BYTES {
            return Err(damaged(format!(
                "{INDEX_NAME} has {length} bytes, more than {MAX_INDEX_BYTES}"
            )));
        }
        let bytes = fs::read(&path).map_err(GalleryError::io("read", &path))?;
        let index = Self::parse(&bytes).map_err(damaged)?;
        if index.schema > SCHEMA {
            return Err(GalleryError::Gallery {
                path,
                reason: format!("its schema {} is newer than {SCHEMA}", index.schema),
                remedy: "use a newer shelfscan, or enrol into another folder",
            });
        }
        Ok(index)
    }

    /// Reads an index from untrusted bytes; an error is in words.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let index: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("{INDEX_NAME} is damaged: {error}"))?;
        index.crop_policy.validated().map_err(|e| e.to_string())?;
        if let Some(embedder) = &index.embedder
            && !(1..=MOST_DIMENSIONS).contains(&embedder.dimension)
        {
            return Err(format!(
                "its vectors have {} numbers, not 1 to {MOST_DIMENSIONS}",
                embedder.dimension
            ));
        }
        if let Some(thresholds) = &index.thresholds
            && !thresholds.is_valid()
        {
            return Err("its thresholds are not numbers between -1 and 2".into());
        }
        let mut last_sku: Option<&str> = None;
        for sku in &index.skus {
            if last_sku.is_some_and(|last| last >= sku.sku.as_str()) {
                return Err(format!("SKU {} is out of order or listed twice", sku.sku));
            }
            last_sku = Some(&sku.sku);
            let mut last_view: Option<&str> = None;
            for view in &sku.views {
                if last_view.is_some_and(|last| last >= view.view.as_str()) {
                    return Err(format!(
                        "view {} is out of order or listed twice",
                        view.view
                    ));
                }
                last_view = Some(&view.view);
                let below_its_sku = view
                    .view
                    .strip_prefix(sku.sku.as_str())
                    .is_some_and(|rest| rest.starts_with('/'));
                let file = Path::new(&view.file);
                if !below_its_sku || !(file.is_absolute() || stays_inside(file)) {
                    return Err(format!("view {} points outside the gallery", view.view));
                }
            }
        }
        Ok(index)
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(INDEX_NAME);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| GalleryError::InvalidInput(error.to_string()))?;
        text.push(b'\n');
        write_atomic(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index() -> IndexFile {
        let mut index = IndexFile::new(CropPolicy::Tight);
        for sku in ["a", "b"] {
            index.skus.push(SkuRecord {
                sku: sku.into(),
                metadata: SkuMetadata::default(),
                views: ["1.png", "2.png"]
                    .map(|file| ViewRecord {
                        view: format!("{sku}/{file}"),
                        file: format!("views/{sku}/{file}"),
                        sha256: format!("{sku}{file}"),
                        unreadable: None,
                    })
                    .into(),
            });
        }
        index
    }

    fn reparse(index: &IndexFile) -> Result<IndexFile, String> {
        IndexFile::parse(&serde_json::to_vec(index).unwrap())
    }

    #[test]
    fn an_index_survives_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        index().write(dir.path()).unwrap();
        assert_eq!(IndexFile::read(dir.path()).unwrap(), index());
    }

    #[test]
    fn the_content_hash_follows_files_policy_and_order() {
        let hash = index().content_hash();
        let mut other = index();
        other.crop_policy = CropPolicy::Margin { share: 0.05 };
        assert_ne!(other.content_hash(), hash);
        let mut other = index();
        other.skus[0].views.swap(0, 1);
        assert_ne!(other.content_hash(), hash);
        let mut other = index();
        other.skus[1].views[0].sha256.push('0');
        assert_ne!(other.content_hash(), hash);
        let mut other = index();
        other.skus[1].metadata.name = Some("milk".into());
        assert_eq!(other.content_hash(), hash);
    }

    #[test]
    fn an_index_out_of_order_or_pointing_outside_is_refused() {
        let mut moved = index();
        moved.skus.swap(0, 1);
        assert!(reparse(&moved).unwrap_err().contains("out of order"));
        let mut twice = index();
        twice.skus[0].views[1] = twice.skus[0].views[0].clone();
        assert!(reparse(&twice).unwrap_err().contains("twice"));
        let mut outside = index();
        outside.skus[0].views[0].file = "../../etc/passwd".into();
        assert!(reparse(&outside).unwrap_err().contains("outside"));
        let mut foreign = index();
        foreign.skus[0].views[0].view = "0/1.png".into();
        assert!(reparse(&foreign).unwrap_err().contains("outside"));
    }

    #[test]
    fn vectors_without_numbers_or_with_far_too_many_are_refused() {
        for dimension in [0, usize::MAX] {
            let mut hostile = index();
            hostile.embedder = Some(EmbedderFingerprint {
                model: "m".into(),
                weights_hash: "h".into(),
                preprocessing: "p".into(),
                dimension,
            });
            assert!(reparse(&hostile).unwrap_err().contains("its vectors have"));
        }
    }

    #[test]
    fn a_missing_newer_or_damaged_index_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = IndexFile::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("shelfscan enroll"), "{error}");
        let mut newer = index();
        newer.schema = SCHEMA + 1;
        newer.write(dir.path()).unwrap();
        let error = IndexFile::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("newer"), "{error}");
        fs::write(dir.path().join(INDEX_NAME), b"{").unwrap();
        let error = IndexFile::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("remove the folder, or name"), "{error}");
    }

    proptest! {
        #[test]
        fn a_cut_or_flipped_index_is_an_error_or_still_in_order(cut in 0usize..900, flip in 0usize..900, bit in 0u8..8) {
            let mut bytes = serde_json::to_vec(&index()).unwrap();
            bytes.truncate(cut.max(1));
            let at = flip % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(index) = IndexFile::parse(&bytes) {
                prop_assert!(index.skus.is_sorted_by(|a, b| a.sku < b.sku));
            }
        }
    }
}
