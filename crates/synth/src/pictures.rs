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
    let fail = SynthError::io(dir);
    for entry in std::fs::read_dir(dir).map_err(&fail)? {
        let path = entry.map_err(&fail)?.path();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_are_found_below_a_folder_and_what_is_none_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let none = read_pictures(dir.path()).unwrap_err();
        assert!(none.to_string().contains("photographs"), "{none}");
        let below = dir.path().join("a").join("b");
        std::fs::create_dir_all(&below).unwrap();
        let photo = image::RgbImage::from_pixel(40, 20, image::Rgb([200, 10, 30]));
        photo.save(below.join("one.png")).unwrap();
        std::fs::write(dir.path().join("two.jpg"), b"no picture").unwrap();
        std::fs::write(dir.path().join("three.txt"), b"text").unwrap();
        let pictures = read_pictures(dir.path()).unwrap();
        assert_eq!(pictures.len(), 1);
        assert!((pictures[0].at(0.5, 0.5)[0] - 200.0 / 255.0).abs() < 0.02);
        let missing = read_pictures(&dir.path().join("not there")).unwrap_err();
        assert!(missing.to_string().ends_with("not there"), "{missing}");
    }
}
