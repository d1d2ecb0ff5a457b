//! The gallery on disk: enrolling, adding, removing, listing, verifying.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    CropPolicy, GalleryError, Gtin, MetadataTable, PictureDecoder, Result, SkuMetadata, Thresholds,
    cache::{self, CacheState, ViewVectors},
    calibrate::{DEFAULT_FALSE_ACCEPT, Resemblance, calibrate},
    embed::{self, DEFAULT_BATCH, DEFAULT_CHECKPOINT, EmbedPlan, EmbedTools, UnreadableView},
    files::{self, FoundView, find_skus, hash_file, stays_inside},
    index_file::{INDEX_NAME, IndexFile, SkuRecord, VIEWS_NAME, ViewRecord},
    report::{EnrollReport, GalleryListing, ListedSku, RemoveReport, VerifyReport},
    search::ViewIndex,
};

/// Views a gallery holds at most, unless another bound is asked for.
const DEFAULT_MAX_VIEWS: usize = 200_000;

/// What becomes of the enrolled pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pictures {
    /// They are copied, so that the gallery can be moved and its source deleted.
    #[default]
    Copy,
    /// They stay where they are; the gallery is of no use where they are not.
    Reference,
}

/// How to enrol.
#[derive(Clone, Debug)]
pub struct EnrollOptions {
    /// How packs will be cut out of frames. `None` keeps that of the gallery, or
    /// [`CropPolicy::Tight`] in a new one.
    pub crop_policy: Option<CropPolicy>,
    /// CSV file with names, GTINs and prices.
    pub metadata: Option<PathBuf>,
    /// What becomes of the pictures.
    pub pictures: Pictures,
    /// Share of strangers that may be accepted, above 0 and at most 0.5.
    pub false_accept_rate: f32,
    /// Most views the gallery may hold.
    pub max_views: usize,
    /// Crops in one call of the embedder.
    pub batch: usize,
    /// Views after which the vectors are written down while more are being embedded.
    pub checkpoint_views: usize,
}

impl Default for EnrollOptions {
    fn default() -> Self {
        Self {
            crop_policy: None,
            metadata: None,
            pictures: Pictures::default(),
            false_accept_rate: DEFAULT_FALSE_ACCEPT,
            max_views: DEFAULT_MAX_VIEWS,
            batch: DEFAULT_BATCH,
            checkpoint_views: DEFAULT_CHECKPOINT,
        }
    }
}

/// An enrolled gallery: a folder with `gallery.json` (SKUs, metadata, the ordered list of views
/// with their file hashes, crop policy, thresholds), the views, and `cache.safetensors`.
///
/// Opening one reads the index alone. One process writes a gallery at a time.
#[derive(Clone, Debug)]
pub struct Gallery {
    dir: PathBuf,
    index: IndexFile,
}

impl Gallery {
    /// Opens an enrolled gallery without touching its pictures or its cache.
    ///
    /// # Errors
    /// [`GalleryError::Gallery`] when the folder is no gallery or its index is damaged.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            dir: dir.into(),
            index: IndexFile::read(dir)?,
        })
    }

    /// Makes the gallery in `dir` equal to `folder`, one folder per SKU.
    ///
    /// Views that are enrolled already are not embedded again, so a run that was killed goes on
    /// where it stopped. Views that `folder` no longer has are taken out.
    ///
    /// # Errors
    /// A folder without pictures, a metadata cell that is wrong, a failing embedder or disk. What
    /// was embedded before the error is kept.
    pub fn enroll(
        folder: &Path,
        dir: &Path,
        tools: &EmbedTools<'_>,
        options: &EnrollOptions,
    ) -> Result<(Self, EnrollReport)> {
        let previous = match IndexFile::read(dir) {
            Ok(index) => Some(index),
            Err(error) if dir.join(INDEX_NAME).exists() => return Err(error),
            Err(_) => None,
        };
        if previous.is_none() {
            check_is_free(dir)?;
        }
        let policy = match (&previous, options.crop_policy) {
            (_, Some(policy)) => policy.validated()?,
            (Some(previous), None) => previous.crop_policy,
            (None, None) => CropPolicy::default(),
        };
        let mut gallery = Self {
            dir: dir.into(),
            index: IndexFile::new(policy),
        };
        if let Some(previous) = previous {
            gallery.index.embedder = previous.embedder;
            gallery.index.thresholds = previous.thresholds;
            gallery.index.skus = previous.skus;
        }
        let report = gallery.take_in(folder, tools, options, false)?;
        Ok((gallery, report))
    }

    /// Adds the SKU folders below `folder`, and new or changed views of SKUs that are enrolled.
    /// Nothing is taken out.
    ///
    /// # Errors
    /// As [`enroll`](Self::enroll), and [`GalleryError::CropPolicyMismatch`] when the options ask
    /// for another crop policy.
    pub fn add(
        &mut self,
        folder: &Path,
        tools: &EmbedTools<'_>,
        options: &EnrollOptions,
    ) -> Result<EnrollReport> {
        self.check_policy(options.crop_policy)?;
        self.take_in(folder, tools, options, true)
    }

    /// Takes SKUs out, with their copied pictures. Needs no embedder: thresholds are measured
    /// again on the cached vectors.
    ///
    /// # Errors
    /// [`GalleryError::UnknownSku`] when one is not enrolled; then nothing is taken out.
    pub fn remove(&mut self, skus: &[String]) -> Result<RemoveReport> {
        let going: BTreeSet<&str> = skus.iter().map(String::as_str).collect();
        for sku in &going {
            if !self.index.skus.iter().any(|record| record.sku == **sku) {
                return Err(self.unknown_sku(sku));
            }
        }
        let before = self.files();
        let views_before = self.index.view_count();
        self.index
            .skus
            .retain(|record| !going.contains(record.sku.as_str()));
        let target = self
            .index
            .thresholds
            .as_ref()
            .map_or(DEFAULT_FALSE_ACCEPT, |t| t.target_false_accept);
        self.index.thresholds = None;
        if let Some(embedder) = self.index.embedder.clone() {
            let (vectors, _) = cache::load(&self.dir, &self.index, &embedder)?;
            let search = self.search_index(&vectors, &embedder);
            self.index.thresholds = Some(calibrate(&search, target).0);
            cache::save(&self.dir, &self.index, &embedder, &vectors)?;
        }
        self.index.write(&self.dir)?;
        self.delete_copies(&before)?;
        Ok(RemoveReport {
            skus: going.into_iter().map(str::to_owned).collect(),
            views: views_before - self.index.view_count(),
            thresholds: self.index.thresholds.clone(),
        })
    }

    /// What the gallery holds.
    pub fn list(&self) -> GalleryListing {
        GalleryListing {
            crop_policy: self.index.crop_policy,
            embedder: self.index.embedder.clone(),
            thresholds: self.index.thresholds.clone(),
            skus: self
                .index
                .skus
                .iter()
                .map(|record| ListedSku {
                    sku: record.sku.clone(),
                    metadata: record.metadata.clone(),
                    views: record.views.iter().map(|v| v.view.clone()).collect(),
                    unreadable: unreadable(&record.views),
                })
                .collect(),
        }
    }

    /// Checks every enrolled file against its hash and the cache against the enrolled list.
    ///
    /// Needs no embedder; with a decoder every picture is decoded as well.
    ///
    /// # Errors
    /// The folder cannot be listed. What is wrong with the gallery is in the report.
    pub fn verify(&self, decode: Option<&PictureDecoder<'_>>) -> Result<VerifyReport> {
        enum Fault {
            Missing,
            Changed,
            Unreadable(String),
        }
        let views: Vec<&ViewRecord> = self.index.views().collect();
        let faults: Vec<Option<Fault>> = views
            .par_iter()
            .map(|view| {
                let path = self.dir.join(&view.file);
                match hash_file(&path) {
                    Err(_) => Some(Fault::Missing),
                    Ok((hash, _)) if hash != view.sha256 => Some(Fault::Changed),
                    Ok(_) => match (&view.unreadable, decode) {
                        (_, Some(decode)) => decode(&path).err().map(Fault::Unreadable),
                        (Some(reason), None) => Some(Fault::Unreadable(reason.clone())),
                        (None, None) => None,
                    },
                }
            })
            .collect();
        let mut report = VerifyReport {
            views: views.len(),
            missing: Vec::new(),
            changed: Vec::new(),
            unreadable: Vec::new(),
            cache: None,
            ok: false,
        };
        for (view, fault) in views.iter().zip(faults) {
            match fault {
                Some(Fault::Missing) => report.missing.push(view.view.clone()),
                Some(Fault::Changed) => report.changed.push(view.view.clone()),
                Some(Fault::Unreadable(reason)) => report.unreadable.push(UnreadableView {
                    view: view.view.clone(),
                    reason,
                }),
                None => {}
            }
        }
        if let Some(embedder) = &self.index.embedder {
            report.cache = Some(cache::load(&self.dir, &self.index, embedder)?.1);
        }
        report.ok = report.missing.is_empty()
            && report.changed.is_empty()
            && report
                .cache
                .as_ref()
                .is_some_and(|cache| cache.state == CacheState::Hit);
        Ok(report)
    }

    /// Where the gallery lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How packs are cut out of frames for this gallery.
    pub fn crop_policy(&self) -> CropPolicy {
        self.index.crop_policy
    }

    /// The thresholds stored with it; `None` until its views were embedded once.
    pub fn thresholds(&self) -> Option<&Thresholds> {
        self.index.thresholds.as_ref()
    }

    /// Hash over the enrolled files and the crop policy, in hex.
    pub fn content_hash(&self) -> String {
        self.index.content_hash()
    }

    /// The SKUs in order, with what is known about them.
    pub fn skus(&self) -> impl Iterator<Item = (&str, &SkuMetadata)> {
        self.index
            .skus
            .iter()
            .map(|record| (record.sku.as_str(), &record.metadata))
    }

    pub(crate) fn index_mut(&mut self) -> (&Path, &mut IndexFile) {
        (&self.dir, &mut self.index)
    }

    pub(crate) fn write_index(&self) -> Result<()> {
        self.index.write(&self.dir)
    }

    pub(crate) fn unreadable(&self) -> Vec<UnreadableView> {
        self.index
            .skus
            .iter()
            .flat_map(|sku| unreadable(&sku.views))
            .collect()
    }

    /// Refuses a crop policy other than the enrolled one.
    pub(crate) fn check_policy(&self, asked: Option<CropPolicy>) -> Result<()> {
        match asked {
            Some(asked) if asked != self.index.crop_policy => {
                Err(GalleryError::CropPolicyMismatch {
                    enrolled: self.index.crop_policy.to_string(),
                    asked: asked.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    /// The views whose vectors are known, ready for search.
    pub(crate) fn search_index(
        &self,
        vectors: &ViewVectors,
        embedder: &EmbedderFingerprint,
    ) -> ViewIndex {
        let mut search = ViewIndex::new(embedder.dimension);
        let mut at = 0;
        for sku in &self.index.skus {
            for view in &sku.views {
                if let Some(vector) = vectors.get(at) {
                    search.push(&sku.sku, &view.view, vector);
                }
                at += 1;
            }
        }
        search
    }

    /// Enrols `folder` into this gallery; views it lacks stay only when `keep_others`.
    fn take_in(
        &mut self,
        folder: &Path,
        tools: &EmbedTools<'_>,
        options: &EnrollOptions,
        keep_others: bool,
    ) -> Result<EnrollReport> {
        if !(options.false_accept_rate > 0.0 && options.false_accept_rate <= 0.5) {
            return Err(GalleryError::InvalidInput(format!(
                "a false-accept rate of {} is not above 0 and at most 0.5",
                options.false_accept_rate
            )));
        }
        let found = find_skus(folder)?;
        if found.skus.is_empty() {
            let reason = found.ignored.first().map_or_else(
                || "the folder is empty".into(),
                |first| format!("{}: {}", first.path, first.reason),
            );
            return Err(GalleryError::NothingToEnroll {
                path: folder.into(),
                reason,
            });
        }
        let table = options
            .metadata
            .as_deref()
            .map(MetadataTable::read)
            .transpose()?;
        if self.index.skus.is_empty() {
            // All views are new. A checkpoint that is missing must not leave a half-made gallery.
            tools.embedder.warmup()?;
        }
        let stale = self.files();
        let before = self.index.clone();
        let merged = self
            .merge_views(&found.skus, options, keep_others)
            .and_then(|()| self.merge_metadata(table.as_ref()));
        let unused_metadata = match merged {
            Ok(unused) => unused,
            Err(error) => {
                self.index = before;
                return Err(error);
            }
        };
        self.index.write(&self.dir)?;
        self.delete_copies(&stale)?;
        files::remove_temporaries(&self.dir)?;

        let plan = EmbedPlan {
            batch: options.batch,
            checkpoint: options.checkpoint_views,
            retry_unreadable: true,
            must_save: true,
        };
        let embedded = embed::complete(&self.dir, &mut self.index, tools, &plan)?;
        let Some(fingerprint) = self.index.embedder.clone() else {
            return Err(GalleryError::InvalidInput("no embedder was given".into()));
        };
        if embedded.changed {
            cache::save(&self.dir, &self.index, &fingerprint, &embedded.vectors)?;
        }
        let search = self.search_index(&embedded.vectors, &fingerprint);
        let unreadable = self.unreadable();
        if search.is_empty() {
            self.index.write(&self.dir)?;
            let first = unreadable
                .first()
                .map(|first| format!("{}: {}", first.view, first.reason));
            return Err(GalleryError::NothingToEnroll {
                path: folder.into(),
                reason: format!(
                    "none of the {} pictures could be decoded ({})",
                    unreadable.len(),
                    first.unwrap_or_default()
                ),
            });
        }
        let (thresholds, resemblance): (Thresholds, Resemblance) =
            calibrate(&search, options.false_accept_rate);
        self.index.thresholds = Some(thresholds.clone());
        self.index.write(&self.dir)?;
        Ok(EnrollReport {
            skus: self.index.skus.len(),
            views: self.index.view_count(),
            embedded: embedded.fresh,
            reused: embedded.cache.reused,
            unreadable,
            ignored: found.ignored,
            unused_metadata,
            ignored_columns: table.map(|t| t.ignored_columns).unwrap_or_default(),
            crop_policy: self.index.crop_policy,
            embedder: fingerprint,
            thresholds,
            resemblance,
            cache: embedded.cache,
        })
    }

    /// Brings the found pictures into the index and, when asked, into the gallery's folder.
    fn merge_views(
        &mut self,
        found: &[(String, Vec<FoundView>)],
        options: &EnrollOptions,
        keep_others: bool,
    ) -> Result<()> {
        let mut skus: BTreeMap<String, SkuRecord> = std::mem::take(&mut self.index.skus)
            .into_iter()
            .map(|record| (record.sku.clone(), record))
            .collect();
        let known: BTreeMap<String, ViewRecord> = skus
            .values()
            .flat_map(|sku| &sku.views)
            .map(|view| (view.view.clone(), view.clone()))
            .collect();
        if !keep_others {
            let names: BTreeSet<&str> = found.iter().map(|(sku, _)| sku.as_str()).collect();
            skus.retain(|sku, _| names.contains(sku.as_str()));
            for record in skus.values_mut() {
                record.views.clear();
            }
        }
        let mut views: BTreeMap<&str, BTreeMap<String, ViewRecord>> = BTreeMap::new();
        let total = found.iter().map(|(_, views)| views.len()).sum::<usize>()
            + if keep_others { known.len() } else { 0 };
        // `total` counts changed views twice; the exact check follows, this one spares the hashing.
        if total > options.max_views + known.len() {
            return Err(GalleryError::TooManyViews {
                got: total,
                bound: options.max_views,
            });
        }
        let hashed: Vec<Vec<(String, ViewRecord)>> = found
            .par_iter()
            .map(|(_, found)| {
                found
                    .iter()
                    .map(|view| {
                        let record =
                            self.bring_in(view, known.get(&view.view), options.pictures)?;
                        Ok((view.view.clone(), record))
                    })
                    .collect::<Result<_>>()
            })
            .collect::<Result<_>>()?;
        for ((sku, _), records) in found.iter().zip(hashed) {
            let record = skus.entry(sku.clone()).or_insert_with(|| SkuRecord {
                sku: sku.clone(),
                metadata: SkuMetadata::default(),
                views: Vec::new(),
            });
            let merged = views.entry(sku).or_insert_with(|| {
                let kept = std::mem::take(&mut record.views);
                kept.into_iter().map(|v| (v.view.clone(), v)).collect()
            });
            merged.extend(records);
        }
        for (sku, merged) in views {
            if let Some(record) = skus.get_mut(sku) {
                record.views = merged.into_values().collect();
            }
        }
        self.index.skus = skus.into_values().collect();
        let got = self.index.view_count();
        if got > options.max_views {
            return Err(GalleryError::TooManyViews {
                got,
                bound: options.max_views,
            });
        }
        Ok(())
    }

    /// Hashes a picture and copies it unless the gallery has these very bytes.
    fn bring_in(
        &self,
        found: &FoundView,
        known: Option<&ViewRecord>,
        pictures: Pictures,
    ) -> Result<ViewRecord> {
        let (sha256, _) = hash_file(&found.path)?;
        let file = match pictures {
            Pictures::Reference => fs::canonicalize(&found.path)
                .map_err(GalleryError::io("find", &found.path))?
                .to_str()
                .map(str::to_owned)
                .ok_or_else(|| GalleryError::Picture {
                    path: found.path.clone(),
                    reason: "its path is not Unicode".into(),
                })?,
            Pictures::Copy => {
                let file = format!("{VIEWS_NAME}/{}", found.view);
                let target = self.dir.join(&file);
                if !hash_file(&target).is_ok_and(|(hash, _)| hash == sha256) {
                    if let Some(parent) = target.parent() {
                        fs::create_dir_all(parent).map_err(GalleryError::io("create", parent))?;
                    }
                    let bytes =
                        fs::read(&found.path).map_err(GalleryError::io("read", &found.path))?;
                    files::write_atomic(&target, &bytes)?;
                }
                file
            }
        };
        let unreadable = known
            .filter(|known| known.sha256 == sha256)
            .and_then(|known| known.unreadable.clone());
        Ok(ViewRecord {
            view: found.view.clone(),
            file,
            sha256,
            unreadable,
        })
    }

    /// Takes metadata over; returns the SKUs it names that are not enrolled.
    fn merge_metadata(&mut self, table: Option<&MetadataTable>) -> Result<Vec<String>> {
        let Some(table) = table else {
            return Ok(Vec::new());
        };
        let mut unused: BTreeSet<&String> = table.skus.keys().collect();
        let mut owners: BTreeMap<Gtin, String> = BTreeMap::new();
        for record in &mut self.index.skus {
            if let Some(metadata) = table.skus.get(&record.sku) {
                record.metadata = metadata.clone();
                unused.remove(&record.sku);
            }
            if let Some(gtin) = &record.metadata.gtin
                && let Some(first) = owners.insert(gtin.clone(), record.sku.clone())
            {
                return Err(GalleryError::InvalidInput(format!(
                    "GTIN {gtin} is given to both {first} and {}; mend the metadata of one",
                    record.sku
                )));
            }
        }
        Ok(unused.into_iter().cloned().collect())
    }

    fn files(&self) -> BTreeSet<String> {
        self.index.views().map(|view| view.file.clone()).collect()
    }

    /// Removes copies that the index no longer names, and folders left empty by that.
    fn delete_copies(&self, before: &BTreeSet<String>) -> Result<()> {
        let now = self.files();
        for file in before.difference(&now) {
            // Referenced pictures are absolute and belong to someone else.
            if !stays_inside(Path::new(file)) || !file.starts_with(VIEWS_NAME) {
                continue;
            }
            let path = self.dir.join(file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(GalleryError::io("remove", path)(error));
                }
                _ => {}
            }
            if let Some(parent) = path.parent() {
                // Fails while other views of the SKU are there, which is as it should be.
                drop(fs::remove_dir(parent));
            }
        }
        Ok(())
    }

    fn unknown_sku(&self, sku: &str) -> GalleryError {
        let mut near: Vec<(f64, &str)> = self
            .skus()
            .map(|(name, _)| (strsim::jaro_winkler(sku, name), name))
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        GalleryError::UnknownSku {
            sku: sku.into(),
            near: near
                .iter()
                .take(3)
                .map(|(_, name)| (*name).into())
                .collect(),
        }
    }
}

fn unreadable(views: &[ViewRecord]) -> Vec<UnreadableView> {
    views
        .iter()
        .filter_map(|view| {
            Some(UnreadableView {
                view: view.view.clone(),
                reason: view.unreadable.clone()?,
            })
        })
        .collect()
}

/// A new gallery goes into a new or empty folder, or one where enrolment was interrupted early.
fn check_is_free(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return fs::create_dir_all(dir).map_err(GalleryError::io("create", dir));
    }
    let foreign = fs::read_dir(dir)
        .map_err(GalleryError::io("list", dir))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name != VIEWS_NAME && !name.starts_with(INDEX_NAME));
    match foreign {
        None => Ok(()),
        Some(name) => Err(GalleryError::Gallery {
            path: dir.into(),
            reason: format!("the folder holds {name} and is no gallery"),
            remedy: "name a new or empty folder",
        }),
    }
}
