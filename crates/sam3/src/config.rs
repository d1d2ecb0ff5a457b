//! Sizes of a SAM 3.1 model.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Every size of the detector and tracker. [`Sam3Config::sam3_1`] is the released model; a small
/// model of the same structure is read from its `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sam3Config {
    /// Side of the square input, in pixels.
    #[serde(alias = "img")]
    pub image_size: usize,
    /// Side of a patch, in pixels.
    #[serde(alias = "patch")]
    pub patch_size: usize,
    /// Side of the picture the position table was trained for, in pixels.
    #[serde(default = "default_pretrain")]
    pub pretrain_img_size: usize,
    /// Channels of the image trunk.
    #[serde(alias = "vdim")]
    pub vit_dim: usize,
    /// Blocks of the image trunk.
    #[serde(alias = "vdepth")]
    pub vit_depth: usize,
    /// Attention heads of the image trunk.
    #[serde(alias = "vheads")]
    pub vit_heads: usize,
    /// Hidden channels of a block over its channels; read from the checkpoint when absent.
    #[serde(default)]
    pub vit_mlp_ratio: Option<f64>,
    /// Blocks whose attention spans the whole picture.
    #[serde(alias = "vit_global", alias = "glob")]
    pub vit_global_blocks: Vec<usize>,
    /// Side of the attention windows of the other blocks, in patches.
    #[serde(alias = "window")]
    pub vit_window: usize,
    /// Channels of everything behind the trunk.
    #[serde(alias = "d")]
    pub d_model: usize,
    /// Attention heads behind the trunk.
    pub heads: usize,
    /// Hidden channels of the feed-forward layers behind the trunk.
    #[serde(alias = "enc_ffn", alias = "ffn")]
    pub ffn_dim: usize,
    /// Layers of the fusion encoder.
    #[serde(alias = "enc_layers", alias = "enc")]
    pub fusion_layers: usize,
    /// Layers of the decoder.
    #[serde(alias = "dec_layers", alias = "dec")]
    pub decoder_layers: usize,
    /// Objects one picture and phrase can give.
    #[serde(alias = "nq")]
    pub num_queries: usize,
    /// Layers of the geometry encoder.
    #[serde(alias = "geo_layers", alias = "geo")]
    pub geometry_layers: usize,
    /// Side of the grid a prompt box is pooled to.
    #[serde(alias = "roi")]
    pub roi_size: usize,
    /// Groups of the pixel decoder's normalisation.
    #[serde(default = "default_groups")]
    pub groupnorm_groups: usize,
    /// Channels of the text encoder.
    #[serde(alias = "tw")]
    pub text_width: usize,
    /// Attention heads of the text encoder.
    #[serde(alias = "th")]
    pub text_heads: usize,
    /// Blocks of the text encoder.
    #[serde(alias = "tl")]
    pub text_layers: usize,
    /// Tokens of a phrase, with start and end.
    #[serde(alias = "ctx")]
    pub context_length: usize,
    /// Merge rules of the vocabulary.
    #[serde(default = "default_merges")]
    pub merges: usize,
    /// False for a model without the mask branch: it answers with boxes alone, and its file holds
    /// neither the segmentation head nor the two fine levels of the detection neck.
    #[serde(default = "default_masks")]
    pub masks: bool,
    /// Sizes of the tracker.
    #[serde(default, flatten)]
    pub tracker: TrackerConfig,
}

/// Sizes of the tracker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrackerConfig {
    /// Objects that share one memory.
    pub multiplex_count: usize,
    /// Layers of the memory attention.
    pub mem_layers: usize,
    /// Hidden channels of the memory attention's feed-forward layers.
    pub mem_ffn: usize,
    /// Frames of memory with a position of their own.
    pub num_maskmem: usize,
    /// Channels of the mask down-sampler's first layer, per object.
    pub maskmem_start_chan: usize,
    /// Kernel side of the memory fuser.
    pub cx_kernel: usize,
    /// Layers of the memory fuser.
    pub fuser_layers: usize,
    /// Hidden channels of the mask decoders' feed-forward layers.
    pub sam_mlp_dim: usize,
    /// Layers of the mask decoders.
    pub sam_depth: usize,
    /// Hidden channels of the mask quality head.
    pub iou_head_hidden: usize,
    /// Masks proposed for one object.
    pub num_multimask: usize,
    /// Channels of the mask prompt's first layers.
    pub prompt_mask_in_chans: usize,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            multiplex_count: 16,
            mem_layers: 4,
            mem_ffn: 2048,
            num_maskmem: 7,
            maskmem_start_chan: 4,
            cx_kernel: 7,
            fuser_layers: 2,
            sam_mlp_dim: 2048,
            sam_depth: 2,
            iou_head_hidden: 256,
            num_multimask: 3,
            prompt_mask_in_chans: 16,
        }
    }
}

fn default_pretrain() -> usize {
    336
}

fn default_groups() -> usize {
    8
}

fn default_masks() -> bool {
    true
}

fn default_merges() -> usize {
    48_894
}

impl Sam3Config {
    /// The released SAM 3.1: 1008 pixels, 873 million parameters.
    pub fn sam3_1() -> Self {
        Self {
            image_size: 1008,
            patch_size: 14,
            pretrain_img_size: 336,
            vit_dim: 1024,
            vit_depth: 32,
            vit_heads: 16,
            vit_mlp_ratio: Some(4.625),
            vit_global_blocks: vec![7, 15, 23, 31],
            vit_window: 24,
            d_model: 256,
            heads: 8,
            ffn_dim: 2048,
            fusion_layers: 6,
            decoder_layers: 6,
            num_queries: 200,
            geometry_layers: 3,
            roi_size: 7,
            groupnorm_groups: 8,
            text_width: 1024,
            text_heads: 16,
            text_layers: 24,
            context_length: 32,
            merges: default_merges(),
            masks: true,
            tracker: TrackerConfig::default(),
        }
    }

    /// Reads and checks the text of a `config.json`.
    ///
    /// # Errors
    /// [`Error::Config`] when a size is missing or does not fit the others.
    pub fn from_json(text: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text).map_err(|e| Error::Config(format!("{e}")))?;
        config.validate()?;
        Ok(config)
    }

    /// Checks that the sizes make a model.
    ///
    /// # Errors
    /// [`Error::Config`] that names the sizes at odds.
    pub fn validate(&self) -> Result<()> {
        let fail = |text: String| Err(Error::Config(text));
        let sizes = [
            ("image_size", self.image_size),
            ("patch_size", self.patch_size),
            ("vit_dim", self.vit_dim),
            ("vit_depth", self.vit_depth),
            ("vit_heads", self.vit_heads),
            ("vit_window", self.vit_window),
            ("d_model", self.d_model),
            ("heads", self.heads),
            ("ffn_dim", self.ffn_dim),
            ("decoder_layers", self.decoder_layers),
            ("num_queries", self.num_queries),
            ("roi_size", self.roi_size),
            ("groupnorm_groups", self.groupnorm_groups),
            ("text_width", self.text_width),
            ("text_heads", self.text_heads),
        ];
        for (name, size) in sizes {
            if size == 0 || size > 1 << 20 {
                return fail(format!("{name} is {size}"));
            }
        }
        let divisible = [
            ("image_size", self.image_size, "patch_size", self.patch_size),
            (
                "pretrain_img_size",
                self.pretrain_img_size,
                "patch_size",
                self.patch_size,
            ),
            ("vit_dim", self.vit_dim, "vit_heads * 4", self.vit_heads * 4),
            ("d_model", self.d_model, "heads", self.heads),
            (
                "d_model",
                self.d_model,
                "groupnorm_groups",
                self.groupnorm_groups,
            ),
            ("d_model", self.d_model, "4", 4),
            ("text_width", self.text_width, "text_heads", self.text_heads),
        ];
        for (name, size, by_name, by) in divisible {
            if size % by != 0 || size == 0 {
                return fail(format!("{name} {size} is no multiple of {by_name} {by}"));
            }
        }
        if self.context_length < 3 {
            return fail(format!("context_length is {}", self.context_length));
        }
        if self.merges > usize::from(u16::MAX) - 514 {
            return fail(format!("merges is {}", self.merges));
        }
        Ok(())
    }

    /// Patches along a side of the input.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Patches along a side of the position table.
    pub fn table_side(&self) -> usize {
        self.pretrain_img_size / self.patch_size
    }

    /// Side of the masks the model draws, in pixels.
    pub fn mask_size(&self) -> usize {
        self.grid() * 4
    }

    /// Rows of the text token table: 256 bytes, 256 bytes at a word's end, the merges, two marks.
    pub fn vocab_size(&self) -> usize {
        self.merges + 514
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_released_model_is_valid_and_survives_json() {
        let config = Sam3Config::sam3_1();
        config.validate().unwrap();
        assert_eq!((config.grid(), config.mask_size()), (72, 288));
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(Sam3Config::from_json(&text).unwrap(), config);
    }

    #[test]
    fn a_size_that_does_not_divide_is_named() {
        let mut config = Sam3Config::sam3_1();
        config.image_size = 1000;
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains("image_size 1000"), "{error}");
    }

    #[test]
    fn short_names_of_a_small_model_are_read() {
        let text = r#"{"img":336,"patch":14,"vdim":160,"vdepth":6,"vheads":5,"window":8,"glob":[2,5],
            "d":128,"heads":4,"ffn":512,"enc":2,"dec":3,"nq":144,"tw":128,"tl":2,"th":4,
            "merges":2000,"geo":1,"roi":2,"ctx":16}"#;
        let config = Sam3Config::from_json(text).unwrap();
        assert_eq!((config.vocab_size(), config.grid()), (2514, 24));
        assert_eq!(config.vit_mlp_ratio, None);
    }
}
