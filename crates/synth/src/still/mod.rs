//! Single scenes for training and testing detectors, each with the exact mask of every object.

use shelfscan_inference_core::RgbImage;

mod ground;
mod rows;

use crate::{
    canvas::{Picture, hsv, scale},
    lens::{self, Homography},
    seeded::Seeded,
    shapes,
    sku::{Category, PRICE_TAG, Sku},
    sprite::Sprite,
    stage::{Put, Stage},
    tag::price_tag,
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
    /// A category that three products in five have; all seven are as frequent when `None`.
    pub mostly: Option<Category>,
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
        mostly: options.mostly,
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
    mostly: Option<Category>,
    squash: f32,
    pictures: &'a [Picture],
    stage: Stage,
    objects: Vec<Placed>,
}

impl Build<'_> {
    fn category(&self, rng: &mut Seeded) -> Category {
        match self.mostly {
            Some(category) if rng.chance(0.6) => category,
            _ => rng.pick(&Category::ALL),
        }
    }

    fn sku(&self, rng: &mut Seeded, category: Option<Category>) -> Sku {
        let category = category.unwrap_or_else(|| self.category(rng));
        Sku::of(Sku::family_for(rng, self.seed, category), rng.below(4))
    }

    fn add(&mut self, sprite: &Sprite, at: Put, category: &'static str, sku: Option<Sku>) {
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
            let tag = price_tag(rng.next_u64(), rng, height);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::HELD_OUT_FROM;

    const SMALL: StillOptions = StillOptions {
        side_px: 160,
        zoom: false,
        kind: None,
        mostly: None,
        pictures: &[],
    };

    fn bounds(still: &Still, id: u16) -> ([u32; 4], u32) {
        let side = still.image.width();
        let (mut b, mut count) = ([u32::MAX, u32::MAX, 0, 0], 0);
        for (i, &at) in still.ids.iter().enumerate() {
            if at == id {
                let (x, y) = (i as u32 % side, i as u32 / side);
                b = [b[0].min(x), b[1].min(y), b[2].max(x + 1), b[3].max(y + 1)];
                count += 1;
            }
        }
        (b, count)
    }

    #[test]
    fn equal_arguments_give_equal_bytes_and_another_seed_another_scene() {
        let (a, b) = (draw_still(3, 5, &SMALL), draw_still(3, 5, &SMALL));
        assert_eq!(a.image, b.image);
        assert_eq!((a.ids, a.objects), (b.ids, b.objects));
        assert_ne!(a.image, draw_still(4, 5, &SMALL).image);
        assert_ne!(a.image, draw_still(3, 6, &SMALL).image);
    }

    #[test]
    fn boxes_are_the_bounds_of_the_pixels_in_view() {
        for index in 0..12 {
            let still = draw_still(8, index, &SMALL);
            for (i, object) in still.objects.iter().enumerate() {
                assert_eq!(usize::from(object.id), i + 1);
                let (b, count) = bounds(&still, object.id);
                assert_eq!(b, object.bbox);
                assert!(count >= 22 && object.visible > 0.0 && object.visible <= 1.0);
                assert_eq!(object.sku.is_none(), object.category == PRICE_TAG);
            }
            let last = still.objects.len() as u16;
            assert!(still.ids.iter().all(|&id| id <= last));
        }
    }

    #[test]
    fn most_products_are_of_the_category_that_was_asked_for() {
        let options = StillOptions {
            mostly: Some(Category::Bottle),
            kind: Some(SceneKind::Shelf),
            ..SMALL
        };
        let objects: Vec<_> = (0..6)
            .flat_map(|i| draw_still(3, i, &options).objects)
            .filter(|o| o.sku.is_some())
            .collect();
        let bottles = objects.iter().filter(|o| o.category == "bottle").count();
        assert!(
            bottles * 5 > objects.len() * 2,
            "{bottles} of {}",
            objects.len()
        );
        assert!(bottles < objects.len());
    }

    #[test]
    fn every_category_and_price_tags_are_drawn_and_clutter_has_none() {
        let seen: BTreeSet<&str> = (0..60)
            .flat_map(|index| draw_still(2, index, &SMALL).objects)
            .map(|o| o.category)
            .collect();
        let all = Category::ALL
            .map(Category::word)
            .into_iter()
            .chain([PRICE_TAG]);
        assert_eq!(seen, all.collect());
        let clutter = StillOptions {
            kind: Some(SceneKind::Clutter),
            mostly: None,
            ..SMALL
        };
        assert!((0..5).all(|i| draw_still(2, i, &clutter).objects.is_empty()));
    }

    #[test]
    fn a_held_out_seed_shows_held_out_families_alone() {
        for (seed, held_out) in [(11, false), (HELD_OUT_FROM, true)] {
            for index in 0..6 {
                for object in draw_still(seed, index, &SMALL).objects {
                    if let Some(sku) = object.sku {
                        assert_eq!(sku.family() >= HELD_OUT_FROM, held_out);
                    }
                }
            }
        }
    }

    #[test]
    fn a_zoomed_scene_has_fewer_and_larger_objects() {
        let mean = |zoom| {
            let options = StillOptions {
                zoom,
                kind: Some(SceneKind::Shelf),
                mostly: None,
                ..SMALL
            };
            let objects: Vec<_> = (0..10)
                .flat_map(|i| draw_still(6, i, &options).objects)
                .collect();
            let tall: u32 = objects.iter().map(|o| o.bbox[3] - o.bbox[1]).sum();
            (objects.len(), tall as f32 / objects.len() as f32)
        };
        let (far, near) = (mean(false), mean(true));
        assert!(near.0 < far.0 && near.1 > far.1 * 1.2, "{far:?} {near:?}");
    }

    #[test]
    fn objects_beyond_the_cap_are_not_drawn() {
        let mut build = Build {
            seed: 1,
            side: 64.0,
            zoom: false,
            mostly: None,
            squash: 1.0,
            pictures: &[],
            stage: Stage::new(64, 64, [0.0; 3]),
            objects: Vec::new(),
        };
        let sprite = Sprite::from_fn(4, 4, |_, _| ([1.0; 3], 1.0));
        for i in 0..MAX_OBJECTS * 10 {
            build.add(
                &sprite,
                Put::new((i % 60) as f32, 0.0, 4.0, 4.0),
                "box",
                None,
            );
        }
        assert_eq!(build.objects.len(), MAX_OBJECTS);
    }
}
