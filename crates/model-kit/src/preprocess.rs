//! Pictures to tensors, as torchvision makes them.
//!
//! The resize is PIL's 8-bit one: two passes, antialiased, whole-number arithmetic with 22 bits
//! behind the point (`ImagingResample` in Pillow's `Resample.c`), across first and then down. It is
//! exact, so the same picture gives the same bytes on every machine. torchvision's `Resize` on
//! tensors takes the same order with fewer bits and agrees to 0.05 of a step of 255 on average.

use candle_core::{Device, Tensor};
use pulp::Arch;
use rayon::prelude::*;
use shelfscan_inference_core::RgbImage;

use crate::{Error, Result};

/// Bits behind the point of a weight, as in Pillow.
const PRECISION_BITS: u32 = 32 - 8 - 2;

/// Filter of a resize; both shrink with antialias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFilter {
    /// A triangle.
    Bilinear,
    /// Cubic convolution with a = -0.5.
    Bicubic,
}

impl PictureFilter {
    fn radius(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Self::Bicubic => 0.0,
        }
    }

    /// Name for a preprocessing version.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
        }
    }
}

/// How a picture becomes the size a model wants. None of them cuts anything off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FitPolicy {
    /// Both sides are stretched to the wanted size.
    #[default]
    Stretch,
    /// The longer side is fitted, the picture centred, and the rest filled with the mean colour,
    /// which is 0 after normalisation.
    Pad,
}

impl FitPolicy {
    /// Name for a preprocessing version.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stretch => "stretch",
            Self::Pad => "pad",
        }
    }
}

/// Mean and standard deviation per channel, of values in 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalisation {
    /// Means of red, green and blue.
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue.
    pub std: [f32; 3],
}

impl Normalisation {
    /// ImageNet's, as DINOv2 uses them.
    pub const IMAGENET: Self = Self {
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
    };
    /// To -1..=1, as SAM 3 uses it.
    pub const HALF: Self = Self {
        mean: [0.5; 3],
        std: [0.5; 3],
    };
}

/// Sides rounded to the nearest multiple of `patch`, at least one patch: 240x320 becomes 238x322
/// for patches of 14. Halves round up.
pub fn nearest_multiple(width: u32, height: u32, patch: u32) -> (u32, u32) {
    let patch = patch.max(1);
    let side = |v: u32| {
        let count = (u64::from(v) + u64::from(patch / 2)) / u64::from(patch);
        (count.max(1) * u64::from(patch)).min(u64::from(u32::MAX)) as u32
    };
    (side(width), side(height))
}

/// Windows and weights of one axis.
struct Windows {
    starts: Vec<usize>,
    lens: Vec<usize>,
    weights: Vec<i32>,
    taps: usize,
}

impl Windows {
    fn new(input: usize, output: usize, filter: PictureFilter) -> Self {
        let step = input as f64 / output as f64;
        let width = step.max(1.0);
        let reach = filter.radius() * width;
        let taps = reach.ceil() as usize * 2 + 1;
        let mut windows = Self {
            starts: Vec::with_capacity(output),
            lens: Vec::with_capacity(output),
            weights: vec![0; output * taps],
            taps,
        };
        for i in 0..output {
            let center = (i as f64 + 0.5) * step;
            // Truncation towards zero, as a C cast does.
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).min(input);
            let len = end - first;
            let values: Vec<f64> = (0..len)
                .map(|j| filter.weight((j as f64 + first as f64 - center + 0.5) / width))
                .collect();
            let total: f64 = values.iter().sum();
            for (cell, value) in windows.weights[i * taps..].iter_mut().zip(&values) {
                let value = if total == 0.0 { *value } else { value / total };
                let fixed = value * f64::from(1u32 << PRECISION_BITS);
                *cell = (fixed + if fixed < 0.0 { -0.5 } else { 0.5 }) as i32;
            }
            windows.starts.push(first);
            windows.lens.push(len);
        }
        windows
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let windows = self.starts.iter().zip(&self.lens);
        windows
            .zip(self.weights.chunks_exact(self.taps))
            .map(|((start, len), weights)| (*start, &weights[..*len]))
    }
}

#[inline(always)]
fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

/// Resizes with antialias as `PIL.Image.resize`, across first and then down: Pillow's own bytes
/// where it takes that order. Pillow 13 takes the other one for some sizes, which moves some bytes
/// by a rounding step.
///
/// # Errors
/// [`Error::InvalidInput`] when a side is 0.
pub fn resize(
    image: &RgbImage,
    width: u32,
    height: u32,
    filter: PictureFilter,
) -> Result<RgbImage> {
    if width == 0 || height == 0 {
        return Err(Error::InvalidInput(format!(
            "a picture cannot be resized to {width}x{height}; pass sides of at least 1"
        )));
    }
    if (image.width(), image.height()) == (width, height) {
        return Ok(image.clone());
    }
    let (from_w, from_h) = (image.width() as usize, image.height() as usize);
    let (to_w, to_h) = (width as usize, height as usize);
    let rows = if from_w == to_w {
        image.pixels().to_vec()
    } else {
        let windows = Windows::new(from_w, to_w, filter);
        let mut rows = vec![0u8; to_w * from_h * 3];
        rows.par_chunks_mut(to_w * 3)
            .zip(image.pixels().par_chunks(from_w * 3))
            .for_each(|(out, line)| across(line, &windows, out));
        rows
    };
    let pixels = if from_h == to_h {
        rows
    } else {
        let windows = Windows::new(from_h, to_h, filter);
        let mut out = vec![0u8; to_w * to_h * 3];
        let jobs: Vec<_> = windows.iter().collect();
        out.par_chunks_mut(to_w * 3)
            .zip(jobs)
            .for_each(|(out, (start, weights))| {
                Arch::new().dispatch(|| down(&rows[start * to_w * 3..], weights, out));
            });
        out
    };
    RgbImage::new(width, height, pixels).map_err(|e| Error::InvalidInput(e.to_string()))
}

fn across(line: &[u8], windows: &Windows, out: &mut [u8]) {
    const HALF: i32 = 1 << (PRECISION_BITS - 1);
    for (cell, (start, weights)) in out.chunks_exact_mut(3).zip(windows.iter()) {
        let mut sums = [HALF; 3];
        for (pixel, weight) in line[start * 3..].chunks_exact(3).zip(weights) {
            for (sum, v) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(*v) * weight;
            }
        }
        for (cell, sum) in cell.iter_mut().zip(sums) {
            *cell = to_byte(sum);
        }
    }
}

#[inline(always)]
fn down(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    const HALF: i32 = 1 << (PRECISION_BITS - 1);
    const STRIP: usize = 192;
    let width = out.len();
    for (strip, out) in out.chunks_mut(STRIP).enumerate() {
        let mut sums = [HALF; STRIP];
        for (row, weight) in rows.chunks(width).zip(weights) {
            let row = &row[strip * STRIP..][..out.len()];
            for (sum, v) in sums.iter_mut().zip(row) {
                *sum += i32::from(*v) * weight;
            }
        }
        for (cell, sum) in out.iter_mut().zip(sums) {
            *cell = to_byte(sum);
        }
    }
}

/// A picture fitted to `width` x `height` with nothing cut off.
///
/// # Errors
/// [`Error::InvalidInput`] when a side is 0.
pub fn fit(
    image: &RgbImage,
    width: u32,
    height: u32,
    filter: PictureFilter,
    policy: FitPolicy,
    mean: [f32; 3],
) -> Result<RgbImage> {
    if policy == FitPolicy::Stretch {
        return resize(image, width, height, filter);
    }
    let scale = (f64::from(width) / f64::from(image.width()))
        .min(f64::from(height) / f64::from(image.height()));
    let side = |v: u32, limit: u32| ((f64::from(v) * scale).round() as u32).clamp(1, limit.max(1));
    let (w, h) = (side(image.width(), width), side(image.height(), height));
    let small = resize(image, w, h, filter)?;
    let (left, top) = ((width - w) as usize / 2, (height - h) as usize / 2);
    let fill = mean.map(|m| (m * 255.0).round() as u8);
    let mut pixels: Vec<u8> = std::iter::repeat_n(fill, width as usize * height as usize)
        .flatten()
        .collect();
    let (wide, narrow) = (width as usize * 3, w as usize * 3);
    for (line, row) in small
        .pixels()
        .chunks_exact(narrow)
        .zip(pixels.chunks_exact_mut(wide).skip(top))
    {
        row[left * 3..][..narrow].copy_from_slice(line);
    }
    RgbImage::new(width, height, pixels).map_err(|e| Error::InvalidInput(e.to_string()))
}

/// Pictures of one size as `[b, 3, h, w]` f32 on the CPU: `(v / 255 - mean) / std`.
///
/// # Errors
/// [`Error::InvalidInput`] when there is no picture or they differ in size.
pub fn to_tensor(images: &[RgbImage], norm: Normalisation) -> Result<Tensor> {
    let Some(first) = images.first() else {
        return Err(Error::InvalidInput(
            "no picture to make a tensor of; pass at least one".into(),
        ));
    };
    let (w, h) = (first.width() as usize, first.height() as usize);
    if let Some(other) = images
        .iter()
        .find(|i| (i.width() as usize, i.height() as usize) != (w, h))
    {
        return Err(Error::InvalidInput(format!(
            "pictures of one batch must have one size, got {w}x{h} and {}x{}; resize them first",
            other.width(),
            other.height()
        )));
    }
    // 256 values a channel are all there can be.
    let tables: Vec<[f32; 256]> = (0..3)
        .map(|c| std::array::from_fn(|v| (v as f32 / 255.0 - norm.mean[c]) / norm.std[c]))
        .collect();
    let mut data = vec![0.0f32; images.len() * 3 * h * w];
    data.par_chunks_mut(h * w)
        .enumerate()
        .for_each(|(at, plane)| {
            let (image, channel) = (&images[at / 3], at % 3);
            let table = &tables[channel];
            let values = image.pixels().iter().skip(channel).step_by(3);
            for (cell, v) in plane.iter_mut().zip(values) {
                *cell = table[usize::from(*v)];
            }
        });
    Tensor::from_vec(data, (images.len(), 3, h, w), &Device::Cpu).map_err(|source| Error::Tensor {
        what: "making a tensor of pictures".into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(width: u32, height: u32) -> RgbImage {
        let mut state = 7u32;
        let pixels = (0..width * height * 3)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        RgbImage::new(width, height, pixels).unwrap()
    }

    #[test]
    fn a_flat_picture_stays_flat_and_a_same_size_resize_is_free() {
        let grey = RgbImage::new(31, 17, vec![131; 31 * 17 * 3]).unwrap();
        for filter in [PictureFilter::Bilinear, PictureFilter::Bicubic] {
            for (w, h) in [(14, 14), (224, 98), (1, 1)] {
                let out = resize(&grey, w, h, filter).unwrap();
                assert!(out.pixels().iter().all(|v| *v == 131), "{filter:?} {w}x{h}");
            }
        }
        let same = resize(&grey, 31, 17, PictureFilter::Bicubic).unwrap();
        assert_eq!(same.pixels().as_ptr(), grey.pixels().as_ptr());
    }

    #[test]
    fn halving_averages_a_checkerboard_away() {
        let board: Vec<u8> = (0..64u32 * 64)
            .flat_map(|i| [if (i % 64 + i / 64) % 2 == 0 { 255u8 } else { 0 }; 3])
            .collect();
        let board = RgbImage::new(64, 64, board).unwrap();
        let small = resize(&board, 16, 16, PictureFilter::Bicubic).unwrap();
        assert!(small.pixels().iter().all(|v| (120..=135).contains(v)));
    }

    #[test]
    fn a_mark_at_the_border_survives_every_policy() {
        let mut pixels = vec![0u8; 90 * 240 * 3];
        for row in pixels.chunks_exact_mut(90 * 3) {
            row[..9].fill(255);
            let end = row.len();
            row[end - 9..].fill(255);
        }
        let pack = RgbImage::new(90, 240, pixels).unwrap();
        for policy in [FitPolicy::Stretch, FitPolicy::Pad] {
            let out = fit(&pack, 112, 112, PictureFilter::Bicubic, policy, [0.0; 3]).unwrap();
            let row = &out.pixels()[56 * 112 * 3..][..112 * 3];
            let bright: Vec<usize> = (0..112).filter(|x| row[x * 3] > 128).collect();
            let (first, last) = (bright[0], bright[bright.len() - 1]);
            let wide = if policy == FitPolicy::Stretch {
                108
            } else {
                38
            };
            assert!(last - first >= wide, "{policy:?}: {first}..{last}");
        }
    }

    #[test]
    fn sides_round_to_the_nearest_patch() {
        assert_eq!(nearest_multiple(240, 320, 14), (238, 322));
        assert_eq!(nearest_multiple(1, 7, 14), (14, 14));
        assert_eq!(nearest_multiple(21, 224, 14), (28, 224));
    }

    #[test]
    fn a_tensor_is_planar_and_normalised() {
        let image = RgbImage::new(2, 1, vec![255, 0, 51, 0, 255, 102]).unwrap();
        let t = to_tensor(&[image.clone(), image], Normalisation::HALF).unwrap();
        assert_eq!(t.dims(), [2, 3, 1, 2]);
        let row: Vec<f32> = t.get(1).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        for (got, want) in row.iter().zip([1.0, -1.0, -1.0, 1.0, -0.6, -0.2]) {
            assert!((got - want).abs() < 1e-6);
        }
    }

    #[test]
    fn unusable_input_is_an_error() {
        assert!(to_tensor(&[], Normalisation::HALF).is_err());
        assert!(to_tensor(&[noise(2, 2), noise(2, 3)], Normalisation::HALF).is_err());
        assert!(resize(&noise(2, 2), 0, 4, PictureFilter::Bilinear).is_err());
    }

    #[test]
    fn extreme_sizes_do_not_fail() {
        for (w, h) in [(1, 500), (500, 1), (3, 3)] {
            let out = resize(&noise(w, h), 224, 14, PictureFilter::Bicubic).unwrap();
            assert_eq!((out.width(), out.height()), (224, 14));
        }
    }
}
