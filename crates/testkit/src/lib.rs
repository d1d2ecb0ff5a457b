//! Drawn scenes with known truth, scripted providers and conformance suites, for tests only.
//!
//! Code here panics on a broken promise, because a test is its only caller.
#![allow(clippy::expect_used, clippy::unwrap_used)]

pub mod conformance;
pub mod hub;
pub mod metrics;
pub mod packs;
pub mod program;
pub mod scripted;
pub mod shared;
pub mod shelf;
pub mod truth;
pub mod y4m;

pub use shelfscan_synth::seeded;
