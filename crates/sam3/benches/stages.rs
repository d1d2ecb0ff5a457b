//! The detector part by part, on a model small enough for a bench run. The full-size split is
//! measured by the `full_size` example.

use candle_core::{DType, Device, Tensor};
use divan::Bencher;
use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter, WeightReader};
use shelfscan_sam3::{Detector, Sam3Config, Tokenizer};

fn main() {
    divan::main();
}

/// The released structure at a quarter of the width and depth.
fn config() -> Sam3Config {
    Sam3Config {
        image_size: 336,
        vit_dim: 256,
        vit_depth: 8,
        vit_heads: 4,
        vit_global_blocks: vec![3, 7],
        vit_window: 8,
        d_model: 64,
        heads: 8,
        ffn_dim: 256,
        fusion_layers: 3,
        decoder_layers: 3,
        text_width: 128,
        text_heads: 4,
        text_layers: 4,
        ..Sam3Config::sam3_1()
    }
}

fn detector() -> Result<Detector, Box<dyn std::error::Error>> {
    let (config, file) = (config(), tempfile::NamedTempFile::new()?);
    let layout = Detector::layout(&config)?;
    let mut state = 1u32;
    SafetensorsWriter::new(DType::F32).write(file.path(), &layout, |_, out| {
        for v in out {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *v = (state >> 8) as f32 / (1u32 << 24) as f32 * 0.1 - 0.05;
        }
    })?;
    let checkpoint = Checkpoint::open(file.path())?;
    let reader = WeightReader::new(checkpoint, DType::F32, &Device::Cpu);
    Ok(Detector::new(&reader, &config)?.0)
}

/// Runs `work` on the detector and a grey picture, or fails the bench with the reason.
fn bench<T>(
    bencher: Bencher<'_, '_>,
    work: impl Fn(&Detector, &Tensor) -> Result<T, shelfscan_sam3::Error> + Sync,
) {
    let ready = detector().and_then(|detector| {
        let side = detector.config().image_size;
        let picture = Tensor::full(0.1f32, (1, 3, side, side), &Device::Cpu)?;
        work(&detector, &picture)?;
        Ok((detector, picture))
    });
    match ready {
        Ok((detector, picture)) => bencher.bench_local(|| work(&detector, &picture).is_ok()),
        Err(error) => std::panic::panic_any(error.to_string()),
    }
}

#[divan::bench]
fn image_trunk(bencher: Bencher<'_, '_>) {
    bench(bencher, |detector, picture| detector.trunk.forward(picture));
}

#[divan::bench]
fn image_features(bencher: Bencher<'_, '_>) {
    bench(bencher, Detector::image_features);
}

#[divan::bench(args = [1, 4])]
fn phrases(bencher: Bencher<'_, '_>, count: usize) {
    bench(bencher, |detector, _| {
        let tokenizer = Tokenizer::with_merges(&b"#\ni n\n"[..], 1, 32)?;
        detector.text.forward(&vec![tokenizer.encode("in"); count])
    });
}
