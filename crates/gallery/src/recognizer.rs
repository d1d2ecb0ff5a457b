//! Answers for crops: the gallery joined with an embedder.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shelfscan_inference_core::{Embedder, EmbedderFingerprint, RgbImage};

use crate::{
    Answer, CacheUse, Channel, CropPolicy, Gallery, GalleryError, PictureDecoder, Result,
    SkuMetadata, Thresholds, UnreadableView, cache,
    calibrate::calibrate,
    embed::{
        self, DEFAULT_BATCH, DEFAULT_CHECKPOINT, EmbedPlan, EmbedTools, ProgressObserver,
        embed_checked,
    },
    files::hex,
    search::ViewIndex,
    tag::TagReader,
};

/// How to answer.
#[derive(Clone, Debug)]
pub struct RecognizerOptions {
    /// The crop policy the caller cuts with; another than the enrolled one is refused.
    pub crop_policy: Option<CropPolicy>,
    /// Replaces the stored score threshold.
    pub min_score: Option<f32>,
    /// Replaces the stored margin threshold.
    pub min_margin: Option<f32>,
    /// Read barcodes and QR codes when any SKU has a GTIN.
    pub read_tags: bool,
    /// Crops in one call of the embedder.
    pub batch: usize,
}

impl Default for RecognizerOptions {
    fn default() -> Self {
        Self {
            crop_policy: None,
            min_score: None,
            min_margin: None,
            read_tags: true,
            batch: DEFAULT_BATCH,
        }
    }
}

/// What loading a gallery did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// SKUs that can be answered.
    pub skus: usize,
    /// Views that are searched.
    pub views: usize,
    /// Views that had to be embedded.
    pub embedded: usize,
    /// Views that could not be decoded.
    pub unreadable: Vec<UnreadableView>,
    /// What became of the cache.
    pub cache: CacheUse,
    /// When an answer is known.
    pub thresholds: Thresholds,
    /// What the reader should know although loading went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Says which SKU a crop shows, or that it is unknown. Shared by any number of threads.
pub struct Recognizer {
    embedder: Arc<dyn Embedder>,
    embedder_fingerprint: EmbedderFingerprint,
    index: ViewIndex,
    thresholds: Thresholds,
    crop_policy: CropPolicy,
    metadata: BTreeMap<Arc<str>, SkuMetadata>,
    tags: Option<TagReader>,
    batch: usize,
    content_hash: String,
}

impl Recognizer {
    /// Loads a gallery: takes the vectors from its cache as far as they can be proved, embeds the
    /// rest, and warms the embedder from this thread, before anyone else can reach it.
    ///
    /// `decode` is asked only for views the cache lacks; `progress` is told about those.
    ///
    /// # Errors
    /// A crop policy other than the enrolled one, a failing embedder, a gallery without a readable
    /// view. A cache of no use is not an error; the report says why it was not used.
    pub fn load(
        mut gallery: Gallery,
        embedder: Arc<dyn Embedder>,
        decode: &PictureDecoder<'_>,
        progress: Option<&ProgressObserver<'_>>,
        options: &RecognizerOptions,
    ) -> Result<(Self, LoadReport)> {
        gallery.check_policy(options.crop_policy)?;
        let tools = EmbedTools {
            embedder: &*embedder,
            decode,
            progress,
        };
        let plan = EmbedPlan {
            batch: options.batch,
            checkpoint: DEFAULT_CHECKPOINT,
            retry_unreadable: false,
            must_save: false,
            sources: &BTreeMap::new(),
        };
        let mut embedded = embed::complete(&gallery.dir, &mut gallery.index, &tools, &plan)?;
        let fingerprint = embedder.fingerprint()?;
        let search = gallery.search_index(&embedded.vectors, &fingerprint);
        if search.is_empty() {
            let (reason, remedy) = if gallery.index.view_count() == 0 {
                ("it holds no view", "enrol the folders of your SKUs into it")
            } else {
                (
                    "none of its views can be decoded",
                    "enrol readable pictures",
                )
            };
            return Err(GalleryError::Gallery {
                path: gallery.dir().into(),
                reason: reason.into(),
                remedy,
            });
        }
        let mut thresholds = match gallery.thresholds() {
            Some(stored) if !embedded.changed => stored.clone(),
            _ => {
                let (fresh, _) = calibrate(&search, gallery.index.target_false_accept());
                gallery.index.set_thresholds(fresh.clone());
                let (dir, index) = (&gallery.dir, &gallery.index);
                let saved = cache::save(dir, index, &fingerprint, &embedded.vectors)
                    .and_then(|()| index.write(dir));
                if let Err(error) = saved {
                    embedded
                        .notices
                        .push(format!("the cache is not kept for the next start: {error}"));
                }
                fresh
            }
        };
        thresholds.score = options.min_score.unwrap_or(thresholds.score);
        thresholds.margin = options.min_margin.unwrap_or(thresholds.margin);
        if !thresholds.is_valid() {
            return Err(GalleryError::InvalidInput(format!(
                "a score of {} and a margin of {} are no thresholds; use numbers between 0 and 1",
                thresholds.score, thresholds.margin
            )));
        }
        // From this one thread, also when every vector came from the cache: some devices compile on
        // first use, and two threads in there at once break them.
        embedder.warmup()?;
        let metadata: BTreeMap<Arc<str>, SkuMetadata> = gallery
            .skus()
            .map(|(sku, metadata)| (sku.into(), metadata.clone()))
            .collect();
        let tags = options
            .read_tags
            .then(|| TagReader::new(&metadata))
            .filter(|tags| !tags.is_empty());
        let report = LoadReport {
            skus: search.sku_count(),
            views: search.len(),
            embedded: embedded.fresh,
            unreadable: gallery.unreadable(),
            cache: embedded.cache,
            thresholds: thresholds.clone(),
            notices: embedded.notices,
        };
        let recognizer = Self {
            embedder,
            embedder_fingerprint: fingerprint,
            index: search,
            thresholds,
            crop_policy: gallery.crop_policy(),
            metadata,
            tags,
            batch: options.batch.max(1),
            content_hash: gallery.content_hash(),
        };
        Ok((recognizer, report))
    }

    /// Answers each crop, in order. Cut the crops with [`crop_policy`](Self::crop_policy).
    ///
    /// # Errors
    /// The embedder failed; no partial answer is given.
    pub fn identify(&self, crops: &[RgbImage]) -> Result<Vec<Answer>> {
        let dimension = self.embedder_fingerprint.dimension;
        let mut answers = Vec::with_capacity(crops.len());
        for batch in crops.chunks(self.batch) {
            let vectors = embed_checked(&*self.embedder, dimension, batch)?;
            answers.extend(self.answer_vectors(&vectors));
        }
        if let Some(tags) = &self.tags {
            for (answer, read) in answers.iter_mut().zip(tags.read_all(crops)) {
                if let Some(sku) = read {
                    answer.sku = Some(sku);
                    answer.channel = Some(Channel::Tag);
                }
            }
        }
        Ok(answers)
    }

    /// Answers vectors that were embedded elsewhere, `[n, dimension]` row by row, by packaging alone.
    pub fn answer_vectors(&self, vectors: &[f32]) -> Vec<Answer> {
        self.index
            .nearest(vectors)
            .into_iter()
            .map(|nearest| {
                let score = nearest.first().map_or(-1.0, |first| first.score);
                let margin = nearest.get(1).map_or(score, |second| score - second.score);
                let known = nearest
                    .first()
                    .filter(|_| self.thresholds.accept(score, margin))
                    .map(|first| first.sku.clone());
                Answer {
                    channel: known.as_ref().map(|_| Channel::Packaging),
                    sku: known,
                    score,
                    margin,
                    nearest,
                }
            })
            .collect()
    }

    /// The SKU a barcode or QR code in a picture names, such as a shelf label's; `None` when none
    /// is read, none is enrolled, or tags are not read.
    pub fn read_tag(&self, image: &RgbImage) -> Option<Arc<str>> {
        self.tags.as_ref()?.read(image)
    }

    /// How to cut crops for [`identify`](Self::identify).
    pub fn crop_policy(&self) -> CropPolicy {
        self.crop_policy
    }

    /// When an answer is known.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Name, GTIN and price of an enrolled SKU.
    pub fn metadata(&self, sku: &str) -> Option<&SkuMetadata> {
        self.metadata.get(sku)
    }

    /// What embeds the crops.
    pub fn embedder_fingerprint(&self) -> &EmbedderFingerprint {
        &self.embedder_fingerprint
    }

    /// Hash in hex over everything an answer depends on: the enrolled files, the crop policy, the
    /// GTINs, the thresholds and the embedder.
    pub fn fingerprint(&self) -> String {
        let mut hasher = Sha256::new();
        let embedder = &self.embedder_fingerprint;
        hasher.update(&self.content_hash);
        for part in [
            &embedder.model,
            &embedder.weights_hash,
            &embedder.preprocessing,
        ] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(self.thresholds.score.to_le_bytes());
        hasher.update(self.thresholds.margin.to_le_bytes());
        if self.tags.is_some() {
            for (sku, metadata) in &self.metadata {
                if let Some(gtin) = &metadata.gtin {
                    hasher.update((sku.len() as u64).to_le_bytes());
                    hasher.update(&**sku);
                    hasher.update(gtin.as_str());
                }
            }
        }
        hex(&hasher.finalize())
    }
}
