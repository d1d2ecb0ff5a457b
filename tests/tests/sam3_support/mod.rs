//! What the tests of the detector share: the committed reference and small checkpoints.
#![allow(dead_code, unreachable_pub)]

mod places;
pub mod whole;

use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
pub use places::{fixture, shared, small_config};
use shelfscan_model_kit::weights::{Checkpoint, TensorSpec, WeightReader};
use shelfscan_sam3::Detector;
pub use whole::write_checkpoint;

/// Values kept of each stage tensor, as in the script that cut the fixtures.
const LIMIT: usize = 192;

/// One seed of the committed reference.
pub struct Reference {
    checkpoint: Checkpoint,
    /// The whole tensors, when they lie beside the workspace.
    full: Option<PathBuf>,
}

impl Reference {
    pub fn open(seed: &str) -> Self {
        Self {
            checkpoint: Checkpoint::open(fixture(&format!("{seed}.safetensors"))).unwrap(),
            full: shared(&format!("sam3/fixtures/{seed}")),
        }
    }

    pub fn values(&self, key: &str) -> Vec<f32> {
        let tensor = self.checkpoint.tensor(key, DType::F32, &Device::Cpu);
        tensor.unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    pub fn has(&self, key: &str) -> bool {
        self.checkpoint.info(key).is_some()
    }

    /// The detector's weights as a checkpoint, with a token table that is zero but for the rows the
    /// reference's phrases use.
    pub fn weights(&self) -> Vec<(TensorSpec, Vec<f32>)> {
        let config = small_config();
        let table = "detector.backbone.language_backbone.encoder.token_embedding.weight";
        let mut all = Vec::new();
        for key in self
            .checkpoint
            .keys()
            .filter(|k| k.starts_with("detector."))
        {
            let shape = self.checkpoint.info(key).unwrap().shape.clone();
            let spec = TensorSpec {
                key: key.to_owned(),
                shape,
            };
            all.push((spec, self.values(key)));
        }
        let width = config.text_width;
        let mut rows = vec![0.0; config.vocab_size() * width];
        let values = self.values("token_rows");
        for (id, row) in self
            .values("token_ids")
            .iter()
            .zip(values.chunks_exact(width))
        {
            rows[*id as usize * width..][..width].copy_from_slice(row);
        }
        let shape = vec![config.vocab_size(), width];
        all.push((
            TensorSpec {
                key: table.into(),
                shape,
            },
            rows,
        ));
        all
    }

    pub fn detector(&self, dtype: DType) -> Detector {
        let file = write_checkpoint(&self.weights());
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let reader = WeightReader::new(checkpoint, dtype, &Device::Cpu);
        Detector::new(&reader, &small_config()).unwrap().0
    }

    /// Compares with the kept values of a stage, and with all of them when they are there.
    pub fn check(&self, stage: &str, got: &[f32], bar: f32) {
        assert!(!got.is_empty(), "{stage} is empty");
        let want = self.values(stage);
        let picked: Vec<f32> = got
            .iter()
            .step_by(got.len().div_ceil(LIMIT))
            .copied()
            .collect();
        compare(stage, &picked, &want, bar);
        let (file, key) = stage.split_once('.').unwrap();
        if let Some(full) = &self.full {
            let whole = Checkpoint::open(full.join(format!("{file}.safetensors"))).unwrap();
            // Flags are stored as bytes, which are no weights; the kept values cover them.
            if let Ok(want) = whole.tensor(key, DType::F32, &Device::Cpu) {
                compare(stage, got, &floats(&want), bar);
            }
        }
    }

    pub fn check_tensor(&self, stage: &str, got: &Tensor, bar: f32) {
        self.check(stage, &floats(got), bar);
    }
}

pub fn floats(t: &Tensor) -> Vec<f32> {
    let t = t.to_dtype(DType::F32).unwrap();
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn compare(stage: &str, got: &[f32], want: &[f32], bar: f32) {
    assert_eq!(got.len(), want.len(), "{stage}: number of values");
    let gaps = got.iter().zip(want).map(|(a, b)| (a - b).abs());
    let (mut worst, mut sum) = (0f32, 0f64);
    for gap in gaps {
        assert!(gap.is_finite(), "{stage}: a value is not finite");
        worst = worst.max(gap);
        sum += f64::from(gap);
    }
    let mean = sum / got.len() as f64;
    assert!(worst <= bar, "{stage}: off by {worst}, bar {bar}");
    assert!(
        mean <= f64::from(bar) / 10.0,
        "{stage}: off by {mean} on average"
    );
}

/// The reference's picture, normalised in half precision as its video loader does.
pub fn picture() -> Tensor {
    let image = image::open(fixture("frame.png")).unwrap().to_rgb8();
    let (w, h) = (image.width() as usize, image.height() as usize);
    let half = half::f16::from_f32(0.5);
    let mut planes = vec![0f32; 3 * w * h];
    for (x, y, pixel) in image.enumerate_pixels() {
        for (c, level) in pixel.0.iter().enumerate() {
            let unit = half::f16::from_f64(f64::from(*level) / 255.0);
            planes[(c * h + y as usize) * w + x as usize] = ((unit - half) / half).to_f32();
        }
    }
    Tensor::from_vec(planes, (1, 3, h, w), &Device::Cpu).unwrap()
}
