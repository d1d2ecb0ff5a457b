//! Detection for callers: a picture and phrases in, finds in source pixels out.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{DType, Device};
use rayon::prelude::*;
use shelfscan_inference_core::{Detection, Notice, RgbImage, TextPrompt};
use shelfscan_model_kit::{
    preprocess::{Normalisation, PictureFilter, resize, to_tensor},
    weights::LoadReport,
};

use crate::{
    Detector, Error, Exemplars, ImageFeatures, Result, Sam3Config, Tokenizer, load_detector,
    phrases::{Phrase, PhraseCache, batch, need_any},
    ranked::{Ranked, in_pixels},
    tiles::{Find, MAX_SIDE, Tile, Tiling, automatic_side, layers, merge, tiles},
};

/// Phrases whose features are kept.
const PHRASES_KEPT: usize = 64;
/// Phrases that go through the decoder at once; more of them are asked in turns.
pub(crate) const PHRASES_AT_ONCE: usize = 8;

/// Tiles of a model with at most this many tokens are looked at side by side: its operators are too
/// small to keep several threads busy, and its activations small enough to be held for each.
const SMALL_TILE_TOKENS: usize = 1024;

/// What to report of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectOptions {
    /// Finds need more than this probability.
    pub score_threshold: f32,
    /// Of two finds of one phrase that overlap by more than this share of the smaller one, the
    /// better stays; `None` leaves duplicates in.
    pub duplicate_overlap: Option<f32>,
    /// Draw masks and take boxes from them. Without, boxes are the decoder's own, which is faster;
    /// a model that has no masks answers so in any case.
    pub masks: bool,
    /// How the picture is cut first.
    pub tiling: Tiling,
}

impl Default for DetectOptions {
    fn default() -> Self {
        Self {
            score_threshold: 0.5,
            duplicate_overlap: Some(0.5),
            masks: true,
            tiling: Tiling::Off,
        }
    }
}

/// The finds of one picture, highest score first.
#[derive(Clone, Debug, Default)]
pub struct PictureFinds {
    /// In source pixels.
    pub detections: Vec<Detection>,
    /// What the reader has to know.
    pub notices: Vec<Notice>,
}

/// How often the expensive parts ran, so that a caller can see that work was shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Pictures or tiles that went through the image encoder.
    pub pictures: u64,
    /// Phrases that went through the text encoder.
    pub phrases: u64,
}

/// SAM 3.1 for pictures. It may be shared between threads.
#[derive(Debug)]
pub struct Sam3 {
    detector: Detector,
    tokenizer: Tokenizer,
    phrases: Mutex<PhraseCache>,
    pictures: std::sync::atomic::AtomicU64,
}

impl Sam3 {
    /// Loads a checkpoint with CLIP's own vocabulary.
    ///
    /// # Errors
    /// As [`load_detector`].
    pub fn load(
        path: &Path,
        config: &Sam3Config,
        dtype: DType,
        device: &Device,
    ) -> Result<(Self, LoadReport)> {
        let tokenizer = Tokenizer::new(config.context_length)?;
        let (detector, report) = load_detector(path, config, dtype, device)?;
        Ok((Self::new(detector, tokenizer), report))
    }

    /// Puts a detector and a tokenizer together, for models with a vocabulary of their own.
    pub fn new(detector: Detector, tokenizer: Tokenizer) -> Self {
        Self {
            detector,
            tokenizer,
            phrases: Mutex::new(PhraseCache::new(PHRASES_KEPT)),
            pictures: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The stages themselves.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// How often the expensive parts ran.
    pub fn work(&self) -> WorkCounts {
        WorkCounts {
            pictures: self.pictures.load(std::sync::atomic::Ordering::Relaxed),
            phrases: self.cache().encoded(),
        }
    }

    /// The features of a picture, for any number of questions about it.
    ///
    /// # Errors
    /// A failure of the model.
    pub fn image_features(&self, picture: &RgbImage) -> Result<ImageFeatures> {
        let side = self.detector.config().image_size as u32;
        let small = resize(picture, side, side, PictureFilter::Bilinear)?;
        let tensor = to_tensor(std::slice::from_ref(&small), Normalisation::HALF)?;
        self.pictures
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.detector.image_features(&tensor)
    }

    /// Finds what the phrases name.
    ///
    /// # Errors
    /// No prompt, tiles out of range, or a failure of the model.
    pub fn detect(
        &self,
        picture: &RgbImage,
        prompts: &[TextPrompt],
        options: &DetectOptions,
    ) -> Result<PictureFinds> {
        let phrases = self.phrases(prompts)?;
        let (width, height) = (picture.width(), picture.height());
        let whole = Tile {
            x: 0,
            y: 0,
            width,
            height,
        };
        let mut filled = vec![false; prompts.len()];
        let (columns, rows) = match options.tiling {
            Tiling::Off | Tiling::Auto => (1, 1),
            Tiling::Grid { columns, rows } | Tiling::Layers { columns, rows } => (columns, rows),
        };
        if !(1..=MAX_SIDE).contains(&columns) || !(1..=MAX_SIDE).contains(&rows) {
            return Err(Error::InvalidInput(format!(
                "{columns}x{rows} tiles; pass 1 to {MAX_SIDE} along each side"
            )));
        }
        let mut finds = if (columns, rows) == (1, 1) {
            let features = self.image_features(picture)?;
            let found = self.look(&features, &phrases, whole, options, &mut filled)?;
            found.into_iter().map(|(_, find)| find).collect()
        } else {
            let cut = match options.tiling {
                Tiling::Layers { .. } => layers(width, height, columns, rows),
                _ => tiles(width, height, columns, rows),
            };
            self.look_at_tiles(picture, &phrases, &cut, options, &mut filled)?
        };
        if options.tiling == Tiling::Auto {
            let side = self.automatic(&finds, width, height, filled.contains(&true));
            if side > 1 {
                filled.fill(false);
                let cut = tiles(width, height, side, side);
                finds = self.look_at_tiles(picture, &phrases, &cut, options, &mut filled)?;
            }
        }
        Ok(self.answer(finds, prompts, &phrases, &filled))
    }

    /// Asks about a picture whose features are there, with example boxes or points; gives finds of
    /// a source picture of `width` x `height` pixels.
    ///
    /// # Errors
    /// No prompt, another number of exemplars, or a failure of the model.
    pub fn detect_in(
        &self,
        features: &ImageFeatures,
        (width, height): (u32, u32),
        prompts: &[TextPrompt],
        exemplars: &[Exemplars],
        options: &DetectOptions,
    ) -> Result<PictureFinds> {
        let phrases = self.phrases(prompts)?;
        if !exemplars.is_empty() && exemplars.len() != prompts.len() {
            return Err(Error::InvalidInput(format!(
                "{} prompts came with exemplars for {}",
                prompts.len(),
                exemplars.len()
            )));
        }
        let mut filled = vec![false; prompts.len()];
        let whole = Tile {
            x: 0,
            y: 0,
            width,
            height,
        };
        let found = self.ask(features, &phrases, exemplars, whole, options, &mut filled)?;
        Ok(self.answer(found, prompts, &phrases, &filled))
    }

    fn answer(
        &self,
        finds: Vec<Find>,
        prompts: &[TextPrompt],
        phrases: &[Phrase],
        filled: &[bool],
    ) -> PictureFinds {
        let queries = self.detector.config().num_queries;
        let mut notices = notices(prompts, phrases, filled, queries);
        for (i, prompt) in prompts.iter().enumerate() {
            if finds.iter().all(|find| find.prompt != i)
                && let Some(singular) = singular(&prompt.phrase)
            {
                notices.push(Notice::new(
                    "try_singular",
                    format!(
                        "nothing was found for \"{}\"; the model knows things by their singular, \
                         so try \"{singular}\"",
                        prompt.phrase
                    ),
                ));
            }
        }
        let detections = finds.into_iter().map(|find| Detection {
            label: prompts[find.prompt].label.clone(),
            prompt: prompts[find.prompt].phrase.clone(),
            score: find.score,
            bbox: find.bbox,
            mask: find.mask,
            track_id: None,
        });
        PictureFinds {
            detections: detections.collect(),
            notices,
        }
    }

    pub(crate) fn phrases(&self, prompts: &[TextPrompt]) -> Result<Vec<Phrase>> {
        need_any(prompts)?;
        let texts: Vec<Arc<str>> = prompts.iter().map(|p| p.phrase.clone()).collect();
        self.cache()
            .get(&texts, &self.tokenizer, &self.detector.text)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, PhraseCache> {
        // An entry is inserted whole or not at all, so a panic elsewhere leaves the cache usable.
        self.phrases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn automatic(&self, finds: &[Find], width: u32, height: u32, full: bool) -> u32 {
        let scale = self.detector.config().image_size as f32;
        let mut sides: Vec<f32> = finds
            .iter()
            .map(|find| {
                let b = find.bbox;
                let (w, h) = (b.width() / width as f32, b.height() / height as f32);
                (w * h).sqrt() * scale
            })
            .collect();
        sides.sort_by(f32::total_cmp);
        match sides.get(sides.len() / 2) {
            Some(median) => automatic_side(*median, full),
            None => 1,
        }
    }

    fn look_at_tiles(
        &self,
        picture: &RgbImage,
        phrases: &[Phrase],
        tiles: &[Tile],
        options: &DetectOptions,
        filled: &mut [bool],
    ) -> Result<Vec<Find>> {
        let (width, height) = (picture.width(), picture.height());
        let look = |tile: &Tile| -> Result<_> {
            let mut full = vec![false; phrases.len()];
            let Some(part) = picture.crop(&tile.region()) else {
                return Ok((full, Vec::new()));
            };
            let features = self.image_features(&part)?;
            let mut found = self.look(&features, phrases, *tile, options, &mut full)?;
            for (tile, find) in &mut found {
                let (x, y) = (i64::from(tile.x), i64::from(tile.y));
                find.bbox = find.bbox.translated(tile.x as f32, tile.y as f32);
                find.mask = find.mask.take().map(|m| m.placed(x, y, width, height));
            }
            Ok((full, found))
        };
        let tokens = self.detector.config().grid().pow(2);
        let looks: Vec<_> = if self.detector.on_cpu() && tokens <= SMALL_TILE_TOKENS {
            tiles.par_iter().map(look).collect::<Result<_>>()?
        } else {
            tiles.iter().map(look).collect::<Result<_>>()?
        };
        let mut found = Vec::new();
        for (full, finds) in looks {
            for (all, one) in filled.iter_mut().zip(full) {
                *all |= one;
            }
            found.extend(finds);
        }
        Ok(merge(found, width, height))
    }

    /// Finds in one tile, in pixels of the tile.
    fn look(
        &self,
        features: &ImageFeatures,
        phrases: &[Phrase],
        tile: Tile,
        options: &DetectOptions,
        filled: &mut [bool],
    ) -> Result<Vec<(Tile, Find)>> {
        let found = self.ask(features, phrases, &[], tile, options, filled)?;
        Ok(found.into_iter().map(|find| (tile, find)).collect())
    }

    fn ask(
        &self,
        features: &ImageFeatures,
        phrases: &[Phrase],
        exemplars: &[Exemplars],
        tile: Tile,
        options: &DetectOptions,
        filled: &mut [bool],
    ) -> Result<Vec<Find>> {
        let mut out = Vec::new();
        for (turn, group) in phrases.chunks(PHRASES_AT_ONCE).enumerate() {
            let first = turn * PHRASES_AT_ONCE;
            let own = exemplars.get(first..first + group.len()).unwrap_or(&[]);
            let found = self.detector.ground(features, &batch(group)?, own)?;
            for b in 0..found.len() {
                let probabilities = found.probabilities(b);
                let mut queries: Vec<usize> = (0..probabilities.len())
                    .filter(|q| probabilities[*q] > options.score_threshold)
                    .collect();
                if let Some(filled) = filled.get_mut(first + b) {
                    *filled |= queries.len() == probabilities.len();
                }
                queries.sort_by(|a, b| {
                    probabilities[*b]
                        .total_cmp(&probabilities[*a])
                        .then(a.cmp(b))
                });
                let drawn = if options.masks && self.detector.config().masks {
                    Some(self.detector.masks(features, &found, b, &queries)?)
                } else {
                    None
                };
                let ranked = Ranked {
                    prompt: first + b,
                    scores: queries.iter().map(|q| probabilities[*q]).collect(),
                    boxes: queries
                        .iter()
                        .filter_map(|q| found.boxes(b).get(*q))
                        .map(|r| in_pixels(r, tile.width, tile.height))
                        .collect(),
                    drawn,
                };
                out.extend(ranked.finds(&tile, options.duplicate_overlap));
            }
        }
        out.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(out)
    }
}

/// The singular of a phrase that ends like an English plural.
fn singular(phrase: &str) -> Option<String> {
    let (start, word) = phrase.rsplit_once(' ').unwrap_or(("", phrase));
    let lower = word.to_lowercase();
    let one = match lower.as_str() {
        "people" => "person".to_owned(),
        "men" => "man".to_owned(),
        "women" => "woman".to_owned(),
        "children" => "child".to_owned(),
        "shelves" => "shelf".to_owned(),
        "loaves" => "loaf".to_owned(),
        _ => {
            let stem = lower.strip_suffix('s').filter(|s| s.chars().count() > 2)?;
            if stem.ends_with(['s', 'u', 'i']) {
                return None;
            }
            let hissing = ["xe", "che", "she", "sse"]
                .iter()
                .any(|e| stem.ends_with(e));
            match stem.strip_suffix("ie") {
                Some(start) => format!("{start}y"),
                None if hissing => stem[..stem.len() - 1].to_owned(),
                None => stem.to_owned(),
            }
        }
    };
    Some(if start.is_empty() {
        one
    } else {
        format!("{start} {one}")
    })
}

pub(crate) fn notices(
    prompts: &[TextPrompt],
    phrases: &[Phrase],
    filled: &[bool],
    queries: usize,
) -> Vec<Notice> {
    let mut out = Vec::new();
    for ((prompt, phrase), filled) in prompts.iter().zip(phrases).zip(filled) {
        if let Some(word) = &phrase.cut_at {
            out.push(Notice::new(
                "phrase_cut",
                format!(
                    "the phrase \"{}\" is too long for the model and was cut at \"{word}\"",
                    prompt.phrase
                ),
            ));
        }
        if *filled {
            out.push(Notice::new(
                "query_cap_hit",
                format!(
                    "\"{}\" filled all {queries} places the model has, so some objects may be \
                     missing; ask in tiles (--tiles)",
                    prompt.phrase
                ),
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_have_a_singular_and_other_words_do_not() {
        for (many, one) in [
            ("bottles", "bottle"),
            ("red boxes", "red box"),
            ("berries", "berry"),
            ("people", "person"),
            ("glasses", "glass"),
        ] {
            assert_eq!(singular(many).as_deref(), Some(one));
        }
        for word in ["glass", "milk carton", "cactus", "as", "bus", ""] {
            assert_eq!(singular(word), None, "{word}");
        }
    }
}
