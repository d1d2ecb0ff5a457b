//! Cans, bottles, jars and tubs: prints wrapped round turned bodies.

use super::{Light, Print};
use crate::{
    canvas::{Canvas, Rgb, hsv, mix, scale},
    field::Field,
    seeded::Seeded,
    sku::Category,
    sprite::Sprite,
};

/// How a flat print wraps round a cylinder seen from the front.
struct Wrap {
    yaw: f32,
    share: f32,
    bend: f32,
}

impl Wrap {
    fn new(view: &mut Seeded, share: f32) -> Self {
        Self {
            yaw: view.normal() * 0.07,
            share,
            bend: view.range(-0.06, 0.06),
        }
    }

    /// Colour of `face` (its whole width is the visible part at `share` 0.5) at `s` across.
    fn on(&self, face: &Canvas, s: f32, y: f32) -> Rgb {
        let angle = s.clamp(-0.999, 0.999).asin() / std::f32::consts::PI;
        face.wrapped(
            face.w as f32 * (0.5 + angle * 2.0 * self.share + self.yaw),
            y,
        )
    }

    /// How far a level ring of a body `w` px wide is bent down in the middle.
    fn drop(&self, s: f32, w: f32) -> f32 {
        self.bend * w * (1.0 - s * s).max(0.0).sqrt()
    }
}

pub(super) fn can(
    print: &Print,
    family: &mut Seeded,
    view: &mut Seeded,
    w: usize,
    h: usize,
) -> Sprite {
    let (wf, hf) = (w as f32, h as f32);
    let face = print.front((wf * 1.6) as usize, h);
    let mut wrap = Wrap::new(view, 0.31);
    wrap.bend = view.range(-0.02, 0.1);
    let rim = (hf * family.range(0.02, 0.06)).max(1.0);
    let metal = if family.chance(0.3) {
        print.sku.design().palette[2]
    } else {
        hsv(
            family.range(0.0, 0.2),
            family.range(0.0, 0.12),
            family.range(0.55, 0.85),
        )
    };
    let drinks = family.chance(0.45);
    let taper = if drinks { family.range(0.08, 0.2) } else { 0.0 };
    let neck = hf * family.range(0.05, 0.1);
    let ribs = !drinks && family.chance(0.3);
    let tab = view.chance(0.6);
    let light = Light::new(view, 0.6, 0.55);
    Sprite::from_fn(w, h, |x, y| {
        let s0 = x / wf * 2.0 - 1.0;
        let narrow = |d: f32| {
            if d < neck {
                taper * (1.0 - d / neck)
            } else {
                0.0
            }
        };
        let half = 1.0 - narrow(y).max(narrow(hf - y) * 0.7);
        let s = s0 / half;
        let ring = (1.0 - s * s).max(0.0).sqrt();
        let bend = wrap.bend.abs() * wf * (1.0 - ring);
        // Seen from above the lid shows as an ellipse; the base is curved the same way.
        let (over, under) = (y - bend, hf - y - bend);
        let cover = ((half - s0.abs()) * wf * 0.5 + 0.5).clamp(0.0, 1.0)
            * (over + 0.5).clamp(0.0, 1.0)
            * (under + 0.5).clamp(0.0, 1.0);
        let lid = wrap.bend * wf * (1.0 + ring) - bend * 0.0;
        let colour = if wrap.bend > 0.02 && y < lid {
            let inner =
                ((y - wrap.bend * wf) / (wrap.bend * wf * 0.8)).powi(2) + (s / 0.86).powi(2) < 1.0;
            let plate = if inner { 0.72 } else { 1.0 };
            let pull =
                tab && (s - 0.1).abs() < 0.25 && (y - wrap.bend * wf).abs() < wrap.bend * wf * 0.25;
            scale(metal, plate * if pull { 1.25 } else { 1.0 })
        } else if over < rim + lid.max(0.0) * f32::from(u8::from(wrap.bend > 0.02)) || under < rim {
            let shine = 0.75 + 0.35 * (s * 9.0).sin().abs();
            scale(metal, shine)
        } else {
            let print = wrap.on(&face, s, y + wrap.drop(s, wf) - wrap.bend * wf * 0.5);
            if ribs {
                scale(print, 0.94 + 0.08 * (y / hf * 60.0).sin())
            } else {
                print
            }
        };
        (light.on(colour, s), cover)
    })
}

/// Outline of a vessel from its top (v 0) to its base (v 1), half widths 0 to 1.
struct Profile {
    cap: f32,
    neck: f32,
    shoulder: f32,
    neck_half: f32,
    cap_half: f32,
    base_half: f32,
    round: f32,
    waist: Option<(f32, f32)>,
    foot: bool,
}

impl Profile {
    fn of(category: Category, rng: &mut Seeded) -> Self {
        let mut p = match category {
            Category::Bottle => {
                let neck_half = rng.range(0.25, 0.5);
                Self {
                    cap: rng.range(0.05, 0.12),
                    neck: rng.range(0.03, 0.22),
                    shoulder: rng.range(0.06, 0.22),
                    neck_half,
                    cap_half: neck_half * rng.range(1.0, 1.25),
                    base_half: 1.0,
                    round: 1.0,
                    waist: None,
                    foot: true,
                }
            }
            Category::Jar => Self {
                cap: rng.range(0.1, 0.2),
                neck: 0.012,
                shoulder: rng.range(0.03, 0.1),
                neck_half: rng.range(0.78, 0.95),
                cap_half: rng.range(0.8, 0.99),
                base_half: 1.0,
                round: 1.0,
                waist: None,
                foot: true,
            },
            _ => Self {
                cap: rng.range(0.05, 0.13),
                neck: 0.0,
                shoulder: 0.0,
                neck_half: 1.0,
                cap_half: 1.0,
                base_half: rng.range(0.68, 0.93),
                round: 1.0,
                waist: None,
                foot: false,
            },
        };
        p.round = rng.range(0.6, 1.6);
        if category == Category::Bottle && rng.chance(0.3) {
            p.waist = Some((rng.range(0.55, 0.75), rng.range(0.06, 0.16)));
        }
        p
    }

    fn body_top(&self) -> f32 {
        self.cap + self.neck + self.shoulder
    }

    fn half(&self, v: f32) -> f32 {
        let c = self.body_top();
        if v < self.cap {
            return self.cap_half;
        }
        if v < self.cap + self.neck {
            return self.neck_half;
        }
        if v < c {
            let t = (v - self.cap - self.neck) / self.shoulder.max(1e-3);
            let rise = (t * std::f32::consts::FRAC_PI_2)
                .sin()
                .max(0.0)
                .powf(self.round);
            return self.neck_half + (1.0 - self.neck_half) * rise;
        }
        let t = (v - c) / (1.0 - c).max(1e-3);
        let mut half = 0.985 + (self.base_half - 0.985) * t;
        if let Some((at, depth)) = self.waist {
            half *= 1.0 - depth * (-((v - at) / 0.08).powi(2)).exp();
        }
        if self.foot && t > 0.96 {
            half *= 1.0 - (t - 0.96) * 1.5;
        }
        half
    }
}

/// Short bright strokes that a soft drink's bottle shows at its shoulder and over its foot.
struct Glints {
    bands: [(f32, f32); 2],
    count: f32,
    phase: f32,
    power: f32,
}

impl Glints {
    fn of(profile: &Profile, rng: &mut Seeded) -> Self {
        let shoulder = profile.cap + profile.neck + profile.shoulder;
        let long = rng.range(0.02, 0.06);
        let foot = rng.range(0.84, 0.93);
        Self {
            bands: [
                (shoulder, shoulder + long),
                (foot, foot + rng.range(0.02, 0.05)),
            ],
            count: rng.range(5.0, 10.0).round(),
            phase: rng.unit(),
            power: rng.range(0.15, 0.6),
        }
    }

    /// What they add to the light at `s` across and `v` down.
    fn at(&self, s: f32, v: f32) -> f32 {
        if !self
            .bands
            .iter()
            .any(|(from, to)| (*from..*to).contains(&v))
        {
            return 0.0;
        }
        let turn = s.clamp(-1.0, 1.0).asin() / std::f32::consts::PI;
        let place = (turn * self.count + self.phase).rem_euclid(1.0);
        if (0.4..0.6).contains(&place) {
            self.power
        } else {
            0.0
        }
    }
}

pub(super) fn vessel(
    print: &Print,
    family: &mut Seeded,
    view: &mut Seeded,
    w: usize,
    h: usize,
) -> Sprite {
    let (wf, hf) = (w as f32, h as f32);
    let category = print.sku.category();
    let design = print.sku.design();
    let tub = category == Category::Tub;
    let profile = Profile::of(category, family);
    let clear = !tub && family.chance(0.65);
    let mut own = Seeded::of(&[0x6c69_7175, print.sku.0]);
    // Variants of a drink differ in the drink as well.
    let liquid = match family.below(5) {
        0 => hsv(
            own.range(-0.03, 0.12),
            own.range(0.5, 1.0),
            own.range(0.15, 0.9),
        ),
        1 => hsv(
            own.range(0.2, 0.4),
            own.range(0.4, 0.9),
            own.range(0.1, 0.5),
        ),
        2 => hsv(own.unit(), own.range(0.0, 0.15), own.range(0.6, 0.9)),
        3 => hsv(
            own.range(0.0, 0.1),
            own.range(0.3, 0.8),
            own.range(0.04, 0.2),
        ),
        _ => hsv(own.unit(), own.range(0.3, 0.95), own.range(0.2, 0.9)),
    };
    let body = if clear {
        liquid
    } else if family.chance(0.6) {
        design.palette[0]
    } else {
        design.palette[1]
    };
    let level = if clear && family.chance(0.7) {
        profile.cap + profile.neck + profile.shoulder * family.range(0.1, 1.0)
    } else {
        0.0
    };
    let sleeve = tub || family.chance(0.22);
    let top = profile.body_top();
    let (l0, l1) = if sleeve {
        (top, 1.0)
    } else {
        (
            top + (1.0 - top) * family.range(0.02, 0.25),
            1.0 - (1.0 - top) * family.range(0.02, 0.22),
        )
    };
    // Of the family alone, and drawn apart from everything else about it.
    let mut shape = Seeded::of(&[0x6261_6e64, print.sku.family()]);
    let soft_drink = category == Category::Bottle && !sleeve && shape.chance(0.45);
    let (l0, l1) = if soft_drink {
        let from = top + (1.0 - top) * shape.range(0.02, 0.4);
        (from, from + (1.0 - top) * shape.range(0.18, 0.42))
    } else {
        (l0, l1)
    };
    let liquid = if soft_drink && clear && shape.chance(0.5) {
        hsv(
            shape.range(0.0, 0.1),
            shape.range(0.2, 0.8),
            shape.range(0.03, 0.15),
        )
    } else {
        liquid
    };
    let glints = (soft_drink && shape.chance(0.7)).then(|| Glints::of(&profile, &mut shape));
    let glinting = |colour: Rgb, s: f32, v: f32| match &glints {
        Some(glints) => {
            let glint = glints.at(s, v);
            colour.map(|c| c + glint)
        }
        None => colour,
    };
    let neck_label = category == Category::Bottle && profile.neck > 0.1 && family.chance(0.35);
    let label_h = (((l1 - l0) * hf) as usize).max(2);
    let face = print.front((wf * 1.5) as usize, label_h);
    let narrow = !sleeve && family.chance(0.3);
    let wrap = Wrap::new(view, 0.33);
    let cap = match family.below(4) {
        0 | 1 => design.palette[2],
        2 => hsv(0.1, family.range(0.0, 0.3), family.range(0.6, 0.9)),
        _ => design.accent,
    };
    let ridged = family.chance(0.6);
    let light = Light::new(
        view,
        if tub { 0.38 } else { 0.5 },
        if clear { 0.65 } else { 0.35 },
    );
    let grain = Field::new(&mut own, 9, 9);
    let chunky = category == Category::Jar && family.chance(0.5);
    let lid_over = tub && family.chance(0.7);
    let label_round = family.chance(0.15);
    Sprite::from_fn(w, h, |x, y| {
        let v = y / hf;
        let mut half = profile.half(v);
        if lid_over && v > profile.cap {
            half = half.min(0.96);
        }
        let s0 = x / wf * 2.0 - 1.0;
        let s = s0 / half;
        let ring = (1.0 - s * s).max(0.0).sqrt();
        let bend = wrap.bend.abs() * wf * 0.6 * (1.0 - ring);
        let cover = ((half - s0.abs()) * wf * 0.5 + 0.5).clamp(0.0, 1.0)
            * (y - bend + 0.5).clamp(0.0, 1.0)
            * (hf - y - bend + 0.5).clamp(0.0, 1.0);
        let yb = y + wrap.drop(s, wf * half) - wrap.bend * wf * 0.5;
        let vb = yb / hf;
        let labelled = (l0..l1).contains(&vb)
            && !(narrow && s.abs() > 0.82)
            && !(label_round
                && (s / 0.8).powi(2) + ((vb - (l0 + l1) * 0.5) / ((l1 - l0) * 0.5)).powi(2) > 1.0);
        let colour = if v < profile.cap {
            let knurl = if ridged {
                0.85 + 0.15 * (s.clamp(-1.0, 1.0).asin() * 22.0).sin()
            } else {
                1.0
            };
            let edge = if (profile.cap - v) * hf < 1.3 {
                0.55
            } else {
                1.0
            };
            scale(cap, knurl * edge)
        } else if labelled {
            wrap.on(&face, s, (vb - l0) / (l1 - l0) * label_h as f32)
        } else if neck_label
            && v > profile.cap + profile.neck * 0.35
            && v < profile.cap + profile.neck * 0.9
        {
            design.palette[1]
        } else if clear {
            if vb < level {
                let glass = mix(liquid, [0.72, 0.75, 0.74], 0.65);
                scale(glass, 0.65 + 0.4 * ring)
            } else {
                // Light gathers in the middle of a filled glass and at its rims.
                let gather = 0.55 + 0.5 * ring + 0.25 * (1.0 - ring).powi(6);
                let lumps = if chunky {
                    1.0 + 0.3 * grain.at(s * 0.5 + 0.5, v)
                } else {
                    1.0
                };
                glinting(scale(liquid, gather * lumps), s, v)
            }
        } else {
            glinting(body, s, v)
        };
        let seam = if (vb - l0).abs() * hf < 0.7 && !sleeve {
            0.8
        } else {
            1.0
        };
        (scale(light.on(colour, s), seam), cover)
    })
}
