//! Names and layouts of mlx-community's conversion.
//!
//! Query, key and value projections are apart there, kernels have their channels last, and the
//! position table has lost the row of the class token. The two norms of a decoder layer carry names
//! that suggest the other order; they are brought back to the place they have in Meta's file.

use shelfscan_model_kit::weights::{Checkpoint, TensorInfo, TensorPart, TensorPlan, TensorSpec};

use crate::{Detector, Result, Sam3Config};

/// A tensor that every file of this kind has.
pub(crate) const PROBE: &str =
    "detector_model.vision_encoder.backbone.embeddings.position_embeddings";
/// A second copy of a table the file holds once more under its own name.
const COPY: &str = "tracker_model.shared_image_embedding.positional_embedding";

/// Names of Meta's file and of the conversion, longest path first where one is part of another.
const PATHS: [(&str, &str); 34] = [
    (
        "detector.backbone.vision_backbone.trunk.patch_embed.proj.",
        "detector_model.vision_encoder.backbone.embeddings.patch_embeddings.projection.",
    ),
    ("detector.backbone.vision_backbone.trunk.pos_embed", PROBE),
    (
        "detector.backbone.vision_backbone.trunk.ln_pre.",
        "detector_model.vision_encoder.backbone.layer_norm.",
    ),
    (
        "detector.backbone.vision_backbone.trunk.blocks.",
        "detector_model.vision_encoder.backbone.layers.",
    ),
    (
        "detector.backbone.vision_backbone.",
        "detector_model.vision_encoder.neck.",
    ),
    (
        "detector.backbone.language_backbone.resizer.",
        "detector_model.text_projection.",
    ),
    (
        "detector.backbone.language_backbone.encoder.positional_embedding",
        "detector_model.text_encoder.text_model.embeddings.position_embedding.weight",
    ),
    (
        "detector.backbone.language_backbone.encoder.text_projection",
        "detector_model.text_encoder.text_projection.weight",
    ),
    (
        "detector.backbone.language_backbone.encoder.token_embedding.",
        "detector_model.text_encoder.text_model.embeddings.token_embedding.",
    ),
    (
        "detector.backbone.language_backbone.encoder.ln_final.",
        "detector_model.text_encoder.text_model.final_layer_norm.",
    ),
    (
        "detector.backbone.language_backbone.encoder.transformer.resblocks.",
        "detector_model.text_encoder.text_model.encoder.layers.",
    ),
    (
        "detector.transformer.encoder.",
        "detector_model.detr_encoder.",
    ),
    (
        "detector.transformer.decoder.norm.",
        "detector_model.detr_decoder.output_layer_norm.",
    ),
    (
        "detector.transformer.decoder.bbox_embed.",
        "detector_model.detr_decoder.box_head.",
    ),
    (
        "detector.transformer.decoder.boxRPB_embed_x.",
        "detector_model.detr_decoder.box_rpb_embed_x.",
    ),
    (
        "detector.transformer.decoder.boxRPB_embed_y.",
        "detector_model.detr_decoder.box_rpb_embed_y.",
    ),
    (
        "detector.transformer.decoder.presence_token_head.",
        "detector_model.detr_decoder.presence_head.",
    ),
    (
        "detector.transformer.decoder.presence_token_out_norm.",
        "detector_model.detr_decoder.presence_layer_norm.",
    ),
    (
        "detector.transformer.decoder.",
        "detector_model.detr_decoder.",
    ),
    (
        "detector.segmentation_head.mask_predictor.mask_embed.",
        "detector_model.mask_decoder.mask_embedder.",
    ),
    (
        "detector.segmentation_head.cross_attend_prompt.",
        "detector_model.mask_decoder.prompt_cross_attn.",
    ),
    (
        "detector.segmentation_head.cross_attn_norm.",
        "detector_model.mask_decoder.prompt_cross_attn_norm.",
    ),
    (
        "detector.segmentation_head.semantic_seg_head.",
        "detector_model.mask_decoder.semantic_projection.",
    ),
    (
        "detector.segmentation_head.instance_seg_head.",
        "detector_model.mask_decoder.instance_projection.",
    ),
    (
        "detector.segmentation_head.",
        "detector_model.mask_decoder.",
    ),
    (
        "detector.dot_prod_scoring.prompt_mlp.out_norm.",
        "detector_model.dot_product_scoring.text_mlp_out_norm.",
    ),
    (
        "detector.dot_prod_scoring.prompt_mlp.",
        "detector_model.dot_product_scoring.text_mlp.",
    ),
    (
        "detector.dot_prod_scoring.prompt_proj.",
        "detector_model.dot_product_scoring.text_proj.",
    ),
    (
        "detector.dot_prod_scoring.hs_proj.",
        "detector_model.dot_product_scoring.query_proj.",
    ),
    ("detector.", "detector_model."),
    (
        "tracker.model.maskmem_tpos_enc",
        "tracker_model.memory_temporal_positional_encoding",
    ),
    (
        "tracker.model.transformer.encoder.norm.",
        "tracker_model.memory_attention.layer_norm.",
    ),
    (
        "tracker.model.transformer.encoder.",
        "tracker_model.memory_attention.",
    ),
    ("tracker.model.", "tracker_model."),
];

/// Words inside a path, after its start was replaced: `(only below, from, to)`.
const WORDS: [(&str, &str, &str); 35] = [
    ("vision_encoder.backbone.layers.", ".norm", ".layer_norm"),
    (
        "vision_encoder.backbone.layers.",
        ".attn.proj.",
        ".attention.out_proj.",
    ),
    ("vision_encoder.backbone.layers.", ".attn.", ".attention."),
    ("vision_encoder.neck.", ".dconv_2x2_0.", ".scale_layers.0."),
    ("vision_encoder.neck.", ".dconv_2x2_1.", ".scale_layers.2."),
    ("vision_encoder.neck.", ".dconv_2x2.", ".scale_layers.0."),
    ("vision_encoder.neck.", ".conv_1x1.", ".proj1."),
    ("vision_encoder.neck.", ".conv_3x3.", ".proj2."),
    ("text_model.encoder.layers.", ".attn.", ".self_attn."),
    ("text_model.encoder.layers.", ".ln_", ".layer_norm"),
    ("text_model.encoder.layers.", ".c_fc.", ".fc1."),
    ("text_model.encoder.layers.", ".c_proj.", ".fc2."),
    ("geometry_encoder.encode.", ".norm", ".layer_norm"),
    (
        "geometry_encoder.encode.",
        ".cross_attn_image.",
        ".cross_attn.",
    ),
    ("detr_encoder.", ".norm", ".layer_norm"),
    ("detr_encoder.", ".cross_attn_image.", ".cross_attn."),
    (
        "detr_decoder.layers.",
        ".cross_attn.",
        ".vision_cross_attn.",
    ),
    ("detr_decoder.layers.", ".ca_text.", ".text_cross_attn."),
    (
        "detr_decoder.layers.",
        ".catext_norm.",
        ".text_cross_attn_layer_norm.",
    ),
    ("detr_decoder.layers.", ".norm1.", ".self_attn_layer_norm."),
    (
        "detr_decoder.layers.",
        ".norm2.",
        ".vision_cross_attn_layer_norm.",
    ),
    ("detr_decoder.layers.", ".norm3.", ".mlp_layer_norm."),
    ("detr_decoder.", "_head.layers.0.", "_head.layer1."),
    ("detr_decoder.", "_head.layers.1.", "_head.layer2."),
    ("detr_decoder.", "_head.layers.2.", "_head.layer3."),
    ("detr_decoder.box_rpb_embed", ".layers.0.", ".layer1."),
    ("detr_decoder.box_rpb_embed", ".layers.1.", ".layer2."),
    (
        "tracker_model.",
        ".maskmem_backbone.fuser.",
        ".memory_encoder.memory_fuser.",
    ),
    (
        "tracker_model.",
        ".maskmem_backbone.pix_feat_proj.",
        ".memory_encoder.feature_projection.",
    ),
    ("tracker_model.", ".maskmem_backbone.", ".memory_encoder."),
    ("memory_fuser.layers.", ".gamma", ".scale"),
    ("memory_fuser.layers.", ".dwconv.", ".depthwise_conv."),
    ("memory_fuser.layers.", ".norm.", ".layer_norm."),
    ("memory_fuser.layers.", ".pwconv", ".pointwise_conv"),
    (
        "tracker_model.",
        ".obj_ptr_tpos_proj.",
        ".temporal_positional_encoding_projection_layer.",
    ),
];

/// Gives a converted checkpoint the names and layouts of Meta's file.
pub(crate) fn canonical(checkpoint: Checkpoint, config: &Sam3Config) -> Result<Checkpoint> {
    let mut sized = config.clone();
    if sized.vit_mlp_ratio.is_none() {
        let first = "detector_model.vision_encoder.backbone.layers.0.mlp.fc1.bias";
        let hidden = checkpoint.info(first).map(TensorInfo::elements);
        sized.vit_mlp_ratio = hidden.map(|h| h as f64 / sized.vit_dim as f64);
    }
    let plans = Detector::layout(&sized)?
        .into_iter()
        .map(|spec| (spec.key.clone(), plan(&spec)));
    let checkpoint = checkpoint.planned(plans)?;
    Ok(checkpoint.renamed(|key| (key != COPY).then(|| key.to_owned()))?)
}

/// Where a tensor of Meta's file comes from.
pub(crate) fn plan(spec: &TensorSpec) -> TensorPlan {
    let key = spec.key.as_str();
    let part = |key: String| TensorPart {
        key,
        rows: None,
        permute: permute(spec),
    };
    if let Some((start, index, leaf)) = point_embedding(key) {
        return TensorPlan {
            parts: vec![TensorPart {
                key: format!("{start}point_embed.{leaf}"),
                rows: Some((index, 1)),
                permute: None,
            }],
            zeros_before: None,
        };
    }
    let name = translate(key);
    let packed = [
        ("in_proj_weight", "weight"),
        ("in_proj_bias", "bias"),
        ("qkv.weight", "weight"),
        ("qkv.bias", "bias"),
    ];
    for (end, leaf) in packed {
        if let Some(start) = name.strip_suffix(end) {
            let parts = ["q_proj", "k_proj", "v_proj"]
                .map(|side| part(format!("{start}{side}.{leaf}")))
                .to_vec();
            return TensorPlan {
                parts,
                zeros_before: None,
            };
        }
    }
    TensorPlan {
        zeros_before: (name == PROBE).then_some((1, 1)),
        parts: vec![part(name)],
    }
}

fn translate(key: &str) -> String {
    let path = PATHS
        .iter()
        .find_map(|(from, to)| key.strip_prefix(from).map(|rest| format!("{to}{rest}")));
    let mut name = path.unwrap_or_else(|| key.to_owned());
    for (below, from, to) in WORDS {
        if name.contains(below) {
            name = name.replacen(from, to, 1);
        }
    }
    down_sampler(&name).unwrap_or(name)
}

/// `encoder.{3 i}` is convolution `i`, `encoder.{3 i + 1}` its norm, `encoder.12` the last one.
fn down_sampler(name: &str) -> Option<String> {
    let (start, rest) = name.split_once("mask_downsampler.encoder.")?;
    let (index, leaf) = rest.split_once('.')?;
    let index: usize = index.parse().ok()?;
    let step = match (index, index % 3) {
        (12, _) => "final_conv".to_owned(),
        (_, 0) => format!("layers.{}.conv", index / 3),
        _ => format!("layers.{}.layer_norm", index / 3),
    };
    Some(format!("{start}mask_downsampler.{step}.{leaf}"))
}

fn point_embedding(key: &str) -> Option<(String, usize, &str)> {
    let (start, rest) = key.split_once("point_embeddings.")?;
    let (index, leaf) = rest.split_once('.')?;
    Some((translate(start), index.parse().ok()?, leaf))
}

fn permute(spec: &TensorSpec) -> Option<Vec<usize>> {
    if spec.key.ends_with("text_projection") {
        return Some(vec![1, 0]);
    }
    if spec.shape.len() != 4 || !spec.key.ends_with(".weight") {
        return None;
    }
    // The conversion turned the neck's transposed kernels as such, and those of the mask decoders
    // like plain ones.
    Some(if spec.key.contains(".dconv_2x2") {
        vec![3, 0, 1, 2]
    } else {
        vec![0, 3, 1, 2]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(key: &str, shape: &[usize]) -> Vec<String> {
        let spec = TensorSpec {
            key: key.into(),
            shape: shape.to_vec(),
        };
        plan(&spec).parts.into_iter().map(|p| p.key).collect()
    }

    #[test]
    fn the_swapped_norm_names_go_back_to_their_places() {
        let base = "detector.transformer.decoder.layers.3";
        assert_eq!(
            sources(&format!("{base}.norm1.weight"), &[8]),
            ["detector_model.detr_decoder.layers.3.self_attn_layer_norm.weight"]
        );
        assert_eq!(
            sources(&format!("{base}.norm2.weight"), &[8]),
            ["detector_model.detr_decoder.layers.3.vision_cross_attn_layer_norm.weight"]
        );
    }

    #[test]
    fn a_packed_projection_comes_from_three() {
        let got = sources(
            "detector.backbone.vision_backbone.trunk.blocks.7.attn.qkv.bias",
            &[24],
        );
        let base = "detector_model.vision_encoder.backbone.layers.7.attention";
        assert_eq!(
            got,
            ["q", "k", "v"].map(|s| format!("{base}.{s}_proj.bias"))
        );
    }

    #[test]
    fn the_mask_down_sampler_is_counted_in_threes() {
        let base = "tracker.model.maskmem_backbone.mask_downsampler.encoder";
        let to = "tracker_model.memory_encoder.mask_downsampler";
        assert_eq!(
            sources(&format!("{base}.4.weight"), &[8]),
            [format!("{to}.layers.1.layer_norm.weight")]
        );
        assert_eq!(
            sources(&format!("{base}.12.bias"), &[8]),
            [format!("{to}.final_conv.bias")]
        );
    }
}
