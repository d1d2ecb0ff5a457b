//! Decoder: queries become boxes, and one token says whether the phrase is in the picture at all.
//!
//! Ported from the description of `TransformerDecoder` in `sam3/model/decoder.py`. Post-norm layers;
//! each refines the boxes of the one before it. At inference there is one set of queries.

use candle_core::{D, DType, Result, Tensor};
use shelfscan_model_kit::{
    ops::{AttentionOptions, BiasRow, LayerNorm, Linear, relu},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    fusion::Prompt,
    layers::{MultiHead, ReluStack, layer_norm, linear},
    position::sine_values,
};

const STAGE: &str = "the decoder";
/// Keeps the logit of a box or score finite; the reference means 1e-3, not the usual 1e-5.
const LOGIT_EPS: f32 = 1e-3;

/// `log(p / (1 - p))` with both sides kept above the model's epsilon.
pub(crate) fn inverse_sigmoid(p: f32) -> f32 {
    let p = p.clamp(0.0, 1.0);
    (p.max(LOGIT_EPS) / (1.0 - p).max(LOGIT_EPS)).ln()
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[derive(Clone, Debug)]
struct Layer {
    self_attention: MultiHead,
    norm2: LayerNorm,
    text_attention: MultiHead,
    text_norm: LayerNorm,
    image_attention: MultiHead,
    norm1: LayerNorm,
    linear1: Linear,
    linear2: Linear,
    norm3: LayerNorm,
}

impl Layer {
    fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, heads) = (config.d_model, config.heads);
        Ok(Self {
            self_attention: MultiHead::new(&weights.pp("self_attn"), d, heads)?,
            norm2: layer_norm(&weights.pp("norm2"), d)?,
            text_attention: MultiHead::new(&weights.pp("ca_text"), d, heads)?,
            text_norm: layer_norm(&weights.pp("catext_norm"), d)?,
            image_attention: MultiHead::new(&weights.pp("cross_attn"), d, heads)?,
            norm1: layer_norm(&weights.pp("norm1"), d)?,
            linear1: linear(&weights.pp("linear1"), d, config.ffn_dim)?,
            linear2: linear(&weights.pp("linear2"), config.ffn_dim, d)?,
            norm3: layer_norm(&weights.pp("norm3"), d)?,
        })
    }

    fn forward(
        &self,
        x: &Tensor,
        positions: &Tensor,
        picture: &Picture<'_>,
        bias: &BoxBias,
    ) -> Result<Tensor> {
        let placed = (x + positions)?;
        let x =
            self.self_attention
                .forward(&placed, &placed, x, x, &AttentionOptions::default())?;
        let x = self.norm2.forward(&x)?;
        let masked = AttentionOptions {
            key_mask: Some(&picture.prompt.mask),
            ..AttentionOptions::default()
        };
        let tokens = &picture.prompt.tokens;
        let x = self
            .text_attention
            .forward(&(&x + positions)?, tokens, tokens, &x, &masked)?;
        let x = self.text_norm.forward(&x)?;
        let add = |row: BiasRow, out: &mut [f32]| bias.add_row(row, out);
        let biased = AttentionOptions {
            bias_fn: Some(&add),
            ..AttentionOptions::default()
        };
        let x = self.image_attention.forward(
            &(&x + positions)?,
            &picture.keys,
            picture.memory,
            &x,
            &biased,
        )?;
        let x = self.norm1.forward(&x)?;
        let hidden = relu(&self.linear1.forward(&x)?)?;
        self.norm3
            .forward(&self.linear2.forward_residual(&hidden, &x)?)
    }
}

struct Picture<'a> {
    memory: &'a Tensor,
    keys: Tensor,
    prompt: &'a Prompt,
}

/// Attention bias of each query from where its box lies, kept as one row and one column a query
/// and head; the full table is their sum and is never stored.
///
/// `bias[b, head, query, (y, x)] = rows[b, head, query, y] + columns[b, head, query, x]`; the token
/// before the queries has none.
#[derive(Clone, Debug)]
pub struct BoxBias {
    /// `[b, heads, queries, side]`.
    rows: Vec<f32>,
    columns: Vec<f32>,
    heads: usize,
    queries: usize,
    side: usize,
}

impl BoxBias {
    fn add_row(&self, row: BiasRow, out: &mut [f32]) {
        // Query 0 is the presence token.
        let Some(query) = row.query.checked_sub(1) else {
            return;
        };
        let at = ((row.batch * self.heads + row.head) * self.queries + query) * self.side;
        let (rows, columns) = (
            &self.rows[at..][..self.side],
            &self.columns[at..][..self.side],
        );
        let mut key = row.first_key;
        let mut rest = out;
        while !rest.is_empty() && key < self.side * self.side {
            let (y, x) = (key / self.side, key % self.side);
            let n = rest.len().min(self.side - x);
            let (line, after) = rest.split_at_mut(n);
            for (cell, column) in line.iter_mut().zip(&columns[x..]) {
                *cell += rows[y] + column;
            }
            rest = after;
            key += n;
        }
    }

    /// The whole table `[b, heads, queries, side * side]`, for comparison with the reference.
    pub fn to_table(&self) -> Vec<f32> {
        let cells = self.side * self.side;
        let mut table = vec![0.0; self.rows.len() / self.side * cells];
        for (i, out) in table.chunks_exact_mut(cells).enumerate() {
            let row = BiasRow {
                batch: i / (self.heads * self.queries),
                head: i / self.queries % self.heads,
                query: i % self.queries + 1,
                first_key: 0,
            };
            self.add_row(row, out);
        }
        table
    }
}

/// What a layer of the decoder gives.
#[derive(Clone, Debug)]
pub struct DecoderLayerOutput {
    /// `[b, q, d_model]` before the shared last norm.
    pub queries: Tensor,
    /// `[b, q, d_model]` after it.
    pub normed: Tensor,
    /// `[b, q, d_model]`, what was added to the queries.
    pub query_positions: Tensor,
    /// `[b, d_model]`, the presence token.
    pub presence_token: Tensor,
    /// The boxes the layer started from, `[b, q]` of `[cx, cy, w, h]` in 0 to 1.
    pub reference_boxes: Vec<[f32; 4]>,
    /// The boxes the layer ended with, `[b, q]`.
    pub boxes: Vec<[f32; 4]>,
    /// `[b]`, the logit of the phrase being in the picture.
    pub presence_logits: Vec<f32>,
    /// The attention bias from the reference boxes.
    pub bias: BoxBias,
}

/// The decoder.
#[derive(Clone, Debug)]
pub struct Decoder {
    layers: Vec<Layer>,
    norm: LayerNorm,
    /// `[q, d_model]`.
    queries: Tensor,
    /// Learned boxes, `[q]`.
    references: Vec<[f32; 4]>,
    presence_token: Tensor,
    presence_norm: LayerNorm,
    presence_head: ReluStack,
    box_head: ReluStack,
    position_head: ReluStack,
    bias_x: ReluStack,
    bias_y: ReluStack,
    heads: usize,
}

impl Decoder {
    /// Reads the decoder below `weights`. Boxes and their bias stay in `f32` whatever the type of
    /// the rest.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, q, heads) = (config.d_model, config.num_queries, config.heads);
        let wide = weights.with_dtype(DType::F32);
        let references = wide.get((q, 4), "reference_points.weight")?;
        let references: Vec<Vec<f32>> = references.to_vec2().at(STAGE)?;
        let layers = (0..config.decoder_layers)
            .map(|i| Layer::new(&weights.pp("layers").pp(i), config))
            .collect::<crate::Result<_>>()?;
        Ok(Self {
            layers,
            norm: layer_norm(&weights.pp("norm"), d)?,
            queries: weights.get((q, d), "query_embed.weight")?,
            references: references
                .iter()
                .map(|r| [0, 1, 2, 3].map(|i| sigmoid(r[i])))
                .collect(),
            presence_token: weights.get((1, d), "presence_token.weight")?,
            presence_norm: layer_norm(&weights.pp("presence_token_out_norm"), d)?,
            presence_head: ReluStack::new(&wide.pp("presence_token_head"), &[d, d, d, 1])?,
            box_head: ReluStack::new(&wide.pp("bbox_embed"), &[d, d, d, 4])?,
            position_head: ReluStack::new(&weights.pp("ref_point_head"), &[2 * d, d, d])?,
            bias_x: ReluStack::new(&wide.pp("boxRPB_embed_x"), &[2, d, heads])?,
            bias_y: ReluStack::new(&wide.pp("boxRPB_embed_y"), &[2, d, heads])?,
            heads,
        })
    }

    /// Runs the decoder for `b` prompts; gives every layer, the last one last.
    ///
    /// `memory` is `[b, side * side, d_model]`, `positions` `[1, side * side, d_model]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(
        &self,
        memory: &Tensor,
        positions: &Tensor,
        side: usize,
        prompt: &Prompt,
    ) -> crate::Result<Vec<DecoderLayerOutput>> {
        self.run(memory, positions, side, prompt).at(STAGE)
    }

    fn run(
        &self,
        memory: &Tensor,
        positions: &Tensor,
        side: usize,
        prompt: &Prompt,
    ) -> Result<Vec<DecoderLayerOutput>> {
        let (b, _, d) = memory.dims3()?;
        let q = self.references.len();
        let picture = Picture {
            memory,
            keys: memory.broadcast_add(positions)?,
            prompt,
        };
        let start = Tensor::cat(&[&self.presence_token, &self.queries], 0)?;
        let mut x = start.broadcast_as((b, q + 1, d))?.contiguous()?;
        let mut boxes: Vec<[f32; 4]> = self.references.repeat(b);
        let mut out = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let query_positions = self.query_positions(&boxes, (b, q, d), memory.dtype())?;
            let bias = self.bias(&boxes, (b, q), side)?;
            let placed = query_positions.pad_with_zeros(1, 1, 0)?;
            x = layer.forward(&x, &placed, &picture, &bias)?;
            let presence_token = x.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?;
            let queries = x.narrow(1, 1, q)?.contiguous()?;
            let normed = self.norm.forward(&queries)?;
            let deltas = self.box_head.forward(&normed.to_dtype(DType::F32)?)?;
            let deltas: Vec<f32> = deltas.flatten_all()?.to_vec1()?;
            let refined = boxes
                .iter()
                .zip(deltas.as_chunks::<4>().0)
                .map(|(r, d)| [0, 1, 2, 3].map(|i| sigmoid(d[i] + inverse_sigmoid(r[i]))))
                .collect();
            let presence = self.presence_norm.forward(&presence_token)?;
            let presence = self
                .presence_head
                .forward(&presence.to_dtype(DType::F32)?)?;
            let reference_boxes = std::mem::replace(&mut boxes, refined);
            out.push(DecoderLayerOutput {
                queries,
                normed,
                query_positions,
                presence_token,
                reference_boxes,
                boxes: boxes.clone(),
                presence_logits: presence.flatten_all()?.to_vec1()?,
                bias,
            });
        }
        Ok(out)
    }

    /// Sine encoding of the boxes, in the order row, column, width, height, through an MLP.
    fn query_positions(
        &self,
        boxes: &[[f32; 4]],
        (b, q, d): (usize, usize, usize),
        dtype: DType,
    ) -> Result<Tensor> {
        let mut waves = Vec::with_capacity(boxes.len() * 2 * d);
        for [cx, cy, w, h] in boxes {
            waves.extend(sine_values(&[*cy, *cx, *w, *h], d / 2));
        }
        let waves = Tensor::from_vec(waves, (b, q, 2 * d), self.queries.device())?;
        self.position_head.forward(&waves.to_dtype(dtype)?)
    }

    fn bias(&self, boxes: &[[f32; 4]], (b, q): (usize, usize), side: usize) -> Result<BoxBias> {
        let axis = |stack: &ReluStack, at: usize| -> Result<Vec<f32>> {
            let mut steps = Vec::with_capacity(boxes.len() * side * 2);
            for r in boxes {
                let (low, high) = (r[at] - 0.5 * r[at + 2], r[at] + 0.5 * r[at + 2]);
                for j in 0..side {
                    let place = j as f32 / side as f32;
                    steps.extend([log_step(place - low), log_step(place - high)]);
                }
            }
            let steps = Tensor::from_vec(steps, (b, q * side, 2), self.queries.device())?;
            stack
                .forward(&steps)?
                .transpose(1, D::Minus1)?
                .flatten_all()?
                .to_vec1()
        };
        Ok(BoxBias {
            columns: axis(&self.bias_x, 0)?,
            rows: axis(&self.bias_y, 1)?,
            heads: self.heads,
            queries: q,
            side,
        })
    }
}

/// Signed distance on a logarithmic scale: 1 for the whole picture's eighth times seven.
fn log_step(distance: f32) -> f32 {
    let scaled = distance * 8.0;
    scaled.signum() * (scaled.abs() + 1.0).log2() / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logit_is_held_at_the_wide_epsilon() {
        let edge = (1f32 / 1e-3).ln();
        assert!((inverse_sigmoid(1.0) - edge).abs() < 1e-4);
        assert!((inverse_sigmoid(-3.0) + edge).abs() < 1e-4);
        assert_eq!(inverse_sigmoid(0.5), 0.0);
    }

    #[test]
    fn a_bias_row_is_the_same_in_parts_and_whole() {
        let bias = BoxBias {
            rows: (0..12).map(|v| v as f32).collect(),
            columns: (0..12).map(|v| v as f32 * 10.0).collect(),
            heads: 2,
            queries: 2,
            side: 3,
        };
        let row = |first_key| BiasRow {
            batch: 0,
            head: 1,
            query: 2,
            first_key,
        };
        let mut whole = [0.0; 9];
        bias.add_row(row(0), &mut whole);
        let mut parts = [0.0; 9];
        bias.add_row(row(0), &mut parts[..4]);
        bias.add_row(row(4), &mut parts[4..]);
        assert_eq!(whole, parts);
        assert_eq!(whole[3], 10.0 + 90.0);
        let mut presence = [0.0; 9];
        bias.add_row(BiasRow { query: 0, ..row(0) }, &mut presence);
        assert_eq!(presence, [0.0; 9]);
    }
}
