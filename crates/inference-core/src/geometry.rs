//! Boxes in source pixels.

use serde::{Deserialize, Serialize};

/// An axis-aligned box in source pixels: `x0,y0` is the upper left corner, `x1,y1` the lower right
/// one, exclusive, so that the width is `x1 - x0`. Serialised as `[x0, y0, x1, y1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f32; 4]", into = "[f32; 4]")]
pub struct BoxXyxy {
    /// Left edge, in source pixels.
    pub x0: f32,
    /// Upper edge, in source pixels.
    pub y0: f32,
    /// Right edge, in source pixels, exclusive.
    pub x1: f32,
    /// Lower edge, in source pixels, exclusive.
    pub y1: f32,
}

impl From<[f32; 4]> for BoxXyxy {
    fn from([x0, y0, x1, y1]: [f32; 4]) -> Self {
        Self { x0, y0, x1, y1 }
    }
}

impl From<BoxXyxy> for [f32; 4] {
    fn from(b: BoxXyxy) -> Self {
        [b.x0, b.y0, b.x1, b.y1]
    }
}

impl BoxXyxy {
    /// A box from its two corners.
    pub fn new(x0: f32, y0: f32, x1: f32, y1: f32) -> Self {
        Self { x0, y0, x1, y1 }
    }

    /// A box from its upper left corner and size, all in source pixels.
    pub fn from_xywh(x: f32, y: f32, width: f32, height: f32) -> Self {
        Self::new(x, y, x + width, y + height)
    }

    /// Width in source pixels, never negative.
    pub fn width(&self) -> f32 {
        (self.x1 - self.x0).max(0.0)
    }

    /// Height in source pixels, never negative.
    pub fn height(&self) -> f32 {
        (self.y1 - self.y0).max(0.0)
    }

    /// Area in square source pixels.
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// Centre `(x, y)` in source pixels.
    pub fn center(&self) -> (f32, f32) {
        (
            f32::midpoint(self.x0, self.x1),
            f32::midpoint(self.y0, self.y1),
        )
    }

    /// True when all four numbers are finite and the box has an area.
    pub fn is_valid(&self) -> bool {
        [self.x0, self.y0, self.x1, self.y1]
            .iter()
            .all(|v| v.is_finite())
            && self.x1 > self.x0
            && self.y1 > self.y0
    }

    /// The common part of two boxes; empty (zero area) when they do not meet.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let x0 = self.x0.max(other.x0);
        let y0 = self.y0.max(other.y0);
        Self::new(
            x0,
            y0,
            self.x1.min(other.x1).max(x0),
            self.y1.min(other.y1).max(y0),
        )
    }

    /// The smallest box around both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new(
            self.x0.min(other.x0),
            self.y0.min(other.y0),
            self.x1.max(other.x1),
            self.y1.max(other.y1),
        )
    }

    /// Intersection over union, 0 when both are empty.
    pub fn iou(&self, other: &Self) -> f32 {
        let inter = self.intersection(other).area();
        let union = self.area() + other.area() - inter;
        if union > 0.0 { inter / union } else { 0.0 }
    }

    /// Intersection over the smaller area, 0 when either is empty.
    pub fn iom(&self, other: &Self) -> f32 {
        let smaller = self.area().min(other.area());
        if smaller > 0.0 {
            self.intersection(other).area() / smaller
        } else {
            0.0
        }
    }

    /// The box cut to a picture of `width` x `height` source pixels.
    #[must_use]
    pub fn clamped(&self, width: u32, height: u32) -> Self {
        let (w, h) = (width as f32, height as f32);
        Self::new(
            self.x0.clamp(0.0, w),
            self.y0.clamp(0.0, h),
            self.x1.clamp(0.0, w),
            self.y1.clamp(0.0, h),
        )
    }

    /// The box moved by `(dx, dy)` source pixels.
    #[must_use]
    pub fn translated(&self, dx: f32, dy: f32) -> Self {
        Self::new(self.x0 + dx, self.y0 + dy, self.x1 + dx, self.y1 + dy)
    }

    /// The box grown on each side by a share of its own width and height.
    #[must_use]
    pub fn expanded(&self, share: f32) -> Self {
        let (dx, dy) = (self.width() * share, self.height() * share);
        Self::new(self.x0 - dx, self.y0 - dy, self.x1 + dx, self.y1 + dy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iou_and_iom_agree_with_hand_counted_squares() {
        let a = BoxXyxy::new(0.0, 0.0, 10.0, 10.0);
        let b = BoxXyxy::new(5.0, 0.0, 10.0, 10.0);
        assert_eq!(a.iou(&b), 0.5);
        assert_eq!(a.iom(&b), 1.0);
        assert_eq!(a.iou(&a.translated(20.0, 0.0)), 0.0);
    }

    #[test]
    fn an_empty_or_broken_box_is_not_valid_and_never_divides_by_zero() {
        let empty = BoxXyxy::new(3.0, 3.0, 3.0, 9.0);
        assert!(!empty.is_valid());
        assert_eq!(empty.iou(&empty), 0.0);
        assert_eq!(empty.iom(&empty), 0.0);
        assert!(!BoxXyxy::new(f32::NAN, 0.0, 1.0, 1.0).is_valid());
    }

    #[test]
    fn a_box_is_written_as_four_numbers() {
        let text = serde_json::to_string(&BoxXyxy::new(1.0, 2.0, 3.5, 4.0)).unwrap();
        assert_eq!(text, "[1.0,2.0,3.5,4.0]");
    }
}
