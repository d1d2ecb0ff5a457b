//! The picture on a front: a photograph, fruit, a star, an emblem.

use super::{BLACK, Design, WHITE, print_of};
use crate::{
    canvas::{Canvas, Picture, Point, hsv, luma, mix, scale},
    seeded::Seeded,
};

impl Design {
    pub(super) fn draw_motif(&self, c: &mut Canvas, own: &mut Seeded, pictures: &[Picture]) {
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
}
