//! Procedural packaging: every SKU has a look of its own, every view of it differs a little.

use shelfscan_inference_core::RgbImage;

use crate::seeded::Seeded;

type Rgb = [f32; 3];

/// What fills the front of a pack behind its emblem.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Plain,
    Stripes { across: f32, along: f32 },
    Dots { per_side: f32 },
    Checks { per_side: f32 },
    Chevrons { count: f32 },
}

#[derive(Clone, Copy, Debug)]
enum Emblem {
    Disc,
    Diamond,
    Ring,
    Shield,
}

/// The printed front of one SKU, a function of its seed alone.
#[derive(Clone, Debug)]
pub struct PackArt {
    ground: Rgb,
    second: Rgb,
    accent: Rgb,
    pattern: Pattern,
    cap_height: f32,
    band: (f32, f32),
    emblem: Emblem,
    emblem_at: (f32, f32),
    emblem_size: (f32, f32),
    letters: Vec<u16>,
    word_at: f32,
    word_height: f32,
    bars: u64,
}

impl PackArt {
    /// The front of the SKU that `sku_seed` names.
    pub fn new(sku_seed: u64) -> Self {
        let mut rng = Seeded::of(&[0x7061_636b, sku_seed]);
        let hue = rng.unit();
        let ground = hsv(hue, rng.range(0.35, 0.95), rng.range(0.35, 0.95));
        let second = hsv(
            hue + rng.range(0.2, 0.8),
            rng.range(0.3, 1.0),
            rng.range(0.3, 1.0),
        );
        let light_ground = ground.iter().sum::<f32>() > 1.5;
        let accent = if light_ground {
            hsv(rng.unit(), rng.range(0.5, 1.0), rng.range(0.05, 0.3))
        } else {
            hsv(rng.unit(), rng.range(0.0, 0.4), rng.range(0.85, 1.0))
        };
        let pattern = match rng.below(6) {
            0 => Pattern::Plain,
            1 | 2 => Pattern::Stripes {
                across: rng.range(-7.0, 7.0),
                along: rng.range(-5.0, 5.0),
            },
            3 => Pattern::Dots {
                per_side: rng.range(3.0, 6.0),
            },
            4 => Pattern::Checks {
                per_side: rng.range(2.0, 5.0),
            },
            _ => Pattern::Chevrons {
                count: rng.range(2.0, 5.0),
            },
        };
        let band_at = rng.range(0.15, 0.7);
        Self {
            ground,
            second,
            accent,
            pattern,
            cap_height: rng.range(0.0, 0.16),
            band: (band_at, band_at + rng.range(0.08, 0.3)),
            emblem: match rng.below(4) {
                0 => Emblem::Disc,
                1 => Emblem::Diamond,
                2 => Emblem::Ring,
                _ => Emblem::Shield,
            },
            emblem_at: (rng.range(0.35, 0.65), rng.range(0.3, 0.7)),
            emblem_size: (rng.range(0.18, 0.38), rng.range(0.1, 0.22)),
            letters: (0..3 + rng.below(4))
                .map(|_| rng.next_u64() as u16 | 0b010_000_010_000_010)
                .collect(),
            word_at: rng.range(0.2, 0.8),
            word_height: rng.range(0.07, 0.15),
            bars: rng.next_u64(),
        }
    }

    /// Colour at `(u, v)`, both 0 to 1 from the upper left corner of the front; channels 0 to 1.
    pub fn colour_at(&self, u: f32, v: f32) -> [f32; 3] {
        let mut colour = if self.in_pattern(u, v) {
            mix(self.ground, self.second, 0.55)
        } else {
            self.ground
        };
        if v < self.cap_height {
            colour = self.second;
        }
        if v >= self.band.0 && v < self.band.1 {
            colour = self.second;
        }
        if let Some(rim) = self.in_emblem(u, v) {
            colour = if rim { self.second } else { self.accent };
        }
        if self.in_word(u, v) {
            colour = self.accent;
        }
        if (0.66..0.94).contains(&u) && (0.88..0.97).contains(&v) {
            let bar = ((u - 0.66) / 0.28 * 32.0) as u32;
            colour = if (self.bars >> bar) & 1 == 1 {
                [0.05; 3]
            } else {
                [0.95; 3]
            };
        }
        colour
    }

    fn in_pattern(&self, u: f32, v: f32) -> bool {
        match self.pattern {
            Pattern::Plain => false,
            Pattern::Stripes { across, along } => (across * u + along * v).rem_euclid(1.0) < 0.5,
            Pattern::Dots { per_side } => {
                let (x, y) = (
                    (u * per_side).fract() - 0.5,
                    (v * per_side * 1.6).fract() - 0.5,
                );
                x * x + y * y < 0.1
            }
            Pattern::Checks { per_side } => {
                ((u * per_side) as i32 + (v * per_side * 1.6) as i32) % 2 == 0
            }
            Pattern::Chevrons { count } => ((u - 0.5).abs() + v * count).fract() < 0.45,
        }
    }

    /// `Some(true)` on the rim of the emblem, `Some(false)` inside it.
    fn in_emblem(&self, u: f32, v: f32) -> Option<bool> {
        let x = (u - self.emblem_at.0) / self.emblem_size.0;
        let y = (v - self.emblem_at.1) / self.emblem_size.1;
        let reach = match self.emblem {
            Emblem::Disc | Emblem::Ring => (x * x + y * y).sqrt(),
            Emblem::Diamond => x.abs() + y.abs(),
            Emblem::Shield => x.abs().max(if y < 0.0 { -y } else { y + x.abs() * 0.5 }),
        };
        match self.emblem {
            Emblem::Ring if reach < 0.55 => None,
            _ if reach >= 1.0 => None,
            _ => Some(reach > 0.85),
        }
    }

    /// Letters are 3 by 5 cells.
    fn in_word(&self, u: f32, v: f32) -> bool {
        let row = (v - self.word_at) / self.word_height * 5.0;
        let cells = self.letters.len() as f32 * 4.0;
        let column = (u - 0.1) / 0.8 * cells;
        if !(0.0..5.0).contains(&row) || column < 0.0 || column >= cells {
            return false;
        }
        let (letter, cell) = (column as usize / 4, column as u32 % 4);
        cell < 3 && (self.letters[letter] >> (row as u32 * 3 + cell)) & 1 == 1
    }
}

/// A picture of one pack, cut at its edges.
///
/// Pictures of one `sku_seed` show the same print; `view_seed` decides light, a slight crop and
/// turn, and sensor noise. Equal arguments give equal bytes. Sides of 0 are taken as 1.
pub fn pack(sku_seed: u64, view_seed: u64, width_px: u32, height_px: u32) -> RgbImage {
    pack_of(
        &PackArt::new(sku_seed),
        sku_seed,
        view_seed,
        width_px,
        height_px,
    )
}

fn pack_of(art: &PackArt, sku_seed: u64, view_seed: u64, width: u32, height: u32) -> RgbImage {
    let (width, height) = (width.max(1), height.max(1));
    let mut rng = Seeded::of(&[0x7669_6577, sku_seed, view_seed]);
    let (gain, warmth) = (rng.range(0.78, 1.12), rng.range(-0.06, 0.06));
    let (light_x, light_y) = (rng.range(-0.15, 0.15), rng.range(-0.15, 0.15));
    let (sin, cos) = rng.range(-0.05, 0.05).sin_cos();
    let zoom = rng.range(0.94, 1.02);
    let (shift_x, shift_y) = (rng.range(-0.02, 0.02), rng.range(-0.02, 0.02));
    let noise = rng.range(0.0, 0.02);
    let aspect = height as f32 / width as f32;
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..height {
        for x in 0..width {
            let mut sum = [0.0f32; 3];
            for (dx, dy) in [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)] {
                let px = (x as f32 + dx) / width as f32 - 0.5;
                let py = ((y as f32 + dy) / height as f32 - 0.5) * aspect;
                let u = (px * cos - py * sin) * zoom + 0.5 + shift_x;
                let v = (px * sin + py * cos) * zoom / aspect + 0.5 + shift_y;
                let colour = art.colour_at(u.clamp(0.0, 0.999), v.clamp(0.0, 0.999));
                for (s, c) in sum.iter_mut().zip(colour) {
                    *s += c * 0.25;
                }
            }
            let light = gain
                + light_x * (x as f32 / width as f32 - 0.5)
                + light_y * (y as f32 / height as f32 - 0.5);
            for (value, tint) in sum.iter().zip([1.0 + warmth, 1.0, 1.0 - warmth]) {
                let lit = value * light * tint + rng.range(-noise, noise);
                pixels.push((lit.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
            }
        }
    }
    picture(width, height, pixels)
}

/// A picture from a buffer that was filled pixel by pixel for just this size.
pub(crate) fn picture(width: u32, height: u32, pixels: Vec<u8>) -> RgbImage {
    match RgbImage::new(width, height, pixels) {
        Ok(image) => image,
        Err(error) => unreachable!("the buffer was made for this size: {error}"),
    }
}

fn mix(a: Rgb, b: Rgb, share: f32) -> Rgb {
    [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * share)
}

/// Hue in turns (any number), saturation and value 0 to 1.
fn hsv(hue: f32, saturation: f32, value: f32) -> Rgb {
    [5.0f32, 3.0, 1.0].map(|offset| {
        let k = (offset + hue.rem_euclid(1.0) * 6.0).rem_euclid(6.0);
        value - value * saturation * k.min(4.0 - k).clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean absolute difference after the mean of each picture is taken off.
    fn distance(a: &RgbImage, b: &RgbImage) -> f32 {
        let mean = |i: &RgbImage| {
            i.pixels().iter().map(|&p| f32::from(p)).sum::<f32>() / i.pixels().len() as f32
        };
        let (ma, mb) = (mean(a), mean(b));
        a.pixels()
            .iter()
            .zip(b.pixels())
            .map(|(&p, &q)| (f32::from(p) - ma - f32::from(q) + mb).abs())
            .sum::<f32>()
            / a.pixels().len() as f32
    }

    #[test]
    fn equal_arguments_give_equal_bytes_and_another_view_does_not() {
        assert_eq!(pack(3, 1, 40, 60), pack(3, 1, 40, 60));
        assert_ne!(pack(3, 1, 40, 60), pack(3, 2, 40, 60));
        assert_eq!(pack(3, 1, 0, 0).width(), 1);
    }

    #[test]
    fn a_second_view_of_a_sku_is_nearest_to_its_first_among_sixty() {
        let views = |view| (0..60u64).map(move |sku| pack(sku, view, 24, 36));
        let first: Vec<_> = views(0).collect();
        let right = views(1)
            .enumerate()
            .filter(|(sku, view)| {
                let nearest = (0..first.len()).min_by(|&a, &b| {
                    distance(view, &first[a]).total_cmp(&distance(view, &first[b]))
                });
                nearest == Some(*sku)
            })
            .count();
        assert!(right >= 58, "{right} of 60");
    }

    #[test]
    fn hues_give_the_six_known_colours() {
        assert_eq!(hsv(0.0, 1.0, 1.0), [1.0, 0.0, 0.0]);
        assert_eq!(hsv(1.0 / 3.0, 1.0, 1.0), [0.0, 1.0, 0.0]);
        assert_eq!(hsv(-1.0 / 3.0, 1.0, 1.0), [0.0, 0.0, 1.0]);
    }
}
