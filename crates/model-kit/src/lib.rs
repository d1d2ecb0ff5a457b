//! Checkpoints with every key accounted for, pictures to tensors, fused CPU operators.

mod error;
pub mod lock;
pub mod ops;
pub mod preprocess;
pub mod weights;

pub use error::{Error, Result};
