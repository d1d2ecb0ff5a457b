//! RoIAlign as torchvision runs it with `aligned=False` and an adaptive number of samples.

/// Pools each box of a map `[c, h, w]` to `[size, size]`; gives `[boxes, c, size, size]` values.
///
/// `boxes` are `[x0, y0, x1, y1]` in cells of the map. A box is at least one cell wide and high, and
/// each of its bins averages `ceil(box / size)` samples along each axis.
///
/// Source: Mask R-CNN (He et al. 2017); torchvision's `roi_align`.
pub(crate) fn roi_align(
    map: &[f32],
    (c, h, w): (usize, usize, usize),
    boxes: &[[f32; 4]],
    size: usize,
) -> Vec<f32> {
    let mut out = Vec::with_capacity(boxes.len() * c * size * size);
    for [x0, y0, x1, y1] in boxes {
        let (width, height) = ((x1 - x0).max(1.0), (y1 - y0).max(1.0));
        let (bin_w, bin_h) = (width / size as f32, height / size as f32);
        // The map bounds the samples, so that a huge box cannot stall the model.
        let samples = |bin: f32, cells: usize| (bin.ceil() as usize).clamp(1, cells.max(1));
        let (nx, ny) = (samples(bin_w, w), samples(bin_h, h));
        for plane in map.chunks_exact(h * w).take(c) {
            for by in 0..size {
                for bx in 0..size {
                    let mut sum = 0.0;
                    for iy in 0..ny {
                        let y = y0 + bin_h * (by as f32 + (iy as f32 + 0.5) / ny as f32);
                        for ix in 0..nx {
                            let x = x0 + bin_w * (bx as f32 + (ix as f32 + 0.5) / nx as f32);
                            sum += sample(plane, (h, w), y, x);
                        }
                    }
                    out.push(sum / (nx * ny) as f32);
                }
            }
        }
    }
    out
}

/// Bilinear value at `(y, x)`; outside by more than a cell it is 0, else the edge goes on.
fn sample(plane: &[f32], (h, w): (usize, usize), y: f32, x: f32) -> f32 {
    if !(y >= -1.0 && y <= h as f32 && x >= -1.0 && x <= w as f32) {
        return 0.0;
    }
    let axis = |v: f32, n: usize| {
        let v = v.max(0.0);
        let low = (v as usize).min(n - 1);
        let high = (low + 1).min(n - 1);
        let part = if high == low { 0.0 } else { v - low as f32 };
        (low, high, part)
    };
    let (y0, y1, ty) = axis(y, h);
    let (x0, x1, tx) = axis(x, w);
    let at = |y: usize, x: usize| plane[y * w + x];
    (1.0 - ty) * ((1.0 - tx) * at(y0, x0) + tx * at(y0, x1))
        + ty * ((1.0 - tx) * at(y1, x0) + tx * at(y1, x1))
}

/// Bilinear values of a map `[c, h, w]` at points in 0 to 1, `[points, c]`; zeros outside, pixels
/// are areas, as torch's `grid_sample` with `align_corners=False`.
pub(crate) fn sample_points(
    map: &[f32],
    (c, h, w): (usize, usize, usize),
    points: &[[f32; 2]],
) -> Vec<f32> {
    let mut out = Vec::with_capacity(points.len() * c);
    for [px, py] in points {
        let (x, y) = (px * w as f32 - 0.5, py * h as f32 - 0.5);
        let (x0, y0) = (x.floor(), y.floor());
        let (tx, ty) = (x - x0, y - y0);
        for plane in map.chunks_exact(h * w).take(c) {
            let at = |y: f32, x: f32| {
                let inside = y >= 0.0 && x >= 0.0 && y < h as f32 && x < w as f32;
                if inside {
                    plane[y as usize * w + x as usize]
                } else {
                    0.0
                }
            };
            out.push(
                (1.0 - ty) * ((1.0 - tx) * at(y0, x0) + tx * at(y0, x0 + 1.0))
                    + ty * ((1.0 - tx) * at(y0 + 1.0, x0) + tx * at(y0 + 1.0, x0 + 1.0)),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_map_pools_to_its_value_and_a_ramp_to_its_means() {
        let flat = vec![2.5; 16];
        let out = roi_align(&flat, (1, 4, 4), &[[0.0, 0.0, 4.0, 4.0]], 2);
        assert_eq!(out, [2.5; 4]);
        let ramp: Vec<f32> = (0..16).map(|i| (i % 4) as f32).collect();
        let out = roi_align(&ramp, (1, 4, 4), &[[0.0, 0.0, 2.0, 2.0]], 2);
        assert_eq!(out, [0.5, 1.5, 0.5, 1.5]);
    }

    #[test]
    fn a_box_far_outside_pools_to_zero_and_a_huge_one_ends() {
        let flat = vec![1.0; 16];
        let out = roi_align(&flat, (1, 4, 4), &[[90.0, 90.0, 95.0, 95.0]], 2);
        assert_eq!(out, [0.0; 4]);
        assert_eq!(
            roi_align(&flat, (1, 4, 4), &[[-1e9, -1e9, 1e9, 1e9]], 2).len(),
            4
        );
    }

    #[test]
    fn points_outside_the_map_are_zero_and_centres_are_exact() {
        let map = [1.0, 2.0, 3.0, 4.0];
        let out = sample_points(&map, (1, 2, 2), &[[0.25, 0.25], [0.75, 0.75], [3.0, 0.0]]);
        assert_eq!(out, [1.0, 4.0, 0.0]);
    }
}
