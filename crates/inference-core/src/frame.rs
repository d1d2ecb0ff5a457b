//! Pictures and frames whose pixels are shared, never copied.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{BoxXyxy, InferenceError, Result};

/// Names a source within a run: a file, a camera, a folder of pictures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(Arc<str>);

impl SourceId {
    /// A source id from any text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An RGB picture, 8 bits a channel, rows packed from top to bottom. A clone shares the pixels.
#[derive(Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    pixels: Arc<Vec<u8>>,
}

impl RgbImage {
    /// Takes `pixels` (`height * width * 3` bytes, RGB, row by row) without copying them.
    ///
    /// # Errors
    /// [`InferenceError::InvalidInput`] when a side is 0 or the byte count does not fit the size.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Result<Self> {
        let wanted = (u64::from(width) * u64::from(height)).saturating_mul(3);
        if width == 0 || height == 0 || pixels.len() as u64 != wanted {
            return Err(InferenceError::InvalidInput(format!(
                "a {width}x{height} RGB picture has {wanted} bytes, got {}",
                pixels.len()
            )));
        }
        Ok(Self {
            width,
            height,
            pixels: Arc::new(pixels),
        })
    }

    /// Width in pixels, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// All pixels, `height * width * 3` bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The pixels themselves, without a copy when no one else holds them.
    pub fn into_pixels(self) -> Vec<u8> {
        Arc::try_unwrap(self.pixels).unwrap_or_else(|shared| shared.as_ref().clone())
    }

    /// The red, green and blue of one pixel; `None` outside the picture.
    pub fn pixel(&self, x: u32, y: u32) -> Option<[u8; 3]> {
        if x >= self.width || y >= self.height {
            return None;
        }
        let at = (y as usize * self.width as usize + x as usize) * 3;
        self.pixels
            .get(at..at + 3)
            .and_then(|p| <[u8; 3]>::try_from(p).ok())
    }

    /// Copies out the part under `region`, widened to whole pixels and cut to the picture.
    ///
    /// Returns `None` when nothing of the region lies in the picture.
    pub fn crop(&self, region: &BoxXyxy) -> Option<Self> {
        if !region.is_valid() {
            return None;
        }
        let cut = region.clamped(self.width, self.height);
        let (x0, y0) = (cut.x0.floor() as u32, cut.y0.floor() as u32);
        let (x1, y1) = (cut.x1.ceil() as u32, cut.y1.ceil() as u32);
        if x1 <= x0 || y1 <= y0 {
            return None;
        }
        let row_bytes = self.width as usize * 3;
        let (from, to) = (x0 as usize * 3, x1 as usize * 3);
        let mut pixels = Vec::with_capacity((to - from) * (y1 - y0) as usize);
        for row in self
            .pixels
            .chunks_exact(row_bytes)
            .skip(y0 as usize)
            .take((y1 - y0) as usize)
        {
            pixels.extend_from_slice(&row[from..to]);
        }
        Self::new(x1 - x0, y1 - y0, pixels).ok()
    }
}

impl fmt::Debug for RgbImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RgbImage({}x{})", self.width, self.height)
    }
}

/// When a frame is shown, in seconds of its source's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameTime {
    /// Presentation time in seconds. The first frame of a file need not be at 0.
    pub secs: f64,
    /// True when the source gave no time for this frame and it was interpolated.
    pub estimated: bool,
}

impl FrameTime {
    /// A time the source itself gave.
    pub fn exact(secs: f64) -> Self {
        Self {
            secs,
            estimated: false,
        }
    }

    /// A time worked out from the neighbours or a declared rate.
    pub fn estimated(secs: f64) -> Self {
        Self {
            secs,
            estimated: true,
        }
    }
}

/// One upright frame of a source. A clone shares the pixels.
#[derive(Clone, Debug)]
pub struct VideoFrame {
    /// The picture, rotated the way a viewer shows it.
    pub image: RgbImage,
    /// Position among the source's frames in presentation order, from 0. Skipped frames count.
    pub index: u64,
    /// Presentation time.
    pub time: FrameTime,
    /// Where the frame comes from.
    pub source: SourceId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(width: u32, height: u32) -> RgbImage {
        let pixels = (0..width * height)
            .flat_map(|i| [(i % 251) as u8, 0, 0])
            .collect();
        RgbImage::new(width, height, pixels).unwrap()
    }

    #[test]
    fn a_picture_refuses_a_wrong_byte_count_and_an_empty_side() {
        assert!(RgbImage::new(2, 2, vec![0; 11]).is_err());
        assert!(RgbImage::new(0, 2, vec![]).is_err());
        assert!(RgbImage::new(u32::MAX, u32::MAX, vec![]).is_err());
    }

    #[test]
    fn a_crop_takes_whole_pixels_and_stays_inside() {
        let picture = ramp(10, 4);
        let crop = picture.crop(&BoxXyxy::new(7.5, 1.2, 99.0, 2.5)).unwrap();
        assert_eq!((crop.width(), crop.height()), (3, 2));
        assert_eq!(crop.pixel(0, 0), picture.pixel(7, 1));
        assert_eq!(crop.pixel(2, 1), picture.pixel(9, 2));
        assert!(picture.crop(&BoxXyxy::new(20.0, 0.0, 30.0, 4.0)).is_none());
        assert!(
            picture
                .crop(&BoxXyxy::new(f32::NAN, 0.0, 3.0, 4.0))
                .is_none()
        );
    }

    #[test]
    fn a_clone_shares_its_pixels() {
        let picture = ramp(8, 8);
        assert_eq!(picture.clone().pixels().as_ptr(), picture.pixels().as_ptr());
    }
}
