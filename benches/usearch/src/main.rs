//! One query against 100,000 views of 384 numbers, on one core: the gallery's exact search beside
//! usearch's exact search and its HNSW graph, interleaved in one run.
//!
//! Prints the fastest and the median time of each, the ratio to the gallery's, and recall@1 against
//! the gallery's answers.

use std::{
    error::Error,
    hint::black_box,
    time::{Duration, Instant},
};

use rayon::prelude::*;
use shelfscan_gallery::ViewIndex;
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

const VIEWS: usize = 100_000;
const DIMENSION: usize = 384;
const VIEWS_PER_SKU: usize = 4;
const QUERIES: usize = 100;
const NEAREST: usize = 3;

/// Numbers from -0.5 to 0.5, the same on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }
}

/// Unit vectors of views, and a query beside the first view of every so many SKUs.
fn vectors() -> (Vec<f32>, Vec<f32>) {
    let mut numbers = Numbers(1);
    let mut near = |centre: &[f32]| -> Vec<f32> {
        let row: Vec<f32> = centre.iter().map(|c| c + 0.6 * numbers.next()).collect();
        let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
        row.iter().map(|v| v / length).collect()
    };
    let mut centres = Numbers(2);
    let (mut views, mut queries) = (Vec::with_capacity(VIEWS * DIMENSION), Vec::new());
    let skus = VIEWS / VIEWS_PER_SKU;
    for sku in 0..skus {
        let centre: Vec<f32> = (0..DIMENSION).map(|_| centres.next()).collect();
        for _ in 0..VIEWS_PER_SKU {
            views.extend(near(&centre));
        }
        if sku % (skus / QUERIES) == 0 {
            queries.extend(near(&centre));
        }
    }
    (views, queries)
}

fn theirs(views: &[f32]) -> Result<Index, Box<dyn Error>> {
    let threads = std::thread::available_parallelism()?.get();
    let index = Index::new(&IndexOptions {
        dimensions: DIMENSION,
        metric: MetricKind::IP,
        quantization: ScalarKind::F32,
        ..IndexOptions::default()
    })?;
    index.reserve_capacity_and_threads(VIEWS, threads)?;
    // The graph is built on all cores; only the searches are timed.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    pool.install(|| {
        views
            .par_chunks_exact(DIMENSION)
            .enumerate()
            .try_for_each(|(view, row)| index.add(view as u64, row))
    })?;
    Ok(index)
}

fn main() -> Result<(), Box<dyn Error>> {
    // One core: the pool that the gallery would share its work with has one thread.
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build_global()?;
    let (views, queries) = vectors();
    let mut ours = ViewIndex::new(DIMENSION);
    for (view, row) in views.chunks_exact(DIMENSION).enumerate() {
        ours.push(&(view / VIEWS_PER_SKU).to_string(), &view.to_string(), row);
    }
    let start = Instant::now();
    let theirs = theirs(&views)?;
    println!(
        "usearch {} {}",
        usearch::version(),
        theirs.hardware_acceleration()
    );
    println!("graph built in {:.1} s", start.elapsed().as_secs_f64());

    let mut times = [const { Vec::new() }; 3];
    let mut right = [0; 3];
    for query in queries.chunks_exact(DIMENSION) {
        let (took, answer) = timed(|| ours.nearest(black_box(query)));
        times[0].push(took);
        let wanted: u64 = answer[0][0].view.parse()?;
        right[0] += 1;
        let (took, answer) = timed(|| theirs.exact_search(black_box(query), NEAREST));
        times[1].push(took);
        right[1] += usize::from(answer?.keys.first() == Some(&wanted));
        let (took, answer) = timed(|| theirs.search(black_box(query), NEAREST));
        times[2].push(took);
        right[2] += usize::from(answer?.keys.first() == Some(&wanted));
    }
    for times in &mut times {
        times.sort_unstable();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let base = ms(times[0][QUERIES / 2]);
    println!("                  fastest     median      ratio   recall@1");
    for (name, (times, right)) in ["gallery, exact", "usearch, exact", "usearch, HNSW"]
        .iter()
        .zip(times.iter().zip(right))
    {
        let median = ms(times[QUERIES / 2]);
        println!(
            "{name:15} {:7.3} ms {median:7.3} ms {:10.2} {:10.2}",
            ms(times[0]),
            median / base,
            right as f64 / QUERIES as f64
        );
    }
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let answer = run();
    (start.elapsed(), answer)
}
