//! What stands between a scene and its picture: perspective, light, blur, noise.

use crate::{
    canvas::{Point, Rgb, mix},
    seeded::Seeded,
    stage::Stage,
};

/// A plane seen from an angle: maps picture points to scene points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homography(pub(crate) [f64; 9]);

impl Homography {
    /// The map that takes each of four points to its partner; `None` when three are in line.
    pub(crate) fn between(from: [Point; 4], to: [Point; 4]) -> Option<Self> {
        let mut rows = [[0.0f64; 9]; 8];
        for (i, (p, q)) in from.iter().zip(&to).enumerate() {
            let (x, y) = (f64::from(p.0), f64::from(p.1));
            let (u, v) = (f64::from(q.0), f64::from(q.1));
            rows[i * 2] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
            rows[i * 2 + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
        }
        for i in 0..8 {
            let pivot = (i..8).max_by(|&a, &b| rows[a][i].abs().total_cmp(&rows[b][i].abs()))?;
            rows.swap(i, pivot);
            if rows[i][i].abs() < 1e-9 {
                return None;
            }
            for r in 0..8 {
                if r != i {
                    let factor = rows[r][i] / rows[i][i];
                    let pivot = rows[i];
                    for (value, above) in rows[r].iter_mut().zip(pivot).skip(i) {
                        *value -= factor * above;
                    }
                }
            }
        }
        let mut m = [1.0; 9];
        for i in 0..8 {
            m[i] = rows[i][8] / rows[i][i];
        }
        Some(Self(m))
    }

    pub(crate) fn at(&self, x: f32, y: f32) -> Point {
        let m = &self.0;
        let (x, y) = (f64::from(x), f64::from(y));
        let w = m[6] * x + m[7] * y + m[8];
        (
            ((m[0] * x + m[1] * y + m[2]) / w) as f32,
            ((m[3] * x + m[4] * y + m[5]) / w) as f32,
        )
    }

    /// How many square pixels of the target one square pixel about `(x, y)` becomes.
    pub(crate) fn growth(&self, x: f32, y: f32) -> f32 {
        let (a, b, c) = (self.at(x, y), self.at(x + 1.0, y), self.at(x, y + 1.0));
        ((b.0 - a.0) * (c.1 - a.1) - (b.1 - a.1) * (c.0 - a.0)).abs()
    }
}

/// `stage` seen through `view` (picture to scene). Beyond the edges the colours are mirrored and
/// nothing is an object.
pub(crate) fn warp(stage: &Stage, view: &Homography, w: usize, h: usize) -> Stage {
    let mut out = Stage::new(w, h, [0.0; 3]);
    let (limit_x, limit_y) = ((stage.w - 1) as f32, (stage.h - 1) as f32);
    let mirror = |t: f32, limit: f32| {
        let t = t.abs();
        if t > limit {
            (2.0 * limit - t).clamp(0.0, limit)
        } else {
            t
        }
    };
    let m = &view.0;
    for y in 0..h {
        let fy = y as f64 + 0.5;
        for x in 0..w {
            let fx = x as f64 + 0.5;
            let d = 1.0 / (m[6] * fx + m[7] * fy + m[8]);
            let sx = ((m[0] * fx + m[1] * fy + m[2]) * d) as f32;
            let sy = ((m[3] * fx + m[4] * fy + m[5]) * d) as f32;
            let i = y * w + x;
            if sx >= 0.0 && sy >= 0.0 && (sx as usize) < stage.w && (sy as usize) < stage.h {
                out.ids[i] = stage.ids[sy as usize * stage.w + sx as usize];
            }
            let (px, py) = (mirror(sx - 0.5, limit_x), mirror(sy - 0.5, limit_y));
            let (x0, y0) = (px as usize, py as usize);
            let (x1, y1) = ((x0 + 1).min(stage.w - 1), (y0 + 1).min(stage.h - 1));
            let (rx, ry) = (px - x0 as f32, py - y0 as f32);
            let (r0, r1) = (y0 * stage.w, y1 * stage.w);
            out.px[i] = mix(
                mix(stage.px[r0 + x0], stage.px[r0 + x1], rx),
                mix(stage.px[r1 + x0], stage.px[r1 + x1], rx),
                ry,
            );
        }
    }
    out
}

/// Blurs along x and y with a Gaussian of deviation `sigma` px.
pub(crate) fn gaussian(px: &mut [Rgb], w: usize, h: usize, sigma: f32) {
    let reach = (sigma * 2.5).ceil().max(1.0) as isize;
    let mut kernel: Vec<f32> = (-reach..=reach)
        .map(|i| (-(i as f32 / sigma).powi(2) * 0.5).exp())
        .collect();
    let total: f32 = kernel.iter().sum();
    for weight in &mut kernel {
        *weight /= total;
    }
    let mut across = vec![[0.0f32; 3]; w * h];
    for y in 0..h {
        let row = &px[y * w..(y + 1) * w];
        for (x, out) in across[y * w..(y + 1) * w].iter_mut().enumerate() {
            for (k, weight) in kernel.iter().enumerate() {
                let at = (x as isize + k as isize - reach).clamp(0, w as isize - 1) as usize;
                for c in 0..3 {
                    out[c] += row[at][c] * weight;
                }
            }
        }
    }
    px.fill([0.0; 3]);
    for y in 0..h {
        for (k, weight) in kernel.iter().enumerate() {
            let at = (y as isize + k as isize - reach).clamp(0, h as isize - 1) as usize;
            let (from, to) = (&across[at * w..(at + 1) * w], &mut px[y * w..(y + 1) * w]);
            for (p, q) in to.iter_mut().zip(from) {
                for c in 0..3 {
                    p[c] += q[c] * weight;
                }
            }
        }
    }
}

/// Smears along a line of `length` px at `angle`.
pub(crate) fn smear(px: &mut [Rgb], w: usize, h: usize, length: f32, angle: f32) {
    let n = (length.ceil() as usize).clamp(2, 12);
    let (sin, cos) = angle.sin_cos();
    let source = px.to_vec();
    for y in 0..h {
        for x in 0..w {
            let mut sum = [0.0f32; 3];
            for i in 0..n {
                let t = (i as f32 / (n - 1) as f32 - 0.5) * length;
                let sx = (x as f32 + t * cos).round().clamp(0.0, (w - 1) as f32) as usize;
                let sy = (y as f32 + t * sin).round().clamp(0.0, (h - 1) as f32) as usize;
                let p = source[sy * w + sx];
                for c in 0..3 {
                    sum[c] += p[c];
                }
            }
            px[y * w + x] = sum.map(|v| v / n as f32);
        }
    }
}

/// Halves the resolution by `factor` (0 to 1) and brings the size back.
pub(crate) fn coarsen(px: &mut [Rgb], w: usize, h: usize, factor: f32) {
    let (sw, sh) = (
        ((w as f32 * factor) as usize).max(2),
        ((h as f32 * factor) as usize).max(2),
    );
    let mut small = vec![[0.0f32; 3]; sw * sh];
    let mut counts = vec![0.0f32; sw * sh];
    for y in 0..h {
        for x in 0..w {
            let at = (y * sh / h) * sw + x * sw / w;
            counts[at] += 1.0;
            for c in 0..3 {
                small[at][c] += px[y * w + x][c];
            }
        }
    }
    for (p, n) in small.iter_mut().zip(&counts) {
        *p = p.map(|v| v / n.max(1.0));
    }
    for y in 0..h {
        for x in 0..w {
            let fx = ((x as f32 + 0.5) * sw as f32 / w as f32 - 0.5).clamp(0.0, (sw - 1) as f32);
            let fy = ((y as f32 + 0.5) * sh as f32 / h as f32 - 0.5).clamp(0.0, (sh - 1) as f32);
            let (x0, y0) = (fx as usize, fy as usize);
            let (x1, y1) = ((x0 + 1).min(sw - 1), (y0 + 1).min(sh - 1));
            let (rx, ry) = (fx - x0 as f32, fy - y0 as f32);
            px[y * w + x] = mix(
                mix(small[y0 * sw + x0], small[y0 * sw + x1], rx),
                mix(small[y1 * sw + x0], small[y1 * sw + x1], rx),
                ry,
            );
        }
    }
}

/// Light over the whole picture and colour of the lamps.
pub(crate) fn light(px: &mut [Rgb], w: usize, h: usize, rng: &mut Seeded) {
    let (angle, slope) = (
        rng.range(0.0, std::f32::consts::TAU),
        if rng.chance(0.5) {
            rng.range(0.0, 0.6)
        } else {
            0.0
        },
    );
    let (ax, ay) = (angle.cos() * slope, angle.sin() * slope);
    let glare = if rng.chance(0.3) {
        rng.range(0.1, 0.5)
    } else {
        0.0
    };
    let (gx, gy, gs) = (rng.unit(), rng.unit(), rng.log_range(0.003, 0.05));
    let gain = rng.range(0.65, 1.4);
    let tint = [(); 3].map(|()| gain * (1.0 + rng.range(-0.1, 0.1)));
    let saturation = if rng.chance(0.4) {
        rng.range(0.35, 1.25)
    } else {
        1.0
    };
    let contrast = if rng.chance(0.3) {
        rng.range(0.75, 1.3)
    } else {
        1.0
    };
    let vignette = if rng.chance(0.25) {
        rng.range(0.1, 0.6)
    } else {
        0.0
    };
    for y in 0..h {
        let v = y as f32 / h as f32;
        for x in 0..w {
            let u = x as f32 / w as f32;
            let (du, dv) = (u - 0.5, v - 0.5);
            let mut on = 1.0 + ax * du + ay * dv;
            if vignette > 0.0 {
                on *= 1.0 - vignette * (du * du + dv * dv) * 1.6;
            }
            let add = if glare > 0.0 {
                let d = ((u - gx).powi(2) + (v - gy).powi(2)) / gs;
                if d < 9.0 { glare * (-d).exp() } else { 0.0 }
            } else {
                0.0
            };
            let p = &mut px[y * w + x];
            let grey = (p[0] + p[1] + p[2]) / 3.0;
            for c in 0..3 {
                let rich = grey + (p[c] - grey) * saturation;
                p[c] = ((rich - 0.45) * contrast + 0.45) * on * tint[c] + add;
            }
        }
    }
}

/// Bright bars that a pane of glass before the scene throws back.
pub(crate) fn reflect(px: &mut [Rgb], w: usize, h: usize, rng: &mut Seeded) {
    for _ in 0..=rng.below(3) {
        let (lean, at, wide) = (rng.range(-0.8, 0.8), rng.unit(), rng.range(0.01, 0.08));
        let strength = rng.range(0.08, 0.4);
        for y in 0..h {
            let v = y as f32 / h as f32 - 0.5;
            for x in 0..w {
                let d = ((x as f32 / w as f32 - at - lean * v) / wide).abs();
                if d < 1.0 {
                    let add = strength * (1.0 - d * d);
                    let p = &mut px[y * w + x];
                    *p = p.map(|c| c + add);
                }
            }
        }
    }
}

/// Sensor noise of deviation `level` (0 to 1), then 8 bits a channel.
pub(crate) fn develop(px: &[Rgb], level: f32, rng: &mut Seeded) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(px.len() * 3);
    // Three 21-bit draws from one number; their spread is that of an even distribution.
    let spread = level * 3.46;
    for p in px {
        let bits = if level > 0.0 { rng.next_u64() } else { 0 };
        for (c, v) in p.iter().enumerate() {
            let mut value = *v;
            if level > 0.0 {
                let draw = (bits >> (c * 21)) & 0x1f_ffff;
                value += (draw as f32 / 2_097_152.0 - 0.5) * spread;
            }
            bytes.push((value.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_between_four_corners_takes_each_to_its_partner_and_three_in_line_have_none() {
        let from = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0)];
        let to = [(1.0, 2.0), (12.0, 1.0), (9.0, 14.0), (-1.0, 9.0)];
        let map = Homography::between(from, to).unwrap();
        for (p, q) in from.iter().zip(to) {
            let at = map.at(p.0, p.1);
            assert!(
                (at.0 - q.0).abs() < 1e-3 && (at.1 - q.1).abs() < 1e-3,
                "{at:?} {q:?}"
            );
        }
        let line = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0)];
        assert!(Homography::between(line, to).is_none());
        let twice = Homography([2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 1.0]);
        assert!((twice.growth(5.0, 5.0) - 6.0).abs() < 1e-3);
    }

    #[test]
    fn blur_and_smear_keep_the_light_of_an_even_picture_and_spread_a_point() {
        let (w, h) = (15, 11);
        for soften in [
            |px: &mut Vec<Rgb>| gaussian(px, 15, 11, 1.2),
            |px: &mut Vec<Rgb>| smear(px, 15, 11, 4.0, 0.0),
            |px: &mut Vec<Rgb>| coarsen(px, 15, 11, 0.5),
        ] {
            let mut even = vec![[0.4; 3]; w * h];
            soften(&mut even);
            assert!(even.iter().all(|p| (p[1] - 0.4).abs() < 1e-4));
            let mut point = vec![[0.0; 3]; w * h];
            point[5 * w + 7] = [1.0; 3];
            soften(&mut point);
            assert!(point[5 * w + 7][0] < 0.9);
            assert!(point.iter().filter(|p| p[0] > 0.01).count() > 3);
        }
    }
}
