//! Draws of SKUs and views, and what each method makes of them.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use rayon::prelude::*;
use shelfscan_inference_core::RgbImage;

use super::{
    Collector, Confusion, EvalReport, EvalSet, Method, MethodReport, PictureRole, Protocol,
    RepeatedQuery, ThresholdPoint, ViewsResult,
};
use crate::{
    EmbedProgress, GalleryError, PictureDecoder, ProgressObserver, Result, UnreadableView,
    files::hash_file,
};

/// Pictures decoded before the methods see them.
const CHUNK: usize = 16;
/// Pairs a run may score; they are kept as `f32`.
const MAX_PAIRS: usize = 200_000_000;
/// Known scores that are pooled for the threshold curve, over all draws.
const MAX_POOLED: usize = 4_000_000;
/// Points of the threshold curve.
const CURVE_POINTS: usize = 101;
/// Pairs of mixed-up SKUs that are listed.
const MAX_CONFUSIONS: usize = 20;

/// How to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalOptions {
    /// Numbers of views per SKU to measure, such as `[1, 2, 3, 4]`.
    pub views: Vec<usize>,
    /// Draws for each number of views.
    pub repeats: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// SKUs in a draw; `None` takes all there are.
    pub skus: Option<usize>,
    /// Sessions whose pictures are never views, such as `iconic` for a maker's own pictures, which
    /// no one enrols with a phone.
    pub excluded_sessions: Vec<String>,
}

impl EvalOptions {
    /// Checks that the numbers can be met.
    ///
    /// # Errors
    /// [`GalleryError::InvalidInput`] that says which cannot.
    pub fn validate(&self) -> Result<()> {
        let wrong = |text: &str| Err(GalleryError::InvalidInput(text.into()));
        if self.views.is_empty() || self.views.contains(&0) {
            return wrong("numbers of views start at 1; give them as 1,2,3,4");
        }
        if self.repeats == 0 {
            return wrong("there has to be at least one repeat");
        }
        if self.skus == Some(0) {
            return wrong("a draw needs at least one SKU");
        }
        Ok(())
    }
}

impl Default for EvalOptions {
    fn default() -> Self {
        Self {
            views: vec![1, 2, 3, 4],
            repeats: 100,
            seed: 0,
            skus: None,
            excluded_sessions: vec!["iconic".into()],
        }
    }
}

/// Judges each method on the same draws of a set.
///
/// Every picture is decoded and given to each method once; pairs are scored once and the draws pick
/// from the scores. Pictures that cannot be decoded are skipped, listed and counted. A query with
/// the very bytes of a view is left out, because the gallery must not contain its own queries.
///
/// # Errors
/// Options that cannot be drawn, a failing method, or a stop asked for by `progress`.
pub fn evaluate(
    set: &EvalSet,
    methods: &[&dyn Method],
    decode: &PictureDecoder<'_>,
    progress: Option<&ProgressObserver<'_>>,
    options: &EvalOptions,
) -> Result<EvalReport> {
    options.validate()?;
    let mut collectors = methods
        .iter()
        .map(|method| method.collector())
        .collect::<Result<Vec<_>>>()?;
    let (loaded, skipped) = load(set, &mut collectors, decode, progress)?;
    let (pool, repeated) = Pool::new(set, &loaded, options);
    let pairs = pool.queries.len() * pool.views.len();
    if pairs > MAX_PAIRS {
        return Err(GalleryError::InvalidInput(format!(
            "{} queries by {} views are more than {MAX_PAIRS} pairs; evaluate fewer pictures",
            pool.queries.len(),
            pool.views.len()
        )));
    }
    let draws: Vec<Vec<Draw>> = options
        .views
        .iter()
        .map(|k| {
            (0..options.repeats)
                .filter_map(|repeat| pool.draw(*k, repeat, options))
                .collect()
        })
        .collect();
    if draws.iter().all(Vec::is_empty) {
        return Err(GalleryError::InvalidInput(format!(
            "no SKU has {} views and a query besides; ask for fewer views or add pictures",
            options.views.iter().min().copied().unwrap_or(1)
        )));
    }
    let mut reports = Vec::with_capacity(methods.len());
    for (method, collector) in methods.iter().zip(&collectors) {
        let scores = Scores::new(&**collector, &pool);
        let measured: Vec<Measured> = draws
            .iter()
            .map(|draws| Measured::new(&scores, &pool, draws))
            .collect();
        let last = measured.iter().rposition(|m| m.draws > 0).unwrap_or(0);
        reports.push(MethodReport {
            name: method.name(),
            views: options
                .views
                .iter()
                .zip(&measured)
                .map(|(views, m)| m.result(*views))
                .collect(),
            curve_views: options.views[last],
            curve: measured[last].curve(),
            confusions: measured[last].confusions(&pool),
        });
    }
    let count = |role| {
        set.pictures
            .iter()
            .filter(|picture| picture.role == role)
            .count()
    };
    Ok(EvalReport {
        protocol: Protocol {
            pictures: set.pictures.len(),
            skus: pool.skus.len(),
            drawn_skus: draws
                .iter()
                .flatten()
                .map(|d| d.skus.len())
                .max()
                .unwrap_or(0),
            views: options.views.clone(),
            repeats: options.repeats,
            seed: options.seed,
            view_pictures: pool.views.len(),
            query_pictures: pool.queries.len() - pool.strangers.len(),
            stranger_pictures: pool.strangers.len(),
            strangers_are_undrawn_skus: count(PictureRole::Stranger) == 0,
            excluded_sessions: options.excluded_sessions.clone(),
        },
        skipped_count: skipped.len(),
        skipped,
        repeated_queries: repeated,
        methods: reports,
    })
}

/// A picture that was decoded: its place in the set and the hash of its file.
struct Loaded {
    picture: usize,
    sha256: String,
}

fn load(
    set: &EvalSet,
    collectors: &mut [Box<dyn Collector + '_>],
    decode: &PictureDecoder<'_>,
    progress: Option<&ProgressObserver<'_>>,
) -> Result<(Vec<Loaded>, Vec<UnreadableView>)> {
    let mut loaded = Vec::new();
    let mut skipped = Vec::new();
    for (chunk, pictures) in set.pictures.chunks(CHUNK).enumerate() {
        let decoded: Vec<Result<(String, RgbImage), String>> = pictures
            .par_iter()
            .map(|picture| {
                let path = set.root.join(Path::new(&picture.path));
                let (sha256, _) = hash_file(&path).map_err(|error| error.to_string())?;
                Ok((sha256, decode(&path)?))
            })
            .collect();
        let mut images = Vec::with_capacity(CHUNK);
        for (i, outcome) in decoded.into_iter().enumerate() {
            let picture = chunk * CHUNK + i;
            match outcome {
                Ok((sha256, image)) => {
                    loaded.push(Loaded { picture, sha256 });
                    images.push(image);
                }
                Err(reason) => skipped.push(UnreadableView {
                    view: set.pictures[picture].path.clone(),
                    reason,
                }),
            }
        }
        if !images.is_empty() {
            for collector in &mut *collectors {
                collector.push(&images)?;
            }
        }
        let told = EmbedProgress {
            done: (chunk * CHUNK + pictures.len()).min(set.pictures.len()),
            wanted: set.pictures.len(),
        };
        if progress.is_some_and(|tell| tell(told) == ControlFlow::Break(())) {
            return Err(GalleryError::Stopped {
                embedded: told.done,
                wanted: told.wanted,
            });
        }
    }
    Ok((loaded, skipped))
}

/// Numbers of the loaded pictures by role. A number is that of the collectors.
struct Pool {
    skus: Vec<String>,
    /// For each SKU, positions in `views`.
    sku_views: Vec<Vec<usize>>,
    /// For each SKU, positions in `queries`.
    sku_queries: Vec<Vec<usize>>,
    views: Vec<usize>,
    queries: Vec<usize>,
    /// Positions in `queries` of the pictures that are never enrolled.
    strangers: Vec<usize>,
    /// True when one picture is view or query as the draw decides.
    shared: bool,
}

impl Pool {
    fn new(set: &EvalSet, loaded: &[Loaded], options: &EvalOptions) -> (Self, Vec<RepeatedQuery>) {
        let is_view = |picture: usize| {
            let picture = &set.pictures[picture];
            matches!(picture.role, PictureRole::Gallery | PictureRole::Either)
                && !options.excluded_sessions.contains(&picture.session)
        };
        let mut view_files: BTreeMap<&str, usize> = BTreeMap::new();
        for one in loaded.iter().filter(|one| is_view(one.picture)) {
            view_files.entry(&one.sha256).or_insert(one.picture);
        }
        let mut repeated = Vec::new();
        let mut by_sku: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        let (mut views, mut queries, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
        let mut shared = false;
        for (number, one) in loaded.iter().enumerate() {
            let picture = &set.pictures[one.picture];
            let twin = view_files
                .get(one.sha256.as_str())
                .filter(|twin| **twin != one.picture);
            if let Some(twin) = twin {
                let counts = match picture.role {
                    PictureRole::Gallery => false,
                    PictureRole::Query | PictureRole::Stranger | PictureRole::Either => true,
                };
                if counts {
                    repeated.push(RepeatedQuery {
                        query: picture.path.clone(),
                        view: set.pictures[*twin].path.clone(),
                    });
                    continue;
                }
            }
            if picture.role == PictureRole::Stranger {
                strangers.push(queries.len());
                queries.push(number);
                continue;
            }
            let entry = by_sku.entry(&picture.sku).or_default();
            if is_view(one.picture) {
                entry.0.push(views.len());
                views.push(number);
            }
            if matches!(picture.role, PictureRole::Query | PictureRole::Either) {
                entry.1.push(queries.len());
                queries.push(number);
            }
            shared |= picture.role == PictureRole::Either;
        }
        by_sku.retain(|_, (views, queries)| !views.is_empty() && !queries.is_empty());
        let mut pool = Self {
            skus: by_sku.keys().map(|sku| (*sku).to_owned()).collect(),
            sku_views: Vec::new(),
            sku_queries: Vec::new(),
            views,
            queries,
            strangers,
            shared,
        };
        for (views, queries) in by_sku.into_values() {
            pool.sku_views.push(views);
            pool.sku_queries.push(queries);
        }
        (pool, repeated)
    }

    /// One draw with `k` views per SKU; `None` when no SKU has that many and a query besides.
    fn draw(&self, k: usize, repeat: usize, options: &EvalOptions) -> Option<Draw> {
        let mut random = SplitMix::new(
            options.seed ^ ((k as u64) << 32 | repeat as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        );
        // A shared picture that is a view cannot be a query as well.
        let needed = k + usize::from(self.shared);
        let mut skus: Vec<usize> = (0..self.skus.len())
            .filter(|sku| self.sku_views[*sku].len() >= needed)
            .collect();
        if skus.is_empty() {
            return None;
        }
        random.shuffle(&mut skus);
        let undrawn = skus.split_off(options.skus.unwrap_or(skus.len()).min(skus.len()));
        skus.sort_unstable();
        let mut draw = Draw {
            views: Vec::new(),
            queries: Vec::new(),
            strangers: self.strangers.clone(),
            skus,
        };
        for sku in &draw.skus {
            let mut views = self.sku_views[*sku].clone();
            random.shuffle(&mut views);
            views.truncate(k);
            views.sort_unstable();
            let taken = |query: &usize| {
                self.shared && views.iter().any(|v| self.views[*v] == self.queries[*query])
            };
            draw.queries.extend(
                self.sku_queries[*sku]
                    .iter()
                    .filter(|query| !taken(query))
                    .map(|query| (*sku, *query)),
            );
            draw.views.push(views);
        }
        if self.strangers.is_empty() {
            let undrawn = undrawn.iter().flat_map(|sku| &self.sku_queries[*sku]);
            draw.strangers.extend(undrawn);
        }
        (!draw.queries.is_empty()).then_some(draw)
    }
}

/// One draw: SKUs, the views of each, the queries with their SKU, the strangers.
struct Draw {
    skus: Vec<usize>,
    views: Vec<Vec<usize>>,
    queries: Vec<(usize, usize)>,
    strangers: Vec<usize>,
}

/// Every query scored against every view, `[queries, views]`.
struct Scores {
    values: Vec<f32>,
    views: usize,
}

impl Scores {
    fn new(collector: &dyn Collector, pool: &Pool) -> Self {
        let views = pool.views.len();
        let mut values = vec![0.0; pool.queries.len() * views];
        values
            .par_chunks_mut(views.max(1))
            .zip(&pool.queries)
            .for_each(|(row, query)| {
                for (value, view) in row.iter_mut().zip(&pool.views) {
                    *value = collector.score(*query, *view);
                }
            });
        Self { values, views }
    }

    /// The nearest SKU of a draw, as its place in the draw, and its score.
    fn nearest(&self, query: usize, draw: &Draw) -> (usize, f32) {
        let row = &self.values[query * self.views..][..self.views];
        let mut best = (0, f32::NEG_INFINITY);
        for (place, views) in draw.views.iter().enumerate() {
            for view in views {
                if row[*view] > best.1 {
                    best = (place, row[*view]);
                }
            }
        }
        best
    }
}

/// What one method did in all draws with one number of views.
#[derive(Default)]
struct Measured {
    draws: usize,
    skus: usize,
    top1: f64,
    auroc: f64,
    auroc_draws: usize,
    /// Score and whether the SKU is right, for the known queries of all draws.
    known: Vec<(f32, bool)>,
    strangers: Vec<f32>,
    /// Times each SKU was answered for another, and times each SKU was asked.
    mixed_up: BTreeMap<(usize, usize), usize>,
    asked: BTreeMap<usize, usize>,
}

impl Measured {
    fn new(scores: &Scores, pool: &Pool, draws: &[Draw]) -> Self {
        debug_assert_eq!(scores.views, pool.views.len());
        let mut all = Self::default();
        for draw in draws {
            all.draws += 1;
            all.skus += draw.skus.len();
            let mut right = 0;
            let mut known = Vec::with_capacity(draw.queries.len());
            for (sku, query) in &draw.queries {
                let (place, score) = scores.nearest(*query, draw);
                let answer = draw.skus[place];
                right += usize::from(answer == *sku);
                known.push((score, answer == *sku));
                *all.asked.entry(*sku).or_default() += 1;
                if answer != *sku {
                    *all.mixed_up.entry((*sku, answer)).or_default() += 1;
                }
            }
            all.top1 += right as f64 / draw.queries.len() as f64;
            let strangers: Vec<f32> = draw
                .strangers
                .iter()
                .map(|query| scores.nearest(*query, draw).1)
                .collect();
            if !strangers.is_empty() {
                let known: Vec<f32> = known.iter().map(|(score, _)| *score).collect();
                all.auroc += auroc(&known, &strangers);
                all.auroc_draws += 1;
            }
            if all.known.len() + known.len() <= MAX_POOLED {
                all.known.extend(known);
                all.strangers.extend(strangers);
            }
        }
        all
    }

    fn result(&self, views: usize) -> ViewsResult {
        let mean = |sum: f64, count: usize| (count > 0).then(|| sum / count as f64);
        ViewsResult {
            views,
            draws: self.draws,
            skus: mean(self.skus as f64, self.draws).unwrap_or(0.0),
            top1: mean(self.top1, self.draws),
            auroc: mean(self.auroc, self.auroc_draws),
        }
    }

    fn curve(&self) -> Vec<ThresholdPoint> {
        if self.known.is_empty() || self.strangers.is_empty() {
            return Vec::new();
        }
        let mut scores: Vec<f32> = self.known.iter().map(|(score, _)| *score).collect();
        scores.extend(&self.strangers);
        scores.sort_unstable_by(f32::total_cmp);
        let mut thresholds: Vec<f32> = (0..CURVE_POINTS)
            .map(|i| scores[i * (scores.len() - 1) / (CURVE_POINTS - 1)])
            .collect();
        thresholds.push(scores[scores.len() - 1].next_up());
        thresholds.dedup();
        let (known, strangers) = (self.known.len() as f64, self.strangers.len() as f64);
        thresholds
            .into_iter()
            .map(|threshold| {
                let accepted = self.strangers.iter().filter(|s| **s >= threshold).count();
                let rejected = self.known.iter().filter(|(s, _)| *s < threshold).count();
                let mistaken = self
                    .known
                    .iter()
                    .filter(|(s, right)| *s >= threshold && !right)
                    .count();
                ThresholdPoint {
                    threshold,
                    false_accept: accepted as f64 / strangers,
                    false_reject: rejected as f64 / known,
                    mistaken: mistaken as f64 / known,
                }
            })
            .collect()
    }

    fn confusions(&self, pool: &Pool) -> Vec<Confusion> {
        let mut pairs: Vec<Confusion> = self
            .mixed_up
            .iter()
            .map(|((sku, answer), count)| Confusion {
                sku: pool.skus[*sku].clone(),
                answer: pool.skus[*answer].clone(),
                count: *count,
                share: *count as f64 / self.asked.get(sku).copied().unwrap_or(1).max(1) as f64,
            })
            .collect();
        // Stable, so that equal counts stay in the order of the SKUs.
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        pairs.truncate(MAX_CONFUSIONS);
        pairs
    }
}

/// The chance that a known score lies above a stranger's, ties counting half.
fn auroc(known: &[f32], strangers: &[f32]) -> f64 {
    let mut all: Vec<(f32, bool)> = known
        .iter()
        .map(|s| (*s, true))
        .chain(strangers.iter().map(|s| (*s, false)))
        .collect();
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut wins) = (0.0, 0.0);
    for tied in all.chunk_by(|a, b| a.0 == b.0) {
        let known = tied.iter().filter(|(_, known)| *known).count() as f64;
        let strangers = tied.len() as f64 - known;
        wins += known * (below + strangers / 2.0);
        below += strangers;
    }
    wins / (known.len() as f64 * strangers.len() as f64)
}

/// A small generator for draws (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014); the same on every machine.
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number from 0 to just below 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auroc_counts_won_pairs_and_half_of_the_ties() {
        assert_eq!(auroc(&[2.0, 3.0], &[0.0, 1.0]), 1.0);
        assert_eq!(auroc(&[0.0], &[1.0]), 0.0);
        assert_eq!(auroc(&[1.0, 1.0], &[1.0]), 0.5);
        assert_eq!(auroc(&[1.0, 3.0], &[2.0, 1.0]), (0.5 + 2.0) / 4.0);
    }

    #[test]
    fn a_shuffle_reaches_every_order_about_equally() {
        let mut counts = BTreeMap::new();
        let mut random = SplitMix::new(1);
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(
            counts.values().all(|c| (850..1150).contains(c)),
            "{counts:?}"
        );
    }
}
