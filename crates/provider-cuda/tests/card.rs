//! The models on a card against the models on the CPU; a machine without a card skips it.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use shelfscan_inference_core::{Embedder, InferenceError, RgbImage};
use shelfscan_provider_cuda::{Placement, place, probe};
use shelfscan_provider_kit::{DType, Dinov2Embedder, EmbedderOptions};
use shelfscan_testkit::{packs::pack, shared::skip_line};

fn card(dtype: DType) -> Option<Placement> {
    match probe(0).and_then(|card| place(&card, dtype)) {
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
    (0..20).map(|i| pack(i, 0, 40 + i as u32, 70)).collect()
}

#[test]
fn vectors_of_a_card_are_those_of_the_cpu() {
    let wanted = embedder(Placement::cpu()).embed(&crops()).unwrap();
    // A sum of a thousand f32 in another order, and 11 or 8 bits of mantissa.
    for (dtype, bar) in [(DType::F32, 1e-5), (DType::F16, 1e-3), (DType::BF16, 1e-2)] {
        let Some(place) = card(dtype) else { return };
        let got = embedder(place).embed(&crops()).unwrap();
        for (a, b) in wanted.rows().zip(got.rows()) {
            let dot: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            assert!(1.0 - dot < bar, "{dtype:?}: {dot}");
        }
    }
}

#[test]
fn weights_loaded_by_one_thread_are_right_on_eight_others() {
    let Some(place) = card(DType::F32) else {
        return;
    };
    let embedder = embedder(place);
    std::thread::scope(|scope| scope.spawn(|| embedder.warmup().unwrap()).join().unwrap());
    let wanted = embedder.embed(&crops()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(embedder.embed(&crops()).unwrap(), wanted));
        }
    });
}

#[test]
fn a_card_that_is_not_there_is_refused() {
    match probe(99) {
        Err(InferenceError::DeviceUnavailable { device, remedy, .. }) => {
            assert_eq!(device, "cuda:99");
            assert!(!remedy.is_empty());
        }
        other => panic!("{other:?}"),
    }
}
