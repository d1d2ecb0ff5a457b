//! Checkpoints: safetensors and PyTorch files, read so that no tensor is lost or left over unseen.
//!
//! [`Checkpoint`] lists what a file holds without reading tensor data; [`WeightReader`] hands the
//! tensors to a model by path and shape and accounts for every one of them.

mod checkpoint;
mod decode;
mod entry;
mod hash;
mod mapped;
mod nearest;
mod pickle;
mod reader;
mod safetensors_file;
mod source;
mod torch_entries;
mod torch_file;
mod write;

pub use checkpoint::Checkpoint;
pub use entry::{SourceDtype, TensorInfo, TensorPart, TensorPlan};
pub use reader::{LoadReport, TensorSpec, WeightReader};
pub use source::WeightSource;
pub use write::SafetensorsWriter;
