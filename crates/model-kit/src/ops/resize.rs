//! Resampling of `[b, c, h, w]` grids as `torch.nn.functional.interpolate` does it.
//!
//! Every filter is two passes with a small table of weights per axis. On devices other than the
//! CPU the tables become matrices, and the passes products.

use candle_core::{DType, Result, Tensor};
use pulp::Arch;
use rayon::prelude::*;

use super::{cpu, pages, scratch::with_scratch};

/// Kernel of a resampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Straight lines between neighbours.
    Bilinear,
    /// Cubic convolution (Keys 1981): `a` is -0.75 without antialias, -0.5 with, as in PyTorch.
    Bicubic,
}

/// How output positions map to input positions. Pixels are areas (`align_corners=False`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The kernel.
    pub filter: Filter,
    /// Widens the kernel when shrinking, so that every input counts.
    pub antialias: bool,
    /// Output pixels per input pixel along `(y, x)` where that is not the ratio of the sizes; what
    /// PyTorch does when it is given `scale_factor`.
    pub scale: Option<(f64, f64)>,
}

impl Sampling {
    /// Bilinear from the sizes.
    pub fn bilinear(antialias: bool) -> Self {
        Self {
            filter: Filter::Bilinear,
            antialias,
            scale: None,
        }
    }

    /// Bicubic from the sizes.
    pub fn bicubic(antialias: bool) -> Self {
        Self {
            filter: Filter::Bicubic,
            ..Self::bilinear(antialias)
        }
    }
}

/// Weights of one axis: output `i` is the sum of `weights[i * taps + t] * input[starts[i] + t]`.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) starts: Vec<usize>,
    pub(crate) weights: Vec<f32>,
    pub(crate) taps: usize,
}

impl Table {
    /// `scale` is output per input pixel.
    pub(crate) fn new(input: usize, output: usize, scale: f64, sampling: Sampling) -> Self {
        let step = 1.0 / scale;
        let (radius, a) = match sampling.filter {
            Filter::Bilinear => (1.0, 0.0),
            Filter::Bicubic => (2.0, if sampling.antialias { -0.5 } else { -0.75 }),
        };
        let kernel = |x: f64| match sampling.filter {
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Bicubic => cubic(x.abs(), a),
        };
        let mut rows: Vec<(usize, Vec<f64>)> = Vec::with_capacity(output);
        for i in 0..output {
            let mut row = if sampling.antialias {
                widened(
                    input,
                    (i as f64 + 0.5) * step,
                    radius,
                    step.max(1.0),
                    kernel,
                )
            } else {
                clamped(
                    input,
                    (i as f64 + 0.5) * step - 0.5,
                    sampling.filter,
                    kernel,
                )
            };
            if sampling.antialias {
                let total: f64 = row.1.iter().sum();
                row.1.iter_mut().for_each(|w| *w /= total);
            }
            rows.push(row);
        }
        let taps = rows
            .iter()
            .map(|row| row.1.len())
            .max()
            .unwrap_or(1)
            .min(input);
        let mut table = Self {
            starts: Vec::with_capacity(output),
            weights: Vec::with_capacity(output * taps),
            taps,
        };
        for (start, weights) in rows {
            // Padded on the left where the window would leave the input on the right.
            let shifted = start.min(input - taps);
            table.starts.push(shifted);
            let lead = start - shifted;
            table.weights.extend(std::iter::repeat_n(0.0, lead));
            table.weights.extend(weights.iter().map(|w| *w as f32));
            let rest = taps - lead - weights.len();
            table.weights.extend(std::iter::repeat_n(0.0, rest));
        }
        table
    }

    /// As a matrix `[output, input]`.
    fn dense(&self, input: usize) -> Vec<f32> {
        let mut matrix = vec![0.0; self.starts.len() * input];
        for (i, start) in self.starts.iter().enumerate() {
            let weights = &self.weights[i * self.taps..][..self.taps];
            matrix[i * input + start..][..self.taps].copy_from_slice(weights);
        }
        matrix
    }
}

fn cubic(x: f64, a: f64) -> f64 {
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((x - 5.0) * x + 8.0) * x * a - 4.0 * a
    } else {
        0.0
    }
}

/// Weights of the inputs under a kernel widened by `width` around `center`.
fn widened(
    input: usize,
    center: f64,
    radius: f64,
    width: f64,
    kernel: impl Fn(f64) -> f64,
) -> (usize, Vec<f64>) {
    let reach = radius * width;
    let first = ((center - reach + 0.5).max(0.0) as usize).min(input - 1);
    let end = ((center + reach + 0.5) as usize).clamp(first + 1, input);
    let weights = (first..end)
        .map(|j| kernel((j as f64 - center + 0.5) / width))
        .collect();
    (first, weights)
}

/// Weights of the two or four neighbours of `at`; those outside count for the edge.
fn clamped(
    input: usize,
    at: f64,
    filter: Filter,
    kernel: impl Fn(f64) -> f64,
) -> (usize, Vec<f64>) {
    let (at, before, after) = match filter {
        Filter::Bilinear => (at.max(0.0), 0i64, 1i64),
        Filter::Bicubic => (at, 1, 2),
    };
    let floor = at.floor();
    let last = input as i64 - 1;
    let edge = |j: i64| (floor as i64 + j).clamp(0, last) as usize;
    let (first, end) = (edge(-before), edge(after));
    let mut weights = vec![0.0; end - first + 1];
    for j in -before..=after {
        weights[edge(j) - first] += kernel(floor + j as f64 - at);
    }
    (first, weights)
}

/// Resamples `[b, c, h, w]` to `[b, c, height, width]`.
///
/// # Errors
/// A side is 0, or candle's own.
pub fn resize_2d(x: &Tensor, height: usize, width: usize, sampling: Sampling) -> Result<Tensor> {
    let (b, c, h, w) = x.dims4()?;
    if h * w == 0 || height * width == 0 {
        candle_core::bail!("cannot resize {:?} to {height}x{width}", x.dims());
    }
    let (sy, sx) = sampling
        .scale
        .unwrap_or((height as f64 / h as f64, width as f64 / w as f64));
    if !(sy > 0.0 && sx > 0.0) {
        candle_core::bail!("cannot resize by the factors {sy} and {sx}");
    }
    let down = Table::new(h, height, sy, sampling);
    let across = Table::new(w, width, sx, sampling);
    let fast = cpu::with_floats(x, |data| {
        let mut out = pages::zeros(b * c * height * width);
        out.par_chunks_mut(height * width)
            .zip(data.par_chunks(h * w))
            .for_each(|(out, plane)| {
                with_scratch(h * width, |rows| {
                    Arch::new().dispatch(|| {
                        across_rows(plane, w, &across, rows);
                        down_columns(rows, width, &down, out);
                    });
                });
            });
        out
    })?;
    if let Some(out) = fast {
        return cpu::from_floats(out, &[b, c, height, width]);
    }
    let wide = x.to_dtype(DType::F32)?.contiguous()?;
    let down = Tensor::from_vec(down.dense(h), (1, 1, height, h), x.device())?;
    let across = Tensor::from_vec(across.dense(w), (1, 1, width, w), x.device())?;
    let across = across
        .transpose(2, 3)?
        .broadcast_as((b, c, w, width))?
        .contiguous()?;
    let down = down.broadcast_as((b, c, height, h))?.contiguous()?;
    down.matmul(&wide.matmul(&across)?)?.to_dtype(x.dtype())
}

#[inline(always)]
fn across_rows(plane: &[f32], w: usize, table: &Table, out: &mut [f32]) {
    let width = table.starts.len();
    for (line, out) in plane.chunks_exact(w).zip(out.chunks_exact_mut(width)) {
        let weights = table.weights.chunks_exact(table.taps);
        for ((cell, start), weights) in out.iter_mut().zip(&table.starts).zip(weights) {
            let mut sum = 0.0;
            for (v, weight) in line[*start..].iter().zip(weights) {
                sum += v * weight;
            }
            *cell = sum;
        }
    }
}

#[inline(always)]
fn down_columns(rows: &[f32], width: usize, table: &Table, out: &mut [f32]) {
    let weights = table.weights.chunks_exact(table.taps);
    let lines = out.chunks_exact_mut(width).zip(&table.starts);
    for ((out, start), weights) in lines.zip(weights) {
        out.fill(0.0);
        for (line, weight) in rows[start * width..].chunks_exact(width).zip(weights) {
            for (cell, v) in out.iter_mut().zip(line) {
                *cell += v * weight;
            }
        }
    }
}

/// Repeats each pixel of `[b, c, h, w]` to fill `[b, c, height, width]`.
///
/// # Errors
/// A side is 0, or candle's own.
pub fn upsample_nearest_2d(x: &Tensor, height: usize, width: usize) -> Result<Tensor> {
    let (b, c, h, w) = x.dims4()?;
    if h * w == 0 || height * width == 0 {
        candle_core::bail!("cannot resize {:?} to {height}x{width}", x.dims());
    }
    let columns: Vec<usize> = (0..width).map(|i| i * w / width).collect();
    let fast = cpu::with_floats(x, |data| {
        let mut out = pages::zeros(b * c * height * width);
        out.par_chunks_mut(height * width)
            .zip(data.par_chunks(h * w))
            .for_each(|(out, plane)| {
                for (y, row) in out.chunks_exact_mut(width).enumerate() {
                    let line = &plane[y * h / height * w..][..w];
                    for (cell, x) in row.iter_mut().zip(&columns) {
                        *cell = line[*x];
                    }
                }
            });
        out
    })?;
    match fast {
        Some(out) => cpu::from_floats(out, &[b, c, height, width]),
        None => x.upsample_nearest2d(height, width),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::ops::check::{assert_close, floats, random};

    #[test]
    fn a_flat_grid_stays_flat_under_every_filter_and_size() {
        for (h, w, height, width) in [(37, 37, 16, 16), (3, 5, 7, 2), (1, 1, 4, 4), (9, 4, 1, 1)] {
            let flat = Tensor::full(0.25f32, (1, 2, h, w), &Device::Cpu).unwrap();
            for filter in [Filter::Bilinear, Filter::Bicubic] {
                for antialias in [false, true] {
                    let sampling = Sampling {
                        filter,
                        antialias,
                        scale: None,
                    };
                    let got = resize_2d(&flat, height, width, sampling).unwrap();
                    let want = Tensor::full(0.25f32, (1, 2, height, width), &Device::Cpu).unwrap();
                    assert_close(&got, &want, 1e-6, &format!("{sampling:?}"));
                }
            }
        }
    }

    #[test]
    fn doubling_a_row_gives_the_known_quarters() {
        let row = Tensor::from_vec(vec![0.0f32, 4.0], (1, 1, 1, 2), &Device::Cpu).unwrap();
        let got = resize_2d(&row, 1, 4, Sampling::bilinear(false)).unwrap();
        assert_eq!(floats(&got), [0.0, 1.0, 3.0, 4.0]);
        let halved = resize_2d(&got, 1, 2, Sampling::bilinear(true)).unwrap();
        // A triangle four pixels wide, cut at the edge: weights 3, 3, 1 of 7.
        let want = [(3.0 + 3.0) / 7.0, (1.0 + 9.0 + 12.0) / 7.0];
        for (got, want) in floats(&halved).iter().zip(want) {
            assert!((got - want).abs() < 1e-6);
        }
    }

    #[test]
    fn the_product_form_for_other_devices_equals_the_passes() {
        let x = random(&[2, 3, 11, 7], 1);
        for sampling in [
            Sampling::bilinear(true),
            Sampling::bicubic(false),
            Sampling::bicubic(true),
            Sampling {
                scale: Some((5.1 / 11.0, 9.1 / 7.0)),
                ..Sampling::bicubic(false)
            },
        ] {
            let want = resize_2d(&x, 5, 9, sampling).unwrap();
            let wide = x.to_dtype(DType::F64).unwrap();
            let got = resize_2d(&wide, 5, 9, sampling).unwrap();
            assert_close(&got.to_dtype(DType::F32).unwrap(), &want, 1e-5, "dense");
        }
    }

    #[test]
    fn nearest_equals_candles() {
        for (h, w, height, width) in [(3, 4, 6, 8), (5, 7, 12, 9), (4, 4, 2, 3)] {
            let x = random(&[2, 3, w, h], 1).transpose(2, 3).unwrap();
            let got = upsample_nearest_2d(&x, height, width).unwrap();
            let want = x
                .contiguous()
                .unwrap()
                .upsample_nearest2d(height, width)
                .unwrap();
            assert_close(&got, &want, 0.0, "nearest");
        }
    }

    #[test]
    fn an_empty_side_is_an_error() {
        let x = random(&[1, 1, 2, 2], 1);
        assert!(resize_2d(&x, 0, 2, Sampling::bilinear(false)).is_err());
        assert!(upsample_nearest_2d(&x, 2, 0).is_err());
    }
}
