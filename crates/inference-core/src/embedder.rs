//! The contract of an embedding model.

use serde::{Deserialize, Serialize};

use crate::{InferenceError, Result, RgbImage};

/// Ties vectors to what made them. Two embedders with equal fingerprints give equal vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedderFingerprint {
    /// Name of the model, such as `dinov2-small`.
    pub model: String,
    /// Hash of the weights in hex.
    pub weights_hash: String,
    /// Version of the steps from picture to tensor: size, filter, mean.
    pub preprocessing: String,
    /// Length of a vector.
    pub dimension: usize,
}

/// A batch of vectors of one length, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    dimension: usize,
    values: Vec<f32>,
}

impl Embeddings {
    /// Takes `values`, `rows * dimension` numbers, row by row.
    ///
    /// # Errors
    /// [`InferenceError::InvalidInput`] when the count is not a multiple of the dimension.
    pub fn new(dimension: usize, values: Vec<f32>) -> Result<Self> {
        if dimension == 0 || !values.len().is_multiple_of(dimension) {
            return Err(InferenceError::InvalidInput(format!(
                "{} numbers are not whole rows of {dimension}",
                values.len()
            )));
        }
        Ok(Self { dimension, values })
    }

    /// Length of a row.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dimension
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.dimension)
    }

    /// One row, or `None` past the end.
    pub fn row(&self, index: usize) -> Option<&[f32]> {
        self.values.chunks_exact(self.dimension).nth(index)
    }

    /// All numbers, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

/// A model that turns crops into unit vectors whose dot product is their likeness.
///
/// Takes `&self` and is `Sync`, because several identity workers share one; an implementation
/// whose device cannot be shared locks inside. Nothing heavy happens before
/// [`warmup`](Self::warmup).
pub trait Embedder: Send + Sync {
    /// What the vectors are tied to.
    ///
    /// # Errors
    /// The weights cannot be read.
    fn fingerprint(&self) -> Result<EmbedderFingerprint>;

    /// Loads the weights and runs the model once. A second call does nothing.
    ///
    /// # Errors
    /// A missing device or checkpoint, with what to do about it.
    fn warmup(&self) -> Result<()>;

    /// Embeds a batch of crops of any size; row `i` is the unit vector of crop `i`.
    ///
    /// # Errors
    /// A failure of the model; no partial answer is given.
    fn embed(&self, crops: &[RgbImage]) -> Result<Embeddings>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_at_the_dimension() {
        let batch = Embeddings::new(2, vec![1.0, 0.0, 0.0, 1.0]).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.row(1), Some(&[0.0, 1.0][..]));
        assert_eq!(batch.row(2), None);
        assert!(Embeddings::new(3, vec![0.0; 4]).is_err());
        assert!(Embeddings::new(0, vec![]).is_err());
    }
}
