//! Times a frame through a small detector with 2x2 tiles, a request at a time, so that a script can
//! interleave engines.
//!
//! `cargo run --release -p shelfscan-sam3 --example tiny_frame -- MODEL_DIR FRAME WIDTH HEIGHT`
//!
//! `FRAME` holds the pixels, RGB, 8 bits each. Every line on standard input is answered by the
//! milliseconds from those pixels to finds, how many there are, and the best one's score.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    io::{BufRead, Write, stdin, stdout},
    path::Path,
    time::Instant,
};

use candle_core::{DType, Device};
use shelfscan_inference_core::{RgbImage, TextPrompt};
use shelfscan_sam3::{DetectOptions, Sam3, Sam3Config, Tiling, Tokenizer, load_detector};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, frame, width, height] = args.as_slice() else {
        return Err("usage: tiny_frame MODEL_DIR FRAME WIDTH HEIGHT".into());
    };
    let folder = Path::new(folder);
    let config = Sam3Config::from_json(&std::fs::read_to_string(folder.join("config.json"))?)?;
    let weights = folder.join("model.safetensors");
    let (detector, _) = load_detector(&weights, &config, DType::F32, &Device::Cpu)?;
    let merges = std::fs::read(folder.join("merges.txt"))?;
    let tokenizer = Tokenizer::with_merges(&merges[..], config.merges, config.context_length)?;
    let model = Sam3::new(detector, tokenizer);
    let frame = RgbImage::new(width.parse()?, height.parse()?, std::fs::read(frame)?)?;
    let prompts = [TextPrompt::new("product")?];
    let options = DetectOptions {
        tiling: Tiling::Grid {
            columns: 2,
            rows: 2,
        },
        ..DetectOptions::default()
    };
    println!("ready");
    stdout().flush()?;
    for line in stdin().lock().lines() {
        line?;
        let start = Instant::now();
        let found = model.detect(&frame, &prompts, &options)?.detections;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let best = found.first().map_or(0.0, |find| find.score);
        println!("{ms:.3} {} {best:.4}", found.len());
        stdout().flush()?;
    }
    Ok(())
}
