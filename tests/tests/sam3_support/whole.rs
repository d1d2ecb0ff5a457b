//! Small checkpoints: written from values, or all weights of a small model where the reference lies
//! beside the workspace.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;

use candle_core::{DType, Device};
use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter, TensorSpec};

/// The weights of a fixture folder with the token table all folders share, in one checkpoint.
pub fn whole_checkpoint(all: &Path, folder: &str) -> tempfile::NamedTempFile {
    let model = format!("{folder}/model.safetensors");
    let mut weights: Vec<(TensorSpec, Vec<f32>)> = Vec::new();
    for file in ["common/token_embedding.safetensors", &model] {
        let checkpoint = Checkpoint::open(all.join(file)).unwrap();
        for key in checkpoint.keys() {
            let tensor = checkpoint.tensor(key, DType::F32, &Device::Cpu).unwrap();
            let spec = TensorSpec {
                key: key.to_owned(),
                shape: tensor.dims().to_vec(),
            };
            weights.push((spec, tensor.flatten_all().unwrap().to_vec1().unwrap()));
        }
    }
    weights.sort_by(|a, b| a.0.key.cmp(&b.0.key));
    write_checkpoint(&weights)
}

/// Writes weights in f32 to a temporary safetensors file.
pub fn write_checkpoint(weights: &[(TensorSpec, Vec<f32>)]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let specs: Vec<TensorSpec> = weights.iter().map(|(spec, _)| spec.clone()).collect();
    let (mut last, mut at) = (usize::MAX, 0);
    SafetensorsWriter::new(DType::F32)
        .write(file.path(), &specs, |i, out| {
            if i != last {
                (last, at) = (i, 0);
            }
            out.copy_from_slice(&weights[i].1[at..at + out.len()]);
            at += out.len();
        })
        .unwrap();
    file
}
