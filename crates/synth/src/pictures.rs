//! Photographs that are printed on packs and hung behind them.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::{
    canvas::Picture,
    error::{Result, SynthError},
    seeded::Seeded,
};

/// Photographs read at most.
pub const MAX_PICTURES: usize = 1200;
const SIDE: u32 = 96;

/// Reads photographs below `dir`, in the order of their paths, thinned evenly to [`MAX_PICTURES`].
///
/// Each becomes the middle square of the photo at 96 px. Files that are no picture are left out.
///
/// # Errors
/// [`SynthError::Io`] when a folder cannot be read, [`SynthError::NoPictures`] when nothing in it
/// is a picture.
pub fn read_pictures(dir: &Path) -> Result<Vec<Picture>> {
    let mut paths = Vec::new();
    collect(dir, &mut paths)?;
    paths.sort();
    // A fixed shuffle, so that a cap keeps some of every folder.
    let mut rng = Seeded::new(17);
    for i in (1..paths.len()).rev() {
        paths.swap(i, rng.below(i as u32 + 1) as usize);
    }
    paths.truncate(MAX_PICTURES);
    let pictures: Vec<Picture> = paths.par_iter().filter_map(|path| read(path)).collect();
    if pictures.is_empty() {
        return Err(SynthError::NoPictures(dir.into()));
    }
    Ok(pictures)
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let fail = |error| SynthError::Io {
        error,
        path: dir.into(),
    };
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| {
            ["jpg", "jpeg", "png", "webp"].contains(&e.to_ascii_lowercase().as_str())
        }) {
            paths.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Option<Picture> {
    let photo = image::open(path).ok()?.to_rgb8();
    let side = photo.width().min(photo.height());
    let (x, y) = ((photo.width() - side) / 2, (photo.height() - side) / 2);
    let square = image::imageops::crop_imm(&photo, x, y, side, side).to_image();
    let small = image::imageops::thumbnail(&square, SIDE, SIDE);
    let pixels = small.pixels().map(|p| p.0).collect();
    Some(Picture {
        side: SIDE as usize,
        pixels,
    })
}
