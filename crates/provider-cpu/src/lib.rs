//! The CPU back end, and SAM 3.1 behind the contract for every device.
//!
//! ```no_run
//! use shelfscan_inference_core::{InferenceProvider, TextPrompt, VideoFrame};
//! use shelfscan_provider_cpu::{CpuDetector, DetectOptions, DetectorSource};
//!
//! # fn run(frame: VideoFrame) -> shelfscan_inference_core::Result<()> {
//! let source = DetectorSource::sam3_1("sam3.1_multiplex.pt");
//! let mut provider = CpuDetector::new(source, DetectOptions::default()); // opens nothing
//! provider.warmup()?;
//! let found = provider.detect_text_prompts(&frame, &[TextPrompt::new("bottle")?])?;
//! # let _ = found;
//! # provider.shutdown()
//! # }
//! ```
//!
//! * [`CpuDetector`] finds and follows; [`CpuDetector::at`] puts it on the card of another back end.
//! * [`Dinov2Embedder`] tells packs apart, [`inspect`] says what a checkpoint is.
//!
//! There are no features. On the CPU models calculate in f32.

mod detector;
mod inspect;

pub use detector::{CpuDetector, DetectorSource};
pub use inspect::{CheckpointLayout, inspect};
pub use shelfscan_model_kit::weights::WeightSource;
pub use shelfscan_provider_kit::{DType, Dinov2Embedder, EmbedderOptions, Placement};
pub use shelfscan_sam3::{DetectOptions, Sam3Config, Tiling, tracker::video::VideoOptions};
