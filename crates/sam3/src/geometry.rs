//! Geometry encoder: boxes and points of a prompt to tokens.
//!
//! Ported from the description of `SequenceGeometryEncoder` in `sam3/model/geometry_encoders.py`.
//! Without boxes and points the sequence is one class token.

use candle_core::{DType, Result, Tensor};
use shelfscan_model_kit::{
    ops::{AttentionOptions, LayerNorm, Linear, Mlp},
    weights::WeightReader,
};

use crate::{
    Sam3Config,
    error::AtStage,
    layers::{MultiHead, feed_forward, layer_norm, linear, made},
    position::sine_values,
    roi_align::{roi_align, sample_points},
};

const STAGE: &str = "the geometry encoder";

/// A box shown as an example: the object is like it, or is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExemplarBox {
    /// Centre and size in 0 to 1 of the picture: `[cx, cy, w, h]`.
    pub cxcywh: [f32; 4],
    /// False for a counter-example.
    pub positive: bool,
}

/// A point shown as an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExemplarPoint {
    /// `[x, y]` in 0 to 1 of the picture.
    pub xy: [f32; 2],
    /// False for a counter-example.
    pub positive: bool,
}

/// Boxes and points of one prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exemplars {
    /// Example boxes.
    pub boxes: Vec<ExemplarBox>,
    /// Example points.
    pub points: Vec<ExemplarPoint>,
}

#[derive(Clone, Debug)]
struct Layer {
    norm1: LayerNorm,
    self_attention: MultiHead,
    norm2: LayerNorm,
    image_attention: MultiHead,
    norm3: LayerNorm,
    mlp: Mlp,
}

impl Layer {
    fn forward(&self, x: &Tensor, image: &Tensor, image_keys: &Tensor) -> Result<Tensor> {
        let plain = AttentionOptions::default();
        let n = self.norm1.forward(x)?;
        let x = self.self_attention.forward(&n, &n, &n, x, &plain)?;
        let n = self.norm2.forward(&x)?;
        let x = self
            .image_attention
            .forward(&n, image_keys, image, &x, &plain)?;
        self.mlp.forward_residual(&x, &self.norm3)
    }
}

/// What the encoder computed on its way, for comparison with the reference. Tokens are
/// `[1, n, d_model]`.
#[derive(Clone, Debug)]
pub struct GeometryStages {
    /// `[boxes, d_model, roi, roi]`, when there is a box.
    pub pooled: Option<Tensor>,
    /// `[points, d_model]`, when there is a point.
    pub sampled: Option<Tensor>,
    /// Before the first layer.
    pub before: Tensor,
    /// After each layer.
    pub layers: Vec<Tensor>,
    /// What goes on.
    pub tokens: Tensor,
}

/// The geometry encoder.
#[derive(Clone, Debug)]
pub struct GeometryEncoder {
    labels: Tensor,
    class_token: Tensor,
    point_direct: Linear,
    point_pool: Linear,
    point_position: Linear,
    box_direct: Linear,
    /// The pooling convolution covers its whole input, so it is a linear layer.
    box_pool: Linear,
    box_position: Linear,
    image_norm: LayerNorm,
    final_proj: Linear,
    norm: LayerNorm,
    layers: Vec<Layer>,
    encode_norm: LayerNorm,
    roi: usize,
}

impl GeometryEncoder {
    /// Reads the encoder below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (d, roi) = (config.d_model, config.roi_size);
        let kernel = weights.get((d, d, roi, roi), "boxes_pool_project.weight")?;
        let kernel = made(kernel.reshape((d, d * roi * roi)), weights)?;
        let bias = weights.get(d, "boxes_pool_project.bias")?;
        let mut layers = Vec::with_capacity(config.geometry_layers);
        for i in 0..config.geometry_layers {
            let w = weights.pp("encode").pp(i);
            layers.push(Layer {
                norm1: layer_norm(&w.pp("norm1"), d)?,
                self_attention: MultiHead::new(&w.pp("self_attn"), d, config.heads)?,
                norm2: layer_norm(&w.pp("norm2"), d)?,
                image_attention: MultiHead::new(&w.pp("cross_attn_image"), d, config.heads)?,
                norm3: layer_norm(&w.pp("norm3"), d)?,
                mlp: feed_forward(&w, d, config.ffn_dim)?,
            });
        }
        Ok(Self {
            labels: weights.get((2, d), "label_embed.weight")?,
            class_token: weights.get((1, d), "cls_embed.weight")?,
            point_direct: linear(&weights.pp("points_direct_project"), 2, d)?,
            point_pool: linear(&weights.pp("points_pool_project"), d, d)?,
            point_position: linear(&weights.pp("points_pos_enc_project"), d, d)?,
            box_direct: linear(&weights.pp("boxes_direct_project"), 4, d)?,
            box_pool: made(Linear::new(&kernel, Some(&bias)), weights)?,
            box_position: linear(&weights.pp("boxes_pos_enc_project"), d + 2, d)?,
            image_norm: layer_norm(&weights.pp("img_pre_norm"), d)?,
            final_proj: linear(&weights.pp("final_proj"), d, d)?,
            norm: layer_norm(&weights.pp("norm"), d)?,
            layers,
            encode_norm: layer_norm(&weights.pp("encode_norm"), d)?,
            roi,
        })
    }

    /// Tokens `[1, points + boxes + 1, d_model]` of one prompt on one picture.
    ///
    /// `image` are the tokens `[1, side * side, d_model]` of the picture, `positions` their sine
    /// encoding of the same shape.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn forward(
        &self,
        image: &Tensor,
        positions: &Tensor,
        side: usize,
        exemplars: &Exemplars,
    ) -> crate::Result<Tensor> {
        Ok(self
            .forward_stages(image, positions, side, exemplars)?
            .tokens)
    }

    /// As [`forward`](Self::forward), keeping every stage.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(
        &self,
        image: &Tensor,
        positions: &Tensor,
        side: usize,
        exemplars: &Exemplars,
    ) -> crate::Result<GeometryStages> {
        self.run(image, positions, side, exemplars).at(STAGE)
    }

    fn run(
        &self,
        image: &Tensor,
        positions: &Tensor,
        side: usize,
        exemplars: &Exemplars,
    ) -> Result<GeometryStages> {
        let dtype = image.dtype();
        let d = image.dim(2)?;
        let (mut pooled, mut sampled) = (None, None);
        let mut parts = Vec::new();
        if !exemplars.boxes.is_empty() || !exemplars.points.is_empty() {
            let normed = self.image_norm.forward(image)?.to_dtype(DType::F32)?;
            let map: Vec<f32> = normed.squeeze(0)?.t()?.flatten_all()?.to_vec1()?;
            let size = (d, side, side);
            if !exemplars.points.is_empty() {
                let (tokens, values) = self.points(&map, size, &exemplars.points, dtype)?;
                parts.push(tokens);
                sampled = Some(values);
            }
            if !exemplars.boxes.is_empty() {
                let (tokens, values) = self.boxes(&map, size, &exemplars.boxes, dtype)?;
                parts.push(tokens);
                pooled = Some(values);
            }
        }
        parts.push(self.class_token.clone());
        let tokens = Tensor::cat(&parts, 0)?.unsqueeze(0)?;
        let before = self.norm.forward(&self.final_proj.forward(&tokens)?)?;
        let keys = (image + positions)?;
        let mut layers = Vec::with_capacity(self.layers.len());
        let mut x = before.clone();
        for layer in &self.layers {
            x = layer.forward(&x, image, &keys)?;
            layers.push(x.clone());
        }
        Ok(GeometryStages {
            pooled,
            sampled,
            before,
            layers,
            tokens: self.encode_norm.forward(&x)?,
        })
    }

    fn points(
        &self,
        map: &[f32],
        size: (usize, usize, usize),
        points: &[ExemplarPoint],
        dtype: DType,
    ) -> Result<(Tensor, Tensor)> {
        let device = self.labels.device();
        let (n, d) = (points.len(), size.0);
        let xy: Vec<[f32; 2]> = points.iter().map(|p| p.xy).collect();
        // Columns come first here, rows first for boxes.
        let waves = sine_values(xy.as_flattened(), d / 2);
        let direct = Tensor::from_slice(xy.as_flattened(), (n, 2), device)?.to_dtype(dtype)?;
        let sampled = Tensor::from_vec(sample_points(map, size, &xy), (n, d), device)?;
        let waves = Tensor::from_vec(waves, (n, d), device)?.to_dtype(dtype)?;
        let tokens = (self.point_direct.forward(&direct)?
            + self.point_pool.forward(&sampled.to_dtype(dtype)?)?
            + self.point_position.forward(&waves)?
            + self.labels(points.iter().map(|p| p.positive))?)?;
        Ok((tokens, sampled))
    }

    fn boxes(
        &self,
        map: &[f32],
        size: (usize, usize, usize),
        boxes: &[ExemplarBox],
        dtype: DType,
    ) -> Result<(Tensor, Tensor)> {
        let device = self.labels.device();
        let (n, (d, h, w)) = (boxes.len(), size);
        let (mut direct, mut waves, mut corners) = (Vec::new(), Vec::new(), Vec::new());
        for ExemplarBox { cxcywh, .. } in boxes {
            let [cx, cy, bw, bh] = *cxcywh;
            direct.extend_from_slice(cxcywh);
            waves.extend(sine_values(&[cy, cx], d / 2));
            waves.extend([bh, bw]);
            let (w, h) = (w as f32, h as f32);
            corners.push([
                (cx - 0.5 * bw) * w,
                (cy - 0.5 * bh) * h,
                (cx + 0.5 * bw) * w,
                (cy + 0.5 * bh) * h,
            ]);
        }
        let direct = Tensor::from_vec(direct, (n, 4), device)?.to_dtype(dtype)?;
        let waves = Tensor::from_vec(waves, (n, d + 2), device)?.to_dtype(dtype)?;
        let pooled = roi_align(map, size, &corners, self.roi);
        let pooled = Tensor::from_vec(pooled, (n, d, self.roi, self.roi), device)?;
        let tokens = (self.box_direct.forward(&direct)?
            + self
                .box_pool
                .forward(&pooled.flatten_from(1)?.to_dtype(dtype)?)?
            + self.box_position.forward(&waves)?
            + self.labels(boxes.iter().map(|b| b.positive))?)?;
        Ok((tokens, pooled))
    }

    fn labels(&self, positive: impl Iterator<Item = bool>) -> Result<Tensor> {
        let ids: Vec<u32> = positive.map(u32::from).collect();
        let n = ids.len();
        let ids = Tensor::from_vec(ids, n, self.labels.device())?;
        self.labels.index_select(&ids, 0)
    }
}
