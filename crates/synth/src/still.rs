//! Single scenes for training and testing detectors, each with the exact mask of every object.

use shelfscan_inference_core::RgbImage;

use crate::{
    canvas::{Picture, Rgb, hsv, mix, scale},
    lens::{self, Homography},
    seeded::Seeded,
    shapes::{self, Field},
    sku::{Category, PRICE_TAG, Sku},
    stage::{Put, Stage},
};

/// Objects a scene holds at most.
pub const MAX_OBJECTS: usize = 400;

/// What a scene is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SceneKind {
    /// Rows of products with boards and price tags.
    Shelf,
    /// One to three big products.
    Few,
    /// Products lying about.
    Scattered,
    /// No product at all.
    Clutter,
}

/// One object of a scene.
#[derive(Clone, Debug, PartialEq)]
pub struct StillObject {
    /// Its number in [`Still::ids`], from 1.
    pub id: u16,
    /// A [`Category`] word or [`PRICE_TAG`].
    pub category: &'static str,
    /// The SKU; `None` for a price tag.
    pub sku: Option<Sku>,
    /// Bounds of the visible pixels `[x0, y0, x1, y1]`, px, the far edges exclusive.
    pub bbox: [u32; 4],
    /// Visible area against the whole one, 0 to 1.
    pub visible: f32,
}

/// A drawn picture with its truth.
#[derive(Clone, Debug)]
pub struct Still {
    /// The picture.
    pub image: RgbImage,
    /// Which object each pixel shows, `[height, width]`, 0 for none.
    pub ids: Vec<u16>,
    /// The objects, `ids` in order.
    pub objects: Vec<StillObject>,
    /// JPEG quality that goes with the picture's other flaws, 60 to 96.
    pub jpeg_quality: u8,
}

/// How scenes are drawn.
#[derive(Clone, Copy, Debug)]
pub struct StillOptions<'a> {
    /// Width and height, px (64 to 2048).
    pub side_px: u32,
    /// Draw as a camera would see that is nearer: fewer and larger objects.
    pub zoom: bool,
    /// The kind; by chance (78, 8, 8 and 6 in 100) when `None`.
    pub kind: Option<SceneKind>,
    /// Photographs for print and background.
    pub pictures: &'a [Picture],
}

/// Draws scene `index` of `seed`. Equal arguments give equal bytes.
///
/// SKUs come from families below [`HELD_OUT_FROM`](crate::HELD_OUT_FROM) when the seed is below
/// it, and from those above when it is not.
pub fn draw_still(seed: u64, index: u64, options: &StillOptions) -> Still {
    let mut rng = Seeded::of(&[0x7374_696c, seed, index]);
    let kind = options
        .kind
        .unwrap_or_else(|| match rng.weighted(&[0.78, 0.08, 0.08, 0.06]) {
            0 => SceneKind::Shelf,
            1 => SceneKind::Few,
            2 => SceneKind::Scattered,
            _ => SceneKind::Clutter,
        });
    let side = options.side_px.clamp(64, 2048) as usize;
    let mut build = Build {
        seed,
        side: side as f32,
        zoom: options.zoom,
        squash: rng.log_range(0.55, 1.5),
        pictures: options.pictures,
        stage: Stage::new(side, side, [0.0; 3]),
        objects: Vec::new(),
    };
    build.backdrop(&mut rng);
    if rng.chance(0.3) {
        let n = 1 + rng.below(5);
        build.clutter(&mut rng, n);
    }
    match kind {
        SceneKind::Shelf => build.shelf(&mut rng),
        SceneKind::Few | SceneKind::Scattered => build.loose(&mut rng, kind == SceneKind::Few),
        SceneKind::Clutter => {
            let n = 3 + rng.below(22);
            build.clutter(&mut rng, n);
        }
    }
    if rng.chance(0.15) {
        let n = 1 + rng.below(3);
        build.clutter(&mut rng, n);
    }
    build.finish(&mut rng)
}

struct Placed {
    category: &'static str,
    sku: Option<Sku>,
    whole_px: f32,
}

struct Build<'a> {
    seed: u64,
    side: f32,
    zoom: bool,
    squash: f32,
    pictures: &'a [Picture],
    stage: Stage,
    objects: Vec<Placed>,
}

impl Build<'_> {
    fn sku(&self, rng: &mut Seeded, category: Option<Category>) -> Sku {
        let category = category.unwrap_or_else(|| rng.pick(&Category::ALL));
        Sku::of(Sku::family_for(rng, self.seed, category), rng.below(4))
    }

    fn add(
        &mut self,
        sprite: &crate::sprite::Sprite,
        at: Put,
        category: &'static str,
        sku: Option<Sku>,
    ) {
        if self.objects.len() >= MAX_OBJECTS {
            return;
        }
        let id = self.objects.len() as u16 + 1;
        let whole_px = self.stage.put(sprite, at, id);
        self.objects.push(Placed {
            category,
            sku,
            whole_px,
        });
    }

    fn backdrop(&mut self, rng: &mut Seeded) {
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
    fn clutter(&mut self, rng: &mut Seeded, count: u32) {
        let s = self.side;
        for _ in 0..count {
            let colour = [rng.unit(), rng.unit(), rng.unit()];
            let (x, y) = (rng.range(-0.06, 1.0) * s, rng.range(-0.06, 1.0) * s);
            let (w, h) = (rng.range(0.03, 0.5) * s, rng.range(0.03, 0.5) * s);
            let kind = rng.below(6);
            let mut c = crate::canvas::Canvas::new(w as usize + 2, h as usize + 2, colour);
            if kind == 0 {
                for _ in 0..1 + rng.below(5) {
                    let face = crate::font::Face {
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
            let sprite = crate::sprite::Sprite::from_fn(cw, ch, |x, y| {
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

    fn shelf(&mut self, rng: &mut Seeded) {
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
                    let tag = shapes::price_tag(style, rng, height * 1.2);
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
        let theme = themed.then(|| rng.pick(&Category::ALL));
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
            let lip = if groove && (v < 0.14 || v > 0.86) {
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
        let sprite = crate::sprite::Sprite::from_fn(face.w, face.h, |x, y| {
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

    fn loose(&mut self, rng: &mut Seeded, few: bool) {
        let s = self.side;
        let floor = s * rng.range(0.55, 0.95);
        let stands = few && rng.chance(0.6);
        if stands {
            let colour = hsv(rng.unit(), rng.range(0.0, 0.5), rng.range(0.2, 0.9));
            self.stage.fill([0.0, floor, s, s], |_, y| {
                scale(colour, 0.8 + 0.2 * (y - floor) / (s - floor))
            });
        }
        let count = if few {
            1 + rng.below(3)
        } else {
            3 + rng.below(13)
        };
        let grow = if self.zoom { 1.4 } else { 1.0 };
        for _ in 0..count {
            let sku = self.sku(rng, None);
            let h = s
                * grow
                * if few {
                    rng.range(0.35, 0.95)
                } else {
                    rng.range(0.12, 0.4)
                };
            let look = shapes::draw(sku, rng, h, 1.0, self.pictures);
            let w = (h * look.w as f32 / look.h as f32 * self.squash).min(s * 0.9 * grow);
            let x = rng.range(-0.1, 1.0) * s - w * 0.4;
            let y = if stands {
                floor + rng.range(0.0, 0.08) * s - h
            } else {
                rng.range(-0.1, 0.9) * s
            };
            let turn = if rng.chance(0.4) {
                rng.normal() * 0.15
            } else {
                0.0
            };
            self.add(
                &look,
                Put {
                    turn,
                    shadow: 0.25,
                    ..Put::new(x, y, w, h)
                },
                sku.category().word(),
                Some(sku),
            );
        }
        if rng.chance(0.3) {
            let height = s * rng.range(0.04, 0.12);
            let tag = shapes::price_tag(rng.next_u64(), rng, height);
            let w = height * tag.w as f32 / tag.h as f32;
            self.add(
                &tag,
                Put::new(rng.range(0.0, 0.9) * s, rng.range(0.0, 0.9) * s, w, height),
                PRICE_TAG,
                None,
            );
        }
    }

    fn finish(self, rng: &mut Seeded) -> Still {
        let (side, s) = (self.stage.w, self.side);
        let mut stage = self.stage;
        let mut view = None;
        if rng.chance(0.75) {
            let p = rng.pick(&[0.015, 0.04, 0.07, 0.11]);
            // Seen from the side, near things are larger than far ones.
            let side_on = if rng.chance(0.2) {
                rng.range(-0.22, 0.22)
            } else {
                0.0
            };
            let corners = [(0.0, 0.0), (s, 0.0), (s, s), (0.0, s)];
            let moved = corners.map(|c: (f32, f32)| {
                // Drawn in towards the middle, so that little of the picture has no scene.
                let grow = 1.0 / (1.0 + p * 0.9);
                let (dx, dy) = ((c.0 - s * 0.5) * grow, (c.1 - s * 0.5) * grow);
                let dy = dy * (1.0 - side_on.abs() * 0.5 + side_on * dx / s);
                (
                    s * 0.5 + dx + rng.normal() * p * 0.6 * s,
                    s * 0.5 + dy + rng.normal() * p * 0.6 * s,
                )
            });
            if let Some(map) = Homography::between(corners, moved) {
                stage = lens::warp(&stage, &map, side, side);
                view = Some(map);
            }
        }
        lens::light(&mut stage.px, side, side, rng);
        if rng.chance(0.08) {
            lens::reflect(&mut stage.px, side, side, rng);
        }
        match rng.unit() {
            k if k < 0.35 => {
                let sigma = rng.range(0.3, 1.5);
                lens::gaussian(&mut stage.px, side, side, sigma);
            }
            k if k < 0.45 => {
                let (length, angle) = (
                    rng.range(2.0, 7.0),
                    if rng.chance(0.7) {
                        0.0
                    } else {
                        rng.range(0.0, 3.1)
                    },
                );
                lens::smear(&mut stage.px, side, side, length, angle);
            }
            _ => {}
        }
        if rng.chance(0.15) {
            let factor = rng.range(0.4, 0.7);
            lens::coarsen(&mut stage.px, side, side, factor);
        }
        let noise = if rng.chance(0.5) {
            rng.range(1.0, 12.0) / 255.0
        } else {
            0.0
        };
        let bytes = lens::develop(&stage.px, noise, rng);
        let jpeg_quality = 60 + rng.below(37) as u8;
        let objects = annotate(&mut stage, &self.objects, view.as_ref());
        let image = crate::picture(side as u32, side as u32, bytes);
        Still {
            image,
            ids: stage.ids,
            objects,
            jpeg_quality,
        }
    }
}

/// Bounds and shares of what is seen; what is hardly seen at all is no object of the picture.
fn annotate(stage: &mut Stage, placed: &[Placed], view: Option<&Homography>) -> Vec<StillObject> {
    let mut bounds = vec![([u32::MAX, u32::MAX, 0u32, 0u32], 0u32); placed.len() + 1];
    for y in 0..stage.h as u32 {
        for x in 0..stage.w as u32 {
            let id = stage.ids[y as usize * stage.w + x as usize] as usize;
            if id > 0 {
                let (b, count) = &mut bounds[id];
                *b = [b[0].min(x), b[1].min(y), b[2].max(x + 1), b[3].max(y + 1)];
                *count += 1;
            }
        }
    }
    let mut renamed = vec![0u16; placed.len() + 1];
    let mut objects = Vec::new();
    for (i, object) in placed.iter().enumerate() {
        let (b, count) = bounds[i + 1];
        if count == 0 {
            continue;
        }
        let (w, h) = (b[2] - b[0], b[3] - b[1]);
        let (cx, cy) = ((b[0] + b[2]) as f32 * 0.5, (b[1] + b[3]) as f32 * 0.5);
        let growth = view.map_or(1.0, |v| v.growth(cx, cy));
        let visible = (count as f32 * growth / object.whole_px.max(1.0)).min(1.0);
        let torn = (count as f32) < 0.25 * (w * h) as f32 && visible < 0.3;
        if count < 22 || w < 4 || h < 4 || visible < 0.18 || torn {
            continue;
        }
        let id = objects.len() as u16 + 1;
        renamed[i + 1] = id;
        objects.push(StillObject {
            id,
            category: object.category,
            sku: object.sku,
            bbox: b,
            visible,
        });
    }
    for id in &mut stage.ids {
        *id = renamed[*id as usize];
    }
    objects
}

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
