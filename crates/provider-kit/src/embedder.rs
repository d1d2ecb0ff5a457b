//! DINOv2 behind the [`Embedder`] contract.

use std::{
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use candle_core::DType;
use shelfscan_dinov2::{Dinov2, LoadOptions};
use shelfscan_inference_core::{
    Embedder, EmbedderFingerprint, Embeddings, InferenceError, Result, RgbImage,
};
use shelfscan_model_kit::{
    preprocess::{FitPolicy, Normalisation, PictureFilter, fit, to_tensor},
    weights::WeightSource,
    weights_error,
};

use crate::Placement;

/// Version of the steps from picture to tensor; part of every fingerprint.
const PREPROCESSING: &str = "dinov2-1";
/// Side of the square input for models whose position grid was learned at a larger one.
const DEFAULT_SIDE_PX: usize = 224;

/// How crops become vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbedderOptions {
    /// Side of the square input in pixels, a multiple of the patch. By default 224, or the size the
    /// position grid was learned at when that is smaller.
    pub side_px: Option<usize>,
    /// How a crop is brought to the square; the whole pack is kept either way.
    pub fit: FitPolicy,
    /// What the checkpoint's keys do not say.
    pub load: LoadOptions,
    /// Crops in one forward; 16 by default. The vectors do not depend on it.
    pub batch: Option<usize>,
}

/// Embeds crops with DINOv2: the class token after the last norm, brought to length 1.
///
/// Crops are resized to a square as Pillow and torchvision do it (bicubic with antialias) and
/// normalised with ImageNet's numbers. Several threads may share one; on a device that cannot be
/// shared everything from moving the crops to reading the vectors back runs alone.
#[derive(Debug)]
pub struct Dinov2Embedder {
    weights: WeightSource,
    options: EmbedderOptions,
    place: Placement,
    loading: Mutex<()>,
    loaded: OnceLock<Loaded>,
    hash: OnceLock<String>,
}

#[derive(Debug)]
struct Loaded {
    model: Dinov2,
    side_px: u32,
}

impl Dinov2Embedder {
    /// An embedder on the CPU; nothing is read before [`warmup`](Embedder::warmup).
    pub fn new(weights: impl Into<WeightSource>, options: EmbedderOptions) -> Self {
        Self::at(weights, options, Placement::cpu())
    }

    /// An embedder somewhere else.
    pub fn at(
        weights: impl Into<WeightSource>,
        options: EmbedderOptions,
        place: Placement,
    ) -> Self {
        Self {
            weights: weights.into(),
            options,
            place,
            loading: Mutex::default(),
            loaded: OnceLock::new(),
            hash: OnceLock::new(),
        }
    }

    /// The checkpoint's path, or the name that stands for one.
    pub fn weights(&self) -> &Path {
        self.weights.path()
    }

    /// The model, loaded by the first caller while the others wait.
    fn loaded(&self) -> Result<&Loaded> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let alone = self.place.enter();
        let device = self.place.device()?;
        let checkpoint = self
            .weights
            .open()
            .map_err(|e| weights_error(e.weights_fault(), e, "DINOv2"))?;
        let load = self.options.load;
        let model = Dinov2::from_checkpoint(checkpoint, load, self.place.dtype(), &device)
            .map_err(|e| weights_error(e.weights_fault(), e, "DINOv2"))?;
        drop(alone);
        let side = self.side_px(&model)?;
        Ok(self.loaded.get_or_init(|| Loaded {
            model,
            side_px: side,
        }))
    }

    fn side_px(&self, model: &Dinov2) -> Result<u32> {
        let config = model.config();
        let by_default = DEFAULT_SIDE_PX.min(config.native_size());
        let side = self
            .options
            .side_px
            .unwrap_or(by_default / config.patch * config.patch);
        if side == 0 || !side.is_multiple_of(config.patch) || side > 4096 {
            return Err(InferenceError::InvalidInput(format!(
                "crops of {side} pixels do not fit patches of {}; pass a multiple of it up to 4096",
                config.patch
            )));
        }
        Ok(side as u32)
    }

    fn forward(&self, loaded: &Loaded, crops: &[RgbImage]) -> Result<Vec<f32>> {
        let norm = Normalisation::IMAGENET;
        let side = loaded.side_px;
        let fitted = crops
            .iter()
            .map(|crop| {
                let filter = PictureFilter::Bicubic;
                fit(crop, side, side, filter, self.options.fit, norm.mean)
            })
            .collect::<Result<Vec<_>, _>>()
            .and_then(|fitted| to_tensor(&fitted, norm))
            .map_err(|e| InferenceError::backend("crop preprocessing", e))?;
        let _alone = self.place.enter();
        let device = self.place.device()?;
        let pixels = fitted
            .to_device(&device)
            .and_then(|p| p.to_dtype(self.place.dtype()))
            .map_err(|e| InferenceError::backend("moving crops to the device", e))?;
        let vectors = loaded
            .model
            .embed_pictures(&pixels)
            .map_err(|e| InferenceError::backend("dinov2", e))?;
        let values: Vec<f32> = vectors
            .flatten_all()
            .and_then(|v| v.to_vec1())
            .map_err(|e| InferenceError::backend("reading embeddings back", e))?;
        if values.iter().any(|v| !v.is_finite()) {
            return Err(InferenceError::NonFinite {
                stage: "dinov2".into(),
            });
        }
        Ok(values)
    }
}

impl Embedder for Dinov2Embedder {
    fn fingerprint(&self) -> Result<EmbedderFingerprint> {
        let loaded = self.loaded()?;
        let hash = if let Some(hash) = self.hash.get() {
            hash.clone()
        } else {
            let hash = self
                .weights
                .open()
                .and_then(|checkpoint| checkpoint.sha256())
                .map_err(|e| weights_error(e.weights_fault(), e, "DINOv2"))?;
            self.hash.get_or_init(|| hash).clone()
        };
        let config = loaded.model.config();
        // Vectors of a narrower type are not those of a gallery made in f32.
        let dtype = match self.place.dtype() {
            DType::F32 => String::new(),
            narrow => format!("/{}", narrow.as_str()),
        };
        Ok(EmbedderFingerprint {
            model: config.to_string(),
            weights_hash: hash,
            preprocessing: format!(
                "{PREPROCESSING}/{}-{}px/bicubic-antialias/imagenet/{:?}-positions/{}-heads{dtype}",
                self.options.fit.name(),
                loaded.side_px,
                config.positions,
                config.heads
            )
            .to_lowercase(),
            dimension: config.dim,
        })
    }

    fn warmup(&self) -> Result<()> {
        if self.loaded.get().is_some() {
            return Ok(());
        }
        let loaded = self.loaded()?;
        let side = loaded.side_px;
        let grey = RgbImage::new(side, side, vec![128; side as usize * side as usize * 3])?;
        self.forward(loaded, &[grey]).map(|_| ())
    }

    fn embed(&self, crops: &[RgbImage]) -> Result<Embeddings> {
        let loaded = self.loaded()?;
        let batch = self.options.batch.unwrap_or(16).max(1);
        let dimension = loaded.model.config().dim;
        let mut values = Vec::with_capacity(crops.len() * dimension);
        for crops in crops.chunks(batch) {
            values.extend(self.forward(loaded, crops)?);
        }
        Embeddings::new(dimension, values)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/dinov2/swiglu.safetensors")
    }

    fn options() -> EmbedderOptions {
        EmbedderOptions {
            load: LoadOptions {
                heads: Some(3),
                ..LoadOptions::default()
            },
            ..EmbedderOptions::default()
        }
    }

    fn crop(width: u32, height: u32, seed: u32) -> RgbImage {
        let mut state = seed;
        let pixels = (0..width * height * 3)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        RgbImage::new(width, height, pixels).unwrap()
    }

    #[test]
    fn crops_of_any_size_give_unit_vectors_that_do_not_depend_on_the_batch() {
        let embedder = Dinov2Embedder::new(fixture(), options());
        let crops: Vec<_> = (1..6).map(|i| crop(40 * i, 250 / i, i)).collect();
        let together = embedder.embed(&crops).unwrap();
        assert_eq!((together.len(), together.dimension()), (5, 48));
        let small = Dinov2Embedder::new(
            fixture(),
            EmbedderOptions {
                batch: Some(2),
                ..options()
            },
        );
        for (a, b) in together.rows().zip(small.embed(&crops).unwrap().rows()) {
            let dot: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            assert!((dot - 1.0).abs() < 1e-5, "{dot}");
        }
        assert!(embedder.embed(&[]).unwrap().is_empty());
    }

    #[test]
    fn the_fingerprint_names_model_file_steps_and_dimension() {
        let print = |options| {
            Dinov2Embedder::new(fixture(), options)
                .fingerprint()
                .unwrap()
        };
        let own = print(options());
        assert_eq!(own.model, "dinov2-48x2");
        assert_eq!(own.weights_hash.len(), 64);
        assert_eq!(own.dimension, 48);
        assert!(own.preprocessing.contains("stretch-98px"), "{own:?}");
        let padded = print(EmbedderOptions {
            fit: FitPolicy::Pad,
            ..options()
        });
        assert_ne!(own.preprocessing, padded.preprocessing);
    }

    #[test]
    fn a_narrower_type_gives_nearly_the_same_vectors_under_another_fingerprint() {
        let crops = [crop(50, 60, 1), crop(80, 40, 2)];
        let wide = Dinov2Embedder::new(fixture(), options());
        let place = Placement::new("cpu", "cpu", DType::BF16, || Ok(candle_core::Device::Cpu));
        let narrow = Dinov2Embedder::at(fixture(), options(), place);
        let (a, b) = (wide.embed(&crops).unwrap(), narrow.embed(&crops).unwrap());
        for (a, b) in a.rows().zip(b.rows()) {
            let dot: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            // Eight bits of mantissa through two blocks of width 48.
            assert!(dot > 0.99 && dot < 1.0 - 1e-7, "{dot}");
        }
        let print = narrow.fingerprint().unwrap();
        assert!(print.preprocessing.ends_with("/bf16"), "{print:?}");
        assert_ne!(print, wide.fingerprint().unwrap());
    }

    #[test]
    fn nothing_is_read_before_warm_up_and_a_missing_file_is_named() {
        let embedder = Dinov2Embedder::new("no/such/model.safetensors", EmbedderOptions::default());
        let text = embedder.warmup().unwrap_err().to_string();
        assert!(text.contains("no/such/model.safetensors"), "{text}");
    }

    #[test]
    fn threads_that_share_one_get_what_one_thread_gets() {
        let embedder = Dinov2Embedder::new(fixture(), options());
        let crops: Vec<_> = (0..8).map(|i| crop(60, 90, i)).collect();
        let results: Vec<_> = std::thread::scope(|scope| {
            let handles: Vec<_> = crops
                .iter()
                .map(|crop| scope.spawn(|| embedder.embed(std::slice::from_ref(crop)).unwrap()))
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        for (crop, got) in crops.iter().zip(results) {
            assert_eq!(embedder.embed(std::slice::from_ref(crop)).unwrap(), got);
        }
    }

    #[test]
    fn heads_that_fit_no_channels_are_refused_with_the_option_to_change() {
        let mut options = options();
        options.load.heads = Some(5);
        let error = Dinov2Embedder::new(fixture(), options)
            .warmup()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("48 channels cannot be cut into 5 heads"),
            "{text}"
        );
        assert!(text.contains("(--embedder-heads)"), "{text}");
    }

    #[test]
    fn a_side_that_fits_no_patch_is_refused_with_the_rule() {
        let options = EmbedderOptions {
            side_px: Some(100),
            ..options()
        };
        let text = Dinov2Embedder::new(fixture(), options)
            .warmup()
            .unwrap_err()
            .to_string();
        assert!(text.contains("patches of 14"), "{text}");
    }
}
