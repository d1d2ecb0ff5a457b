//! Layers the stages share, made from a [`WeightReader`].

use candle_core::{D, DType, Result, Tensor};
use shelfscan_model_kit::{
    Error,
    ops::{
        Activation, AttentionOptions, Conv2d, ConvTranspose2d, DepthwiseConv2d, LayerNorm,
        LayerNorm2d, Linear, Mlp, attention,
    },
    weights::WeightReader,
};

/// Epsilon of every layer normalisation in the model.
const NORM_EPS: f64 = 1e-5;

type Made<T> = std::result::Result<T, Error>;

/// Turns a failure while a layer is put together into one with its path.
pub(crate) fn made<T>(result: Result<T>, weights: &WeightReader) -> Made<T> {
    result.map_err(|source| Error::Tensor {
        what: format!("putting together {}", weights.key("")),
        source,
    })
}

/// `weight` `[output, input]` and `bias` `[output]`.
pub(crate) fn linear(weights: &WeightReader, input: usize, output: usize) -> Made<Linear> {
    let weight = weights.get((output, input), "weight")?;
    let bias = weights.get(output, "bias")?;
    made(Linear::new(&weight, Some(&bias)), weights)
}

pub(crate) fn layer_norm(weights: &WeightReader, channels: usize) -> Made<LayerNorm> {
    let weight = weights.get(channels, "weight")?;
    let bias = weights.get(channels, "bias")?;
    made(LayerNorm::new(&weight, &bias, NORM_EPS), weights)
}

/// Epsilon of the normalisations over the channels of a map.
const PIXEL_NORM_EPS: f64 = 1e-6;

/// Normalisation over the channels of each pixel of a map.
pub(crate) fn pixel_norm(weights: &WeightReader, channels: usize) -> Made<LayerNorm2d> {
    let weight = weights.get(channels, "weight")?;
    let bias = weights.get(channels, "bias")?;
    made(LayerNorm2d::new(&weight, &bias, PIXEL_NORM_EPS), weights)
}

/// The type convolutions run in: the CPU has none for the 16-bit types, so there they widen.
fn conv_dtype(weights: &WeightReader) -> DType {
    if weights.device().is_cpu() {
        DType::F32
    } else {
        weights.dtype()
    }
}

/// Runs a convolution in its own type and gives the type of its input.
fn in_type(x: &Tensor, inner: DType, run: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.dtype() == inner {
        return run(x);
    }
    run(&x.to_dtype(inner)?)?.to_dtype(x.dtype())
}

/// A convolution with a square kernel.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    conv: Conv2d,
    dtype: DType,
}

impl Conv {
    /// Stride 1, padded so that the size stays.
    pub(crate) fn new(
        weights: &WeightReader,
        input: usize,
        output: usize,
        kernel: usize,
    ) -> Made<Self> {
        Self::strided(weights, (input, output), kernel, (1, kernel / 2))
    }

    /// From `input` to `output` channels with a stride and a padding.
    pub(crate) fn strided(
        weights: &WeightReader,
        (input, output): (usize, usize),
        kernel: usize,
        (stride, padding): (usize, usize),
    ) -> Made<Self> {
        let dtype = conv_dtype(weights);
        let wide = weights.with_dtype(dtype);
        let weight = wide.get((output, input, kernel, kernel), "weight")?;
        let bias = wide.get(output, "bias")?;
        Ok(Self {
            conv: made(Conv2d::new(&weight, Some(&bias), stride, padding), weights)?,
            dtype,
        })
    }

    /// `[b, in, h, w]` to `[b, out, h', w']`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_type(x, self.dtype, |x| self.conv.forward(x))
    }
}

/// A convolution that keeps channels apart, padded so that the size stays.
#[derive(Clone, Debug)]
pub(crate) struct Depthwise {
    conv: DepthwiseConv2d,
    dtype: DType,
}

impl Depthwise {
    pub(crate) fn new(weights: &WeightReader, channels: usize, kernel: usize) -> Made<Self> {
        let dtype = conv_dtype(weights);
        let wide = weights.with_dtype(dtype);
        let weight = wide.get((channels, 1, kernel, kernel), "weight")?;
        let bias = wide.get(channels, "bias")?;
        Ok(Self {
            conv: made(DepthwiseConv2d::new(&weight, &bias, kernel / 2), weights)?,
            dtype,
        })
    }

    /// `[b, c, h, w]` to the same shape.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_type(x, self.dtype, |x| self.conv.forward(x))
    }
}

/// A transposed convolution that doubles both sides.
#[derive(Clone, Debug)]
pub(crate) struct Deconv {
    conv: ConvTranspose2d,
    dtype: DType,
}

impl Deconv {
    pub(crate) fn new(weights: &WeightReader, input: usize, output: usize) -> Made<Self> {
        let dtype = conv_dtype(weights);
        let wide = weights.with_dtype(dtype);
        let weight = wide.get((input, output, 2, 2), "weight")?;
        let bias = wide.get(output, "bias")?;
        Ok(Self {
            conv: made(ConvTranspose2d::new(&weight, Some(&bias)), weights)?,
            dtype,
        })
    }

    /// `[b, in, h, w]` to `[b, out, 2 h, 2 w]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_type(x, self.dtype, |x| self.conv.forward(x))
    }
}

/// The feed-forward half of a transformer layer, `linear1` and `linear2` with ReLU between.
pub(crate) fn feed_forward(weights: &WeightReader, dim: usize, hidden: usize) -> Made<Mlp> {
    let up = linear(&weights.pp("linear1"), dim, hidden)?;
    let down = linear(&weights.pp("linear2"), hidden, dim)?;
    made(Mlp::new(up, Activation::Relu, down), weights)
}

/// Linear layers with ReLU between them, `layers.0`, `layers.1`, ...
#[derive(Clone, Debug)]
pub(crate) struct ReluStack {
    layers: Vec<Linear>,
}

impl ReluStack {
    /// `sizes` are the widths from the input to the output.
    pub(crate) fn new(weights: &WeightReader, sizes: &[usize]) -> Made<Self> {
        let layers = sizes
            .windows(2)
            .enumerate()
            .map(|(i, pair)| linear(&weights.pp("layers").pp(i), pair[0], pair[1]))
            .collect::<Made<_>>()?;
        Ok(Self { layers })
    }

    /// `[.., in]` to `[.., out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            let activation = if i + 1 < self.layers.len() {
                Activation::Relu
            } else {
                Activation::Identity
            };
            x = layer.forward_act(&x, activation)?;
        }
        Ok(x)
    }
}

/// Multi-head attention with one packed input projection, as `torch.nn.MultiheadAttention`.
#[derive(Clone, Debug)]
pub(crate) struct MultiHead {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

impl MultiHead {
    pub(crate) fn new(weights: &WeightReader, dim: usize, heads: usize) -> Made<Self> {
        let weight = weights.get((3 * dim, dim), "in_proj_weight")?;
        let bias = weights.get(3 * dim, "in_proj_bias")?;
        let part = |i: usize| {
            let weight = weight.narrow(0, i * dim, dim)?;
            let bias = bias.narrow(0, i * dim, dim)?.contiguous()?;
            Linear::new(&weight, Some(&bias))
        };
        Ok(Self {
            query: made(part(0), weights)?,
            key: made(part(1), weights)?,
            value: made(part(2), weights)?,
            out: linear(&weights.pp("out_proj"), dim, dim)?,
            heads,
        })
    }

    /// `q` `[b, nq, c]`, `k` and `v` `[b, nk, c]`; gives `residual + attention`, `[b, nq, c]`.
    pub(crate) fn forward(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        residual: &Tensor,
        options: &AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let heads = |x: Tensor| {
            let (b, n, c) = x.dims3()?;
            x.reshape((b, n, self.heads, c / self.heads))
        };
        let q = heads(self.query.forward(q)?)?;
        let k = heads(self.key.forward(k)?)?;
        let v = heads(self.value.forward(v)?)?;
        let mixed = attention(&q, &k, &v, options)?.flatten_from(D::Minus2)?;
        self.out.forward_residual(&mixed, residual)
    }
}
