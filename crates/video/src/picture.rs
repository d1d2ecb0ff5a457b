//! One picture file, upright and as RGB.

use std::{
    fs::File,
    io::{Cursor, Read},
    path::Path,
};

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, error::LimitErrorKind,
    metadata::Orientation,
};
use shelfscan_inference_core::{Notice, RgbImage};

use crate::{Limits, Result, VideoError, jpeg};

/// Largest picture file that is read into memory, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// A decoded picture and what had to be done to it.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The picture, upright, RGB, 8 bits a channel.
    pub image: RgbImage,
    /// Name of the format, such as `jpeg`.
    pub format: String,
    /// By how much the stored picture was turned clockwise: 0, 90, 180 or 270.
    pub rotation_degrees: u32,
    /// What the viewer of a result has to know, such as transparency that was filled.
    pub notices: Vec<Notice>,
}

/// Loads a picture the way a viewer shows it.
///
/// The orientation stored in EXIF (JPEG, PNG, TIFF, WebP) or, failing that, in XMP is applied.
/// Transparent parts are laid over white. Grey and palette become RGB, 16 bits and floats become 8,
/// CMYK is converted. Of an animation the first frame is taken.
///
/// # Errors
/// [`VideoError::PictureDamaged`] for a cut file, so that no grey half is taken for a shelf,
/// [`VideoError::PictureTooLarge`] before anything is allocated for it,
/// [`VideoError::PictureUnsupported`], [`VideoError::EmptyFile`], [`VideoError::NotFound`].
pub fn load_picture(path: &Path, limits: &Limits) -> Result<RgbImage> {
    read_picture(path, limits).map(|picture| picture.image)
}

/// Like [`load_picture`], with the format, the rotation and the notices.
///
/// # Errors
/// As [`load_picture`].
pub fn read_picture(path: &Path, limits: &Limits) -> Result<Picture> {
    let bytes = read_bytes(path)?;
    let format = picture_format(&bytes, path).ok_or_else(|| VideoError::PictureUnsupported {
        reason: "its content is of no known picture format".into(),
        path: path.into(),
    })?;
    decode(&bytes, format, path, limits)
}

/// The format by content, or by name for the one format that has no signature.
pub(crate) fn picture_format(head: &[u8], path: &Path) -> Option<ImageFormat> {
    image::guess_format(head).ok().or_else(|| {
        let is_tga = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("tga"));
        is_tga.then_some(ImageFormat::Tga)
    })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let io = |error| VideoError::io("reading the picture", path, error);
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.is_empty() {
        return Err(VideoError::EmptyFile { path: path.into() });
    }
    Ok(bytes)
}

/// Decodes a picture that lies in memory.
pub(crate) fn decode(
    bytes: &[u8],
    format: ImageFormat,
    path: &Path,
    limits: &Limits,
) -> Result<Picture> {
    if format == ImageFormat::Jpeg && jpeg::structure(bytes) == jpeg::Structure::Cut {
        return Err(VideoError::PictureDamaged {
            reason: "the JPEG ends before its end marker".into(),
            path: path.into(),
        });
    }
    let explain = |error| explain(error, path, limits);
    let mut decoder = ImageReader::with_format(Cursor::new(bytes), format)
        .into_decoder()
        .map_err(explain)?;
    let (width, height) = decoder.dimensions();
    check_size(width, height, limits, || path.display().to_string())?;
    decoder.set_limits(decode_limits(limits)).map_err(explain)?;
    // A broken tag must not cost the picture: viewers show it as stored, and so do we.
    let mut orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    if orientation == Orientation::NoTransforms
        && let Ok(Some(xmp)) = decoder.xmp_metadata()
    {
        orientation = xmp_orientation(&xmp).unwrap_or(orientation);
    }
    let mut picture = DynamicImage::from_decoder(decoder).map_err(explain)?;
    picture.apply_orientation(orientation);
    let (width, height) = (picture.width(), picture.height());
    let (pixels, was_transparent) = into_rgb(picture);
    let mut notices = Vec::new();
    if was_transparent {
        notices.push(alpha_notice());
    }
    Ok(Picture {
        image: rgb_image(width, height, pixels, path)?,
        format: format!("{format:?}").to_ascii_lowercase(),
        rotation_degrees: degrees(orientation),
        notices,
    })
}

pub(crate) fn alpha_notice() -> Notice {
    Notice::new(
        "alpha_over_white",
        "transparent parts of the picture were laid over white",
    )
}

/// An [`RgbImage`] whose byte count a decoder vouches for.
pub(crate) fn rgb_image(width: u32, height: u32, pixels: Vec<u8>, path: &Path) -> Result<RgbImage> {
    RgbImage::new(width, height, pixels).map_err(|error| VideoError::PictureDamaged {
        reason: error.to_string(),
        path: path.into(),
    })
}

/// Refuses a picture over the limit.
pub(crate) fn check_size(
    width: u32,
    height: u32,
    limits: &Limits,
    name: impl Fn() -> String,
) -> Result<()> {
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(VideoError::PictureTooLarge {
            width,
            height,
            max_pixels: limits.max_pixels,
            name: name(),
        });
    }
    Ok(())
}

/// What a decoder may allocate: the picture in its widest form twice, and some room to work in.
pub(crate) fn decode_limits(limits: &Limits) -> image::Limits {
    let mut inner = image::Limits::no_limits();
    inner.max_alloc = Some(
        limits
            .max_pixels
            .saturating_mul(16)
            .saturating_add(64 << 20),
    );
    inner
}

/// Puts a decoder's error under its remedy.
pub(crate) fn explain(error: ImageError, path: &Path, limits: &Limits) -> VideoError {
    let path = path.to_path_buf();
    match error {
        ImageError::Limits(limit)
            if !matches!(limit.kind(), LimitErrorKind::Unsupported { .. }) =>
        {
            VideoError::PictureHeavy {
                max_pixels: limits.max_pixels,
                path,
            }
        }
        ImageError::Unsupported(unsupported) => VideoError::PictureUnsupported {
            reason: unsupported.to_string(),
            path,
        },
        other => VideoError::PictureDamaged {
            reason: other.to_string(),
            path,
        },
    }
}

fn degrees(orientation: Orientation) -> u32 {
    match orientation {
        Orientation::NoTransforms | Orientation::FlipHorizontal => 0,
        Orientation::Rotate90 | Orientation::Rotate90FlipH => 90,
        Orientation::Rotate180 | Orientation::FlipVertical => 180,
        Orientation::Rotate270 | Orientation::Rotate270FlipH => 270,
    }
}

/// The number behind `tiff:Orientation` in an XMP packet, as an attribute or as an element.
fn xmp_orientation(xmp: &[u8]) -> Option<Orientation> {
    let name = b"tiff:Orientation";
    let at = xmp.windows(name.len()).position(|part| part == name)? + name.len();
    let number = xmp[at..]
        .iter()
        .take(8)
        .find(|byte| !b"=\"'> \t\r\n".contains(byte))?;
    Orientation::from_exif(number.checked_sub(b'0')?)
}

/// RGB pixels of any picture, and whether a part of it was transparent.
fn into_rgb(picture: DynamicImage) -> (Vec<u8>, bool) {
    match picture {
        DynamicImage::ImageRgb8(rgb) => (rgb.into_raw(), false),
        other if other.color().has_alpha() => flatten(other.into_rgba8().into_raw()),
        other => (other.into_rgb8().into_raw(), false),
    }
}

/// Lays RGBA pixels over white, in place; also tells whether any pixel was transparent.
pub(crate) fn flatten(mut rgba: Vec<u8>) -> (Vec<u8>, bool) {
    let count = rgba.len() / 4;
    let mut was_transparent = false;
    for i in 0..count {
        let alpha = u32::from(rgba[i * 4 + 3]);
        for channel in 0..3 {
            let value = rgba[i * 4 + channel];
            rgba[i * 3 + channel] = if alpha == 255 {
                value
            } else {
                was_transparent = true;
                ((u32::from(value) * alpha + 255 * (255 - alpha) + 127) / 255) as u8
            };
        }
    }
    rgba.truncate(count * 3);
    (rgba, was_transparent)
}

#[cfg(test)]
mod tests {
    use image::{GrayAlphaImage, ImageEncoder, Luma, Rgba, RgbaImage, codecs::png::PngEncoder};

    use super::*;

    fn png(picture: &DynamicImage) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    fn load(bytes: &[u8], limits: &Limits) -> Result<Picture> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.bin");
        std::fs::write(&path, bytes).unwrap();
        read_picture(&path, limits)
    }

    #[test]
    fn transparent_parts_become_white_and_are_mentioned() {
        let drawn = RgbaImage::from_fn(4, 2, |x, _| {
            Rgba([200, 0, 0, [0, 255, 128, 255][x as usize]])
        });
        let picture = load(&png(&drawn.into()), &Limits::default()).unwrap();
        assert_eq!(picture.image.pixel(0, 0), Some([255, 255, 255]));
        assert_eq!(picture.image.pixel(1, 1), Some([200, 0, 0]));
        assert_eq!(picture.image.pixel(2, 0), Some([227, 127, 127]));
        assert_eq!(&*picture.notices[0].code, "alpha_over_white");
        let opaque = GrayAlphaImage::from_pixel(3, 3, image::LumaA([9, 255]));
        let picture = load(&png(&opaque.into()), &Limits::default()).unwrap();
        assert_eq!(picture.image.pixel(2, 2), Some([9, 9, 9]));
        assert!(picture.notices.is_empty());
    }

    #[test]
    fn sixteen_bits_are_scaled_and_not_cut_off() {
        let deep =
            image::ImageBuffer::from_fn(3, 1, |x, _| Luma([[0u16, 32896, 65535][x as usize]]));
        let picture = load(&png(&DynamicImage::ImageLuma16(deep)), &Limits::default()).unwrap();
        assert_eq!(
            picture.image.pixels(),
            [0, 0, 0, 128, 128, 128, 255, 255, 255]
        );
    }

    #[test]
    fn a_picture_over_the_limit_is_refused_with_both_numbers() {
        let limits = Limits {
            max_pixels: 99,
            ..Limits::default()
        };
        let error = load(&png(&DynamicImage::new_rgb8(10, 10)), &limits).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("10x10") && text.contains("99"), "{text}");
    }

    #[test]
    fn all_eight_orientations_of_a_png_stand_upright() {
        // The picture is marked in its upper left corner only, then stored as each tag says.
        let mut upright = DynamicImage::new_rgb8(6, 4);
        upright
            .as_mut_rgb8()
            .unwrap()
            .put_pixel(0, 0, image::Rgb([255, 0, 0]));
        let undo = [1u8, 2, 3, 4, 5, 8, 7, 6];
        for tag in 1..=8u8 {
            let mut stored = upright.clone();
            stored.apply_orientation(Orientation::from_exif(undo[usize::from(tag) - 1]).unwrap());
            // A TIFF block with the one entry 0x0112, SHORT, count 1.
            let exif = [
                b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(),
                &[tag, 0, 0, 0, 0, 0, 0],
            ]
            .concat();
            let mut bytes = Vec::new();
            let mut encoder = PngEncoder::new(&mut bytes);
            encoder.set_exif_metadata(exif).unwrap();
            encoder
                .write_image(
                    stored.as_bytes(),
                    stored.width(),
                    stored.height(),
                    image::ExtendedColorType::Rgb8,
                )
                .unwrap();
            let picture = load(&bytes, &Limits::default()).unwrap();
            assert_eq!(
                picture.image.pixels(),
                upright.as_bytes(),
                "orientation {tag}"
            );
        }
    }

    #[test]
    fn an_orientation_in_xmp_is_read_both_ways_it_is_written() {
        let turned = Some(Orientation::Rotate180);
        assert_eq!(xmp_orientation(b"<x tiff:Orientation=\"3\"/>"), turned);
        assert_eq!(
            xmp_orientation(b"<tiff:Orientation>3</tiff:Orientation>"),
            turned
        );
        assert_eq!(xmp_orientation(b"<tiff:Orientation>"), None);
        assert_eq!(xmp_orientation(b"tiff:Orientation=\"9\""), None);
    }

    #[test]
    fn a_cut_jpeg_is_an_error_and_never_a_grey_half() {
        let mut bytes = Vec::new();
        let noise: Vec<u8> = (0..64 * 64 * 3u32)
            .map(|i| (i * 7919 % 256) as u8)
            .collect();
        image::codecs::jpeg::JpegEncoder::new(&mut bytes)
            .encode(&noise, 64, 64, image::ExtendedColorType::Rgb8)
            .unwrap();
        assert!(load(&bytes, &Limits::default()).is_ok());
        let error = load(&bytes[..bytes.len() / 2], &Limits::default()).unwrap_err();
        assert!(
            matches!(error, VideoError::PictureDamaged { .. }),
            "{error}"
        );
    }

    #[test]
    fn an_empty_a_missing_and_a_text_file_are_told_apart() {
        let limits = Limits::default();
        assert!(matches!(
            load(b"", &limits),
            Err(VideoError::EmptyFile { .. })
        ));
        assert!(matches!(
            load(b"just words", &limits),
            Err(VideoError::PictureUnsupported { .. })
        ));
        assert!(matches!(
            load_picture(Path::new("no/such.png"), &limits),
            Err(VideoError::NotFound { .. })
        ));
    }
}
