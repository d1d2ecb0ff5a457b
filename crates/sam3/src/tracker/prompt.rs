//! Prompts of the interactive path as tokens: clicks and masks.
//!
//! Ported from the description of `sam3/sam/prompt_encoder.py` (Segment Anything, Kirillov et al.
//! 2023). Places are encoded with random Fourier features.

use candle_core::{DType, Device, Result, Tensor};
use shelfscan_model_kit::{
    ops::{LayerNorm2d, gelu},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    layers::{Conv, pixel_norm},
};

const STAGE: &str = "the prompt encoder of the tracker";

/// What a click says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClickKind {
    /// This is not the object.
    Beside,
    /// This is the object.
    On,
    /// The upper left corner of a box around it; the other corner comes next.
    TopLeft,
    /// The lower right corner of the box.
    BottomRight,
}

/// A click that tells an object from the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Click {
    /// Place in 0 to 1 of the frame, from the left.
    pub x: f32,
    /// Place in 0 to 1 of the frame, from the top.
    pub y: f32,
    /// What it says.
    pub kind: ClickKind,
}

/// Random Fourier features of places (Tancik et al. 2020).
#[derive(Clone, Debug)]
pub(crate) struct RandomPlaces {
    /// `[2][c / 2]`, across and down.
    rows: [Vec<f32>; 2],
}

impl RandomPlaces {
    pub(crate) fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let shape = (2, config.d_model / 2);
        let table = weights
            .with_dtype(DType::F32)
            .get(shape, "positional_encoding_gaussian_matrix")?;
        let row = |i: usize| table.get(i)?.to_device(&Device::Cpu)?.to_vec1();
        Ok(Self {
            rows: [row(0).at(STAGE)?, row(1).at(STAGE)?],
        })
    }

    /// Appends the encoding of a place in 0 to 1.
    fn push(&self, x: f32, y: f32, out: &mut Vec<f32>) {
        let [across, down] = &self.rows;
        let (x, y) = (2.0 * x - 1.0, 2.0 * y - 1.0);
        let angle = |(a, d): (&f32, &f32)| std::f32::consts::TAU * (x * a + y * d);
        out.extend(across.iter().zip(down).map(angle).map(f32::sin));
        out.extend(across.iter().zip(down).map(angle).map(f32::cos));
    }

    /// The middles of a square of cells, `[1, side * side, c]`.
    pub(crate) fn map(&self, side: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        let channels = 2 * self.rows[0].len();
        let middle = |i: usize| (i as f32 + 0.5) / side as f32;
        let mut out = Vec::with_capacity(side * side * channels);
        for y in 0..side {
            for x in 0..side {
                self.push(middle(x), middle(y), &mut out);
            }
        }
        Tensor::from_vec(out, (1, side * side, channels), device)?.to_dtype(dtype)
    }
}

/// The prompt encoder.
#[derive(Clone, Debug)]
pub struct PromptEncoder {
    places: RandomPlaces,
    /// Added to the place of a click, by its kind, `[c]` each.
    kinds: [Vec<f32>; 4],
    /// Stands for no click, `[c]`.
    nowhere: Vec<f32>,
    /// Stands for no mask, `[1, c, 1, 1]`.
    no_mask: Tensor,
    mask: [(Conv, LayerNorm2d); 2],
    mask_out: Conv,
    /// `[1, side * side, c]`.
    positions: Tensor,
    image_size: usize,
    dtype: DType,
    device: Device,
}

impl PromptEncoder {
    /// Reads the encoder below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, c) = (config.d_model, config.tracker.prompt_mask_in_chans);
        let (dtype, device) = (weights.dtype(), weights.device().clone());
        let floats = |name: &str| {
            let row = weights.with_dtype(DType::F32).get((1, d), name)?;
            let row = row
                .flatten_all()
                .and_then(|r| r.to_device(&Device::Cpu)?.to_vec1::<f32>());
            row.at(STAGE)
        };
        let point = |i: usize| floats(&format!("point_embeddings.{i}.weight"));
        let places = RandomPlaces::new(&weights.pp("pe_layer"), config)?;
        let mask = weights.pp("mask_downscaling");
        let halve = |at: usize, input: usize, output: usize| -> crate::Result<_> {
            Ok((
                Conv::strided(&mask.pp(at), (input, output), 2, (2, 0))?,
                pixel_norm(&mask.pp(at + 1), output)?,
            ))
        };
        let positions = places.map(config.grid(), dtype, &device).at(STAGE)?;
        Ok(Self {
            kinds: [point(0)?, point(1)?, point(2)?, point(3)?],
            nowhere: floats("not_a_point_embed.weight")?,
            no_mask: weights
                .get((1, d), "no_mask_embed.weight")?
                .reshape((1, d, 1, 1))
                .at(STAGE)?,
            mask: [halve(0, 1, c / 4)?, halve(3, c / 4, c)?],
            mask_out: Conv::new(&mask.pp(6), c, d, 1)?,
            positions,
            image_size: config.image_size,
            places,
            dtype,
            device,
        })
    }

    /// Encoded places of the token map, `[1, side * side, c]`.
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }

    /// Tokens of the clicks of one object and one for "no box", `[1, clicks + 1, c]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn clicks(&self, clicks: &[Click]) -> crate::Result<Tensor> {
        // Half a pixel is added, since a click names a pixel and not its corner.
        let shift = 0.5 / self.image_size as f32;
        let d = self.nowhere.len();
        let mut out = Vec::with_capacity((clicks.len() + 1) * d);
        for click in clicks {
            let from = out.len();
            self.places.push(click.x + shift, click.y + shift, &mut out);
            let kind = match click.kind {
                ClickKind::Beside => 0,
                ClickKind::On => 1,
                ClickKind::TopLeft => 2,
                ClickKind::BottomRight => 3,
            };
            for (v, add) in out[from..].iter_mut().zip(&self.kinds[kind]) {
                *v += add;
            }
        }
        out.extend_from_slice(&self.nowhere);
        self.tokens(out, clicks.len() + 1)
    }

    /// Tokens for neither a click nor a box, `[1, 2, c]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn no_clicks(&self) -> crate::Result<Tensor> {
        self.tokens(self.nowhere.repeat(2), 2)
    }

    fn tokens(&self, values: Vec<f32>, n: usize) -> crate::Result<Tensor> {
        Tensor::from_vec(values, (1, n, self.nowhere.len()), &self.device)
            .and_then(|t| t.to_dtype(self.dtype))
            .at(STAGE)
    }

    /// Masks `[b, 1, 4 side, 4 side]` as what is added to the picture, `[b, c, side, side]`.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn masks(&self, masks: &Tensor) -> crate::Result<Tensor> {
        let run = || {
            let mut x = masks.clone();
            for (conv, norm) in &self.mask {
                x = gelu(&norm.forward(&conv.forward(&x)?)?)?;
            }
            self.mask_out.forward(&x)
        };
        run().at(STAGE)
    }

    /// What is added to the picture without a mask, `[1, c, 1, 1]`.
    pub fn no_mask(&self) -> &Tensor {
        &self.no_mask
    }
}
