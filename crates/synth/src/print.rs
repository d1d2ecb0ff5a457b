//! Procedural packaging print: brand, layout, ground, pictures and small print of a SKU.
//!
//! A *family* of SKUs shares brand, layout and type; its *variants* differ in accent colours,
//! picture and the words under the brand, as flavours of one product do.

use std::borrow::Cow;

use crate::{
    canvas::{Canvas, Picture, Point, Rgb, hsv, luma, mix, scale},
    font::Face,
    seeded::Seeded,
};

const WHITE: Rgb = [0.97, 0.97, 0.95];
const BLACK: Rgb = [0.05, 0.05, 0.07];

/// Everything that decides what is printed on a SKU.
#[derive(Clone, Debug)]
pub(crate) struct Design {
    /// Ground, second colour, accent, ink.
    pub(crate) palette: [Rgb; 4],
    /// Accent of the variant.
    pub(crate) accent: Rgb,
    brand: String,
    brand_face: Face,
    sub: String,
    sub_face: Face,
    layout: u32,
    ground: u32,
    motif: u32,
    foreign: bool,
    family_seed: u64,
    variant_seed: u64,
}

fn syllables(rng: &mut Seeded, low: u32, high: u32) -> String {
    const FIRST: &[&str] = &[
        "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z",
        "br", "ch", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "st", "tr", "th",
    ];
    const MIDDLE: &[&str] = &[
        "a", "e", "i", "o", "u", "a", "e", "o", "ee", "oo", "ia", "y",
    ];
    const LAST: &[&str] = &["", "", "", "", "n", "l", "r", "s", "t", "x", "m"];
    let mut word = String::new();
    for _ in 0..low + rng.below(high - low) {
        word.push_str(rng.pick(FIRST));
        word.push_str(rng.pick(MIDDLE));
        if rng.chance(0.3) {
            word.push_str(rng.pick(LAST));
        }
    }
    word
}

fn cased(rng: &mut Seeded, word: String) -> String {
    if rng.chance(0.45) {
        word.to_uppercase()
    } else if rng.chance(0.75) {
        let mut letters = word.chars();
        letters
            .next()
            .map(|c| c.to_uppercase().collect::<String>() + letters.as_str())
            .unwrap_or_default()
    } else {
        word
    }
}

fn face(rng: &mut Seeded) -> Face {
    Face {
        stretch: rng.range(0.65, 1.35),
        slant: if rng.chance(0.35) {
            rng.range(0.05, 0.35)
        } else {
            0.0
        },
        weight: rng.range(0.05, 0.16),
        spacing: rng.range(-0.1, 1.0),
    }
}

fn palette(rng: &mut Seeded) -> [Rgb; 4] {
    let (kind, hue) = (rng.unit(), rng.unit());
    let base = if kind < 0.28 {
        hsv(hue, rng.range(0.0, 0.15), rng.range(0.85, 1.0))
    } else if kind < 0.4 {
        hsv(hue, rng.range(0.1, 0.9), rng.range(0.04, 0.25))
    } else if kind < 0.5 {
        hsv(
            rng.range(0.05, 0.12),
            rng.range(0.3, 0.6),
            rng.range(0.45, 0.8),
        )
    } else if kind < 0.66 {
        // Packaging favours red and yellow.
        hsv(
            rng.range(-0.04, 0.16),
            rng.range(0.75, 1.0),
            rng.range(0.6, 1.0),
        )
    } else {
        hsv(hue, rng.range(0.4, 1.0), rng.range(0.35, 1.0))
    };
    let step = rng.pick(&[0.0, 0.08, 0.33, 0.5, 0.6]) + rng.range(-0.05, 0.05);
    let second = if rng.chance(0.2) {
        hsv(hue, rng.range(0.0, 0.2), rng.range(0.8, 1.0))
    } else {
        hsv(hue + step, rng.range(0.3, 1.0), rng.range(0.2, 1.0))
    };
    let accent = hsv(rng.unit(), rng.range(0.5, 1.0), rng.range(0.5, 1.0));
    let ink = if luma(base) < 0.55 {
        if rng.chance(0.75) {
            WHITE
        } else {
            hsv(rng.range(0.1, 0.17), rng.range(0.3, 0.9), 1.0)
        }
    } else if rng.chance(0.6) {
        hsv(rng.unit(), rng.range(0.3, 1.0), rng.range(0.05, 0.4))
    } else {
        BLACK
    };
    [base, second, accent, ink]
}

impl Design {
    pub(crate) fn new(family: u64, variant: u32) -> Self {
        let mut rng = Seeded::of(&[0x6465_7369, family]);
        let mut colours = palette(&mut rng);
        let brand = syllables(&mut rng, 1, 4);
        let brand = cased(&mut rng, brand);
        let brand_face = Face {
            weight: rng.range(0.07, 0.19),
            ..face(&mut rng)
        };
        let (layout, ground) = (rng.below(12), rng.below(14));
        let foreign = rng.chance(0.3);
        let family_seed = rng.next_u64();
        let mut own = Seeded::of(&[0x7661_7269, family, u64::from(variant)]);
        let sub = syllables(&mut own, 2, 4);
        let sub = cased(&mut own, sub);
        let sub_face = face(&mut own);
        if variant > 0 {
            let other = palette(&mut own);
            match own.below(4) {
                0 | 1 => colours = [colours[0], other[2], other[1], colours[3]],
                2 => colours[1] = other[1],
                _ => colours = [other[0], colours[1], colours[2], other[3]],
            }
        }
        Self {
            palette: colours,
            accent: hsv(own.unit(), own.range(0.4, 1.0), own.range(0.4, 1.0)),
            brand,
            brand_face,
            sub,
            sub_face,
            layout,
            ground,
            motif: own.below(8),
            foreign,
            family_seed,
            variant_seed: own.next_u64(),
        }
    }

    /// Brand and the words under it, as read from the pack.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.brand, self.sub)
    }

    /// The same print with another panel's layout: what stands on the side of a box.
    pub(crate) fn side_panel(&self) -> Self {
        Self {
            layout: (self.layout + 5) % 12,
            family_seed: self.family_seed ^ 0x5151,
            motif: 7,
            ..self.clone()
        }
    }

    /// Draws the front, `w` x `h` px.
    pub(crate) fn draw(&self, w: usize, h: usize, pictures: &[Picture]) -> Canvas {
        let mut canvas = Canvas::new(w, h, self.palette[0]);
        let mut rng = Seeded::new(self.family_seed);
        let mut own = Seeded::new(self.variant_seed);
        self.draw_ground(&mut canvas, &mut rng, pictures);
        self.draw_motif(&mut canvas, &mut own, pictures);
        self.draw_words(&mut canvas, &mut rng, &mut own);
        self.draw_small(&mut canvas, &mut rng, &mut own);
        canvas
    }

    fn draw_ground(&self, c: &mut Canvas, rng: &mut Seeded, pictures: &[Picture]) {
        let [base, second, accent, _] = self.palette;
        let (w, h) = (c.w as f32, c.h as f32);
        match self.ground {
            1 => {
                let turn = rng.chance(0.3);
                c.paint(
                    [0.0, 0.0, w, h],
                    |_, _| 1.0,
                    |x, y| mix(base, second, if turn { x / w } else { y / h }),
                );
            }
            2 => {
                let y = h * rng.range(0.25, 0.75);
                c.rect([0.0, y, w, h], second);
            }
            3 => {
                for i in 0..2 + rng.below(4) {
                    let y = rng.range(0.0, h);
                    c.rect(
                        [0.0, y, w, y + h * rng.range(0.02, 0.12)],
                        if i % 2 == 0 { second } else { accent },
                    );
                }
            }
            4 => {
                let step = (w * rng.range(0.08, 0.3)).max(3.0);
                let lean = rng.range(-1.0, 1.0) * h;
                let mut x = -2.0 * w - h;
                while x < 3.0 * w {
                    c.polygon(
                        &[
                            (x, 0.0),
                            (x + step, 0.0),
                            (x + step + lean, h),
                            (x + lean, h),
                        ],
                        second,
                        1.0,
                    );
                    x += step * 2.0;
                }
            }
            5 => {
                let (y, a) = (h * rng.range(0.3, 0.8), h * rng.range(0.03, 0.15));
                let (f, p) = (rng.range(1.0, 4.0), rng.range(0.0, 6.0));
                for (shift, colour) in [(0.0, accent), (0.06 * h, second)] {
                    let mut wave: Vec<Point> = (0..=20)
                        .map(|i| {
                            let x = w * i as f32 / 20.0;
                            (x, y + shift + a * (p + f * x / w * 3.0).sin())
                        })
                        .collect();
                    wave.extend([(w, h), (0.0, h)]);
                    c.polygon(&wave, colour, 1.0);
                }
            }
            6 => {
                let picture = print_of(rng, pictures);
                let share = if rng.chance(0.5) { 0.4 } else { 0.0 };
                let (u0, v0, span) = (
                    rng.range(0.0, 0.3),
                    rng.range(0.0, 0.3),
                    rng.range(0.5, 0.7),
                );
                c.paint(
                    [0.0, 0.0, w, h],
                    |_, _| 1.0,
                    |x, y| {
                        mix(
                            picture.at(u0 + x / w * span, v0 + y / h * span),
                            base,
                            share,
                        )
                    },
                );
            }
            7 => {
                if rng.chance(0.5) {
                    c.rect([0.0, 0.0, w * rng.range(0.15, 0.5), h], second);
                } else {
                    c.ellipse((w * 0.5, h * 0.9), (w * 0.8, h * 0.7), second);
                }
            }
            8 => {
                // Rays behind the centre.
                let (cx, cy) = (w * rng.range(0.3, 0.7), h * rng.range(0.3, 0.8));
                let n = 5 + rng.below(9);
                for i in 0..n {
                    let a = std::f32::consts::TAU * i as f32 / n as f32;
                    let b = a + std::f32::consts::PI / n as f32;
                    let r = w + h;
                    c.polygon(
                        &[
                            (cx, cy),
                            (cx + r * a.cos(), cy + r * a.sin()),
                            (cx + r * b.cos(), cy + r * b.sin()),
                        ],
                        mix(base, second, 0.7),
                        1.0,
                    );
                }
            }
            9 => {
                let n = rng.range(3.0, 8.0);
                let step = w / n;
                let r = step * rng.range(0.15, 0.4);
                let mut y = step * 0.5;
                let mut row = 0;
                while y < h + step {
                    let mut x = if row % 2 == 0 { step * 0.5 } else { 0.0 };
                    while x < w + step {
                        c.ellipse((x, y), (r, r), second);
                        x += step;
                    }
                    y += step * 0.8;
                    row += 1;
                }
            }
            10 => {
                // A diagonal half.
                let (a, b) = (h * rng.range(0.1, 0.9), h * rng.range(0.1, 0.9));
                c.polygon(&[(0.0, a), (w, b), (w, h), (0.0, h)], second, 1.0);
                c.stroke(
                    &[((0.0, a), (w, b))],
                    h * rng.range(0.005, 0.03),
                    accent,
                    1.0,
                );
            }
            11 => {
                let t = w.min(h) * rng.range(0.03, 0.09);
                c.round_rect([t, t, w - t, h - t], t * rng.range(0.0, 3.0), second);
                c.round_rect([t * 1.8, t * 1.8, w - t * 1.8, h - t * 1.8], t * 2.0, base);
            }
            12 => {
                let y = h * rng.range(0.12, 0.3);
                c.rect([0.0, 0.0, w, y], second);
                c.rect([0.0, h - y * 0.6, w, h], second);
                c.rect([0.0, y, w, y + h * 0.02], accent);
            }
            _ => {}
        }
    }

    fn draw_motif(&self, c: &mut Canvas, own: &mut Seeded, pictures: &[Picture]) {
        const PLACES: [[f32; 4]; 12] = [
            [0.1, 0.45, 0.9, 0.9],
            [0.05, 0.5, 0.95, 1.0],
            [0.2, 0.4, 0.8, 0.75],
            [0.1, 0.1, 0.9, 0.5],
            [0.0, 0.55, 1.0, 1.0],
            [0.3, 0.35, 0.7, 0.65],
            [0.5, 0.4, 1.0, 0.9],
            [0.0, 0.3, 1.0, 0.75],
            [0.0, 0.35, 0.55, 0.95],
            [0.15, 0.5, 0.85, 0.95],
            [0.1, 0.25, 0.9, 0.7],
            [0.25, 0.55, 0.75, 0.9],
        ];
        let (w, h) = (c.w as f32, c.h as f32);
        let p = PLACES[self.layout as usize % PLACES.len()];
        let b = [p[0] * w, p[1] * h, p[2] * w, p[3] * h];
        let (cx, cy) = ((b[0] + b[2]) * 0.5, (b[1] + b[3]) * 0.5);
        let (rx, ry) = ((b[2] - b[0]) * 0.5, (b[3] - b[1]) * 0.5);
        let colours = [self.palette[2], self.accent, self.palette[1], WHITE];
        match self.motif {
            0..=2 => {
                let picture = print_of(own, pictures);
                let (u0, v0, span) = (
                    own.range(0.0, 0.3),
                    own.range(0.0, 0.3),
                    own.range(0.55, 0.7),
                );
                let paint = |x: f32, y: f32| {
                    picture.at(
                        u0 + (x - b[0]) / (b[2] - b[0]) * span,
                        v0 + (y - b[1]) / (b[3] - b[1]) * span,
                    )
                };
                if own.chance(0.55) {
                    c.ellipse_with((cx, cy), (rx, ry), paint);
                } else {
                    c.paint(b, |_, _| 1.0, paint);
                }
            }
            3 => {
                for _ in 0..2 + own.below(6) {
                    let x = own.range(b[0], b[2]);
                    let y = own.range(b[1], b[3]);
                    let a = own.range(0.08, 0.3) * rx * 2.0;
                    let bb = a * own.range(0.5, 1.4);
                    let colour = own.pick(&colours);
                    match own.below(4) {
                        0 | 1 => c.ellipse((x, y), (a, bb), colour),
                        2 => c.polygon(
                            &[(x, y - bb), (x + a, y + bb), (x - a, y + bb * 0.7)],
                            colour,
                            1.0,
                        ),
                        _ => c.rect([x - a, y - bb, x + a, y + bb], colour),
                    }
                }
            }
            4 => {
                // Round fruit or biscuits with light on them.
                let r = rx.min(ry) * own.range(0.3, 0.6);
                let colour = hsv(
                    own.range(-0.05, 0.4),
                    own.range(0.5, 1.0),
                    own.range(0.5, 1.0),
                );
                for _ in 0..3 + own.below(8) {
                    let (x, y) = (
                        own.range(b[0], b[2]),
                        own.range(b[1] + r, b[3].max(b[1] + r + 1.0)),
                    );
                    let tint = scale(colour, own.range(0.75, 1.1));
                    c.ellipse_with((x, y), (r, r * 0.95), |px, py| {
                        let (dx, dy) = ((px - x) / r + 0.35, (py - y) / r + 0.4);
                        let d = dx * dx + dy * dy;
                        mix(
                            scale(tint, 1.15 - 0.4 * d.min(1.9)),
                            WHITE,
                            (0.5 - d * 4.0).clamp(0.0, 0.5),
                        )
                    });
                }
            }
            5 => {
                let points = 5 + own.below(12);
                let (inner, colour) = (own.range(0.5, 0.85), own.pick(&colours));
                let star: Vec<Point> = (0..points * 2)
                    .map(|i| {
                        let a = std::f32::consts::PI * i as f32 / points as f32 - 1.57;
                        let r = if i % 2 == 0 { 1.0 } else { inner };
                        (cx + rx * r * a.cos(), cy + ry * r * a.sin())
                    })
                    .collect();
                c.polygon(&star, colour, 1.0);
                self.sub_face.draw(
                    c,
                    &self.sub,
                    (cx, cy),
                    (rx * 1.3 / self.sub_face.width(&self.sub)).min(ry * 0.5),
                    0.0,
                    if luma(colour) > 0.5 { BLACK } else { WHITE },
                );
            }
            6 => {
                // A bowl, a leaf or a shield: one strong emblem.
                let colour = own.pick(&colours);
                match own.below(3) {
                    0 => {
                        c.ellipse((cx, cy), (rx * 0.9, ry * 0.25), WHITE);
                        c.ellipse((cx, cy), (rx * 0.78, ry * 0.2), colour);
                        let half: Vec<Point> = (0..=12)
                            .map(|i| {
                                let a = std::f32::consts::PI * i as f32 / 12.0;
                                (cx + rx * 0.9 * a.cos(), cy + ry * 0.8 * a.sin())
                            })
                            .collect();
                        c.polygon(&half, scale(self.accent, 0.9), 1.0);
                    }
                    1 => {
                        for (a, s) in [(-0.5f32, 0.8f32), (0.4, 1.0), (1.2, 0.7)] {
                            let (sn, cs) = a.sin_cos();
                            let leaf: Vec<Point> = (0..=16)
                                .map(|i| {
                                    let t = i as f32 / 16.0 * std::f32::consts::TAU;
                                    let (x, y) =
                                        (t.cos(), t.sin() * (0.35 * (1.0 - t.cos() * 0.6)));
                                    let (x, y) = ((x + 0.8) * 0.6 * s, y * 0.7 * s);
                                    (cx + rx * (x * cs - y * sn), cy + ry * (x * sn + y * cs))
                                })
                                .collect();
                            c.polygon(&leaf, mix(colour, self.palette[1], (a + 0.5) * 0.3), 1.0);
                        }
                    }
                    _ => {
                        c.polygon(
                            &[
                                (cx - rx * 0.8, cy - ry),
                                (cx + rx * 0.8, cy - ry),
                                (cx + rx * 0.8, cy + ry * 0.2),
                                (cx, cy + ry),
                                (cx - rx * 0.8, cy + ry * 0.2),
                            ],
                            self.accent,
                            1.0,
                        );
                        c.ellipse((cx, cy - ry * 0.2), (rx * 0.5, ry * 0.5), colour);
                    }
                }
            }
            _ => c.round_rect(b, rx * own.range(0.0, 0.6), self.accent),
        }
    }

    fn draw_words(&self, c: &mut Canvas, rng: &mut Seeded, own: &mut Seeded) {
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

    fn draw_small(&self, c: &mut Canvas, rng: &mut Seeded, own: &mut Seeded) {
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
                    let (r, from) = (rng.range(0.2, 0.45), rng.range(0.0, 6.28));
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

/// A photograph when there are any, else a drawn one.
fn print_of<'p>(rng: &mut Seeded, pictures: &'p [Picture]) -> Cow<'p, Picture> {
    let pick = rng.next_u64();
    // A family that was drawn with photographs keeps some of its pictures drawn.
    if !pictures.is_empty() && pick % 8 < 6 {
        return Cow::Borrowed(&pictures[(pick / 8 % pictures.len() as u64) as usize]);
    }
    Cow::Owned(drawn_picture(&mut Seeded::new(pick)))
}

/// A picture of round things on a soft ground, 48 px a side.
pub(crate) fn drawn_picture(rng: &mut Seeded) -> Picture {
    let side = 48usize;
    let (a, b) = (
        hsv(rng.unit(), rng.range(0.1, 0.9), rng.range(0.3, 1.0)),
        hsv(rng.unit(), rng.range(0.1, 0.8), rng.range(0.2, 0.9)),
    );
    let mut c = Canvas::new(side, side, a);
    c.paint(
        [0.0, 0.0, 48.0, 48.0],
        |_, _| 1.0,
        |x, y| mix(a, b, (x + y) / 96.0),
    );
    let colour = hsv(rng.unit(), rng.range(0.4, 1.0), rng.range(0.4, 1.0));
    for _ in 0..4 + rng.below(14) {
        let (x, y, r) = (
            rng.range(0.0, 48.0),
            rng.range(0.0, 48.0),
            rng.range(3.0, 12.0),
        );
        let tint = scale(mix(colour, b, rng.range(0.0, 0.4)), rng.range(0.7, 1.15));
        let squash = rng.range(0.5, 1.0);
        c.ellipse_with((x, y), (r, r * squash), |px, py| {
            let (dx, dy) = ((px - x) / r + 0.35, (py - y) / r + 0.4);
            let d = dx * dx + dy * dy;
            mix(
                scale(tint, 1.2 - 0.45 * d.min(2.0)),
                WHITE,
                (0.5 - d * 4.0).clamp(0.0, 0.4),
            )
        });
    }
    let pixels =
        c.px.iter()
            .map(|p| p.map(|v| (v.clamp(0.0, 1.0) * 255.0) as u8))
            .collect();
    Picture { side, pixels }
}
