//! Bags and pouches of film.

use super::{Light, Print};
use crate::{canvas::scale, field::Field, seeded::Seeded, sprite::Sprite};

pub(super) fn bag(
    print: &Print,
    family: &mut Seeded,
    view: &mut Seeded,
    w: usize,
    h: usize,
) -> Sprite {
    let (wf, hf) = (w as f32, h as f32);
    let face = print.front(w, h);
    let crimp = hf * family.range(0.03, 0.08);
    let pinch = family.range(0.02, 0.14);
    let pouch = family.chance(0.35);
    let stand_up = family.chance(0.35);
    let teeth = family.range(0.3, 1.2);
    let bulge = view.range(0.02, 0.1);
    let (f1, p1) = (
        view.range(5.0, 20.0),
        view.range(0.0, std::f32::consts::TAU),
    );
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
