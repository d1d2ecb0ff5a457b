//! Brand, the words under it, small print and bars.

use super::{BLACK, Design, WHITE, syllables};
use crate::{
    canvas::{Canvas, Point, Rgb, luma, mix},
    font::Face,
    seeded::Seeded,
};

/// Draws bars of random widths.
pub(crate) fn barcode(c: &mut Canvas, rng: &mut Seeded, b: [f32; 4]) {
    c.rect(b, WHITE);
    let mut x = b[0] + 1.0;
    let unit = ((b[2] - b[0]) / 40.0).max(0.5);
    while x < b[2] - 1.0 {
        let bar = unit * (1 + rng.below(3)) as f32;
        c.rect(
            [x, b[1] + 1.0, (x + bar).min(b[2] - 1.0), b[3] - 1.0],
            BLACK,
        );
        x += bar + unit * (1 + rng.below(3)) as f32;
    }
}

/// Square signs of a script that is not Latin: a few strokes each in a box.
fn signs(
    c: &mut Canvas,
    mut rng: Seeded,
    centre: Point,
    size: f32,
    half: f32,
    upright: bool,
    ink: Rgb,
) {
    let count = ((half * 2.0 / (size * 1.15)) as u32).clamp(1, 7);
    let weight = size * rng.range(0.055, 0.12);
    for i in 0..count {
        let shift = (i as f32 - (count - 1) as f32 * 0.5) * size * 1.15;
        let (x0, y0) = if upright {
            (centre.0 - size * 0.5, centre.1 + shift - size * 0.5)
        } else {
            (centre.0 + shift - size * 0.5, centre.1 - size * 0.5)
        };
        let mut strokes = Vec::new();
        let place = |p: Point| (x0 + p.0 * size, y0 + p.1 * size);
        let grid = |rng: &mut Seeded| rng.below(5) as f32 / 4.0;
        let dense = rng.chance(0.5);
        for _ in 0..if dense {
            4 + rng.below(5)
        } else {
            2 + rng.below(3)
        } {
            let (a, b) = (grid(&mut rng), grid(&mut rng));
            match rng.below(7) {
                0 | 1 => {
                    let (l, r) = (rng.range(0.0, 0.4), rng.range(0.6, 1.0));
                    strokes.push((place((l, a)), place((r, a))));
                }
                2 | 3 => {
                    let (t, d) = (rng.range(0.0, 0.5), rng.range(0.6, 1.0));
                    strokes.push((place((a, t)), place((a, d))));
                }
                4 => strokes.push((place((a, rng.range(0.0, 0.5))), place((b, 1.0)))),
                5 => strokes.push((place((a, b)), place((a + 0.15, b + 0.2)))),
                _ => {
                    // A hook, as cursive signs have.
                    let (r, from) = (rng.range(0.2, 0.45), rng.range(0.0, std::f32::consts::TAU));
                    let point = |i: u32| {
                        let t = from + i as f32 * 0.8;
                        place((0.5 + r * t.cos(), 0.55 + r * t.sin()))
                    };
                    strokes.extend((0..5).map(|i| (point(i), point(i + 1))));
                }
            }
        }
        c.stroke(&strokes, weight, ink, 1.0);
    }
}

impl Design {
    pub(super) fn draw_words(&self, c: &mut Canvas, rng: &mut Seeded, own: &mut Seeded) {
        const BRAND_AT: [f32; 12] = [
            0.2, 0.28, 0.15, 0.7, 0.25, 0.12, 0.2, 0.15, 0.16, 0.3, 0.12, 0.35,
        ];
        let (w, h) = (c.w as f32, c.h as f32);
        let upright = h > w * 1.9 && rng.chance(0.4);
        let (room, along) = if upright { (h * 0.8, w) } else { (w * 0.88, h) };
        let long = self.brand_face.width(&self.brand).max(0.8);
        let size =
            (room / long * rng.range(0.6, 1.0)).min(along * if upright { 0.4 } else { 0.24 });
        let y = if upright {
            h * 0.45
        } else {
            (BRAND_AT[self.layout as usize % 12] * h).max(size * 0.75)
        };
        let centre = (
            w * 0.5
                + if rng.chance(0.2) {
                    w * rng.range(-0.06, 0.06)
                } else {
                    0.0
                },
            y,
        );
        let turn = if upright {
            -std::f32::consts::FRAC_PI_2
        } else if rng.chance(0.2) {
            rng.range(-0.2, 0.2)
        } else {
            0.0
        };
        let half = long * size * 0.5;
        let mut ink = self.palette[3];
        let plated = rng.chance(0.55);
        if plated {
            let plate = if rng.chance(0.7) {
                self.palette[2]
            } else {
                self.palette[1]
            };
            let (px, py) = if upright {
                (size * 0.85, half * 1.12)
            } else {
                (half * 1.15, size * 0.85)
            };
            let b = [centre.0 - px, y - py, centre.0 + px, y + py];
            match rng.below(4) {
                0 => c.ellipse(centre, (px * 1.1, py * 1.15), plate),
                1 => c.round_rect(b, size * 0.4, plate),
                2 => c.rect([0.0, b[1], w, b[3]], plate),
                _ => c.rect(b, plate),
            }
            ink = if luma(plate) < 0.5 {
                WHITE
            } else {
                mix(BLACK, self.palette[1], 0.2)
            };
        }
        let arch = if upright || plated {
            0.0
        } else {
            rng.range(-0.1, 0.5).max(0.0)
        };
        if self.foreign {
            signs(
                c,
                Seeded::new(self.family_seed),
                centre,
                size,
                half,
                upright,
                ink,
            );
        } else {
            if rng.chance(0.25) && size > 7.0 {
                let back = if luma(ink) > 0.5 { BLACK } else { WHITE };
                let bold = Face {
                    weight: self.brand_face.weight + 0.07,
                    ..self.brand_face
                };
                bold.draw_arched(c, &self.brand, centre, size, turn, arch, back);
            }
            self.brand_face
                .draw_arched(c, &self.brand, centre, size, turn, arch, ink);
        }
        // The variant's own words.
        let sub_long = self.sub_face.width(&self.sub).max(0.8);
        let sub_size = (size * rng.range(0.4, 0.75))
            .min(w * 0.85 / sub_long)
            .min(h * 0.14);
        let sub_y = if upright {
            h * rng.range(0.9, 0.95)
        } else {
            y + size * rng.range(0.9, 1.5)
        };
        let colour = if own.chance(0.3) {
            self.accent
        } else {
            self.palette[3]
        };
        if own.chance(0.35) {
            let (px, py) = (sub_long * sub_size * 0.58, sub_size * 0.8);
            c.round_rect(
                [w * 0.5 - px, sub_y - py, w * 0.5 + px, sub_y + py],
                sub_size * 0.3,
                self.accent,
            );
            self.sub_face.draw(
                c,
                &self.sub,
                (w * 0.5, sub_y),
                sub_size,
                0.0,
                if luma(self.accent) > 0.5 {
                    BLACK
                } else {
                    WHITE
                },
            );
        } else if self.foreign && own.chance(0.7) {
            signs(
                c,
                own.clone(),
                (w * 0.5, sub_y),
                sub_size,
                sub_long * sub_size * 0.5,
                false,
                colour,
            );
        } else {
            self.sub_face
                .draw(c, &self.sub, (w * 0.5, sub_y), sub_size, 0.0, colour);
        }
    }

    pub(super) fn draw_small(&self, c: &mut Canvas, rng: &mut Seeded, own: &mut Seeded) {
        let (w, h) = (c.w as f32, c.h as f32);
        let ink = self.palette[3];
        for _ in 0..rng.below(5) {
            let text = syllables(own, 2, 6);
            let size = h * rng.range(0.02, 0.05);
            self.sub_face.draw(
                c,
                &text,
                (w * rng.range(0.2, 0.8), h * rng.range(0.05, 0.97)),
                size,
                0.0,
                ink,
            );
        }
        if rng.chance(0.3) {
            let (x, y) = (w * rng.range(0.05, 0.7), h * rng.range(0.6, 0.9));
            let fill = rng.pick(&[self.palette[2], WHITE, self.accent]);
            c.rect([x, y, x + w * 0.25, y + h * 0.08], fill);
            self.sub_face.draw(
                c,
                "250",
                (x + w * 0.125, y + h * 0.04),
                h * 0.045,
                0.0,
                if luma(fill) > 0.5 { BLACK } else { WHITE },
            );
        }
        if own.chance(0.3) {
            let (x, y, r) = (
                w * own.range(0.15, 0.85),
                h * own.range(0.1, 0.9),
                w.min(h) * own.range(0.1, 0.22),
            );
            c.ellipse((x, y), (r, r), self.accent);
            let word = own.pick(&["NEW", "BIO", "2X", "50%", "PLUS", "0%", "XL"]);
            let face = Face {
                stretch: 0.8,
                slant: 0.0,
                weight: 0.11,
                spacing: 0.0,
            };
            face.draw(
                c,
                word,
                (x, y),
                r * 0.6,
                own.range(-0.3, 0.3),
                if luma(self.accent) > 0.5 {
                    BLACK
                } else {
                    WHITE
                },
            );
        }
        if rng.chance(0.2) {
            let (x, y) = (w * rng.range(0.5, 0.7), h * rng.range(0.8, 0.9));
            barcode(c, rng, [x, y, x + w * 0.25, y + h * 0.08]);
        }
    }
}
