//! Cut-out pictures of products.

use crate::canvas::{Point, Rgb};

/// A picture with a silhouette: straight colour and coverage 0 to 1.
#[derive(Clone, Debug)]
pub(crate) struct Sprite {
    pub(crate) w: usize,
    pub(crate) h: usize,
    pub(crate) px: Vec<[f32; 4]>,
}

impl Sprite {
    /// Every pixel from `at(x, y)`, its centre in pixels.
    pub(crate) fn from_fn(w: usize, h: usize, mut at: impl FnMut(f32, f32) -> (Rgb, f32)) -> Self {
        let (w, h) = (w.max(1), h.max(1));
        let mut px = Vec::with_capacity(w * h);
        for y in 0..h {
            for x in 0..w {
                let (c, cover) = at(x as f32 + 0.5, y as f32 + 0.5);
                px.push([c[0], c[1], c[2], cover.clamp(0.0, 1.0)]);
            }
        }
        Self { w, h, px }
    }

    /// Colour and coverage at pixel coordinates, bilinear; nothing outside.
    pub(crate) fn at(&self, x: f32, y: f32) -> [f32; 4] {
        let (x, y) = (x - 0.5, y - 0.5);
        let (x0, y0) = (x.floor(), y.floor());
        let (fx, fy) = (x - x0, y - y0);
        let (x0, y0) = (x0 as isize, y0 as isize);
        let get = |x: isize, y: isize| {
            let inside = x >= 0 && y >= 0 && x < self.w as isize && y < self.h as isize;
            let (cx, cy) = (
                x.clamp(0, self.w as isize - 1),
                y.clamp(0, self.h as isize - 1),
            );
            let mut p = self.px[cy as usize * self.w + cx as usize];
            if !inside {
                p[3] = 0.0;
            }
            p
        };
        let (a, b, c, d) = (
            get(x0, y0),
            get(x0 + 1, y0),
            get(x0, y0 + 1),
            get(x0 + 1, y0 + 1),
        );
        let mut out = [0.0; 4];
        for i in 0..4 {
            let top = a[i] + (b[i] - a[i]) * fx;
            let low = c[i] + (d[i] - c[i]) * fx;
            out[i] = top + (low - top) * fy;
        }
        out
    }
}

/// Signed depth of a point inside a convex polygon given clockwise on screen, in pixels.
pub(crate) fn inside(points: &[Point], x: f32, y: f32) -> f32 {
    points
        .iter()
        .zip(points.iter().cycle().skip(1))
        .map(|(a, b)| {
            let (dx, dy) = (b.0 - a.0, b.1 - a.1);
            let long = (dx * dx + dy * dy).sqrt().max(1e-6);
            (dx * (y - a.1) - dy * (x - a.0)) / long
        })
        .fold(f32::MAX, f32::min)
}
