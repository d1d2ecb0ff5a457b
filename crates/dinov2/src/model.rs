//! The vision transformer.
//!
//! Reference: `dinov2/models/vision_transformer.py` of facebookresearch/dinov2. Tokens lie as
//! `[b, n, dim]`: class token, registers, patches row by row. Differs: layer scales are multiplied
//! into the layers before them when the weights are read; agreement is to 1e-4 in f32.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, AttentionOptions, LayerNorm, Linear, Mlp, attention},
    weights::{Checkpoint, LoadReport, WeightReader},
};

use crate::{
    Dinov2Config, Error, FeedForward, LoadOptions, Naming, Result,
    error::At,
    names::{Feed, Names},
    positions::Positions,
};

const EPS: f64 = 1e-6;
/// Largest side in patches: 4,200 pixels for patches of 14, far above what the models were made
/// for, and an end to the memory of one picture.
const MAX_SIDE_PATCHES: usize = 300;

/// Reads the parts of a block by the names of a checkpoint.
struct Reader<'a> {
    weights: &'a WeightReader,
    names: Names,
    config: Dinov2Config,
}

impl Reader<'_> {
    fn norm(&self, path: &str) -> Result<LayerNorm> {
        let at = self.weights.pp(path);
        let dim = self.config.dim;
        let (weight, bias) = (at.get(dim, "weight")?, at.get(dim, "bias")?);
        LayerNorm::new(&weight, &bias, EPS).at("building a norm")
    }

    /// Weight `[out, in]` and bias of a layer.
    fn layer(&self, path: &str, out: usize, inner: usize) -> Result<(Tensor, Tensor)> {
        let at = self.weights.pp(path);
        Ok((at.get((out, inner), "weight")?, at.get(out, "bias")?))
    }

    /// A layer with the layer scale after it multiplied in.
    fn scaled(&self, block: usize, path: &str, inner: usize, scale: usize) -> Result<Linear> {
        let dim = self.config.dim;
        let (weight, bias) = self.layer(&self.names.block(block, path), dim, inner)?;
        let scale = self.names.block(block, self.names.scales()[scale]);
        let gamma = self.weights.get(dim, &scale)?;
        let build = || {
            let weight = weight.broadcast_mul(&gamma.reshape((dim, 1))?)?;
            Linear::new(&weight, Some(&(bias * gamma)?))
        };
        build().at("building a layer")
    }

    fn attention(&self, block: usize) -> Result<(Linear, Linear)> {
        let dim = self.config.dim;
        let parts = self.names.attention_in();
        let each = 3 * dim / parts.len();
        let (mut weights, mut biases) = (Vec::new(), Vec::new());
        for part in parts {
            let (weight, bias) = self.layer(&self.names.block(block, part), each, dim)?;
            weights.push(weight);
            biases.push(bias);
        }
        let build = || {
            let (weight, bias) = (Tensor::cat(&weights, 0)?, Tensor::cat(&biases, 0)?);
            Linear::new(&weight, Some(&bias))
        };
        let qkv = build().at("building an attention layer")?;
        let out = self.scaled(block, self.names.attention_out(), dim, 0)?;
        Ok((qkv, out))
    }

    fn feed_forward(&self, block: usize, feed: Feed) -> Result<Mlp> {
        let (dim, hidden) = (self.config.dim, self.config.hidden);
        let linear = |(weight, bias): (Tensor, Tensor)| {
            Linear::new(&weight, Some(&bias)).at("building a layer")
        };
        let path = |name: &str| self.names.block(block, name);
        // The first half of the joined layer is the gate.
        let joined = |name: &str| -> Result<(Linear, Linear)> {
            let (weight, bias) = self.layer(&path(name), 2 * hidden, dim)?;
            let half = |first| {
                let weight = weight.narrow(0, first, hidden)?.contiguous()?;
                Linear::new(&weight, Some(&bias.narrow(0, first, hidden)?.contiguous()?))
            };
            let both = || Ok((half(0)?, half(hidden)?));
            both().at("building a gated layer")
        };
        let mlp = match feed {
            Feed::TwoLayers => {
                let up = linear(self.layer(&path("mlp.fc1"), hidden, dim)?)?;
                let down = self.scaled(block, "mlp.fc2", hidden, 1)?;
                Mlp::new(up, Activation::Gelu, down)
            }
            Feed::Joined | Feed::JoinedHf => {
                let (enter, leave) = if feed == Feed::Joined {
                    ("mlp.w12", "mlp.w3")
                } else {
                    ("mlp.weights_in", "mlp.weights_out")
                };
                let (gate, up) = joined(enter)?;
                let down = self.scaled(block, leave, hidden, 1)?;
                Mlp::gated(gate, Activation::Silu, up, down)
            }
            Feed::Split => {
                let gate = linear(self.layer(&path("mlp.gate_proj"), hidden, dim)?)?;
                let up = linear(self.layer(&path("mlp.up_proj"), hidden, dim)?)?;
                let down = self.scaled(block, "mlp.down_proj", hidden, 1)?;
                Mlp::gated(gate, Activation::Silu, up, down)
            }
        };
        mlp.at("building the feed-forward layers")
    }
}

#[derive(Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    mlp: Mlp,
    heads: usize,
}

impl Block {
    fn read(reader: &Reader<'_>, index: usize, feed: Feed) -> Result<Self> {
        let (qkv, out) = reader.attention(index)?;
        Ok(Self {
            norm1: reader.norm(&reader.names.block(index, "norm1"))?,
            qkv,
            out,
            norm2: reader.norm(&reader.names.block(index, "norm2"))?,
            mlp: reader.feed_forward(index, feed)?,
            heads: reader.config.heads,
        })
    }

    /// `[b, n, dim]` to the same shape.
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let (b, n, dim) = x.dims3()?;
        let qkv = self
            .qkv
            .forward_normed(x, &self.norm1, Activation::Identity)?
            .reshape((b, n, 3, self.heads, dim / self.heads))?;
        let part = |i| qkv.narrow(2, i, 1)?.squeeze(2);
        let seen = attention(
            &part(0)?,
            &part(1)?,
            &part(2)?,
            &AttentionOptions::default(),
        )?;
        let x = self.out.forward_residual(&seen.reshape((b, n, dim))?, x)?;
        self.mlp.forward_residual(&x, &self.norm2)
    }
}

/// Tokens after the last norm.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The class token, `[b, dim]`: the embedding of the picture before it is brought to length 1.
    pub class: Tensor,
    /// The registers, `[b, r, dim]`; `r` may be 0.
    pub registers: Tensor,
    /// The patches row by row, `[b, h / patch * w / patch, dim]`.
    pub patches: Tensor,
}

/// A DINOv2 vision transformer.
#[derive(Debug)]
pub struct Dinov2 {
    config: Dinov2Config,
    naming: Naming,
    report: LoadReport,
    patch_embed: Linear,
    class_token: Tensor,
    registers: Option<Tensor>,
    positions: Positions,
    blocks: Vec<Block>,
    norm: LayerNorm,
}

impl Dinov2 {
    /// Loads a checkpoint in any of the [namings](Naming), safetensors or `.pth`, plain or nested.
    /// Architecture and naming are read off the keys, never off the file's name.
    ///
    /// # Errors
    /// [`Error::Weights`] when the file is broken, when no key fits, or when a key is missing,
    /// left over or of another shape, each named; [`Error::Architecture`] when the keys are of no
    /// known DINOv2.
    pub fn load(
        path: impl AsRef<Path>,
        options: LoadOptions,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        Self::from_checkpoint(Checkpoint::open(path)?, options, dtype, device)
    }

    /// As [`load`](Self::load), for a checkpoint that is open already.
    ///
    /// # Errors
    /// As [`load`](Self::load), but for opening the file.
    pub fn from_checkpoint(
        checkpoint: Checkpoint,
        options: LoadOptions,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let (names, checkpoint) = Names::detect(checkpoint)?;
        let config = Dinov2Config::detect(&checkpoint, names, options)?;
        let feed = names
            .feed(&checkpoint)
            .map_or(Feed::TwoLayers, |(feed, _)| feed);
        let weights = WeightReader::new(checkpoint, dtype, device);
        Self::read(&weights, names, config, feed)
    }

    fn read(
        weights: &WeightReader,
        names: Names,
        config: Dinov2Config,
        feed: Feed,
    ) -> Result<Self> {
        let reader = Reader {
            weights,
            names,
            config,
        };
        let Dinov2Config {
            dim, patch, grid, ..
        } = config;
        let kernel = weights.get((dim, 3, patch, patch), names.patch_weight())?;
        let bias = weights.get(dim, names.patch_bias())?;
        let patch_embed = kernel
            .reshape((dim, 3 * patch * patch))
            .and_then(|kernel| Linear::new(&kernel, Some(&bias)))
            .at("building the patch layer")?;
        let class_token = weights.get((1, 1, dim), names.class_token())?;
        let registers = match config.registers {
            0 => None,
            count => Some(weights.get((1, count, dim), names.registers())?),
        };
        weights.leave((1, dim), names.mask_token(), "used in training alone");
        // Resampled in f32 on the CPU whatever the model's dtype, as both references do.
        let table = weights
            .with_dtype(DType::F32)
            .get((1, 1 + grid * grid, dim), names.positions())?
            .to_device(&Device::Cpu)
            .at("reading the position grid")?;
        let positions = Positions::new(
            &table,
            grid,
            config.positions,
            weights.dtype(),
            weights.device(),
        )?;
        let blocks = (0..config.depth)
            .map(|index| Block::read(&reader, index, feed))
            .collect::<Result<_>>()?;
        let norm = reader.norm(names.norm())?;
        Ok(Self {
            config,
            naming: names.0,
            report: weights.finish()?,
            patch_embed,
            class_token,
            registers,
            positions,
            blocks,
            norm,
        })
    }

    /// The architecture.
    pub fn config(&self) -> &Dinov2Config {
        &self.config
    }

    /// The naming the checkpoint used.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// What the load came to.
    pub fn load_report(&self) -> &LoadReport {
        &self.report
    }

    /// Tokens of normalised pixels, `[b, 3, h, w]` in the dtype of the weights; `h` and `w` are any
    /// multiples of the patch.
    ///
    /// # Errors
    /// [`Error::Size`] for another shape, [`Error::Tensor`] when candle refuses.
    pub fn forward(&self, pixels: &Tensor) -> Result<Tokens> {
        self.forward_stages(pixels, |_, _| {})
    }

    /// As [`forward`](Self::forward), and shows the tokens `[b, 1 + r + n, dim]` after each stage:
    /// 0 is the embedding, `i` the output of block `i`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(
        &self,
        pixels: &Tensor,
        mut seen: impl FnMut(usize, &Tensor),
    ) -> Result<Tokens> {
        let mut x = self.embed(pixels)?;
        seen(0, &x);
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x).at("a block")?;
            seen(i + 1, &x);
        }
        let r = self.config.registers;
        let cut = || {
            let x = self.norm.forward(&x)?;
            let patches = x.dim(1)? - 1 - r;
            Ok(Tokens {
                class: x.narrow(1, 0, 1)?.squeeze(1)?,
                registers: x.narrow(1, 1, r)?,
                patches: x.narrow(1, 1 + r, patches)?,
            })
        };
        cut().at("the last norm")
    }

    /// Class tokens brought to length 1, `[b, dim]` in f32.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn embed_pictures(&self, pixels: &Tensor) -> Result<Tensor> {
        let class = self.forward(pixels)?.class;
        let unit = || {
            let class = class.to_dtype(DType::F32)?;
            let length = class.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?;
            class.broadcast_div(&length.maximum(1e-12)?)
        };
        unit().at("the embedding")
    }

    fn embed(&self, pixels: &Tensor) -> Result<Tensor> {
        let patch = self.config.patch;
        let max = MAX_SIDE_PATCHES * patch;
        let usable = |side: usize| side >= patch && side <= max && side.is_multiple_of(patch);
        let [b, 3, h, w] = *pixels.dims() else {
            return Err(self.wrong_size(pixels));
        };
        if b == 0 || !usable(h) || !usable(w) {
            return Err(self.wrong_size(pixels));
        }
        let positions = self.positions.at_size(h / patch, w / patch)?;
        let build = || {
            let patches = self.patch_embed.forward_patches(pixels, patch)?;
            let dim = self.config.dim;
            let class = self.class_token.broadcast_as((b, 1, dim))?;
            let x = Tensor::cat(&[&class.contiguous()?, &patches], 1)?;
            let x = x.broadcast_add(&positions)?;
            // Registers have no position, so they come in afterwards.
            let Some(registers) = &self.registers else {
                return Ok(x);
            };
            let registers = registers.broadcast_as((b, self.config.registers, dim))?;
            let rest = x.dim(1)? - 1;
            Tensor::cat(
                &[
                    &x.narrow(1, 0, 1)?,
                    &registers.contiguous()?,
                    &x.narrow(1, 1, rest)?,
                ],
                1,
            )
        };
        build().at("the patch embedding")
    }

    fn wrong_size(&self, pixels: &Tensor) -> Error {
        Error::Size {
            shape: pixels.dims().to_vec(),
            patch: self.config.patch,
            max: MAX_SIDE_PATCHES * self.config.patch,
        }
    }

    /// Names and shapes of every tensor of an architecture in the original naming, for writing a
    /// checkpoint.
    ///
    /// # Errors
    /// A dimension does not fit, such as heads that do not divide the channels.
    pub fn tensors_of(
        config: Dinov2Config,
    ) -> Result<Vec<shelfscan_model_kit::weights::TensorSpec>> {
        let weights = WeightReader::recording(DType::F32, &Device::Cpu);
        let feed = match config.feed_forward {
            FeedForward::Gelu => Feed::TwoLayers,
            FeedForward::SwiGlu => Feed::Joined,
        };
        Self::read(&weights, Names(Naming::Original), config, feed)?;
        Ok(weights.specs())
    }
}
