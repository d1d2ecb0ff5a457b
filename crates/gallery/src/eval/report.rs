//! The score file of an evaluation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{UnreadableView, table::Table};

/// Mixed-up pairs that the text shows for each method.
const SHOWN_CONFUSIONS: usize = 5;
/// False-accept rates at which the text states the false rejects.
const SHOWN_RATES: [f64; 3] = [0.01, 0.05, 0.1];

/// How the pictures were drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Protocol {
    /// Pictures in the set, the damaged ones included.
    pub pictures: usize,
    /// SKUs with a view and a query.
    pub skus: usize,
    /// SKUs in a draw, at most.
    pub drawn_skus: usize,
    /// Numbers of views measured.
    pub views: Vec<usize>,
    /// Draws for each number of views.
    pub repeats: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// Pictures that may be views.
    pub view_pictures: usize,
    /// Pictures that may be queries.
    pub query_pictures: usize,
    /// Pictures of things that are never enrolled.
    pub stranger_pictures: usize,
    /// True when the queries of undrawn SKUs serve as strangers, for want of others.
    pub strangers_are_undrawn_skus: bool,
    /// Sessions whose pictures were never views.
    pub excluded_sessions: Vec<String>,
}

/// One method with one number of views.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewsResult {
    /// Views per SKU.
    pub views: usize,
    /// Draws that could be made.
    pub draws: usize,
    /// SKUs in a draw, on average.
    pub skus: f64,
    /// Share of queries whose nearest SKU is right, mean over the draws.
    pub top1: Option<f64>,
    /// Chance that a known query scores above a stranger, mean over the draws.
    pub auroc: Option<f64>,
}

/// What a score threshold does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdPoint {
    /// Least score that is accepted.
    pub threshold: f32,
    /// Share of strangers that are accepted.
    pub false_accept: f64,
    /// Share of known queries that are rejected.
    pub false_reject: f64,
    /// Share of known queries that are accepted as another SKU.
    pub mistaken: f64,
}

/// Two SKUs that were mixed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confusion {
    /// The SKU that was asked.
    pub sku: String,
    /// The SKU that was answered.
    pub answer: String,
    /// Times over all draws.
    pub count: usize,
    /// Share of the queries of `sku`.
    pub share: f64,
}

/// A query left out because a view has the very same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedQuery {
    /// The query's path.
    pub query: String,
    /// The view's path.
    pub view: String,
}

/// One method's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodReport {
    /// Name of the method.
    pub name: String,
    /// Results by number of views.
    pub views: Vec<ViewsResult>,
    /// Number of views of the curve and the confusions: the largest that could be drawn.
    pub curve_views: usize,
    /// False accepts and false rejects by threshold, pooled over the draws; empty without strangers.
    pub curve: Vec<ThresholdPoint>,
    /// The most frequent mix-ups.
    pub confusions: Vec<Confusion>,
}

/// All methods on the same draws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// How the pictures were drawn.
    pub protocol: Protocol,
    /// Number of pictures that could not be decoded.
    pub skipped_count: usize,
    /// The pictures that could not be decoded, and why.
    pub skipped: Vec<UnreadableView>,
    /// Queries left out because they are views as well.
    pub repeated_queries: Vec<RepeatedQuery>,
    /// The methods in the order they were given.
    pub methods: Vec<MethodReport>,
}

impl MethodReport {
    /// The smallest share of rejected known queries at a false-accept rate of at most `rate`;
    /// `None` without strangers.
    pub fn false_reject_at(&self, rate: f64) -> Option<f64> {
        self.curve
            .iter()
            .filter(|point| point.false_accept <= rate)
            .map(|point| point.false_reject)
            .reduce(f64::min)
    }
}

impl fmt::Display for EvalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.protocol;
        writeln!(
            f,
            "{} of {} SKUs a draw, {} draws, seed {}; {} views, {} queries, {} strangers to draw from",
            p.drawn_skus,
            p.skus,
            p.repeats,
            p.seed,
            p.view_pictures,
            p.query_pictures,
            p.stranger_pictures
        )?;
        let mut table = Table::new(["method", "views", "top-1 %", "AUROC", ""]);
        for method in &self.methods {
            for result in &method.views {
                table.row([
                    method.name.clone(),
                    result.views.to_string(),
                    result
                        .top1
                        .map_or("-".into(), |v| format!("{:.1}", v * 100.0)),
                    result.auroc.map_or("-".into(), |v| format!("{v:.3}")),
                    String::new(),
                ]);
            }
        }
        write!(f, "{table}")?;
        let mut table = Table::new(["false rejects % at", "1 % FAR", "5 % FAR", "10 % FAR", ""]);
        for method in self.methods.iter().filter(|m| !m.curve.is_empty()) {
            let [a, b, c] = SHOWN_RATES.map(|rate| {
                method
                    .false_reject_at(rate)
                    .map_or("-".into(), |v| format!("{:.1}", v * 100.0))
            });
            let name = format!("{}, {} views", method.name, method.curve_views);
            table.row([name, a, b, c, String::new()]);
        }
        write!(f, "{table}")?;
        for method in self.methods.iter().filter(|m| !m.confusions.is_empty()) {
            writeln!(f, "{} mixes up:", method.name)?;
            for pair in method.confusions.iter().take(SHOWN_CONFUSIONS) {
                writeln!(
                    f,
                    "  {} for {}: {:.1} %",
                    pair.answer,
                    pair.sku,
                    pair.share * 100.0
                )?;
            }
        }
        if !self.repeated_queries.is_empty() {
            writeln!(
                f,
                "left out {} queries that are views as well, the first is {}",
                self.repeated_queries.len(),
                self.repeated_queries[0].query
            )?;
        }
        if self.skipped_count > 0 {
            writeln!(f, "skipped {} damaged pictures:", self.skipped_count)?;
            for picture in self.skipped.iter().take(SHOWN_CONFUSIONS) {
                writeln!(f, "  {}: {}", picture.view, picture.reason)?;
            }
        }
        Ok(())
    }
}
