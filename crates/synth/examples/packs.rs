//! Writes views of drawn SKUs for training an embedder:
//! `packs --seed S --families F --siblings 2 --views V --side 128 --out DIR`.
//!
//! Families `S` to `S + F - 1` are drawn, each with the given number of sibling variants. Views
//! are `DIR/<sku>/<view>.jpg`, squares as an embedder sees them, and `packs.jsonl` has one line a
//! SKU. `--pictures DIR` prints photographs on packs. Families below 1000000 are for training,
//! those at or above it for validation; `scenes` keeps to the same bound.
#![allow(clippy::print_stderr)]

use std::{io::Write as _, path::PathBuf};

use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};
use rayon::prelude::*;
use serde_json::json;
use shelfscan_synth::{Sku, VARIANTS, draw_crop, read_pictures, seeded::Seeded};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let (mut seed, mut families, mut siblings) = (0u64, 100u64, 2u32);
    let (mut views, mut side, mut out) = (8u64, 128u32, PathBuf::from("packs"));
    let mut photos = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => seed = value()?.parse()?,
            "--families" => families = value()?.parse()?,
            "--siblings" => siblings = value()?.parse()?,
            "--views" => views = value()?.parse()?,
            "--side" => side = value()?.parse()?,
            "--out" => out = value()?.into(),
            "--pictures" => photos = Some(PathBuf::from(value()?)),
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    if u64::from(siblings) > VARIANTS {
        return Err(format!("a family has at most {VARIANTS} siblings").into());
    }
    std::fs::create_dir_all(&out)?;
    let pictures = match photos {
        Some(dir) => read_pictures(&dir)?,
        None => Vec::new(),
    };
    let skus: Vec<Sku> = (seed..seed + families)
        .flat_map(|family| (0..siblings).map(move |variant| Sku::of(family, variant)))
        .collect();
    let mut lines = std::io::BufWriter::new(std::fs::File::create(out.join("packs.jsonl"))?);
    for part in skus.chunks(128) {
        part.par_iter()
            .try_for_each(|&sku| -> Result<(), Failure> {
                let folder = out.join(sku.0.to_string());
                std::fs::create_dir_all(&folder)?;
                for view in 0..views {
                    let crop = draw_crop(sku, view, side, &pictures);
                    let quality = 60 + Seeded::of(&[sku.0, view]).below(37) as u8;
                    let mut jpeg = Vec::new();
                    JpegEncoder::new_with_quality(&mut jpeg, quality).encode(
                        crop.pixels(),
                        crop.width(),
                        crop.height(),
                        ExtendedColorType::Rgb8,
                    )?;
                    std::fs::write(folder.join(format!("{view}.jpg")), jpeg)?;
                }
                Ok(())
            })?;
        for sku in part {
            let line = json!({
                "sku": sku.0.to_string(),
                "family": sku.family().to_string(),
                "category": sku.category().word(),
                "views": views,
            });
            writeln!(lines, "{line}")?;
        }
        lines.flush()?;
    }
    eprintln!("{} SKUs in {}", skus.len(), out.display());
    Ok(())
}
