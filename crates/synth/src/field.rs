//! A smooth random surface.

use crate::seeded::Seeded;

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
