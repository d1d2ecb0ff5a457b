//! Embedding the views the cache does not hold, so that an interrupted run loses next to nothing.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{Embedder, InferenceError, RgbImage};

use crate::{
    GalleryError, PictureDecoder, Result,
    cache::{self, CacheState, CacheUse, ViewVectors, is_unit},
    index_file::IndexFile,
};

/// Crops in one call of the embedder, unless another number is asked for.
pub(crate) const DEFAULT_BATCH: usize = 32;
/// Views after which the vectors are written down while more are being embedded.
pub(crate) const DEFAULT_CHECKPOINT: usize = 256;
/// Decoded pixels that wait for the embedder, in bytes; twelve megapixels take 36 MB.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// A view whose picture could not be decoded. It stays enrolled and is never matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableView {
    /// The view, as `SKU/file`.
    pub view: String,
    /// What the decoder said.
    pub reason: String,
}

/// How far the embedding of views has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedProgress {
    /// Views done in this run, the unreadable ones included.
    pub done: usize,
    /// Views to do in this run.
    pub wanted: usize,
}

/// Told about progress from the calling thread; answers whether to go on. What was embedded before
/// a stop is kept.
pub type ProgressObserver<'a> = dyn Fn(EmbedProgress) -> ControlFlow<()> + 'a;

/// What turns pictures into vectors, and who is told about it.
#[derive(Clone, Copy)]
pub struct EmbedTools<'a> {
    /// The embedding model.
    pub embedder: &'a dyn Embedder,
    /// Reads a picture file, upright and as RGB.
    pub decode: &'a PictureDecoder<'a>,
    /// Told about progress; `None` runs silently to the end.
    pub progress: Option<&'a ProgressObserver<'a>>,
}

pub(crate) struct EmbedPlan<'a> {
    pub(crate) batch: usize,
    pub(crate) checkpoint: usize,
    /// Try the views again that could not be decoded before.
    pub(crate) retry_unreadable: bool,
    /// A gallery folder that cannot be written is an error; otherwise the vectors stay in memory.
    pub(crate) must_save: bool,
    /// Where to read views from whose picture is not, or not yet, at its place in the gallery.
    pub(crate) sources: &'a BTreeMap<String, PathBuf>,
}

pub(crate) struct Embedded {
    pub(crate) vectors: ViewVectors,
    pub(crate) cache: CacheUse,
    /// Views embedded in this run.
    pub(crate) fresh: usize,
    /// True when the cache or the index has to be written.
    pub(crate) changed: bool,
    pub(crate) notices: Vec<String>,
}

/// Takes what the cache proves and embeds the rest.
///
/// The index learns which views are unreadable and which embedder was used; it is not written.
pub(crate) fn complete(
    dir: &Path,
    index: &mut IndexFile,
    tools: &EmbedTools<'_>,
    plan: &EmbedPlan<'_>,
) -> Result<Embedded> {
    let fingerprint = tools.embedder.fingerprint()?;
    if fingerprint.dimension == 0 {
        return Err(GalleryError::InvalidInput(format!(
            "embedder {} gives vectors without numbers",
            fingerprint.model
        )));
    }
    let (vectors, cache) = cache::load(dir, index, &fingerprint)?;
    let changed = cache.state != CacheState::Hit || index.embedder.as_ref() != Some(&fingerprint);
    index.embedder = Some(fingerprint.clone());
    let missing: Vec<usize> = index
        .views()
        .enumerate()
        .filter(|(i, view)| {
            !vectors.is_known(*i) && (plan.retry_unreadable || view.unreadable.is_none())
        })
        .map(|(i, _)| i)
        .collect();
    let mut run = Run {
        dir,
        tools,
        plan,
        fingerprint,
        vectors,
        unsaved: Vec::new(),
        notices: Vec::new(),
    };
    let mut unreadable = Vec::new();
    let outcome = run.embed_all(index, &missing, &mut unreadable);
    // Also after an error: what was paid for is kept.
    let kept = run.save_part(index);
    outcome?;
    kept?;
    let embedded = missing.len() - unreadable.len();
    let mut unreadable = unreadable.into_iter().peekable();
    let mut missing = missing.into_iter().peekable();
    for (i, view) in index
        .skus
        .iter_mut()
        .flat_map(|sku| &mut sku.views)
        .enumerate()
    {
        if missing.next_if_eq(&i).is_some() {
            view.unreadable = unreadable.next_if(|(at, _)| *at == i).map(|(_, why)| why);
        }
    }
    Ok(Embedded {
        changed: changed || embedded > 0,
        vectors: run.vectors,
        cache,
        fresh: embedded,
        notices: run.notices,
    })
}

struct Run<'a> {
    dir: &'a Path,
    tools: &'a EmbedTools<'a>,
    plan: &'a EmbedPlan<'a>,
    fingerprint: shelfscan_inference_core::EmbedderFingerprint,
    vectors: ViewVectors,
    /// Views embedded since the last part was written.
    unsaved: Vec<usize>,
    notices: Vec<String>,
}

impl Run<'_> {
    fn embed_all(
        &mut self,
        index: &IndexFile,
        missing: &[usize],
        unreadable: &mut Vec<(usize, String)>,
    ) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        // Before any worker asks it: some devices compile on first use and break when two do.
        self.tools.embedder.warmup()?;
        let paths: Vec<PathBuf> = {
            let views: Vec<_> = index.views().collect();
            missing
                .iter()
                .map(|i| {
                    let arriving = self.plan.sources.get(&views[*i].view);
                    arriving.map_or_else(|| self.dir.join(&views[*i].file), Clone::clone)
                })
                .collect()
        };
        let mut waiting: Vec<usize> = Vec::new();
        let mut crops: Vec<RgbImage> = Vec::new();
        let mut bytes = 0;
        let mut done = 0;
        // A handful of pictures is decoded at once, so that large photos do not pile up.
        let group = rayon::current_num_threads().clamp(1, 8);
        for (views, paths) in missing.chunks(group).zip(paths.chunks(group)) {
            let decoded: Vec<_> = paths
                .par_iter()
                .map(|path| (self.tools.decode)(path))
                .collect();
            for (&view, picture) in views.iter().zip(decoded) {
                match picture {
                    Ok(picture) => {
                        bytes += picture.pixels().len();
                        waiting.push(view);
                        crops.push(picture);
                    }
                    Err(reason) => unreadable.push((view, reason)),
                }
                done += 1;
                if waiting.len() >= self.plan.batch.max(1)
                    || bytes >= MAX_WAITING_BYTES
                    || done == missing.len()
                {
                    self.embed_batch(&mut waiting, &mut crops)?;
                    bytes = 0;
                    if self.unsaved.len() >= self.plan.checkpoint.max(1) {
                        self.save_part(index)?;
                    }
                    let progress = EmbedProgress {
                        done,
                        wanted: missing.len(),
                    };
                    if self
                        .tools
                        .progress
                        .is_some_and(|tell| tell(progress).is_break())
                    {
                        return Err(GalleryError::Stopped {
                            embedded: self.vectors.known_count(),
                            wanted: index.view_count(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn embed_batch(&mut self, waiting: &mut Vec<usize>, crops: &mut Vec<RgbImage>) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let rows = embed_checked(self.tools.embedder, self.fingerprint.dimension, crops)?;
        for (view, row) in waiting
            .iter()
            .zip(rows.chunks_exact(self.fingerprint.dimension))
        {
            self.vectors.set(*view, row);
        }
        self.unsaved.append(waiting);
        crops.clear();
        Ok(())
    }

    fn save_part(&mut self, index: &IndexFile) -> Result<()> {
        let saved = cache::save_part(
            self.dir,
            index,
            &self.fingerprint,
            &self.vectors,
            &self.unsaved,
        );
        self.unsaved.clear();
        match saved {
            Err(error) if !self.plan.must_save => {
                let notice = format!("embeddings are not kept for the next start: {error}");
                if !self.notices.contains(&notice) {
                    self.notices.push(notice);
                }
                Ok(())
            }
            saved => saved,
        }
    }
}

/// Embeds crops and checks what comes back: `[crops, dimension]` unit vectors.
pub(crate) fn embed_checked(
    embedder: &dyn Embedder,
    dimension: usize,
    crops: &[RgbImage],
) -> Result<Vec<f32>> {
    let rows = embedder.embed(crops)?;
    if rows.len() != crops.len() || rows.dimension() != dimension {
        return Err(InferenceError::InvalidInput(format!(
            "the embedder gave {} vectors of {} numbers for {} crops, {dimension} numbers were announced; its fingerprint is wrong",
            rows.len(),
            rows.dimension(),
            crops.len()
        ))
        .into());
    }
    if !rows.rows().all(is_unit) {
        return Err(InferenceError::NonFinite {
            stage: "embedding of crops to unit length".into(),
        }
        .into());
    }
    Ok(rows.values().to_vec())
}
