//! The picture a scene is put together on: colours and, pixel by pixel, whose they are.

use crate::{
    canvas::{Rgb, mix},
    sprite::Sprite,
};

/// A picture under construction. `ids` is 0 for everything that is no object.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) w: usize,
    pub(crate) h: usize,
    pub(crate) px: Vec<Rgb>,
    pub(crate) ids: Vec<u16>,
}

/// How a sprite is put down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    /// Left end of the upright sprite, px.
    pub(crate) x: f32,
    /// Upper end.
    pub(crate) y: f32,
    pub(crate) w: f32,
    pub(crate) h: f32,
    /// Turn about the middle of its base, radians.
    pub(crate) turn: f32,
    /// Brightness.
    pub(crate) gain: f32,
    /// How dark a shadow it throws on what is behind it, 0 to 1.
    pub(crate) shadow: f32,
    pub(crate) flip: bool,
}

impl Put {
    pub(crate) fn new(x: f32, y: f32, w: f32, h: f32) -> Self {
        Self {
            x,
            y,
            w,
            h,
            turn: 0.0,
            gain: 1.0,
            shadow: 0.0,
            flip: false,
        }
    }
}

impl Stage {
    pub(crate) fn new(w: usize, h: usize, fill: Rgb) -> Self {
        Self {
            w,
            h,
            px: vec![fill; w * h],
            ids: vec![0; w * h],
        }
    }

    /// The pixels of `b` that lie on the stage: x0, x1, y0, y1.
    pub(crate) fn cut(&self, b: [f32; 4]) -> (usize, usize, usize, usize) {
        let x = |v: f32| v.clamp(0.0, self.w as f32) as usize;
        let y = |v: f32| v.clamp(0.0, self.h as f32) as usize;
        let (x0, y0) = (x(b[0].round()), y(b[1].round()));
        (x0, x(b[2].round()).max(x0), y0, y(b[3].round()).max(y0))
    }

    /// Changes the colours of a box; what lies under it keeps its owner.
    pub(crate) fn tint(&mut self, b: [f32; 4], change: impl Fn(Rgb, f32, f32) -> Rgb) {
        let (x0, x1, y0, y1) = self.cut(b);
        for y in y0..y1 {
            for x in x0..x1 {
                let p = &mut self.px[y * self.w + x];
                *p = change(*p, x as f32 + 0.5, y as f32 + 0.5);
            }
        }
    }

    /// Fills a box with something that is no object.
    pub(crate) fn fill(&mut self, b: [f32; 4], colour: impl Fn(f32, f32) -> Rgb) {
        let (x0, x1, y0, y1) = self.cut(b);
        for y in y0..y1 {
            for x in x0..x1 {
                self.px[y * self.w + x] = colour(x as f32 + 0.5, y as f32 + 0.5);
                self.ids[y * self.w + x] = 0;
            }
        }
    }

    /// Puts a sprite down as object `id` and returns its whole area in px, also of what lies
    /// outside the stage.
    pub(crate) fn put(&mut self, sprite: &Sprite, at: Put, id: u16) -> f32 {
        let (sin, cos) = at.turn.sin_cos();
        let (fx, fy) = (at.x + at.w * 0.5, at.y + at.h);
        let corner = |x: f32, y: f32| (fx + x * cos - y * sin, fy + x * sin + y * cos);
        let corners = [
            corner(-at.w * 0.5, -at.h),
            corner(at.w * 0.5, -at.h),
            corner(at.w * 0.5, 0.0),
            corner(-at.w * 0.5, 0.0),
        ];
        let low = |f: fn(&(f32, f32)) -> f32| corners.iter().map(f).fold(f32::MAX, f32::min);
        let high = |f: fn(&(f32, f32)) -> f32| corners.iter().map(f).fold(f32::MIN, f32::max);
        let bounds = [
            low(|p| p.0).floor(),
            low(|p| p.1).floor(),
            high(|p| p.0).ceil(),
            high(|p| p.1).ceil(),
        ];
        if at.shadow > 0.0 {
            // A soft copy of the silhouette, a little wider than it, falls on what is behind.
            let reach = (at.w * 0.06).clamp(1.0, 7.0);
            let (sx, sy) = (
                sprite.w as f32 / at.w.max(0.5),
                sprite.h as f32 / at.h.max(0.5),
            );
            let covered = |x: f32, y: f32| {
                let (x, y) = ((x - at.x) * sx, (y - at.y) * sy);
                if x < 0.0 || y < 0.0 || x >= sprite.w as f32 || y >= sprite.h as f32 {
                    return 0.0;
                }
                sprite.px[y as usize * sprite.w + x as usize][3]
            };
            let around = [at.x - reach, at.y - reach, at.x + at.w + reach, at.y + at.h];
            self.tint(around, |p, x, y| {
                let y = y + reach * 0.5;
                let share = covered(x - reach, y)
                    + covered(x + reach, y)
                    + covered(x - reach * 0.5, y)
                    + covered(x + reach * 0.5, y);
                p.map(|v| v * (1.0 - at.shadow * 0.25 * share))
            });
        }
        let (kx, ky) = (
            sprite.w as f32 / at.w.max(0.5),
            sprite.h as f32 / at.h.max(0.5),
        );
        let (x0, x1, y0, y1) = self.cut(bounds);
        for y in y0..y1 {
            for x in x0..x1 {
                let (dx, dy) = (x as f32 + 0.5 - fx, y as f32 + 0.5 - fy);
                let mut sx = (dx * cos + dy * sin + at.w * 0.5) * kx;
                let sy = (dy * cos - dx * sin + at.h) * ky;
                if at.flip {
                    sx = sprite.w as f32 - sx;
                }
                if sx < 0.0 || sy < 0.0 || sx >= sprite.w as f32 || sy >= sprite.h as f32 {
                    continue;
                }
                let p = sprite.at(sx, sy);
                if p[3] > 0.0 {
                    let i = y * self.w + x;
                    let colour = [p[0] * at.gain, p[1] * at.gain, p[2] * at.gain];
                    self.px[i] = mix(self.px[i], colour, p[3]);
                    if p[3] > 0.5 {
                        self.ids[i] = id;
                    }
                }
            }
        }
        let covered = sprite.px.iter().filter(|p| p[3] > 0.5).count() as f32;
        covered / (kx * ky)
    }
}
