//! Softmax attention that never holds a full score matrix.
//!
//! Method: FlashAttention (Dao et al. 2022), on the CPU. Keys and values are packed once a head;
//! a block of queries then walks the keys in tiles, keeping a running maximum and sum per row.

use candle_core::{D, DType, Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{
    cpu::{self, CpuFloats},
    product::{PanelShape, ROWS, product, rows_per_task, six_rows_strided},
    scratch::with_scratch,
    simd::{LOG2_E, exp2, map_in_place},
};

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
    let scale = options
        .scale
        .unwrap_or_else(|| 1.0 / (sizes.d as f64).sqrt());
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
    generic(q, k, v, scale, options, sizes)
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

/// Strided rows of `[b, n, h, d]`.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a [f32],
    strides: [usize; 3],
}

impl<'a> Rows<'a> {
    fn of(floats: &'a CpuFloats<'_>) -> Self {
        let s = floats.strides();
        Self {
            data: floats.data(),
            strides: [s[0], s[1], s[2]],
        }
    }

    fn row(&self, b: usize, n: usize, h: usize, len: usize) -> &'a [f32] {
        let at = b * self.strides[0] + n * self.strides[1] + h * self.strides[2];
        &self.data[at..][..len]
    }
}

/// Queries that share a walk over the keys; their scores for a tile fit the first caches.
const QUERY_BLOCK: usize = 8 * ROWS;
/// A tile of keys is at most this long.
const MAX_KEY_TILE: usize = 384;

fn on_cpu(
    sizes: Sizes,
    scale: f32,
    (q, k, v): (Rows<'_>, Rows<'_>, Rows<'_>),
    options: &AttentionOptions<'_>,
) -> Result<Vec<f32>> {
    let shape = PanelShape::of_machine();
    let bias = options
        .bias
        .map(|bias| bias.to_dtype(DType::F32))
        .transpose()?;
    let bias = bias.as_ref().map(Tensor::contiguous).transpose()?;
    let bias_dims = bias.as_ref().map(Tensor::dims4).transpose()?;
    let bias = bias.as_ref().map(cpu::to_floats).transpose()?;
    let mask = match options.key_mask {
        Some(mask) => Some(mask.to_dtype(DType::U8)?.flatten_all()?.to_vec1::<u8>()?),
        None => None,
    };
    let tiles = sizes.nk.div_ceil(MAX_KEY_TILE);
    let work = Work {
        sizes,
        shape,
        q,
        tile: sizes.nk.div_ceil(tiles).next_multiple_of(shape.columns),
        bias: bias.as_deref().zip(bias_dims),
        bias_fn: options.bias_fn,
        mask: mask.as_deref(),
        causal: options.causal,
    };
    let row = sizes.h * sizes.dv;
    let mut out = vec![0.0; sizes.b * sizes.nq * row];
    if out.is_empty() {
        return Ok(out);
    }
    let per_head = work.packed_len();
    let take = rows_per_task(sizes.nq, sizes.h * sizes.nk * (sizes.d + sizes.dv));
    with_scratch(per_head * sizes.h, |packed| {
        for (b, out) in out.chunks_exact_mut(sizes.nq * row).enumerate() {
            packed
                .par_chunks_mut(per_head)
                .enumerate()
                .for_each(|(h, packed)| work.pack(b, h, scale * LOG2_E, k, v, packed));
            let packed = &*packed;
            out.par_chunks_mut(take * row)
                .enumerate()
                .for_each(|(task, out)| {
                    for h in 0..sizes.h {
                        work.head(b, h, task * take, &packed[h * per_head..][..per_head], out);
                    }
                });
        }
    });
    Ok(out)
}

type BiasValues<'a> = (&'a [f32], (usize, usize, usize, usize));

struct Work<'a> {
    sizes: Sizes,
    shape: PanelShape,
    q: Rows<'a>,
    /// Keys in a tile, a multiple of the panel width.
    tile: usize,
    /// Values and their shape, as in [`AttentionOptions::bias`].
    bias: Option<BiasValues<'a>>,
    bias_fn: Option<&'a BiasFn<'a>>,
    mask: Option<&'a [u8]>,
    causal: bool,
}

impl Work<'_> {
    /// Floats of the packed keys of a head; the values follow.
    fn keys_len(&self) -> usize {
        self.shape.padded(self.sizes.nk) * self.sizes.d
    }

    fn packed_len(&self) -> usize {
        // Rounded so that every head starts on a cache line.
        (self.keys_len() + self.shape.padded(self.sizes.dv) * self.sizes.nk).next_multiple_of(16)
    }

    /// Keys as panels `[d][keys]` with the scale folded in, values as panels `[keys][dv]`.
    fn pack(&self, b: usize, h: usize, scale: f32, k: Rows<'_>, v: Rows<'_>, out: &mut [f32]) {
        let Sizes { nk, d, dv, .. } = self.sizes;
        let (keys, values) = out.split_at_mut(self.keys_len());
        for (first, width) in self.shape.panels(nk) {
            let panel = &mut keys[first * d..][..width * d];
            let real = width.min(nk - first);
            for c in 0..real {
                let row = k.row(b, first + c, h, d);
                for (cell, x) in panel[c..].iter_mut().step_by(width).zip(row) {
                    *cell = x * scale;
                }
            }
            for c in real..width {
                panel[c..]
                    .iter_mut()
                    .step_by(width)
                    .for_each(|cell| *cell = 0.0);
            }
        }
        for (first, width) in self.shape.panels(dv) {
            let panel = &mut values[first * nk..][..width * nk];
            let real = width.min(dv - first);
            for (n, cells) in panel.chunks_exact_mut(width).enumerate() {
                let row = v.row(b, n, h, dv);
                cells[..real].copy_from_slice(&row[first..][..real]);
                cells[real..].fill(0.0);
            }
        }
    }

    /// Answers the queries from `first` on for one head; `out` is `[n, h, dv]`.
    fn head(&self, b: usize, h: usize, first: usize, packed: &[f32], out: &mut [f32]) {
        let row = self.sizes.h * self.sizes.dv;
        let width = self.shape.padded(self.sizes.dv);
        let len = QUERY_BLOCK * (self.tile + width + 2);
        with_scratch(len, |scratch| {
            let (scores, rest) = scratch.split_at_mut(QUERY_BLOCK * self.tile);
            let (sums, rest) = rest.split_at_mut(QUERY_BLOCK * width);
            let (maxima, totals) = rest.split_at_mut(QUERY_BLOCK);
            for (block, out) in out.chunks_mut(QUERY_BLOCK * row).enumerate() {
                Arch::new().dispatch(Block {
                    work: self,
                    at: (b, h, first + block * QUERY_BLOCK),
                    packed,
                    scores: &mut *scores,
                    sums: &mut *sums,
                    maxima: &mut *maxima,
                    totals: &mut *totals,
                    out,
                });
            }
        });
    }

    /// Adds everything but `q . k` to a part of a row of scores, in powers of two.
    fn adjust(&self, at: BiasRow, row: &mut [f32], extra: &mut [f32]) {
        let BiasRow {
            batch,
            head,
            query,
            first_key,
        } = at;
        let len = row.len();
        let extra = &mut extra[..len];
        if self.bias.is_some() || self.bias_fn.is_some() {
            match self.bias {
                Some((bias, (bb, bh, bq, bk))) => {
                    let pick = |i: usize, n: usize| if n == 1 { 0 } else { i };
                    let from = ((pick(batch, bb) * bh + pick(head, bh)) * bq + pick(query, bq))
                        * bk
                        + first_key;
                    extra.copy_from_slice(&bias[from..][..len]);
                }
                None => extra.fill(0.0),
            }
            if let Some(bias_fn) = self.bias_fn {
                bias_fn(at, extra);
            }
            for (score, bias) in row.iter_mut().zip(extra.iter()) {
                *score += bias * LOG2_E;
            }
        }
        if let Some(mask) = self.mask {
            let mask = &mask[batch * self.sizes.nk + first_key..][..len];
            for (score, keep) in row.iter_mut().zip(mask) {
                if *keep == 0 {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        let visible = self.sizes.visible(query, self.causal);
        if visible < first_key + len {
            row[visible.saturating_sub(first_key)..].fill(f32::NEG_INFINITY);
        }
    }

    fn adjusts(&self) -> bool {
        self.bias.is_some() || self.bias_fn.is_some() || self.mask.is_some() || self.causal
    }
}

struct Block<'a> {
    work: &'a Work<'a>,
    /// Batch, head, first query.
    at: (usize, usize, usize),
    packed: &'a [f32],
    scores: &'a mut [f32],
    sums: &'a mut [f32],
    maxima: &'a mut [f32],
    totals: &'a mut [f32],
    out: &'a mut [f32],
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let work = self.work;
        let Sizes { nk, d, dv, h, .. } = work.sizes;
        let (b, head, first) = self.at;
        let count = self.out.len() / (h * dv);
        let width = work.shape.padded(dv);
        let (keys, values) = self.packed.split_at(work.keys_len());
        self.sums.fill(0.0);
        self.maxima.fill(f32::NEG_INFINITY);
        self.totals.fill(0.0);
        let last = work.sizes.visible(first + count - 1, work.causal);
        for key in (0..last).step_by(work.tile) {
            let len = work.tile.min(nk - key);
            let padded = work.shape.padded(len);
            for row in (0..count).step_by(ROWS) {
                let scores = &mut self.scores[row * work.tile..][..ROWS * work.tile];
                let a =
                    six_rows_strided(|i| work.q.row(b, first + (row + i).min(count - 1), head, d));
                let tile = Tile {
                    keys: &keys[key * d..][..padded * d],
                    shape: work.shape,
                    stride: work.tile,
                };
                tile.scores(simd, a, padded, scores);
                for r in 0..ROWS.min(count - row) {
                    let line = &mut scores[r * work.tile..][..padded];
                    line[len..].fill(f32::NEG_INFINITY);
                    if work.adjusts() {
                        let at = BiasRow {
                            batch: b,
                            head,
                            query: first + row + r,
                            first_key: key,
                        };
                        with_scratch(len, |extra| work.adjust(at, &mut line[..len], extra));
                    }
                    let sums = &mut self.sums[(row + r) * width..][..width];
                    softmax_step(
                        simd,
                        line,
                        sums,
                        &mut self.maxima[row + r],
                        &mut self.totals[row + r],
                    );
                }
                let last_row = ROWS.min(count - row) - 1;
                let p = six_rows_strided(|i| &scores[i.min(last_row) * work.tile..][..len]);
                for (col, w) in work.shape.panels(dv) {
                    let panel = &values[col * nk + key * w..][..len * w];
                    let sums = &mut self.sums[row * width..][..(last_row + 1) * width];
                    match w / S::F32_LANES {
                        4 => add_panel::<S, 4>(simd, p, panel, sums, width, col),
                        3 => add_panel::<S, 3>(simd, p, panel, sums, width, col),
                        2 => add_panel::<S, 2>(simd, p, panel, sums, width, col),
                        _ => add_panel::<S, 1>(simd, p, panel, sums, width, col),
                    }
                }
            }
        }
        for (i, out) in self.out.chunks_exact_mut(h * dv).enumerate() {
            let total = self.totals[i];
            let factor = if total > 0.0 { 1.0 / total } else { 0.0 };
            let sums = &self.sums[i * width..][..dv];
            for (o, s) in out[head * dv..][..dv].iter_mut().zip(sums) {
                *o = s * factor;
            }
        }
    }
}

struct Tile<'a> {
    keys: &'a [f32],
    shape: PanelShape,
    stride: usize,
}

impl Tile<'_> {
    /// Scores of six queries against the keys of the tile.
    #[inline(always)]
    fn scores<S: Simd>(&self, simd: S, a: [&[f32]; ROWS], padded: usize, out: &mut [f32]) {
        let d = a[0].len();
        for (col, w) in self.shape.panels(padded) {
            let panel = &self.keys[col * d..][..w * d];
            match w / S::F32_LANES {
                4 => put_panel::<S, 4>(simd, a, panel, out, self.stride, col),
                3 => put_panel::<S, 3>(simd, a, panel, out, self.stride, col),
                2 => put_panel::<S, 2>(simd, a, panel, out, self.stride, col),
                _ => put_panel::<S, 1>(simd, a, panel, out, self.stride, col),
            }
        }
    }
}

#[inline(always)]
fn put_panel<S: Simd, const N: usize>(
    simd: S,
    a: [&[f32]; ROWS],
    panel: &[f32],
    out: &mut [f32],
    stride: usize,
    col: usize,
) {
    let sums = product::<S, N>(simd, a, panel);
    for (row, sums) in out.chunks_mut(stride).zip(&sums) {
        let (cells, _) = S::as_mut_simd_f32s(&mut row[col..][..N * S::F32_LANES]);
        cells.copy_from_slice(sums);
    }
}

#[inline(always)]
fn add_panel<S: Simd, const N: usize>(
    simd: S,
    a: [&[f32]; ROWS],
    panel: &[f32],
    out: &mut [f32],
    stride: usize,
    col: usize,
) {
    let sums = product::<S, N>(simd, a, panel);
    for (row, sums) in out.chunks_mut(stride).zip(&sums) {
        let (cells, _) = S::as_mut_simd_f32s(&mut row[col..][..N * S::F32_LANES]);
        for (cell, sum) in cells.iter_mut().zip(sums) {
            *cell = simd.add_f32s(*cell, *sum);
        }
    }
}

/// Turns a row of scores into weights relative to the running maximum, and brings what was summed
/// before to the same maximum.
#[inline(always)]
fn softmax_step<S: Simd>(
    simd: S,
    line: &mut [f32],
    sums: &mut [f32],
    maximum: &mut f32,
    total: &mut f32,
) {
    let (scores, _) = S::as_mut_simd_f32s(line);
    let mut best = simd.splat_f32s(*maximum);
    for v in scores.iter() {
        best = simd.max_f32s(best, *v);
    }
    let best = simd.reduce_max_f32s(best);
    if best == f32::NEG_INFINITY {
        // Every key so far is hidden.
        scores.fill(simd.splat_f32s(0.0));
        return;
    }
    let shift = simd.splat_f32s(best);
    let mut sum = simd.splat_f32s(0.0);
    for v in scores.iter_mut() {
        *v = exp2(simd, simd.sub_f32s(*v, shift));
        sum = simd.add_f32s(sum, *v);
    }
    if best > *maximum {
        let factor = (*maximum - best).exp2();
        *total *= factor;
        map_in_place(simd, sums, |v| simd.mul_f32s(v, simd.splat_f32s(factor)));
    }
    *total += simd.reduce_sum_f32s(sum);
    *maximum = best;
}

/// The same from candle's operators, for other devices and dtypes.
fn generic(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f64,
    options: &AttentionOptions<'_>,
    sizes: Sizes,
) -> Result<Tensor> {
    let Sizes { b, h, nq, nk, .. } = sizes;
    let head_first = |t: &Tensor| t.transpose(1, 2)?.contiguous();
    let scores = head_first(q)?.matmul(&head_first(k)?.t()?.contiguous()?)?;
    // Softmax in f32 whatever the dtype of the product.
    let wide = if q.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let mut scores = (scores.to_dtype(wide)? * scale)?;
    if let Some(bias) = options.bias {
        scores = scores.broadcast_add(&bias.to_dtype(wide)?)?;
    }
    let mut extra = vec![
        0.0f32;
        if hides_keys(options) {
            b * h * nq * nk
        } else {
            0
        }
    ];
    let mask = match options.key_mask {
        Some(mask) => Some(mask.to_dtype(DType::U8)?.to_vec2::<u8>()?),
        None => None,
    };
    for (i, row) in extra.chunks_exact_mut(nk).enumerate() {
        let (query, head, batch) = (i % nq, i / nq % h, i / (nq * h));
        if let Some(bias_fn) = options.bias_fn {
            let at = BiasRow {
                batch,
                head,
                query,
                first_key: 0,
            };
            bias_fn(at, row);
        }
        if let Some(mask) = &mask {
            for (value, keep) in row.iter_mut().zip(&mask[batch]) {
                if *keep == 0 {
                    *value = f32::NEG_INFINITY;
                }
            }
        }
        row[sizes.visible(query, options.causal)..].fill(f32::NEG_INFINITY);
    }
    if !extra.is_empty() {
        let extra = Tensor::from_vec(extra, (b, h, nq, nk), q.device())?;
        scores = (scores + extra.to_dtype(wide)?)?;
    }
    let best = scores
        .max_keepdim(D::Minus1)?
        .maximum(f64::from(f32::MIN))?;
    let weights = scores.broadcast_sub(&best)?.exp()?;
    let total = weights.sum_keepdim(D::Minus1)?.maximum(1e-30)?;
    let weights = weights.broadcast_div(&total)?.to_dtype(v.dtype())?;
    weights.matmul(&head_first(v)?)?.transpose(1, 2)
}

fn hides_keys(options: &AttentionOptions<'_>) -> bool {
    options.bias_fn.is_some() || options.key_mask.is_some() || options.causal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_close, random};

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
    fn biases_masks_and_causality_equal_the_generic_path() {
        let (b, h, nq, nk, d) = (2, 3, 29, 450, 16);
        let (q, k, v) = (
            random(&[b, nq, h, d], 1),
            random(&[b, nk, h, d], 2),
            random(&[b, nk, h, d], 3),
        );
        let mask: Vec<u8> = (0..b * nk).map(|i| u8::from(i % 5 != 0)).collect();
        let mask = Tensor::from_vec(mask, (b, nk), q.device()).unwrap();
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
