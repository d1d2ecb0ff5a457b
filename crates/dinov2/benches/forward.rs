//! One forward of ViT-S with random weights.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use divan::Bencher;
use shelfscan_dinov2::{Dinov2, Dinov2Config, FeedForward, LoadOptions, PositionGrid};
use shelfscan_model_kit::weights::SafetensorsWriter;

fn main() {
    divan::main();
}

fn small() -> Dinov2 {
    let config = Dinov2Config {
        dim: 384,
        depth: 12,
        heads: 6,
        patch: 14,
        grid: 37,
        registers: 0,
        hidden: 1536,
        feed_forward: FeedForward::Gelu,
        positions: PositionGrid::Offset,
    };
    let specs = Dinov2::tensors_of(config).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut state = 1u32;
    SafetensorsWriter::new(DType::F32)
        .write(file.path(), &specs, |_, out| {
            for v in out {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *v = (state >> 8) as f32 / (1 << 23) as f32 * 0.05;
            }
        })
        .unwrap();
    Dinov2::load(
        file.path(),
        LoadOptions::default(),
        DType::F32,
        &Device::Cpu,
    )
    .unwrap()
}

#[divan::bench(args = [(224, 1), (224, 8), (518, 1)], sample_count = 10)]
fn vit_small(bencher: Bencher<'_, '_>, (side, batch): (usize, usize)) {
    let model = small();
    let x = Tensor::zeros((batch, 3, side, side), DType::F32, &Device::Cpu).unwrap();
    bencher.bench_local(|| model.forward(&x).unwrap());
}
