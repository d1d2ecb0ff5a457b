//! Text encoder: a causal transformer over the tokens of a phrase.
//!
//! Ported from the description of `sam3/model/text_encoder_ve.py`. No pooling: the state of every
//! token goes on, padding included, and a mask tells which is which.

use candle_core::{DType, Device, Result, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, AttentionOptions, LayerNorm, Linear, Mlp},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    layers::{MultiHead, layer_norm, linear, made},
    tokenizer::TokenizedPhrase,
};

const STAGE: &str = "the text encoder";
/// Width of an output the reference computes and drops.
const POOLED_WIDTH: usize = 512;

#[derive(Clone, Debug)]
struct Block {
    norm1: LayerNorm,
    attention: MultiHead,
    norm2: LayerNorm,
    mlp: Mlp,
}

impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let causal = AttentionOptions {
            causal: true,
            ..AttentionOptions::default()
        };
        let n = self.norm1.forward(x)?;
        let x = self.attention.forward(&n, &n, &n, x, &causal)?;
        self.mlp.forward_residual(&x, &self.norm2)
    }
}

/// The features of one or more phrases.
#[derive(Clone, Debug)]
pub struct TextFeatures {
    /// `[b, t, d_model]`.
    pub tokens: Tensor,
    /// `[b, t]` of u8: 1 for a token, 0 for padding.
    pub mask: Tensor,
}

/// What the encoder computed on its way, for comparison with the reference.
#[derive(Clone, Debug)]
pub struct TextStages {
    /// Token vectors `[b, t, width]`, without positions.
    pub embedded: Tensor,
    /// After each block.
    pub blocks: Vec<Tensor>,
    /// After the last normalisation.
    pub normed: Tensor,
    /// What goes on.
    pub features: TextFeatures,
}

/// The text encoder.
#[derive(Clone, Debug)]
pub struct TextEncoder {
    /// `[vocabulary, width]`.
    table: Tensor,
    /// `[t, width]`.
    positions: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    resize: Linear,
}

impl TextEncoder {
    /// Reads the encoder below `weights`, the path of the language backbone.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (width, length) = (config.text_width, config.context_length);
        let encoder = weights.pp("encoder");
        encoder.leave(
            (width, POOLED_WIDTH),
            "text_projection",
            "its output is dropped by the reference",
        );
        let mut blocks = Vec::with_capacity(config.text_layers);
        for i in 0..config.text_layers {
            let w = encoder.pp("transformer.resblocks").pp(i);
            let up = linear(&w.pp("mlp.c_fc"), width, 4 * width)?;
            let down = linear(&w.pp("mlp.c_proj"), 4 * width, width)?;
            blocks.push(Block {
                norm1: layer_norm(&w.pp("ln_1"), width)?,
                attention: MultiHead::new(&w.pp("attn"), width, config.text_heads)?,
                norm2: layer_norm(&w.pp("ln_2"), width)?,
                mlp: made(Mlp::new(up, Activation::Gelu, down), &w)?,
            });
        }
        Ok(Self {
            table: encoder.get((config.vocab_size(), width), "token_embedding.weight")?,
            positions: encoder.get((length, width), "positional_embedding")?,
            blocks,
            norm: layer_norm(&encoder.pp("ln_final"), width)?,
            resize: linear(&weights.pp("resizer"), width, config.d_model)?,
        })
    }

    /// Encodes phrases of one length.
    ///
    /// # Errors
    /// No phrase, or the tensor library failed.
    pub fn forward(&self, phrases: &[TokenizedPhrase]) -> crate::Result<TextFeatures> {
        Ok(self.forward_stages(phrases)?.features)
    }

    /// As [`forward`](Self::forward), keeping every stage.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(&self, phrases: &[TokenizedPhrase]) -> crate::Result<TextStages> {
        if phrases.is_empty() {
            return Err(crate::Error::InvalidInput("no phrase was given".into()));
        }
        self.run(phrases).at(STAGE)
    }

    fn run(&self, phrases: &[TokenizedPhrase]) -> Result<TextStages> {
        let device: &Device = self.table.device();
        let (b, t) = (phrases.len(), self.positions.dim(0)?);
        let ids: Vec<u32> = phrases
            .iter()
            .flat_map(TokenizedPhrase::ids)
            .copied()
            .collect();
        // Token 0 counts as padding wherever it stands, as in the reference.
        let mask: Vec<u8> = ids.iter().map(|id| u8::from(*id != 0)).collect();
        let ids = Tensor::from_vec(ids, b * t, device)?;
        let embedded = self.table.index_select(&ids, 0)?.reshape((b, t, ()))?;
        let mut x = embedded.broadcast_add(&self.positions)?;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            x = block.forward(&x)?;
            blocks.push(x.clone());
        }
        let normed = self.norm.forward(&x)?;
        let features = TextFeatures {
            tokens: self.resize.forward(&normed)?,
            mask: Tensor::from_vec(mask, (b, t), device)?.to_dtype(DType::U8)?,
        };
        Ok(TextStages {
            embedded,
            blocks,
            normed,
            features,
        })
    }
}
