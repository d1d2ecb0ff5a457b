//! Softmax attention that holds a bounded part of the score matrix at a time.
//!
//! On the CPU in f32 the method is FlashAttention (Dao et al. 2022). Keys and values are packed once
//! a head; a block of queries then walks the keys in tiles, keeping a running maximum and sum per
//! row. Everywhere else candle's operators go over blocks of queries, each of which sees all keys.

mod blocks;
#[cfg(any(test, feature = "flash-attn"))]
mod flash;
mod tiles;

use candle_core::{Result, Tensor};

#[cfg(feature = "flash-attn")]
pub use self::flash::check_flash_attention;
use self::{
    blocks::{SCORE_BYTES, in_blocks},
    tiles::{Rows, on_cpu},
};
use super::cpu::{self, CpuFloats};

/// Names one row of a score matrix, from `first_key` on.
#[derive(Clone, Copy, Debug)]
pub struct BiasRow {
    /// Position in the batch.
    pub batch: usize,
    /// Head.
    pub head: usize,
    /// Query.
    pub query: usize,
    /// Key of the first number of the row's part.
    pub first_key: usize,
}

/// Adds a bias to a part of a row of scores.
pub type BiasFn<'a> = dyn Fn(BiasRow, &mut [f32]) + Sync + 'a;

/// What is added to or left out of the scores.
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Factor on `q . k`; `1 / sqrt(d)` when absent.
    pub scale: Option<f64>,
    /// Added to the scaled scores: `[b | 1, h | 1, nq | 1, nk]`. Minus infinity hides a key.
    pub bias: Option<&'a Tensor>,
    /// Adds to a part of a row when it is needed, so that a bias that follows from positions is
    /// never stored. Called from several threads; the slice holds 0 or the values of `bias`.
    pub bias_fn: Option<&'a BiasFn<'a>>,
    /// `[b, nk]` of u8: 1 for a key to look at, 0 for padding.
    pub key_mask: Option<&'a Tensor>,
    /// Query `i` sees the keys up to `i + nk - nq`.
    pub causal: bool,
}

impl std::fmt::Debug for AttentionOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttentionOptions")
            .field("scale", &self.scale)
            .field("bias", &self.bias.map(Tensor::dims))
            .field("bias_fn", &self.bias_fn.is_some())
            .field("key_mask", &self.key_mask.map(Tensor::dims))
            .field("causal", &self.causal)
            .finish()
    }
}

/// `softmax(q k^T * scale + bias) v`, head by head.
///
/// `q` is `[b, nq, h, d]`, `k` `[b, nk, h, d]`, `v` `[b, nk, h, dv]`; the answer is
/// `[b, nq, h, dv]`. Views are read in place as long as the last dimension is contiguous, so
/// slices of one fused projection need no copy. A query that may look at no key gets zeros.
///
/// The softmax is calculated in f32 whatever the dtype (in f64 for f64). Beside the operands, a
/// call off the CPU holds up to three matrices of 256 MiB.
///
/// # Errors
/// The shapes do not fit each other, or candle's own.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &AttentionOptions<'_>,
) -> Result<Tensor> {
    let sizes = Sizes::of(q, k, v)?;
    sizes.check(options)?;
    let scale = options.scale.unwrap_or_else(|| default_scale(sizes.d));
    if cpu::is_cpu_f32(q) && cpu::is_cpu_f32(k) && cpu::is_cpu_f32(v) {
        let (q, k, v) = (rows_in_place(q)?, rows_in_place(k)?, rows_in_place(v)?);
        if let (Some(q), Some(k), Some(v)) =
            (CpuFloats::of(&q), CpuFloats::of(&k), CpuFloats::of(&v))
        {
            let out = on_cpu(
                sizes,
                scale as f32,
                (Rows::of(&q), Rows::of(&k), Rows::of(&v)),
                options,
            )?;
            return cpu::from_floats(out, &[sizes.b, sizes.nq, sizes.h, sizes.dv]);
        }
    }
    #[cfg(feature = "flash-attn")]
    if let Some(out) = flash::on_card((q, k, v), scale, options, sizes)? {
        return Ok(out);
    }
    in_blocks((q, k, v), scale, options, sizes, SCORE_BYTES)
}

fn default_scale(channels: usize) -> f64 {
    1.0 / (channels as f64).sqrt()
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    b: usize,
    h: usize,
    nq: usize,
    nk: usize,
    d: usize,
    dv: usize,
}

impl Sizes {
    fn of(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Self> {
        let (b, nq, h, d) = q.dims4()?;
        let (kb, nk, kh, kd) = k.dims4()?;
        let (vb, vn, vh, dv) = v.dims4()?;
        if (kb, kh, kd) != (b, h, d) || (vb, vn, vh) != (b, nk, h) {
            candle_core::bail!(
                "attention over q {:?}, k {:?}, v {:?}: shapes are [b, n, h, d]",
                q.dims(),
                k.dims(),
                v.dims()
            );
        }
        if nk == 0 || d == 0 || dv == 0 {
            candle_core::bail!("attention needs a key and a channel, k is {:?}", k.dims());
        }
        Ok(Self {
            b,
            h,
            nq,
            nk,
            d,
            dv,
        })
    }

    fn check(&self, options: &AttentionOptions<'_>) -> Result<()> {
        if let Some(bias) = options.bias {
            let (b, h, q, k) = bias.dims4()?;
            let one_or = |got, want| got == 1 || got == want;
            if !one_or(b, self.b) || !one_or(h, self.h) || !one_or(q, self.nq) || k != self.nk {
                candle_core::bail!(
                    "attention bias {:?} does not fit [{}, {}, {}, {}]",
                    bias.dims(),
                    self.b,
                    self.h,
                    self.nq,
                    self.nk
                );
            }
        }
        if let Some(mask) = options.key_mask
            && mask.dims() != [self.b, self.nk]
        {
            candle_core::bail!(
                "key mask {:?} does not fit [{}, {}]",
                mask.dims(),
                self.b,
                self.nk
            );
        }
        Ok(())
    }

    /// Number of keys query `i` may see.
    fn visible(&self, query: usize, causal: bool) -> usize {
        if causal {
            (query + 1 + self.nk).saturating_sub(self.nq).min(self.nk)
        } else {
            self.nk
        }
    }
}

/// The tensor itself when its rows are contiguous, else a copy.
fn rows_in_place(t: &Tensor) -> Result<Tensor> {
    if t.stride()[3] == 1 || t.dim(3)? == 1 {
        Ok(t.clone())
    } else {
        t.contiguous()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::ops::check::{assert_close, masked, random};

    fn exact(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions<'_>) -> Tensor {
        let wide = |t: &Tensor| t.to_dtype(DType::F64).unwrap();
        attention(&wide(q), &wide(k), &wide(v), options)
            .unwrap()
            .to_dtype(DType::F32)
            .unwrap()
    }

    #[test]
    fn a_softmax_worked_by_hand() {
        let t = |v: &[f32], n| Tensor::from_slice(v, (1, n, 1, 1), &candle_core::Device::Cpu);
        let (q, k) = (t(&[2.0], 1).unwrap(), t(&[0.0, 1.0], 2).unwrap());
        let v = t(&[10.0, 20.0], 2).unwrap();
        let got = attention(&q, &k, &v, &AttentionOptions::default()).unwrap();
        let e = 2.0f32.exp();
        let want = (10.0 + 20.0 * e) / (1.0 + e);
        assert!((got.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0] - want).abs() < 1e-5);
    }

    #[test]
    fn it_equals_double_precision_over_odd_lengths_and_head_sizes() {
        for (b, h, nq, nk, d, dv) in [
            (1, 1, 1, 1, 8, 8),
            (2, 3, 7, 13, 16, 16),
            (1, 2, 257, 257, 64, 64),
            (2, 1, 50, 391, 32, 32),
            (1, 2, 5, 801, 128, 128),
            (1, 2, 65, 65, 24, 24),
            (1, 1, 100, 20, 80, 40),
        ] {
            let (q, k, v) = (
                (random(&[b, nq, h, d], 1) * 3.0).unwrap(),
                random(&[b, nk, h, d], 2),
                random(&[b, nk, h, dv], 3),
            );
            let options = AttentionOptions::default();
            let got = attention(&q, &k, &v, &options).unwrap();
            let what = format!("{b}x{h}x{nq}x{nk}x{d}");
            assert_close(&got, &exact(&q, &k, &v, &options), 2e-6, &what);
        }
    }

    #[test]
    fn slices_of_a_fused_projection_are_read_in_place() {
        let qkv = random(&[2, 31, 3, 4, 16], 5);
        let part = |i| qkv.narrow(2, i, 1).unwrap().squeeze(2).unwrap();
        let (q, k, v) = (part(0), part(1), part(2));
        assert!(!q.is_contiguous());
        let options = AttentionOptions::default();
        let got = attention(&q, &k, &v, &options).unwrap();
        assert_close(&got, &exact(&q, &k, &v, &options), 2e-6, "fused");
        // Head-major tensors and a transposed last dimension work as well.
        let turned = random(&[2, 4, 16, 31], 6).permute((0, 3, 1, 2)).unwrap();
        let got = attention(&turned, &k, &v, &options).unwrap();
        assert_close(&got, &exact(&turned, &k, &v, &options), 2e-6, "turned");
    }

    #[test]
    fn biases_masks_and_causality_equal_double_precision() {
        let (b, h, nq, nk, d) = (2, 3, 29, 450, 16);
        let (q, k, v, mask) = masked((b, h, nq, nk, d));
        let lazy = |at: BiasRow, row: &mut [f32]| {
            for (i, v) in row.iter_mut().enumerate() {
                let key = at.first_key + i;
                *v += ((at.query * 7 + key * 3 + at.head + at.batch) % 11) as f32 * 0.1;
            }
        };
        for dims in [
            [b, h, nq, nk],
            [1, 1, nq, nk],
            [b, 1, 1, nk],
            [1, h, nq, nk],
        ] {
            let bias = random(&dims, 4);
            let options = AttentionOptions {
                scale: Some(0.7),
                bias: Some(&bias),
                bias_fn: Some(&lazy),
                key_mask: Some(&mask),
                causal: false,
            };
            let got = attention(&q, &k, &v, &options).unwrap();
            assert_close(&got, &exact(&q, &k, &v, &options), 3e-6, "bias");
        }
        let causal = AttentionOptions {
            causal: true,
            key_mask: Some(&mask),
            ..AttentionOptions::default()
        };
        let got = attention(&q, &k, &v, &causal).unwrap();
        assert_close(&got, &exact(&q, &k, &v, &causal), 3e-6, "causal");
    }

    #[test]
    fn a_query_with_no_key_gets_zeros_and_padding_has_no_say() {
        let (q, k) = (random(&[2, 4, 1, 8], 1), random(&[2, 6, 1, 8], 2));
        let v = random(&[2, 6, 1, 8], 3);
        let mask = Tensor::from_vec(
            vec![0u8, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0],
            (2, 6),
            q.device(),
        )
        .unwrap();
        let options = AttentionOptions {
            key_mask: Some(&mask),
            ..AttentionOptions::default()
        };
        let got = attention(&q, &k, &v, &options).unwrap();
        assert_close(&got, &exact(&q, &k, &v, &options), 2e-6, "masked");
        let first = got.narrow(0, 0, 1).unwrap();
        assert_close(&first, &first.zeros_like().unwrap(), 0.0, "no key");
        let short = attention(
            &q.narrow(0, 1, 1).unwrap(),
            &k.narrow(0, 1, 1).unwrap().narrow(1, 0, 3).unwrap(),
            &v.narrow(0, 1, 1).unwrap().narrow(1, 0, 3).unwrap(),
            &AttentionOptions::default(),
        );
        assert_close(&got.narrow(0, 1, 1).unwrap(), &short.unwrap(), 1e-6, "cut");
    }

    #[test]
    fn huge_scores_do_not_overflow() {
        let q = (random(&[1, 9, 1, 8], 1) * 1e3).unwrap();
        let (k, v) = (
            (random(&[1, 700, 1, 8], 2) * 1e2).unwrap(),
            random(&[1, 700, 1, 8], 3),
        );
        let options = AttentionOptions::default();
        let got = attention(&q, &k, &v, &options).unwrap();
        assert_close(&got, &exact(&q, &k, &v, &options), 2e-3, "huge");
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let (q, k) = (random(&[1, 3, 2, 8], 1), random(&[1, 4, 2, 8], 2));
        let none = AttentionOptions::default();
        assert!(attention(&q, &random(&[1, 4, 2, 9], 3), &k, &none).is_err());
        assert!(attention(&q, &k, &random(&[1, 5, 2, 8], 3), &none).is_err());
        let bias = random(&[1, 2, 3, 5], 4);
        let options = AttentionOptions {
            bias: Some(&bias),
            ..none
        };
        assert!(attention(&q, &k, &k, &options).is_err());
    }
}
