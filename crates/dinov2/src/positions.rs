//! The learned position grid at any size.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use candle_core::{DType, Device, Tensor};
use shelfscan_model_kit::ops::{Sampling, resize_2d};

use crate::{PositionGrid, Result, error::At};

/// Sizes kept at once: a run sees one or two.
const MAX_KEPT: usize = 4;

/// The position embeddings of the class token and of a square grid of patches.
#[derive(Debug)]
pub(crate) struct Positions {
    /// `[1, dim]`, f32 on the CPU.
    class: Tensor,
    /// `[1, dim, grid, grid]`, f32 on the CPU.
    patches: Tensor,
    rule: PositionGrid,
    dtype: DType,
    device: Device,
    kept: Mutex<VecDeque<((usize, usize), Tensor)>>,
}

impl Positions {
    /// `table` is `[1, 1 + grid * grid, dim]` in f32 on the CPU.
    pub(crate) fn new(
        table: &Tensor,
        grid: usize,
        rule: PositionGrid,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let build = || {
            let dim = table.dim(2)?;
            let class = table.narrow(1, 0, 1)?.reshape((1, dim))?;
            let patches = table
                .narrow(1, 1, grid * grid)?
                .reshape((1, grid, grid, dim))?
                .permute((0, 3, 1, 2))?
                .contiguous()?;
            Ok((class, patches))
        };
        let (class, patches) = build().at("reading the position grid")?;
        Ok(Self {
            class,
            patches,
            rule,
            dtype,
            device: device.clone(),
            kept: Mutex::default(),
        })
    }

    /// The embeddings for `rows` x `columns` patches: `[1, 1 + rows * columns, dim]`.
    pub(crate) fn at_size(&self, rows: usize, columns: usize) -> Result<Tensor> {
        let size = (rows, columns);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = kept.iter().find(|(key, _)| *key == size) {
            return Ok(table.clone());
        }
        let table = self
            .compute(rows, columns)
            .at("resizing the position grid")?;
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back((size, table.clone()));
        Ok(table)
    }

    fn compute(&self, rows: usize, columns: usize) -> candle_core::Result<Tensor> {
        let (_, dim, grid, _) = self.patches.dims4()?;
        let patches = if (rows, columns) == (grid, grid) {
            // The references skip the resampling here, with or without offset.
            self.patches.clone()
        } else {
            let sampling = match self.rule {
                PositionGrid::Offset => {
                    let scale = |n: usize| (n as f64 + 0.1) / grid as f64;
                    Sampling {
                        scale: Some((scale(rows), scale(columns))),
                        ..Sampling::bicubic(false)
                    }
                }
                PositionGrid::Antialias => Sampling::bicubic(true),
                PositionGrid::Sizes => Sampling::bicubic(false),
            };
            resize_2d(&self.patches, rows, columns, sampling)?
        };
        let patches = patches
            .permute((0, 2, 3, 1))?
            .reshape((rows * columns, dim))?;
        Tensor::cat(&[&self.class, &patches], 0)?
            .unsqueeze(0)?
            .to_dtype(self.dtype)?
            .to_device(&self.device)
    }

    #[cfg(test)]
    fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(grid: usize, rule: PositionGrid) -> Positions {
        let table: Vec<f32> = (0..=grid * grid).map(|i| i as f32).collect();
        let table = Tensor::from_vec(table, (1, 1 + grid * grid, 1), &Device::Cpu).unwrap();
        Positions::new(&table, grid, rule, DType::F32, &Device::Cpu).unwrap()
    }

    #[test]
    fn every_multiple_of_the_patch_up_to_1820_has_its_own_row_of_positions() {
        for rule in [
            PositionGrid::Offset,
            PositionGrid::Antialias,
            PositionGrid::Sizes,
        ] {
            let positions = positions(37, rule);
            for n in 1..=130 {
                assert_eq!(positions.at_size(n, n).unwrap().dims(), [1, 1 + n * n, 1]);
                assert_eq!(positions.at_size(n, 3).unwrap().dims(), [1, 1 + n * 3, 1]);
            }
        }
    }

    #[test]
    fn the_native_size_is_the_table_itself() {
        let table = positions(5, PositionGrid::Offset).at_size(5, 5).unwrap();
        let values: Vec<f32> = table.flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(values, (0..26).map(|i| i as f32).collect::<Vec<_>>());
    }

    #[test]
    fn few_sizes_are_kept_however_many_are_asked_for() {
        let positions = positions(4, PositionGrid::Offset);
        for n in 1..=10 * MAX_KEPT {
            positions.at_size(n, 2).unwrap();
            assert!(positions.kept() <= MAX_KEPT);
        }
    }
}
