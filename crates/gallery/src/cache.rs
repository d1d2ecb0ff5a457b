//! The cache of view embeddings and the proof that it belongs to the enrolled views.
//!
//! Two questions are kept apart. A *key* over the enrolled files, the crop policy and the
//! embedder's fingerprint proves the store: another model, another preprocessing or another policy
//! makes every vector useless. The *rows* are proved one by one, by walking the enrolled list
//! forward and never back: a row that was moved, repeated or belongs to no enrolled view is
//! refused, and its view is embedded again. Views that could not be decoded have no row, which
//! leaves the walk of the others undisturbed.
//!
//! Layout: a safetensors file with `vectors` (`f32`, `[rows, dimension]`) and `rows` (`u8`, JSON
//! list of the rows in order), and one metadata entry that holds the recipe and the key.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    GalleryError, Result,
    files::{hex, write_atomic},
    index_file::IndexFile,
};

/// Name of the cache within a gallery folder.
pub(crate) const CACHE_NAME: &str = "cache.safetensors";
/// Start of the names of parts written while views are being embedded.
const PART_PREFIX: &str = "cache-part-";
/// Entry of the safetensors metadata.
const METADATA_KEY: &str = "shelfscan_gallery";
/// Longest description of a row, in bytes, that the size bound allows for.
const ROW_BYTES: u64 = 1024;
/// Largest header of a cache: two tensors and one metadata entry.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// Rows of views taken out since the cache was written still fit in this many.
const SPARE_ROWS: u64 = 200_000;
/// How far a stored vector's length may be from 1.
const UNIT_TOLERANCE: f32 = 1e-3;
/// Refused rows named in a report; the count goes on.
const MAX_LISTED_ROWS: usize = 20;

/// What a vector depends on beside its picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) crop_policy: String,
    pub(crate) embedder: EmbedderFingerprint,
}

impl Recipe {
    pub(crate) fn new(index: &IndexFile, embedder: &EmbedderFingerprint) -> Self {
        Self {
            crop_policy: index.crop_policy.to_string(),
            embedder: embedder.clone(),
        }
    }

    /// Proves the store: a hash over the enrolled files, the crop policy and the embedder.
    pub(crate) fn key(&self, index: &IndexFile) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.seed());
        hasher.update(index.content_hash());
        hex(&hasher.finalize())
    }

    fn seed(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for part in [
            &self.crop_policy,
            &self.embedder.model,
            &self.embedder.weights_hash,
            &self.embedder.preprocessing,
        ] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update((self.embedder.dimension as u64).to_le_bytes());
        hasher.finalize().into()
    }

    /// In words, the first difference that makes the vectors useless.
    fn difference(&self, stored: &Self) -> Option<String> {
        let (ours, theirs) = (&self.embedder, &stored.embedder);
        let pairs = [
            ("crop policy", &self.crop_policy, &stored.crop_policy),
            ("model", &ours.model, &theirs.model),
            ("weights", &ours.weights_hash, &theirs.weights_hash),
            ("preprocessing", &ours.preprocessing, &theirs.preprocessing),
        ];
        for (what, ours, theirs) in pairs {
            if ours != theirs {
                return Some(format!(
                    "it was made with {what} {theirs}, now it is {ours}"
                ));
            }
        }
        (ours.dimension != theirs.dimension).then(|| {
            format!(
                "its vectors have {} numbers, now they have {}",
                theirs.dimension, ours.dimension
            )
        })
    }
}

#[derive(Serialize, Deserialize)]
struct StoreHeader {
    recipe: Recipe,
    key: String,
}

/// What a row claims to be. `proof` ties the claim to the vector and to the recipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RowClaim {
    view: String,
    sha256: String,
    proof: String,
}

impl RowClaim {
    fn prove(seed: &[u8; 32], view: &str, sha256: &str, vector: &[f32]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(seed);
        hasher.update((view.len() as u64).to_le_bytes());
        hasher.update(view);
        hasher.update(sha256);
        hasher.update(to_bytes(vector));
        hex(&hasher.finalize()[..8])
    }
}

/// A store that was read whole; nothing in it is trusted yet.
#[derive(Debug)]
pub(crate) struct Store {
    recipe: Recipe,
    key: String,
    rows: Vec<RowClaim>,
    vectors: Vec<f32>,
}

/// A row of the cache that was not believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// Position in the cache, from 0.
    pub row: usize,
    /// The view it claims to be.
    pub view: String,
    /// Why it was not believed.
    pub reason: String,
}

/// How far the cache could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheState {
    /// Every readable view came from the cache.
    Hit,
    /// Some views came from the cache, the others were embedded.
    Partial,
    /// There was no cache.
    Absent,
    /// There was a cache of no use; the reason is given.
    Refused,
}

/// What became of the cache in one start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// How far it could be used.
    pub state: CacheState,
    /// Why it could not be used whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Views whose vector came from the cache.
    pub reused: usize,
    /// Rows that were not believed.
    pub refused: usize,
    /// The first of them, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_rows: Vec<RefusedRow>,
}

/// Vectors of the enrolled views, as far as they are known.
pub(crate) struct ViewVectors {
    dimension: usize,
    values: Vec<f32>,
    known: Vec<bool>,
}

impl ViewVectors {
    pub(crate) fn new(views: usize, dimension: usize) -> Self {
        Self {
            dimension,
            values: vec![0.0; views * dimension],
            known: vec![false; views],
        }
    }

    pub(crate) fn set(&mut self, view: usize, vector: &[f32]) {
        self.values[view * self.dimension..][..self.dimension].copy_from_slice(vector);
        self.known[view] = true;
    }

    pub(crate) fn get(&self, view: usize) -> Option<&[f32]> {
        self.known[view].then(|| &self.values[view * self.dimension..][..self.dimension])
    }

    pub(crate) fn is_known(&self, view: usize) -> bool {
        self.known[view]
    }

    pub(crate) fn known_count(&self) -> usize {
        self.known.iter().filter(|known| **known).count()
    }
}

/// Reads the cache and the parts of an interrupted run, and takes every row that can be proved.
pub(crate) fn load(
    dir: &Path,
    index: &IndexFile,
    embedder: &EmbedderFingerprint,
) -> Result<(ViewVectors, CacheUse)> {
    let recipe = Recipe::new(index, embedder);
    let mut vectors = ViewVectors::new(index.view_count(), embedder.dimension);
    let mut report = CacheUse {
        state: CacheState::Absent,
        reason: None,
        reused: 0,
        refused: 0,
        refused_rows: Vec::new(),
    };
    let mut found = false;
    let mut paths = vec![dir.join(CACHE_NAME)];
    paths.extend(part_paths(dir)?);
    for (at, path) in paths.into_iter().enumerate() {
        match read_store(&path, index.view_count(), embedder.dimension) {
            Ok(None) => {}
            Ok(Some(store)) => {
                let difference = recipe.difference(&store.recipe);
                // A part of an enrolment under way with another recipe says nothing against a cache.
                if at > 0 && found && difference.is_some() {
                    continue;
                }
                found = true;
                match difference {
                    Some(difference) => {
                        report.reason.get_or_insert(difference);
                    }
                    None => take_rows(&store, &recipe, index, &mut vectors, &mut report),
                }
            }
            Err(error @ GalleryError::Cache { .. }) => {
                found = true;
                report.reason.get_or_insert(error.to_string());
            }
            Err(other) => return Err(other),
        }
    }
    report.reused = vectors.known_count();
    let readable = index
        .views()
        .enumerate()
        .all(|(i, view)| vectors.is_known(i) || view.unreadable.is_some());
    report.state = if !found {
        CacheState::Absent
    } else if readable && report.refused == 0 && report.reason.is_none() {
        CacheState::Hit
    } else if report.reused > 0 {
        CacheState::Partial
    } else {
        CacheState::Refused
    };
    if report.state == CacheState::Partial && report.reason.is_none() {
        report.reason = Some("views were added, changed or not embedded yet".into());
    }
    Ok((vectors, report))
}

/// Walks the rows of a store along the enrolled list, forward only.
fn take_rows(
    store: &Store,
    recipe: &Recipe,
    index: &IndexFile,
    vectors: &mut ViewVectors,
    report: &mut CacheUse,
) {
    let same_files = store.key == recipe.key(index);
    let places: HashMap<&str, (usize, &str)> = index
        .views()
        .enumerate()
        .map(|(i, view)| (view.view.as_str(), (i, view.sha256.as_str())))
        .collect();
    let seed = recipe.seed();
    let mut next = 0;
    for (row, (claim, vector)) in store
        .rows
        .iter()
        .zip(store.vectors.chunks_exact(vectors.dimension))
        .enumerate()
    {
        let refusal = match places.get(claim.view.as_str()) {
            // A view that was taken out leaves its row behind; that is no sign of damage.
            None if !same_files => continue,
            None => Some("no such view is enrolled"),
            Some((at, _)) if *at < next => Some("it is moved or repeated"),
            Some((_, sha256)) if *sha256 != claim.sha256 && same_files => {
                Some("it belongs to another file")
            }
            Some((at, sha256)) if *sha256 != claim.sha256 => {
                next = at + 1;
                continue;
            }
            Some((at, sha256)) => {
                if RowClaim::prove(&seed, &claim.view, sha256, vector) != claim.proof {
                    Some("its vector is not the one that was written for it")
                } else if !is_unit(vector) {
                    Some("its vector has not length 1")
                } else {
                    vectors.set(*at, vector);
                    next = at + 1;
                    None
                }
            }
        };
        if let Some(reason) = refusal {
            report.refused += 1;
            if report.refused_rows.len() < MAX_LISTED_ROWS {
                report.refused_rows.push(RefusedRow {
                    row,
                    view: claim.view.clone(),
                    reason: reason.into(),
                });
            }
        }
    }
}

pub(crate) fn is_unit(vector: &[f32]) -> bool {
    let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
    (length - 1.0).abs() <= UNIT_TOLERANCE
}

/// Writes the whole cache, then removes the parts it takes in.
pub(crate) fn save(
    dir: &Path,
    index: &IndexFile,
    embedder: &EmbedderFingerprint,
    vectors: &ViewVectors,
) -> Result<()> {
    let rows: Vec<usize> = (0..index.view_count())
        .filter(|i| vectors.is_known(*i))
        .collect();
    write_rows(&dir.join(CACHE_NAME), index, embedder, vectors, &rows)?;
    for part in part_paths(dir)? {
        fs::remove_file(&part).map_err(GalleryError::io("remove", part))?;
    }
    Ok(())
}

/// Writes some views' vectors beside the cache, so that a killed run loses at most one part.
pub(crate) fn save_part(
    dir: &Path,
    index: &IndexFile,
    embedder: &EmbedderFingerprint,
    vectors: &ViewVectors,
    views: &[usize],
) -> Result<()> {
    let Some(first) = views.first() else {
        return Ok(());
    };
    let path = dir.join(format!("{PART_PREFIX}{first:08}.safetensors"));
    write_rows(&path, index, embedder, vectors, views)
}

/// True for the name of a part, finished or being written.
pub(crate) fn is_part_name(name: &str) -> bool {
    name.starts_with(PART_PREFIX)
}

/// Whether an enrolment was interrupted, or is under way.
pub(crate) fn has_parts(dir: &Path) -> Result<bool> {
    Ok(!part_paths(dir)?.is_empty())
}

fn part_paths(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(GalleryError::io("list", dir))?,
    };
    let mut parts = Vec::new();
    for entry in entries {
        let entry = entry.map_err(GalleryError::io("list", dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_part_name(&name) && name.ends_with(".safetensors") {
            parts.push(entry.path());
        }
    }
    parts.sort();
    Ok(parts)
}

fn write_rows(
    path: &Path,
    index: &IndexFile,
    embedder: &EmbedderFingerprint,
    vectors: &ViewVectors,
    rows: &[usize],
) -> Result<()> {
    let recipe = Recipe::new(index, embedder);
    let seed = recipe.seed();
    let views: Vec<_> = index.views().collect();
    let mut claims = Vec::with_capacity(rows.len());
    let mut bytes = Vec::with_capacity(rows.len() * embedder.dimension * 4);
    for &row in rows {
        let Some(vector) = vectors.get(row) else {
            continue;
        };
        let view = views[row];
        claims.push(RowClaim {
            view: view.view.clone(),
            sha256: view.sha256.clone(),
            proof: RowClaim::prove(&seed, &view.view, &view.sha256, vector),
        });
        bytes.extend(to_bytes(vector));
    }
    let count = claims.len();
    let refused = |reason: String| GalleryError::Cache {
        path: path.into(),
        reason,
    };
    let json = |error: serde_json::Error| refused(error.to_string());
    let rows_json = serde_json::to_vec(&claims).map_err(json)?;
    let key = recipe.key(index);
    let header = serde_json::to_string(&StoreHeader { recipe, key }).map_err(json)?;
    let tensors = |e: safetensors::SafeTensorError| refused(e.to_string());
    let file = safetensors::serialize(
        [
            (
                "vectors",
                TensorView::new(Dtype::F32, vec![count, embedder.dimension], &bytes)
                    .map_err(tensors)?,
            ),
            (
                "rows",
                TensorView::new(Dtype::U8, vec![rows_json.len()], &rows_json).map_err(tensors)?,
            ),
        ],
        // One entry only: the order of several would follow a hash map.
        Some(HashMap::from([(METADATA_KEY.to_owned(), header)])),
    )
    .map_err(tensors)?;
    write_atomic(path, &file)
}

fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Reads a store within bounds set by the gallery; `None` when there is no file.
fn read_store(path: &Path, views: usize, dimension: usize) -> Result<Option<Store>> {
    let refused = |reason: String| GalleryError::Cache {
        path: path.into(),
        reason,
    };
    let mut file = match fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(GalleryError::io("read", path))?,
    };
    let length = file
        .metadata()
        .map_err(GalleryError::io("read", path))?
        .len();
    let bound = (views as u64 + SPARE_ROWS) * (dimension as u64 * 4 + ROW_BYTES);
    if length > bound {
        return Err(refused(format!(
            "it has {length} bytes where this gallery needs at most {bound}"
        )));
    }
    // The header's length is checked before the rest is read, so that a cut or hostile file costs
    // no more than these eight bytes.
    let mut start = [0; 8];
    if length < 8 {
        return Err(refused(format!("it is cut after {length} bytes")));
    }
    file.read_exact(&mut start)
        .map_err(GalleryError::io("read", path))?;
    let header = u64::from_le_bytes(start);
    if header > MAX_HEADER_BYTES || header + 8 > length {
        return Err(refused(format!(
            "its header claims {header} bytes, at most {MAX_HEADER_BYTES} are read"
        )));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(start);
    file.take(length - 8)
        .read_to_end(&mut bytes)
        .map_err(GalleryError::io("read", path))?;
    parse_store(&bytes, dimension).map(Some).map_err(refused)
}

/// Reads a store from untrusted bytes; an error is in words.
fn parse_store(bytes: &[u8], dimension: usize) -> Result<Store, String> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let header = metadata
        .metadata()
        .as_ref()
        .and_then(|entries| entries.get(METADATA_KEY))
        .ok_or("it is not a gallery cache")?;
    let StoreHeader { recipe, key } =
        serde_json::from_str(header).map_err(|e| format!("its recipe is damaged: {e}"))?;
    let view = |name: &str, dtype: Dtype| {
        tensors
            .tensor(name)
            .ok()
            .filter(|tensor| tensor.dtype() == dtype)
            .ok_or_else(|| format!("it lacks `{name}`"))
    };
    let claims = view("rows", Dtype::U8)?;
    let rows: Vec<RowClaim> = serde_json::from_slice(claims.data())
        .map_err(|e| format!("its row list is damaged: {e}"))?;
    let stored = view("vectors", Dtype::F32)?;
    if stored.shape() != [rows.len(), recipe.embedder.dimension] {
        return Err(format!(
            "its vectors are {:?} where its list says [{}, {}]",
            stored.shape(),
            rows.len(),
            recipe.embedder.dimension
        ));
    }
    // Another dimension is a difference of recipe, told by the caller; the numbers are not needed.
    let vectors = if recipe.embedder.dimension == dimension {
        stored
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    } else {
        Vec::new()
    };
    Ok(Store {
        recipe,
        key,
        rows,
        vectors,
    })
}
