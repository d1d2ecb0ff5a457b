//! Exact search for the SKUs whose best view is nearest to a query.
//!
//! A query against 100,000 views is bound by memory, not by arithmetic, so a first pass reads the
//! views as 8-bit integers, a quarter of the bytes. The rounding error of every row and of the
//! query is known, which bounds the true score from both sides; only rows that can still be among
//! the best are scored again in `f32`. The answer equals a plain scan of the `f32` rows, bit for
//! bit, on any machine: sums run over a fixed number of lanes.

use std::{ops::Range, sync::Arc};

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// SKUs an answer names.
pub(crate) const NEAREST: usize = 3;
/// Partial sums of a dot product; a multiple of every SIMD width there is.
const LANES: usize = 16;
/// Rows scored for all queries of a batch before the next ones are read.
const BLOCK_ROWS: usize = 256;
/// Queries that share one pass over the rows.
const BATCH: usize = 32;
/// Largest value of a query in the 8-bit pass, bounded so that a sum of products fits 32 bits.
const QUERY_MAX: f32 = 8191.0;
/// Relative rounding of the `f32` steps between an integer sum and a score.
const FLOAT_SLACK: f32 = 1e-5;
/// Products in one pass below which threads cost more than they save.
const MIN_PARALLEL_WORK: usize = 4 << 20;

/// A SKU near a query, by its best view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    /// Index of the SKU.
    pub(crate) sku: usize,
    /// Index of its best view.
    pub(crate) view: usize,
    /// Cosine, -1 to 1.
    pub(crate) score: f32,
}

/// Views of one dimension, grouped by SKU, ready for search.
///
/// ```
/// use shelfscan_gallery::ViewIndex;
///
/// let mut index = ViewIndex::new(2);
/// index.push("cola", "cola/front.jpg", &[1.0, 0.0]);
/// index.push("milk", "milk/front.jpg", &[0.6, 0.8]);
/// let nearest = index.nearest(&[0.8, 0.6]);
/// assert_eq!(nearest[0][0].view, "milk/front.jpg".into());
/// assert!((nearest[0][1].score - 0.8).abs() < 1e-6);
/// ```
#[derive(Clone, Debug)]
pub struct ViewIndex {
    dimension: usize,
    skus: Vec<Arc<str>>,
    /// Views of each SKU.
    groups: Vec<Range<usize>>,
    names: Vec<Arc<str>>,
    /// `[views, dimension]`.
    exact: Vec<f32>,
    /// `[views, dimension]`, rounded.
    coarse: Vec<i8>,
    /// What one step of a coarse row is worth.
    steps: Vec<f32>,
    /// Length of a row's rounding error.
    slacks: Vec<f32>,
}

impl ViewIndex {
    /// An index of views with `dimension` numbers each.
    pub fn new(dimension: usize) -> Self {
        Self {
            dimension,
            skus: Vec::new(),
            groups: Vec::new(),
            names: Vec::new(),
            exact: Vec::new(),
            coarse: Vec::new(),
            steps: Vec::new(),
            slacks: Vec::new(),
        }
    }

    /// Adds a view, a unit vector `[dimension]`. Views of one SKU follow one another.
    ///
    /// # Panics
    /// Never on data: a vector of another length is a mistake of the caller and is cut or padded
    /// with zeros.
    pub fn push(&mut self, sku: &str, view: &str, vector: &[f32]) {
        let at = self.names.len();
        match (self.skus.last(), self.groups.last_mut()) {
            (Some(last), Some(group)) if **last == *sku => group.end = at + 1,
            _ => {
                self.skus.push(sku.into());
                self.groups.push(at..at + 1);
            }
        }
        self.names.push(view.into());
        debug_assert_eq!(vector.len(), self.dimension);
        let start = self.exact.len();
        self.exact.extend(vector.iter().take(self.dimension));
        self.exact.resize(start + self.dimension, 0.0);
        let row = &self.exact[start..];
        let step = largest(row) / 127.0;
        let mut error = 0.0;
        for &value in row {
            let rounded = if step > 0.0 {
                (value / step).round()
            } else {
                0.0
            };
            self.coarse.push(rounded as i8);
            error += (value - rounded * step).powi(2);
        }
        self.steps.push(step);
        self.slacks.push(error.sqrt() + FLOAT_SLACK);
    }

    /// Number of views.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True when there is no view.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Number of SKUs.
    pub fn sku_count(&self) -> usize {
        self.skus.len()
    }

    /// The nearest SKUs of each query in `queries` (`[q, dimension]`, row by row), best first, at
    /// most three each; equal scores in the order of enrolment.
    pub fn nearest(&self, queries: &[f32]) -> Vec<Vec<crate::Candidate>> {
        self.search(queries)
            .into_iter()
            .map(|hits| hits.into_iter().map(|hit| self.candidate(hit)).collect())
            .collect()
    }

    pub(crate) fn candidate(&self, hit: Hit) -> crate::Candidate {
        crate::Candidate {
            sku: self.skus[hit.sku].clone(),
            score: hit.score,
            view: self.names[hit.view].clone(),
        }
    }

    pub(crate) fn sku(&self, sku: usize) -> &Arc<str> {
        &self.skus[sku]
    }

    pub(crate) fn view(&self, view: usize) -> &Arc<str> {
        &self.names[view]
    }

    pub(crate) fn vector_length(&self) -> usize {
        self.dimension
    }

    pub(crate) fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    pub(crate) fn vector(&self, view: usize) -> &[f32] {
        &self.exact[view * self.dimension..][..self.dimension]
    }

    /// The best views of the nearest SKUs of each query, at most [`NEAREST`] each.
    pub(crate) fn search(&self, queries: &[f32]) -> Vec<Vec<Hit>> {
        if self.dimension == 0 || self.is_empty() {
            return vec![Vec::new(); queries.len() / self.dimension.max(1)];
        }
        let queries: Vec<Query<'_>> = queries
            .chunks_exact(self.dimension)
            .map(Query::new)
            .collect();
        queries
            .chunks(BATCH)
            .flat_map(|batch| self.search_batch(batch))
            .collect()
    }

    fn search_batch(&self, batch: &[Query<'_>]) -> Vec<Vec<Hit>> {
        let arch = Arch::new();
        let views = self.len();
        // Lower and upper bounds would be twice the memory; the middle and the slack are enough.
        let mut middles = vec![0.0f32; views * batch.len()];
        let score_block = |first: usize, block: &mut [f32]| {
            arch.dispatch(ScoreBlock {
                index: self,
                first,
                batch,
                block,
            });
        };
        let block_len = BLOCK_ROWS * batch.len();
        let parallel = views * self.dimension * batch.len() >= MIN_PARALLEL_WORK;
        if parallel {
            middles
                .par_chunks_mut(block_len)
                .enumerate()
                .for_each(|(i, block)| score_block(i * BLOCK_ROWS, block));
        } else {
            for (i, block) in middles.chunks_mut(block_len).enumerate() {
                score_block(i * BLOCK_ROWS, block);
            }
        }
        let pick = |(i, query): (usize, &Query<'_>)| {
            arch.dispatch(Pick {
                index: self,
                query,
                at: i,
                batch: batch.len(),
                middles: &middles,
            })
        };
        if parallel && batch.len() > 1 {
            batch.par_iter().enumerate().map(pick).collect()
        } else {
            batch.iter().enumerate().map(pick).collect()
        }
    }

    /// Fills `block`, `[queries, rows of the block]` within it, with approximate scores.
    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn score_block(&self, first: usize, batch: &[Query<'_>], block: &mut [f32]) {
        let rows = block.len() / batch.len().max(1);
        for (query, out) in batch.iter().zip(block.chunks_exact_mut(rows.max(1))) {
            let coarse = &self.coarse[first * self.dimension..];
            for ((row, step), out) in coarse
                .chunks_exact(self.dimension)
                .zip(&self.steps[first..])
                .zip(out)
            {
                *out = coarse_dot(row, &query.coarse) as f32 * (step * query.step);
            }
        }
    }

    /// Scores again, exactly, every view that may be among the best, and keeps the best.
    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn pick(&self, query: &Query<'_>, at: usize, batch: usize, middles: &[f32]) -> Vec<Hit> {
        // A row's view of its own rounding plus the query's: |r.q - r'.q'| <= |r-r'||q| + |r'||q-q'|.
        let slack = |view: usize| self.slacks[view] * query.length + query.slack;
        let middle = |view: usize| {
            let block = view / BLOCK_ROWS;
            let start = block * BLOCK_ROWS;
            let rows = BLOCK_ROWS.min(self.len() - start);
            middles[start * batch + at * rows + (view - start)]
        };
        let mut floor = [f32::NEG_INFINITY; NEAREST];
        for group in &self.groups {
            let mut lower = f32::NEG_INFINITY;
            for view in group.clone() {
                lower = lower.max(middle(view) - slack(view));
            }
            keep_best(&mut floor, lower);
        }
        let bar = floor[NEAREST - 1];
        let mut best: Vec<Hit> = Vec::with_capacity(NEAREST + 1);
        for (sku, group) in self.groups.iter().enumerate() {
            let mut hit: Option<Hit> = None;
            for view in group.clone() {
                if middle(view) + slack(view) < bar {
                    continue;
                }
                let score = exact_dot(self.vector(view), query.exact);
                if hit.is_none_or(|hit| score > hit.score) {
                    hit = Some(Hit { sku, view, score });
                }
            }
            if let Some(hit) = hit {
                let place = best.partition_point(|other| other.score >= hit.score);
                best.insert(place, hit);
                best.truncate(NEAREST);
            }
        }
        best
    }
}

/// A query with its rounded twin.
struct Query<'a> {
    exact: &'a [f32],
    coarse: Vec<i16>,
    step: f32,
    length: f32,
    slack: f32,
}

impl<'a> Query<'a> {
    fn new(exact: &'a [f32]) -> Self {
        // A row has 127 steps at most, so the sum of all products stays within 31 bits.
        let limit = (f64::from(i32::MAX) / (127.0 * exact.len().max(1) as f64)).floor() as f32;
        let step = largest(exact) / QUERY_MAX.min(limit);
        let mut error = 0.0;
        let coarse = exact
            .iter()
            .map(|&value| {
                let rounded = if step > 0.0 {
                    (value / step).round()
                } else {
                    0.0
                };
                error += (value - rounded * step).powi(2);
                rounded as i16
            })
            .collect();
        let length = exact.iter().map(|v| v * v).sum::<f32>().sqrt();
        Self {
            exact,
            coarse,
            step,
            length,
            // A rounded row may be a little longer than 1.
            slack: error.sqrt() * 1.1 + FLOAT_SLACK * length,
        }
    }
}

/// One block of the 8-bit pass.
struct ScoreBlock<'a> {
    index: &'a ViewIndex,
    first: usize,
    batch: &'a [Query<'a>],
    block: &'a mut [f32],
}

impl WithSimd for ScoreBlock<'_> {
    type Output = ();

    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.index.score_block(self.first, self.batch, self.block);
    }
}

/// The exact pass of one query.
struct Pick<'a> {
    index: &'a ViewIndex,
    query: &'a Query<'a>,
    at: usize,
    batch: usize,
    middles: &'a [f32],
}

impl WithSimd for Pick<'_> {
    type Output = Vec<Hit>;

    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<Hit> {
        self.index
            .pick(self.query, self.at, self.batch, self.middles)
    }
}

/// One exact dot product.
struct Cosine<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl WithSimd for Cosine<'_> {
    type Output = f32;

    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f32 {
        exact_dot(self.a, self.b)
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, v| most.max(v.abs()))
}

fn keep_best(best: &mut [f32; NEAREST], value: f32) {
    if value > best[NEAREST - 1] {
        best[NEAREST - 1] = value;
        best.sort_unstable_by(|a, b| b.total_cmp(a));
    }
}

#[allow(
    clippy::inline_always,
    reason = "only what is inlined into a dispatched operation is compiled for the machine"
)]
#[inline(always)]
fn coarse_dot(row: &[i8], query: &[i16]) -> i32 {
    row.iter()
        .zip(query)
        .map(|(r, q)| i32::from(*r) * i32::from(*q))
        .sum()
}

/// Dot product with a fixed order of additions, whatever the width of the machine.
#[allow(
    clippy::inline_always,
    reason = "only what is inlined into a dispatched operation is compiled for the machine"
)]
#[inline(always)]
fn exact_dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Cosine of two unit vectors, in the arithmetic of the search.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    Arch::new().dispatch(Cosine { a, b })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Unit vectors from a small generator; `spread` 0 makes them all alike.
    pub(crate) fn vectors(seed: u64, rows: usize, dimension: usize, spread: f32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut next = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let base: Vec<f32> = (0..dimension).map(|_| next()).collect();
        let mut values = Vec::with_capacity(rows * dimension);
        for _ in 0..rows {
            let row: Vec<f32> = base.iter().map(|b| b + spread * next()).collect();
            let length = row.iter().map(|v| v * v).sum::<f32>().sqrt().max(1e-9);
            values.extend(row.iter().map(|v| v / length));
        }
        values
    }

    fn index(values: &[f32], dimension: usize, views_per_sku: usize) -> ViewIndex {
        let mut index = ViewIndex::new(dimension);
        for (i, row) in values.chunks_exact(dimension).enumerate() {
            index.push(&format!("{:05}", i / views_per_sku), &i.to_string(), row);
        }
        index
    }

    fn plain(index: &ViewIndex, query: &[f32]) -> Vec<Hit> {
        let mut hits: Vec<Hit> = index
            .groups
            .iter()
            .enumerate()
            .map(|(sku, group)| {
                let mut hit = Hit {
                    sku,
                    view: group.start,
                    score: f32::NEG_INFINITY,
                };
                for view in group.clone() {
                    let score = exact_dot(index.vector(view), query);
                    if score > hit.score {
                        hit = Hit { sku, view, score };
                    }
                }
                hit
            })
            .collect();
        hits.sort_by(|a, b| b.score.total_cmp(&a.score));
        hits.truncate(NEAREST);
        hits
    }

    #[test]
    fn many_views_and_queries_give_what_a_plain_scan_gives() {
        let dimension = 96;
        let index = index(&vectors(3, 5000, dimension, 1.0), dimension, 3);
        let queries = vectors(4, 70, dimension, 1.0);
        for (got, query) in index
            .search(&queries)
            .iter()
            .zip(queries.chunks_exact(dimension))
        {
            assert_eq!(*got, plain(&index, query));
        }
    }

    #[test]
    fn equal_scores_go_to_the_view_enrolled_first() {
        let mut index = ViewIndex::new(2);
        for sku in ["a", "b", "c", "d"] {
            index.push(sku, &format!("{sku}/1"), &[1.0, 0.0]);
            index.push(sku, &format!("{sku}/2"), &[1.0, 0.0]);
        }
        let hits = &index.nearest(&[1.0, 0.0])[0];
        let views: Vec<_> = hits.iter().map(|hit| &*hit.view).collect();
        assert_eq!(views, ["a/1", "b/1", "c/1"]);
    }

    #[test]
    fn an_empty_index_answers_every_query_with_nothing() {
        let index = ViewIndex::new(4);
        assert_eq!(index.nearest(&[0.5; 8]), vec![Vec::new(); 2]);
    }

    #[test]
    fn the_largest_dimension_does_not_overflow() {
        let dimension = 4096;
        let row = vec![1.0 / 64.0; dimension];
        let mut index = ViewIndex::new(dimension);
        index.push("a", "a/1", &row);
        let hit = &index.nearest(&row)[0][0];
        assert!((hit.score - 1.0).abs() < 1e-4, "{}", hit.score);
    }

    proptest! {
        #[test]
        fn the_search_equals_a_plain_scan(
            seed: u64,
            rows in 1usize..600,
            dimension in 1usize..70,
            per_sku in 1usize..5,
            spread in prop::sample::select(vec![0.0f32, 0.01, 1.0]),
        ) {
            let index = index(&vectors(seed, rows, dimension, spread), dimension, per_sku);
            let queries = vectors(seed ^ 7, 3, dimension, spread);
            for (got, query) in index.search(&queries).iter().zip(queries.chunks_exact(dimension)) {
                prop_assert_eq!(got, &plain(&index, query));
            }
        }
    }
}
