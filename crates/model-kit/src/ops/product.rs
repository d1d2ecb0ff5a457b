//! Matrix products against a matrix packed once.
//!
//! The packed operand lies in panels of `lanes * vectors` columns, so that the inner loop reads it
//! front to back; the other one is read in place, [`ROWS`] rows at a time. The tile of
//! `ROWS` x 4 vectors keeps 24 sums in registers (`ROWS` x 2 where there are only 16 registers),
//! which hides the latency of the multiply-add.

use pulp::{Arch, Simd, WithSimd};

use super::{Activation, scratch::AlignedBuffer, simd::activate};

/// Rows of the left operand that one inner loop takes.
pub(crate) const ROWS: usize = 6;

/// Vectors a panel is wide for this instruction set.
pub(crate) const fn panel_vectors<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 || S::IS_SCALAR {
        4
    } else {
        2
    }
}

/// Columns of a panel and of a vector on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PanelShape {
    /// Columns of a full panel.
    pub(crate) columns: usize,
    /// Columns of a vector; the last panel is padded to a multiple of it.
    pub(crate) lanes: usize,
}

impl PanelShape {
    pub(crate) fn of_machine() -> Self {
        struct Ask;
        impl WithSimd for Ask {
            type Output = PanelShape;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> PanelShape {
                PanelShape {
                    columns: S::F32_LANES * panel_vectors::<S>(),
                    lanes: S::F32_LANES,
                }
            }
        }
        Arch::new().dispatch(Ask)
    }

    /// Columns with the padding of the last panel.
    pub(crate) fn padded(self, columns: usize) -> usize {
        columns.next_multiple_of(self.lanes)
    }

    /// First column and padded width of each panel.
    pub(crate) fn panels(self, columns: usize) -> impl Iterator<Item = (usize, usize)> {
        let padded = self.padded(columns);
        (0..padded)
            .step_by(self.columns)
            .map(move |first| (first, self.columns.min(padded - first)))
    }
}

/// The right operand `[inner, columns]` of a product, in panels.
#[derive(Debug)]
pub(crate) struct PackedMatrix {
    pub(crate) columns: usize,
    pub(crate) inner: usize,
    shape: PanelShape,
    data: AlignedBuffer,
    bias: Option<AlignedBuffer>,
}

impl PackedMatrix {
    /// Packs the transpose of `weight`, `[columns, inner]` row by row.
    pub(crate) fn from_rows(
        weight: &[f32],
        columns: usize,
        inner: usize,
        bias: Option<&[f32]>,
    ) -> Self {
        let shape = PanelShape::of_machine();
        let padded = shape.padded(columns);
        let mut data = AlignedBuffer::zeros(padded * inner);
        let out = data.as_mut_slice();
        for (first, width) in shape.panels(columns) {
            let panel = &mut out[first * inner..][..width * inner];
            for c in 0..width.min(columns - first) {
                let row = &weight[(first + c) * inner..][..inner];
                for (cell, v) in panel[c..].iter_mut().step_by(width).zip(row) {
                    *cell = *v;
                }
            }
        }
        let bias = bias.map(|bias| {
            let mut padded = AlignedBuffer::zeros(padded);
            padded.as_mut_slice()[..columns].copy_from_slice(bias);
            padded
        });
        Self {
            columns,
            inner,
            shape,
            data,
            bias,
        }
    }

    /// The matrix as it was before packing, `[columns, inner]`.
    pub(crate) fn to_rows(&self) -> Vec<f32> {
        let mut rows = vec![0.0; self.columns * self.inner];
        for (first, width) in self.shape.panels(self.columns) {
            let panel = &self.data.as_slice()[first * self.inner..][..width * self.inner];
            for c in 0..width.min(self.columns - first) {
                let row = &mut rows[(first + c) * self.inner..][..self.inner];
                for (v, cell) in row.iter_mut().zip(panel[c..].iter().step_by(width)) {
                    *v = *cell;
                }
            }
        }
        rows
    }
}

/// `out = activation(rows * matrix + bias)`, or `out += …`.
pub(crate) struct Product<'a> {
    /// `[n, inner]`, row by row.
    pub(crate) rows: &'a [f32],
    pub(crate) matrix: &'a PackedMatrix,
    pub(crate) activation: Activation,
    /// Adds to what `out` holds.
    pub(crate) accumulate: bool,
    /// `[n, columns]`, row by row.
    pub(crate) out: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            rows,
            matrix,
            activation,
            accumulate,
            out,
        } = self;
        let (inner, columns) = (matrix.inner, matrix.columns);
        let count = out.len() / columns.max(1);
        let store = Store {
            bias: matrix.bias.as_ref().map(AlignedBuffer::as_slice),
            activation,
            accumulate,
            stride: columns,
        };
        for (first, width) in matrix.shape.panels(columns) {
            let panel = &matrix.data.as_slice()[first * inner..][..width * inner];
            for row in (0..count).step_by(ROWS) {
                let a = six_rows(rows, inner, row, count);
                let take = ROWS.min(count - row);
                let out = &mut out[row * columns..][..take * columns];
                match width / S::F32_LANES {
                    4 => store.put(simd, product::<S, 4>(simd, a, panel), first, out),
                    3 => store.put(simd, product::<S, 3>(simd, a, panel), first, out),
                    2 => store.put(simd, product::<S, 2>(simd, a, panel), first, out),
                    _ => store.put(simd, product::<S, 1>(simd, a, panel), first, out),
                }
            }
        }
    }
}

/// Rows `row..row + 6` of `[count, inner]`; past the end the last row is repeated, and what comes
/// of it is not stored.
#[inline(always)]
pub(crate) fn six_rows(rows: &[f32], inner: usize, row: usize, count: usize) -> [&[f32]; ROWS] {
    std::array::from_fn(|i| &rows[(row + i).min(count - 1) * inner..][..inner])
}

/// Six rows that may lie anywhere.
#[inline(always)]
pub(crate) fn six_rows_strided<'a>(row: impl Fn(usize) -> &'a [f32]) -> [&'a [f32]; ROWS] {
    std::array::from_fn(row)
}

/// The sums over the inner dimension for six rows and one panel `N` vectors wide.
#[inline(always)]
pub(crate) fn product<S: Simd, const N: usize>(
    simd: S,
    a: [&[f32]; ROWS],
    panel: &[f32],
) -> [[S::f32s; N]; ROWS] {
    let (vectors, _) = S::as_simd_f32s(panel);
    let (steps, _) = vectors.as_chunks::<N>();
    let mut sums = [[simd.splat_f32s(0.0); N]; ROWS];
    // Zipped, not indexed: a bounds check in here would make the compiler keep a copy of the sums
    // in memory, and write each of them in every step.
    let [a0, a1, a2, a3, a4, a5] = a;
    let rows = a0.iter().zip(a1).zip(a2).zip(a3).zip(a4).zip(a5);
    for (b, (((((x0, x1), x2), x3), x4), x5)) in steps.iter().zip(rows) {
        for (sums, x) in sums.iter_mut().zip([x0, x1, x2, x3, x4, x5]) {
            let x = simd.splat_f32s(*x);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = simd.mul_add_e_f32s(x, *b, *sum);
            }
        }
    }
    sums
}

struct Store<'a> {
    bias: Option<&'a [f32]>,
    activation: Activation,
    accumulate: bool,
    stride: usize,
}

impl Store<'_> {
    /// Writes the sums of one panel, whose first column is `first`, into the rows of `out`.
    #[inline(always)]
    fn put<S: Simd, const N: usize>(
        &self,
        simd: S,
        mut sums: [[S::f32s; N]; ROWS],
        first: usize,
        out: &mut [f32],
    ) {
        if let Some(bias) = self.bias {
            let (bias, _) = S::as_simd_f32s(&bias[first..]);
            for row in &mut sums {
                for n in 0..N {
                    row[n] = simd.add_f32s(row[n], bias[n]);
                }
            }
        }
        // One branch around the loops, so that each activation gets its own straight code.
        match self.activation {
            Activation::Identity => {}
            Activation::Gelu => apply(simd, Activation::Gelu, &mut sums),
            Activation::Relu => apply(simd, Activation::Relu, &mut sums),
            Activation::Silu => apply(simd, Activation::Silu, &mut sums),
            Activation::Sigmoid => apply(simd, Activation::Sigmoid, &mut sums),
        }
        for (row, sums) in out.chunks_exact_mut(self.stride).zip(&sums) {
            let end = self.stride.min(first + N * S::F32_LANES);
            let (body, tail) = S::as_mut_simd_f32s(&mut row[first..end]);
            for (cell, sum) in body.iter_mut().zip(sums) {
                *cell = if self.accumulate {
                    simd.add_f32s(*cell, *sum)
                } else {
                    *sum
                };
            }
            if !tail.is_empty() {
                let mut sum = sums[body.len()];
                if self.accumulate {
                    sum = simd.add_f32s(sum, simd.partial_load_f32s(tail));
                }
                simd.partial_store_f32s(tail, sum);
            }
        }
    }
}

#[inline(always)]
fn apply<S: Simd, const N: usize>(
    simd: S,
    activation: Activation,
    sums: &mut [[S::f32s; N]; ROWS],
) {
    for row in sums {
        for v in row {
            *v = activate(simd, activation, *v);
        }
    }
}

/// Rows one task takes of `rows`: enough tasks for every thread, few enough that a tile and its
/// hidden layer stay in the second-level cache.
pub(crate) fn rows_per_task(rows: usize, work_per_row: usize) -> usize {
    const MAX_ROWS: usize = 192;
    const MIN_WORK: usize = 1 << 17;
    let threads = rayon::current_num_threads();
    let by_cache = rows.div_ceil(MAX_ROWS);
    let tasks = by_cache.next_multiple_of(threads);
    let least = MIN_WORK.div_ceil(work_per_row.max(1));
    rows.div_ceil(tasks)
        .max(least.min(MAX_ROWS))
        .next_multiple_of(ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_matrix_unpacks_to_what_it_was() {
        for (columns, inner) in [(1, 1), (5, 3), (64, 7), (131, 9), (200, 1)] {
            let weight: Vec<f32> = (0..columns * inner).map(|i| i as f32).collect();
            let packed = PackedMatrix::from_rows(&weight, columns, inner, None);
            assert_eq!(packed.to_rows(), weight);
        }
    }

    #[test]
    fn rows_are_split_for_every_thread_without_tiny_tasks() {
        let threads = rayon::current_num_threads();
        let tile = rows_per_task(257, 384 * 1152);
        assert!(257usize.div_ceil(tile) <= threads.max(257usize.div_ceil(192)) * 2);
        assert_eq!(tile % ROWS, 0);
        assert!(rows_per_task(1000, 4) >= 192);
    }
}
