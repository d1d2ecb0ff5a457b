//! Drawn packs, a cheap embedder that counts its calls, and a decoder for tests.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod scene;

use std::{
    fs,
    path::Path,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use shelfscan_gallery::EmbedTools;
use shelfscan_inference_core::{
    Embedder, EmbedderFingerprint, Embeddings, InferenceError, RgbImage,
};

pub(crate) const DIMENSION: usize = 64;

/// Reads any picture the `image` crate knows.
pub(crate) fn decode(path: &Path) -> Result<RgbImage, String> {
    let picture = image::open(path).map_err(|e| e.to_string())?.to_rgb8();
    let (width, height) = picture.dimensions();
    RgbImage::new(width, height, picture.into_raw()).map_err(|e| e.to_string())
}

/// A number that looks random and is the same everywhere.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A drawn pack: the SKU decides the blocks of its face, the view the light and a little noise.
pub(crate) fn pack(sku: u64, view: u64, side: u32) -> RgbImage {
    let light = 0.85 + (mix(view * 31 + sku) % 100) as f32 / 400.0;
    let mut pixels = Vec::with_capacity((side * side * 3) as usize);
    for y in 0..side {
        for x in 0..side {
            let cell = u64::from(y * 8 / side * 8 + x * 8 / side);
            let colour = mix(sku * 1000 + cell);
            // Each part of a face catches the light in its own way.
            let glare = 0.8 + (mix(view * 65_537 + cell) % 100) as f32 / 250.0;
            let noise = mix(view * 7919 + u64::from(y * side + x)) % 12;
            for channel in 0..3 {
                let value = ((colour >> (channel * 8)) & 0xff) as f32 * light * glare * 0.9;
                pixels.push((value + noise as f32).min(255.0) as u8);
            }
        }
    }
    RgbImage::new(side, side, pixels).unwrap()
}

/// Writes a picture without compression, as a portable pixmap.
pub(crate) fn write_picture(path: &Path, picture: &RgbImage) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut bytes = format!("P6\n{} {}\n255\n", picture.width(), picture.height()).into_bytes();
    bytes.extend(picture.pixels());
    fs::write(path, bytes).unwrap();
}

/// A folder of `skus` SKU folders with `views` drawn packs each.
pub(crate) fn draw_skus(root: &Path, skus: u64, views: u64, side: u32) {
    for sku in 0..skus {
        for view in 0..views {
            let path = root.join(format!("sku{sku:04}/view{view}.ppm"));
            write_picture(&path, &pack(sku, view, side));
        }
    }
}

/// An 8x8 grid of colours, projected to 64 numbers of length 1. Counts what it is asked.
pub(crate) struct GridEmbedder {
    pub(crate) fingerprint: EmbedderFingerprint,
    pub(crate) calls: AtomicUsize,
    pub(crate) crops: AtomicUsize,
    pub(crate) warmups: AtomicUsize,
    /// Fails once this many crops were embedded.
    pub(crate) fail_after: usize,
    /// Fails to warm up, as with weights of no use.
    pub(crate) broken: bool,
    /// The crops of the last call.
    pub(crate) last: Mutex<Vec<RgbImage>>,
}

impl Default for GridEmbedder {
    fn default() -> Self {
        Self {
            fingerprint: EmbedderFingerprint {
                model: "grid".into(),
                weights_hash: "0".into(),
                preprocessing: "grid of 8x8 means".into(),
                dimension: DIMENSION,
            },
            calls: AtomicUsize::new(0),
            crops: AtomicUsize::new(0),
            warmups: AtomicUsize::new(0),
            fail_after: usize::MAX,
            broken: false,
            last: Mutex::default(),
        }
    }
}

impl GridEmbedder {
    pub(crate) fn embedded(&self) -> usize {
        self.crops.load(Ordering::SeqCst)
    }

    pub(crate) fn tools(&self) -> EmbedTools<'_> {
        EmbedTools {
            embedder: self,
            decode: &decode,
            progress: None,
        }
    }
}

impl Embedder for GridEmbedder {
    fn fingerprint(&self) -> Result<EmbedderFingerprint, InferenceError> {
        Ok(self.fingerprint.clone())
    }

    fn warmup(&self) -> Result<(), InferenceError> {
        if self.broken {
            return Err(InferenceError::InvalidInput("the weights are cut".into()));
        }
        self.warmups.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn embed(&self, crops: &[RgbImage]) -> Result<Embeddings, InferenceError> {
        assert!(
            self.warmups.load(Ordering::SeqCst) > 0,
            "asked before warm-up"
        );
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.embedded() + crops.len() > self.fail_after {
            return Err(InferenceError::InvalidInput("the power went".into()));
        }
        self.crops.fetch_add(crops.len(), Ordering::SeqCst);
        *self.last.lock().unwrap() = crops.to_vec();
        let values = crops.iter().flat_map(grid_vector).collect();
        Embeddings::new(DIMENSION, values)
    }
}

/// `[DIMENSION, 192]`, the same everywhere.
static PROJECTION: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let cells = (0..DIMENSION as u64).flat_map(|row| (0..192).map(move |i| row * 997 + i));
    cells
        .map(|cell| (mix(cell) % 2001) as f32 - 1000.0)
        .collect()
});

fn grid_vector(crop: &RgbImage) -> Vec<f32> {
    let mut grid = vec![0.0f32; 8 * 8 * 3];
    let mut counts = vec![0.0f32; 64];
    let (w, h) = (crop.width(), crop.height());
    for (i, pixel) in crop.pixels().chunks_exact(3).enumerate() {
        let (x, y) = (i as u32 % w, i as u32 / w);
        let cell = (y * 8 / h * 8 + x * 8 / w) as usize;
        counts[cell] += 1.0;
        for channel in 0..3 {
            grid[cell * 3 + channel] += f32::from(pixel[channel]);
        }
    }
    for (i, value) in grid.iter_mut().enumerate() {
        *value /= counts[i / 3].max(1.0);
    }
    let mean = grid.iter().sum::<f32>() / grid.len() as f32;
    let mut vector: Vec<f32> = PROJECTION
        .chunks_exact(grid.len())
        .map(|row| grid.iter().zip(row).map(|(v, p)| (v - mean) * p).sum())
        .collect();
    let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
    if length == 0.0 {
        vector[0] = 1.0;
        return vector;
    }
    for value in &mut vector {
        *value /= length;
    }
    vector
}
