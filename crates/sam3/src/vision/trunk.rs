//! Image trunk: a plain vision transformer with windowed attention.
//!
//! Ported from the description of `sam3/model/vitdet.py`. Tokens are `[b, h * w, c]`, row by row.
//! The reference runs the first layer of each MLP in bf16 and, on CUDA, with a tanh approximation of
//! GELU; here it has the type of the rest and the exact function.

use candle_core::{D, Result, Tensor};
use shelfscan_model_kit::{
    ops::{Activation, AttentionOptions, LayerNorm, Linear, Mlp, attention},
    weights::WeightReader,
};

use crate::{
    Error, Sam3Config,
    error::AtStage,
    layers::{layer_norm, linear, made},
    position::Rotary,
};

const STAGE: &str = "the image trunk";

/// Largest gap between a stored rotary table and the computed one.
const TABLE_GAP: f32 = 1e-3;

#[derive(Clone, Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    norm2: LayerNorm,
    mlp: Mlp,
    heads: usize,
    /// None for attention over the whole picture.
    window: Option<usize>,
}

impl Block {
    fn new(weights: &WeightReader, config: &Sam3Config, global: bool) -> crate::Result<Self> {
        let dim = config.vit_dim;
        let hidden = mlp_width(weights, config)?;
        let attn = weights.pp("attn");
        let up = linear(&weights.pp("mlp.fc1"), dim, hidden)?;
        let down = linear(&weights.pp("mlp.fc2"), hidden, dim)?;
        Ok(Self {
            norm1: layer_norm(&weights.pp("norm1"), dim)?,
            qkv: linear(&attn.pp("qkv"), dim, 3 * dim)?,
            proj: linear(&attn.pp("proj"), dim, dim)?,
            norm2: layer_norm(&weights.pp("norm2"), dim)?,
            mlp: made(Mlp::new(up, Activation::Gelu, down), weights)?,
            heads: config.vit_heads,
            window: (!global).then_some(config.vit_window),
        })
    }

    /// `x` `[b, grid * grid, c]`, with the tokens of each window one after the other where
    /// `in_windows`, row by row otherwise.
    fn forward(
        &self,
        x: &Tensor,
        grid: usize,
        in_windows: bool,
        rotary: &Rotary,
    ) -> Result<Tensor> {
        let mixed = match self.window {
            Some(side) if !in_windows => {
                let windows = to_windows(&self.norm1.forward(x)?, grid, side)?;
                let mixed = self.mix(self.qkv.forward(&windows)?, rotary)?;
                from_windows(&mixed, x.dim(0)?, grid, side)?
            }
            window => {
                let qkv = self
                    .qkv
                    .forward_normed(x, &self.norm1, Activation::Identity)?;
                let tokens = window.map_or(grid * grid, |side| side * side);
                let qkv = qkv.reshape(((), tokens, qkv.dim(D::Minus1)?))?;
                self.mix(qkv, rotary)?.reshape(x.shape())?
            }
        };
        let x = self.proj.forward_residual(&mixed, x)?;
        self.mlp.forward_residual(&x, &self.norm2)
    }

    /// Attention over a fused projection `[b, n, 3 c]`, before the output projection.
    // By value, because the projection is turned in place and must not be used afterwards.
    #[allow(clippy::needless_pass_by_value)]
    fn mix(&self, qkv: Tensor, rotary: &Rotary) -> Result<Tensor> {
        let (b, n, width) = qkv.dims3()?;
        let d = width / 3 / self.heads;
        let qkv = rotary.apply(qkv.reshape((b, n, 3, self.heads, d))?)?;
        let part = |i: usize| qkv.narrow(2, i, 1)?.squeeze(2);
        attention(
            &part(0)?,
            &part(1)?,
            &part(2)?,
            &AttentionOptions::default(),
        )?
        .flatten_from(D::Minus2)
    }
}

fn mlp_width(weights: &WeightReader, config: &Sam3Config) -> crate::Result<usize> {
    if let Some(ratio) = config.vit_mlp_ratio {
        return Ok((config.vit_dim as f64 * ratio) as usize);
    }
    let shape = weights.shape_of("mlp.fc1.weight");
    shape.and_then(|s| s.first().copied()).ok_or_else(|| {
        Error::Config("vit_mlp_ratio is not given and the checkpoint does not tell it".into())
    })
}

/// Cuts `[b, grid * grid, c]` into squares of `side`, padded with zeros at the bottom and right:
/// `[b * squares, side * side, c]`.
fn to_windows(x: &Tensor, grid: usize, side: usize) -> Result<Tensor> {
    let (b, _, c) = x.dims3()?;
    let count = grid.div_ceil(side);
    let pad = count * side - grid;
    let x = x
        .reshape((b, grid, grid, c))?
        .pad_with_zeros(1, 0, pad)?
        .pad_with_zeros(2, 0, pad)?;
    x.reshape(vec![b, count, side, count, side, c])?
        .permute(vec![0, 1, 3, 2, 4, 5])?
        .reshape((b * count * count, side * side, c))
}

/// Puts the squares back and cuts the padding off: `[b, grid * grid, c]`.
fn from_windows(x: &Tensor, b: usize, grid: usize, side: usize) -> Result<Tensor> {
    let c = x.dim(D::Minus1)?;
    let count = grid.div_ceil(side);
    x.reshape(vec![b, count, count, side, side, c])?
        .permute(vec![0, 1, 3, 2, 4, 5])?
        .reshape((b, count * side, count * side, c))?
        .narrow(1, 0, grid)?
        .narrow(2, 0, grid)?
        .reshape((b, grid * grid, c))
}

/// What the trunk computed on its way, for comparison with the reference.
#[derive(Clone, Debug)]
pub struct TrunkStages {
    /// `[b, h * w, c]` after the patches were mapped.
    pub patches: Tensor,
    /// The same with positions added.
    pub positioned: Tensor,
    /// After the first normalisation.
    pub normed: Tensor,
    /// After each block.
    pub blocks: Vec<Tensor>,
}

/// The image trunk.
#[derive(Clone, Debug)]
pub struct VisionTrunk {
    patches: Linear,
    /// `[1, grid * grid, c]`, the table repeated over the picture.
    positions: Tensor,
    norm: LayerNorm,
    blocks: Vec<Block>,
    window_rotary: Rotary,
    global_rotary: Rotary,
    /// Side of the windows where they fill the grid without padding. Then the tokens are brought
    /// into the order of the windows once, and what the global blocks turn by is in that order too:
    /// nothing else in a block depends on the order.
    sorted: Option<Sorted>,
    grid: usize,
    patch: usize,
}

/// Tokens in the order of their windows.
#[derive(Clone, Debug)]
struct Sorted {
    side: usize,
    global_rotary: Rotary,
}

impl VisionTrunk {
    /// Reads the trunk below `weights`.
    ///
    /// # Errors
    /// The weights cannot be read, or a stored rotary table is not the one the sizes give.
    pub fn new(weights: &WeightReader, config: &Sam3Config) -> crate::Result<Self> {
        let (dim, patch, side) = (config.vit_dim, config.patch_size, config.table_side());
        let kernel = weights.get((dim, 3, patch, patch), "patch_embed.proj.weight")?;
        let patches = kernel
            .reshape((dim, 3 * patch * patch))
            .and_then(|k| Linear::new(&k, None));
        let table = weights.get((1, side * side + 1, dim), "pos_embed")?;
        let head_dim = dim / config.vit_heads;
        let window_rotary = Rotary::new(config.vit_window, head_dim, 1.0);
        let scale = config.vit_window as f32 / config.grid() as f32;
        let global_rotary = Rotary::new(config.grid(), head_dim, scale);
        let mut blocks = Vec::with_capacity(config.vit_depth);
        for i in 0..config.vit_depth {
            let weights = weights.pp("blocks").pp(i);
            let global = config.vit_global_blocks.contains(&i);
            let rotary = if global {
                &global_rotary
            } else {
                &window_rotary
            };
            check_table(&weights.pp("attn"), rotary)?;
            blocks.push(Block::new(&weights, config, global)?);
        }
        let (grid, window) = (config.grid(), config.vit_window);
        let fills = window > 0 && grid.is_multiple_of(window);
        let sorted = fills.then(|| Sorted {
            side: window,
            global_rotary: global_rotary.in_windows(window),
        });
        Ok(Self {
            patches: made(patches, weights)?,
            positions: made(tile(&table, side, config.grid()), weights)?,
            norm: layer_norm(&weights.pp("ln_pre"), dim)?,
            blocks,
            window_rotary,
            global_rotary,
            sorted,
            grid,
            patch,
        })
    }

    /// A normalised picture `[b, 3, s, s]` to features `[b, h * w, c]`.
    ///
    /// # Errors
    /// The picture has another size, or the tensor library failed.
    pub fn forward(&self, picture: &Tensor) -> crate::Result<Tensor> {
        self.run(picture, None).at(STAGE)
    }

    /// As [`forward`](Self::forward), keeping every stage.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_stages(&self, picture: &Tensor) -> crate::Result<TrunkStages> {
        let patches = self
            .patches
            .forward_patches(picture, self.patch)
            .at(STAGE)?;
        let positioned = patches.broadcast_add(&self.positions).at(STAGE)?;
        let normed = self.norm.forward(&positioned).at(STAGE)?;
        let mut blocks = Vec::new();
        self.run(picture, Some(&mut blocks)).at(STAGE)?;
        Ok(TrunkStages {
            patches,
            positioned,
            normed,
            blocks,
        })
    }

    /// Rotation tables `(cos, sin)` of the windowed and of the global blocks,
    /// `[tokens, head_dim / 2]` each.
    ///
    /// # Errors
    /// The tensor library failed.
    pub fn rotary_tables(&self) -> crate::Result<[(Tensor, Tensor); 2]> {
        Ok([
            self.window_rotary.tables().at(STAGE)?,
            self.global_rotary.tables().at(STAGE)?,
        ])
    }

    fn run(&self, picture: &Tensor, mut keep: Option<&mut Vec<Tensor>>) -> Result<Tensor> {
        let (_, _, h, w) = picture.dims4()?;
        let side = self.grid * self.patch;
        if (h, w) != (side, side) {
            candle_core::bail!("the model takes pictures of {side}x{side}, got {w}x{h}");
        }
        let x = self.patches.forward_patches(picture, self.patch)?;
        let mut x = self.norm.forward(&x.broadcast_add(&self.positions)?)?;
        let sorted = self.sorted.as_ref();
        let global_rotary = sorted.map_or(&self.global_rotary, |sorted| &sorted.global_rotary);
        if let Some(sorted) = sorted {
            x = to_windows(&x, self.grid, sorted.side)?.reshape(x.shape())?;
        }
        let in_rows = |x: &Tensor| match sorted {
            Some(sorted) => from_windows(x, x.dim(0)?, self.grid, sorted.side),
            None => Ok(x.clone()),
        };
        for block in &self.blocks {
            let rotary = match block.window {
                Some(_) => &self.window_rotary,
                None => global_rotary,
            };
            x = block.forward(&x, self.grid, sorted.is_some(), rotary)?;
            if let Some(keep) = keep.as_deref_mut() {
                keep.push(in_rows(&x)?);
            }
        }
        in_rows(&x)
    }
}

/// Repeats the position table over the grid, without its first row, which belongs to a class token
/// the model does not have.
fn tile(table: &Tensor, side: usize, grid: usize) -> Result<Tensor> {
    let c = table.dim(D::Minus1)?;
    let table = table.narrow(1, 1, side * side)?.reshape((side, side, c))?;
    let times = grid.div_ceil(side);
    let wide = Tensor::cat(&vec![&table; times], 1)?.narrow(1, 0, grid)?;
    let tall = Tensor::cat(&vec![&wide; times], 0)?.narrow(0, 0, grid)?;
    tall.reshape((1, grid * grid, c))?.contiguous()
}

/// A file may carry the rotary tables; one that differs belongs to a model of other sizes.
fn check_table(weights: &WeightReader, rotary: &Rotary) -> crate::Result<()> {
    weights.ignore("computed at start", |key| {
        matches!(key, "freqs_cis_real" | "freqs_cis_imag")
    });
    if let Some(table) = weights.complex_table("freqs_cis")?
        && rotary.distance(&table).is_none_or(|gap| gap > TABLE_GAP)
    {
        return Err(Error::Config(format!(
            "the stored table {} is not the one these sizes give",
            weights.key("freqs_cis")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter};

    use super::*;

    #[test]
    fn windows_go_back_to_where_they_came_from_with_padding_cut_off() {
        let x = Tensor::arange(0f32, 2.0 * 49.0 * 3.0, &Device::Cpu).unwrap();
        let x = x.reshape((2, 49, 3)).unwrap();
        let windows = to_windows(&x, 7, 3).unwrap();
        assert_eq!(windows.dims(), [18, 9, 3]);
        let back = from_windows(&windows, 2, 7, 3).unwrap();
        assert_eq!(
            back.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
            x.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        );
    }

    fn trunk_of_waves() -> VisionTrunk {
        let config = Sam3Config {
            vit_dim: 32,
            vit_heads: 2,
            vit_depth: 3,
            vit_window: 2,
            vit_global_blocks: vec![1],
            vit_mlp_ratio: Some(2.0),
            patch_size: 4,
            image_size: 24,
            pretrain_img_size: 8,
            ..Sam3Config::sam3_1()
        };
        let wanted = WeightReader::recording(DType::F16, &Device::Cpu);
        VisionTrunk::new(&wanted, &config).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut n = 0;
        SafetensorsWriter::new(DType::F32)
            .write(file.path(), &wanted.specs(), |_, out| {
                for v in out {
                    n += 1;
                    *v = (n as f32 * 0.618).sin() * 0.3;
                }
            })
            .unwrap();
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let weights = WeightReader::new(checkpoint, DType::F32, &Device::Cpu);
        VisionTrunk::new(&weights, &config).unwrap()
    }

    #[test]
    fn the_order_of_the_windows_changes_no_feature() {
        let sorted = trunk_of_waves();
        assert!(sorted.sorted.is_some());
        let mut in_rows = sorted.clone();
        in_rows.sorted = None;
        let values: Vec<f32> = (0..2 * 3 * 24 * 24)
            .map(|i| (i as f32 * 0.37).cos())
            .collect();
        let picture = Tensor::from_vec(values, (2, 3, 24, 24), &Device::Cpu).unwrap();
        let (a, b) = (
            sorted.forward_stages(&picture).unwrap(),
            in_rows.forward_stages(&picture).unwrap(),
        );
        for (a, b) in a.blocks.iter().zip(&b.blocks) {
            let gap = (a - b).unwrap().abs().unwrap().max_all().unwrap();
            let gap = gap.to_scalar::<f32>().unwrap();
            // The same sums in another order.
            assert!(gap < 1e-4, "{gap}");
        }
        let last = sorted.forward(&picture).unwrap();
        let gap = (last - a.blocks.last().unwrap()).unwrap().abs().unwrap();
        assert!(gap.max_all().unwrap().to_scalar::<f32>().unwrap() < 1e-9);
    }

    #[test]
    fn a_tiled_table_repeats_instead_of_stretching() {
        let table = Tensor::arange(0f32, 5.0, &Device::Cpu)
            .unwrap()
            .reshape((1, 5, 1))
            .unwrap();
        let tiled = tile(&table, 2, 3).unwrap();
        assert_eq!(
            tiled.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
            [1.0, 2.0, 1.0, 3.0, 4.0, 3.0, 1.0, 2.0, 1.0]
        );
    }
}
