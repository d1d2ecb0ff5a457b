//! Rows of products on boards, with tags.

use super::{Build, MAX_OBJECTS};
use crate::{
    canvas::{Rgb, hsv, mix, scale},
    seeded::Seeded,
    shapes,
    sku::{Category, PRICE_TAG, Sku},
    sprite::Sprite,
    stage::{Put, Stage},
    tag::price_tag,
};

struct Board {
    colour: Rgb,
    thick: f32,
    depth: f32,
    rail: bool,
    slots: f32,
    grooved: bool,
}

/// The room behind the products of a row.
struct Inside {
    dark: (f32, f32),
    colour: Option<Rgb>,
    holes: f32,
}

impl Inside {
    fn new(rng: &mut Seeded) -> Self {
        Self {
            dark: (rng.range(0.1, 0.6), rng.range(0.4, 1.0)),
            colour: rng.chance(0.65).then(|| {
                let value = if rng.chance(0.5) {
                    rng.range(0.05, 0.3)
                } else {
                    rng.range(0.4, 0.95)
                };
                hsv(rng.unit(), rng.range(0.0, 0.12), value)
            }),
            holes: if rng.chance(0.2) {
                rng.range(6.0, 24.0)
            } else {
                0.0
            },
        }
    }

    fn draw(&self, stage: &mut Stage, rng: &mut Seeded, top: f32, low: f32, s: f32) {
        let (a, b) = self.dark;
        let (colour, holes) = (self.colour, self.holes);
        let jitter = rng.range(0.85, 1.15);
        stage.tint([0.0, top, s, low], |p, x, y| {
            let v = ((y - top) / (low - top).max(1.0)).clamp(0.0, 1.0);
            let mut wall = colour.map_or(p, |c| mix(p, c, 0.9));
            if holes > 0.0 && (x % holes) < 1.6 && (y % holes) < 1.6 {
                wall = scale(wall, 0.4);
            }
            scale(wall, (a + (b - a) * v) * jitter)
        });
    }
}

impl Build<'_> {
    pub(super) fn shelf(&mut self, rng: &mut Seeded) {
        let s = self.side;
        let rows = if self.zoom {
            1.0 + rng.unit()
        } else {
            [1.0, 2.0, 3.0, 4.0, 5.0][rng.weighted(&[0.1, 0.25, 0.3, 0.22, 0.13])]
        };
        let pitch = s / rows * rng.range(0.85, 1.25);
        let board = Board {
            colour: match rng.weighted(&[0.45, 0.15, 0.2, 0.2]) {
                0 => hsv(rng.unit(), rng.range(0.0, 0.06), rng.range(0.7, 1.0)),
                1 => hsv(rng.unit(), rng.range(0.0, 0.1), rng.range(0.15, 0.5)),
                2 => hsv(
                    rng.range(0.02, 0.1),
                    rng.range(0.3, 0.7),
                    rng.range(0.2, 0.6),
                ),
                _ => hsv(rng.unit(), rng.range(0.3, 0.8), rng.range(0.3, 0.9)),
            },
            thick: pitch * rng.range(0.03, 0.14),
            depth: if rng.chance(0.5) {
                pitch * rng.range(0.01, 0.09)
            } else {
                0.0
            },
            rail: rng.chance(0.3),
            slots: if rng.chance(0.5) {
                5.0 + rng.unit() * 35.0
            } else {
                0.0
            },
            grooved: rng.chance(0.3),
        };
        let tag_chance = [0.0, 0.45, 0.92][rng.weighted(&[0.15, 0.3, 0.55])];
        let tag_h = (board.thick * rng.range(0.8, 1.6))
            .min(pitch * 0.14)
            .max(6.0);
        let tag_seed = rng.next_u64();
        let gap = rng.range(-0.02, 0.06);
        let themed = rng.chance(0.6);
        let inside = Inside::new(rng);
        let mut y = pitch * rng.range(0.55, 1.05);
        while y - pitch < s {
            let top = y - pitch + board.thick;
            inside.draw(&mut self.stage, rng, top, y, s);
            let mut tags = Vec::new();
            self.board_top(&board, y);
            self.row(
                rng,
                top,
                y - board.depth,
                gap,
                themed,
                &mut tags,
                board.depth,
            );
            self.board_front(&board, y, rng);
            for x in tags {
                if rng.chance(tag_chance) {
                    // Tags of one shelf are of one make.
                    let style = tag_seed
                        .wrapping_add(u64::from([0, 0, 0, 1, 2][rng.below(5) as usize] as u8));
                    let mut height = tag_h * (1.0 + rng.normal() * 0.06);
                    if rng.chance(0.04) {
                        height *= 1.8;
                    }
                    let tag = price_tag(style, rng, height * 1.2);
                    let w =
                        height * tag.w as f32 / tag.h as f32 * (self.squash * 1.1).clamp(0.7, 1.4);
                    let at = Put {
                        gain: rng.range(0.88, 1.05),
                        turn: if rng.chance(0.1) {
                            rng.normal() * 0.06
                        } else {
                            0.0
                        },
                        ..Put::new(
                            x + rng.range(0.0, 0.05) * s,
                            y + (board.thick - height) * rng.range(0.2, 0.8),
                            w,
                            height,
                        )
                    };
                    self.add(&tag, at, PRICE_TAG, None);
                }
            }
            y += pitch;
        }
        if rng.chance(0.2) {
            self.post(rng);
        }
        if rng.chance(0.18) {
            self.banner(rng, pitch);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn row(
        &mut self,
        rng: &mut Seeded,
        top: f32,
        floor: f32,
        gap: f32,
        themed: bool,
        tags: &mut Vec<f32>,
        depth: f32,
    ) {
        let s = self.side;
        let clear = floor - top;
        if clear < 8.0 {
            return;
        }
        let theme = themed.then(|| self.category(rng));
        let base = clear * rng.range(0.5, 0.93);
        let family_theme = rng.chance(0.3);
        let (hanging, trays) = (rng.chance(0.25), rng.chance(0.3));
        let mut last = None;
        let mut x = -rng.range(0.0, 0.15) * s;
        let light = rng.range(0.85, 1.12);
        while x < s && self.objects.len() < MAX_OBJECTS {
            if rng.chance(0.06) {
                x += rng.range(0.03, 0.22) * s;
                continue;
            }
            let wanted = theme.filter(|_| rng.chance(0.82));
            let mut sku = self.sku(rng, wanted);
            if let (true, Some(before)) = (family_theme && rng.chance(0.6), last) {
                let before: Sku = before;
                sku = Sku::of(before.family(), rng.below(6));
            }
            last = Some(sku);
            let category = sku.category();
            let mut h = (base * (1.0 + rng.normal() * 0.13)).clamp(6.0, clear * 0.97);
            if matches!(category, Category::Tub | Category::Can | Category::Jar) {
                h *= rng.range(0.5, 1.0);
            }
            let stack = if matches!(category, Category::Tub | Category::Can | Category::Box)
                && h < clear * 0.48
                && rng.chance(0.6)
            {
                ((clear * 0.97 / h) as u32).min(3)
            } else if category == Category::Box && h < clear * 0.3 && rng.chance(0.5) {
                ((clear * 0.9 / h) as u32).min(5)
            } else {
                1
            };
            let run = [1, 2, 3, 4, 6][rng.weighted(&[0.25, 0.25, 0.22, 0.16, 0.12])];
            tags.push(x + 2.0);
            let looks: Vec<_> = (0..2)
                .map(|_| shapes::draw(sku, rng, (h * 1.15).max(14.0), 1.0, self.pictures))
                .collect();
            let loose = rng.chance(0.12);
            let run_from = x;
            let hangs = hanging && category == Category::Bag;
            let lift = if hangs {
                (clear - h).max(0.0) * rng.range(0.3, 0.9)
            } else {
                0.0
            };
            for _ in 0..run {
                let pick = rng.below(2) as usize;
                let look = &looks[pick];
                let mut w = h * look.w as f32 / look.h as f32 * self.squash;
                // Looks with a side face are wider than the front alone; they keep their height.
                w = w.min(s * 0.8).max(3.0);
                if rng.chance(0.03) {
                    x += w;
                    continue;
                }
                let back = rng.unit();
                if back < 0.4 {
                    let at = Put {
                        gain: rng.range(0.25, 0.65),
                        ..Put::new(
                            x + rng.normal() * 0.08 * w,
                            floor - depth * 0.5 - h * rng.range(1.0, 1.07),
                            w * 0.96,
                            h * 0.98,
                        )
                    };
                    self.stage.put(&looks[1 - pick], at, 0);
                }
                let forward = depth * rng.range(0.0, 0.6);
                for level in 0..stack {
                    let hh = h * (1.0 + rng.normal() * 0.012);
                    let turn = if loose {
                        rng.normal() * 0.07
                    } else if rng.chance(0.06) {
                        rng.normal() * 0.035
                    } else {
                        0.0
                    };
                    let look = &looks[rng.below(2) as usize];
                    let wide = (hh * look.w as f32 / look.h as f32 * self.squash)
                        .min(s * 0.8)
                        .max(3.0);
                    let at = Put {
                        gain: light * rng.range(0.88, 1.06),
                        turn,
                        shadow: 0.4,
                        ..Put::new(
                            x + rng.normal() * 0.02 * w,
                            floor - lift + forward - hh * (level + 1) as f32 + rng.range(-1.0, 1.0),
                            wide,
                            hh,
                        )
                    };
                    self.add(look, at, category.word(), Some(sku));
                    if hangs {
                        let (hook, top) = (at.x + wide * 0.5, at.y + hh * 0.05);
                        self.stage
                            .tint([hook - 1.5, top - 1.0, hook + 1.5, top + 2.0], |_, _, _| {
                                [0.75, 0.75, 0.78]
                            });
                    }
                }
                x += w * (1.0 + gap + (rng.normal() * 0.03).max(0.0));
                if x > s {
                    break;
                }
            }
            // Goods sold out of the carton they came in.
            if trays && stack == 1 && !hangs && x - run_from > 12.0 && h > 16.0 && rng.chance(0.4) {
                let kraft = if rng.chance(0.7) {
                    hsv(
                        rng.range(0.06, 0.1),
                        rng.range(0.3, 0.6),
                        rng.range(0.5, 0.85),
                    )
                } else {
                    sku.design().palette[1]
                };
                let lip = h * rng.range(0.1, 0.33);
                let (ink, word) = (scale(kraft, 0.45), rng.chance(0.6));
                self.stage
                    .fill([run_from, floor - lip, x, floor + depth * 0.6], |px, py| {
                        let wave = 0.97 + 0.03 * (px * 0.9).sin();
                        scale(kraft, light * wave * (0.9 + 0.15 * (floor - py) / lip))
                    });
                if word {
                    let middle = (run_from + x) * 0.5;
                    let wide = (x - run_from) * rng.range(0.15, 0.4);
                    self.stage.tint(
                        [
                            middle - wide,
                            floor - lip * 0.65,
                            middle + wide,
                            floor - lip * 0.4,
                        ],
                        |_, _, _| ink,
                    );
                }
            }
            x += (rng.normal() * 0.02).max(0.0) * s;
        }
    }

    fn board_top(&mut self, board: &Board, y: f32) {
        if board.depth > 0.5 {
            let (colour, depth) = (board.colour, board.depth);
            self.stage.fill([0.0, y - depth, self.side, y], |_, py| {
                scale(colour, 0.45 + 0.35 * ((py - y + depth) / depth))
            });
        }
    }

    fn board_front(&mut self, board: &Board, y: f32, rng: &mut Seeded) {
        let (s, t) = (self.side, board.thick.max(1.5));
        let colour = if board.rail {
            [0.95, 0.95, 0.93]
        } else {
            board.colour
        };
        let groove = board.grooved;
        self.stage.fill([0.0, y, s, y + t], |_, py| {
            let v = (py - y) / t;
            let lip = if groove && !(0.14..=0.86).contains(&v) {
                0.72
            } else {
                1.0
            };
            scale(colour, (1.08 - 0.33 * v) * lip)
        });
        if board.slots > 0.0 && t > 5.0 {
            let mut x = rng.range(0.0, board.slots);
            while x < s {
                self.stage
                    .tint([x, y, x + 1.0, y + t], |p, _, _| scale(p, 0.8));
                x += board.slots;
            }
        }
        // The shadow a board throws on what stands below it.
        let reach = t * 1.5;
        self.stage.tint([0.0, y + t, s, y + t + reach], |p, _, py| {
            scale(p, 0.55 + 0.45 * (py - y - t) / reach)
        });
    }

    fn post(&mut self, rng: &mut Seeded) {
        let s = self.side;
        let (x, w) = (rng.range(-0.02, 1.0) * s, rng.range(0.01, 0.06) * s);
        let colour = hsv(rng.unit(), rng.range(0.0, 0.15), rng.range(0.1, 0.9));
        self.stage.fill([x, 0.0, x + w, s], |px, _| {
            scale(colour, 0.7 + 0.4 * ((px - x) / w))
        });
    }

    /// An advertisement on the shelf: looks like print, is no product.
    fn banner(&mut self, rng: &mut Seeded, pitch: f32) {
        let s = self.side;
        let (w, h) = (
            rng.range(0.08, 0.5) * s,
            (pitch * rng.range(0.08, 0.3)).max(8.0),
        );
        let category = rng.pick(&Category::ALL);
        let design = self.sku(rng, Some(category)).design();
        let face = design.draw(w as usize + 1, h as usize + 1, &[]);
        let sprite = Sprite::from_fn(face.w, face.h, |x, y| {
            (face.px[y as usize * face.w + x as usize], 1.0)
        });
        let at = Put {
            turn: if rng.chance(0.3) {
                rng.normal() * 0.1
            } else {
                0.0
            },
            ..Put::new(rng.range(-0.1, 0.9) * s, rng.range(0.0, 0.95) * s, w, h)
        };
        self.stage.put(&sprite, at, 0);
    }
}
