//! Enrolling pictures: everything is made ready first, and the gallery changes in one step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    CropPolicy, Gallery, GalleryError, Gtin, MetadataTable, Result, SkuMetadata, cache,
    calibrate::{DEFAULT_FALSE_ACCEPT, calibrate},
    embed::{self, DEFAULT_BATCH, DEFAULT_CHECKPOINT, EmbedPlan, EmbedTools, Embedded},
    files::{self, FoundSkus, FoundView, find_skus, hash_bytes, hash_file},
    index_file::{INDEX_NAME, IndexFile, SkuRecord, VIEWS_NAME, ViewRecord},
    report::EnrollReport,
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

/// What is to be taken in, and with what.
struct Intake<'a> {
    folder: &'a Path,
    found: FoundSkus,
    table: Option<MetadataTable>,
    tools: &'a EmbedTools<'a>,
    fingerprint: EmbedderFingerprint,
    options: &'a EnrollOptions,
    /// Views the folder lacks stay.
    keep_others: bool,
}

/// Where the found pictures lie, and which of them the gallery's folder lacks.
#[derive(Default)]
struct Arrivals {
    sources: BTreeMap<String, PathBuf>,
    copies: Vec<PendingCopy>,
}

struct PendingCopy {
    from: PathBuf,
    /// Below the gallery's folder.
    file: String,
    sha256: String,
}

impl Gallery {
    /// Makes the gallery in `dir` equal to `folder`, one folder per SKU.
    ///
    /// Views that are enrolled already are not embedded again, so a run that was killed goes on
    /// where it stopped. Views that `folder` no longer has are taken out. Until all is embedded a
    /// gallery that was there before stays as it is.
    ///
    /// # Errors
    /// A folder without readable pictures, a metadata cell that is wrong, a failing embedder or
    /// disk. The gallery is then what it was, and what was embedded before the error is kept.
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
        let intake = Intake {
            folder,
            found,
            table,
            tools,
            // Before any picture is read: a checkpoint of no use should be told at once.
            fingerprint: tools.embedder.fingerprint()?,
            options,
            keep_others,
        };
        let (before, files_before) = (self.index.clone(), self.files());
        let new_folders = files::make_folders(&self.dir)?;
        let (report, embedded) = match self.replace_index(&intake, &files_before) {
            Ok(done) => done,
            Err(error) => {
                self.index = before;
                // They stay when parts of the cache lie in them, which the next run goes on from.
                files::remove_empty(new_folders);
                return Err(error);
            }
        };
        if embedded.changed || cache::has_parts(&self.dir)? {
            cache::save(
                &self.dir,
                &self.index,
                &intake.fingerprint,
                &embedded.vectors,
            )?;
        }
        self.delete_copies(&files_before - &self.files())?;
        Ok(report)
    }

    /// Embeds what is new, then copies pictures and writes the index. Before that only parts of the
    /// cache are written. Files that were in the gallery `before` stay whatever happens.
    fn replace_index(
        &mut self,
        intake: &Intake<'_>,
        before: &BTreeSet<String>,
    ) -> Result<(EnrollReport, Embedded)> {
        let arrivals = self.merge_views(intake)?;
        let unused_metadata = self.merge_metadata(intake.table.as_ref())?;
        files::check_writable(&self.dir.join(INDEX_NAME))?;
        files::remove_temporaries(&self.dir)?;
        let plan = EmbedPlan {
            batch: intake.options.batch,
            checkpoint: intake.options.checkpoint_views,
            retry_unreadable: true,
            must_save: true,
            sources: &arrivals.sources,
        };
        let embedded = embed::complete(&self.dir, &mut self.index, intake.tools, &plan)?;
        let search = self.search_index(&embedded.vectors, &intake.fingerprint);
        let unreadable = self.unreadable();
        if search.is_empty() {
            let first = unreadable
                .first()
                .map(|first| format!("{}: {}", first.view, first.reason));
            return Err(GalleryError::NothingToEnroll {
                path: intake.folder.into(),
                reason: format!(
                    "none of the {} pictures could be decoded ({})",
                    unreadable.len(),
                    first.unwrap_or_default()
                ),
            });
        }
        let (thresholds, resemblance) = calibrate(&search, intake.options.false_accept_rate);
        self.index.set_thresholds(thresholds.clone());
        let written = self
            .copy_in(&arrivals.copies)
            .and_then(|()| self.index.write(&self.dir));
        if let Err(error) = written {
            let copied: BTreeSet<String> = arrivals.copies.into_iter().map(|c| c.file).collect();
            // The first error is the one to tell; a copy that stays is in nobody's way.
            drop(self.delete_copies(&copied - before));
            return Err(error);
        }
        let report = EnrollReport {
            skus: self.index.skus.len(),
            views: self.index.view_count(),
            embedded: embedded.fresh,
            reused: embedded.cache.reused,
            unreadable,
            ignored: intake.found.ignored.clone(),
            unused_metadata,
            ignored_columns: intake
                .table
                .as_ref()
                .map(|table| table.ignored_columns.clone())
                .unwrap_or_default(),
            crop_policy: self.index.crop_policy,
            embedder: intake.fingerprint.clone(),
            thresholds,
            resemblance,
            cache: embedded.cache.clone(),
        };
        Ok((report, embedded))
    }

    /// Brings the found pictures into the index; says where they lie and what is to be copied.
    fn merge_views(&mut self, intake: &Intake<'_>) -> Result<Arrivals> {
        let (found, options) = (&intake.found.skus, intake.options);
        let mut skus: BTreeMap<String, SkuRecord> = std::mem::take(&mut self.index.skus)
            .into_iter()
            .map(|record| (record.sku.clone(), record))
            .collect();
        let known: BTreeMap<String, ViewRecord> = skus
            .values()
            .flat_map(|sku| &sku.views)
            .map(|view| (view.view.clone(), view.clone()))
            .collect();
        if !intake.keep_others {
            let names: BTreeSet<&str> = found.iter().map(|(sku, _)| sku.as_str()).collect();
            skus.retain(|sku, _| names.contains(sku.as_str()));
            for record in skus.values_mut() {
                record.views.clear();
            }
        }
        let mut views: BTreeMap<&str, BTreeMap<String, ViewRecord>> = BTreeMap::new();
        let total = found.iter().map(|(_, views)| views.len()).sum::<usize>()
            + if intake.keep_others { known.len() } else { 0 };
        // `total` counts changed views twice; the exact check follows, this one spares the hashing.
        if total > options.max_views + known.len() {
            return Err(GalleryError::TooManyViews {
                got: total,
                bound: options.max_views,
            });
        }
        let hashed: Vec<Vec<(ViewRecord, Option<PendingCopy>)>> = found
            .par_iter()
            .map(|(_, found)| {
                found
                    .iter()
                    .map(|view| self.hash_in(view, known.get(&view.view), options.pictures))
                    .collect::<Result<_>>()
            })
            .collect::<Result<_>>()?;
        let mut arrivals = Arrivals::default();
        for ((sku, found), hashed) in found.iter().zip(hashed) {
            let record = skus.entry(sku.clone()).or_insert_with(|| SkuRecord {
                sku: sku.clone(),
                metadata: SkuMetadata::default(),
                views: Vec::new(),
            });
            let merged = views.entry(sku).or_insert_with(|| {
                let kept = std::mem::take(&mut record.views);
                kept.into_iter().map(|v| (v.view.clone(), v)).collect()
            });
            for (found, (view, copy)) in found.iter().zip(hashed) {
                arrivals
                    .sources
                    .insert(view.view.clone(), found.path.clone());
                arrivals.copies.extend(copy);
                merged.insert(view.view.clone(), view);
            }
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
        Ok(arrivals)
    }

    /// Hashes a picture; it is to be copied unless the gallery has these very bytes.
    fn hash_in(
        &self,
        found: &FoundView,
        known: Option<&ViewRecord>,
        pictures: Pictures,
    ) -> Result<(ViewRecord, Option<PendingCopy>)> {
        let (sha256, _) = hash_file(&found.path)?;
        let (file, copy) = match pictures {
            Pictures::Reference => {
                let path = fs::canonicalize(&found.path)
                    .map_err(GalleryError::io("find", &found.path))?
                    .to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| GalleryError::Picture {
                        path: found.path.clone(),
                        reason: "its path is not Unicode".into(),
                    })?;
                (path, None)
            }
            Pictures::Copy => {
                let file = format!("{VIEWS_NAME}/{}", found.view);
                let is_there = hash_file(&self.dir.join(&file)).is_ok_and(|(h, _)| h == sha256);
                let copy = (!is_there).then(|| PendingCopy {
                    from: found.path.clone(),
                    file: file.clone(),
                    sha256: sha256.clone(),
                });
                (file, copy)
            }
        };
        let unreadable = known
            .filter(|known| known.sha256 == sha256)
            .and_then(|known| known.unreadable.clone());
        let record = ViewRecord {
            view: found.view.clone(),
            file,
            sha256,
            unreadable,
        };
        Ok((record, copy))
    }

    fn copy_in(&self, copies: &[PendingCopy]) -> Result<()> {
        copies.par_iter().try_for_each(|copy| {
            let bytes = fs::read(&copy.from).map_err(GalleryError::io("read", &copy.from))?;
            if hash_bytes(&bytes) != copy.sha256 {
                return Err(GalleryError::InvalidInput(format!(
                    "the picture changed while it was being enrolled; enrol again: {}",
                    copy.from.display()
                )));
            }
            let target = self.dir.join(&copy.file);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(GalleryError::io("create", parent))?;
            }
            files::write_atomic(&target, &bytes)
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
}

/// A new gallery goes into a new or empty folder, or one where an enrolment was interrupted.
fn check_is_free(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let foreign = fs::read_dir(dir)
        .map_err(GalleryError::io("list", dir))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| {
            name != VIEWS_NAME && !name.starts_with(INDEX_NAME) && !cache::is_part_name(name)
        });
    match foreign {
        None => Ok(()),
        Some(name) => Err(GalleryError::Gallery {
            path: dir.into(),
            reason: format!("the folder holds {name} and is no gallery"),
            remedy: "name a new or empty folder",
        }),
    }
}
