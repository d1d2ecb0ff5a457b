//! The walk over tiles of keys, on CPU tensors in f32.

use candle_core::{DType, Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{AttentionOptions, BiasFn, BiasRow, Sizes};
use crate::ops::{
    cpu::{self, CpuFloats},
    pages,
    product::{PanelShape, ROWS, product, rows_per_task, six_rows_strided},
    scratch::with_scratch,
    simd::{LOG2_E, exp2, map_in_place},
};

/// Strided rows of `[b, n, h, d]`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    data: &'a [f32],
    strides: [usize; 3],
}

impl<'a> Rows<'a> {
    pub(super) fn of(floats: &'a CpuFloats<'_>) -> Self {
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

pub(super) fn on_cpu(
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
    let mut out = pages::zeros(sizes.b * sizes.nq * row);
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
                        4 => put_panel::<S, 4, true>(simd, p, panel, sums, width, col),
                        3 => put_panel::<S, 3, true>(simd, p, panel, sums, width, col),
                        2 => put_panel::<S, 2, true>(simd, p, panel, sums, width, col),
                        _ => put_panel::<S, 1, true>(simd, p, panel, sums, width, col),
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
                4 => put_panel::<S, 4, false>(simd, a, panel, out, self.stride, col),
                3 => put_panel::<S, 3, false>(simd, a, panel, out, self.stride, col),
                2 => put_panel::<S, 2, false>(simd, a, panel, out, self.stride, col),
                _ => put_panel::<S, 1, false>(simd, a, panel, out, self.stride, col),
            }
        }
    }
}

/// Puts the product of six rows and a panel into the columns from `col` on, or adds it to them.
#[inline(always)]
fn put_panel<S: Simd, const N: usize, const ADD: bool>(
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
            *cell = if ADD {
                simd.add_f32s(*cell, *sum)
            } else {
                *sum
            };
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
