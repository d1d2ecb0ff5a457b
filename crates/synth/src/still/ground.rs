//! What lies behind the products and between them.

use super::Build;
use crate::{
    canvas::{Canvas, hsv, scale},
    field::Field,
    font::Face,
    lens::{self, Homography},
    seeded::Seeded,
    sprite::Sprite,
    stage::{Put, Stage},
};

impl Build<'_> {
    pub(super) fn backdrop(&mut self, rng: &mut Seeded) {
        let s = self.side;
        match rng.weighted(&[0.65, 0.17, 0.18]) {
            0 => {
                let base = hsv(rng.unit(), rng.range(0.0, 0.25), rng.range(0.05, 0.9));
                let (top, low) = (rng.range(0.5, 1.0), rng.range(0.5, 1.0));
                self.stage.fill([0.0, 0.0, s, s], |_, y| {
                    scale(base, top + (low - top) * y / s)
                });
            }
            1 => {
                let fields = [(); 3].map(|()| Field::new(rng, 5, 5));
                self.stage.fill([0.0, 0.0, s, s], |x, y| {
                    [0, 1, 2].map(|c| (0.45 + 0.25 * fields[c].at(x / s, y / s)).clamp(0.0, 1.0))
                });
            }
            _ => {
                let drawn = crate::print::drawn_picture(rng);
                let picture = if self.pictures.is_empty() {
                    &drawn
                } else {
                    &self.pictures[rng.below(self.pictures.len() as u32) as usize]
                };
                let dim = rng.range(0.3, 1.0);
                let smooth = Stage {
                    w: picture.side,
                    h: picture.side,
                    px: picture
                        .pixels
                        .iter()
                        .map(|p| p.map(|v| f32::from(v) / 255.0))
                        .collect(),
                    ids: vec![0; picture.side * picture.side],
                };
                let k = picture.side as f32 / s;
                let view = Homography([
                    f64::from(k),
                    0.0,
                    0.0,
                    0.0,
                    f64::from(k),
                    0.0,
                    0.0,
                    0.0,
                    1.0,
                ]);
                self.stage = lens::warp(&smooth, &view, self.stage.w, self.stage.h);
                self.stage.tint([0.0, 0.0, s, s], |p, _, _| scale(p, dim));
            }
        }
    }

    /// Things that are no product: shapes, lines, posters with words.
    pub(super) fn clutter(&mut self, rng: &mut Seeded, count: u32) {
        let s = self.side;
        for _ in 0..count {
            let colour = [rng.unit(), rng.unit(), rng.unit()];
            let (x, y) = (rng.range(-0.06, 1.0) * s, rng.range(-0.06, 1.0) * s);
            let (w, h) = (rng.range(0.03, 0.5) * s, rng.range(0.03, 0.5) * s);
            let kind = rng.below(6);
            let mut c = Canvas::new(w as usize + 2, h as usize + 2, colour);
            if kind == 0 {
                for _ in 0..=rng.below(5) {
                    let face = Face {
                        stretch: rng.range(0.6, 1.3),
                        slant: rng.range(0.0, 0.2),
                        weight: rng.range(0.06, 0.15),
                        spacing: 0.3,
                    };
                    let word: String = (0..2 + rng.below(7))
                        .map(|_| char::from(b'A' + rng.below(26) as u8))
                        .collect();
                    let ink = [rng.unit(), rng.unit(), rng.unit()];
                    face.draw(
                        &mut c,
                        &word,
                        (w * rng.unit(), h * rng.unit()),
                        rng.range(0.02, 0.1) * s,
                        0.0,
                        ink,
                    );
                }
            } else if rng.chance(0.4) {
                let field = Field::new(rng, 6, 6);
                let (cw, ch) = (c.w as f32, c.h as f32);
                c.paint(
                    [0.0, 0.0, cw, ch],
                    |_, _| 1.0,
                    |x, y| scale(colour, 0.9 + 0.25 * field.at(x / cw, y / ch)),
                );
            }
            let (cw, ch) = (c.w, c.h);
            let pin: Vec<f32> = (0..6).map(|_| rng.range(0.4, 1.0)).collect();
            let thin = rng.range(0.01, 0.08);
            let turn = rng.range(-1.6, 1.6);
            let sprite = Sprite::from_fn(cw, ch, |x, y| {
                let (dx, dy) = (x / cw as f32 * 2.0 - 1.0, y / ch as f32 * 2.0 - 1.0);
                let cover = match kind {
                    1 => {
                        if dx * dx + dy * dy < 1.0 {
                            1.0
                        } else {
                            0.0
                        }
                    }
                    2 => {
                        if dy.abs() < thin * 2.0 {
                            1.0
                        } else {
                            0.0
                        }
                    }
                    3 => {
                        let angle = (dy.atan2(dx) / std::f32::consts::TAU + 0.5) * 6.0;
                        let (a, f) = ((angle as usize) % 6, angle.fract());
                        let r = pin[a] + (pin[(a + 1) % 6] - pin[a]) * f;
                        if (dx * dx + dy * dy).sqrt() < r {
                            1.0
                        } else {
                            0.0
                        }
                    }
                    _ => 1.0,
                };
                (c.px[y as usize * cw + x as usize], cover)
            });
            let mut at = Put::new(x, y, w, h);
            at.turn = if kind == 0 {
                turn * 0.05
            } else if kind < 4 {
                turn
            } else {
                0.0
            };
            self.stage.put(&sprite, at, 0);
        }
    }
}
