//! Folding boxes and cartons.

use super::{Light, Print};
use crate::{
    canvas::{Canvas, hsv, mix, scale},
    seeded::Seeded,
    sprite::Sprite,
};

/// A turned face of a box to one side of its front.
pub(super) fn with_side(
    front: &Sprite,
    side: &Canvas,
    on_left: bool,
    rise: f32,
    dark: f32,
) -> Sprite {
    let k = side.w;
    let w = front.w + k;
    Sprite::from_fn(w, front.h, |x, y| {
        let near = if on_left { x - k as f32 } else { x };
        if (0.0..front.w as f32).contains(&near) {
            let p = front.px[y as usize * front.w + near as usize];
            return ([p[0], p[1], p[2]], p[3]);
        }
        // 0 beside the front, 1 at the far edge.
        let depth = if on_left {
            (k as f32 - x) / k as f32
        } else {
            (x - front.w as f32) / k as f32
        };
        let lift = rise * depth;
        let edge = if on_left { 0 } else { front.w - 1 };
        let cover = front.px[(y as usize).min(front.h - 1) * front.w + edge][3];
        let top = front.h as f32 * 0.0 + lift;
        let low = front.h as f32 - lift;
        let v = (y - top) / (low - top).max(1.0);
        let colour = side.wrapped(
            if on_left { x } else { depth * k as f32 },
            v * side.h as f32,
        );
        let share = (y - top + 0.5).clamp(0.0, 1.0) * (low - y + 0.5).clamp(0.0, 1.0);
        (
            scale(colour, dark),
            share.min(cover.max(if y > front.h as f32 * 0.3 { 1.0 } else { 0.0 })),
        )
    })
}

pub(super) fn folding_box(
    print: &Print,
    family: &mut Seeded,
    view: &mut Seeded,
    w: usize,
    h: usize,
) -> Sprite {
    let face = print.front(w, h);
    let light = Light::new(view, 0.12, 0.08);
    let (slope, tilt) = (view.range(-0.12, 0.12), view.range(-0.02, 0.02));
    let window = family.chance(0.1);
    let tray = family.chance(0.06);
    let kraft = hsv(0.09, 0.45, family.range(0.5, 0.75));
    let front = Sprite::from_fn(w, h, |x, y| {
        let (s, v) = (x / w as f32 * 2.0 - 1.0, y / h as f32);
        let mut colour = face.px[y as usize * w + x as usize];
        if tray && v > 0.7 {
            colour = mix(kraft, colour, 0.25);
        }
        if window && (0.55..0.85).contains(&v) && s.abs() < 0.5 {
            colour = mix(colour, [0.75, 0.7, 0.6], 0.6);
        }
        let edge =
            (x.min(w as f32 - x).min(y).min(h as f32 - y) / (h as f32 * 0.015).max(0.8)).min(1.0);
        let lit = light
            .on(colour, s)
            .map(|c| c * (1.0 + slope * (v - 0.5)) * (0.88 + 0.12 * edge) + tilt);
        (lit, 1.0)
    });
    if !family.chance(0.5) && !view.chance(0.2) {
        return front;
    }
    let k = (w as f32 * view.range(0.04, 0.28) * print.sides) as usize;
    if k == 0 {
        return front;
    }
    let side = print.side(k, h);
    let (left, rise) = (view.chance(0.5), k as f32 * view.range(0.1, 0.4));
    with_side(&front, &side, left, rise, view.range(0.4, 0.85))
}

pub(super) fn carton(
    print: &Print,
    family: &mut Seeded,
    view: &mut Seeded,
    w: usize,
    h: usize,
) -> Sprite {
    let face = print.front(w, h);
    let (wf, hf) = (w as f32, h as f32);
    let gable = family.chance(0.65);
    let top = if gable {
        hf * family.range(0.13, 0.25)
    } else {
        hf * family.range(0.02, 0.09)
    };
    let ridge = top * family.range(0.25, 0.45);
    let inset = wf * family.range(0.0, 0.12);
    let capped = family.chance(if gable { 0.5 } else { 0.7 });
    let cap_at = if gable {
        wf * 0.5
    } else {
        wf * family.range(0.2, 0.7)
    };
    let cap_r = wf * family.range(0.1, 0.16);
    let cap = print.sku.design().accent;
    let light = Light::new(view, 0.14, 0.12);
    let roof = view.range(0.55, 0.95);
    let front = Sprite::from_fn(w, h, |x, y| {
        let s = x / wf * 2.0 - 1.0;
        let mut colour = face.px[y as usize * w + x as usize];
        let mut cover = 1.0;
        if gable {
            if y < ridge {
                cover = (x - inset + 0.5).clamp(0.0, 1.0) * (wf - inset - x + 0.5).clamp(0.0, 1.0);
                colour = scale(colour, 0.9);
            } else if y < top {
                let slack = inset * (top - y) / (top - ridge).max(1.0);
                cover = (x - slack + 0.5).clamp(0.0, 1.0) * (wf - slack - x + 0.5).clamp(0.0, 1.0);
                colour = scale(colour, roof);
            }
            if (y - ridge).abs() < 0.8 || (y - top).abs() < 0.6 {
                colour = scale(colour, 0.6);
            }
            if capped {
                let d = ((x - cap_at).powi(2) + ((y - top * 0.66) * 1.2).powi(2)).sqrt();
                if d < cap_r {
                    colour = scale(cap, 0.75 + 0.35 * (1.0 - d / cap_r));
                }
            }
        } else if y < top {
            cover = if capped && (x - cap_at).abs() < cap_r * 1.2 {
                1.0
            } else {
                0.0
            };
            colour = scale(
                cap,
                if ((x * 1.5) as i32) % 2 == 0 {
                    0.85
                } else {
                    1.0
                },
            );
        }
        (light.on(colour, s), cover)
    });
    if !family.chance(0.55) {
        return front;
    }
    let k = (wf * view.range(0.06, 0.45) * print.sides) as usize;
    if k == 0 {
        return front;
    }
    let side = print.side(k, h);
    let dark = view.range(0.45, 0.85);
    let left = view.chance(0.35);
    // The gable's side is a triangle that leans in to the ridge.
    let mut out = with_side(&front, &side, left, k as f32 * view.range(0.0, 0.12), dark);
    let width = out.w;
    for y in 0..h {
        for i in 0..k {
            let x = if left { k - 1 - i } else { front.w + i };
            let depth = (i as f32 + 0.5) / k as f32;
            let roofline = if gable {
                ridge + (top - ridge) * (1.0 - (depth * 2.0 - 1.0).abs()) * 0.9
            } else {
                top
            };
            let cover = (y as f32 + 0.5 - roofline + 0.5).clamp(0.0, 1.0);
            let pixel = &mut out.px[y * width + x];
            pixel[3] = pixel[3]
                .max(f32::from(u8::from((y as f32) > roofline)))
                .min(cover);
        }
    }
    out
}
