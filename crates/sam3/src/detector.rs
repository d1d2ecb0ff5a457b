//! The detector: a picture and phrases to scored boxes and masks.

use std::sync::OnceLock;

use candle_core::{DType, Device, Tensor};
use shelfscan_model_kit::weights::{LoadReport, TensorSpec, WeightReader};

use crate::{
    Error, Result, Sam3Config,
    decoder::{Decoder, DecoderLayerOutput},
    error::{AtStage, no_masks},
    fusion::{FusionEncoder, Prompt},
    geometry::{Exemplars, GeometryEncoder},
    position::sine_map,
    scoring::{Scoring, joint_logit, joint_probability},
    segmentation::{PixelMap, SegmentationHead},
    text::{TextEncoder, TextFeatures},
    tracker_layout,
    vision::{Neck, NeckKind, VisionTrunk},
};

/// What the detector computes once for a picture, whatever is asked about it.
#[derive(Debug)]
pub struct ImageFeatures {
    /// The trunk's map `[1, c, side, side]`, from which further necks may be run.
    pub trunk: Tensor,
    /// The detection map of the trunk's size as tokens `[1, side * side, d_model]`.
    pub tokens: Tensor,
    /// The detection maps at 4 and 2 times the trunk's size, made at the first mask.
    fine: OnceLock<[Tensor; 2]>,
    /// The part of the fusion encoder that no prompt enters, made at the first prompt.
    prepared: OnceLock<Tensor>,
    side: usize,
}

/// Answers of the detector for the prompts of one picture, before any threshold.
#[derive(Debug)]
pub struct Grounding {
    /// Every decoder layer, the last one last.
    pub layers: Vec<DecoderLayerOutput>,
    /// Scores `[b][q]` of the last layer, without presence.
    pub scores: Vec<Vec<f32>>,
    /// What the fusion encoder made of picture and prompts, `[b, side * side, d_model]`.
    pub memory: Tensor,
    prompt: Prompt,
}

impl Grounding {
    /// Prompts.
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// True when nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Logit of each phrase being in the picture.
    pub fn presence(&self) -> &[f32] {
        self.layers.last().map_or(&[], |l| &l.presence_logits)
    }

    /// Boxes of prompt `b`, `[cx, cy, w, h]` in 0 to 1 of the picture.
    pub fn boxes(&self, b: usize) -> &[[f32; 4]] {
        let q = self.scores.get(b).map_or(0, Vec::len);
        self.layers
            .last()
            .and_then(|l| l.boxes.get(b * q..(b + 1) * q))
            .unwrap_or(&[])
    }

    /// Logits of prompt `b` with presence, as the video detector has them.
    pub fn joint_logits(&self, b: usize) -> Vec<f32> {
        self.joint(b, joint_logit)
    }

    /// Probabilities of prompt `b` with presence, as the image API has them.
    pub fn probabilities(&self, b: usize) -> Vec<f32> {
        self.joint(b, joint_probability)
    }

    fn joint(&self, b: usize, join: impl Fn(f32, f32) -> f32) -> Vec<f32> {
        match (self.scores.get(b), self.presence().get(b)) {
            (Some(scores), Some(p)) => scores.iter().map(|s| join(*s, *p)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Mask logits of some queries of one prompt.
#[derive(Debug)]
pub struct MaskLogits {
    /// Side of a mask.
    pub side: usize,
    /// `[queries, side * side]`, row by row.
    pub values: Vec<f32>,
}

impl MaskLogits {
    /// One mask, row by row.
    pub fn mask(&self, i: usize) -> &[f32] {
        let n = self.side * self.side;
        self.values.get(i * n..(i + 1) * n).unwrap_or(&[])
    }
}

/// The detector half of SAM 3.1.
#[derive(Clone, Debug)]
pub struct Detector {
    /// Image trunk.
    pub trunk: VisionTrunk,
    /// Detection neck.
    pub neck: Neck,
    /// Text encoder.
    pub text: TextEncoder,
    /// Geometry encoder.
    pub geometry: GeometryEncoder,
    /// Fusion encoder.
    pub fusion: FusionEncoder,
    /// Decoder.
    pub decoder: Decoder,
    /// Scoring head.
    pub scoring: Scoring,
    /// Segmentation head, unless the model has no masks.
    pub segmentation: Option<SegmentationHead>,
    /// Sine encoding of the smallest map, `[1, side * side, d_model]`.
    pub positions: Tensor,
    config: Sam3Config,
    dtype: DType,
    device: Device,
}

impl Detector {
    /// Builds the detector from canonical names (`detector...` and `tracker.model...`) and settles
    /// the reader's account. A checkpoint without any tracker weight is taken as a detector alone.
    ///
    /// # Errors
    /// The sizes do not make a model, or the weights are not exactly the ones it needs.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> Result<(Self, LoadReport)> {
        let detector = Self::build(weights, config)?;
        let report = weights.finish()?;
        Ok((detector, report))
    }

    /// Names and shapes of every weight of a model of these sizes, tracker included, in
    /// alphabetical order.
    ///
    /// # Errors
    /// The sizes do not make a model.
    pub fn layout(config: &Sam3Config) -> Result<Vec<TensorSpec>> {
        // Half precision keeps the operators from packing weights, so that nothing is allocated.
        let weights = WeightReader::recording(DType::F16, &Device::Cpu);
        Self::build(&weights, config)?;
        Ok(weights.specs())
    }

    fn build(weights: &WeightReader, config: &Sam3Config) -> Result<Self> {
        config.validate()?;
        let w = weights.pp("detector");
        let vision = w.pp("backbone.vision_backbone");
        let tracker = weights.pp("tracker.model");
        if tracker.has("maskmem_tpos_enc") || vision.has("propagation_convs.0.conv_1x1.weight") {
            tracker_layout::expect(&vision, &tracker, config);
        }
        let transformer = w.pp("transformer");
        let (dtype, device) = (weights.dtype(), weights.device().clone());
        let side = config.grid();
        Ok(Self {
            trunk: VisionTrunk::new(&vision.pp("trunk"), config)?,
            neck: Neck::new(&vision, config, NeckKind::Detection)?,
            text: TextEncoder::new(&w.pp("backbone.language_backbone"), config)?,
            geometry: GeometryEncoder::new(&w.pp("geometry_encoder"), config)?,
            fusion: FusionEncoder::new(&transformer.pp("encoder"), config)?,
            decoder: Decoder::new(&transformer.pp("decoder"), config)?,
            scoring: Scoring::new(&w.pp("dot_prod_scoring"), config)?,
            segmentation: config
                .masks
                .then(|| SegmentationHead::new(&w.pp("segmentation_head"), config))
                .transpose()?,
            positions: sine_map(side, side, config.d_model, dtype, &device)
                .at("the position encoding")?,
            config: config.clone(),
            dtype,
            device,
        })
    }

    /// The sizes.
    pub fn config(&self) -> &Sam3Config {
        &self.config
    }

    /// True when the weights lie in main memory.
    pub(crate) fn on_cpu(&self) -> bool {
        self.device.is_cpu()
    }

    /// Where the model runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The features of a normalised picture `[1, 3, s, s]` of any floating-point type.
    ///
    /// # Errors
    /// The picture has another size, or a value came out not finite.
    pub fn image_features(&self, picture: &Tensor) -> Result<ImageFeatures> {
        const STAGE: &str = "the image encoder";
        let picture = picture
            .to_dtype(self.dtype)
            .and_then(|p| p.to_device(&self.device))
            .at(STAGE)?;
        self.features_from_trunk(&self.trunk.forward(&picture)?)
    }

    /// The features that follow from the trunk's tokens `[1, side * side, c]`.
    ///
    /// # Errors
    /// A value came out not finite, or the tensor library failed.
    pub fn features_from_trunk(&self, tokens: &Tensor) -> Result<ImageFeatures> {
        const STAGE: &str = "the image encoder";
        let side = self.config.grid();
        let trunk = tokens
            .transpose(1, 2)
            .and_then(|t| t.reshape((1, self.config.vit_dim, side, side)))
            .and_then(|t| t.contiguous())
            .at(STAGE)?;
        let coarse = self.neck.coarse(&trunk)?;
        let tokens = coarse
            .flatten_from(2)
            .and_then(|t| t.transpose(1, 2)?.contiguous())
            .at(STAGE)?;
        check_finite(&tokens, "the image encoder")?;
        Ok(ImageFeatures {
            trunk,
            tokens,
            fine: OnceLock::new(),
            prepared: OnceLock::new(),
            side,
        })
    }

    /// Asks about several prompts at once. `exemplars` is empty, or holds one entry a phrase.
    ///
    /// # Errors
    /// The counts differ, or a value came out not finite.
    pub fn ground(
        &self,
        image: &ImageFeatures,
        text: &TextFeatures,
        exemplars: &[Exemplars],
    ) -> Result<Grounding> {
        let prompt = self.prompt(image, text, exemplars)?;
        let prepared = if let Some(prepared) = image.prepared.get() {
            prepared
        } else {
            let made = self.fusion.prepare(&image.tokens, &self.positions)?;
            image.prepared.get_or_init(|| made)
        };
        let memory = self.fusion.forward(prepared, &self.positions, &prompt)?;
        let layers = self
            .decoder
            .forward(&memory, &self.positions, image.side, &prompt)?;
        let Some(last) = layers.last() else {
            return Err(Error::Config("the decoder has no layer".into()));
        };
        let scores = self.scoring.forward(&last.normed, &prompt)?;
        let scores: Vec<Vec<f32>> = scores.to_vec2().at("the scoring head")?;
        let finite = scores.iter().flatten().all(|s| s.is_finite())
            && last.presence_logits.iter().all(|p| p.is_finite())
            && last.boxes.iter().flatten().all(|v| v.is_finite());
        if !finite {
            return Err(Error::NonFinite {
                stage: "the decoder",
            });
        }
        Ok(Grounding {
            layers,
            scores,
            memory,
            prompt,
        })
    }

    /// Text and geometry tokens of each phrase, one after the other.
    ///
    /// # Errors
    /// The counts differ.
    pub fn prompt(
        &self,
        image: &ImageFeatures,
        text: &TextFeatures,
        exemplars: &[Exemplars],
    ) -> Result<Prompt> {
        const STAGE: &str = "the prompt";
        let (b, t) = text.mask.dims2().at(STAGE)?;
        if !exemplars.is_empty() && exemplars.len() != b {
            return Err(Error::InvalidInput(format!(
                "{b} phrases came with exemplars for {}",
                exemplars.len()
            )));
        }
        let none = Exemplars::default();
        let mut rows: Vec<Tensor> = Vec::with_capacity(b);
        for i in 0..b {
            // Without exemplars all phrases share one class token.
            if exemplars.is_empty() && i > 0 {
                rows.push(rows[0].clone());
                continue;
            }
            let own = exemplars.get(i).unwrap_or(&none);
            let tokens = self
                .geometry
                .forward(&image.tokens, &self.positions, image.side, own)?;
            rows.push(tokens);
        }
        let longest = rows.iter().map(|r| r.dims()[1]).max().unwrap_or(0);
        let join = || {
            let mut mask = Vec::with_capacity(b * longest);
            let mut padded = Vec::with_capacity(b);
            for row in &rows {
                let n = row.dim(1)?;
                mask.extend((0..longest).map(|j| u8::from(j < n)));
                padded.push(row.pad_with_zeros(1, 0, longest - n)?);
            }
            let geometry = Tensor::cat(&padded, 0)?;
            let mask = Tensor::from_vec(mask, (b, longest), text.mask.device())?;
            Ok(Prompt {
                tokens: Tensor::cat(&[&text.tokens, &geometry], 1)?,
                mask: Tensor::cat(&[&text.mask, &mask], 1)?,
            })
        };
        debug_assert!(t > 0);
        join().at(STAGE)
    }

    /// The detection maps at 4 and 2 times the trunk's size, `[1, d_model, .., ..]`. They are made
    /// when they are first asked for, because boxes do without them.
    ///
    /// # Errors
    /// The model has no masks, or the tensor library failed.
    pub fn fine_maps<'a>(&self, image: &'a ImageFeatures) -> Result<&'a [Tensor; 2]> {
        if let Some(fine) = image.fine.get() {
            return Ok(fine);
        }
        let made = self.neck.fine(&image.trunk)?;
        Ok(image.fine.get_or_init(|| made))
    }

    fn segmentation(&self) -> Result<&SegmentationHead> {
        self.segmentation.as_ref().ok_or_else(no_masks)
    }

    /// The picture's side of the masks, for prompt `b` of an answer.
    ///
    /// # Errors
    /// The model has no masks, or the tensor library failed.
    pub fn pixels(&self, image: &ImageFeatures, found: &Grounding, b: usize) -> Result<PixelMap> {
        let one = |t: &Tensor| t.narrow(0, b, 1)?.contiguous();
        let memory = one(&found.memory).at("the mask head")?;
        let prompt = Prompt {
            tokens: one(&found.prompt.tokens).at("the mask head")?,
            mask: one(&found.prompt.mask).at("the mask head")?,
        };
        let [large, middle] = self.fine_maps(image)?;
        self.segmentation()?
            .pixels(&memory, image.side, (large, middle), &prompt)
    }

    /// Mask logits of the named queries of prompt `b`; only these are drawn.
    ///
    /// # Errors
    /// The model has no masks, a query does not exist, or a value is not finite.
    pub fn masks(
        &self,
        image: &ImageFeatures,
        found: &Grounding,
        b: usize,
        queries: &[usize],
    ) -> Result<MaskLogits> {
        const STAGE: &str = "the mask head";
        let side = self.config.mask_size();
        let Some(last) = found.layers.last().filter(|_| !queries.is_empty()) else {
            return Ok(MaskLogits {
                side,
                values: Vec::new(),
            });
        };
        let map = self.pixels(image, found, b)?;
        let ids: Vec<u32> = queries.iter().map(|q| *q as u32).collect();
        let picked = Tensor::from_vec(ids, queries.len(), &self.device)
            .and_then(|ids| last.normed.get(b)?.contiguous()?.index_select(&ids, 0))
            .at(STAGE)?;
        let segmentation = self.segmentation()?;
        let vectors = segmentation.mask_vectors(&picked)?;
        let instance = map.instance.squeeze(0).at(STAGE)?;
        let masks = segmentation.masks(&instance, &vectors)?;
        let values: Vec<f32> = masks
            .to_dtype(DType::F32)
            .and_then(|m| m.flatten_all()?.to_vec1())
            .at(STAGE)?;
        if values.iter().any(|v| !v.is_finite()) {
            return Err(Error::NonFinite { stage: STAGE });
        }
        Ok(MaskLogits { side, values })
    }
}

fn check_finite(x: &Tensor, stage: &'static str) -> Result<()> {
    // One NaN or infinity makes the sum one, and a sum of finite features stays far from overflow.
    let sum = x
        .to_dtype(DType::F32)
        .and_then(|x| x.abs()?.sum_all()?.to_scalar::<f32>())
        .at(stage)?;
    if sum.is_finite() {
        Ok(())
    } else {
        Err(Error::NonFinite { stage })
    }
}
