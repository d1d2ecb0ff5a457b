//! SKU views, their cache, matching with a reject option, and its evaluation.
mod answer;
pub use answer::{Answer, Candidate, Channel};
