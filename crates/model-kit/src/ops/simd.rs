//! Vector arithmetic shared by the operators, generic over the instruction set.
//!
//! `pulp` picks AVX-512, AVX2, NEON or plain scalar code at run time. Everything here is
//! `#[inline(always)]`, because only code inlined into a dispatched function is compiled for the
//! wider instructions.

use pulp::Simd;

use super::Activation;

/// log2(e): the exponentials below are powers of two.
pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// 2^x to 2e-7 of its value for `x <= 127`; 0 below -125.
///
/// The whole part goes into the exponent bits, the rest in [-0.5, 0.5] through the series of e^x.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low mantissa bits.
    let magic = simd.splat_f32s(12_582_912.0);
    let floor = simd.splat_f32s(-125.0);
    let tiny = simd.less_than_f32s(x, floor);
    let x = simd.max_f32s(x, floor);
    let shifted = simd.add_f32s(x, magic);
    let f = simd.sub_f32s(x, simd.sub_f32s(shifted, magic));
    let mut p = simd.splat_f32s(1.540_353e-4);
    for c in [
        1.333_355_8e-3,
        9.618_129e-3,
        5.550_411e-2,
        2.402_265e-1,
        std::f32::consts::LN_2,
        1.0,
    ] {
        p = simd.mul_add_e_f32s(p, f, simd.splat_f32s(c));
    }
    let exponent =
        simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let bits = simd.add_u32s(simd.transmute_u32s_f32s(p), exponent);
    simd.select_f32s(tiny, simd.splat_f32s(0.0), simd.transmute_f32s_u32s(bits))
}

/// `x * Phi(x)`, the GELU with the error function, to 5e-7.
///
/// Written as `max(x, 0) - |x| / 2 * erfc(|x| / sqrt 2)`, so that nothing cancels for negative x;
/// erfc is formula 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let size = simd.abs_f32s(x);
    let t = simd.div_f32s(
        simd.splat_f32s(1.0),
        simd.mul_add_e_f32s(
            size,
            simd.splat_f32s(0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2),
            simd.splat_f32s(1.0),
        ),
    );
    let mut p = simd.splat_f32s(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = simd.mul_add_e_f32s(p, t, simd.splat_f32s(c));
    }
    let square = simd.mul_f32s(x, simd.mul_f32s(x, simd.splat_f32s(-0.5 * LOG2_E)));
    let erfc = simd.mul_f32s(simd.mul_f32s(p, t), exp2(simd, square));
    let half = simd.mul_f32s(size, simd.splat_f32s(-0.5));
    simd.mul_add_e_f32s(half, erfc, simd.max_f32s(x, simd.splat_f32s(0.0)))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let power = simd.mul_f32s(x, simd.splat_f32s(-LOG2_E));
    let power = simd.min_f32s(power, simd.splat_f32s(126.0));
    simd.div_f32s(one, simd.add_f32s(one, exp2(simd, power)))
}

#[inline(always)]
pub(crate) fn activate<S: Simd>(simd: S, activation: Activation, x: S::f32s) -> S::f32s {
    match activation {
        Activation::Identity => x,
        Activation::Relu => simd.max_f32s(x, simd.splat_f32s(0.0)),
        Activation::Gelu => gelu(simd, x),
        Activation::Silu => simd.mul_f32s(x, sigmoid(simd, x)),
        Activation::Sigmoid => sigmoid(simd, x),
    }
}

/// Applies `op` to every value of `data`.
#[inline(always)]
pub(crate) fn map_in_place<S: Simd>(simd: S, data: &mut [f32], op: impl Fn(S::f32s) -> S::f32s) {
    let (body, tail) = S::as_mut_simd_f32s(data);
    for v in body {
        *v = op(*v);
    }
    if !tail.is_empty() {
        let v = op(simd.partial_load_f32s(tail));
        simd.partial_store_f32s(tail, v);
    }
}

/// Sum of `op` over `data`, in four running sums whose order does not depend on threads.
#[inline(always)]
pub(crate) fn sum_of<S: Simd>(simd: S, data: &[f32], op: impl Fn(S::f32s) -> S::f32s) -> f32 {
    let (body, tail) = S::as_simd_f32s(data);
    let mut sums = [simd.splat_f32s(0.0); 4];
    let (fours, rest) = body.as_chunks::<4>();
    for four in fours {
        for (sum, v) in sums.iter_mut().zip(four) {
            *sum = simd.add_f32s(*sum, op(*v));
        }
    }
    for v in rest {
        sums[0] = simd.add_f32s(sums[0], op(*v));
    }
    let pair = simd.add_f32s(sums[2], sums[3]);
    let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), pair);
    let mut total = simd.reduce_sum_f32s(sum);
    for &v in tail {
        let lanes = op(simd.splat_f32s(v));
        total += simd.reduce_max_f32s(lanes);
    }
    total
}

/// Normalises `row` to mean 0 and variance 1 and applies weight and bias; writes `out`.
#[inline(always)]
pub(crate) fn normalise_row<S: Simd>(
    simd: S,
    row: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
) {
    let count = row.len() as f32;
    let mean = sum_of(simd, row, |v| v) / count;
    let means = simd.splat_f32s(mean);
    let variance = sum_of(simd, row, |v| {
        let d = simd.sub_f32s(v, means);
        simd.mul_f32s(d, d)
    }) / count;
    let scale = simd.splat_f32s(1.0 / (variance + eps).sqrt());
    let (xs, x_tail) = S::as_simd_f32s(row);
    let (ws, w_tail) = S::as_simd_f32s(weight);
    let (bs, b_tail) = S::as_simd_f32s(bias);
    let (os, o_tail) = S::as_mut_simd_f32s(out);
    let one = |x, w, b| {
        let n = simd.mul_f32s(simd.sub_f32s(x, means), scale);
        simd.mul_add_e_f32s(n, w, b)
    };
    for (((o, x), w), b) in os.iter_mut().zip(xs).zip(ws).zip(bs) {
        *o = one(*x, *w, *b);
    }
    if !o_tail.is_empty() {
        let v = one(
            simd.partial_load_f32s(x_tail),
            simd.partial_load_f32s(w_tail),
            simd.partial_load_f32s(b_tail),
        );
        simd.partial_store_f32s(o_tail, v);
    }
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, WithSimd};

    use super::*;

    struct Map<'a, F>(&'a mut [f32], F);

    impl<F: Fn(f32) -> f32> Map<'_, F> {
        fn worst(&self, got: &[f32], relative: bool) -> f32 {
            self.0.iter().zip(got).fold(0.0, |worst: f32, (x, y)| {
                let want = (self.1)(*x);
                let scale = if relative { want.abs().max(1e-30) } else { 1.0 };
                worst.max((want - y).abs() / scale)
            })
        }
    }

    struct Apply<'a>(&'a mut [f32], u8);

    impl WithSimd for Apply<'_> {
        type Output = ();
        fn with_simd<S: Simd>(self, simd: S) {
            map_in_place(simd, self.0, |v| match self.1 {
                0 => exp2(simd, v),
                1 => gelu(simd, v),
                _ => sigmoid(simd, v),
            });
        }
    }

    fn erf(x: f64) -> f64 {
        // The series converges fast enough in f64 for |x| < 6.
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-17 && n < 200.0 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn gelu_exp_and_sigmoid_agree_with_double_precision() {
        let xs: Vec<f32> = (-4003..4003).map(|i| i as f32 * 1.1e-3).collect();
        for (kind, relative, bar) in [(0, true, 4e-7), (1, false, 1e-6), (2, false, 3e-7)] {
            let reference = move |x: f32| {
                let x = f64::from(x);
                (match kind {
                    0 => x.exp2(),
                    1 => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
                    _ => 1.0 / (1.0 + (-x).exp()),
                }) as f32
            };
            let mut want = xs.clone();
            let mut got = xs.clone();
            Arch::new().dispatch(Apply(&mut got, kind));
            let worst = Map(&mut want, reference).worst(&got, relative);
            assert!(worst < bar, "function {kind} is off by {worst}");
            // The scalar fallback is the same arithmetic.
            let mut plain = xs.clone();
            Apply(&mut plain, kind).with_simd(pulp::Scalar);
            let worst = Map(&mut want, reference).worst(&plain, relative);
            assert!(worst < bar, "scalar function {kind} is off by {worst}");
        }
    }

    #[test]
    fn far_arguments_give_limits_and_not_garbage() {
        let mut powers = [-126.0, -1e30, f32::NEG_INFINITY, 126.5];
        Arch::new().dispatch(Apply(&mut powers, 0));
        assert_eq!(powers[..3], [0.0, 0.0, 0.0]);
        assert!((powers[3] / 126.5f32.exp2() - 1.0).abs() < 1e-5);
        let mut gelus = [-40.0, 40.0, 0.0];
        Arch::new().dispatch(Apply(&mut gelus, 1));
        assert_eq!(gelus, [0.0, 40.0, 0.0]);
    }
}
