//! Thresholds from held-out enrolled views, and the look-alikes the same trials show.
//!
//! Each view is asked once against all others. With its own SKU's other views present it is a
//! *known* trial: the right SKU should be accepted. With its whole SKU taken out it is a *stranger*
//! trial: anything accepted is a false accept. Near-duplicates of a view are left out of its known
//! trial, because they would answer for it.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::search::{ViewIndex, cosine};

/// Share of strangers that may be accepted, unless another is asked for.
pub const DEFAULT_FALSE_ACCEPT: f32 = 0.05;
/// Score threshold where there is too little data: pictures of one pack taken in different places
/// lie mostly above it, those of different packs mostly below, for DINOv2 ViT-S/14.
pub const DEFAULT_SCORE: f32 = 0.6;
/// Margin threshold where there is too little data.
pub const DEFAULT_MARGIN: f32 = 0.02;

/// Cosine from which two views count as the same picture.
pub(crate) const NEAR_DUPLICATE: f32 = 0.995;
/// Cosine from which two SKUs look alike even when no trial mixes them up.
const LOOK_ALIKE: f32 = 0.95;
/// Trials of a kind that are needed, whatever the rate.
const MIN_TRIALS: usize = 20;
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
        /// Share of stranger trials that are accepted at the thresholds.
        false_accept: f32,
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

fn thresholds(trials: &[Trial], target: f32) -> Thresholds {
    let known: Vec<_> = trials.iter().filter_map(Trial::known).collect();
    let strangers: Vec<_> = trials.iter().filter_map(Trial::stranger).collect();
    let needed = MIN_TRIALS.max((1.0 / target.max(1e-6)).ceil() as usize);
    if known.len() < needed || strangers.len() < needed {
        return Thresholds::defaults(
            target,
            format!(
                "a false-accept rate of {:.1} % takes at least {needed} held-out views with another view of their SKU, and two more SKUs; there are {} and {}; enrol more views",
                target * 100.0,
                known.len(),
                strangers.len()
            ),
        );
    }
    let allowed = (f64::from(target) * strangers.len() as f64).floor() as usize;
    let mut best: Option<(usize, Thresholds)> = None;
    for margin in MARGINS {
        // The lowest score that lets no more than `allowed` of the strangers through at this margin.
        let mut scores: Vec<f32> = strangers
            .iter()
            .filter(|(_, m)| *m >= margin)
            .map(|(score, _)| *score)
            .collect();
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        let score = scores
            .get(allowed)
            .map_or(-1.0, |blocked| blocked.next_up());
        let candidate = Thresholds {
            score,
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
    let share = |count: usize, of: usize| count as f32 / of.max(1) as f32;
    let accepted = strangers
        .iter()
        .filter(|(score, margin)| chosen.accept(*score, *margin))
        .count();
    let mistaken = known
        .iter()
        .filter(|(score, margin, right)| !right && chosen.accept(*score, *margin))
        .count();
    chosen.basis = ThresholdBasis::Calibrated {
        known: known.len(),
        strangers: strangers.len(),
        false_accept: share(accepted, strangers.len()),
        false_reject: share(known.len() - right, known.len()),
        mistaken: share(mistaken, known.len()),
    };
    chosen
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
