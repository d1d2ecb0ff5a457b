//! Neck: one trunk map to maps at four, two and one times its size.
//!
//! The model has three necks of the same shape over one trunk; a caller runs the ones it needs.
//! Ported from the description of `sam3/model/necks.py`.

use candle_core::{Result, Tensor};
use shelfscan_model_kit::{ops::gelu, weights::WeightReader};

use crate::{
    Sam3Config,
    error::{AtStage, no_masks},
    layers::{Conv, Deconv},
};

const STAGE: &str = "the neck";

/// Which of the three necks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeckKind {
    /// For the detector.
    Detection,
    /// For masks and clicks that make an object.
    Interactive,
    /// For following objects.
    Propagation,
}

impl NeckKind {
    /// Name of the neck's part of a checkpoint.
    pub fn key(self) -> &'static str {
        match self {
            Self::Detection => "convs",
            Self::Interactive => "interactive_convs",
            Self::Propagation => "propagation_convs",
        }
    }
}

#[derive(Clone, Debug)]
struct Output {
    one: Conv,
    three: Conv,
}

impl Output {
    fn new(weights: &WeightReader, input: usize, output: usize) -> crate::Result<Self> {
        Ok(Self {
            one: Conv::new(&weights.pp("conv_1x1"), input, output, 1)?,
            three: Conv::new(&weights.pp("conv_3x3"), output, output, 3)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.three.forward(&self.one.forward(x)?)
    }
}

/// The two levels finer than the trunk's map, which only masks need.
#[derive(Clone, Debug)]
struct Fine {
    up4: (Deconv, Deconv, Output),
    up2: (Deconv, Output),
}

impl Fine {
    fn new(weights: &WeightReader, dim: usize, out: usize) -> crate::Result<Self> {
        let (w4, w2) = (weights.pp(0), weights.pp(1));
        Ok(Self {
            up4: (
                Deconv::new(&w4.pp("dconv_2x2_0"), dim, dim / 2)?,
                Deconv::new(&w4.pp("dconv_2x2_1"), dim / 2, dim / 4)?,
                Output::new(&w4, dim / 4, out)?,
            ),
            up2: (
                Deconv::new(&w2.pp("dconv_2x2"), dim, dim / 2)?,
                Output::new(&w2, dim / 2, out)?,
            ),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let (first, second, out) = &self.up4;
        let large = out.forward(&second.forward(&gelu(&first.forward(x)?)?)?)?;
        let (up, out) = &self.up2;
        Ok([large, out.forward(&up.forward(x)?)?])
    }
}

/// One neck.
#[derive(Clone, Debug)]
pub struct Neck {
    fine: Option<Fine>,
    up1: Output,
}

impl Neck {
    /// Reads a neck below `weights`, the path of the vision backbone. The detection neck of a model
    /// without masks has its coarse level alone.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config, kind: NeckKind) -> crate::Result<Self> {
        let weights = weights.pp(kind.key());
        let (dim, out) = (config.vit_dim, config.d_model);
        let fine = (config.masks || kind != NeckKind::Detection)
            .then(|| Fine::new(&weights, dim, out))
            .transpose()?;
        Ok(Self {
            fine,
            up1: Output::new(&weights.pp(2), dim, out)?,
        })
    }

    /// `[b, c, h, w]` to maps of `d_model` channels at 4, 2 and 1 times the size, largest first.
    ///
    /// # Errors
    /// The model has no masks, or the tensor library failed.
    pub fn forward(&self, x: &Tensor) -> crate::Result<[Tensor; 3]> {
        let [large, middle] = self.fine(x)?;
        Ok([large, middle, self.coarse(x)?])
    }

    /// The map at the trunk's own size alone, which is all that boxes need.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn coarse(&self, x: &Tensor) -> crate::Result<Tensor> {
        self.up1.forward(x).at(STAGE)
    }

    /// The maps at 4 and 2 times the trunk's size alone.
    ///
    /// # Errors
    /// The model has no masks, or the tensor library failed.
    pub fn fine(&self, x: &Tensor) -> crate::Result<[Tensor; 2]> {
        let Some(fine) = &self.fine else {
            return Err(no_masks());
        };
        fine.forward(x).at(STAGE)
    }
}
