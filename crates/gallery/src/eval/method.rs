//! What is judged: anything that scores a query picture against a view.

use shelfscan_inference_core::{Embedder, RgbImage};

use crate::{Result, embed::embed_checked, search::cosine};

/// A method of identity in an evaluation.
///
/// Implement [`PairScorer`] instead where features have one type; it is a method by itself.
pub trait Method: Sync {
    /// Name in tables and plots.
    fn name(&self) -> String;

    /// Collects the features of the pictures of one run.
    ///
    /// # Errors
    /// The method cannot start, such as an embedder without weights.
    fn collector(&self) -> Result<Box<dyn Collector + '_>>;
}

/// Features of the pictures of one run, each of which is seen once.
pub trait Collector: Sync {
    /// Takes the next pictures; the first one ever pushed has number 0.
    ///
    /// # Errors
    /// The method failed on a picture.
    fn push(&mut self, pictures: &[RgbImage]) -> Result<()>;

    /// How alike two pictures are, by their numbers; higher is nearer.
    fn score(&self, query: usize, view: usize) -> f32;
}

/// A method that turns every picture into features and scores pairs of them.
pub trait PairScorer: Sync {
    /// What is kept of a picture.
    type Features: Send + Sync;

    /// Name in tables and plots.
    fn name(&self) -> String;

    /// Makes ready; called once before any picture.
    ///
    /// # Errors
    /// The method cannot start.
    fn start(&self) -> Result<()> {
        Ok(())
    }

    /// Features of each picture, in order.
    ///
    /// # Errors
    /// The method failed on a picture.
    fn features(&self, pictures: &[RgbImage]) -> Result<Vec<Self::Features>>;

    /// How alike two pictures are; higher is nearer.
    fn score(&self, query: &Self::Features, view: &Self::Features) -> f32;
}

struct Collected<'a, P: PairScorer> {
    scorer: &'a P,
    features: Vec<P::Features>,
}

impl<P: PairScorer> Method for P {
    fn name(&self) -> String {
        PairScorer::name(self)
    }

    fn collector(&self) -> Result<Box<dyn Collector + '_>> {
        self.start()?;
        Ok(Box::new(Collected {
            scorer: self,
            features: Vec::new(),
        }))
    }
}

impl<P: PairScorer> Collector for Collected<'_, P> {
    fn push(&mut self, pictures: &[RgbImage]) -> Result<()> {
        self.features.extend(self.scorer.features(pictures)?);
        Ok(())
    }

    fn score(&self, query: usize, view: usize) -> f32 {
        self.scorer
            .score(&self.features[query], &self.features[view])
    }
}

/// An embedder judged by the cosine of its vectors.
pub struct EmbedderMethod<'a> {
    embedder: &'a dyn Embedder,
    name: String,
}

impl<'a> EmbedderMethod<'a> {
    /// Judges `embedder` under a name of the caller's choice.
    pub fn new(embedder: &'a dyn Embedder, name: impl Into<String>) -> Self {
        Self {
            embedder,
            name: name.into(),
        }
    }
}

impl PairScorer for EmbedderMethod<'_> {
    type Features = Vec<f32>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&self) -> Result<()> {
        Ok(self.embedder.warmup()?)
    }

    fn features(&self, pictures: &[RgbImage]) -> Result<Vec<Vec<f32>>> {
        let dimension = self.embedder.fingerprint()?.dimension;
        let rows = embed_checked(self.embedder, dimension, pictures)?;
        Ok(rows
            .chunks_exact(dimension.max(1))
            .map(<[f32]>::to_vec)
            .collect())
    }

    fn score(&self, query: &Vec<f32>, view: &Vec<f32>) -> f32 {
        cosine(query, view)
    }
}
