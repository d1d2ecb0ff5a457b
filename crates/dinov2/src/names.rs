//! The three namings of DINOv2 checkpoints.

use shelfscan_model_kit::weights::Checkpoint;

use crate::Result;

/// Which names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `blocks.0.attn.qkv`, as in `dinov2_vits14_pretrain.pth`.
    Original,
    /// `encoder.layer.0.attention.attention.query`, as in Hugging Face's released files.
    HuggingFace,
    /// `encoder.layer.0.attention.q_proj`, as `transformers` 5 saves them.
    HuggingFaceFlat,
}

/// Which feed-forward layers a block has, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// `fc1`, `fc2`.
    TwoLayers,
    /// `w12`, `w3`.
    Joined,
    /// `weights_in`, `weights_out`.
    JoinedHf,
    /// `gate_proj`, `up_proj`, `down_proj`.
    Split,
}

/// What may stand before the keys: training wrappers and the parent model.
const PREFIXES: [&str; 7] = [
    "module.",
    "dinov2.",
    "backbone.",
    "model.",
    "student.",
    "teacher.",
    "encoder.",
];

/// The keys of one naming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Naming);

impl Names {
    /// Finds the naming by the kernel every checkpoint has, and takes off what stands before it.
    ///
    /// Keys of blocks saved in chunks (`blocks.0.3.norm1.weight`) are brought to one number.
    pub(crate) fn detect(checkpoint: Checkpoint) -> Result<(Self, Checkpoint)> {
        let original = Self(Naming::Original);
        let hugging = Self(Naming::HuggingFace);
        // Any of its keys will do, so that one that is missing is named in the right naming.
        let is_hugging = checkpoint
            .keys()
            .any(|key| key.contains("encoder.layer.") || key.contains("embeddings."));
        let first = if is_hugging { hugging } else { original };
        let (checkpoint, _) = checkpoint.without_prefix(first.patch_weight(), &PREFIXES)?;
        if is_hugging {
            let flat = checkpoint
                .keys()
                .any(|key| key.starts_with("encoder.layer.0.attention.q_proj."));
            let naming = if flat {
                Naming::HuggingFaceFlat
            } else {
                Naming::HuggingFace
            };
            return Ok((Self(naming), checkpoint));
        }
        let checkpoint = checkpoint.renamed(|key| Some(unchunked(key)))?;
        Ok((original, checkpoint))
    }

    fn is_original(self) -> bool {
        self.0 == Naming::Original
    }

    pub(crate) fn patch_weight(self) -> &'static str {
        if self.is_original() {
            "patch_embed.proj.weight"
        } else {
            "embeddings.patch_embeddings.projection.weight"
        }
    }

    pub(crate) fn patch_bias(self) -> &'static str {
        if self.is_original() {
            "patch_embed.proj.bias"
        } else {
            "embeddings.patch_embeddings.projection.bias"
        }
    }

    pub(crate) fn class_token(self) -> &'static str {
        if self.is_original() {
            "cls_token"
        } else {
            "embeddings.cls_token"
        }
    }

    pub(crate) fn mask_token(self) -> &'static str {
        if self.is_original() {
            "mask_token"
        } else {
            "embeddings.mask_token"
        }
    }

    pub(crate) fn registers(self) -> &'static str {
        if self.is_original() {
            "register_tokens"
        } else {
            "embeddings.register_tokens"
        }
    }

    pub(crate) fn positions(self) -> &'static str {
        if self.is_original() {
            "pos_embed"
        } else {
            "embeddings.position_embeddings"
        }
    }

    /// Path of the last norm.
    pub(crate) fn norm(self) -> &'static str {
        if self.is_original() {
            "norm"
        } else {
            "layernorm"
        }
    }

    /// Key or path inside a block.
    pub(crate) fn block(self, index: usize, name: &str) -> String {
        if self.is_original() {
            format!("blocks.{index}.{name}")
        } else {
            format!("encoder.layer.{index}.{name}")
        }
    }

    /// Paths of the projections to queries, keys and values; one when they are fused.
    pub(crate) fn attention_in(self) -> &'static [&'static str] {
        match self.0 {
            Naming::Original => &["attn.qkv"],
            Naming::HuggingFace => &[
                "attention.attention.query",
                "attention.attention.key",
                "attention.attention.value",
            ],
            Naming::HuggingFaceFlat => {
                &["attention.q_proj", "attention.k_proj", "attention.v_proj"]
            }
        }
    }

    pub(crate) fn attention_out(self) -> &'static str {
        match self.0 {
            Naming::Original => "attn.proj",
            Naming::HuggingFace => "attention.output.dense",
            Naming::HuggingFaceFlat => "attention.o_proj",
        }
    }

    /// Names of the layer scales after attention and after the feed-forward layers.
    pub(crate) fn scales(self) -> [&'static str; 2] {
        if self.is_original() {
            ["ls1.gamma", "ls2.gamma"]
        } else {
            ["layer_scale1.lambda1", "layer_scale2.lambda1"]
        }
    }

    /// The feed-forward layers of the first block, and their hidden channels.
    pub(crate) fn feed(self, checkpoint: &Checkpoint) -> Option<(Feed, usize)> {
        let rows = |name: &str| {
            let info = checkpoint.info(&self.block(0, name))?;
            info.shape.first().copied()
        };
        let even = |rows: usize| rows.is_multiple_of(2).then_some(rows / 2);
        if let Some(hidden) = rows("mlp.fc1.weight") {
            return Some((Feed::TwoLayers, hidden));
        }
        if let Some(both) = rows("mlp.w12.weight") {
            return Some((Feed::Joined, even(both)?));
        }
        if let Some(both) = rows("mlp.weights_in.weight") {
            return Some((Feed::JoinedHf, even(both)?));
        }
        rows("mlp.gate_proj.weight").map(|hidden| (Feed::Split, hidden))
    }
}

/// `blocks.<chunk>.<index>.rest` as `blocks.<index>.rest`.
fn unchunked(key: &str) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = key.strip_prefix("blocks.")
        && let Some((chunk, rest)) = rest.split_once('.')
        && let Some((index, rest)) = rest.split_once('.')
        && number(chunk)
        && number(index)
    {
        return format!("blocks.{index}.{rest}");
    }
    key.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_blocks_lose_their_chunk() {
        assert_eq!(
            unchunked("blocks.2.17.norm1.weight"),
            "blocks.17.norm1.weight"
        );
        assert_eq!(unchunked("blocks.2.norm1.weight"), "blocks.2.norm1.weight");
        assert_eq!(unchunked("pos_embed"), "pos_embed");
    }
}
