//! The architecture of a checkpoint, read off its keys and shapes.

use std::fmt;

use shelfscan_model_kit::weights::Checkpoint;

use crate::{
    Error, Result,
    names::{Feed, Names},
};

/// How the learned position grid is brought to another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionGrid {
    /// Bicubic with a scale of `(n + 0.1) / m`, as the original repository does for models without
    /// registers.
    Offset,
    /// Antialiased bicubic from the sizes, as the original repository does for models with
    /// registers.
    Antialias,
    /// Bicubic from the sizes, as the `transformers` library does for models without registers
    /// since its version 4.48. Differs from [`Offset`](Self::Offset) in the third digit.
    Sizes,
}

/// What the keys of a checkpoint do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Number of attention heads; by default one per 64 channels, as in every released model.
    pub heads: Option<usize>,
    /// The rule for the position grid; by default the original repository's.
    pub positions: Option<PositionGrid>,
}

/// The feed-forward layers of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// Two layers with GELU between.
    Gelu,
    /// Gated by SiLU, as in ViT-g.
    SwiGlu,
}

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dinov2Config {
    /// Channels, the length of an embedding.
    pub dim: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Side of the learned position grid in patches: 37 for the released models.
    pub grid: usize,
    /// Register tokens: 0 or 4.
    pub registers: usize,
    /// Channels between the feed-forward layers.
    pub hidden: usize,
    /// The kind of the feed-forward layers.
    pub feed_forward: FeedForward,
    /// The rule for the position grid.
    pub positions: PositionGrid,
}

/// The way out when the keys describe another model.
const OTHER: &str = "pass a checkpoint of DINOv2 ViT-S, B, L or g";

impl Dinov2Config {
    /// Reads the architecture off `checkpoint`, whose keys follow `names`.
    pub(crate) fn detect(
        checkpoint: &Checkpoint,
        names: Names,
        options: LoadOptions,
    ) -> Result<Self> {
        let refuse = |reason: String, remedy| Error::Architecture {
            path: checkpoint.path().to_path_buf(),
            reason,
            remedy,
        };
        let shape = |key: &str| checkpoint.info(key).map(|info| info.shape.clone());
        let kernel = shape(names.patch_weight()).unwrap_or_default();
        let [dim, 3, patch, patch_w] = kernel[..] else {
            return Err(refuse(
                format!(
                    "{} has shape {kernel:?} where [dim, 3, p, p] is expected",
                    names.patch_weight()
                ),
                OTHER,
            ));
        };
        let grid = match shape(names.positions()).as_deref() {
            Some(&[1, n, d]) if d == dim && n > 1 && (n - 1).isqrt().pow(2) == n - 1 => {
                (n - 1).isqrt()
            }
            other => {
                return Err(refuse(
                    format!(
                        "{} has shape {other:?} where [1, 1 + n * n, {dim}] is expected",
                        names.positions()
                    ),
                    OTHER,
                ));
            }
        };
        let depth = (0..checkpoint.len())
            .take_while(|i| checkpoint.info(&names.block(*i, "norm1.weight")).is_some())
            .count();
        let feed = (depth > 0).then(|| names.feed(checkpoint)).flatten();
        let Some((feed, hidden)) = feed.filter(|_| dim > 0 && patch > 0 && patch == patch_w) else {
            return Err(refuse(
                format!(
                    "{} or {} (or its gated form) is missing, or the patches of {patch}x{patch_w} \
                     are not square",
                    names.block(0, "norm1.weight"),
                    names.block(0, "mlp.fc1.weight")
                ),
                OTHER,
            ));
        };
        let heads = options.heads.unwrap_or(dim / 64);
        if heads == 0 || dim % heads != 0 {
            return Err(refuse(
                format!("{dim} channels cannot be cut into {heads} heads"),
                "pass another number of heads (--embedder-heads)",
            ));
        }
        let registers = shape(names.registers()).map_or(0, |s| s.get(1).copied().unwrap_or(0));
        let by_default = if registers > 0 {
            PositionGrid::Antialias
        } else {
            PositionGrid::Offset
        };
        Ok(Self {
            dim,
            depth,
            heads,
            patch,
            grid,
            registers,
            hidden,
            feed_forward: match feed {
                Feed::TwoLayers => FeedForward::Gelu,
                Feed::Joined | Feed::JoinedHf | Feed::Split => FeedForward::SwiGlu,
            },
            positions: options.positions.unwrap_or(by_default),
        })
    }

    /// Side in pixels that the position grid was learned at: 518 for the released models.
    pub fn native_size(&self) -> usize {
        self.grid * self.patch
    }
}

/// `dinov2-small`, `dinov2-base-registers`, `dinov2-192x6` and the like.
impl fmt::Display for Dinov2Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dim, self.depth) {
            (384, 12) => f.write_str("dinov2-small")?,
            (768, 12) => f.write_str("dinov2-base")?,
            (1024, 24) => f.write_str("dinov2-large")?,
            (1536, 40) => f.write_str("dinov2-giant")?,
            (dim, depth) => write!(f, "dinov2-{dim}x{depth}")?,
        }
        if self.registers > 0 {
            f.write_str("-registers")?;
        }
        Ok(())
    }
}
