//! What fills a front behind its words.

use super::{Design, print_of};
use crate::{
    canvas::{Canvas, Picture, Point, mix},
    seeded::Seeded,
};

impl Design {
    pub(super) fn draw_ground(&self, c: &mut Canvas, rng: &mut Seeded, pictures: &[Picture]) {
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
}
