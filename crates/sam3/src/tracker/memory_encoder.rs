//! Masks of a bucket and the picture below them to one memory map.
//!
//! Ported from the description of `sam3/model/memory.py`.

use candle_core::{Result, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, LayerNorm2d, Linear, Mlp, Sampling, gelu, resize_2d},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    layers::{Conv, Depthwise, linear, made, pixel_norm},
};

const STAGE: &str = "the memory encoder";

/// One ConvNeXt block (Liu et al. 2022).
#[derive(Clone, Debug)]
struct Fuser {
    depthwise: Depthwise,
    norm: LayerNorm2d,
    /// `[c]`, on what is added.
    gamma: Tensor,
    mlp: Mlp,
}

impl Fuser {
    fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let d = config.d_model;
        let up: Linear = linear(&weights.pp("pwconv1"), d, 4 * d)?;
        let down = linear(&weights.pp("pwconv2"), 4 * d, d)?;
        Ok(Self {
            depthwise: Depthwise::new(&weights.pp("dwconv"), d, config.tracker.cx_kernel)?,
            norm: pixel_norm(&weights.pp("norm"), d)?,
            gamma: weights.get(d, "gamma")?,
            mlp: made(Mlp::new(up, Activation::Gelu, down), weights)?,
        })
    }

    /// `[b, c, h, w]` to the same shape.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        let normed = self.norm.forward(&self.depthwise.forward(x)?)?;
        let tokens = normed.flatten_from(2)?.transpose(1, 2)?.contiguous()?;
        let added = self.mlp.forward(&tokens)?.broadcast_mul(&self.gamma)?;
        x + added.transpose(1, 2)?.contiguous()?.reshape((b, c, h, w))?
    }
}

/// What the stages of the encoder make, for comparison.
#[derive(Debug)]
pub struct MemoryStages {
    /// The masks brought down to the size of the picture's map, `[b, c, side, side]`.
    pub masks: Tensor,
    /// Picture and masks together, before they are fused.
    pub joined: Tensor,
    /// The memory, `[b, c, side, side]`.
    pub fused: Tensor,
}

/// The memory encoder.
#[derive(Clone, Debug)]
pub struct MemoryEncoder {
    down: Vec<(Conv, LayerNorm2d)>,
    last: Conv,
    picture: Conv,
    fusers: Vec<Fuser>,
    /// Side the masks come in at, 16 times that of the map.
    side: usize,
}

impl MemoryEncoder {
    /// Reads the encoder below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (t, d) = (&config.tracker, config.d_model);
        let encoder = weights.pp("mask_downsampler.encoder");
        // Two input channels an object: its mask, and whether the frame was a condition for it.
        let mut input = 2 * t.multiplex_count;
        let mut output = 4 * t.maskmem_start_chan;
        let mut down = Vec::with_capacity(4);
        for i in 0..4 {
            down.push((
                Conv::strided(&encoder.pp(3 * i), (input, output), 3, (2, 1))?,
                pixel_norm(&encoder.pp(3 * i + 1), output)?,
            ));
            (input, output) = (output, output * 4);
        }
        Ok(Self {
            down,
            last: Conv::new(&encoder.pp(12), input, d, 1)?,
            picture: Conv::new(&weights.pp("pix_feat_proj"), d, d, 1)?,
            fusers: (0..t.fuser_layers)
                .map(|i| Fuser::new(&weights.pp("fuser.layers").pp(i), config))
                .collect::<crate::Result<_>>()?,
            side: config.mask_size() * 4,
        })
    }

    /// Side of the masks that go in without being resized.
    pub fn side(&self) -> usize {
        self.side
    }

    /// `picture` is the propagation map `[1, c, side, side]`, `masks` `[b, 2 * slots, .., ..]`: for
    /// each slot of a bucket the mask in -1 to 1, then for each whether the frame was a condition
    /// for it; unused slots are 0. Gives `[b, c, side, side]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(&self, picture: &Tensor, masks: &Tensor) -> crate::Result<Tensor> {
        Ok(self.forward_stages(picture, masks)?.fused)
    }

    /// As [`forward`](Self::forward), with what comes before it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(&self, picture: &Tensor, masks: &Tensor) -> crate::Result<MemoryStages> {
        self.run(picture, masks).at(STAGE)
    }

    fn run(&self, picture: &Tensor, masks: &Tensor) -> Result<MemoryStages> {
        let (.., h, w) = masks.dims4()?;
        let mut x = if (h, w) == (self.side, self.side) {
            masks.clone()
        } else {
            resize_2d(masks, self.side, self.side, Sampling::bilinear(true))?
        };
        for (conv, norm) in &self.down {
            x = gelu(&norm.forward(&conv.forward(&x)?)?)?;
        }
        let masks = self.last.forward(&x)?;
        let joined = masks.broadcast_add(&self.picture.forward(picture)?)?;
        let mut fused = joined.clone();
        for fuser in &self.fusers {
            fused = fuser.forward(&fused)?;
        }
        Ok(MemoryStages {
            masks,
            joined,
            fused,
        })
    }
}
