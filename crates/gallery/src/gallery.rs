//! The gallery on disk: opening, removing, listing, verifying.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use shelfscan_inference_core::EmbedderFingerprint;

use crate::{
    CropPolicy, GalleryError, PictureDecoder, Result, SkuMetadata, Thresholds,
    cache::{self, CacheState, ViewVectors},
    calibrate::calibrate,
    embed::UnreadableView,
    files::{self, hash_file, stays_inside},
    index_file::{IndexFile, VIEWS_NAME, ViewRecord},
    report::{GalleryListing, ListedSku, RemoveReport, VerifyReport},
    search::ViewIndex,
};

/// An enrolled gallery: a folder with `gallery.json` (SKUs, metadata, the ordered list of views
/// with their file hashes, crop policy, thresholds), the views, and `cache.safetensors`.
///
/// Opening one reads the index alone. One process writes a gallery at a time.
#[derive(Clone, Debug)]
pub struct Gallery {
    pub(crate) dir: PathBuf,
    pub(crate) index: IndexFile,
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

    /// Takes SKUs out, with their copied pictures. Needs no embedder: thresholds are measured
    /// again on the cached vectors, or when the gallery is next loaded where the cache lacks some.
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
        let target = self.index.target_false_accept();
        self.index.leave_thresholds_open();
        let cached = match &self.index.embedder {
            Some(embedder) => {
                let (vectors, cache) = cache::load(&self.dir, &self.index, embedder)?;
                (cache.state == CacheState::Hit).then(|| (embedder.clone(), vectors))
            }
            None => None,
        };
        if let Some((embedder, vectors)) = &cached {
            let search = self.search_index(vectors, embedder);
            self.index.set_thresholds(calibrate(&search, target).0);
        }
        self.index.write(&self.dir)?;
        if let Some((embedder, vectors)) = &cached {
            cache::save(&self.dir, &self.index, embedder, vectors)?;
        }
        self.delete_copies(&before - &self.files())?;
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

    /// Where the pictures lie, as the index has it.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.index.views().map(|view| view.file.clone()).collect()
    }

    /// Removes copied pictures, and folders left empty by that.
    pub(crate) fn delete_copies(&self, copies: BTreeSet<String>) -> Result<()> {
        for file in copies {
            // Referenced pictures are absolute and belong to someone else.
            if !stays_inside(Path::new(&file)) || !file.starts_with(VIEWS_NAME) {
                continue;
            }
            let path = self.dir.join(file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(GalleryError::io("remove", path)(error));
                }
                _ => {}
            }
            let above = path.ancestors().skip(1);
            files::remove_empty(above.take_while(|folder| *folder != self.dir));
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
