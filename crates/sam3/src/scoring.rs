//! Scores: how well each query fits the prompt.
//!
//! Ported from the description of `DotProductScoring` in `sam3/model/model_misc.py`.

use candle_core::{D, DType, Result, Tensor};
use shelfscan_model_kit::{
    ops::{LayerNorm, Linear},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    decoder::{inverse_sigmoid, sigmoid},
    error::AtStage,
    fusion::Prompt,
    layers::{ReluStack, layer_norm, linear},
};

const STAGE: &str = "the scoring head";
/// Scores beyond this say no more.
const LIMIT: f64 = 12.0;

/// The scoring head; it works in `f32`.
#[derive(Clone, Debug)]
pub struct Scoring {
    mlp: ReluStack,
    norm: LayerNorm,
    prompt: Linear,
    query: Linear,
    scale: f64,
}

impl Scoring {
    /// Reads the head below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let d = config.d_model;
        let weights = weights.with_dtype(DType::F32);
        Ok(Self {
            mlp: ReluStack::new(&weights.pp("prompt_mlp"), &[d, config.ffn_dim, d])?,
            norm: layer_norm(&weights.pp("prompt_mlp.out_norm"), d)?,
            prompt: linear(&weights.pp("prompt_proj"), d, d)?,
            query: linear(&weights.pp("hs_proj"), d, d)?,
            scale: 1.0 / (d as f64).sqrt(),
        })
    }

    /// Logits `[b, q]` of queries `[b, q, d_model]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(&self, queries: &Tensor, prompt: &Prompt) -> crate::Result<Tensor> {
        self.run(queries, prompt).at(STAGE)
    }

    fn run(&self, queries: &Tensor, prompt: &Prompt) -> Result<Tensor> {
        let tokens = prompt.tokens.to_dtype(DType::F32)?;
        let mixed = self
            .norm
            .forward(&(self.mlp.forward(&tokens)? + &tokens)?)?;
        let mask = prompt.mask.to_dtype(DType::F32)?.unsqueeze(D::Minus1)?;
        let count = mask.sum(1)?.maximum(1f32)?;
        let pooled = mixed.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&count)?;
        let wanted = self.prompt.forward(&pooled)?.unsqueeze(D::Minus1)?;
        let have = self.query.forward(&queries.to_dtype(DType::F32)?)?;
        (have.matmul(&wanted)?.squeeze(D::Minus1)? * self.scale)?.clamp(-LIMIT, LIMIT)
    }
}

/// Logit of a query being right and the phrase being present, as the video detector has it. Its
/// probability stays between 0.001 and 0.999.
pub fn joint_logit(score: f32, presence: f32) -> f32 {
    inverse_sigmoid(sigmoid(score) * sigmoid(presence))
}

/// Probability of a query being right and the phrase being present, as the image API has it.
pub fn joint_probability(score: f32, presence: f32) -> f32 {
    sigmoid(score) * sigmoid(presence)
}
