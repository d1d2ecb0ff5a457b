//! How a pack is cut out of a frame before it is embedded.
//!
//! Every policy keeps the whole pack at its own aspect ratio: nothing is padded to a square and no
//! centre is cut out, because both move the embedding away from the enrolled views. What the
//! embedder does to fit its input is its own `preprocessing`, which the gallery stores as well.

use std::fmt;

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{BoxXyxy, Mask, RgbImage};

use crate::{GalleryError, Result};

/// Largest margin: a quarter of the pack on each side already shows more neighbour than pack edge.
const MAX_MARGIN_SHARE: f32 = 0.25;

/// How crops are cut. The gallery stores the policy it was enrolled with, and refuses another.
///
/// A view is a picture of the pack alone, so it is taken whole under every policy; the policy says
/// how queries are cut to look like the views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CropPolicy {
    /// The box, widened to whole pixels, with nothing cut off the pack.
    #[default]
    Tight,
    /// The box grown on each side by `share` of its own width and height, 0 to 0.25.
    Margin {
        /// Share of the width and of the height added on each side.
        share: f32,
    },
    /// The box, with every pixel outside the mask painted over; the plain box without a mask.
    MaskOut {
        /// Red, green and blue of the paint.
        fill: [u8; 3],
    },
}

impl CropPolicy {
    /// Cuts a pack out of `image`; `bbox` and `mask` are in source pixels of the same picture.
    ///
    /// Returns `None` when nothing of the box lies in the picture. A mask of another size than the
    /// picture is left aside.
    pub fn crop(&self, image: &RgbImage, bbox: &BoxXyxy, mask: Option<&Mask>) -> Option<RgbImage> {
        match self {
            Self::Tight => image.crop(bbox),
            Self::Margin { share } => image.crop(&bbox.expanded(*share)),
            Self::MaskOut { fill } => {
                let crop = image.crop(bbox)?;
                let Some(mask) =
                    mask.filter(|m| (m.width(), m.height()) == (image.width(), image.height()))
                else {
                    return Some(crop);
                };
                let cut = bbox.clamped(image.width(), image.height());
                Some(paint_outside(
                    crop,
                    mask,
                    (cut.x0.floor() as u32, cut.y0.floor() as u32),
                    *fill,
                ))
            }
        }
    }

    /// Checks the numbers of the policy.
    ///
    /// # Errors
    /// [`GalleryError::InvalidInput`] when the share is outside 0 to 0.25.
    pub fn validated(self) -> Result<Self> {
        match self {
            Self::Margin { share } if !(0.0..=MAX_MARGIN_SHARE).contains(&share) => {
                Err(GalleryError::InvalidInput(format!(
                    "a crop margin of {share} is outside 0 to {MAX_MARGIN_SHARE}"
                )))
            }
            other => Ok(other),
        }
    }
}

impl fmt::Display for CropPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tight => f.write_str("tight"),
            Self::Margin { share } => write!(f, "margin:{share}"),
            Self::MaskOut { fill: [r, g, b] } => write!(f, "mask-out:{r},{g},{b}"),
        }
    }
}

impl std::str::FromStr for CropPolicy {
    type Err = GalleryError;

    /// Reads `tight`, `margin:0.05`, `mask-out` (grey) or `mask-out:124,116,104`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            GalleryError::InvalidInput(format!(
                "crop policy {text:?} is none of tight, margin:SHARE, mask-out, mask-out:R,G,B"
            ))
        };
        match text.split_once(':') {
            None if text == "tight" => Ok(Self::Tight),
            None if text == "mask-out" => Ok(Self::MaskOut { fill: [128; 3] }),
            Some(("margin", share)) => Self::Margin {
                share: share.parse().map_err(|_| wrong())?,
            }
            .validated(),
            Some(("mask-out", paint)) => {
                let parts: Vec<u8> = paint
                    .split(',')
                    .map(|p| p.trim().parse().map_err(|_| wrong()))
                    .collect::<Result<_>>()?;
                Ok(Self::MaskOut {
                    fill: parts.try_into().map_err(|_| wrong())?,
                })
            }
            _ => Err(wrong()),
        }
    }
}

/// Paints the pixels of `crop` that lie outside `mask`; `origin` is the crop's corner in the mask.
///
/// Walks the runs instead of unpacking a map of the whole frame for each pack.
fn paint_outside(crop: RgbImage, mask: &Mask, origin: (u32, u32), fill: [u8; 3]) -> RgbImage {
    let (width, height) = (crop.width(), crop.height());
    let mut kept = vec![false; width as usize * height as usize];
    let frame_height = u64::from(mask.height()).max(1);
    let (left, right) = (u64::from(origin.0), u64::from(origin.0 + width));
    let (top, bottom) = (u64::from(origin.1), u64::from(origin.1 + height));
    let mut at = 0u64;
    for (i, &run) in mask.runs().iter().enumerate() {
        let (start, end) = (at, at + u64::from(run));
        at = end;
        if i % 2 == 0 || run == 0 {
            continue;
        }
        let first = (start / frame_height).max(left);
        let last = ((end - 1) / frame_height + 1).min(right);
        for x in first..last {
            let y0 = start.saturating_sub(x * frame_height).max(top);
            let y1 = (end - x * frame_height).min(frame_height).min(bottom);
            for y in y0..y1 {
                kept[((y - top) * u64::from(width) + (x - left)) as usize] = true;
            }
        }
    }
    let mut pixels = crop.clone().into_pixels();
    for (pixel, kept) in pixels.chunks_exact_mut(3).zip(kept) {
        if !kept {
            pixel.copy_from_slice(&fill);
        }
    }
    RgbImage::new(width, height, pixels).unwrap_or(crop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grey picture with a red mark of one pixel at each corner of the pack.
    fn marked(width: u32, height: u32, pack: [u32; 4]) -> RgbImage {
        let mut pixels = vec![90; (width * height * 3) as usize];
        for (x, y) in [
            (pack[0], pack[1]),
            (pack[2] - 1, pack[1]),
            (pack[0], pack[3] - 1),
            (pack[2] - 1, pack[3] - 1),
        ] {
            let at = ((y * width + x) * 3) as usize;
            pixels[at..at + 3].copy_from_slice(&[255, 0, 0]);
        }
        RgbImage::new(width, height, pixels).unwrap()
    }

    fn reds(image: &RgbImage) -> usize {
        image
            .pixels()
            .chunks_exact(3)
            .filter(|p| *p == [255, 0, 0])
            .count()
    }

    #[test]
    fn j5_the_default_crop_keeps_the_marks_at_the_packs_border() {
        for pack in [[10, 20, 33, 90], [0, 0, 64, 17], [5, 3, 60, 99]] {
            let image = marked(64, 100, pack);
            let [x0, y0, x1, y1] = pack.map(|v| v as f32);
            // A detector's box is rarely on whole pixels.
            let bbox = BoxXyxy::new(x0 + 0.4, y0 + 0.3, x1 - 0.6, y1 - 0.2);
            let crop = CropPolicy::default().crop(&image, &bbox, None).unwrap();
            assert_eq!(reds(&crop), 4, "{pack:?}");
            assert_eq!(
                (crop.width(), crop.height()),
                (pack[2] - pack[0], pack[3] - pack[1])
            );
        }
    }

    #[test]
    fn g6_a_policy_never_makes_a_tall_pack_square() {
        let image = marked(200, 200, [80, 20, 100, 180]);
        let bbox = BoxXyxy::new(80.0, 20.0, 100.0, 180.0);
        for policy in ["tight", "margin:0.1", "mask-out"] {
            let policy: CropPolicy = policy.parse().unwrap();
            let crop = policy.crop(&image, &bbox, None).unwrap();
            let ratio = f64::from(crop.height()) / f64::from(crop.width());
            assert!((7.5..8.5).contains(&ratio), "{policy}: {ratio}");
        }
    }

    #[test]
    fn mask_out_paints_what_the_mask_leaves_out_and_nothing_else() {
        let image = marked(40, 30, [4, 6, 24, 26]);
        let bbox = BoxXyxy::new(4.0, 6.0, 24.0, 26.0);
        let mask = Mask::from_fn(40, 30, |x, y| x + y >= 20 && x < 24);
        let policy = CropPolicy::MaskOut { fill: [0, 255, 0] };
        let crop = policy.crop(&image, &bbox, Some(&mask)).unwrap();
        for y in 0..20 {
            for x in 0..20 {
                let inside = (x + 4) + (y + 6) >= 20;
                let painted = crop.pixel(x, y) == Some([0, 255, 0]);
                assert_eq!(painted, !inside, "{x},{y}");
            }
        }
    }

    #[test]
    fn a_mask_of_another_picture_is_left_aside() {
        let image = marked(40, 30, [4, 6, 24, 26]);
        let bbox = BoxXyxy::new(4.0, 6.0, 24.0, 26.0);
        let policy = CropPolicy::MaskOut { fill: [0; 3] };
        let crop = policy
            .crop(&image, &bbox, Some(&Mask::empty(8, 8)))
            .unwrap();
        assert_eq!(crop, image.crop(&bbox).unwrap());
        assert!(
            policy
                .crop(&image, &bbox.translated(99.0, 0.0), None)
                .is_none()
        );
    }

    #[test]
    fn a_policy_survives_its_text_and_a_wrong_one_is_refused() {
        for text in ["tight", "margin:0.05", "mask-out:124,116,104"] {
            assert_eq!(text.parse::<CropPolicy>().unwrap().to_string(), text);
        }
        for text in [
            "square",
            "margin:0.9",
            "margin:nan",
            "mask-out:1,2",
            "mask-out:1,2,300",
            "",
        ] {
            assert!(text.parse::<CropPolicy>().is_err(), "{text}");
        }
    }
}
