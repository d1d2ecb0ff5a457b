//! Thresholds from held-out enrolled views, and the look-alikes the same trials show.
//!
//! Each view is asked once against all others. With its own SKU's other views present it is a
//! *known* trial: the right SKU should be accepted. With its whole SKU taken out it is a *stranger*
//! trial: anything accepted is a false accept. Near-duplicates of a view are left out of its known
//! trial, because they would answer for it.
//!
//! Views of one SKU are accepted or refused together, so a stranger SKU counts once, by the share of
//! its trials that are accepted. How far the rate may be off is told by the upper bound of Clopper
//! and Pearson ("The use of confidence or fiducial limits", Biometrika 1934) over SKUs; a share
//! between 0 and 1 varies less than the yes or no that bound is made for, so it errs on the safe side.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::search::{ViewIndex, cosine};

/// Share of strangers that may be accepted, unless another is asked for.
pub const DEFAULT_FALSE_ACCEPT: f32 = 0.05;
/// Score threshold where there is too little data. A guess: where cosines of equal and of different
/// packs lie depends on the embedder and the packs, which is why a gallery measures its own.
pub const DEFAULT_SCORE: f32 = 0.6;
/// Margin threshold where there is too little data; a guess as well.
pub const DEFAULT_MARGIN: f32 = 0.02;

/// Cosine from which two views count as the same picture.
pub(crate) const NEAR_DUPLICATE: f32 = 0.995;
/// Cosine from which two SKUs look alike even when no trial mixes them up.
const LOOK_ALIKE: f32 = 0.95;
/// Trials of a kind that are needed, whatever the rate.
const MIN_TRIALS: usize = 20;
/// How sure a false-accept bound is.
const CONFIDENCE: f64 = 0.95;
/// What a sum of weights may be off by.
const WEIGHT_ROUNDING: f64 = 1e-6;
/// Products the trials may cost; more views than that allows are sampled evenly.
const TRIAL_WORK: usize = 200_000_000_000;
/// Look-alike pairs and near-duplicates that are listed; the counts go on.
const MAX_LISTED: usize = 100;
/// Margins tried for each score threshold.
const MARGINS: [f32; 13] = [
    0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2,
];

/// Where a gallery's thresholds come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThresholdBasis {
    /// Measured on held-out enrolled views.
    Calibrated {
        /// Known trials.
        known: usize,
        /// Stranger trials.
        strangers: usize,
        /// SKUs these trials are of.
        stranger_skus: usize,
        /// Share of strangers that are accepted at the thresholds, every SKU counting once.
        false_accept: f32,
        /// The rate that new packs stay under with a confidence of 95 %. Above the target when there
        /// are too few SKUs to promise it.
        false_accept_bound: f32,
        /// Share of known trials whose own SKU is not accepted at the thresholds.
        false_reject: f32,
        /// Share of known trials in which another SKU is accepted.
        mistaken: f32,
    },
    /// The documented defaults, and why nothing could be measured.
    Default {
        /// What is missing, in words.
        reason: String,
    },
}

/// A crop is known when its score and its margin both reach these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Least cosine of the nearest SKU's best view.
    pub score: f32,
    /// Least distance to the next SKU's score.
    pub margin: f32,
    /// The false-accept rate that was asked for.
    pub target_false_accept: f32,
    /// Where the numbers come from.
    pub basis: ThresholdBasis,
}

impl Thresholds {
    /// The documented defaults, with the reason for them.
    pub fn defaults(target_false_accept: f32, reason: impl Into<String>) -> Self {
        Self {
            score: DEFAULT_SCORE,
            margin: DEFAULT_MARGIN,
            target_false_accept,
            basis: ThresholdBasis::Default {
                reason: reason.into(),
            },
        }
    }

    /// True when an answer of this score and margin is known.
    pub fn accept(&self, score: f32, margin: f32) -> bool {
        score >= self.score && margin >= self.margin
    }

    pub(crate) fn is_valid(&self) -> bool {
        let range = -1.0..=2.0;
        range.contains(&self.score) && range.contains(&self.margin)
    }
}

/// Two SKUs whose views are hard to tell apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookAlike {
    /// The SKU whose view was asked.
    pub sku: String,
    /// The SKU it is near to.
    pub other: String,
    /// Cosine of their nearest views.
    pub score: f32,
    /// The view of `sku` in that pair.
    pub view: String,
    /// The view of `other` in that pair.
    pub other_view: String,
    /// Views of either that are nearer to the other SKU than to their own.
    pub mistaken_views: usize,
}

/// Two views that are one picture, as far as the embedder can tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NearDuplicate {
    /// The first view.
    pub view: String,
    /// The view that repeats it.
    pub other_view: String,
    /// Their cosine.
    pub score: f32,
}

/// What the held-out trials say about a gallery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resemblance {
    /// Views that were asked; fewer than enrolled when there are very many.
    pub asked_views: usize,
    /// Pairs of look-alike SKUs, most mistaken first, at most 100.
    pub look_alikes: Vec<LookAlike>,
    /// Number of look-alike pairs in all.
    pub look_alike_count: usize,
    /// Repeated views, at most 100. A pair across two SKUs is most often a misplaced file.
    pub near_duplicates: Vec<NearDuplicate>,
    /// Number of repeated views in all.
    pub near_duplicate_count: usize,
}

/// One view asked against all others.
#[derive(Clone, Copy, Debug)]
struct Trial {
    view: usize,
    sku: usize,
    /// Best other view of its own SKU, when there is one that is not a near-duplicate.
    own: Option<f32>,
    /// The nearest other SKU: SKU, view and score.
    first: Option<(usize, usize, f32)>,
    /// Score of the other SKU after that.
    second: Option<f32>,
}

impl Trial {
    /// Score, margin and whether the answer is right, with the own SKU present.
    fn known(&self) -> Option<(f32, f32, bool)> {
        let (own, (_, _, other)) = (self.own?, self.first?);
        if own >= other {
            Some((own, own - other, true))
        } else {
            Some((other, other - own.max(self.second.unwrap_or(own)), false))
        }
    }

    /// Score and margin with the own SKU taken out.
    fn stranger(&self) -> Option<(f32, f32)> {
        let ((_, _, first), second) = (self.first?, self.second?);
        Some((first, first - second))
    }
}

/// Asks held-out views and sets thresholds for a false-accept rate.
pub(crate) fn calibrate(index: &ViewIndex, target: f32) -> (Thresholds, Resemblance) {
    let mut sku_of = vec![0; index.len()];
    for (sku, group) in index.groups().iter().enumerate() {
        sku_of[group.clone()].fill(sku);
    }
    let (asked, duplicates) = sample(index);
    let trials: Vec<Trial> = asked
        .par_chunks(32)
        .flat_map_iter(|views| ask(index, &sku_of, views))
        .collect();
    let resemblance = resemblance(index, &sku_of, &trials, duplicates);
    (thresholds(&trials, target), resemblance)
}

/// The views to ask, and the near-duplicate pairs within a SKU.
fn sample(index: &ViewIndex) -> (Vec<usize>, Vec<(usize, usize, f32)>) {
    let views = index.len();
    let per_view = (views * index.vector_length()).max(1);
    let wanted = (TRIAL_WORK / per_view).clamp(1, views.max(1));
    let asked = (0..wanted.min(views)).map(|i| i * views / wanted).collect();
    let duplicates = index
        .groups()
        .par_iter()
        .flat_map_iter(|group| {
            // Against the next few only: a burst of frames lies side by side, and a SKU with
            // thousands of views must not cost their square.
            group.clone().flat_map(move |a| {
                (a + 1..group.end.min(a + 65)).filter_map(move |b| {
                    let score = cosine(index.vector(a), index.vector(b));
                    (score >= NEAR_DUPLICATE).then_some((a, b, score))
                })
            })
        })
        .collect();
    (asked, duplicates)
}

fn ask(index: &ViewIndex, sku_of: &[usize], views: &[usize]) -> Vec<Trial> {
    let queries: Vec<f32> = views
        .iter()
        .flat_map(|view| index.vector(*view).iter().copied())
        .collect();
    index
        .search(&queries)
        .into_iter()
        .zip(views)
        .map(|(hits, &view)| {
            let sku = sku_of[view];
            let mut others = hits.iter().filter(|hit| hit.sku != sku);
            let first = others.next().map(|hit| (hit.sku, hit.view, hit.score));
            let own = index.groups()[sku]
                .clone()
                .filter(|other| *other != view)
                .map(|other| cosine(index.vector(view), index.vector(other)))
                .filter(|score| *score < NEAR_DUPLICATE)
                .reduce(f32::max);
            Trial {
                view,
                sku,
                own,
                first,
                second: others.next().map(|hit| hit.score),
            }
        })
        .collect()
}

/// Stranger trials, best score first, each with what it weighs: the trials of a SKU weigh 1.
struct Strangers {
    trials: Vec<StrangerTrial>,
    skus: usize,
}

struct StrangerTrial {
    score: f32,
    margin: f32,
    weight: f64,
}

impl Strangers {
    fn new(trials: &[Trial]) -> Self {
        let mut asked: BTreeMap<usize, usize> = BTreeMap::new();
        let answered = || trials.iter().filter_map(|t| Some((t.sku, t.stranger()?)));
        for (sku, _) in answered() {
            *asked.entry(sku).or_default() += 1;
        }
        let mut trials: Vec<StrangerTrial> = answered()
            .map(|(sku, (score, margin))| StrangerTrial {
                score,
                margin,
                weight: 1.0 / asked[&sku] as f64,
            })
            .collect();
        trials.sort_by(|a, b| b.score.total_cmp(&a.score));
        Self {
            trials,
            skus: asked.len(),
        }
    }

    /// The lowest score that lets no more than `allowed` SKUs through at this margin.
    fn lowest_score(&self, margin: f32, allowed: usize) -> f32 {
        let mut accepted = 0.0;
        for trial in self.trials.iter().filter(|t| t.margin >= margin) {
            accepted += trial.weight;
            if accepted > allowed as f64 + WEIGHT_ROUNDING {
                return trial.score.next_up();
            }
        }
        -1.0
    }

    /// SKUs that are accepted, counted by the shares of their trials.
    fn accepted(&self, thresholds: &Thresholds) -> f64 {
        self.trials
            .iter()
            .filter(|t| thresholds.accept(t.score, t.margin))
            // A sum of nothing would be -0.0, and be printed so.
            .fold(0.0, |accepted, trial| accepted + trial.weight)
    }
}

/// The chance of at most `most` hits in `trials` at a rate of `rate`.
fn binomial_cdf(most: usize, trials: usize, rate: f64) -> f64 {
    if most >= trials {
        return 1.0;
    }
    if rate <= 0.0 || rate >= 1.0 {
        return if rate <= 0.0 { 1.0 } else { 0.0 };
    }
    let odds = (rate / (1.0 - rate)).ln();
    // The terms underflow long before their ratio does, so they are kept as logarithms, and summed
    // against the largest one yet.
    let mut term = trials as f64 * (1.0 - rate).ln();
    let (mut largest, mut sum) = (term, 1.0);
    for hits in 1..=most {
        term += odds + ((trials - hits + 1) as f64 / hits as f64).ln();
        if term > largest {
            sum = sum * (largest - term).exp() + 1.0;
            largest = term;
        } else {
            sum += (term - largest).exp();
        }
    }
    (largest + sum.ln()).exp().min(1.0)
}

/// The rate that `hits` of `trials` stay under, with a confidence of [`CONFIDENCE`].
fn upper_bound(hits: usize, trials: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if binomial_cdf(hits, trials, middle) > 1.0 - CONFIDENCE {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The most SKUs of `skus` that may be accepted so that the bound stays within `target`; 0 also
/// where even that says too little.
fn allowed_skus(skus: usize, target: f64) -> usize {
    let (mut low, mut high) = (0, (skus as f64 * target) as usize);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if binomial_cdf(middle, skus, target) <= 1.0 - CONFIDENCE {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// SKUs from which on a false-accept rate can be promised, when none of them is accepted.
pub(crate) fn skus_to_promise(target: f32) -> usize {
    ((1.0 - CONFIDENCE).ln() / (1.0 - f64::from(target)).ln()).ceil() as usize
}

fn thresholds(trials: &[Trial], target: f32) -> Thresholds {
    let known: Vec<_> = trials.iter().filter_map(Trial::known).collect();
    let strangers = Strangers::new(trials);
    if known.len() < MIN_TRIALS || strangers.trials.len() < MIN_TRIALS {
        return Thresholds::defaults(target, too_little(trials));
    }
    let allowed = allowed_skus(strangers.skus, f64::from(target));
    let mut best: Option<(usize, Thresholds)> = None;
    for margin in MARGINS {
        let candidate = Thresholds {
            score: strangers.lowest_score(margin, allowed),
            margin,
            target_false_accept: target,
            basis: ThresholdBasis::Default {
                reason: String::new(),
            },
        };
        let right = known
            .iter()
            .filter(|(score, margin, right)| *right && candidate.accept(*score, *margin))
            .count();
        if best.as_ref().is_none_or(|(most, _)| right > *most) {
            best = Some((right, candidate));
        }
    }
    let Some((right, mut chosen)) = best else {
        return Thresholds::defaults(target, "no threshold could be tried");
    };
    let share = |count: usize| count as f32 / known.len().max(1) as f32;
    let accepted = strangers.accepted(&chosen);
    let mistaken = known
        .iter()
        .filter(|(score, margin, right)| !right && chosen.accept(*score, *margin))
        .count();
    chosen.basis = ThresholdBasis::Calibrated {
        known: known.len(),
        strangers: strangers.trials.len(),
        stranger_skus: strangers.skus,
        false_accept: (accepted / strangers.skus as f64) as f32,
        // The bound of what the threshold was set by, however few came through in the end.
        false_accept_bound: upper_bound(allowed, strangers.skus) as f32,
        false_reject: share(known.len() - right),
        mistaken: share(mistaken),
    };
    chosen
}

/// Says what is there and what measuring takes.
fn too_little(trials: &[Trial]) -> String {
    let paired = trials.iter().filter(|trial| trial.own.is_some()).count();
    let skus: BTreeSet<usize> = trials.iter().map(|trial| trial.sku).collect();
    format!(
        "measuring takes at least {MIN_TRIALS} views that have another, different view of their SKU beside them, and at least 3 SKUs; enrolled: such views {paired}, SKUs {}; enrol more views or SKUs",
        skus.len()
    )
}

fn resemblance(
    index: &ViewIndex,
    sku_of: &[usize],
    trials: &[Trial],
    mut duplicates: Vec<(usize, usize, f32)>,
) -> Resemblance {
    let mut pairs: BTreeMap<(usize, usize), (f32, usize, usize, usize)> = BTreeMap::new();
    for trial in trials {
        let Some((other, other_view, score)) = trial.first else {
            continue;
        };
        if score >= NEAR_DUPLICATE && trial.view < other_view {
            duplicates.push((trial.view, other_view, score));
        }
        let mistaken = trial.own.is_some_and(|own| score > own);
        if !mistaken && score < LOOK_ALIKE {
            continue;
        }
        let pair = (trial.sku.min(other), trial.sku.max(other));
        let entry = pairs
            .entry(pair)
            .or_insert((f32::NEG_INFINITY, trial.view, other_view, 0));
        if score > entry.0 {
            (entry.0, entry.1, entry.2) = (score, trial.view, other_view);
        }
        entry.3 += usize::from(mistaken);
    }
    let mut look_alikes: Vec<LookAlike> = pairs
        .into_values()
        .map(|(score, view, other_view, mistaken_views)| LookAlike {
            sku: index.sku(sku_of[view]).to_string(),
            other: index.sku(sku_of[other_view]).to_string(),
            score,
            view: index.view(view).to_string(),
            other_view: index.view(other_view).to_string(),
            mistaken_views,
        })
        .collect();
    look_alikes.sort_by(|a, b| {
        (b.mistaken_views.cmp(&a.mistaken_views)).then(b.score.total_cmp(&a.score))
    });
    duplicates.sort_by_key(|(a, b, _)| (*a, *b));
    duplicates.dedup_by_key(|(a, b, _)| (*a, *b));
    let look_alike_count = look_alikes.len();
    look_alikes.truncate(MAX_LISTED);
    Resemblance {
        asked_views: trials.len(),
        look_alikes,
        look_alike_count,
        near_duplicate_count: duplicates.len(),
        near_duplicates: duplicates
            .into_iter()
            .take(MAX_LISTED)
            .map(|(view, other, score)| NearDuplicate {
                view: index.view(view).to_string(),
                other_view: index.view(other).to_string(),
                score,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::tests::vectors;

    const DIMENSION: usize = 24;

    /// `skus` SKUs with `views` views each, around centres that no other seed shares.
    fn packs(seed: u64, skus: usize, views: usize) -> Vec<Vec<f32>> {
        let seed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let centres = vectors(seed, skus, DIMENSION, 1.5);
        let blur = vectors(!seed, skus * views, DIMENSION, 50.0);
        (0..skus * views)
            .map(|view| {
                let row: Vec<f32> = centres[view / views * DIMENSION..]
                    .iter()
                    .zip(&blur[view * DIMENSION..][..DIMENSION])
                    .map(|(c, b)| c + 0.5 * b)
                    .collect();
                let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
                row.iter().map(|v| v / length).collect()
            })
            .collect()
    }

    fn index(packs: &[Vec<f32>], views: usize) -> ViewIndex {
        let mut index = ViewIndex::new(DIMENSION);
        for (view, row) in packs.iter().enumerate() {
            index.push(&(view / views).to_string(), &view.to_string(), row);
        }
        index
    }

    #[test]
    fn the_false_accept_rate_holds_on_new_packs_and_most_known_packs_are_still_named() {
        let (skus, views, strangers) = (150, 3, 1000);
        let (mut rates, mut named) = (Vec::new(), Vec::new());
        for seed in 0..20 {
            // The last view of a SKU is a crop the gallery never saw; so are all of a stranger's.
            let (mut enrolled, mut crops) = (Vec::new(), Vec::new());
            let all = packs(seed, skus + strangers, views + 1);
            for (sku, views) in all.chunks_exact(views + 1).enumerate() {
                crops.push(views[0].clone());
                if sku < skus {
                    enrolled.extend_from_slice(&views[1..]);
                }
            }
            let index = index(&enrolled, views);
            let (thresholds, _) = calibrate(&index, 0.05);
            let ThresholdBasis::Calibrated {
                stranger_skus,
                false_accept_bound,
                ..
            } = thresholds.basis
            else {
                panic!("{thresholds}");
            };
            assert!(stranger_skus == 150 && false_accept_bound <= 0.05);
            let answers: Vec<Option<usize>> = index
                .search(&crops.concat())
                .iter()
                .map(|hits| {
                    let margin = hits[0].score - hits[1].score;
                    thresholds
                        .accept(hits[0].score, margin)
                        .then_some(hits[0].sku)
                })
                .collect();
            let (known, unknown) = answers.split_at(skus);
            let right = known.iter().zip(0..).filter(|(a, sku)| **a == Some(*sku));
            named.push(right.count() as f64 / skus as f64);
            rates.push(unknown.iter().flatten().count() as f64 / strangers as f64);
        }
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
        let over = rates.iter().filter(|rate| **rate > 0.05).count();
        let seen = format!(
            "let in {:.3} {rates:.3?}, named {:.3} {named:.3?}",
            mean(&rates),
            mean(&named)
        );
        println!("{seen}");
        assert!(over <= 3 && rates.iter().all(|rate| *rate <= 0.1), "{seen}");
        assert!(mean(&rates) > 0.002 && mean(&named) > 0.75, "{seen}");
    }

    #[test]
    fn views_of_one_sku_count_once_and_few_skus_promise_nothing() {
        let bound = |skus: usize, views: usize| {
            let (thresholds, _) = calibrate(&index(&packs(9, skus, views), views), 0.05);
            let ThresholdBasis::Calibrated {
                strangers,
                stranger_skus,
                false_accept,
                false_accept_bound,
                ..
            } = thresholds.basis
            else {
                panic!("{thresholds}");
            };
            assert_eq!((strangers, stranger_skus), (skus * views, skus));
            let text = thresholds.to_string();
            assert_eq!(text.contains("it takes 59 SKUs"), skus < 59, "{text}");
            assert!(skus >= 59 || false_accept == 0.0);
            assert!(
                false_accept.is_sign_positive() && !text.contains("-0"),
                "{text}"
            );
            false_accept_bound
        };
        assert!((bound(20, 8) - 0.139).abs() < 1e-3);
        assert_eq!(bound(20, 4), bound(20, 8));
        assert!(bound(58, 2) > 0.05 && bound(59, 2) <= 0.05);
    }

    #[test]
    fn what_measuring_lacks_is_said_with_what_there_is() {
        for (skus, views, there) in [
            (9, 1, "such views 0, SKUs 9;"),
            (2, 15, "such views 30, SKUs 2;"),
            (1, 4, "such views 4, SKUs 1;"),
            (0, 1, "such views 0, SKUs 0;"),
        ] {
            let (thresholds, _) = calibrate(&index(&packs(3, skus, views), views), 0.05);
            let text = thresholds.to_string();
            assert!(
                text.contains("at least 20 views") && text.contains(there),
                "{text}"
            );
        }
    }

    #[test]
    fn bounds_agree_with_the_published_ones() {
        // Clopper and Pearson, one side, 95 %: 1 - 0.05^(1/n) without a hit.
        for trials in [1, 20, 59, 5000] {
            let wanted = 1.0 - 0.05f64.powf(1.0 / trials as f64);
            assert!((upper_bound(0, trials) - wanted).abs() < 1e-9);
        }
        assert!((upper_bound(1, 10) - 0.3942).abs() < 1e-4);
        assert!((upper_bound(5, 100) - 0.1023).abs() < 1e-4);
        assert_eq!(upper_bound(7, 7), 1.0);
        assert_eq!([0.05, 0.01].map(skus_to_promise), [59, 299]);
        for skus in [10, 59, 150, 20_000, 200_000] {
            let allowed = allowed_skus(skus, 0.05);
            assert!(upper_bound(allowed + 1, skus) > 0.05);
            assert!(allowed == 0 || upper_bound(allowed, skus) <= 0.05);
        }
    }
}
