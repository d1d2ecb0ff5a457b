//! The CPU back end: SAM 3.1 and DINOv2 behind the inference contracts.

mod detector;
mod embedder;

pub use detector::{CpuDetector, DetectorSource};
pub use embedder::{Dinov2Embedder, EmbedderOptions};
pub use shelfscan_model_kit::weights::WeightSource;
pub use shelfscan_sam3::{DetectOptions, Sam3Config, Tiling};
