//! Functions applied value by value.

use candle_core::{Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{cpu, pages, simd};

/// What follows a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x * Phi(x)` with the error function, PyTorch's default GELU.
    Gelu,
    /// `x * sigmoid(x)`.
    Silu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

impl Activation {
    /// Applies it to every value of a tensor of any shape.
    ///
    /// # Errors
    /// candle's own, on devices other than the CPU.
    pub fn forward(self, x: &Tensor) -> Result<Tensor> {
        if self == Self::Identity {
            return Ok(x.clone());
        }
        let fast = cpu::with_floats(x, |data| {
            let mut out = pages::copy(data);
            map(self, &mut out);
            out
        })?;
        if let Some(out) = fast {
            return cpu::from_floats(out, x.dims());
        }
        match self {
            Self::Identity => Ok(x.clone()),
            Self::Relu => x.relu(),
            Self::Gelu => x.gelu_erf(),
            Self::Silu => x.silu(),
            Self::Sigmoid => candle_nn::ops::sigmoid(x),
        }
    }
}

/// GELU with the error function, any shape.
///
/// # Errors
/// candle's own, on devices other than the CPU.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    Activation::Gelu.forward(x)
}

/// `max(x, 0)`, any shape.
///
/// # Errors
/// candle's own, on devices other than the CPU.
pub fn relu(x: &Tensor) -> Result<Tensor> {
    Activation::Relu.forward(x)
}

fn map(activation: Activation, data: &mut [f32]) {
    const CHUNK: usize = 1 << 15;
    data.par_chunks_mut(CHUNK)
        .for_each(|data| Arch::new().dispatch(Map { activation, data }));
}

pub(crate) struct Map<'a> {
    pub(crate) activation: Activation,
    pub(crate) data: &'a mut [f32],
}

impl WithSimd for Map<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        simd::map_in_place(simd, self.data, |v| {
            simd::activate(simd, self.activation, v)
        });
    }
}

/// `left *= right`, value by value.
pub(crate) struct Multiply<'a> {
    pub(crate) left: &'a mut [f32],
    pub(crate) right: &'a [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (l, r) in self.left.iter_mut().zip(self.right) {
            *l *= r;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_close, random};

    #[test]
    fn activations_equal_candles_on_odd_and_strided_shapes() {
        let x = (random(&[3, 7, 11], 1) * 6.0).unwrap();
        for view in [
            x.clone(),
            x.transpose(1, 2).unwrap(),
            x.narrow(2, 3, 5).unwrap(),
        ] {
            let cases = [
                (Activation::Relu, view.relu()),
                (Activation::Gelu, view.gelu_erf()),
                (Activation::Silu, view.silu()),
                (Activation::Sigmoid, candle_nn::ops::sigmoid(&view)),
            ];
            for (activation, want) in cases {
                let got = activation.forward(&view).unwrap();
                assert_close(&got, &want.unwrap(), 2e-6, &format!("{activation:?}"));
            }
        }
    }
}
