//! The two linear layers of a transformer block, one pass over the rows.

use candle_core::{D, Result, Tensor};
use pulp::Arch;
use rayon::prelude::*;

use super::{
    Activation, LayerNorm, Linear,
    activation::Multiply,
    cpu,
    norm::RowNorm,
    pages,
    product::{PackedMatrix, Product, rows_per_task},
    scratch::with_scratch,
};

/// `down(activation(up(x)))`, or gated: `down(activation(gate(x)) * up(x))`.
///
/// On the CPU the hidden layer of a few rows lives in the cache and is never written out.
#[derive(Clone, Debug)]
pub struct Mlp {
    up: Linear,
    gate: Option<Linear>,
    activation: Activation,
    down: Linear,
}

impl Mlp {
    /// `up` is `[hidden, in]`, `down` `[out, hidden]`.
    ///
    /// # Errors
    /// The layers do not fit each other.
    pub fn new(up: Linear, activation: Activation, down: Linear) -> Result<Self> {
        check(&up, &up, &down)?;
        Ok(Self {
            up,
            gate: None,
            activation,
            down,
        })
    }

    /// With a gate: SwiGLU when the activation is [`Activation::Silu`]. `gate` has `up`'s shape.
    ///
    /// # Errors
    /// The layers do not fit each other.
    pub fn gated(gate: Linear, activation: Activation, up: Linear, down: Linear) -> Result<Self> {
        check(&gate, &up, &down)?;
        Ok(Self {
            up,
            gate: Some(gate),
            activation,
            down,
        })
    }

    /// `[.., in]` to `[.., out]`.
    ///
    /// # Errors
    /// The last dimension is not `in`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, None, false)
    }

    /// `x + mlp(norm(x))`, the second half of a pre-norm block; `in` equals `out`.
    ///
    /// # Errors
    /// The last dimension is not `in`, or `in` is not `out`.
    pub fn forward_residual(&self, x: &Tensor, norm: &LayerNorm) -> Result<Tensor> {
        self.run(x, Some(norm), true)
    }

    fn run(&self, x: &Tensor, norm: Option<&LayerNorm>, residual: bool) -> Result<Tensor> {
        let (inner, out) = (self.up.in_features(), self.down.out_features());
        if x.dim(D::Minus1)? != inner || (residual && inner != out) {
            candle_core::bail!("an mlp from {inner} to {out} got {:?}", x.dims());
        }
        if let Some(layers) = self.packed()
            && cpu::is_cpu_f32(x)
        {
            let mut shape = x.dims().to_vec();
            if let Some(last) = shape.last_mut() {
                *last = out;
            }
            let task = |norm: Option<RowNorm<'_>>| {
                cpu::with_floats(x, |rows| {
                    let mut out = if residual {
                        pages::copy(rows)
                    } else {
                        pages::zeros(shape.iter().product())
                    };
                    layers.run(rows, norm, residual, &mut out);
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
        let hidden = match &self.gate {
            None => self.up.forward_act(&normed, self.activation)?,
            Some(gate) => {
                (gate.forward_act(&normed, self.activation)? * self.up.forward(&normed)?)?
            }
        };
        if residual {
            self.down.forward_residual(&hidden, x)
        } else {
            self.down.forward(&hidden)
        }
    }

    fn packed(&self) -> Option<PackedMlp<'_>> {
        let gate = match &self.gate {
            Some(gate) => Some(gate.packed()?),
            None => None,
        };
        Some(PackedMlp {
            up: self.up.packed()?,
            gate,
            activation: self.activation,
            down: self.down.packed()?,
        })
    }
}

impl candle_core::Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

fn check(gate: &Linear, up: &Linear, down: &Linear) -> Result<()> {
    let fits = gate.in_features() == up.in_features()
        && gate.out_features() == up.out_features()
        && down.in_features() == up.out_features();
    if fits {
        return Ok(());
    }
    candle_core::bail!(
        "the layers {}->{}, {}->{} and {}->{} do not make an mlp",
        gate.in_features(),
        gate.out_features(),
        up.in_features(),
        up.out_features(),
        down.in_features(),
        down.out_features()
    )
}

#[derive(Clone, Copy)]
struct PackedMlp<'a> {
    up: &'a PackedMatrix,
    gate: Option<&'a PackedMatrix>,
    activation: Activation,
    down: &'a PackedMatrix,
}

impl PackedMlp<'_> {
    fn run(&self, rows: &[f32], norm: Option<RowNorm<'_>>, accumulate: bool, out: &mut [f32]) {
        let (inner, columns) = (self.up.inner, self.down.columns);
        if out.is_empty() {
            return;
        }
        let work = self.up.columns * (inner + columns);
        let take = rows_per_task(out.len() / columns, work);
        out.par_chunks_mut(take * columns)
            .zip(rows.par_chunks(take * inner))
            .for_each(|(out, rows)| match norm {
                None => self.tile(rows, accumulate, out),
                Some(norm) => with_scratch(rows.len(), |normed| {
                    norm.run(rows, normed);
                    self.tile(normed, accumulate, out);
                }),
            });
    }

    fn tile(&self, rows: &[f32], accumulate: bool, out: &mut [f32]) {
        let count = rows.len() / self.up.inner;
        let arch = Arch::new();
        let first = self.gate.unwrap_or(self.up);
        with_scratch(count * self.up.columns, |hidden| {
            arch.dispatch(Product {
                rows,
                matrix: first,
                activation: self.activation,
                accumulate: false,
                out: hidden,
            });
            if self.gate.is_some() {
                with_scratch(hidden.len(), |up| {
                    arch.dispatch(Product {
                        rows,
                        matrix: self.up,
                        activation: Activation::Identity,
                        accumulate: false,
                        out: up,
                    });
                    arch.dispatch(Multiply {
                        left: hidden,
                        right: up,
                    });
                });
            }
            arch.dispatch(Product {
                rows: hidden,
                matrix: self.down,
                activation: Activation::Identity,
                accumulate,
                out,
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_close, random};

    fn linear(out: usize, inner: usize, seed: u64) -> Linear {
        let bias = random(&[out], seed + 100);
        Linear::new(&random(&[out, inner], seed), Some(&bias)).unwrap()
    }

    #[test]
    fn the_fused_pass_equals_the_layers_one_by_one() {
        for (rows, d, hidden) in [(1, 5, 9), (61, 24, 96), (259, 17, 70)] {
            let (up, gate, down) = (
                linear(hidden, d, 1),
                linear(hidden, d, 2),
                linear(d, hidden, 3),
            );
            let norm = LayerNorm::new(&random(&[d], 4), &random(&[d], 5), 1e-6).unwrap();
            let x = random(&[d, rows], 6).t().unwrap();
            let normed = norm.forward(&x).unwrap();

            let plain = Mlp::new(up.clone(), Activation::Gelu, down.clone()).unwrap();
            let by_hand = |x: &Tensor| {
                let hidden = up.forward(x).unwrap().gelu_erf().unwrap();
                down.forward(&hidden).unwrap()
            };
            assert_close(&plain.forward(&x).unwrap(), &by_hand(&x), 1e-4, "plain");
            let want = (&x + by_hand(&normed)).unwrap();
            let got = plain.forward_residual(&x, &norm).unwrap();
            assert_close(&got, &want, 1e-4, "residual");

            let gated = Mlp::gated(gate.clone(), Activation::Silu, up.clone(), down.clone());
            let hidden = (gate.forward(&normed).unwrap().silu().unwrap()
                * up.forward(&normed).unwrap())
            .unwrap();
            let want = (&x + down.forward(&hidden).unwrap()).unwrap();
            let got = gated.unwrap().forward_residual(&x, &norm).unwrap();
            assert_close(&got, &want, 1e-4, "gated");
        }
    }

    #[test]
    fn layers_that_do_not_fit_are_refused() {
        assert!(Mlp::new(linear(8, 4, 1), Activation::Relu, linear(4, 9, 2)).is_err());
        let mlp = Mlp::new(linear(8, 4, 1), Activation::Relu, linear(5, 8, 2)).unwrap();
        let norm = LayerNorm::new(&random(&[4], 4), &random(&[4], 5), 1e-6).unwrap();
        assert!(mlp.forward_residual(&random(&[2, 4], 3), &norm).is_err());
        assert!(mlp.forward(&random(&[2, 5], 3)).is_err());
    }
}
