//! Fusion encoder: picture tokens look at each other and at the prompt.
//!
//! Ported from the description of `TransformerEncoderFusion` in `sam3/model/encoder.py`: pre-norm
//! layers, positions added to queries and keys of the self-attention in every layer, no last norm.

use candle_core::{Result, Tensor};
use shelfscan_model_kit::{
    ops::{AttentionOptions, LayerNorm, Mlp},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    layers::{MultiHead, feed_forward, layer_norm},
};

const STAGE: &str = "the fusion encoder";

/// A prompt: text and geometry tokens of one or more phrases.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// `[b, n, d_model]`.
    pub tokens: Tensor,
    /// `[b, n]` of u8: 1 for a token, 0 for padding.
    pub mask: Tensor,
}

#[derive(Clone, Debug)]
struct Layer {
    norm1: LayerNorm,
    self_attention: MultiHead,
    norm2: LayerNorm,
    prompt_attention: MultiHead,
    norm3: LayerNorm,
    mlp: Mlp,
}

impl Layer {
    fn look_at_picture(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let n = self.norm1.forward(x)?;
        let placed = n.broadcast_add(positions)?;
        self.self_attention
            .forward(&placed, &placed, &n, x, &AttentionOptions::default())
    }

    fn look_at_prompt(&self, x: &Tensor, prompt: &Prompt) -> Result<Tensor> {
        let options = AttentionOptions {
            key_mask: Some(&prompt.mask),
            ..AttentionOptions::default()
        };
        let n = self.norm2.forward(x)?;
        let tokens = &prompt.tokens;
        let x = self
            .prompt_attention
            .forward(&n, tokens, tokens, x, &options)?;
        self.mlp.forward_residual(&x, &self.norm3)
    }
}

/// The fusion encoder.
#[derive(Clone, Debug)]
pub struct FusionEncoder {
    layers: Vec<Layer>,
}

impl FusionEncoder {
    /// Reads the encoder below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let d = config.d_model;
        let mut layers = Vec::with_capacity(config.fusion_layers);
        for i in 0..config.fusion_layers {
            let w = weights.pp("layers").pp(i);
            layers.push(Layer {
                norm1: layer_norm(&w.pp("norm1"), d)?,
                self_attention: MultiHead::new(&w.pp("self_attn"), d, config.heads)?,
                norm2: layer_norm(&w.pp("norm2"), d)?,
                prompt_attention: MultiHead::new(&w.pp("cross_attn_image"), d, config.heads)?,
                norm3: layer_norm(&w.pp("norm3"), d)?,
                mlp: feed_forward(&w, d, config.ffn_dim)?,
            });
        }
        Ok(Self { layers })
    }

    /// The part of the first layer that no prompt enters, `[1, n, d_model]`: done once a picture.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn prepare(&self, image: &Tensor, positions: &Tensor) -> crate::Result<Tensor> {
        match self.layers.first() {
            Some(layer) => layer.look_at_picture(image, positions).at(STAGE),
            None => Ok(image.clone()),
        }
    }

    /// The memory `[b, n, d_model]` of `b` prompts on one picture. `prepared` comes from
    /// [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(
        &self,
        prepared: &Tensor,
        positions: &Tensor,
        prompt: &Prompt,
    ) -> crate::Result<Tensor> {
        let mut layers = self.forward_layers(prepared, positions, prompt)?;
        Ok(layers.pop().unwrap_or_else(|| prepared.clone()))
    }

    /// As [`forward`](Self::forward), after each layer.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_layers(
        &self,
        prepared: &Tensor,
        positions: &Tensor,
        prompt: &Prompt,
    ) -> crate::Result<Vec<Tensor>> {
        self.run(prepared, positions, prompt).at(STAGE)
    }

    fn run(&self, prepared: &Tensor, positions: &Tensor, prompt: &Prompt) -> Result<Vec<Tensor>> {
        let (_, n, c) = prepared.dims3()?;
        let mut x = prepared
            .broadcast_as((prompt.tokens.dim(0)?, n, c))?
            .contiguous()?;
        let mut out = Vec::with_capacity(self.layers.len());
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                x = layer.look_at_picture(&x, positions)?;
            }
            x = layer.look_at_prompt(&x, prompt)?;
            out.push(x.clone());
        }
        Ok(out)
    }
}
