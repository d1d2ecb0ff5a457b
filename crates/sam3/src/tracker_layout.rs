//! Names and shapes of the tracker's weights, so that a checkpoint is checked whole when it is
//! opened, whichever part of the model is used.

use shelfscan_model_kit::weights::WeightReader;

use crate::{Sam3Config, vision::NeckKind};

const REASON: &str = "belongs to the tracker";

/// Writes down tensors below one path.
struct Part(WeightReader);

impl Part {
    fn pp(&self, step: impl std::fmt::Display) -> Self {
        Self(self.0.pp(step))
    }

    fn tensor(&self, name: &str, shape: &[usize]) {
        self.0.expect(shape, name, REASON);
    }

    /// A weight of `shape` and a bias as long as its first side.
    fn layer(&self, name: &str, shape: &[usize]) {
        self.tensor(&format!("{name}.weight"), shape);
        self.tensor(&format!("{name}.bias"), &shape[..1]);
    }

    /// A transposed convolution, whose bias is as long as the weight's second side.
    fn deconv(&self, name: &str, input: usize, output: usize) {
        self.tensor(&format!("{name}.weight"), &[input, output, 2, 2]);
        self.tensor(&format!("{name}.bias"), &[output]);
    }

    fn norm(&self, name: &str, channels: usize) {
        self.tensor(&format!("{name}.weight"), &[channels]);
        self.tensor(&format!("{name}.bias"), &[channels]);
    }

    fn stack(&self, name: &str, sizes: &[usize]) {
        let part = self.pp(name).pp("layers");
        for (i, pair) in sizes.windows(2).enumerate() {
            part.layer(&i.to_string(), &[pair[1], pair[0]]);
        }
    }

    fn projections(&self, name: &str, inner: usize, d: usize) {
        let part = self.pp(name);
        for side in ["q_proj", "k_proj", "v_proj"] {
            part.layer(side, &[inner, d]);
        }
        part.layer("out_proj", &[d, inner]);
    }
}

/// Asks for everything below `tracker.model` and for the two necks the tracker reads.
pub(crate) fn expect(vision: &WeightReader, tracker: &WeightReader, config: &Sam3Config) {
    neck(&Part(vision.pp(NeckKind::Interactive.key())), config);
    neck(&Part(vision.pp(NeckKind::Propagation.key())), config);
    let (t, d) = (&config.tracker, config.d_model);
    let (slots, masks) = (t.multiplex_count, t.num_multimask);
    let root = Part(tracker.clone());
    root.tensor("maskmem_tpos_enc", &[t.num_maskmem, 1, 1, d]);
    root.tensor("interactivity_no_mem_embed", &[1, 1, d]);
    for name in [
        "no_obj_embed_spatial",
        "output_valid_embed",
        "output_invalid_embed",
    ] {
        root.tensor(name, &[slots, d]);
    }
    root.layer("interactive_mask_downsample", &[1, 1, 4, 4]);
    root.layer("no_obj_ptr_linear", &[d, d]);
    root.layer("obj_ptr_tpos_proj", &[d, d]);
    root.stack("obj_ptr_proj", &[d; 4]);
    root.stack("interactive_obj_ptr_proj", &[d; 4]);
    root.tensor(
        "image_pe_layer.positional_encoding_gaussian_matrix",
        &[2, d / 2],
    );
    memory_attention(&root.pp("transformer.encoder"), config);
    memory_encoder(&root.pp("maskmem_backbone"), config);
    prompt_encoder(&root.pp("interactive_sam_prompt_encoder"), config);
    mask_decoder(
        &root.pp("sam_mask_decoder"),
        config,
        slots,
        slots * masks,
        masks,
    );
    let single = &root.pp("interactive_sam_mask_decoder");
    mask_decoder(single, config, 1, masks + 1, masks + 1);
}

fn neck(part: &Part, config: &Sam3Config) {
    let (dim, d) = (config.vit_dim, config.d_model);
    part.deconv("0.dconv_2x2_0", dim, dim / 2);
    part.deconv("0.dconv_2x2_1", dim / 2, dim / 4);
    part.deconv("1.dconv_2x2", dim, dim / 2);
    for (level, input) in [dim / 4, dim / 2, dim].into_iter().enumerate() {
        part.layer(&format!("{level}.conv_1x1"), &[d, input, 1, 1]);
        part.layer(&format!("{level}.conv_3x3"), &[d, d, 3, 3]);
    }
}

fn memory_attention(part: &Part, config: &Sam3Config) {
    let (t, d) = (&config.tracker, config.d_model);
    for i in 0..t.mem_layers {
        let layer = part.pp("layers").pp(i);
        for name in [
            "self_attn_q_proj",
            "self_attn_k_proj",
            "self_attn_v_proj",
            "self_attn_out_proj",
            "cross_attn_q_proj",
            "cross_attn_k_proj",
            "cross_attn_v_proj",
            "cross_attn_out_proj",
            "image_cross_attn_q_proj",
            "image_cross_attn_k_proj",
        ] {
            layer.layer(name, &[d, d]);
        }
        layer.layer("linear1", &[t.mem_ffn, d]);
        layer.layer("linear2", &[d, t.mem_ffn]);
        for name in ["norm1", "norm2", "norm3"] {
            layer.norm(name, d);
        }
    }
    part.norm("norm", d);
}

fn memory_encoder(part: &Part, config: &Sam3Config) {
    let (t, d) = (&config.tracker, config.d_model);
    let down = part.pp("mask_downsampler.encoder");
    // Two input channels an object: its mask, and whether the frame was a condition for it.
    let mut input = 2 * t.multiplex_count;
    let mut output = 4 * t.maskmem_start_chan;
    for i in 0..4 {
        down.layer(&(3 * i).to_string(), &[output, input, 3, 3]);
        down.norm(&(3 * i + 1).to_string(), output);
        (input, output) = (output, output * 4);
    }
    down.layer("12", &[d, input, 1, 1]);
    part.layer("pix_feat_proj", &[d, d, 1, 1]);
    for i in 0..t.fuser_layers {
        let layer = part.pp("fuser.layers").pp(i);
        layer.tensor("gamma", &[d]);
        layer.layer("dwconv", &[d, 1, t.cx_kernel, t.cx_kernel]);
        layer.norm("norm", d);
        layer.layer("pwconv1", &[4 * d, d]);
        layer.layer("pwconv2", &[d, 4 * d]);
    }
}

fn prompt_encoder(part: &Part, config: &Sam3Config) {
    let (d, c) = (config.d_model, config.tracker.prompt_mask_in_chans);
    part.tensor("pe_layer.positional_encoding_gaussian_matrix", &[2, d / 2]);
    for i in 0..4 {
        part.tensor(&format!("point_embeddings.{i}.weight"), &[1, d]);
    }
    part.tensor("not_a_point_embed.weight", &[1, d]);
    part.tensor("no_mask_embed.weight", &[1, d]);
    part.layer("mask_downscaling.0", &[c / 4, 1, 2, 2]);
    part.norm("mask_downscaling.1", c / 4);
    part.layer("mask_downscaling.3", &[c, c / 4, 2, 2]);
    part.norm("mask_downscaling.4", c);
    part.layer("mask_downscaling.6", &[d, c, 1, 1]);
}

/// `objects` score and quality tokens, `tokens` mask tokens, `masks` mask heads.
fn mask_decoder(part: &Part, config: &Sam3Config, objects: usize, tokens: usize, masks: usize) {
    let (t, d) = (&config.tracker, config.d_model);
    for i in 0..t.sam_depth {
        let layer = part.pp("transformer.layers").pp(i);
        layer.projections("self_attn", d, d);
        layer.projections("cross_attn_token_to_image", d / 2, d);
        layer.projections("cross_attn_image_to_token", d / 2, d);
        for name in ["norm1", "norm2", "norm3", "norm4"] {
            layer.norm(name, d);
        }
        mlp(&layer.pp("mlp"), d, t.sam_mlp_dim);
    }
    part.pp("transformer")
        .projections("final_attn_token_to_image", d / 2, d);
    part.norm("transformer.norm_final_attn", d);
    part.tensor("obj_score_token.weight", &[objects, d]);
    part.tensor("iou_token.weight", &[objects, d]);
    part.tensor("mask_tokens.weight", &[tokens, d]);
    part.deconv("output_upscaling.0", d, d / 4);
    part.norm("output_upscaling.1", d / 4);
    part.deconv("output_upscaling.3", d / 4, d / 8);
    part.layer("conv_s0", &[d / 8, d, 1, 1]);
    part.layer("conv_s1", &[d / 4, d, 1, 1]);
    for i in 0..masks {
        let heads = part.pp("output_hypernetworks_mlps");
        heads.stack(&i.to_string(), &[d, d, d, d / 8]);
    }
    part.stack(
        "iou_prediction_head",
        &[d, t.iou_head_hidden, t.iou_head_hidden, masks],
    );
    part.stack("pred_obj_score_head", &[d, d, d, 1]);
}

fn mlp(part: &Part, d: usize, hidden: usize) {
    part.layer("lin1", &[hidden, d]);
    part.layer("lin2", &[d, hidden]);
}
