//! Operators the two ports share.
//!
//! On CPU tensors in f32 each runs as one pass over the data in vector code chosen at run time
//! (AVX-512, AVX2, NEON or scalar), spread over the threads of `rayon`. For any other device or
//! dtype the same call is built from candle's own operators, so a model written with these runs
//! everywhere. Results do not depend on the number of threads.

mod activation;
mod attention;
mod conv;
mod cpu;
#[allow(unsafe_code)]
mod disjoint;
mod linear;
mod mlp;
mod norm;
mod pages;
mod product;
mod resize;
mod scratch;
mod simd;

pub use activation::{Activation, gelu, relu};
#[cfg(feature = "flash-attn")]
pub use attention::check_flash_attention;
pub use attention::{AttentionOptions, BiasFn, BiasRow, attention};
pub use conv::{Conv2d, ConvTranspose2d, DepthwiseConv2d};
pub use linear::Linear;
pub use mlp::Mlp;
pub use norm::{GroupNorm, LayerNorm, LayerNorm2d};
pub use resize::{Filter, Sampling, resize_2d, upsample_nearest_2d};

#[cfg(test)]
pub(crate) mod check {
    //! Random tensors and comparison, for the tests of the operators.

    use candle_core::{Device, Tensor};

    /// The same floats in [-1, 1) for the same seed.
    pub(crate) fn random(shape: &[usize], seed: u64) -> Tensor {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let count = shape.iter().product();
        let data: Vec<f32> = (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect();
        Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
    }

    /// Queries, keys and values of random floats, and a mask that hides every fifth key.
    pub(crate) fn masked(
        (b, h, nq, nk, d): (usize, usize, usize, usize, usize),
    ) -> (Tensor, Tensor, Tensor, Tensor) {
        let mask: Vec<u8> = (0..b * nk).map(|i| u8::from(i % 5 != 0)).collect();
        (
            random(&[b, nq, h, d], 1),
            random(&[b, nk, h, d], 2),
            random(&[b, nk, h, d], 3),
            Tensor::from_vec(mask, (b, nk), &Device::Cpu).unwrap(),
        )
    }

    pub(crate) fn floats(t: &Tensor) -> Vec<f32> {
        t.flatten_all().unwrap().to_vec1().unwrap()
    }

    pub(crate) fn assert_close(got: &Tensor, want: &Tensor, bar: f32, what: &str) {
        assert_eq!(got.dims(), want.dims(), "{what}");
        let worst = floats(got)
            .iter()
            .zip(floats(want))
            .fold(0.0f32, |w, (a, b)| w.max((a - b).abs()));
        // A NaN is lost by `max`, so it is looked for on its own.
        assert!(floats(got).iter().all(|v| v.is_finite()), "{what}");
        assert!(worst <= bar, "{what}: off by {worst}");
    }
}
