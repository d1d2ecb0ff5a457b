//! One query, and a batch, against 100,000 views of 384 numbers, on one core.
//!
//! `matmul` is the plain way: all products through `gemm`, then the best of each SKU.

use divan::{Bencher, black_box};
use shelfscan_gallery::ViewIndex;

const VIEWS: usize = 100_000;
const DIMENSION: usize = 384;
const VIEWS_PER_SKU: usize = 4;

fn main() {
    // One core: the pool that the search would share its work with has one thread.
    drop(
        rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build_global(),
    );
    divan::main();
}

/// Unit vectors with the structure embeddings have: views of one SKU lie near one another.
fn vectors(rows: usize, per_group: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut values = Vec::with_capacity(rows * DIMENSION);
    let mut centre = vec![0.0; DIMENSION];
    for row in 0..rows {
        if row % per_group == 0 {
            for value in &mut centre {
                *value = next();
            }
        }
        let vector: Vec<f32> = centre.iter().map(|c| c + 0.6 * next()).collect();
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        values.extend(vector.iter().map(|v| v / length));
    }
    values
}

fn index(values: &[f32]) -> ViewIndex {
    let mut index = ViewIndex::new(DIMENSION);
    for (i, row) in values.chunks_exact(DIMENSION).enumerate() {
        index.push(&format!("{:05}", i / VIEWS_PER_SKU), &i.to_string(), row);
    }
    index
}

#[divan::bench(args = [1, 32])]
fn exact_search(bencher: Bencher<'_, '_>, queries: usize) {
    let values = vectors(VIEWS, VIEWS_PER_SKU);
    let index = index(&values);
    let asked = &values[..queries * DIMENSION];
    bencher.bench_local(|| index.nearest(black_box(asked)));
}

#[divan::bench(args = [1, 32])]
fn matmul(bencher: Bencher<'_, '_>, queries: usize) {
    let values = vectors(VIEWS, VIEWS_PER_SKU);
    let asked = values[..queries * DIMENSION].to_vec();
    let mut scores = vec![0.0f32; VIEWS * queries];
    bencher.bench_local(|| {
        multiply(&values, black_box(&asked), &mut scores, queries);
        scores
            .chunks_exact(VIEWS)
            .map(|scores| {
                let best = scores
                    .chunks_exact(VIEWS_PER_SKU)
                    .map(|group| group.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let mut top = [f32::NEG_INFINITY; 3];
                for score in best {
                    if score > top[2] {
                        top[2] = score;
                        top.sort_unstable_by(|a, b| b.total_cmp(a));
                    }
                }
                top
            })
            .collect::<Vec<_>>()
    });
}

/// `scores[q, v] = queries[q, :] . views[v, :]`.
#[allow(unsafe_code)]
fn multiply(views: &[f32], queries: &[f32], scores: &mut [f32], count: usize) {
    assert_eq!(views.len(), VIEWS * DIMENSION);
    assert_eq!(queries.len(), count * DIMENSION);
    assert_eq!(scores.len(), count * VIEWS);
    // SAFETY: the strides below stay within the three lengths checked above.
    unsafe {
        gemm::gemm(
            VIEWS,
            count,
            DIMENSION,
            scores.as_mut_ptr(),
            VIEWS as isize,
            1,
            false,
            views.as_ptr(),
            1,
            DIMENSION as isize,
            queries.as_ptr(),
            DIMENSION as isize,
            1,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
