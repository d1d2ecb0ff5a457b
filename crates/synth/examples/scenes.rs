//! Writes drawn scenes for training a detector: `scenes --seed S --count N --side 336 --out DIR`.
//!
//! Per scene a JPEG and a 16-bit grey PNG whose value at a pixel is the object seen there (0 for
//! none), and one line of `scenes.jsonl` with the objects. Options: `--pictures DIR` prints
//! photographs on packs, `--zoom` draws from nearer by, `--mostly bottle` shows more of one category. Seeds
//! at or above 1000000 show SKUs that no smaller seed shows.
#![allow(clippy::print_stderr)]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use image::{
    ExtendedColorType, ImageEncoder as _,
    codecs::{
        jpeg::JpegEncoder,
        png::{CompressionType, FilterType, PngEncoder},
    },
};
use rayon::prelude::*;
use serde_json::json;
use shelfscan_synth::{Category, Still, StillOptions, draw_still, read_pictures};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let (mut seed, mut count, mut side, mut zoom) = (0u64, 100u64, 336u32, false);
    let (mut out, mut photos) = (PathBuf::from("scenes"), None);
    let mut mostly = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => seed = value()?.parse()?,
            "--count" => count = value()?.parse()?,
            "--side" => side = value()?.parse()?,
            "--out" => out = value()?.into(),
            "--pictures" => photos = Some(PathBuf::from(value()?)),
            "--zoom" => zoom = true,
            "--mostly" => {
                let word = value()?;
                let named = Category::ALL.into_iter().find(|c| c.word() == word);
                mostly = Some(named.ok_or(format!("no category {word}"))?);
            }
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    std::fs::create_dir_all(&out)?;
    let pictures = match photos {
        Some(dir) => read_pictures(&dir)?,
        None => Vec::new(),
    };
    let options = StillOptions {
        side_px: side,
        zoom,
        kind: None,
        mostly,
        pictures: &pictures,
    };
    let mut lines = std::io::BufWriter::new(std::fs::File::create(out.join("scenes.jsonl"))?);
    let indices: Vec<u64> = (0..count).collect();
    for part in indices.chunks(256) {
        let written: Vec<Result<String, Failure>> = part
            .par_iter()
            .map(|&index| write(&out, index, &draw_still(seed, index, &options)))
            .collect();
        for line in written {
            writeln!(lines, "{}", line?)?;
        }
        lines.flush()?;
    }
    eprintln!("{count} scenes in {}", out.display());
    Ok(())
}

fn write(out: &Path, index: u64, still: &Still) -> Result<String, Failure> {
    let (w, h) = (still.image.width(), still.image.height());
    let name = format!("{index:06}");
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, still.jpeg_quality).encode(
        still.image.pixels(),
        w,
        h,
        ExtendedColorType::Rgb8,
    )?;
    std::fs::write(out.join(format!("{name}.jpg")), jpeg)?;
    let ids: Vec<u8> = still.ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    let mut png = Vec::new();
    PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Up).write_image(
        &ids,
        w,
        h,
        ExtendedColorType::L16,
    )?;
    std::fs::write(out.join(format!("{name}.png")), png)?;
    let objects: Vec<_> = still
        .objects
        .iter()
        .map(|o| {
            json!({
                "id": o.id,
                "category": o.category,
                "sku": o.sku.map_or(String::new(), |sku| sku.0.to_string()),
                "box": o.bbox,
                "visible": (f64::from(o.visible) * 1000.0).round() / 1000.0,
            })
        })
        .collect();
    Ok(json!({ "file": name, "objects": objects }).to_string())
}
