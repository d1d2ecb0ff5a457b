//! The tracker's reference: weights, frames and stage tensors.
#![allow(dead_code, unreachable_pub)]

use std::{
    cell::Cell,
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::{DType, Device, Tensor};
use shelfscan_inference_core::RgbImage;
use shelfscan_model_kit::{
    preprocess::{PictureFilter, resize},
    weights::{Checkpoint, WeightReader},
};
use shelfscan_sam3::{
    MaskLogits, Sam3Config,
    tracker::{Tracker, TrackerFeatures},
    vision::VisionTrunk,
};

/// Stage tensors of a safetensors file, flags and integers included.
pub struct Stages {
    tensors: HashMap<String, Tensor>,
    /// Prefixed to keys that have such a variant.
    pub variant: &'static str,
    /// Stages that were compared.
    pub checked: Cell<usize>,
}

impl Stages {
    pub fn open(path: &Path) -> Self {
        Self {
            tensors: candle_core::safetensors::load(path, &Device::Cpu).unwrap(),
            variant: "",
            checked: Cell::new(0),
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.tensors.contains_key(key)
    }

    /// A tensor of any type as `f32`.
    pub fn tensor(&self, key: &str) -> Tensor {
        let variant = self.tensors.get(&format!("{}{key}", self.variant));
        let tensor = variant.or_else(|| self.tensors.get(key));
        let tensor = tensor.unwrap_or_else(|| panic!("no {key} in the reference"));
        tensor.to_dtype(DType::F32).unwrap()
    }

    /// Shape and values.
    pub fn get(&self, key: &str) -> (Vec<usize>, Vec<f32>) {
        let tensor = self.tensor(key);
        (tensor.dims().to_vec(), floats(&tensor))
    }

    pub fn values(&self, key: &str) -> Vec<f32> {
        self.get(key).1
    }

    /// Flags packed along the last axis, first bit highest.
    pub fn bits(&self, key: &str) -> (Vec<usize>, Vec<bool>) {
        let (mut shape, values) = self.get(key);
        if let Some(last) = shape.last_mut() {
            *last *= 8;
        }
        let bits = values
            .iter()
            .flat_map(|v| (0..8).rev().map(|i| (*v as u8) >> i & 1 == 1));
        (shape, bits.collect())
    }

    /// Compares all values of a stage the reference has; a stage that depends on the variant and
    /// is there for another one only is passed over.
    pub fn check(&self, key: &str, got: &Tensor, bar: f32) {
        self.check_values(key, &floats(got), bar);
    }

    pub fn check_values(&self, key: &str, got: &[f32], bar: f32) {
        let carried = !key.starts_with("frame0.") || key.ends_with("maskmem_features");
        let missing = !self.has(&format!("{}{key}", self.variant));
        if missing && (self.variant.is_empty() || carried) {
            return;
        }
        self.checked.set(self.checked.get() + 1);
        close(key, got, &self.values(key), bar);
    }
}

pub fn floats(t: &Tensor) -> Vec<f32> {
    let t = t.to_dtype(DType::F32).unwrap();
    t.flatten_all().unwrap().to_vec1().unwrap()
}

/// Bars the largest gap by `bar` and the mean by a tenth of it.
pub fn close(what: &str, got: &[f32], want: &[f32], bar: f32) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    assert!(!got.is_empty(), "{what} is empty");
    let (mut worst, mut sum) = (0f32, 0f64);
    for (a, b) in got.iter().zip(want) {
        assert!(a.is_finite(), "{what}: a value is not finite");
        worst = worst.max((a - b).abs());
        sum += f64::from((a - b).abs());
    }
    let mean = sum / got.len() as f64;
    assert!(worst <= bar, "{what}: off by {worst}, bar {bar}");
    let bar = f64::from(bar) / 10.0;
    assert!(mean <= bar, "{what}: off by {mean} on average");
}

/// The tracker and the image trunk of one set of weights.
pub struct Model {
    pub tracker: Arc<Tracker>,
    pub trunk: VisionTrunk,
    pub config: Sam3Config,
}

impl Model {
    /// `files` together hold the weights.
    pub fn open(files: &[PathBuf], config: Sam3Config) -> Self {
        let reader = |path: &PathBuf| {
            let checkpoint = Checkpoint::open(path).unwrap();
            WeightReader::new(checkpoint, DType::F32, &Device::Cpu)
        };
        let trunk = reader(&files[0]).pp("detector.backbone.vision_backbone.trunk");
        let tracker = reader(files.last().unwrap());
        Self {
            tracker: Arc::new(Tracker::new(&tracker, &config).unwrap()),
            trunk: VisionTrunk::new(&trunk, &config).unwrap(),
            config,
        }
    }

    /// The features of a frame, scaled and normalised as the reference's video loader does.
    pub fn features(&self, frame: &RgbImage) -> Arc<TrackerFeatures> {
        let side = self.config.image_size as u32;
        let small = resize(frame, side, side, PictureFilter::Bicubic).unwrap();
        self.features_of(&in_half(&small), (frame.width(), frame.height()))
    }

    /// The features of a normalised picture that was a frame of `frame_px`.
    pub fn features_of(&self, picture: &Tensor, frame_px: (u32, u32)) -> Arc<TrackerFeatures> {
        let tokens = self.trunk.forward(picture).unwrap();
        let (grid, c) = (self.config.grid(), self.config.vit_dim);
        let map = tokens.transpose(1, 2).unwrap().contiguous().unwrap();
        let map = map.reshape((1, c, grid, grid)).unwrap();
        Arc::new(TrackerFeatures::new(&map, frame_px).unwrap())
    }
}

/// Normalised in half precision, `[1, 3, h, w]`.
pub fn in_half(picture: &RgbImage) -> Tensor {
    let (w, h) = (picture.width() as usize, picture.height() as usize);
    let levels: Vec<f64> = picture
        .pixels()
        .iter()
        .map(|v| f64::from(*v) / 255.0)
        .collect();
    let levels = Tensor::from_vec(levels, (1, h, w, 3), &Device::Cpu).unwrap();
    // Every step rounds to half precision.
    let halves = levels.to_dtype(DType::F16).unwrap();
    let centred = halves.affine(1.0, -0.5).unwrap().affine(2.0, 0.0).unwrap();
    let planes = centred.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap();
    planes.to_dtype(DType::F32).unwrap()
}

/// Masks as logits of 1 and -1.
pub fn as_logits(shape: &[usize], bits: &[bool]) -> MaskLogits {
    MaskLogits {
        side: *shape.last().unwrap(),
        values: bits.iter().map(|b| if *b { 1.0 } else { -1.0 }).collect(),
    }
}

/// Frame `t` of the reference's video, `[frames, h, w, 3]`.
pub fn frame(frames: &(Vec<usize>, Vec<f32>), t: usize) -> RgbImage {
    let (h, w) = (frames.0[1], frames.0[2]);
    let bytes = frames.1[t * h * w * 3..][..h * w * 3]
        .iter()
        .map(|v| *v as u8);
    RgbImage::new(w as u32, h as u32, bytes.collect()).unwrap()
}
