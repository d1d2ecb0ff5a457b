//! Draws the sample under `samples/shelf-pan`: a pan over a shelf as JPEG pictures, and what a
//! detector would find in them, with jitter, misses and false finds.
//!
//! `cargo run -p shelfscan-testkit --example draw_sample -- samples/shelf-pan`

#![allow(clippy::print_stdout)]

use std::{error::Error, fs, path::Path, sync::Arc};

use image::codecs::jpeg::JpegEncoder;
use shelfscan_testkit::{
    shelf::{Shelf, ShelfClip, ShelfPlan},
    truth::{DetectorNoise, write_detections},
};

const FRAMES: u32 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("give a folder to draw into")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let shelf = Arc::new(Shelf::draw(&ShelfPlan {
        seed: 2,
        rows: 2,
        packs_per_row: 10,
        ..ShelfPlan::default()
    }));
    let height = shelf.picture.height();
    let clip = ShelfClip::forth_and_back(shelf, FRAMES, 400, height).shaken(1.5);
    for frame in clip.frames() {
        let file = fs::File::create(folder.join(format!("{:03}.jpg", frame.index)))?;
        let (w, h) = (frame.image.width(), frame.image.height());
        JpegEncoder::new_with_quality(file, 80).encode(
            frame.image.pixels(),
            w,
            h,
            image::ExtendedColorType::Rgb8,
        )?;
    }
    let noise = DetectorNoise {
        seed: 7,
        jitter_share: 0.03,
        miss_rate: 0.05,
        false_positives_per_frame: 0.3,
    };
    let found: Vec<_> = clip
        .truth()
        .detections()
        .iter()
        .map(|frame| noise.applied(frame, 400, height))
        .collect();
    write_detections(&folder.join("detections.jsonl"), &found)?;
    let facings = clip.truth().facings("product", 0.5, 3).len();
    println!("{FRAMES} frames of {facings} facings");
    Ok(())
}
