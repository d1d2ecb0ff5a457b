//! Masks: one map of the picture, and a vector a query that picks its object from it.
//!
//! Ported from the description of `UniversalSegmentationHead` and `PixelDecoder` in
//! `sam3/model/maskformer_segmentation.py`. Three up-sampling stages are declared there and two run.

use candle_core::{Result, Tensor};
use shelfscan_model_kit::{
    ops::{AttentionOptions, GroupNorm, LayerNorm, relu, upsample_nearest_2d},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    fusion::Prompt,
    layers::{Conv, MultiHead, ReluStack, layer_norm, made},
};

const STAGE: &str = "the mask head";
/// Epsilon of the pixel decoder's normalisation.
const GROUP_EPS: f64 = 1e-5;
/// Up-sampling stages that run.
const STAGES: usize = 2;

#[derive(Clone, Debug)]
struct UpStage {
    conv: Conv,
    norm: GroupNorm,
}

impl UpStage {
    /// `coarse` is enlarged to the size of `fine` and added to it.
    fn forward(&self, coarse: &Tensor, fine: &Tensor) -> Result<Tensor> {
        let (_, _, h, w) = fine.dims4()?;
        let x = fine.broadcast_add(&upsample_nearest_2d(coarse, h, w)?)?;
        relu(&self.norm.forward(&self.conv.forward(&x)?)?)
    }
}

/// The picture's side of the masks of `b` prompts.
#[derive(Clone, Debug)]
pub struct PixelMap {
    /// The memory after a look at the prompt, `[b, n, d_model]`.
    pub prompted: Tensor,
    /// `[b, d_model, s, s]` before the two heads.
    pub pixels: Tensor,
    /// `[b, d_model, s, s]`.
    pub instance: Tensor,
}

/// The segmentation head.
#[derive(Clone, Debug)]
pub struct SegmentationHead {
    prompt_norm: LayerNorm,
    prompt_attention: MultiHead,
    stages: Vec<UpStage>,
    instance: Conv,
    semantic: Conv,
    mask_embed: ReluStack,
}

impl SegmentationHead {
    /// Reads the head below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let d = config.d_model;
        let pixel = weights.pp("pixel_decoder");
        let mut stages = Vec::with_capacity(STAGES);
        for i in 0..STAGES {
            let norm = pixel.pp("norms").pp(i);
            let norm_weight = norm.get(d, "weight")?;
            let norm_bias = norm.get(d, "bias")?;
            let groups = config.groupnorm_groups;
            stages.push(UpStage {
                conv: Conv::new(&pixel.pp("conv_layers").pp(i), d, d, 3)?,
                norm: made(
                    GroupNorm::new(&norm_weight, &norm_bias, groups, GROUP_EPS),
                    &norm,
                )?,
            });
        }
        let reason = "this stage never runs in the reference";
        pixel.leave((d, d, 3, 3), "conv_layers.2.weight", reason);
        pixel.leave(d, "conv_layers.2.bias", reason);
        pixel.leave(d, "norms.2.weight", reason);
        pixel.leave(d, "norms.2.bias", reason);
        Ok(Self {
            prompt_norm: layer_norm(&weights.pp("cross_attn_norm"), d)?,
            prompt_attention: MultiHead::new(&weights.pp("cross_attend_prompt"), d, config.heads)?,
            stages,
            instance: Conv::new(&weights.pp("instance_seg_head"), d, d, 1)?,
            semantic: Conv::new(&weights.pp("semantic_seg_head"), d, 1, 1)?,
            mask_embed: ReluStack::new(&weights.pp("mask_predictor.mask_embed"), &[d, d, d, d])?,
        })
    }

    /// The picture's side of the masks. `memory` is `[b, side * side, d_model]`; `large` and
    /// `middle` are the detection maps at 4 and 2 times its size, `[1, d_model, .., ..]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn pixels(
        &self,
        memory: &Tensor,
        side: usize,
        (large, middle): (&Tensor, &Tensor),
        prompt: &Prompt,
    ) -> crate::Result<PixelMap> {
        let run = || {
            let options = AttentionOptions {
                key_mask: Some(&prompt.mask),
                ..AttentionOptions::default()
            };
            let (tokens, normed) = (&prompt.tokens, self.prompt_norm.forward(memory)?);
            let prompted = self
                .prompt_attention
                .forward(&normed, tokens, tokens, memory, &options)?;
            let (b, _, d) = prompted.dims3()?;
            let map = prompted.transpose(1, 2)?.reshape((b, d, side, side))?;
            let mut pixels = map.contiguous()?;
            for (stage, fine) in self.stages.iter().zip([middle, large]) {
                pixels = stage.forward(&pixels, fine)?;
            }
            Ok(PixelMap {
                instance: self.instance.forward(&pixels)?,
                prompted,
                pixels,
            })
        };
        run().at(STAGE)
    }

    /// Vectors `[b, q, d_model]` that pick each query's object from [`PixelMap::instance`].
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn mask_vectors(&self, queries: &Tensor) -> crate::Result<Tensor> {
        self.mask_embed.forward(queries).at(STAGE)
    }

    /// Mask logits `[q, s, s]` of the queries of one prompt: `instance` is `[d_model, s, s]`,
    /// `vectors` `[q, d_model]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn masks(&self, instance: &Tensor, vectors: &Tensor) -> crate::Result<Tensor> {
        let run = || {
            let (d, h, w) = instance.dims3()?;
            let flat = instance.contiguous()?.reshape((d, h * w))?;
            let q = vectors.dim(0)?;
            vectors.contiguous()?.matmul(&flat)?.reshape((q, h, w))
        };
        run().at(STAGE)
    }

    /// Logits `[b, 1, s, s]` of every pixel belonging to what the phrase names.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn semantic(&self, map: &PixelMap) -> crate::Result<Tensor> {
        self.semantic.forward(&map.pixels).at(STAGE)
    }
}
