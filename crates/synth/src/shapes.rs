//! The seven bodies: how a print sits on a box, bottle, can, jar, carton, bag or tub.

use crate::{
    canvas::{Canvas, Picture, Rgb, hsv, luma, mix, scale},
    seeded::Seeded,
    sku::{Category, Sku},
    sprite::{Sprite, inside},
};

/// Light on a body: how it falls off to the sides and where it shines.
struct Light {
    fall: f32,
    power: f32,
    centre: f32,
    shines: [(f32, f32, f32); 2],
    gain: f32,
}

impl Light {
    fn new(rng: &mut Seeded, fall: f32, shine: f32) -> Self {
        let mut spot = |chance: f32, strength: f32| {
            let on = if rng.chance(chance) { strength } else { 0.0 };
            (
                rng.range(-0.75, 0.75),
                rng.range(0.03, 0.14),
                on * rng.range(0.15, 1.0),
            )
        };
        let shines = [spot(0.7, shine), spot(0.3, shine * 0.6)];
        Self {
            fall: fall * rng.range(0.6, 1.2),
            power: rng.range(1.5, 3.5),
            centre: rng.range(-0.25, 0.25),
            shines,
            gain: rng.range(0.9, 1.08),
        }
    }

    /// `s` is -1 at the left edge of the body and 1 at its right one.
    fn on(&self, colour: Rgb, s: f32) -> Rgb {
        let shade =
            self.gain * (1.0 - self.fall * (s - self.centre).abs().powf(self.power).min(1.3));
        let mut add = 0.0;
        for (at, wide, strength) in self.shines {
            if strength > 0.0 {
                add += strength * (-((s - at) / wide).powi(2)).exp();
            }
        }
        colour.map(|v| v * shade.max(0.08) + add)
    }
}

/// Width of the product against its height, the same for all SKUs of a family.
pub(crate) fn aspect(sku: Sku) -> f32 {
    let mut rng = Seeded::of(&[0x6173_7065, sku.family()]);
    match sku.category() {
        Category::Box => rng.log_range(0.4, 2.1),
        Category::Bottle => rng.range(0.2, 0.42),
        Category::Can => rng.log_range(0.45, 1.35),
        Category::Jar => rng.range(0.48, 0.98),
        Category::Carton => rng.range(0.32, 0.58),
        Category::Bag => rng.range(0.5, 1.3),
        Category::Tub => rng.log_range(0.7, 2.1),
    }
}

/// Draws one standing example of `sku`, about `height` px tall. `view` decides what differs
/// between examples: how far it is turned, where the light falls, how the film is creased.
/// `sides` says how much of the side faces of boxes and cartons may be seen, 0 for none to 1.
pub(crate) fn draw(
    sku: Sku,
    view: &mut Seeded,
    height: f32,
    sides: f32,
    pictures: &[Picture],
) -> Sprite {
    let h = height.round().clamp(4.0, 1024.0) as usize;
    let w = (height * aspect(sku)).round().clamp(3.0, 1400.0) as usize;
    let mut family = Seeded::of(&[0x7368_6170, sku.family()]);
    let print = Print {
        sku,
        pictures,
        sides,
    };
    match sku.category() {
        Category::Box => folding_box(&print, &mut family, view, w, h),
        Category::Carton => carton(&print, &mut family, view, w, h),
        Category::Can => can(&print, &mut family, view, w, h),
        Category::Bag => bag(&print, &mut family, view, w, h),
        Category::Bottle | Category::Jar | Category::Tub => vessel(&print, &mut family, view, w, h),
    }
}

struct Print<'a> {
    sku: Sku,
    sides: f32,
    pictures: &'a [Picture],
}

impl Print<'_> {
    fn front(&self, w: usize, h: usize) -> Canvas {
        self.sku.design().draw(w, h, self.pictures)
    }

    fn side(&self, w: usize, h: usize) -> Canvas {
        self.sku.design().side_panel().draw(w, h, self.pictures)
    }
}

/// A turned face of a box to one side of its front.
fn with_side(front: &Sprite, side: &Canvas, on_left: bool, rise: f32, dark: f32) -> Sprite {
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

fn folding_box(
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

fn carton(print: &Print, family: &mut Seeded, view: &mut Seeded, w: usize, h: usize) -> Sprite {
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

fn can(print: &Print, family: &mut Seeded, view: &mut Seeded, w: usize, h: usize) -> Sprite {
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

fn bag(print: &Print, family: &mut Seeded, view: &mut Seeded, w: usize, h: usize) -> Sprite {
    let (wf, hf) = (w as f32, h as f32);
    let face = print.front(w, h);
    let crimp = hf * family.range(0.03, 0.08);
    let pinch = family.range(0.02, 0.14);
    let pouch = family.chance(0.35);
    let stand_up = family.chance(0.35);
    let teeth = family.range(0.3, 1.2);
    let bulge = view.range(0.02, 0.1);
    let (f1, p1) = (view.range(5.0, 20.0), view.range(0.0, 6.28));
    let creases = Field::new(view, 5, 6);
    let folds = Field::new(view, 8, 10);
    let light = Light::new(view, 0.38, 0.3);
    let gloss = view.range(0.04, 0.22);
    let lean = view.normal() * 0.03;
    let zip = hf * family.range(0.1, 0.16);
    let zipped = family.chance(0.25);
    Sprite::from_fn(w, h, |x, y| {
        let v = y / hf;
        let mut half = 1.0 - pinch
            + pinch
                * (std::f32::consts::PI * v.clamp(0.0, 1.0))
                    .sin()
                    .max(0.0)
                    .sqrt()
            + 0.015 * (v * f1 + p1).sin();
        if pouch {
            half = half.min(0.72 + v * 2.5);
        }
        half -= 0.03;
        let s0 = x / wf * 2.0 - 1.0 + lean * (0.5 - v);
        let s = s0 / half;
        let tooth = crimp * 0.3 * (x * teeth).sin().abs();
        let bottom = if stand_up { hf * 0.05 * s * s } else { tooth };
        let cover = ((half - s0.abs()) * wf * 0.5 + 0.5).clamp(0.0, 1.0)
            * (y - tooth + 0.5).clamp(0.0, 1.0)
            * (hf - bottom - y + 0.5).clamp(0.0, 1.0);
        // Film is drawn aside by its filling.
        let swell = bulge * (1.0 - s * s) * (std::f32::consts::PI * v).sin();
        let u = (0.5 + s * 0.5 * (1.0 - swell) + creases.at(s, v) * 0.02) * wf;
        let t = y + folds.at(v, s) * hf * 0.012;
        let mut colour = face.wrapped(u.clamp(0.5, wf - 0.5), t);
        let crease = creases.at(s * 0.5 + 0.5, v);
        let fold = folds.at(s * 0.5 + 0.5, v);
        let dark = 1.0 + 0.15 * crease + 0.05 * fold;
        let shine = gloss * (fold * 1.3 - 0.55 + crease * 0.4).max(0.0);
        let sealed = y < crimp || (y > hf - crimp && !stand_up);
        if sealed {
            let ridged = 0.82 + 0.18 * (if family_rows(teeth) { y * 1.6 } else { x * 1.5 }).sin();
            colour = scale(colour, ridged);
        }
        if zipped && (y - zip).abs() < hf * 0.012 {
            colour = scale(colour, 0.75);
        }
        (light.on(colour.map(|c| c * dark + shine), s), cover)
    })
}

fn family_rows(teeth: f32) -> bool {
    teeth > 0.7
}

/// A smooth random surface over the unit square, about -1 to 1.
pub(crate) struct Field {
    nx: usize,
    ny: usize,
    knots: Vec<f32>,
}

impl Field {
    pub(crate) fn new(rng: &mut Seeded, nx: usize, ny: usize) -> Self {
        let knots = (0..(nx + 1) * (ny + 1)).map(|_| rng.normal()).collect();
        Self { nx, ny, knots }
    }

    pub(crate) fn at(&self, u: f32, v: f32) -> f32 {
        let place = |t: f32, n: usize| {
            let t = t.clamp(0.0, 0.9999) * n as f32;
            let i = t as usize;
            let f = t - i as f32;
            (i, f * f * (3.0 - 2.0 * f))
        };
        let ((ix, fx), (iy, fy)) = (place(u, self.nx), place(v, self.ny));
        let knot = |x: usize, y: usize| self.knots[y * (self.nx + 1) + x];
        let top = knot(ix, iy) + (knot(ix + 1, iy) - knot(ix, iy)) * fx;
        let low = knot(ix, iy + 1) + (knot(ix + 1, iy + 1) - knot(ix, iy + 1)) * fx;
        top + (low - top) * fy
    }
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

fn vessel(print: &Print, family: &mut Seeded, view: &mut Seeded, w: usize, h: usize) -> Sprite {
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
                scale(liquid, gather * lumps)
            }
        } else {
            body
        };
        let seam = if (vb - l0).abs() * hf < 0.7 && !sleeve {
            0.8
        } else {
            1.0
        };
        (scale(light.on(colour, s), seam), cover)
    })
}

/// A price tag: paper, a price, perhaps a name, bars and a frame.
///
/// `style` is shared by the tags of a shelf, `rng` by none.
pub(crate) fn price_tag(style: u64, own: &mut Seeded, height: f32) -> Sprite {
    let rng = &mut Seeded::new(style);
    let h = height.round().clamp(4.0, 256.0) as usize;
    let w = ((height * rng.range(1.0, 2.6)) as usize).max(4);
    let (wf, hf) = (w as f32, h as f32);
    let paper: Rgb = rng.pick(&[
        [0.98, 0.98, 0.96],
        [0.98, 0.98, 0.96],
        [0.98, 0.98, 0.96],
        [0.96, 0.97, 1.0],
        [0.92, 0.93, 0.92],
        [0.98, 0.9, 0.24],
        [0.96, 0.94, 0.8],
        [0.88, 0.18, 0.16],
        [0.98, 0.63, 0.18],
        [0.3, 0.32, 0.33],
    ]);
    let mut ink = if luma(paper) > 0.6 {
        [0.08; 3]
    } else {
        [0.97; 3]
    };
    if luma(paper) > 0.7 && rng.chance(0.3) {
        ink = [0.8, 0.08, 0.08];
    }
    let mut c = Canvas::new(w, h, paper);
    let face = crate::font::Face {
        stretch: rng.range(0.7, 1.1),
        slant: 0.0,
        weight: rng.range(0.07, 0.14),
        spacing: 0.2,
    };
    let price = match rng.below(3) {
        0 => format!("{}.{}9", own.below(30), own.below(10)),
        1 => format!("{}", 10 + own.below(990)),
        _ => format!("{}.{:02}", 1 + own.below(99), own.below(100)),
    };
    if rng.chance(0.2) {
        let band = rng.pick(&[
            [0.85, 0.1, 0.1],
            [0.1, 0.3, 0.7],
            [0.95, 0.8, 0.1],
            [0.1, 0.5, 0.25],
        ]);
        c.rect([0.0, 0.0, wf, hf * 0.25], band);
    }
    let size = (hf * rng.range(0.4, 0.68)).min(wf * 0.85 / face.width(&price).max(0.5));
    face.draw(
        &mut c,
        &price,
        (wf * rng.range(0.4, 0.62), hf * rng.range(0.5, 0.64)),
        size,
        0.0,
        ink,
    );
    if rng.chance(0.6) {
        let y = hf * 0.14;
        c.stroke(
            &[((wf * 0.08, y), (wf * rng.range(0.4, 0.9), y))],
            hf * 0.05,
            mix(ink, paper, 0.3),
            0.8,
        );
    }
    if rng.chance(0.4) {
        crate::print::barcode(&mut c, own, [wf * 0.05, hf * 0.76, wf * 0.4, hf * 0.95]);
    }
    if rng.chance(0.3) {
        let grey = [0.45; 3];
        for b in [
            [0.0, 0.0, wf, 1.0],
            [0.0, hf - 1.0, wf, hf],
            [0.0, 0.0, 1.0, hf],
            [wf - 1.0, 0.0, wf, hf],
        ] {
            c.rect(b, grey);
        }
    }
    let shine = if own.chance(0.25) {
        own.range(0.1, 0.5)
    } else {
        0.0
    };
    let at = own.unit();
    let corners = [(0.0, 0.0), (wf, 0.0), (wf, hf), (0.0, hf)];
    Sprite::from_fn(w, h, |x, y| {
        let p = c.px[y as usize * w + x as usize];
        let add = shine * (-((x / wf - at) / 0.2).powi(2)).exp();
        (p.map(|v| v + add), inside(&corners, x, y) + 0.5)
    })
}
