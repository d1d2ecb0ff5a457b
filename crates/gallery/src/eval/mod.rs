//! Judging methods of identity on held-out pictures.
//!
//! [`evaluate`] draws SKUs and gallery views, asks every held-out query of the drawn SKUs, and
//! measures each [`Method`] on the same draws: top-1 by number of views, how well the score tells
//! known packs from strangers, and which SKUs are mixed up. Any
//! [`Embedder`](shelfscan_inference_core::Embedder) is a method through [`EmbedderMethod`]; a
//! colour histogram and a local-feature matcher are there as the baselines to beat.

mod colour;
mod dataset;
mod draw;
mod local;
mod method;
mod plot;
mod report;

pub use colour::ColourHistogram;
pub use dataset::{EvalPicture, EvalSet, PictureRole};
pub use draw::{EvalOptions, evaluate};
pub use local::LocalFeatures;
pub use method::{Collector, EmbedderMethod, Method, PairScorer};
pub use report::{
    Confusion, EvalReport, MethodReport, Protocol, RepeatedQuery, ThresholdPoint, ViewsResult,
};
