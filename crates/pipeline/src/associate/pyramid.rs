//! A frame as a few small grey pictures, coarse ones for the search, finer ones for precision.

use shelfscan_inference_core::RgbImage;

/// About how many cells the finest level has along the frame's longer side. Camera motion is found
/// to a twentieth of a cell, so that a cell of 8 source pixels is fine enough.
const FINEST_SIDE: u32 = 240;

/// Levels below this many cells on a side say nothing about motion.
const COARSEST_SIDE: usize = 8;

/// Rows read of each cell; reading all of a 1080p frame would cost more than the rest together.
const ROWS_PER_CELL: usize = 2;

/// A grey picture, `height * width` values of 0 to 255, row by row.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) values: Vec<f32>,
}

impl Plane {
    /// Averages 2 by 2 values; an odd last row or column is left out.
    fn halved(&self) -> Self {
        let (width, height) = (self.width / 2, self.height / 2);
        let mut values = Vec::with_capacity(width * height);
        for y in 0..height {
            let (upper, lower) = (self.row(2 * y), self.row(2 * y + 1));
            let pairs = upper.chunks_exact(2).zip(lower.chunks_exact(2));
            values.extend(pairs.map(|(u, l)| (u[0] + u[1] + l[0] + l[1]) * 0.25));
        }
        Self {
            width,
            height,
            values,
        }
    }

    fn row(&self, y: usize) -> &[f32] {
        &self.values[y * self.width..(y + 1) * self.width]
    }

    /// Value between the cells; `None` where a neighbour is missing.
    pub(super) fn sample(&self, x: f32, y: f32) -> Option<f32> {
        if !(x >= 0.0 && y >= 0.0) {
            return None;
        }
        let (ix, iy) = (x as usize, y as usize);
        if ix + 1 >= self.width || iy + 1 >= self.height {
            return None;
        }
        let (fx, fy) = (x - ix as f32, y - iy as f32);
        let at = iy * self.width + ix;
        let upper = self.values.get(at..at + 2)?;
        let lower = self.values.get(at + self.width..at + self.width + 2)?;
        let top = upper[0] + (upper[1] - upper[0]) * fx;
        let low = lower[0] + (lower[1] - lower[0]) * fx;
        Some(top + (low - top) * fy)
    }
}

/// Grey levels of a frame, the finest first.
#[derive(Clone, Debug)]
pub(super) struct Pyramid {
    /// Frame size in source pixels.
    pub(super) size_px: (u32, u32),
    /// Source pixels per cell of the finest level.
    pub(super) cell_px: f32,
    pub(super) levels: Vec<Plane>,
}

impl Pyramid {
    pub(super) fn of(image: &RgbImage) -> Self {
        let longer = image.width().max(image.height());
        let cell = ((longer + FINEST_SIDE / 2) / FINEST_SIDE).max(1) as usize;
        let mut levels = vec![reduced(image, cell)];
        while let Some(last) = levels.last() {
            if last.width.min(last.height) < 2 * COARSEST_SIDE {
                break;
            }
            levels.push(last.halved());
        }
        Self {
            size_px: (image.width(), image.height()),
            cell_px: cell as f32,
            levels,
        }
    }

    /// Source pixels per cell of a level.
    pub(super) fn cell_of(&self, level: usize) -> f32 {
        self.cell_px * (1u32 << level) as f32
    }

    /// Mean step between neighbouring cells of the second level: low for smeared and empty frames.
    pub(super) fn sharpness(&self) -> f32 {
        let plane = self.levels.get(1).unwrap_or(&self.levels[0]);
        let mut total = 0.0;
        let mut count = 0usize;
        for y in 0..plane.height {
            let row = plane.row(y);
            total += row.windows(2).map(|p| (p[0] - p[1]).abs()).sum::<f32>();
            count += row.len().saturating_sub(1);
        }
        total / count.max(1) as f32
    }
}

/// Means over cells of `cell` by `cell` source pixels.
fn reduced(image: &RgbImage, cell: usize) -> Plane {
    let (image_width, image_height) = (image.width() as usize, image.height() as usize);
    let (width, height) = (image_width / cell, image_height / cell);
    let row_bytes = image_width * 3;
    let cell_bytes = cell * 3;
    let used = ROWS_PER_CELL.min(cell);
    let scale = 1.0 / (cell_bytes * used) as f32;
    let mut values = Vec::with_capacity(width * height);
    let mut sums = vec![0u32; width];
    for y in 0..height {
        sums.fill(0);
        for k in 0..used {
            // Evenly spread over the cell's rows.
            let line = y * cell + (2 * k + 1) * cell / (2 * used);
            let row = &image.pixels()[line * row_bytes..line * row_bytes + width * cell_bytes];
            match cell {
                // The usual sizes (640, 960, 1280, 1920 and 3840 wide) with the length known.
                3 => add_cells::<9>(row, &mut sums),
                4 => add_cells::<12>(row, &mut sums),
                5 => add_cells::<15>(row, &mut sums),
                8 => add_cells::<24>(row, &mut sums),
                16 => add_cells::<48>(row, &mut sums),
                _ => {
                    for (sum, bytes) in sums.iter_mut().zip(row.chunks_exact(cell_bytes)) {
                        *sum += byte_sum(bytes);
                    }
                }
            }
        }
        values.extend(sums.iter().map(|&sum| sum as f32 * scale));
    }
    Plane {
        width,
        height,
        values,
    }
}

fn add_cells<const BYTES: usize>(row: &[u8], sums: &mut [u32]) {
    for (sum, bytes) in sums.iter_mut().zip(row.as_chunks::<BYTES>().0) {
        *sum += byte_sum(bytes);
    }
}

/// Sum of bytes, eight at a time in the lanes of one word.
#[inline]
fn byte_sum(bytes: &[u8]) -> u32 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total = rest.iter().map(|&b| u32::from(b)).sum::<u32>();
    // A lane of 16 bits takes 128 words before it can overflow.
    for group in words.chunks(128) {
        let lanes = group.iter().fold(0u64, |lanes, word| {
            let word = u64::from_le_bytes(*word);
            lanes + (word & EVEN) + ((word >> 8) & EVEN)
        });
        let pairs = (lanes & 0x0000_ffff_0000_ffff) + ((lanes >> 16) & 0x0000_ffff_0000_ffff);
        total += (pairs as u32) + (pairs >> 32) as u32;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_sum_equals_adding_one_by_one() {
        for length in [0usize, 1, 7, 8, 24, 25, 3000] {
            let bytes: Vec<u8> = (0..length).map(|i| (255 - i % 3) as u8).collect();
            let plain: u32 = bytes.iter().map(|&b| u32::from(b)).sum();
            assert_eq!(byte_sum(&bytes), plain, "{length}");
        }
    }

    #[test]
    fn a_flat_frame_has_its_own_grey_on_every_level_and_no_sharpness() {
        for (width, height) in [(1920, 1080), (641, 361), (40, 30), (5, 700)] {
            let pixels = vec![90u8; width as usize * height as usize * 3];
            let pyramid = Pyramid::of(&RgbImage::new(width, height, pixels).unwrap());
            for plane in &pyramid.levels {
                assert!(plane.values.iter().all(|&v| (v - 90.0).abs() < 1e-3));
            }
            assert_eq!(pyramid.sharpness(), 0.0);
        }
    }

    #[test]
    fn sampling_between_cells_is_linear_and_ends_at_the_edge() {
        let plane = Plane {
            width: 3,
            height: 2,
            values: vec![0.0, 10.0, 20.0, 30.0, 40.0, 50.0],
        };
        assert_eq!(plane.sample(0.5, 0.5), Some(20.0));
        assert_eq!(plane.sample(2.0, 0.0), None);
        assert_eq!(plane.sample(-0.1, 0.0), None);
        assert_eq!(plane.sample(f32::NAN, 0.0), None);
    }
}
