//! Linear layers whose weights are packed once.

use std::sync::Arc;

use candle_core::{D, Device, Result, Tensor};
use pulp::Arch;
use rayon::prelude::*;

use super::{
    Activation, LayerNorm, cpu,
    norm::RowNorm,
    pages,
    product::{PackedMatrix, Product, rows_per_task},
    scratch::with_scratch,
};

/// `x W^T + b`, with what comes before and after it fused in.
///
/// A clone shares the weights. On the CPU in f32 they are packed for the inner loop when the layer
/// is made and the original is not kept.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
    columns: usize,
    inner: usize,
}

#[derive(Clone, Debug)]
enum Weight {
    Packed(Arc<PackedMatrix>),
    /// Transposed, `[in, out]`.
    Plain(Tensor),
}

impl Linear {
    /// `weight` is `[out, in]`, `bias` `[out]`.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let (columns, inner) = weight.dims2()?;
        if let Some(bias) = bias
            && bias.dims() != [columns]
        {
            candle_core::bail!(
                "a bias {:?} does not fit the weight {:?}",
                bias.dims(),
                weight.dims()
            );
        }
        let rows = bias.map(cpu::to_floats);
        let packed = if cpu::is_cpu_f32(weight) {
            let bias = rows.transpose()?;
            cpu::with_floats(weight, |weight| {
                PackedMatrix::from_rows(weight, columns, inner, bias.as_deref())
            })?
        } else {
            None
        };
        Ok(Self {
            weight: match packed {
                Some(packed) => Weight::Packed(Arc::new(packed)),
                None => Weight::Plain(weight.t()?),
            },
            bias: bias.cloned(),
            columns,
            inner,
        })
    }

    /// Length of an output row.
    pub fn out_features(&self) -> usize {
        self.columns
    }

    /// Length of an input row.
    pub fn in_features(&self) -> usize {
        self.inner
    }

    /// The weight, `[out, in]`; a copy when it was packed.
    ///
    /// # Errors
    /// candle's own.
    pub fn weight(&self) -> Result<Tensor> {
        match &self.weight {
            Weight::Packed(packed) => {
                cpu::from_floats(packed.to_rows(), &[self.columns, self.inner])
            }
            Weight::Plain(weight) => weight.t(),
        }
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// Where the weights lie.
    pub fn device(&self) -> &Device {
        match &self.weight {
            Weight::Packed(_) => &Device::Cpu,
            Weight::Plain(weight) => weight.device(),
        }
    }

    pub(crate) fn packed(&self) -> Option<&PackedMatrix> {
        match &self.weight {
            Weight::Packed(packed) => Some(packed),
            Weight::Plain(_) => None,
        }
    }

    /// `[.., in]` to `[.., out]`.
    ///
    /// # Errors
    /// The last dimension is not `in`, or the dtype or device is not the weights'.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, None, Activation::Identity, None)
    }

    /// `activation(x W^T + b)`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_act(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        self.run(x, None, activation, None)
    }

    /// `activation(norm(x) W^T + b)`; the normalised rows never leave the cache.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_normed(
        &self,
        x: &Tensor,
        norm: &LayerNorm,
        activation: Activation,
    ) -> Result<Tensor> {
        self.run(x, Some(norm), activation, None)
    }

    /// `residual + (x W^T + b)`; `residual` is `[.., out]`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), or `residual` has another shape.
    pub fn forward_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.run(x, None, Activation::Identity, Some(residual))
    }

    fn run(
        &self,
        x: &Tensor,
        norm: Option<&LayerNorm>,
        activation: Activation,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        if x.dim(D::Minus1)? != self.inner {
            candle_core::bail!("a linear layer over {} got {:?}", self.inner, x.dims());
        }
        let mut shape = x.dims().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = self.columns;
        }
        if let Some(residual) = residual
            && residual.dims() != shape
        {
            candle_core::bail!("a residual {:?} does not fit {shape:?}", residual.dims());
        }
        if let Some(packed) = self.packed()
            && cpu::is_cpu_f32(x)
        {
            let out = match residual {
                Some(residual) => cpu::to_floats(residual)?,
                None => pages::zeros(shape.iter().product()),
            };
            let task = |norm: Option<RowNorm<'_>>| {
                cpu::with_floats(x, |rows| {
                    let mut out = out;
                    multiply(rows, packed, norm, activation, residual.is_some(), &mut out);
                    out
                })
            };
            let out = match norm {
                Some(norm) => norm.with_rows(|norm| task(Some(norm))).transpose()?,
                None => Some(task(None)?),
            };
            if let Some(Some(out)) = out {
                return cpu::from_floats(out, &shape);
            }
        }
        let normed = match norm {
            Some(norm) => norm.forward(x)?,
            None => x.clone(),
        };
        let weight = match &self.weight {
            Weight::Plain(weight) => weight.clone(),
            Weight::Packed(_) => self.weight()?.t()?,
        };
        let flat = normed.reshape(((), self.inner))?;
        let mut out = flat.matmul(&weight)?;
        if let Some(bias) = &self.bias {
            out = out.broadcast_add(bias)?;
        }
        let out = activation.forward(&out.reshape(shape)?)?;
        match residual {
            Some(residual) => residual + out,
            None => Ok(out),
        }
    }

    /// Cuts `[b, 3, h, w]` into patches of `patch` x `patch` pixels, row by row, and maps each:
    /// `[b, (h / patch) * (w / patch), out]`. The weight is a convolution kernel
    /// `[out, 3, patch, patch]` seen as `[out, 3 * patch * patch]`; the bottom and right rests are
    /// left out, as in a convolution without padding.
    ///
    /// # Errors
    /// The kernel does not fit the channels, or the picture is smaller than a patch.
    pub fn forward_patches(&self, x: &Tensor, patch: usize) -> Result<Tensor> {
        let (b, c, h, w) = x.dims4()?;
        let (rows, cols) = (h / patch.max(1), w / patch.max(1));
        if patch == 0 || c * patch * patch != self.inner || rows * cols == 0 {
            candle_core::bail!(
                "patches of {patch} pixels over {:?} do not fit a kernel of {}",
                x.dims(),
                self.inner
            );
        }
        let shape = [b, rows * cols, self.columns];
        if let Some(packed) = self.packed() {
            let out = cpu::with_floats(x, |data| {
                let mut out = pages::zeros(shape.iter().product());
                let source = Patches {
                    data,
                    dims: (c, h, w),
                    patch,
                    per_row: cols,
                    per_picture: rows * cols,
                };
                source.multiply(packed, &mut out);
                out
            })?;
            if let Some(out) = out {
                return cpu::from_floats(out, &shape);
            }
        }
        let cut = x
            .narrow(2, 0, rows * patch)?
            .narrow(3, 0, cols * patch)?
            .reshape((b, c, rows, patch, cols, patch))?
            .permute((0, 2, 4, 1, 3, 5))?
            .reshape((b, rows * cols, self.inner))?;
        self.forward(&cut)
    }
}

impl candle_core::Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

fn multiply(
    rows: &[f32],
    matrix: &PackedMatrix,
    norm: Option<RowNorm<'_>>,
    activation: Activation,
    accumulate: bool,
    out: &mut [f32],
) {
    let (inner, columns) = (matrix.inner, matrix.columns);
    if out.is_empty() {
        return;
    }
    let take = rows_per_task(out.len() / columns, inner * columns);
    out.par_chunks_mut(take * columns)
        .zip(rows.par_chunks(take * inner))
        .for_each(|(out, rows)| {
            let mut product = |rows: &[f32]| {
                Arch::new().dispatch(Product {
                    rows,
                    matrix,
                    activation,
                    accumulate,
                    out,
                });
            };
            match norm {
                None => product(rows),
                Some(norm) => with_scratch(rows.len(), |normed| {
                    norm.run(rows, normed);
                    product(normed);
                }),
            }
        });
}

struct Patches<'a> {
    data: &'a [f32],
    dims: (usize, usize, usize),
    patch: usize,
    per_row: usize,
    per_picture: usize,
}

impl Patches<'_> {
    fn multiply(&self, matrix: &PackedMatrix, out: &mut [f32]) {
        let (inner, columns) = (matrix.inner, matrix.columns);
        let take = rows_per_task(out.len() / columns, inner * columns);
        out.par_chunks_mut(take * columns)
            .enumerate()
            .for_each(|(task, out)| {
                let count = out.len() / columns;
                with_scratch(count * inner, |rows| {
                    for (i, row) in rows.chunks_exact_mut(inner).enumerate() {
                        self.gather(task * take + i, row);
                    }
                    Arch::new().dispatch(Product {
                        rows,
                        matrix,
                        activation: Activation::Identity,
                        accumulate: false,
                        out,
                    });
                });
            });
    }

    /// Copies patch `index` in the order of the kernel: channel, row, column.
    fn gather(&self, index: usize, row: &mut [f32]) {
        let (c, h, w) = self.dims;
        let (picture, at) = (index / self.per_picture, index % self.per_picture);
        let (y, x) = (
            at / self.per_row * self.patch,
            at % self.per_row * self.patch,
        );
        let lines = (0..c).flat_map(|ch| (0..self.patch).map(move |dy| (ch, dy)));
        for ((ch, dy), out) in lines.zip(row.chunks_exact_mut(self.patch)) {
            let from = ((picture * c + ch) * h + y + dy) * w + x;
            out.copy_from_slice(&self.data[from..][..self.patch]);
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::ops::check::{assert_close, random};

    fn layer(out: usize, inner: usize) -> (Linear, Tensor, Tensor) {
        let (w, b) = (random(&[out, inner], 11), random(&[out], 12));
        (Linear::new(&w, Some(&b)).unwrap(), w, b)
    }

    #[test]
    fn products_equal_candles_over_odd_shapes_and_strides() {
        for (rows, inner, out) in [
            (1, 1, 1),
            (5, 7, 3),
            (6, 16, 64),
            (13, 33, 65),
            (257, 48, 130),
            (401, 5, 17),
            (7, 100, 200),
        ] {
            let (linear, w, b) = layer(out, inner);
            let x = random(&[inner, 1, rows], 13).permute((2, 1, 0)).unwrap();
            let flat = x.reshape((rows, inner)).unwrap();
            let want = flat.matmul(&w.t().unwrap()).unwrap();
            let want = want
                .broadcast_add(&b)
                .unwrap()
                .reshape((rows, 1, out))
                .unwrap();
            let what = format!("{rows}x{inner}x{out}");
            assert_close(&linear.forward(&x).unwrap(), &want, 2e-5, &what);
            let residual = random(&[out, 1, rows], 14).permute((2, 1, 0)).unwrap();
            let sum = (&residual + &want).unwrap();
            let got = linear.forward_residual(&x, &residual).unwrap();
            assert_close(&got, &sum, 2e-5, &what);
            let got = linear.forward_act(&x, Activation::Gelu).unwrap();
            assert_close(&got, &want.gelu_erf().unwrap(), 2e-5, &what);
            assert_close(&linear.weight().unwrap(), &w, 0.0, &what);
        }
    }

    #[test]
    fn a_fused_norm_equals_norm_then_layer() {
        let (linear, ..) = layer(70, 45);
        let norm = LayerNorm::new(&random(&[45], 1), &random(&[45], 2), 1e-6).unwrap();
        let x = random(&[2, 31, 45], 3);
        let want = linear
            .forward(&norm.forward(&x).unwrap())
            .unwrap()
            .relu()
            .unwrap();
        let got = linear.forward_normed(&x, &norm, Activation::Relu).unwrap();
        assert_close(&got, &want, 1e-6, "fused norm");
    }

    #[test]
    fn patches_equal_a_strided_convolution_on_pictures_with_a_rest() {
        for (h, w, patch) in [(28, 42, 14), (30, 44, 14), (9, 7, 3), (5, 5, 5)] {
            let kernel = random(&[10, 3, patch, patch], 4);
            let bias = random(&[10], 5);
            let flat = kernel.reshape((10, 3 * patch * patch)).unwrap();
            let linear = Linear::new(&flat, Some(&bias)).unwrap();
            let x = random(&[2, 3, w, h], 6).transpose(2, 3).unwrap();
            let want = x
                .contiguous()
                .unwrap()
                .conv2d(&kernel, 0, patch, 1, 1)
                .unwrap()
                .broadcast_add(&bias.reshape((1, 10, 1, 1)).unwrap())
                .unwrap()
                .flatten_from(2)
                .unwrap()
                .transpose(1, 2)
                .unwrap();
            assert_close(
                &linear.forward_patches(&x, patch).unwrap(),
                &want,
                1e-4,
                "patches",
            );
        }
    }

    #[test]
    fn other_dtypes_take_the_generic_path_and_agree() {
        let (linear, w, b) = layer(12, 20);
        let wide = Linear::new(
            &w.to_dtype(DType::F64).unwrap(),
            Some(&b.to_dtype(DType::F64).unwrap()),
        )
        .unwrap();
        let x = random(&[3, 20], 9);
        let got = wide.forward(&x.to_dtype(DType::F64).unwrap()).unwrap();
        let want = linear.forward(&x).unwrap();
        assert_close(&got.to_dtype(DType::F32).unwrap(), &want, 1e-5, "f64");
    }

    #[test]
    fn wrong_shapes_are_errors() {
        let (linear, w, _) = layer(12, 20);
        assert!(linear.forward(&random(&[3, 19], 1)).is_err());
        assert!(
            linear
                .forward_residual(&random(&[3, 20], 1), &random(&[3, 11], 1))
                .is_err()
        );
        assert!(
            linear
                .forward_patches(&random(&[1, 3, 28, 28], 1), 14)
                .is_err()
        );
        assert!(Linear::new(&w, Some(&random(&[13], 2))).is_err());
    }
}
