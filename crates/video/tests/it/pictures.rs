//! Every picture of the collection has its expected outcome here.

use std::path::Path;

use shelfscan_inference_core::RgbImage;
use shelfscan_video::{Limits, VideoError, load_picture, read_picture};

use crate::common::{collection, mean_difference};

/// Pictures whose outcome is not the one of the manifest: what other readers refuse and this one
/// opens, and the reverse.
const DIFFERENT: &[(&str, &str)] = &[
    ("derived_shelf_float32.tiff", "640x360"),
    ("real_pillow_truncated_app14.jpg", "PictureDamaged"),
    (
        "real_pillow_xmp_tags_orientation.avif",
        "PictureUnsupported",
    ),
];

/// Pictures that are refused, and how.
const BROKEN: &[(&str, &str)] = &[
    ("derived_empty.jpg", "EmptyFile"),
    ("derived_shelf_truncated.jpg", "PictureDamaged"),
    ("real_pillow_broken.png", "PictureDamaged"),
    ("real_pillow_decompression_bomb.gif", "PictureDamaged"),
    ("real_pillow_decompression_bomb.ico", "PictureTooLarge"),
    ("real_pillow_truncated_image.png", "PictureDamaged"),
    ("real_pillow_truncated_jpeg.jpg", "PictureDamaged"),
];

fn name_of(result: &Result<RgbImage, VideoError>) -> String {
    match result {
        Ok(image) => format!("{}x{}", image.width(), image.height()),
        Err(error) => {
            let text = format!("{error:?}");
            text.split([' ', '{', '('])
                .next()
                .unwrap_or_default()
                .to_owned()
        }
    }
}

#[test]
fn every_picture_of_the_collection_gives_its_expected_outcome() {
    let Some(folder) = collection().map(|folder| folder.join("images")) else {
        return;
    };
    let mut wrong = Vec::new();
    for line in std::fs::read_to_string(folder.join("manifest.csv"))
        .unwrap()
        .lines()
        .skip(1)
    {
        let mut columns = line.split(',');
        let (name, size) = (columns.next().unwrap(), columns.nth(2).unwrap());
        let result = load_picture(&folder.join(name), &Limits::default());
        let known = BROKEN
            .iter()
            .chain(DIFFERENT)
            .find(|(known, _)| *known == name);
        let wanted = known.map_or(size, |(_, error)| error);
        // The manifest tells the size as stored or as shown, so either order of the sides will do;
        // that it stands upright is checked below.
        let turned = size.split_once('x').map(|(w, h)| format!("{h}x{w}"));
        let got = name_of(&result);
        if got != wanted && Some(got.clone()) != turned {
            let detail = result.err().map(|e| e.to_string()).unwrap_or_default();
            wrong.push(format!("{name}: wanted {wanted}, got {got} {detail}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn load(folder: &Path, name: &str) -> RgbImage {
    load_picture(&folder.join(name), &Limits::default()).unwrap()
}

#[test]
fn a_shelf_looks_the_same_however_it_is_stored() {
    let Some(folder) = collection().map(|folder| folder.join("images")) else {
        return;
    };
    let reference = load(&folder, "derived_shelf_reference_640x360.png");
    // Exact for lossless kinds; JPEG at its usual quality is off by a few steps, and a palette or
    // CMYK by some more.
    for (name, bound) in [
        ("derived_shelf.bmp", 0.0),
        ("derived_shelf.tif", 0.0),
        ("derived_shelf_16bit.png", 0.0),
        ("derived_shelf_lossless.webp", 0.0),
        ("derived_shelf_444.jpg", 4.0),
        ("derived_shelf_progressive.jpg", 5.0),
        ("derived_shelf_cmyk.jpg", 6.0),
        ("derived_shelf_palette.png", 8.0),
        ("derived_shelf_float32.tiff", 1.0),
        ("derived_shelf_exif2.jpg", 5.0),
        ("derived_shelf_exif3.jpg", 5.0),
        ("derived_shelf_exif4.jpg", 5.0),
        ("derived_shelf_exif5.jpg", 5.0),
        ("derived_shelf_exif6.jpg", 5.0),
        ("derived_shelf_exif7.jpg", 5.0),
        ("derived_shelf_exif8.jpg", 5.0),
    ] {
        let image = load(&folder, name);
        assert_eq!((image.width(), image.height()), (640, 360), "{name}");
        let difference = mean_difference(image.pixels(), reference.pixels());
        assert!(difference <= bound, "{name}: {difference}");
    }
    let grey: Vec<u8> = reference
        .pixels()
        .chunks(3)
        .flat_map(|p| {
            let value =
                (f32::from(p[0]) * 0.299 + f32::from(p[1]) * 0.587 + f32::from(p[2]) * 0.114)
                    .round();
            [value as u8; 3]
        })
        .collect();
    for name in ["derived_shelf_16bit_gray.png", "derived_shelf_gray.jpg"] {
        let difference = mean_difference(load(&folder, name).pixels(), &grey);
        assert!(difference <= 4.0, "{name}: {difference}");
    }
}

#[test]
fn eight_orientations_of_a_photo_show_the_same_scene() {
    let Some(folder) = collection().map(|folder| folder.join("images")) else {
        return;
    };
    let first = load(&folder, "real_exif_orientation_1.jpg");
    for tag in 2..=8 {
        let image = load(&folder, &format!("real_exif_orientation_{tag}.jpg"));
        assert_eq!((image.width(), image.height()), (1800, 1200), "{tag}");
        // Each copy carries its number in its middle, so the pictures are alike and not equal.
        let difference = mean_difference(image.pixels(), first.pixels());
        assert!(difference < 20.0, "{tag}: {difference}");
    }
}

#[test]
fn transparency_over_white_is_mentioned() {
    let Some(folder) = collection().map(|folder| folder.join("images")) else {
        return;
    };
    let path = folder.join("derived_shelf_rgba_left_transparent.png");
    let picture = read_picture(&path, &Limits::default()).unwrap();
    assert_eq!(picture.image.pixel(2, 180), Some([255; 3]));
    assert_eq!(&*picture.notices[0].code, "alpha_over_white");
}
