//! Memory attention: what is seen now, in the light of what was remembered.
//!
//! Ported from the description of the decoupled cross-attention encoder in
//! `sam3/model/decoder.py`. Attention is fused, so that no table of scores is ever whole; time and
//! memory grow linearly with the frames remembered.

use candle_core::{D, DType, Result, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, AttentionOptions, LayerNorm, Linear, Mlp, attention},
    weights::WeightReader,
};

use crate::{
    Error, Sam3Config,
    error::AtStage,
    layers::{layer_norm, linear, made},
    position::Rotary,
};

const STAGE: &str = "the memory attention";

/// What the buckets of a state remember, as `m` tokens: for each remembered frame one per cell of
/// the map, then the object pointers, one per slot and frame.
#[derive(Clone, Debug)]
pub struct MemoryTokens {
    /// For each bucket its maps and pointers, `[1, .., c]` of any floating-point type, `m` tokens
    /// together.
    pub buckets: Vec<Vec<Tensor>>,
    /// The pictures of the remembered frames and zeros for the pointers, `[1, m, c]`.
    pub pictures: Tensor,
    /// Where and when, added to the keys, `[1, m, c]`.
    pub positions: Tensor,
    /// How many of the tokens are cells of maps; the pointers are behind them.
    pub cells: usize,
}

impl MemoryTokens {
    /// All of a bucket, `[1, m, c]`.
    fn bucket(parts: &[Tensor], dtype: DType) -> Result<Tensor> {
        let parts: Vec<Tensor> = parts
            .iter()
            .map(|part| part.to_dtype(dtype))
            .collect::<Result<_>>()?;
        Tensor::cat(&parts, 1)
    }
}

#[derive(Clone, Debug)]
struct Layer {
    norm1: LayerNorm,
    qkv: Linear,
    own_out: Linear,
    norm2: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    picture_query: Linear,
    picture_key: Linear,
    norm3: LayerNorm,
    mlp: Mlp,
}

impl Layer {
    fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, hidden) = (config.d_model, config.tracker.mem_ffn);
        let projection = |name: &str| linear(&weights.pp(name), d, d);
        let up = linear(&weights.pp("linear1"), d, hidden)?;
        let down = linear(&weights.pp("linear2"), hidden, d)?;
        Ok(Self {
            norm1: layer_norm(&weights.pp("norm1"), d)?,
            qkv: fused(weights, d)?,
            own_out: projection("self_attn_out_proj")?,
            norm2: layer_norm(&weights.pp("norm2"), d)?,
            query: projection("cross_attn_q_proj")?,
            key: projection("cross_attn_k_proj")?,
            value: projection("cross_attn_v_proj")?,
            out: projection("cross_attn_out_proj")?,
            picture_query: projection("image_cross_attn_q_proj")?,
            picture_key: projection("image_cross_attn_k_proj")?,
            norm3: layer_norm(&weights.pp("norm3"), d)?,
            mlp: made(Mlp::new(up, Activation::Gelu, down), weights)?,
        })
    }

    /// The part of queries and keys that is the same in every bucket.
    fn shared(&self, picture: &Tensor, memory: &MemoryTokens) -> Result<(Tensor, Tensor)> {
        let query = self.picture_query.forward(picture)?;
        let key = self
            .picture_key
            .forward_residual(&memory.pictures, &memory.positions)?;
        Ok((query, key))
    }

    /// One bucket: `x` `[1, n, c]`, `objects` `[1, m, c]`.
    fn forward(
        &self,
        x: &Tensor,
        objects: &Tensor,
        (query, key): &(Tensor, Tensor),
        cells: usize,
        (rotary, heads): (&Rotary, usize),
    ) -> Result<Tensor> {
        let (b, n, c) = x.dims3()?;
        let (m, d) = (objects.dim(1)?, c / heads);
        let qkv = self
            .qkv
            .forward_normed(x, &self.norm1, Activation::Identity)?;
        let qkv = rotary.apply(qkv.reshape((b, n, 3, heads, d))?)?;
        let part = |i: usize| qkv.narrow(2, i, 1)?.squeeze(2);
        let plain = AttentionOptions::default();
        let mixed = attention(&part(0)?, &part(1)?, &part(2)?, &plain)?;
        let x = self
            .own_out
            .forward_residual(&mixed.flatten_from(D::Minus2)?, x)?;

        let normed = self.norm2.forward(&x)?;
        let q = self.query.forward_residual(&normed, query)?;
        let q = rotary.turn(q.reshape((b, n, heads, d))?, n)?;
        let k = self.key.forward_residual(objects, key)?;
        let k = rotary.turn(k.reshape((b, m, heads, d))?, cells)?;
        let v = self.value.forward(objects)?.reshape((b, m, heads, d))?;
        let mixed = attention(&q, &k, &v, &plain)?.flatten_from(D::Minus2)?;
        let x = self.out.forward_residual(&mixed, &x)?;
        self.mlp.forward_residual(&x, &self.norm3)
    }
}

/// The three projections of the self-attention as one.
fn fused(weights: &WeightReader, d: usize) -> crate::Result<Linear> {
    let mut parts = (Vec::with_capacity(3), Vec::with_capacity(3));
    for name in ["self_attn_q_proj", "self_attn_k_proj", "self_attn_v_proj"] {
        let part = weights.pp(name);
        parts.0.push(part.get((d, d), "weight")?);
        parts.1.push(part.get(d, "bias")?);
    }
    let join = || Linear::new(&Tensor::cat(&parts.0, 0)?, Some(&Tensor::cat(&parts.1, 0)?));
    Ok(made(join(), weights)?)
}

/// What the layers make, for comparison; tensors are `[b, n, c]`.
#[derive(Debug)]
pub struct AttentionStages {
    /// After each layer.
    pub layers: Vec<Tensor>,
    /// After the last norm.
    pub out: Tensor,
}

/// The memory attention.
#[derive(Clone, Debug)]
pub struct MemoryAttention {
    layers: Vec<Layer>,
    norm: LayerNorm,
    rotary: Rotary,
    heads: usize,
}

impl MemoryAttention {
    /// Reads the layers below `weights`.
    ///
    /// # Errors
    /// The sizes do not fit, or the weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, heads) = (config.d_model, config.heads);
        if d % (4 * heads) != 0 {
            return Err(Error::Config(format!(
                "d_model {d} is no multiple of heads * 4 {}",
                4 * heads
            )));
        }
        Ok(Self {
            layers: (0..config.tracker.mem_layers)
                .map(|i| Layer::new(&weights.pp("layers").pp(i), config))
                .collect::<crate::Result<_>>()?,
            norm: layer_norm(&weights.pp("norm"), d)?,
            rotary: Rotary::new(config.grid(), d / heads, 1.0),
            heads,
        })
    }

    /// `picture` is the propagation map of the frame as tokens `[1, n, c]`, `positions` its sine
    /// encoding, the same shape. Gives `[buckets, n, c]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(
        &self,
        picture: &Tensor,
        positions: &Tensor,
        memory: &MemoryTokens,
    ) -> crate::Result<Tensor> {
        let no_one = |_: &[Tensor]| Ok(());
        self.run(picture, positions, memory, no_one).at(STAGE)
    }

    /// As [`forward`](Self::forward), with the layers before the last norm.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(
        &self,
        picture: &Tensor,
        positions: &Tensor,
        memory: &MemoryTokens,
    ) -> crate::Result<AttentionStages> {
        let mut layers = Vec::with_capacity(self.layers.len());
        let keep = |buckets: &[Tensor]| {
            layers.push(Tensor::cat(buckets, 0)?);
            Ok(())
        };
        let out = self.run(picture, positions, memory, keep).at(STAGE)?;
        Ok(AttentionStages { layers, out })
    }

    /// `seen` gets every layer's `[1, n, c]` of all buckets.
    fn run(
        &self,
        picture: &Tensor,
        positions: &Tensor,
        memory: &MemoryTokens,
        mut seen: impl FnMut(&[Tensor]) -> Result<()>,
    ) -> Result<Tensor> {
        let start = (picture + (positions * 0.1)?)?;
        let mut buckets = vec![start; memory.buckets.len()];
        for layer in &self.layers {
            let shared = layer.shared(picture, memory)?;
            // One bucket after the other, so that its memory, keys and values exist once at a time.
            for (x, parts) in buckets.iter_mut().zip(&memory.buckets) {
                let objects = MemoryTokens::bucket(parts, x.dtype())?;
                let with = (&self.rotary, self.heads);
                *x = layer.forward(x, &objects, &shared, memory.cells, with)?;
            }
            seen(&buckets)?;
        }
        let normed: Vec<Tensor> = buckets
            .iter()
            .map(|x| self.norm.forward(x))
            .collect::<Result<_>>()?;
        Tensor::cat(&normed, 0)
    }
}

/// How memories are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPrecision {
    /// Rounded to bfloat16, as the reference keeps them; half the room.
    #[default]
    Bf16,
    /// As computed.
    Full,
}

impl MemoryPrecision {
    pub(crate) fn store(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Bf16 => x.to_dtype(DType::BF16),
            Self::Full => Ok(x.clone()),
        }
    }
}
