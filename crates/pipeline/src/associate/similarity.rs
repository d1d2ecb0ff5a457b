//! Shift, turn and zoom in the plane of the picture.

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::BoxXyxy;

/// Maps `(x, y)` to `(a x - b y + tx, b x + a y + ty)`, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Similarity {
    /// Zoom times the cosine of the turn.
    pub a: f64,
    /// Zoom times the sine of the turn.
    pub b: f64,
    /// Shift along x, in pixels.
    pub tx: f64,
    /// Shift along y, in pixels.
    pub ty: f64,
}

impl Default for Similarity {
    fn default() -> Self {
        Self::IDENTITY
    }
}

impl Similarity {
    /// Leaves every point where it is.
    pub const IDENTITY: Self = Self {
        a: 1.0,
        b: 0.0,
        tx: 0.0,
        ty: 0.0,
    };

    /// A shift in pixels.
    pub fn translation(tx: f64, ty: f64) -> Self {
        Self {
            tx,
            ty,
            ..Self::IDENTITY
        }
    }

    /// Where a point goes.
    pub fn apply(&self, x: f64, y: f64) -> (f64, f64) {
        (
            self.a * x - self.b * y + self.tx,
            self.b * x + self.a * y + self.ty,
        )
    }

    /// Where a box goes. Its centre moves exactly and its sides are zoomed; a turn leaves it level,
    /// because the small turns of a hand-held camera would only inflate it.
    pub fn apply_box(&self, region: &BoxXyxy) -> BoxXyxy {
        let (cx, cy) = region.center();
        let (x, y) = self.apply(f64::from(cx), f64::from(cy));
        let zoom = self.zoom();
        let half_w = f64::from(region.width()) * 0.5 * zoom;
        let half_h = f64::from(region.height()) * 0.5 * zoom;
        BoxXyxy::new(
            (x - half_w) as f32,
            (y - half_h) as f32,
            (x + half_w) as f32,
            (y + half_h) as f32,
        )
    }

    /// First `self`, then `next`.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let (tx, ty) = next.apply(self.tx, self.ty);
        Self {
            a: next.a * self.a - next.b * self.b,
            b: next.b * self.a + next.a * self.b,
            tx,
            ty,
        }
    }

    /// The way back. A map that shrinks everything to a point has none and gives the identity.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let square = self.a * self.a + self.b * self.b;
        if square <= f64::MIN_POSITIVE {
            return Self::IDENTITY;
        }
        let (a, b) = (self.a / square, -self.b / square);
        Self {
            a,
            b,
            tx: -(a * self.tx - b * self.ty),
            ty: -(b * self.tx + a * self.ty),
        }
    }

    /// How much lengths grow.
    pub fn zoom(&self) -> f64 {
        self.a.hypot(self.b)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_box_is_shifted_and_zoomed_about_the_origin() {
        let map = Similarity {
            a: 2.0,
            ..Similarity::translation(10.0, -5.0)
        };
        let moved = map.apply_box(&BoxXyxy::new(1.0, 2.0, 3.0, 6.0));
        assert_eq!(moved, BoxXyxy::new(12.0, -1.0, 16.0, 7.0));
    }

    #[test]
    fn a_collapsed_map_has_the_identity_for_its_way_back() {
        let map = Similarity {
            a: 0.0,
            ..Similarity::IDENTITY
        };
        assert_eq!(map.inverse(), Similarity::IDENTITY);
    }

    proptest! {
        #[test]
        fn there_and_back_is_where_it_began(
            a in 0.5f64..2.0, b in -0.5f64..0.5, tx in -500.0f64..500.0, ty in -500.0f64..500.0,
            x in -500.0f64..500.0, y in -500.0f64..500.0,
        ) {
            let map = Similarity { a, b, tx, ty };
            let (px, py) = map.then(&map.inverse()).apply(x, y);
            prop_assert!((px - x).abs() < 1e-6 && (py - y).abs() < 1e-6);
            let (qx, qy) = map.then(&map).apply(x, y);
            let (rx, ry) = map.apply(x, y);
            let (sx, sy) = map.apply(rx, ry);
            prop_assert!((qx - sx).abs() < 1e-6 && (qy - sy).abs() < 1e-6);
        }
    }
}
