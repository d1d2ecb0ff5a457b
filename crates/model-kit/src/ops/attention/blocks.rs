//! The same from candle's operators, for other devices and dtypes, over blocks of queries.

use candle_core::{D, DType, Result, Tensor};

use super::{AttentionOptions, BiasRow, Sizes};

/// Most bytes of one matrix of scores.
///
/// The scores of a block are read and written by one operator after the other, so two such matrices
/// are alive at a time, three where something is added to them: at most 768 MiB, which a card that
/// holds the weights has left. The windows of a ViT-L on a picture of 1008 pixels (144 heads over
/// 576 tokens, 182 MiB) still go in one pass; a global block (16 heads over 5184 tokens) goes in seven,
/// each with 12 million products of rows, beside which starting ten operators is nothing.
pub(super) const SCORE_BYTES: usize = 256 << 20;

/// `score_bytes` bounds each matrix of scores, [`SCORE_BYTES`] in use. A block has one row of
/// queries at least, whatever that takes.
pub(super) fn in_blocks(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    scale: f64,
    options: &AttentionOptions<'_>,
    sizes: Sizes,
    score_bytes: usize,
) -> Result<Tensor> {
    if sizes.b * sizes.nq * sizes.h == 0 {
        let shape = (sizes.b, sizes.nq, sizes.h, sizes.dv);
        return Tensor::zeros(shape, v.dtype(), q.device());
    }
    // Softmax in f32 whatever the dtype of the product.
    let wide = if q.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let keys = k.permute((0, 2, 3, 1))?.contiguous()?;
    let values = v.transpose(1, 2)?.contiguous()?;
    let mask = match options.key_mask {
        Some(mask) => Some(mask.to_dtype(DType::U8)?.to_vec2::<u8>()?),
        None => None,
    };
    let block = |first: usize, rows: usize| -> Result<Tensor> {
        let q = q.narrow(1, first, rows)?.transpose(1, 2)?.contiguous()?;
        // Each step lets go of the matrix it has read.
        let mut scores = q.matmul(&keys)?;
        scores = scores.to_dtype(wide)?;
        scores = (scores * scale)?;
        if let Some(bias) = options.bias {
            let bias = if bias.dim(2)? == 1 {
                bias.clone()
            } else {
                bias.narrow(2, first, rows)?
            };
            scores = scores.broadcast_add(&bias.to_dtype(wide)?)?;
        }
        if let Some(added) = added(options, mask.as_deref(), sizes, first, rows) {
            let added = Tensor::from_vec(added.values, added.dims, q.device())?;
            scores = scores.broadcast_add(&added.to_dtype(wide)?)?;
        }
        // A query with no key to look at gets zeros.
        let best = scores
            .max_keepdim(D::Minus1)?
            .maximum(f64::from(f32::MIN))?;
        scores = scores.broadcast_sub(&best)?;
        scores = scores.exp()?;
        let total = scores.sum_keepdim(D::Minus1)?.maximum(1e-30)?;
        scores = scores.broadcast_div(&total)?;
        scores = scores.to_dtype(v.dtype())?;
        scores.matmul(&values)
    };
    let rows = rows_at_once(sizes, wide, score_bytes);
    let out = if rows >= sizes.nq {
        block(0, sizes.nq)?
    } else {
        let parts = (0..sizes.nq)
            .step_by(rows)
            .map(|first| block(first, rows.min(sizes.nq - first)))
            .collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 2)?
    };
    out.transpose(1, 2)
}

/// Queries of a block: blocks of one size, so that the last one is no scrap.
fn rows_at_once(sizes: Sizes, wide: DType, score_bytes: usize) -> usize {
    let row = sizes.b * sizes.h * sizes.nk * wide.size_in_bytes();
    let most = (score_bytes / row.max(1)).max(1);
    let blocks = sizes.nq.div_ceil(most).max(1);
    sizes.nq.div_ceil(blocks)
}

/// What is made here and added to the scores of a block; it has one row or head where all are alike.
struct Added {
    values: Vec<f32>,
    dims: (usize, usize, usize, usize),
}

fn added(
    options: &AttentionOptions<'_>,
    mask: Option<&[Vec<u8>]>,
    sizes: Sizes,
    first: usize,
    rows: usize,
) -> Option<Added> {
    if options.bias_fn.is_none() && mask.is_none() && !options.causal {
        return None;
    }
    let heads = if options.bias_fn.is_some() {
        sizes.h
    } else {
        1
    };
    let rows = if options.bias_fn.is_some() || options.causal {
        rows
    } else {
        1
    };
    let mut values = vec![0.0f32; sizes.b * heads * rows * sizes.nk];
    for (i, row) in values.chunks_exact_mut(sizes.nk).enumerate() {
        let (query, head, batch) = (first + i % rows, i / rows % heads, i / (rows * heads));
        if let Some(bias_fn) = options.bias_fn {
            let at = BiasRow {
                batch,
                head,
                query,
                first_key: 0,
            };
            bias_fn(at, row);
        }
        if let Some(mask) = mask {
            for (value, keep) in row.iter_mut().zip(&mask[batch]) {
                if *keep == 0 {
                    *value = f32::NEG_INFINITY;
                }
            }
        }
        row[sizes.visible(query, options.causal)..].fill(f32::NEG_INFINITY);
    }
    Some(Added {
        values,
        dims: (sizes.b, heads, rows, sizes.nk),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{attention, default_scale},
        *,
    };
    use crate::ops::check::{assert_close, floats, masked, random};

    fn blocks(
        qkv: (&Tensor, &Tensor, &Tensor),
        options: &AttentionOptions<'_>,
        score_bytes: usize,
    ) -> Tensor {
        let sizes = Sizes::of(qkv.0, qkv.1, qkv.2).unwrap();
        sizes.check(options).unwrap();
        let scale = options.scale.unwrap_or_else(|| default_scale(sizes.d));
        in_blocks(qkv, scale, options, sizes, score_bytes).unwrap()
    }

    /// The formula, number by number in double precision.
    fn plain(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
        let Sizes {
            b,
            h,
            nq,
            nk,
            d,
            dv,
        } = Sizes::of(q, k, v).unwrap();
        let wide = |t: &Tensor| floats(&t.to_dtype(DType::F32).unwrap());
        let (qs, ks, vs) = (wide(q), wide(k), wide(v));
        let mut out = vec![0.0f32; b * nq * h * dv];
        for (i, out) in out.chunks_exact_mut(dv).enumerate() {
            let (batch, head) = (i / (nq * h), i % h);
            let row = |data: &[f32], key: usize, len: usize| {
                let at = ((batch * nk + key) * h + head) * len;
                data[at..at + len].to_vec()
            };
            let query = &qs[i * d..(i + 1) * d];
            let weights: Vec<f64> = (0..nk)
                .map(|key| {
                    let key = row(&ks, key, d);
                    let dot: f64 = query
                        .iter()
                        .zip(&key)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    (dot / (d as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            for (key, weight) in weights.iter().enumerate() {
                for (cell, value) in out.iter_mut().zip(row(&vs, key, dv)) {
                    *cell += (weight / total * f64::from(value)) as f32;
                }
            }
        }
        Tensor::from_vec(out, (b, nq, h, dv), q.device()).unwrap()
    }

    /// Batch, heads, queries, keys, channels, channels of a value, queries a block may have.
    const SHAPES: [[usize; 7]; 7] = [
        [1, 1, 1, 1, 8, 8, 1],
        [2, 3, 7, 13, 16, 16, 3],
        [1, 2, 97, 97, 64, 64, 10],
        [2, 1, 50, 191, 32, 32, 1],
        [1, 2, 65, 65, 24, 24, 64],
        [3, 4, 5, 12, 8, 16, 2],
        [1, 1, 40, 20, 80, 40, 8],
    ];

    #[test]
    fn many_blocks_equal_one_block_the_tiles_and_the_formula() {
        for [b, h, nq, nk, d, dv, most] in SHAPES {
            let (q, k, v) = (
                (random(&[b, nq, h, d], 1) * 2.0).unwrap(),
                random(&[b, nk, h, d], 2),
                random(&[b, nk, h, dv], 3),
            );
            let none = AttentionOptions::default();
            let what = format!("{b}x{h}x{nq}x{nk}x{d}");
            let got = blocks((&q, &k, &v), &none, most * b * h * nk * 4);
            assert_close(&got, &plain(&q, &k, &v), 2e-6, &what);
            let tiled = attention(&q, &k, &v, &none).unwrap();
            assert_close(&got, &tiled, 2e-6, &what);
            let whole = blocks((&q, &k, &v), &none, usize::MAX);
            assert_close(&got, &whole, 1e-6, &what);
        }
    }

    #[test]
    fn half_precision_is_right_to_its_own_last_digits_in_any_number_of_blocks() {
        // A score, a weight and a sum are rounded once each.
        for (dtype, bar) in [(DType::BF16, 1.2e-2), (DType::F16, 1.5e-3)] {
            for [b, h, nq, nk, d, dv, most] in SHAPES {
                let part = |shape: &[usize], seed| random(shape, seed).to_dtype(dtype).unwrap();
                let (q, k, v) = (
                    part(&[b, nq, h, d], 1),
                    part(&[b, nk, h, d], 2),
                    part(&[b, nk, h, dv], 3),
                );
                let got = blocks(
                    (&q, &k, &v),
                    &AttentionOptions::default(),
                    most * b * h * nk * 4,
                );
                assert_eq!(got.dtype(), dtype);
                let what = format!("{dtype:?} {b}x{h}x{nq}x{nk}x{d}");
                let got = got.to_dtype(DType::F32).unwrap();
                assert_close(&got, &plain(&q, &k, &v), bar, &what);
            }
        }
    }

    #[test]
    fn a_softmax_in_half_precision_does_not_lose_a_long_row() {
        // 4000 weights of 1 / 4000: a sum of them in bf16 would stop growing at 256 of them.
        let (b, n) = (1, 4000);
        let half = |t: Tensor| t.to_dtype(DType::BF16).unwrap();
        let (q, k) = (random(&[b, 6, 1, 8], 1), random(&[b, n, 1, 8], 2));
        let k = (k * 1e-3).unwrap();
        let v = k.ones_like().unwrap();
        let got = blocks(
            (&half(q), &half(k), &half(v)),
            &AttentionOptions::default(),
            4 * n,
        );
        let got = got.to_dtype(DType::F32).unwrap();
        assert_close(&got, &got.ones_like().unwrap(), 8e-3, "long");
    }

    #[test]
    fn biases_masks_and_causality_are_those_of_the_block() {
        let (b, h, nq, nk, d) = (2, 3, 29, 45, 16);
        let (q, k, v, mask) = masked((b, h, nq, nk, d));
        let lazy = |at: BiasRow, row: &mut [f32]| {
            for (key, v) in row.iter_mut().enumerate() {
                let key = at.first_key + key;
                *v += ((at.query * 7 + key * 3 + at.head * 5 + at.batch) % 11) as f32 * 0.3;
            }
        };
        let bytes = 4 * b * h * nk * 4;
        let check = |options: &AttentionOptions<'_>, what: &str| {
            let got = blocks((&q, &k, &v), options, bytes);
            let tiled = attention(&q, &k, &v, options).unwrap();
            assert_close(&got, &tiled, 3e-6, what);
        };
        for dims in [
            [b, h, nq, nk],
            [1, 1, nq, nk],
            [b, 1, 1, nk],
            [1, h, nq, nk],
        ] {
            let bias = (random(&dims, 4) * 3.0).unwrap();
            let mut options = AttentionOptions {
                scale: Some(0.7),
                bias: Some(&bias),
                ..AttentionOptions::default()
            };
            check(&options, "bias");
            options.bias_fn = Some(&lazy);
            check(&options, "bias and function");
            options.key_mask = Some(&mask);
            check(&options, "bias, function and mask");
        }
        for (causal, key_mask) in [(true, None), (false, Some(&mask)), (true, Some(&mask))] {
            let options = AttentionOptions {
                key_mask,
                causal,
                ..AttentionOptions::default()
            };
            check(&options, &format!("causal {causal}"));
        }
    }

    #[test]
    fn no_queries_give_no_rows() {
        let (q, k) = (random(&[1, 4, 2, 8], 1), random(&[1, 4, 2, 8], 2));
        let none = q.narrow(1, 0, 0).unwrap();
        let got = blocks((&none, &k, &k), &AttentionOptions::default(), 1);
        assert_eq!(got.dims(), [1, 0, 2, 8]);
    }

    #[test]
    fn a_block_stays_below_its_bound_and_blocks_are_alike() {
        for [b, h, nq, nk, d, dv, _] in SHAPES {
            let sizes = Sizes {
                b,
                h,
                nq,
                nk,
                d,
                dv,
            };
            let row = b * h * nk * 4;
            for bytes in (1..=nq).flat_map(|n| [n * row, n * row + row - 1]) {
                let rows = rows_at_once(sizes, DType::F32, bytes);
                assert!(rows * row <= bytes && rows > 0, "{sizes:?}: {rows}");
                // One row less a block would take more blocks than the bound asks for.
                let blocks = nq.div_ceil(bytes / row);
                assert_eq!(nq.div_ceil(rows), blocks, "{sizes:?}: {rows}");
                assert!(rows == 1 || nq.div_ceil(rows - 1) > blocks);
            }
            // Less than a row is a row.
            assert_eq!(rows_at_once(sizes, DType::F32, row - 1), 1);
        }
    }

    #[test]
    fn a_global_block_of_a_large_picture_goes_in_seven_and_its_windows_in_one() {
        let sizes = |b, n| Sizes {
            b,
            h: 16,
            nq: n,
            nk: n,
            d: 64,
            dv: 64,
        };
        let passes = |sizes: Sizes| {
            sizes
                .nq
                .div_ceil(rows_at_once(sizes, DType::F32, SCORE_BYTES))
        };
        assert_eq!(passes(sizes(1, 5184)), 7);
        assert_eq!(passes(sizes(9, 576)), 1);
    }
}
