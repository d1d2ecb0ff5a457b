//! Text features by phrase, kept between calls in a bounded cache.

use std::{collections::BTreeMap, sync::Arc};

use candle_core::Tensor;
use shelfscan_inference_core::{InferenceError, TextPrompt};

use crate::{
    Error, Result, Tokenizer,
    error::AtStage,
    text::{TextEncoder, TextFeatures},
};

/// Features of one phrase, and where it was cut.
#[derive(Clone, Debug)]
pub(crate) struct Phrase {
    /// `[1, t, d_model]`.
    tokens: Tensor,
    /// `[1, t]`.
    mask: Tensor,
    /// First word that did not fit.
    pub(crate) cut_at: Option<Arc<str>>,
}

/// The phrases asked last, at most `capacity` of them.
#[derive(Debug)]
pub(crate) struct PhraseCache {
    entries: BTreeMap<Arc<str>, (u64, Phrase)>,
    capacity: usize,
    clock: u64,
    encoded: u64,
}

impl PhraseCache {
    /// `capacity` is at least 1.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            capacity: capacity.max(1),
            clock: 0,
            encoded: 0,
        }
    }

    /// Phrases the encoder ran for so far.
    pub(crate) fn encoded(&self) -> u64 {
        self.encoded
    }

    /// The features of `phrases` in their order; those not held are encoded in one batch.
    pub(crate) fn get(
        &mut self,
        phrases: &[Arc<str>],
        tokenizer: &Tokenizer,
        encoder: &TextEncoder,
    ) -> Result<Vec<Phrase>> {
        let mut missing: Vec<Arc<str>> = phrases
            .iter()
            .filter(|p| !self.entries.contains_key(*p))
            .cloned()
            .collect();
        missing.sort();
        missing.dedup();
        // Fresh phrases are kept beside the cache until the answer is put together, because more of
        // them than the cache holds may be asked at once.
        let mut fresh: BTreeMap<Arc<str>, Phrase> = BTreeMap::new();
        if !missing.is_empty() {
            let tokenized: Vec<_> = missing.iter().map(|p| tokenizer.encode(p)).collect();
            let features = encoder.forward(&tokenized)?;
            self.encoded += missing.len() as u64;
            for (i, (phrase, ids)) in missing.iter().zip(&tokenized).enumerate() {
                let row = |t: &Tensor| t.narrow(0, i, 1)?.contiguous();
                let entry = Phrase {
                    tokens: row(&features.tokens).at("the text encoder")?,
                    mask: row(&features.mask).at("the text encoder")?,
                    cut_at: ids.cut_at().map(Arc::from),
                };
                fresh.insert(phrase.clone(), entry);
            }
        }
        let mut out = Vec::with_capacity(phrases.len());
        for phrase in phrases {
            self.clock += 1;
            if let Some((used, held)) = self.entries.get_mut(phrase) {
                *used = self.clock;
                out.push(held.clone());
            } else if let Some(entry) = fresh.get(phrase) {
                out.push(entry.clone());
            } else {
                return Err(Error::InvalidInput(format!("phrase {phrase} got lost")));
            }
        }
        for (phrase, entry) in fresh {
            if self.entries.len() >= self.capacity {
                let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
                if let Some(oldest) = oldest.map(|(phrase, _)| phrase.clone()) {
                    self.entries.remove(&oldest);
                }
            }
            self.clock += 1;
            self.entries.insert(phrase, (self.clock, entry));
        }
        Ok(out)
    }
}

/// As [`TextPrompt::need_any`], in this crate's words.
pub(crate) fn need_any(prompts: &[TextPrompt]) -> Result<()> {
    TextPrompt::need_any(prompts).map_err(|error| match error {
        InferenceError::InvalidInput(text) => Error::InvalidInput(text),
        other => Error::InvalidInput(other.to_string()),
    })
}

/// Puts phrases into one batch.
pub(crate) fn batch(phrases: &[Phrase]) -> Result<TextFeatures> {
    let join = |part: fn(&Phrase) -> &Tensor| {
        let rows: Vec<&Tensor> = phrases.iter().map(part).collect();
        Tensor::cat(&rows, 0).at("the prompt")
    };
    Ok(TextFeatures {
        tokens: join(|p| &p.tokens)?,
        mask: join(|p| &p.mask)?,
    })
}
