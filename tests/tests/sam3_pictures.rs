//! What must not change a detection: how a picture is stored, turned, or what else is asked about it.
#![allow(clippy::unwrap_used)]

mod sam3_support;

use std::{io::Cursor, path::Path};

use candle_core::DType;
use image::{
    DynamicImage, ImageEncoder, ImageFormat, codecs::png::PngEncoder, metadata::Orientation,
};
use sam3_support::{Reference, fixture, floats, small_config};
use shelfscan_inference_core::{Detection, RgbImage, TextPrompt};
use shelfscan_model_kit::preprocess::{Normalisation, PictureFilter, resize, to_tensor};
use shelfscan_sam3::{DetectOptions, Sam3, Tokenizer};
use shelfscan_video::{Limits, load_picture};

fn model() -> Sam3 {
    let detector = Reference::open("seed0").detector(DType::F32);
    let tokenizer = Tokenizer::new(small_config().context_length).unwrap();
    Sam3::new(detector, tokenizer)
}

fn drawn() -> DynamicImage {
    // Not square, so that a picture that lies on its side is seen.
    image::open(fixture("frame.png"))
        .unwrap()
        .crop_imm(0, 0, 224, 168)
}

fn rgb(picture: &DynamicImage) -> RgbImage {
    let pixels = picture.to_rgb8();
    RgbImage::new(pixels.width(), pixels.height(), pixels.into_raw()).unwrap()
}

fn find(
    model: &Sam3,
    picture: &RgbImage,
    phrases: &[&str],
    options: &DetectOptions,
) -> Vec<Detection> {
    let prompts: Vec<TextPrompt> = phrases
        .iter()
        .map(|p| TextPrompt::new(p).unwrap())
        .collect();
    model.detect(picture, &prompts, options).unwrap().detections
}

/// A random model is sure of nothing, so everything is let through.
fn loose() -> DetectOptions {
    DetectOptions {
        score_threshold: 0.2,
        masks: false,
        ..DetectOptions::default()
    }
}

fn worst_gap(a: &[Detection], b: &[Detection]) -> f32 {
    assert_eq!(a.len(), b.len());
    let corners = |d: &Detection| <[f32; 4]>::from(d.bbox);
    let pairs = a.iter().zip(b).flat_map(|(a, b)| {
        assert_eq!(a.prompt, b.prompt);
        corners(a).into_iter().zip(corners(b))
    });
    pairs.fold(0.0, |worst, (a, b)| worst.max((a - b).abs()))
}

fn stored(folder: &Path, name: &str, bytes: &[u8]) -> RgbImage {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    load_picture(&path, &Limits::default()).unwrap()
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Stored as a camera held another way stores it, with the tag that says so.
fn turned(picture: &DynamicImage, tag: u8) -> Vec<u8> {
    let undo = [1u8, 2, 3, 4, 5, 8, 7, 6];
    let mut stored = picture.clone();
    stored.apply_orientation(Orientation::from_exif(undo[usize::from(tag) - 1]).unwrap());
    let exif = [
        b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(),
        &[tag, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let stored = stored.to_rgb8();
    let mut bytes = Vec::new();
    let mut encoder = PngEncoder::new(&mut bytes);
    encoder.set_exif_metadata(exif).unwrap();
    let (width, height) = stored.dimensions();
    encoder
        .write_image(&stored, width, height, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

#[test]
fn one_picture_gives_the_same_detections_however_it_is_stored() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let picture = DynamicImage::ImageRgb8(drawn().to_rgb8());
    let want = find(&model, &rgb(&picture), &["red box"], &loose());
    assert!(!want.is_empty());
    let mut files = vec![
        (
            "rgba.png".to_owned(),
            encoded(&picture.to_rgba8().into(), ImageFormat::Png),
        ),
        (
            "deep.png".to_owned(),
            encoded(&picture.to_rgb16().into(), ImageFormat::Png),
        ),
        ("plain.bmp".to_owned(), encoded(&picture, ImageFormat::Bmp)),
        (
            "plain.tiff".to_owned(),
            encoded(&picture, ImageFormat::Tiff),
        ),
        (
            "plain.webp".to_owned(),
            encoded(&picture, ImageFormat::WebP),
        ),
    ];
    files.extend((1..=8).map(|tag| (format!("turned{tag}.png"), turned(&picture, tag))));
    for (name, bytes) in &files {
        let loaded = stored(folder.path(), name, bytes);
        let gap = worst_gap(&want, &find(&model, &loaded, &["red box"], &loose()));
        assert!(gap <= 1.0, "{name} is off by {gap} px");
    }
    let grey = picture.to_luma8();
    let want = find(&model, &rgb(&grey.clone().into()), &["red box"], &loose());
    for (name, bytes) in [
        ("grey.png", encoded(&grey.clone().into(), ImageFormat::Png)),
        (
            "grey_alpha.png",
            encoded(
                &DynamicImage::from(grey).to_luma_alpha8().into(),
                ImageFormat::Png,
            ),
        ),
    ] {
        let loaded = stored(folder.path(), name, &bytes);
        let gap = worst_gap(&want, &find(&model, &loaded, &["red box"], &loose()));
        assert!(gap <= 1.0, "{name} is off by {gap} px");
    }
}

#[test]
fn a_phrase_more_leaves_the_results_of_the_others_as_they_were() {
    let (model, picture) = (model(), rgb(&drawn()));
    let before = find(&model, &picture, &["red box", "blue can"], &loose());
    let after = find(
        &model,
        &picture,
        &["red box", "green bag", "blue can"],
        &loose(),
    );
    for phrase in ["red box", "blue can"] {
        let of = |all: &[Detection]| -> Vec<Detection> {
            all.iter()
                .filter(|d| &*d.prompt == phrase)
                .cloned()
                .collect()
        };
        let (before, after) = (of(&before), of(&after));
        assert!(!before.is_empty(), "{phrase}");
        let gap = worst_gap(&before, &after);
        assert!(gap <= 1e-3, "{phrase} moved by {gap} px");
        let scores = before
            .iter()
            .zip(&after)
            .map(|(a, b)| (a.score - b.score).abs());
        assert!(scores.fold(0.0, f32::max) <= 1e-3);
    }
}

#[test]
fn a_picture_on_its_side_reaches_the_model_on_its_side() {
    let upright = drawn().resize_exact(800, 600, image::imageops::FilterType::Triangle);
    let mut side = upright.clone();
    side.apply_orientation(Orientation::Rotate90FlipH);
    assert_eq!((side.width(), side.height()), (600, 800));
    let tensor = |picture: &DynamicImage| {
        let small = resize(&rgb(picture), 224, 224, PictureFilter::Bilinear).unwrap();
        to_tensor(&[small], Normalisation::HALF).unwrap()
    };
    let (upright, side) = (tensor(&upright), tensor(&side).transpose(2, 3).unwrap());
    let gaps = floats(&upright)
        .into_iter()
        .zip(floats(&side))
        .map(|(a, b)| (a - b).abs());
    // Two levels of 255 in the range -1 to 1, for the order in which the two sides are resized.
    let worst = gaps.fold(0.0, f32::max);
    assert!(worst <= 4.01 / 255.0, "off by {worst}");
}
