//! The models on the GPU of a Mac against the models on the CPU.
#![cfg(all(feature = "metal", target_os = "macos"))]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use shelfscan_inference_core::{Embedder, RgbImage};
use shelfscan_provider_kit::{DType, Dinov2Embedder, EmbedderOptions};
use shelfscan_provider_metal::{Placement, place, probe};
use shelfscan_testkit::{packs::pack, shared::skip_line};

fn gpu(dtype: DType) -> Option<Placement> {
    match probe().and_then(|_| place(dtype)) {
        Ok(place) => Some(place),
        Err(error) => {
            skip_line(&format!("{error}"));
            None
        }
    }
}

fn embedder(place: Placement) -> Dinov2Embedder {
    let weights =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/dinov2/plain.safetensors");
    let mut options = EmbedderOptions::default();
    options.load.heads = Some(3);
    Dinov2Embedder::at(weights, options, place)
}

fn crops() -> Vec<RgbImage> {
    (0..16).map(|i| pack(i, 0, 40 + i as u32, 70)).collect()
}

#[test]
fn vectors_of_the_gpu_are_those_of_the_cpu() {
    let wanted = embedder(Placement::cpu()).embed(&crops()).unwrap();
    // A sum of a thousand f32 in another order, and 11 or 8 bits of mantissa.
    for (dtype, bar) in [(DType::F32, 1e-5), (DType::F16, 1e-3), (DType::BF16, 1e-2)] {
        let Some(place) = gpu(dtype) else { return };
        let got = embedder(place).embed(&crops()).unwrap();
        for (a, b) in wanted.rows().zip(got.rows()) {
            let dot: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            assert!(1.0 - dot < bar, "{dtype:?}: {dot}");
        }
    }
}

#[test]
fn eight_threads_get_what_one_gets() {
    let Some(place) = gpu(DType::F32) else { return };
    let embedder = embedder(place);
    embedder.warmup().unwrap();
    let wanted = embedder.embed(&crops()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(embedder.embed(&crops()).unwrap(), wanted));
        }
    });
}

#[test]
fn memory_of_the_gpu_is_flat_over_500_batches() {
    let Some(place) = gpu(DType::F32) else { return };
    let embedder = embedder(place);
    let crops = crops();
    let held = || probe().unwrap().allocated_bytes;
    let run = |batches: u32| {
        for _ in 0..batches {
            embedder.embed(&crops).unwrap();
        }
        held()
    };
    // Buffers are kept for the next batch, so that the first ones fill the store.
    let filled = run(50);
    let end = run(500);
    assert!(end <= filled + filled / 20, "{filled} -> {end} bytes");
}
