//! Convolutions over `[b, c, h, w]`.
//!
//! A strip of output pixels is unrolled straight into a packed panel, multiplied by the kernel's
//! rows and written out, so that the unrolled picture never exists as a whole.

use candle_core::{Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{
    Activation, cpu,
    disjoint::column_strips,
    pages,
    product::{PanelShape, ROWS, product, six_rows},
    scratch::with_scratch,
    simd::activate,
};

/// Size and placement of a square kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Geometry {
    fn output(&self, size: usize) -> Option<usize> {
        (size + 2 * self.padding)
            .checked_sub(self.kernel)
            .map(|rest| rest / self.stride + 1)
    }

    fn check(self) -> Result<Self> {
        if self.kernel == 0 || self.stride == 0 {
            candle_core::bail!("a convolution needs a kernel and a stride of at least 1");
        }
        Ok(self)
    }
}

/// A convolution with a square kernel, without groups.
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// `[out, in, k, k]`.
    weight: Tensor,
    bias: Option<Tensor>,
    bias_floats: Vec<f32>,
    geometry: Geometry,
    activation: Activation,
}

impl Conv2d {
    /// `weight` is `[out, in, k, k]`, `bias` `[out]`; `padding` zeros on each side.
    ///
    /// # Errors
    /// The shapes do not fit, or the kernel is not square.
    pub fn new(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: usize,
        padding: usize,
    ) -> Result<Self> {
        let (out, _, kernel, kw) = weight.dims4()?;
        if kernel != kw || bias.is_some_and(|bias| bias.dims() != [out]) {
            candle_core::bail!(
                "kernel {:?} is not square or does not fit its bias {:?}",
                weight.dims(),
                bias.map(Tensor::dims)
            );
        }
        let geometry = Geometry {
            kernel,
            stride,
            padding,
        };
        Ok(Self {
            weight: weight.contiguous()?,
            bias: bias.cloned(),
            bias_floats: match bias {
                Some(bias) if cpu::is_cpu_f32(bias) => cpu::to_floats(bias)?,
                _ => Vec::new(),
            },
            geometry: geometry.check()?,
            activation: Activation::Identity,
        })
    }

    /// Fuses an activation behind it.
    #[must_use]
    pub fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// `[b, in, h, w]` to `[b, out, h', w']`.
    ///
    /// # Errors
    /// The channels differ or the picture is smaller than the kernel.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        let (out, inner, ..) = self.weight.dims4()?;
        let sizes = self.geometry.output(h).zip(self.geometry.output(w));
        let Some((oh, ow)) = sizes.filter(|_| c == inner) else {
            candle_core::bail!(
                "kernel {:?} does not fit {:?}",
                self.weight.dims(),
                x.dims()
            );
        };
        if cpu::is_cpu_f32(x) {
            let data = cpu::with_floats(&self.weight, |weight| {
                cpu::with_floats(x, |data| {
                    let mut result = pages::zeros(b * out * oh * ow);
                    let pictures = data.chunks_exact(c * h * w);
                    for (data, result) in pictures.zip(result.chunks_exact_mut(out * oh * ow)) {
                        let unroll = Unroll {
                            data,
                            dims: (c, h, w),
                            geometry: self.geometry,
                            width: ow,
                        };
                        self.picture(unroll, weight, oh * ow, result);
                    }
                    result
                })
            })?;
            if let Some(result) = data.transpose()?.flatten() {
                return cpu::from_floats(result, &[b, out, oh, ow]);
            }
        }
        let Geometry {
            stride, padding, ..
        } = self.geometry;
        let mut y = x.conv2d(&self.weight, padding, stride, 1, 1)?;
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(&bias.reshape((1, out, 1, 1))?)?;
        }
        self.activation.forward(&y)
    }

    fn picture(&self, unroll: Unroll<'_>, weight: &[f32], pixels: usize, out: &mut [f32]) {
        let inner = unroll.dims.0 * self.geometry.kernel * self.geometry.kernel;
        let shape = PanelShape::of_machine();
        let strip = strip_columns(shape, inner, pixels);
        column_strips(out, pixels, strip, |first, lines| {
            let mut lines: Vec<&mut [f32]> = lines.collect();
            let count = lines.first().map_or(0, |line| line.len());
            with_scratch(inner * shape.padded(count), |panels| {
                Arch::new().dispatch(|| {
                    for (col, w) in shape.panels(count) {
                        let panel = &mut panels[col * inner..][..w * inner];
                        unroll.fill(first + col, w.min(count - col), w, panel);
                    }
                });
                Arch::new().dispatch(Strip {
                    weight,
                    inner,
                    panels,
                    shape,
                    bias: &self.bias_floats,
                    activation: self.activation,
                    lines: &mut lines,
                });
            });
        });
    }
}

impl candle_core::Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// Columns of a strip: as many panels as half a second-level cache holds, but enough strips to go
/// round.
fn strip_columns(shape: PanelShape, inner: usize, pixels: usize) -> usize {
    const CACHE_FLOATS: usize = 1 << 17;
    let per_panel = inner * shape.columns;
    let by_cache = (CACHE_FLOATS / per_panel.max(1)).clamp(1, 8);
    let by_threads = pixels / (shape.columns * rayon::current_num_threads() * 2);
    by_cache.min(by_threads.max(1)) * shape.columns
}

#[derive(Clone, Copy)]
struct Unroll<'a> {
    /// One picture, `[c, h, w]`.
    data: &'a [f32],
    dims: (usize, usize, usize),
    geometry: Geometry,
    /// Width of the output.
    width: usize,
}

impl Unroll<'_> {
    /// Writes the inputs of `count` output pixels from `first` on as `[c * k * k][stride]`.
    #[inline(always)]
    fn fill(&self, first: usize, count: usize, stride: usize, panel: &mut [f32]) {
        let (c, h, w) = self.dims;
        let Geometry {
            kernel,
            stride: step,
            padding,
        } = self.geometry;
        let taps = (0..c)
            .flat_map(|ch| (0..kernel).flat_map(move |ky| (0..kernel).map(move |kx| (ch, ky, kx))));
        for ((ch, ky, kx), row) in taps.zip(panel.chunks_exact_mut(stride)) {
            row[count..].fill(0.0);
            let mut done = 0;
            while done < count {
                let (oy, ox) = ((first + done) / self.width, (first + done) % self.width);
                let len = (self.width - ox).min(count - done);
                let cells = &mut row[done..done + len];
                done += len;
                let y = (oy * step + ky).wrapping_sub(padding);
                if y >= h {
                    cells.fill(0.0);
                    continue;
                }
                let line = &self.data[(ch * h + y) * w..][..w];
                if step == 1 {
                    // Columns ox + kx - padding + i, cut to the line.
                    let left = padding.saturating_sub(ox + kx).min(len);
                    let from = (ox + kx + left).saturating_sub(padding);
                    let take = (len - left).min(w.saturating_sub(from));
                    cells[..left].fill(0.0);
                    if take > 0 {
                        cells[left..left + take].copy_from_slice(&line[from..from + take]);
                    }
                    cells[left + take..].fill(0.0);
                } else {
                    for (i, cell) in cells.iter_mut().enumerate() {
                        let x = ((ox + i) * step + kx).wrapping_sub(padding);
                        *cell = line.get(x).copied().unwrap_or(0.0);
                    }
                }
            }
        }
    }
}

/// All output channels of one strip of pixels.
struct Strip<'a, 'b> {
    weight: &'a [f32],
    inner: usize,
    panels: &'a [f32],
    shape: PanelShape,
    bias: &'a [f32],
    activation: Activation,
    lines: &'a mut [&'b mut [f32]],
}

impl WithSimd for Strip<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let out = self.lines.len();
        let count = self.lines.first().map_or(0, |line| line.len());
        for (first, lines) in self.lines.chunks_mut(ROWS).enumerate() {
            let row = first * ROWS;
            let a = six_rows(self.weight, self.inner, row, out);
            for (col, w) in self.shape.panels(count) {
                let panel = &self.panels[col * self.inner..][..w * self.inner];
                let store = |r: usize, line: &mut [f32], sums: &[S::f32s]| {
                    let bias = self.bias.get(row + r).copied().unwrap_or(0.0);
                    let bias = simd.splat_f32s(bias);
                    let end = count.min(col + w);
                    let (cells, tail) = S::as_mut_simd_f32s(&mut line[col..end]);
                    let value = |v| activate(simd, self.activation, simd.add_f32s(v, bias));
                    for (cell, v) in cells.iter_mut().zip(sums) {
                        *cell = value(*v);
                    }
                    if !tail.is_empty() {
                        simd.partial_store_f32s(tail, value(sums[cells.len()]));
                    }
                };
                match w / S::F32_LANES {
                    4 => each::<S, 4>(&product(simd, a, panel), lines, store),
                    3 => each::<S, 3>(&product(simd, a, panel), lines, store),
                    2 => each::<S, 2>(&product(simd, a, panel), lines, store),
                    _ => each::<S, 1>(&product(simd, a, panel), lines, store),
                }
            }
        }
    }
}

#[inline(always)]
fn each<S: Simd, const N: usize>(
    sums: &[[S::f32s; N]; ROWS],
    lines: &mut [&mut [f32]],
    store: impl Fn(usize, &mut [f32], &[S::f32s]),
) {
    for (r, (line, sums)) in lines.iter_mut().zip(sums).enumerate() {
        store(r, line, sums);
    }
}

/// A transposed convolution with a 2x2 kernel and stride 2, which doubles both sides.
#[derive(Clone, Debug)]
pub struct ConvTranspose2d {
    /// `[in, out, 2, 2]`.
    weight: Tensor,
    bias: Option<Tensor>,
    bias_floats: Vec<f32>,
    /// `[out * 4, in]`, when the weights are f32 on the CPU.
    rows: Vec<f32>,
}

impl ConvTranspose2d {
    /// `weight` is `[in, out, 2, 2]`, `bias` `[out]`.
    ///
    /// # Errors
    /// The shapes do not fit, or the kernel is not 2x2.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let (inner, out, kh, kw) = weight.dims4()?;
        if (kh, kw) != (2, 2) || bias.is_some_and(|bias| bias.dims() != [out]) {
            candle_core::bail!(
                "kernel {:?} is not [in, out, 2, 2] or does not fit its bias {:?}",
                weight.dims(),
                bias.map(Tensor::dims)
            );
        }
        let rows = if cpu::is_cpu_f32(weight) {
            cpu::to_floats(&weight.reshape((inner, out * 4))?.t()?)?
        } else {
            Vec::new()
        };
        Ok(Self {
            weight: weight.contiguous()?,
            bias: bias.cloned(),
            bias_floats: match bias {
                Some(bias) if cpu::is_cpu_f32(bias) => cpu::to_floats(bias)?,
                _ => Vec::new(),
            },
            rows,
        })
    }

    /// `[b, in, h, w]` to `[b, out, 2h, 2w]`.
    ///
    /// # Errors
    /// The channels differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        let (inner, out, ..) = self.weight.dims4()?;
        if c != inner {
            candle_core::bail!(
                "kernel {:?} does not fit {:?}",
                self.weight.dims(),
                x.dims()
            );
        }
        if !self.rows.is_empty() {
            let fast = cpu::with_floats(x, |data| {
                let mut result = pages::zeros(b * out * 4 * h * w);
                for (data, result) in data
                    .chunks_exact(c * h * w)
                    .zip(result.chunks_exact_mut(out * 4 * h * w))
                {
                    self.picture(data, (c, h, w), result);
                }
                result
            })?;
            if let Some(result) = fast {
                return cpu::from_floats(result, &[b, out, 2 * h, 2 * w]);
            }
        }
        let y = x.conv_transpose2d(&self.weight, 0, 0, 2, 1)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(&bias.reshape((1, out, 1, 1))?),
            None => Ok(y),
        }
    }

    fn picture(&self, data: &[f32], (c, h, w): (usize, usize, usize), out: &mut [f32]) {
        let shape = PanelShape::of_machine();
        let unroll = Unroll {
            data,
            dims: (c, h, w),
            geometry: Geometry {
                kernel: 1,
                stride: 1,
                padding: 0,
            },
            width: w,
        };
        // A strip is one input row: two output rows of every channel.
        column_strips(out, 4 * h * w, 4 * w, |first, lines| {
            let mut lines: Vec<&mut [f32]> = lines.collect();
            let rows = lines.len() * 4;
            with_scratch(c * shape.padded(w) + rows * w, |scratch| {
                let (panels, flat) = scratch.split_at_mut(c * shape.padded(w));
                for (col, width) in shape.panels(w) {
                    let panel = &mut panels[col * c..][..width * c];
                    unroll.fill(first / 4 + col, width.min(w - col), width, panel);
                }
                let mut products: Vec<&mut [f32]> = flat.chunks_exact_mut(w).collect();
                Arch::new().dispatch(Strip {
                    weight: &self.rows,
                    inner: c,
                    panels,
                    shape,
                    bias: &[],
                    activation: Activation::Identity,
                    lines: &mut products,
                });
                for (at, line) in products.iter().enumerate() {
                    let (channel, dy, dx) = (at / 4, at / 2 % 2, at % 2);
                    let bias = self.bias_floats.get(channel).copied().unwrap_or(0.0);
                    let cells = lines[channel][dy * 2 * w + dx..].iter_mut().step_by(2);
                    for (cell, v) in cells.zip(line.iter()) {
                        *cell = v + bias;
                    }
                }
            });
        });
    }
}

/// A convolution that keeps channels apart, with a square kernel and stride 1.
#[derive(Clone, Debug)]
pub struct DepthwiseConv2d {
    /// `[c, 1, k, k]`.
    weight: Tensor,
    bias: Tensor,
    padding: usize,
}

impl DepthwiseConv2d {
    /// `weight` is `[c, 1, k, k]`, `bias` `[c]`; `padding` zeros on each side.
    ///
    /// # Errors
    /// The shapes do not fit, or the kernel is not square.
    pub fn new(weight: &Tensor, bias: &Tensor, padding: usize) -> Result<Self> {
        let (c, one, kernel, kw) = weight.dims4()?;
        if one != 1 || kernel != kw || kernel == 0 || bias.dims() != [c] {
            candle_core::bail!(
                "kernel {:?} is not [c, 1, k, k] or does not fit its bias {:?}",
                weight.dims(),
                bias.dims()
            );
        }
        Ok(Self {
            weight: weight.contiguous()?,
            bias: bias.contiguous()?,
            padding,
        })
    }

    /// `[b, c, h, w]` to `[b, c, h', w']`.
    ///
    /// # Errors
    /// The channels differ or the picture is smaller than the kernel.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        let (channels, _, kernel, _) = self.weight.dims4()?;
        let geometry = Geometry {
            kernel,
            stride: 1,
            padding: self.padding,
        };
        let sizes = geometry.output(h).zip(geometry.output(w));
        let Some((oh, ow)) = sizes.filter(|_| c == channels) else {
            candle_core::bail!(
                "kernel {:?} does not fit {:?}",
                self.weight.dims(),
                x.dims()
            );
        };
        if cpu::is_cpu_f32(x) && cpu::is_cpu_f32(&self.weight) {
            let (weight, bias) = (cpu::to_floats(&self.weight)?, cpu::to_floats(&self.bias)?);
            let fast = cpu::with_floats(x, |data| {
                let mut result = pages::zeros(b * c * oh * ow);
                result
                    .par_chunks_mut(oh * ow)
                    .zip(data.par_chunks(h * w))
                    .enumerate()
                    .for_each(|(at, (out, plane))| {
                        let taps = &weight[at % c * kernel * kernel..][..kernel * kernel];
                        Arch::new().dispatch(|| {
                            out.fill(bias[at % c]);
                            depthwise_plane(plane, w, taps, geometry, ow, out);
                        });
                    });
                result
            })?;
            if let Some(result) = fast {
                return cpu::from_floats(result, &[b, c, oh, ow]);
            }
        }
        x.conv2d(&self.weight, self.padding, 1, 1, c)?
            .broadcast_add(&self.bias.reshape((1, c, 1, 1))?)
    }
}

#[inline(always)]
fn depthwise_plane(
    plane: &[f32],
    w: usize,
    taps: &[f32],
    geometry: Geometry,
    ow: usize,
    out: &mut [f32],
) {
    let Geometry {
        kernel, padding, ..
    } = geometry;
    let h = plane.len() / w;
    for (oy, row) in out.chunks_exact_mut(ow).enumerate() {
        for ky in 0..kernel {
            let y = (oy + ky).wrapping_sub(padding);
            if y >= h {
                continue;
            }
            let line = &plane[y * w..][..w];
            for kx in 0..kernel {
                let tap = taps[ky * kernel + kx];
                let left = padding.saturating_sub(kx).min(ow);
                let from = (left + kx).saturating_sub(padding).min(w);
                for (cell, v) in row[left..].iter_mut().zip(&line[from..]) {
                    *cell += tap * v;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_close, random};

    fn with_bias(y: &Tensor, bias: &Tensor) -> Tensor {
        let c = bias.elem_count();
        y.broadcast_add(&bias.reshape((1, c, 1, 1)).unwrap())
            .unwrap()
    }

    #[test]
    fn convolutions_equal_candles_over_odd_shapes_and_strides() {
        for (c, out, h, w, kernel, stride, padding) in [
            (1, 1, 1, 1, 1, 1, 0),
            (3, 5, 9, 7, 3, 1, 1),
            (8, 13, 17, 33, 1, 1, 0),
            (4, 4, 4, 4, 3, 1, 1),
            (2, 7, 12, 11, 3, 2, 1),
            (3, 6, 28, 42, 14, 14, 0),
            (5, 9, 6, 130, 7, 1, 3),
            (2, 3, 2, 3, 5, 1, 3),
        ] {
            let (weight, bias) = (random(&[out, c, kernel, kernel], 1), random(&[out], 2));
            let x = random(&[2, c, w, h], 3).transpose(2, 3).unwrap();
            let conv = Conv2d::new(&weight, Some(&bias), stride, padding).unwrap();
            let y = x.contiguous().unwrap();
            let want = with_bias(&y.conv2d(&weight, padding, stride, 1, 1).unwrap(), &bias);
            let what = format!("{c}->{out} {h}x{w} k{kernel} s{stride} p{padding}");
            assert_close(&conv.forward(&x).unwrap(), &want, 5e-5, &what);
            let relu = conv.with_activation(Activation::Relu);
            assert_close(
                &relu.forward(&x).unwrap(),
                &want.relu().unwrap(),
                5e-5,
                &what,
            );
        }
    }

    #[test]
    fn a_transposed_convolution_equals_candles() {
        for (c, out, h, w) in [(1, 1, 1, 1), (3, 5, 4, 7), (17, 2, 5, 65), (8, 8, 8, 8)] {
            let (weight, bias) = (random(&[c, out, 2, 2], 1), random(&[out], 2));
            let x = random(&[2, c, w, h], 3).transpose(2, 3).unwrap();
            let conv = ConvTranspose2d::new(&weight, Some(&bias)).unwrap();
            let y = x.contiguous().unwrap();
            let want = with_bias(&y.conv_transpose2d(&weight, 0, 0, 2, 1).unwrap(), &bias);
            assert_close(
                &conv.forward(&x).unwrap(),
                &want,
                2e-5,
                &format!("{c} {out} {h} {w}"),
            );
        }
    }

    #[test]
    fn a_depthwise_convolution_equals_candles() {
        for (c, h, w, kernel, padding) in [(1, 1, 1, 1, 0), (6, 9, 13, 7, 3), (4, 3, 2, 3, 1)] {
            let (weight, bias) = (random(&[c, 1, kernel, kernel], 1), random(&[c], 2));
            let x = random(&[2, c, w, h], 3).transpose(2, 3).unwrap();
            let conv = DepthwiseConv2d::new(&weight, &bias, padding).unwrap();
            let y = x.contiguous().unwrap();
            let want = with_bias(&y.conv2d(&weight, padding, 1, 1, c).unwrap(), &bias);
            assert_close(&conv.forward(&x).unwrap(), &want, 2e-5, "depthwise");
        }
    }

    #[test]
    fn kernels_that_do_not_fit_are_errors() {
        let conv = Conv2d::new(&random(&[2, 3, 5, 5], 1), None, 1, 0).unwrap();
        assert!(conv.forward(&random(&[1, 3, 4, 9], 2)).is_err());
        assert!(conv.forward(&random(&[1, 2, 9, 9], 2)).is_err());
        assert!(Conv2d::new(&random(&[2, 3, 5, 5], 1), None, 0, 0).is_err());
        assert!(Conv2d::new(&random(&[2, 3, 5, 4], 1), None, 1, 0).is_err());
        assert!(ConvTranspose2d::new(&random(&[2, 3, 3, 3], 1), None).is_err());
    }
}
