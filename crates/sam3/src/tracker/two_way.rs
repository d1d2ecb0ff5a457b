//! Two-way transformer: tokens look at the picture and the picture back at them.
//!
//! Ported from the description of `sam3/sam/transformer.py` (Segment Anything, Kirillov et al.
//! 2023). Normalised after every step; the first self-attention has neither positions nor a
//! residual.

use candle_core::{D, Result, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, AttentionOptions, LayerNorm, Linear, Mlp, attention},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    layers::{layer_norm, linear, made},
};

/// Attention with projections of its own width.
#[derive(Clone, Debug)]
struct Projected {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

impl Projected {
    fn new(weights: &WeightReader, d: usize, inner: usize, heads: usize) -> crate::Result<Self> {
        Ok(Self {
            query: linear(&weights.pp("q_proj"), d, inner)?,
            key: linear(&weights.pp("k_proj"), d, inner)?,
            value: linear(&weights.pp("v_proj"), d, inner)?,
            out: linear(&weights.pp("out_proj"), inner, d)?,
            heads,
        })
    }

    fn mix(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let heads = |x: Tensor| {
            let (b, n, c) = x.dims3()?;
            x.reshape((b, n, self.heads, c / self.heads))
        };
        let q = heads(self.query.forward(q)?)?;
        let k = heads(self.key.forward(k)?)?;
        let v = heads(self.value.forward(v)?)?;
        attention(&q, &k, &v, &AttentionOptions::default())?.flatten_from(D::Minus2)
    }

    /// `q` `[b, nq, c]`, `k` and `v` `[b, nk, c]` to `[b, nq, c]`.
    fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.mix(q, k, v)?)
    }

    /// The same on top of `residual`.
    fn forward_onto(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        residual: &Tensor,
    ) -> Result<Tensor> {
        self.out.forward_residual(&self.mix(q, k, v)?, residual)
    }
}

#[derive(Clone, Debug)]
struct Layer {
    own: Projected,
    to_picture: Projected,
    from_picture: Projected,
    mlp: Mlp,
    norms: [LayerNorm; 4],
    first: bool,
}

impl Layer {
    fn new(weights: &WeightReader, config: &Sam3Config, first: bool) -> crate::Result<Self> {
        let (d, heads) = (config.d_model, config.heads);
        let hidden = config.tracker.sam_mlp_dim;
        let up = linear(&weights.pp("mlp.lin1"), d, hidden)?;
        let down = linear(&weights.pp("mlp.lin2"), hidden, d)?;
        let across = |name: &str| Projected::new(&weights.pp(name), d, d / 2, heads);
        let norm = |name: &str| layer_norm(&weights.pp(name), d);
        Ok(Self {
            own: Projected::new(&weights.pp("self_attn"), d, d, heads)?,
            to_picture: across("cross_attn_token_to_image")?,
            from_picture: across("cross_attn_image_to_token")?,
            mlp: made(Mlp::new(up, Activation::Relu, down), weights)?,
            norms: [
                norm("norm1")?,
                norm("norm2")?,
                norm("norm3")?,
                norm("norm4")?,
            ],
            first,
        })
    }

    /// `tokens` `[b, t, c]` with `places` of the same shape, `picture` `[b, n, c]` with its
    /// positions `[1, n, c]`.
    fn forward(
        &self,
        (tokens, places): (&Tensor, &Tensor),
        (picture, positions): (&Tensor, &Tensor),
    ) -> Result<(Tensor, Tensor)> {
        let [norm1, norm2, norm3, norm4] = &self.norms;
        let tokens = if self.first {
            self.own.forward(tokens, tokens, tokens)?
        } else {
            let q = (tokens + places)?;
            self.own.forward_onto(&q, &q, tokens, tokens)?
        };
        let tokens = norm1.forward(&tokens)?;
        let placed = picture.broadcast_add(positions)?;
        let q = (&tokens + places)?;
        let tokens = self
            .to_picture
            .forward_onto(&q, &placed, picture, &tokens)?;
        let tokens = norm2.forward(&tokens)?;
        let tokens = norm3.forward(&(&tokens + self.mlp.forward(&tokens)?)?)?;
        let q = (&tokens + places)?;
        let picture = self
            .from_picture
            .forward_onto(&placed, &q, &tokens, picture)?;
        Ok((tokens, norm4.forward(&picture)?))
    }
}

/// What the layers make of the tokens, for comparison; all `[b, t, c]`.
#[derive(Debug)]
pub struct TwoWayStages {
    /// The tokens as they came in.
    pub start: Tensor,
    /// The tokens after each layer.
    pub layers: Vec<Tensor>,
    /// The tokens at the end.
    pub tokens: Tensor,
    /// The picture at the end, `[b, n, c]`.
    pub picture: Tensor,
}

/// The two-way transformer.
#[derive(Clone, Debug)]
pub(crate) struct TwoWay {
    layers: Vec<Layer>,
    last: Projected,
    norm: LayerNorm,
}

impl TwoWay {
    pub(crate) fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let d = config.d_model;
        let last = weights.pp("final_attn_token_to_image");
        Ok(Self {
            layers: (0..config.tracker.sam_depth)
                .map(|i| Layer::new(&weights.pp("layers").pp(i), config, i == 0))
                .collect::<crate::Result<_>>()?,
            last: Projected::new(&last, d, d / 2, config.heads)?,
            norm: layer_norm(&weights.pp("norm_final_attn"), d)?,
        })
    }

    /// `tokens` `[b, t, c]`, `picture` `[b, n, c]` and its positions `[1, n, c]`.
    pub(crate) fn forward(
        &self,
        start: Tensor,
        picture: &Tensor,
        positions: &Tensor,
    ) -> Result<TwoWayStages> {
        let (mut tokens, mut picture) = (start.clone(), picture.clone());
        let mut layers = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            (tokens, picture) = layer.forward((&tokens, &start), (&picture, positions))?;
            layers.push(tokens.clone());
        }
        let q = (&tokens + &start)?;
        let k = picture.broadcast_add(positions)?;
        let tokens = self.last.forward_onto(&q, &k, &picture, &tokens)?;
        Ok(TwoWayStages {
            start,
            layers,
            tokens: self.norm.forward(&tokens)?,
            picture,
        })
    }
}
