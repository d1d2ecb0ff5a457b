//! Times the full-size model with random weights on one picture, part by part.
//!
//! `cargo run --release -p shelfscan-sam3 --example full_size -- CHECKPOINT PICTURE.ppm [PHRASE]`
//!
//! A checkpoint that does not exist is made first: 873 million random numbers in bf16, 1.75 GB.
//! The picture is a binary PPM, so that the example needs no decoder.
#![allow(clippy::print_stdout)]

mod timing;

use std::{error::Error, path::Path, time::Instant};

use candle_core::{DType, Device};
use shelfscan_inference_core::RgbImage;
use shelfscan_model_kit::preprocess::{Normalisation, PictureFilter, resize, to_tensor};
use shelfscan_sam3::{Detector, Sam3Config, Tokenizer, load_detector};
use timing::{Clock, make_checkpoint};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (Some(weights), Some(picture)) = (args.next(), args.next()) else {
        return Err("usage: full_size CHECKPOINT PICTURE.ppm [PHRASE]".into());
    };
    let phrase = args.next().unwrap_or_else(|| "product".into());
    let config = Sam3Config::sam3_1();
    let layout = Detector::layout(&config)?;
    // Two random projections are fixed tables and no parameters.
    let learned = layout
        .iter()
        .filter(|s| !s.key.ends_with("gaussian_matrix"));
    let parameters: usize = learned.map(|s| s.shape.iter().product::<usize>()).sum();
    println!("layout: {} tensors, {parameters} parameters", layout.len());
    let weights = Path::new(&weights);
    if !weights.exists() {
        let start = Instant::now();
        make_checkpoint(weights, &layout)?;
        println!(
            "made the checkpoint: {:.1} s",
            start.elapsed().as_secs_f64()
        );
    }
    let picture = read_ppm(&std::fs::read(picture)?)?;

    let clock = &mut Clock::start();
    let (detector, report) = load_detector(weights, &config, DType::F32, &Device::Cpu)?;
    clock.lap("load");
    println!(
        "  read {} tensors, {} parameters; left out {}",
        report.tensors,
        report.parameters,
        report.ignored.len()
    );
    let side = config.image_size as u32;
    let small = resize(&picture, side, side, PictureFilter::Bilinear)?;
    let tensor = to_tensor(&[small], Normalisation::HALF)?;
    clock.lap("preprocess");
    let tokens = detector.trunk.forward(&tensor)?;
    clock.lap("image trunk");
    let features = detector.features_from_trunk(&tokens)?;
    clock.lap("detection neck");
    drop(tokens);
    let grid = config.grid();
    let tokenizer = Tokenizer::new(config.context_length)?;
    for (turn, phrase) in [phrase.as_str(), "another phrase"].into_iter().enumerate() {
        let text = detector.text.forward(&[tokenizer.encode(phrase)])?;
        clock.lap("text encoder");
        if turn == 0 {
            detector.prompt(&features, &text, &[])?;
            clock.lap("geometry encoder");
        }
        let found = detector.ground(&features, &text, &[])?;
        clock.lap("geometry, fusion, decoder and scores");
        let prompt = detector.prompt(&features, &text, &[])?;
        clock.lap("geometry encoder");
        detector
            .decoder
            .forward(&found.memory, &detector.positions, grid, &prompt)?;
        clock.lap("decoder alone");
        let best: Vec<usize> = (0..config.num_queries).collect();
        detector.masks(&features, &found, 0, &best)?;
        clock.lap("mask head, all queries");
    }
    Ok(())
}

fn read_ppm(bytes: &[u8]) -> Outcome<RgbImage> {
    let mut fields = Vec::new();
    let mut at = 0;
    while fields.len() < 4 {
        let rest = bytes.get(at..).ok_or("the picture ends early")?;
        let word = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .ok_or("no PPM picture")?;
        if word > 0 {
            fields.push(std::str::from_utf8(&rest[..word])?.to_owned());
        }
        at += word + 1;
    }
    if fields[0] != "P6" || fields[3] != "255" {
        return Err("pass a binary PPM picture with 8 bits a channel".into());
    }
    let (width, height) = (fields[1].parse()?, fields[2].parse()?);
    Ok(RgbImage::new(width, height, bytes[at..].to_vec())?)
}
