//! The embedded embedder of packs against the trainer it came from.
//!
//! `training/pack/reference.py` writes the pictures and what PyTorch makes of them.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde::Deserialize;
use shelfscan_gallery::CropPolicy;
use shelfscan_inference_core::{BoxXyxy, Embedder, RgbImage};
use shelfscan_provider_cpu::{Dinov2Embedder, EmbedderOptions};

#[derive(Deserialize)]
struct Reference {
    weights_sha256: String,
    pictures: Vec<Picture>,
    tile: u32,
    skus: usize,
    answers: Vec<usize>,
    scores: Vec<f32>,
    right: usize,
}

#[derive(Deserialize)]
struct Picture {
    file: String,
    #[serde(rename = "box")]
    bbox: Option<[f32; 4]>,
    vector: Vec<f32>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures/pack_tiny").join(name)
}

fn reference() -> Reference {
    serde_json::from_slice(&std::fs::read(fixture("reference.json")).unwrap()).unwrap()
}

fn embedder() -> Dinov2Embedder {
    let weights = root().join("../models/pack-tiny/model.safetensors");
    Dinov2Embedder::new(weights, EmbedderOptions::default())
}

fn picture(name: &str) -> RgbImage {
    let image = image::open(fixture(name)).unwrap().to_rgb8();
    let (width, height) = image.dimensions();
    RgbImage::new(width, height, image.into_raw()).unwrap()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[test]
fn the_reference_was_made_with_the_weights_that_are_here() {
    let fingerprint = embedder().fingerprint().unwrap();
    assert_eq!(fingerprint.model, "dinov2-192x6");
    assert_eq!(fingerprint.dimension, 192);
    assert!(
        fingerprint.preprocessing.contains("stretch-112px"),
        "{fingerprint:?}"
    );
    assert_eq!(
        fingerprint.weights_hash,
        reference().weights_sha256,
        "the weights have changed; run training/pack/reference.py"
    );
}

#[test]
fn crops_of_any_shape_get_the_trainers_vectors() {
    let reference = reference();
    let crops: Vec<RgbImage> = reference
        .pictures
        .iter()
        .map(|row| {
            let picture = picture(&row.file);
            match row.bbox {
                Some([x0, y0, x1, y1]) => CropPolicy::Tight
                    .crop(&picture, &BoxXyxy::new(x0, y0, x1, y1), None)
                    .unwrap(),
                None => picture,
            }
        })
        .collect();
    assert!(crops.iter().any(|crop| crop.width() * 2 < crop.height()));
    assert!(reference.pictures.iter().any(|row| row.bbox.is_some()));
    let vectors = embedder().embed(&crops).unwrap();
    let cosines: Vec<f32> = vectors
        .rows()
        .zip(&reference.pictures)
        .map(|(got, want)| dot(got, &want.vector))
        .collect();
    println!("{cosines:?}");
    assert!(
        cosines.iter().all(|c| (c - 1.0).abs() < 1e-4),
        "{cosines:?}"
    );
    // Packs that have nothing to do with each other are told apart by far more than that.
    for (i, row) in vectors.rows().enumerate() {
        for other in &reference.pictures[i + 1..] {
            assert!(dot(row, &other.vector) < 0.9);
        }
    }
}

#[test]
fn weights_in_half_precision_answer_as_the_unrounded_ones_did() {
    let reference = reference();
    let sheet = picture("sheet.png");
    let tile = reference.tile as f32;
    let rows = sheet.height() / reference.tile;
    let tiles: Vec<RgbImage> = (0..rows)
        .flat_map(|y| (0..reference.skus).map(move |x| (x as f32, y as f32)))
        .map(|(x, y)| {
            let bbox = BoxXyxy::new(x * tile, y * tile, (x + 1.0) * tile, (y + 1.0) * tile);
            sheet.crop(&bbox).unwrap()
        })
        .collect();
    let vectors = embedder().embed(&tiles).unwrap();
    let enrolled: Vec<&[f32]> = vectors.rows().take(reference.skus).collect();
    let mut right = 0;
    for (i, query) in vectors.rows().skip(reference.skus).enumerate() {
        let (answer, score) = enrolled
            .iter()
            .map(|view| dot(query, view))
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap();
        assert_eq!(answer, reference.answers[i], "query {i}");
        let apart = (score - reference.scores[i]).abs();
        assert!(apart < 2e-3, "query {i}: {score}, {}", reference.scores[i]);
        right += usize::from(answer == i % reference.skus);
    }
    assert_eq!(right, reference.right);
    assert!(right * 10 >= reference.answers.len() * 9, "{right}");
}
