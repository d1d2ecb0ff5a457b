//! Mask decoder: tokens for objects and masks meet the picture and become masks.
//!
//! One structure serves both of the model's decoders. The propagation decoder answers for a bucket
//! of objects at once (`sam3/model/multiplex_mask_decoder.py`), the interactive one for a single
//! object with its prompt (`sam3/sam/mask_decoder.py`). Masks are drawn only for the tokens that
//! are chosen.

use candle_core::{Result, Tensor};
use shelfscan_model_kit::{
    ops::{LayerNorm2d, gelu},
    weights::WeightReader,
};

use super::two_way::{TwoWay, TwoWayStages};
use crate::{
    Sam3Config,
    error::AtStage,
    layers::{Conv, Deconv, ReluStack, pixel_norm},
};

const STAGE: &str = "the mask decoder of the tracker";

/// Which of the two decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderKind {
    /// A bucket of objects, [`TrackerConfig::num_multimask`](crate::TrackerConfig::num_multimask)
    /// masks each.
    Propagation,
    /// One object, one mask and as many as above for an ambiguous prompt.
    Interactive,
}

/// What the decoder thinks before it draws.
#[derive(Debug)]
pub struct Decoded {
    /// Logit of each object being in the picture, `[b, objects]`.
    pub scores: Tensor,
    /// How good each mask is thought to be, `[b, objects, masks]`.
    pub qualities: Tensor,
    /// The token behind each mask, `[b, objects, masks, c]`.
    pub tokens: Tensor,
    /// The transformer's own stages.
    pub stages: TwoWayStages,
}

/// Pictures finer than the token map, for drawing: `[1, c / 8, 4 s, 4 s]` and `[1, c / 4, 2 s, 2 s]`.
pub type FineMaps = (Tensor, Tensor);

/// A mask decoder.
#[derive(Clone, Debug)]
pub struct MaskDecoder {
    objects: usize,
    masks: usize,
    transformer: TwoWay,
    /// Score, quality and mask tokens, `[1, objects * (2 + masks), c]`.
    tokens: Tensor,
    up: (Deconv, LayerNorm2d, Deconv),
    fine: (Conv, Conv),
    hyper: Vec<ReluStack>,
    quality: ReluStack,
    score: ReluStack,
}

impl MaskDecoder {
    /// Reads a decoder below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(
        weights: &WeightReader,
        config: &Sam3Config,
        kind: DecoderKind,
    ) -> crate::Result<Self> {
        let (t, d) = (&config.tracker, config.d_model);
        let (objects, masks) = match kind {
            DecoderKind::Propagation => (t.multiplex_count, t.num_multimask),
            DecoderKind::Interactive => (1, t.num_multimask + 1),
        };
        let hidden = t.iou_head_hidden;
        let hyper = weights.pp("output_hypernetworks_mlps");
        let parts = [
            weights.get((objects, d), "obj_score_token.weight")?,
            weights.get((objects, d), "iou_token.weight")?,
            weights.get((objects * masks, d), "mask_tokens.weight")?,
        ];
        let up = weights.pp("output_upscaling");
        Ok(Self {
            objects,
            masks,
            transformer: TwoWay::new(&weights.pp("transformer"), config)?,
            tokens: Tensor::cat(&parts, 0)
                .and_then(|t| t.unsqueeze(0))
                .at(STAGE)?,
            up: (
                Deconv::new(&up.pp(0), d, d / 4)?,
                pixel_norm(&up.pp(1), d / 4)?,
                Deconv::new(&up.pp(3), d / 4, d / 8)?,
            ),
            fine: (
                Conv::new(&weights.pp("conv_s0"), d, d / 8, 1)?,
                Conv::new(&weights.pp("conv_s1"), d, d / 4, 1)?,
            ),
            hyper: (0..masks)
                .map(|i| ReluStack::new(&hyper.pp(i), &[d, d, d, d / 8]))
                .collect::<std::result::Result<_, _>>()?,
            quality: ReluStack::new(
                &weights.pp("iou_prediction_head"),
                &[d, hidden, hidden, masks],
            )?,
            score: ReluStack::new(&weights.pp("pred_obj_score_head"), &[d, d, d, 1])?,
        })
    }

    /// What drawing needs of a neck's maps at 4 and 2 times the token map, `[1, c, .., ..]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn fine_maps(&self, [large, middle]: &[Tensor; 2]) -> crate::Result<FineMaps> {
        let run = || Ok((self.fine.0.forward(large)?, self.fine.1.forward(middle)?));
        run().at(STAGE)
    }

    /// Looks at `picture` `[b, n, c]` with its positions `[1, n, c]`. `extra` `[b, objects, c]` is
    /// added to the mask tokens of each object, `prompt` `[b, k, c]` is put behind the tokens.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn decode(
        &self,
        picture: &Tensor,
        positions: &Tensor,
        extra: Option<&Tensor>,
        prompt: Option<&Tensor>,
    ) -> crate::Result<Decoded> {
        self.look(picture, positions, extra, prompt).at(STAGE)
    }

    fn look(
        &self,
        picture: &Tensor,
        positions: &Tensor,
        extra: Option<&Tensor>,
        prompt: Option<&Tensor>,
    ) -> Result<Decoded> {
        let (b, _, d) = picture.dims3()?;
        let (objects, masks) = (self.objects, self.masks);
        let tokens = self.tokens.broadcast_as((b, objects * (2 + masks), d))?;
        let mut parts = vec![tokens.narrow(1, 0, 2 * objects)?];
        let drawn = tokens.narrow(1, 2 * objects, objects * masks)?;
        parts.push(match extra {
            None => drawn,
            Some(extra) => drawn
                .reshape((b, objects, masks, d))?
                .broadcast_add(&extra.unsqueeze(2)?)?
                .reshape((b, objects * masks, d))?,
        });
        parts.extend(prompt.cloned());
        let start = Tensor::cat(&parts, 1)?;
        let stages = self.transformer.forward(start, picture, positions)?;
        let part = |from: usize, n: usize| stages.tokens.narrow(1, from, n)?.contiguous();
        let scores = self.score.forward(&part(0, objects)?)?.squeeze(2)?;
        let qualities = self.quality.forward(&part(objects, objects)?)?;
        let tokens = part(2 * objects, objects * masks)?.reshape((b, objects, masks, d))?;
        Ok(Decoded {
            scores,
            qualities,
            tokens,
            stages,
        })
    }

    /// Draws the masks `chosen`, as `(row of the batch, object, mask)`, in the order given:
    /// `[chosen, side, side]` logits with `side` four times that of the token map.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn draw(
        &self,
        decoded: &Decoded,
        fine: &FineMaps,
        chosen: &[(usize, usize, usize)],
    ) -> crate::Result<Tensor> {
        self.paint(decoded, fine, chosen).at(STAGE)
    }

    fn paint(
        &self,
        decoded: &Decoded,
        fine: &FineMaps,
        chosen: &[(usize, usize, usize)],
    ) -> Result<Tensor> {
        let (b, n, d) = decoded.stages.picture.dims3()?;
        let side = n.isqrt();
        let vectors: Vec<Tensor> = self
            .hyper
            .iter()
            .enumerate()
            .map(|(mask, hyper)| {
                let tokens = decoded.tokens.narrow(2, mask, 1)?.contiguous()?;
                hyper.forward(&tokens)
            })
            .collect::<Result<_>>()?;
        // `[b * objects * masks, c / 8]`.
        let vectors = Tensor::cat(&vectors, 2)?.reshape(((), d / 8))?;
        let (first, norm, second) = &self.up;
        let mut drawn = Vec::with_capacity(b);
        let mut order = Vec::with_capacity(chosen.len());
        for row in 0..b {
            let mine = (0..chosen.len()).filter(|i| chosen[*i].0 == row);
            let mine: Vec<usize> = mine.collect();
            if mine.is_empty() {
                continue;
            }
            let picture = decoded.stages.picture.narrow(0, row, 1)?;
            let map = picture.transpose(1, 2)?.contiguous()?;
            let map = map.reshape((1, d, side, side))?;
            let map = gelu(&norm.forward(&(first.forward(&map)? + &fine.1)?)?)?;
            let map = gelu(&(second.forward(&map)? + &fine.0)?)?;
            let (_, c, h, w) = map.dims4()?;
            let at = |i: &usize| {
                let (row, object, mask) = chosen[*i];
                ((row * self.objects + object) * self.masks + mask) as u32
            };
            let ids: Vec<u32> = mine.iter().map(at).collect();
            let ids = Tensor::from_vec(ids, mine.len(), vectors.device())?;
            let vectors = vectors.index_select(&ids, 0)?;
            let masks = vectors.matmul(&map.reshape((c, h * w))?)?;
            drawn.push(masks.reshape((mine.len(), h, w))?);
            order.extend(mine);
        }
        let drawn = Tensor::cat(&drawn, 0)?;
        if order.is_sorted() {
            return Ok(drawn);
        }
        let mut back = vec![0u32; order.len()];
        for (from, to) in order.iter().enumerate() {
            back[*to] = from as u32;
        }
        let back = Tensor::from_vec(back, order.len(), drawn.device())?;
        drawn.index_select(&back, 0)
    }
}
