//! Procedural packaging print: brand, layout, ground, pictures and small print of a SKU.
//!
//! A *family* of SKUs shares brand, layout and type; its *variants* differ in accent colours,
//! picture and the words under the brand, as flavours of one product do.

mod ground;
mod motif;
mod words;

use std::borrow::Cow;

use crate::{
    canvas::{Canvas, Picture, Rgb, hsv, luma, mix, scale},
    font::Face,
    seeded::Seeded,
};

pub(crate) use words::barcode;

const WHITE: Rgb = [0.97, 0.97, 0.95];
const BLACK: Rgb = [0.05, 0.05, 0.07];

/// Everything that decides what is printed on a SKU.
#[derive(Clone, Debug)]
pub(crate) struct Design {
    /// Ground, second colour, accent, ink.
    pub(crate) palette: [Rgb; 4],
    /// Accent of the variant.
    pub(crate) accent: Rgb,
    brand: String,
    brand_face: Face,
    sub: String,
    sub_face: Face,
    layout: u32,
    ground: u32,
    motif: u32,
    foreign: bool,
    family_seed: u64,
    variant_seed: u64,
}

fn syllables(rng: &mut Seeded, low: u32, high: u32) -> String {
    const FIRST: &[&str] = &[
        "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z",
        "br", "ch", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "st", "tr", "th",
    ];
    const MIDDLE: &[&str] = &[
        "a", "e", "i", "o", "u", "a", "e", "o", "ee", "oo", "ia", "y",
    ];
    const LAST: &[&str] = &["", "", "", "", "n", "l", "r", "s", "t", "x", "m"];
    let mut word = String::new();
    for _ in 0..low + rng.below(high - low) {
        word.push_str(rng.pick(FIRST));
        word.push_str(rng.pick(MIDDLE));
        if rng.chance(0.3) {
            word.push_str(rng.pick(LAST));
        }
    }
    word
}

fn cased(rng: &mut Seeded, word: String) -> String {
    if rng.chance(0.45) {
        word.to_uppercase()
    } else if rng.chance(0.75) {
        let mut letters = word.chars();
        letters
            .next()
            .map(|c| c.to_uppercase().collect::<String>() + letters.as_str())
            .unwrap_or_default()
    } else {
        word
    }
}

fn face(rng: &mut Seeded) -> Face {
    Face {
        stretch: rng.range(0.65, 1.35),
        slant: if rng.chance(0.35) {
            rng.range(0.05, 0.35)
        } else {
            0.0
        },
        weight: rng.range(0.05, 0.16),
        spacing: rng.range(-0.1, 1.0),
    }
}

fn palette(rng: &mut Seeded) -> [Rgb; 4] {
    let (kind, hue) = (rng.unit(), rng.unit());
    let base = if kind < 0.28 {
        hsv(hue, rng.range(0.0, 0.15), rng.range(0.85, 1.0))
    } else if kind < 0.4 {
        hsv(hue, rng.range(0.1, 0.9), rng.range(0.04, 0.25))
    } else if kind < 0.5 {
        hsv(
            rng.range(0.05, 0.12),
            rng.range(0.3, 0.6),
            rng.range(0.45, 0.8),
        )
    } else if kind < 0.66 {
        // Packaging favours red and yellow.
        hsv(
            rng.range(-0.04, 0.16),
            rng.range(0.75, 1.0),
            rng.range(0.6, 1.0),
        )
    } else {
        hsv(hue, rng.range(0.4, 1.0), rng.range(0.35, 1.0))
    };
    let step = rng.pick(&[0.0, 0.08, 0.33, 0.5, 0.6]) + rng.range(-0.05, 0.05);
    let second = if rng.chance(0.2) {
        hsv(hue, rng.range(0.0, 0.2), rng.range(0.8, 1.0))
    } else {
        hsv(hue + step, rng.range(0.3, 1.0), rng.range(0.2, 1.0))
    };
    let accent = hsv(rng.unit(), rng.range(0.5, 1.0), rng.range(0.5, 1.0));
    let ink = if luma(base) < 0.55 {
        if rng.chance(0.75) {
            WHITE
        } else {
            hsv(rng.range(0.1, 0.17), rng.range(0.3, 0.9), 1.0)
        }
    } else if rng.chance(0.6) {
        hsv(rng.unit(), rng.range(0.3, 1.0), rng.range(0.05, 0.4))
    } else {
        BLACK
    };
    [base, second, accent, ink]
}

impl Design {
    pub(crate) fn new(family: u64, variant: u32) -> Self {
        let mut rng = Seeded::of(&[0x6465_7369, family]);
        let mut colours = palette(&mut rng);
        let brand = syllables(&mut rng, 1, 4);
        let brand = cased(&mut rng, brand);
        let brand_face = Face {
            weight: rng.range(0.07, 0.19),
            ..face(&mut rng)
        };
        let (layout, ground) = (rng.below(12), rng.below(14));
        let foreign = rng.chance(0.3);
        let family_seed = rng.next_u64();
        let mut own = Seeded::of(&[0x7661_7269, family, u64::from(variant)]);
        let sub = syllables(&mut own, 2, 4);
        let sub = cased(&mut own, sub);
        let sub_face = face(&mut own);
        if variant > 0 {
            let other = palette(&mut own);
            match own.below(4) {
                0 | 1 => colours = [colours[0], other[2], other[1], colours[3]],
                2 => colours[1] = other[1],
                _ => colours = [other[0], colours[1], colours[2], other[3]],
            }
        }
        Self {
            palette: colours,
            accent: hsv(own.unit(), own.range(0.4, 1.0), own.range(0.4, 1.0)),
            brand,
            brand_face,
            sub,
            sub_face,
            layout,
            ground,
            motif: own.below(8),
            foreign,
            family_seed,
            variant_seed: own.next_u64(),
        }
    }

    /// Brand and the words under it, as read from the pack.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.brand, self.sub)
    }

    /// The same print with another panel's layout: what stands on the side of a box.
    pub(crate) fn side_panel(&self) -> Self {
        Self {
            layout: (self.layout + 5) % 12,
            family_seed: self.family_seed ^ 0x5151,
            motif: 7,
            ..self.clone()
        }
    }

    /// Draws the front, `w` x `h` px.
    pub(crate) fn draw(&self, w: usize, h: usize, pictures: &[Picture]) -> Canvas {
        let mut canvas = Canvas::new(w, h, self.palette[0]);
        let mut rng = Seeded::new(self.family_seed);
        let mut own = Seeded::new(self.variant_seed);
        self.draw_ground(&mut canvas, &mut rng, pictures);
        self.draw_motif(&mut canvas, &mut own, pictures);
        self.draw_words(&mut canvas, &mut rng, &mut own);
        self.draw_small(&mut canvas, &mut rng, &mut own);
        canvas
    }
}

/// A photograph when there are any, else a drawn one.
fn print_of<'p>(rng: &mut Seeded, pictures: &'p [Picture]) -> Cow<'p, Picture> {
    let pick = rng.next_u64();
    // A family that was drawn with photographs keeps some of its pictures drawn.
    if !pictures.is_empty() && pick % 8 < 6 {
        return Cow::Borrowed(&pictures[(pick / 8 % pictures.len() as u64) as usize]);
    }
    Cow::Owned(drawn_picture(&mut Seeded::new(pick)))
}

/// A picture of round things on a soft ground, 48 px a side.
pub(crate) fn drawn_picture(rng: &mut Seeded) -> Picture {
    let side = 48usize;
    let (a, b) = (
        hsv(rng.unit(), rng.range(0.1, 0.9), rng.range(0.3, 1.0)),
        hsv(rng.unit(), rng.range(0.1, 0.8), rng.range(0.2, 0.9)),
    );
    let mut c = Canvas::new(side, side, a);
    c.paint(
        [0.0, 0.0, 48.0, 48.0],
        |_, _| 1.0,
        |x, y| mix(a, b, (x + y) / 96.0),
    );
    let colour = hsv(rng.unit(), rng.range(0.4, 1.0), rng.range(0.4, 1.0));
    for _ in 0..4 + rng.below(14) {
        let (x, y, r) = (
            rng.range(0.0, 48.0),
            rng.range(0.0, 48.0),
            rng.range(3.0, 12.0),
        );
        let tint = scale(mix(colour, b, rng.range(0.0, 0.4)), rng.range(0.7, 1.15));
        let squash = rng.range(0.5, 1.0);
        c.ellipse_with((x, y), (r, r * squash), |px, py| {
            let (dx, dy) = ((px - x) / r + 0.35, (py - y) / r + 0.4);
            let d = dx * dx + dy * dy;
            mix(
                scale(tint, 1.2 - 0.45 * d.min(2.0)),
                WHITE,
                (0.5 - d * 4.0).clamp(0.0, 0.4),
            )
        });
    }
    let pixels =
        c.px.iter()
            .map(|p| p.map(|v| (v.clamp(0.0, 1.0) * 255.0) as u8))
            .collect();
    Picture { side, pixels }
}
