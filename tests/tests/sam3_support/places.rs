//! Where the reference lies, and the sizes of its small model.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};

use shelfscan_sam3::Sam3Config;

/// The workspace root, from whichever crate the test is built in.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|p| p.join("tests/fixtures").is_dir());
    root.unwrap().to_path_buf()
}

pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures/sam3").join(name)
}

/// A folder of data beside the workspace; None, with one line printed, when it is not there.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared").join(name);
    if path.exists() {
        return Some(path);
    }
    shelfscan_testkit::shared::skip_line(&format!("no shared data {name} beside the workspace"));
    None
}

/// Sizes of the reference's small model.
pub fn small_config() -> Sam3Config {
    let text = r#"{"image_size": 224, "patch_size": 14, "pretrain_img_size": 84, "vit_dim": 64,
        "vit_depth": 4, "vit_heads": 4, "vit_mlp_ratio": 4.625, "vit_global": [1, 3],
        "vit_window": 6, "d_model": 32, "heads": 4, "enc_layers": 2, "enc_ffn": 128,
        "dec_layers": 2, "num_queries": 16, "geo_layers": 2, "roi_size": 7,
        "groupnorm_groups": 8, "text_width": 32, "text_heads": 4, "text_layers": 2,
        "context_length": 32, "multiplex_count": 4, "mem_layers": 2, "mem_ffn": 128,
        "maskmem_start_chan": 1, "sam_mlp_dim": 128, "iou_head_hidden": 64}"#;
    Sam3Config::from_json(text).unwrap()
}
