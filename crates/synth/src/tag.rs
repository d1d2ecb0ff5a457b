//! Price tags.

use crate::{
    canvas::{Canvas, Rgb, luma, mix},
    font::Face,
    print::barcode,
    seeded::Seeded,
    sprite::{Sprite, inside},
};

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
    let face = Face {
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
        barcode(&mut c, own, [wf * 0.05, hf * 0.76, wf * 0.4, hf * 0.95]);
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
