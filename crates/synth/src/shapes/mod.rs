//! The seven bodies: how a print sits on a box, bottle, can, jar, carton, bag or tub.

mod bag;
mod boxes;
mod round;

use crate::{
    canvas::{Canvas, Picture, Rgb},
    seeded::Seeded,
    sku::{Category, Sku},
    sprite::Sprite,
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
        sides,
        pictures,
    };
    match sku.category() {
        Category::Box => boxes::folding_box(&print, &mut family, view, w, h),
        Category::Carton => boxes::carton(&print, &mut family, view, w, h),
        Category::Can => round::can(&print, &mut family, view, w, h),
        Category::Bag => bag::bag(&print, &mut family, view, w, h),
        Category::Bottle | Category::Jar | Category::Tub => {
            round::vessel(&print, &mut family, view, w, h)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(category: Category, number: u64) -> Sku {
        let place = Category::ALL.iter().position(|&c| c == category).unwrap() as u64;
        Sku::of(number * 7 + place, 0)
    }

    #[test]
    fn every_category_fills_its_bounds_and_has_an_outline_of_its_own() {
        for category in Category::ALL {
            for number in 0..12 {
                let sku = of(category, number);
                let look = draw(sku, &mut Seeded::new(number), 80.0, 0.0, &[]);
                assert_eq!(look.h, 80);
                assert!((look.w as f32 - 80.0 * aspect(sku)).abs() < 1.0);
                let row = |y: usize| {
                    (0..look.w)
                        .filter(|x| look.px[y * look.w + x][3] > 0.5)
                        .count()
                };
                let covered: usize = (0..look.h).map(row).sum();
                let share = covered as f32 / (look.w * look.h) as f32;
                assert!(
                    (0.4..=1.0).contains(&share),
                    "{category:?} {number} {share}"
                );
                let (upper, middle, lower) = (row(3), row(40), row(76));
                match category {
                    Category::Bottle => {
                        assert!(upper * 10 < middle * 9, "{number} {upper} {middle}");
                    }
                    Category::Tub => assert!(lower < row(15), "{number}"),
                    Category::Box => assert_eq!(covered, look.w * look.h),
                    _ => assert!(middle > 0),
                }
            }
        }
    }

    #[test]
    fn two_examples_of_a_sku_are_closer_than_two_skus() {
        let look = |sku, view| draw(sku, &mut Seeded::new(view), 48.0, 0.0, &[]);
        let distance = |a: &Sprite, b: &Sprite| -> f32 {
            let n = 24;
            let at = |s: &Sprite, x: usize, y: usize| s.px[(y * s.h / n) * s.w + x * s.w / n];
            (0..n * n)
                .map(|i| {
                    let (p, q) = (at(a, i % n, i / n), at(b, i % n, i / n));
                    (0..3).map(|c| (p[c] - q[c]).abs()).sum::<f32>()
                })
                .sum()
        };
        let skus: Vec<Sku> = (0..42).map(|family| Sku::of(family, 0)).collect();
        let first: Vec<Sprite> = skus.iter().map(|&sku| look(sku, 1)).collect();
        let right = skus.iter().enumerate().filter(|&(i, &sku)| {
            let other = look(sku, 2);
            let nearest = (0..first.len()).min_by(|&a, &b| {
                distance(&other, &first[a]).total_cmp(&distance(&other, &first[b]))
            });
            nearest == Some(i)
        });
        assert!(right.count() >= 38);
    }

    #[test]
    fn a_tag_of_one_style_says_another_price_each_time() {
        let mut rng = Seeded::new(3);
        let (a, b) = (
            crate::tag::price_tag(9, &mut rng, 20.0),
            crate::tag::price_tag(9, &mut rng, 20.0),
        );
        assert_eq!((a.w, a.h), (b.w, b.h));
        assert_ne!(a.px, b.px);
    }
}
