//! The CPU back end: SAM 3.1 and DINOv2 behind the inference contracts.

mod detector;
mod inspect;

pub use detector::{CpuDetector, DetectorSource};
pub use inspect::{CheckpointLayout, inspect};
pub use shelfscan_model_kit::weights::WeightSource;
pub use shelfscan_provider_kit::{DType, Dinov2Embedder, EmbedderOptions, Placement};
pub use shelfscan_sam3::{DetectOptions, Sam3Config, Tiling, tracker::video::VideoOptions};
