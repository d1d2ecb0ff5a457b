//! Layer and group normalisation.

use candle_core::{D, DType, Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{
    cpu::{self, CpuFloats},
    pages, simd,
};

/// Normalisation over the last dimension, with weight and bias.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// `weight` and `bias` are `[c]`.
    ///
    /// # Errors
    /// The two have different shapes.
    pub fn new(weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Self> {
        if weight.dims1()? != bias.dims1()? {
            candle_core::bail!(
                "layer norm weight {:?} and bias {:?} differ in shape",
                weight.dims(),
                bias.dims()
            );
        }
        Ok(Self {
            weight: weight.contiguous()?,
            bias: bias.contiguous()?,
            eps,
        })
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.weight.elem_count()
    }

    /// `[.., c]` to the same shape.
    ///
    /// # Errors
    /// The last dimension is not `c`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let c = self.channels();
        if x.dim(D::Minus1)? != c {
            candle_core::bail!("layer norm over {c} channels got {:?}", x.dims());
        }
        let fast = self.with_rows(|norm| {
            cpu::with_floats(x, |data| {
                let mut out = pages::zeros(data.len());
                let rows = (1usize << 14).div_ceil(c);
                out.par_chunks_mut(rows * c)
                    .zip(data.par_chunks(rows * c))
                    .for_each(|(out, rows)| norm.run(rows, out));
                out
            })
        });
        if let Some(Some(out)) = fast.transpose()? {
            return cpu::from_floats(out, x.dims());
        }
        let wide = x.to_dtype(DType::F32)?;
        let mean = wide.mean_keepdim(D::Minus1)?;
        let centred = wide.broadcast_sub(&mean)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        centred
            .broadcast_div(&(variance + self.eps)?.sqrt()?)?
            .to_dtype(x.dtype())?
            .broadcast_mul(&self.weight)?
            .broadcast_add(&self.bias)
    }

    /// Calls `work` with the weights as slices; `None` off the CPU.
    pub(crate) fn with_rows<R>(&self, work: impl FnOnce(RowNorm<'_>) -> R) -> Option<R> {
        let (weight, bias) = (CpuFloats::of(&self.weight)?, CpuFloats::of(&self.bias)?);
        Some(work(RowNorm {
            weight: weight.contiguous(),
            bias: bias.contiguous(),
            eps: self.eps as f32,
        }))
    }
}

impl candle_core::Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// The weights of a [`LayerNorm`] as slices.
#[derive(Clone, Copy)]
pub(crate) struct RowNorm<'a> {
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
}

impl RowNorm<'_> {
    /// Normalises each row of `rows` into `out`.
    pub(crate) fn run(&self, rows: &[f32], out: &mut [f32]) {
        Arch::new().dispatch(NormRows {
            norm: *self,
            rows,
            out,
        });
    }
}

struct NormRows<'a> {
    norm: RowNorm<'a>,
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let RowNorm { weight, bias, eps } = self.norm;
        let c = weight.len().max(1);
        for (row, out) in self.rows.chunks_exact(c).zip(self.out.chunks_exact_mut(c)) {
            simd::normalise_row(simd, row, weight, bias, eps, out);
        }
    }
}

/// Normalisation over the channels of each pixel of `[b, c, h, w]`, as in SAM's mask decoder.
#[derive(Clone, Debug)]
pub struct LayerNorm2d {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm2d {
    /// `weight` and `bias` are `[c]`.
    ///
    /// # Errors
    /// The two have different shapes.
    pub fn new(weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Self> {
        let norm = LayerNorm::new(weight, bias, eps)?;
        Ok(Self {
            weight: norm.weight,
            bias: norm.bias,
            eps,
        })
    }

    /// `[b, c, h, w]` to the same shape.
    ///
    /// # Errors
    /// The second dimension is not `c`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, c, h, w) = x.dims4()?;
        if c != self.weight.elem_count() {
            candle_core::bail!(
                "layer norm over {} channels got {:?}",
                self.weight.elem_count(),
                x.dims()
            );
        }
        let (weight, bias) = (CpuFloats::of(&self.weight), CpuFloats::of(&self.bias));
        if let (Some(weight), Some(bias)) = (weight, bias) {
            let (weight, bias) = (weight.contiguous(), bias.contiguous());
            let fast = cpu::with_floats(x, |data| {
                let mut out = pages::zeros(data.len());
                for (picture, out) in data
                    .chunks_exact(c * h * w)
                    .zip(out.chunks_exact_mut(c * h * w))
                {
                    norm_pixels(picture, weight, bias, self.eps as f32, h * w, out);
                }
                out
            })?;
            if let Some(out) = fast {
                return cpu::from_floats(out, x.dims());
            }
        }
        let wide = x.to_dtype(DType::F32)?;
        let centred = wide.broadcast_sub(&wide.mean_keepdim(1)?)?;
        let variance = centred.sqr()?.mean_keepdim(1)?;
        centred
            .broadcast_div(&(variance + self.eps)?.sqrt()?)?
            .to_dtype(x.dtype())?
            .broadcast_mul(&self.weight.reshape((1, c, 1, 1))?)?
            .broadcast_add(&self.bias.reshape((1, c, 1, 1))?)
    }
}

/// Mean and scale of every pixel first, then one pass over the channels.
fn norm_pixels(
    picture: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    pixels: usize,
    out: &mut [f32],
) {
    const STRIP: usize = 1024;
    let channels = weight.len() as f32;
    let mut mean = vec![0.0f32; pixels];
    let mut scale = vec![0.0f32; pixels];
    mean.par_chunks_mut(STRIP)
        .zip(scale.par_chunks_mut(STRIP))
        .enumerate()
        .for_each(|(strip, (mean, scale))| {
            pulp::Arch::new().dispatch(|| {
                let planes = || {
                    picture
                        .chunks_exact(pixels)
                        .map(|plane| &plane[strip * STRIP..][..mean_len(pixels, strip, STRIP)])
                };
                for plane in planes() {
                    for (m, v) in mean.iter_mut().zip(plane) {
                        *m += v;
                    }
                }
                for m in mean.iter_mut() {
                    *m /= channels;
                }
                for plane in planes() {
                    for ((s, v), m) in scale.iter_mut().zip(plane).zip(mean.iter()) {
                        *s += (v - m) * (v - m);
                    }
                }
                for s in scale.iter_mut() {
                    *s = 1.0 / (*s / channels + eps).sqrt();
                }
            });
        });
    out.par_chunks_mut(pixels)
        .zip(picture.par_chunks(pixels))
        .zip(weight.par_iter().zip(bias))
        .for_each(|((out, plane), (w, b))| {
            pulp::Arch::new().dispatch(|| {
                for (((o, v), m), s) in out.iter_mut().zip(plane).zip(&mean).zip(&scale) {
                    *o = (v - m) * s * w + b;
                }
            });
        });
}

fn mean_len(pixels: usize, strip: usize, size: usize) -> usize {
    size.min(pixels - strip * size)
}

/// Normalisation over groups of channels of `[b, c, h, w]`.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    weight: Tensor,
    bias: Tensor,
    groups: usize,
    eps: f64,
}

impl GroupNorm {
    /// `weight` and `bias` are `[c]`; `groups` divides `c`.
    ///
    /// # Errors
    /// The shapes differ or `groups` does not divide the channels.
    pub fn new(weight: &Tensor, bias: &Tensor, groups: usize, eps: f64) -> Result<Self> {
        let norm = LayerNorm::new(weight, bias, eps)?;
        let channels = norm.channels();
        if groups == 0 || channels % groups != 0 {
            candle_core::bail!("{channels} channels cannot be cut into {groups} groups");
        }
        Ok(Self {
            weight: norm.weight,
            bias: norm.bias,
            groups,
            eps,
        })
    }

    /// `[b, c, h, w]` to the same shape.
    ///
    /// # Errors
    /// The second dimension is not `c`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        if c != self.weight.elem_count() {
            candle_core::bail!(
                "group norm over {} channels got {:?}",
                self.weight.elem_count(),
                x.dims()
            );
        }
        let (weight, bias) = (CpuFloats::of(&self.weight), CpuFloats::of(&self.bias));
        if let (Some(weight), Some(bias)) = (weight, bias) {
            let (weight, bias) = (weight.contiguous(), bias.contiguous());
            let per_group = c / self.groups;
            let fast = cpu::with_floats(x, |data| {
                let mut out = pages::zeros(data.len());
                out.par_chunks_mut(per_group * h * w)
                    .zip(data.par_chunks(per_group * h * w))
                    .enumerate()
                    .for_each(|(at, (out, data))| {
                        let first = at % self.groups * per_group;
                        Arch::new().dispatch(NormGroup {
                            data,
                            weight: &weight[first..][..per_group],
                            bias: &bias[first..][..per_group],
                            eps: self.eps as f32,
                            out,
                        });
                    });
                out
            })?;
            if let Some(out) = fast {
                return cpu::from_floats(out, x.dims());
            }
        }
        let wide = x.to_dtype(DType::F32)?.reshape((b, self.groups, ()))?;
        let centred = wide.broadcast_sub(&wide.mean_keepdim(2)?)?;
        let variance = centred.sqr()?.mean_keepdim(2)?;
        centred
            .broadcast_div(&(variance + self.eps)?.sqrt()?)?
            .reshape((b, c, h, w))?
            .to_dtype(x.dtype())?
            .broadcast_mul(&self.weight.reshape((1, c, 1, 1))?)?
            .broadcast_add(&self.bias.reshape((1, c, 1, 1))?)
    }
}

struct NormGroup<'a> {
    data: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl WithSimd for NormGroup<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let count = self.data.len() as f32;
        let mean = simd::sum_of(simd, self.data, |v| v) / count;
        let means = simd.splat_f32s(mean);
        let variance = simd::sum_of(simd, self.data, |v| {
            let d = simd.sub_f32s(v, means);
            simd.mul_f32s(d, d)
        }) / count;
        let scale = 1.0 / (variance + self.eps).sqrt();
        let plane = (self.data.len() / self.weight.len().max(1)).max(1);
        let planes = self
            .data
            .chunks_exact(plane)
            .zip(self.out.chunks_exact_mut(plane));
        for ((data, out), (w, b)) in planes.zip(self.weight.iter().zip(self.bias)) {
            for (o, v) in out.iter_mut().zip(data) {
                *o = (v - mean) * scale * w + b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_close, floats, random};

    fn naive(values: &[f32], eps: f64) -> Vec<f64> {
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let var = values
            .iter()
            .map(|v| (f64::from(*v) - mean).powi(2))
            .sum::<f64>()
            / n;
        values
            .iter()
            .map(|v| (f64::from(*v) - mean) / (var + eps).sqrt())
            .collect()
    }

    #[test]
    fn layer_norm_equals_double_precision_on_odd_and_strided_rows() {
        for c in [1, 5, 16, 33, 192, 387] {
            let (w, b) = (random(&[c], 1), random(&[c], 2));
            let norm = LayerNorm::new(&w, &b, 1e-6).unwrap();
            let base = random(&[c, 3, 2], 3);
            let x = base.permute((1, 2, 0)).unwrap();
            let got = norm.forward(&x).unwrap();
            let (w, b) = (floats(&w), floats(&b));
            let want: Vec<f32> = floats(&x)
                .chunks(c)
                .flat_map(|row| {
                    naive(row, 1e-6)
                        .into_iter()
                        .zip(w.iter().zip(&b))
                        .map(|(n, (w, b))| n as f32 * w + b)
                        .collect::<Vec<_>>()
                })
                .collect();
            let want = Tensor::from_vec(want, (3, 2, c), x.device()).unwrap();
            assert_close(&got, &want, 2e-5, &format!("{c} channels"));
        }
    }

    #[test]
    fn pixel_and_group_norms_equal_the_generic_path() {
        for (c, groups, h, w) in [(4, 2, 3, 5), (6, 3, 1, 1), (32, 8, 33, 40), (5, 1, 7, 2)] {
            let (weight, bias) = (random(&[c], 4), random(&[c], 5));
            let x = random(&[2, c, w, h], 6).transpose(2, 3).unwrap();
            let wide = x.to_dtype(DType::F64).unwrap();
            let (wide_w, wide_b) = (
                weight.to_dtype(DType::F64).unwrap(),
                bias.to_dtype(DType::F64).unwrap(),
            );
            let pixel = LayerNorm2d::new(&weight, &bias, 1e-6).unwrap();
            let want = LayerNorm2d::new(&wide_w, &wide_b, 1e-6).unwrap();
            let want = want.forward(&wide).unwrap().to_dtype(DType::F32).unwrap();
            assert_close(&pixel.forward(&x).unwrap(), &want, 3e-5, "pixel norm");
            let group = GroupNorm::new(&weight, &bias, groups, 1e-5).unwrap();
            let want = GroupNorm::new(&wide_w, &wide_b, groups, 1e-5).unwrap();
            let want = want.forward(&wide).unwrap().to_dtype(DType::F32).unwrap();
            assert_close(&group.forward(&x).unwrap(), &want, 3e-5, "group norm");
        }
    }

    #[test]
    fn a_wrong_channel_count_is_an_error() {
        let norm = LayerNorm::new(&random(&[4], 1), &random(&[4], 2), 1e-6).unwrap();
        assert!(norm.forward(&random(&[2, 5], 3)).is_err());
        assert!(GroupNorm::new(&random(&[4], 1), &random(&[4], 2), 3, 1e-5).is_err());
    }
}
