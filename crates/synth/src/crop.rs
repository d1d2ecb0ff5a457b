//! Pictures of one SKU as a detector would cut them from photos of a shelf.

use shelfscan_inference_core::RgbImage;

use crate::{
    canvas::{Picture, Point, hsv, scale},
    field::Field,
    lens::{self, Homography},
    seeded::Seeded,
    shapes,
    sku::{Category, HELD_OUT_FROM, Sku},
    sprite::Sprite,
    stage::{Put, Stage},
    tag::price_tag,
};

/// What a crop may show beside its pack, and how badly it was taken.
struct Style {
    neighbours: f32,
    occluder: f32,
    /// Chance that the crop is cut close to the pack.
    tight: f32,
    skew: [f32; 3],
    sides: f32,
    coarse: f32,
    blurred: f32,
    smeared: f32,
}

/// Draws view `view` of `sku`: a crop about the pack, stretched to a square of `side_px` as an
/// embedder's input is.
///
/// Views of a SKU show the same print from other angles, in other light, before other grounds,
/// between other neighbours, sometimes behind something. Two in three are cut tightly. Equal
/// arguments give equal bytes. `side_px` is held between 16 and 1024.
pub fn draw_crop(sku: Sku, view: u64, side_px: u32, pictures: &[Picture]) -> RgbImage {
    let side = side_px.clamp(16, 1024) as usize;
    let mut rng = Seeded::of(&[0x6372_6f70, sku.0, view]);
    let style = Style {
        neighbours: 0.62,
        occluder: 0.22,
        tight: 0.66,
        skew: [0.01, 0.03, 0.06],
        sides: 1.0,
        coarse: 0.45,
        blurred: 0.3,
        smeared: 0.12,
    };
    draw(sku, &mut rng, side, side, &style, pictures)
}

/// Draws `count` views of `sku` as a person would cut them out of photos to enrol it: tight, the
/// whole pack, at its own aspect ratio, `longest_px` on its longer side (16 to 1024).
///
/// Angle, light and ground differ from view to view, and from those of any clip.
pub fn sku_views(sku: Sku, count: u32, longest_px: u32, pictures: &[Picture]) -> Vec<RgbImage> {
    (0..count)
        .map(|view| draw_view(sku, u64::from(view), longest_px, pictures))
        .collect()
}

/// Draws one of the views of [`sku_views`].
pub fn draw_view(sku: Sku, view: u64, longest_px: u32, pictures: &[Picture]) -> RgbImage {
    let longest = longest_px.clamp(16, 1024) as f32;
    let mut rng = Seeded::of(&[0x656e_726f, sku.0, view]);
    let aspect = shapes::aspect(sku);
    let (w, h) = (longest * aspect.min(1.0), longest / aspect.max(1.0));
    let style = Style {
        neighbours: 0.4,
        occluder: 0.0,
        tight: 1.0,
        skew: [0.004, 0.01, 0.02],
        sides: 0.5,
        coarse: 0.2,
        blurred: 0.2,
        smeared: 0.0,
    };
    draw(
        sku,
        &mut rng,
        (w as usize).max(8),
        (h as usize).max(8),
        &style,
        pictures,
    )
}

fn draw(
    sku: Sku,
    rng: &mut Seeded,
    width: usize,
    height: usize,
    style: &Style,
    pictures: &[Picture],
) -> RgbImage {
    let aspect = shapes::aspect(sku);
    // The longer side of the pack has about as many pixels as the crop.
    let longest = width.max(height) as f32;
    let tall = longest * if aspect > 1.0 { 1.1 / aspect } else { 1.1 };
    let look = shapes::draw(sku, rng, tall.max(12.0), style.sides, pictures);
    let (w, h) = (look.w as f32, look.h as f32);
    let (room_x, room_y) = (w.max(h) * 0.6, h.max(w) * 0.35);
    let (sw, sh) = ((w + room_x * 2.0) as usize, (h + room_y * 2.0) as usize);
    let mut stage = Stage::new(sw, sh, [0.5; 3]);
    ground(&mut stage, rng, pictures, room_y + h);
    let at = Put {
        shadow: 0.3,
        turn: if rng.chance(0.3) {
            rng.normal() * 0.05
        } else {
            0.0
        },
        ..Put::new(room_x, room_y, w, h)
    };
    let squash = rng.log_range(0.88, 1.14);
    if rng.chance(style.neighbours) {
        for left in [true, false] {
            if rng.chance(0.85) {
                neighbour(&mut stage, rng, sku, &look, at, left, pictures);
            }
        }
    }
    stage.put(&look, at, 1);
    if rng.chance(style.occluder) {
        occluder(&mut stage, rng, at);
    }
    // What is cut: the pack with a little more or less on every side, or a looser square.
    let mut cut = [room_x, room_y, room_x + w, room_y + h];
    if rng.chance(style.tight) {
        for (i, edge) in cut.iter_mut().enumerate() {
            let span = if i % 2 == 0 { w } else { h };
            let out = rng.range(-0.07, 0.09) * span * style.sides;
            *edge += if i < 2 { -out } else { out };
        }
    } else {
        let half = w.max(h) * 0.5 / rng.range(0.62, 1.12);
        let (cx, cy) = (
            room_x + w * (0.5 + rng.range(-0.1, 0.1)),
            room_y + h * (0.5 + rng.range(-0.08, 0.08)),
        );
        cut = [cx - half, cy - half, cx + half, cy + half];
    }
    let skew = rng.pick(&style.skew);
    let (cw, ch) = (cut[2] - cut[0], cut[3] - cut[1]);
    let middle = (cut[0] + cut[2]) * 0.5;
    let squash = 1.0 + (squash - 1.0) * style.sides;
    let corners: [Point; 4] = [
        (cut[0], cut[1]),
        (cut[2], cut[1]),
        (cut[2], cut[3]),
        (cut[0], cut[3]),
    ];
    let seen = corners.map(|c| {
        let x = middle + (c.0 - middle) * squash + rng.normal() * skew * cw;
        (x, c.1 + rng.normal() * skew * ch)
    });
    let (fw, fh) = (width as f32, height as f32);
    let frame = [(0.0, 0.0), (fw, 0.0), (fw, fh), (0.0, fh)];
    let mut out = match Homography::between(frame, seen) {
        Some(map) => lens::warp(&stage, &map, width, height),
        None => stage,
    };
    let (ow, oh) = (out.w, out.h);
    lens::light(&mut out.px, ow, oh, rng);
    if rng.chance(style.coarse) {
        let factor = rng.range(0.22, 0.85);
        lens::coarsen(&mut out.px, ow, oh, factor);
    }
    match rng.unit() {
        k if k < style.blurred => {
            let sigma = rng.range(0.3, 1.6);
            lens::gaussian(&mut out.px, ow, oh, sigma);
        }
        k if k < style.blurred + style.smeared => {
            let (length, angle) = (rng.range(2.0, 7.0), rng.range(-0.4, 0.4));
            lens::smear(&mut out.px, ow, oh, length, angle);
        }
        _ => {}
    }
    let noise = if rng.chance(0.5) {
        rng.range(1.0, 10.0) / 255.0
    } else {
        0.0
    };
    let bytes = lens::develop(&out.px, noise, rng);
    crate::picture(ow as u32, oh as u32, bytes)
}

fn ground(stage: &mut Stage, rng: &mut Seeded, pictures: &[Picture], floor: f32) {
    let (w, h) = (stage.w as f32, stage.h as f32);
    let all = [0.0, 0.0, w, h];
    match rng.weighted(&[0.5, 0.2, 0.12, 0.18]) {
        0 => {
            let wall = hsv(rng.unit(), rng.range(0.0, 0.15), rng.range(0.04, 0.9));
            let board = hsv(rng.unit(), rng.range(0.0, 0.3), rng.range(0.2, 1.0));
            let dark = rng.range(0.3, 0.9);
            stage.fill(all, |_, y| {
                scale(wall, dark + (1.0 - dark) * (y / floor).min(1.0))
            });
            stage.fill([0.0, floor, w, h], |_, y| {
                scale(board, 1.05 - 0.4 * (y - floor) / (h - floor))
            });
            if rng.chance(0.5) {
                let tag_h = (h - floor) * rng.range(0.4, 0.9);
                let tag = price_tag(rng.next_u64(), rng, tag_h);
                let tag_w = tag_h * tag.w as f32 / tag.h as f32;
                stage.put(
                    &tag,
                    Put::new(rng.range(0.1, 0.8) * w, floor + 1.0, tag_w, tag_h),
                    0,
                );
            }
        }
        1 => {
            let flat = hsv(rng.unit(), rng.range(0.0, 0.6), rng.range(0.05, 1.0));
            stage.fill(all, |_, _| flat);
        }
        2 => {
            let fields = [(); 3].map(|()| Field::new(rng, 6, 6));
            stage.fill(all, |x, y| {
                [0, 1, 2].map(|c| (0.45 + 0.25 * fields[c].at(x / w, y / h)).clamp(0.0, 1.0))
            });
        }
        _ => {
            let drawn = crate::print::drawn_picture(rng);
            let picture = if pictures.is_empty() {
                &drawn
            } else {
                &pictures[rng.below(pictures.len() as u32) as usize]
            };
            let dim = rng.range(0.35, 1.0);
            stage.fill(all, |x, y| scale(picture.at(x / w, y / h), dim));
        }
    }
}

fn neighbour(
    stage: &mut Stage,
    rng: &mut Seeded,
    sku: Sku,
    own: &Sprite,
    at: Put,
    left: bool,
    pictures: &[Picture],
) {
    let same = rng.chance(0.5);
    let look = if same {
        own.clone()
    } else {
        let seed = if sku.family() < HELD_OUT_FROM {
            0
        } else {
            HELD_OUT_FROM
        };
        let category = if rng.chance(0.5) {
            sku.category()
        } else {
            rng.pick(&Category::ALL)
        };
        let other = Sku::of(Sku::family_for(rng, seed, category), rng.below(4));
        let height = at.h * rng.range(0.7, 1.15);
        shapes::draw(other, rng, (height * 0.8).max(12.0), 1.0, pictures)
    };
    let h = if same {
        at.h
    } else {
        at.h * rng.range(0.75, 1.1)
    };
    let w = h * look.w as f32 / look.h as f32;
    let gap = at.w * rng.range(-0.03, 0.1);
    let x = if left {
        at.x - w - gap
    } else {
        at.x + at.w + gap
    };
    let y = at.y + at.h - h + rng.range(-2.0, 2.0);
    stage.put(
        &look,
        Put {
            gain: rng.range(0.8, 1.1),
            ..Put::new(x, y, w, h)
        },
        0,
    );
}

fn occluder(stage: &mut Stage, rng: &mut Seeded, at: Put) {
    let colour = [rng.unit(), rng.unit(), rng.unit()];
    let (w, h) = (at.w * rng.range(0.15, 0.45), at.h * rng.range(0.12, 0.4));
    let (x, y) = if rng.chance(0.5) {
        (
            at.x + at.w * rng.range(-0.2, 0.9),
            at.y + at.h * rng.range(0.6, 1.0),
        )
    } else {
        (
            if rng.chance(0.5) {
                at.x - w * 0.5
            } else {
                at.x + at.w - w * 0.5
            },
            at.y + at.h * rng.range(0.0, 0.8),
        )
    };
    if rng.chance(0.4) {
        let tag = price_tag(rng.next_u64(), rng, h.max(8.0));
        let wide = h * tag.w as f32 / tag.h as f32;
        stage.put(&tag, Put::new(x, y.max(at.y + at.h * 0.7), wide, h), 0);
    } else {
        let round = rng.chance(0.5);
        let shape = Sprite::from_fn(w as usize + 2, h as usize + 2, |px, py| {
            let (dx, dy) = (px / (w + 2.0) * 2.0 - 1.0, py / (h + 2.0) * 2.0 - 1.0);
            let cover = if round && dx * dx + dy * dy > 1.0 {
                0.0
            } else {
                1.0
            };
            (scale(colour, 0.8 - 0.3 * dx), cover)
        });
        stage.put(
            &shape,
            Put {
                turn: rng.range(-0.6, 0.6),
                ..Put::new(x, y, w, h)
            },
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_are_square_views_keep_the_shape_and_both_repeat() {
        for sku in [Sku(1), Sku(12), Sku(25), Sku(60)] {
            let crop = draw_crop(sku, 3, 48, &[]);
            assert_eq!((crop.width(), crop.height()), (48, 48));
            assert_eq!(crop, draw_crop(sku, 3, 48, &[]));
            assert_ne!(crop, draw_crop(sku, 4, 48, &[]));
            let views = sku_views(sku, 2, 64, &[]);
            let (w, h) = (views[0].width() as f32, views[0].height() as f32);
            assert_eq!(w.max(h), 64.0);
            assert!((w / h / shapes::aspect(sku) - 1.0).abs() < 0.1);
            assert_ne!(views[0], views[1]);
            assert_eq!(views[1], draw_view(sku, 1, 64, &[]));
        }
    }
}
