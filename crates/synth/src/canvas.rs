//! A small antialiased rasteriser: filled polygons, ellipses, rounded boxes, strokes, pictures.

/// Linear-light-agnostic colour, channels 0 to 1.
pub(crate) type Rgb = [f32; 3];
/// A point in pixels, x to the right, y down.
pub(crate) type Point = (f32, f32);

pub(crate) fn mix(a: Rgb, b: Rgb, share: f32) -> Rgb {
    [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * share)
}

pub(crate) fn scale(a: Rgb, factor: f32) -> Rgb {
    a.map(|v| v * factor)
}

/// Hue in turns (any number), saturation and value 0 to 1.
pub(crate) fn hsv(hue: f32, saturation: f32, value: f32) -> Rgb {
    [5.0f32, 3.0, 1.0].map(|offset| {
        let k = (offset + hue.rem_euclid(1.0) * 6.0).rem_euclid(6.0);
        value - value * saturation * k.min(4.0 - k).clamp(0.0, 1.0)
    })
}

/// Brightness 0 to 1.
pub(crate) fn luma(c: Rgb) -> f32 {
    c[0] * 0.3 + c[1] * 0.59 + c[2] * 0.11
}

/// A square photograph or drawn picture that is printed on packs.
#[derive(Clone, Debug)]
pub struct Picture {
    pub(crate) side: usize,
    pub(crate) pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Colour at `(u, v)`, both 0 to 1, nearest pixel.
    pub(crate) fn at(&self, u: f32, v: f32) -> Rgb {
        let place = |t: f32| ((t * self.side as f32) as usize).min(self.side - 1);
        let pixel = self.pixels[place(v) * self.side + place(u)];
        pixel.map(|c| f32::from(c) / 255.0)
    }
}

/// Whole pixels from `from` to `to`, held within `0..limit`.
fn span(from: f32, to: f32, limit: usize) -> (usize, usize) {
    let first = from.floor().clamp(0.0, limit as f32) as usize;
    let last = to.ceil().clamp(0.0, limit as f32) as usize;
    (first, last.max(first))
}

/// An opaque picture under the brush.
#[derive(Clone, Debug)]
pub(crate) struct Canvas {
    pub(crate) w: usize,
    pub(crate) h: usize,
    pub(crate) px: Vec<Rgb>,
}

impl Canvas {
    pub(crate) fn new(w: usize, h: usize, fill: Rgb) -> Self {
        let (w, h) = (w.max(1), h.max(1));
        Self {
            w,
            h,
            px: vec![fill; w * h],
        }
    }

    /// Bilinear sample at pixel coordinates; x wraps round, y is held at the edges.
    pub(crate) fn wrapped(&self, x: f32, y: f32) -> Rgb {
        let x = (x - 0.5).rem_euclid(self.w as f32);
        let y = (y - 0.5).clamp(0.0, (self.h - 1) as f32);
        let (x0, y0) = ((x as usize).min(self.w - 1), y as usize);
        let x1 = if x0 + 1 == self.w { 0 } else { x0 + 1 };
        let y1 = (y0 + 1).min(self.h - 1);
        let (fx, fy) = (x - x0 as f32, y - y0 as f32);
        let (row0, row1) = (y0 * self.w, y1 * self.w);
        mix(
            mix(self.px[row0 + x0], self.px[row0 + x1], fx),
            mix(self.px[row1 + x0], self.px[row1 + x1], fx),
            fy,
        )
    }

    fn blend(&mut self, at: usize, colour: Rgb, share: f32) {
        self.px[at] = mix(self.px[at], colour, share);
    }

    /// Paints every pixel between the bounds whose `cover` is above 0.
    pub(crate) fn paint(
        &mut self,
        bounds: [f32; 4],
        cover: impl Fn(f32, f32) -> f32,
        colour: impl Fn(f32, f32) -> Rgb,
    ) {
        let (x0, x1) = span(bounds[0], bounds[2], self.w);
        let (y0, y1) = span(bounds[1], bounds[3], self.h);
        for y in y0..y1 {
            for x in x0..x1 {
                let (fx, fy) = (x as f32 + 0.5, y as f32 + 0.5);
                let share = cover(fx, fy);
                if share > 0.0 {
                    self.blend(y * self.w + x, colour(fx, fy), share.min(1.0));
                }
            }
        }
    }

    pub(crate) fn rect(&mut self, b: [f32; 4], colour: Rgb) {
        self.paint(
            b,
            |x, y| {
                let sx = (x + 0.5).min(b[2]) - (x - 0.5).max(b[0]);
                let sy = (y + 0.5).min(b[3]) - (y - 0.5).max(b[1]);
                sx.clamp(0.0, 1.0) * sy.clamp(0.0, 1.0)
            },
            |_, _| colour,
        );
    }

    pub(crate) fn round_rect(&mut self, b: [f32; 4], radius: f32, colour: Rgb) {
        let (cx, cy) = ((b[0] + b[2]) * 0.5, (b[1] + b[3]) * 0.5);
        let (hw, hh) = ((b[2] - b[0]) * 0.5, (b[3] - b[1]) * 0.5);
        let r = radius.min(hw).min(hh).max(0.0);
        self.paint(
            [b[0] - 1.0, b[1] - 1.0, b[2] + 1.0, b[3] + 1.0],
            |x, y| {
                let (dx, dy) = ((x - cx).abs() - hw + r, (y - cy).abs() - hh + r);
                let out = (dx.max(0.0).powi(2) + dy.max(0.0).powi(2)).sqrt();
                0.5 - (out + dx.max(dy).min(0.0) - r)
            },
            |_, _| colour,
        );
    }

    pub(crate) fn ellipse(&mut self, c: Point, r: Point, colour: Rgb) {
        self.ellipse_with(c, r, |_, _| colour);
    }

    pub(crate) fn ellipse_with(&mut self, c: Point, r: Point, colour: impl Fn(f32, f32) -> Rgb) {
        let (rx, ry) = (r.0.max(0.3), r.1.max(0.3));
        self.paint(
            [
                c.0 - rx - 1.0,
                c.1 - ry - 1.0,
                c.0 + rx + 1.0,
                c.1 + ry + 1.0,
            ],
            |x, y| {
                let (dx, dy) = ((x - c.0) / rx, (y - c.1) / ry);
                let reach = (dx * dx + dy * dy).sqrt();
                (1.0 - reach) * rx.min(ry) + 0.5
            },
            colour,
        );
    }

    /// Fills a polygon by the even-odd rule, four sample rows a pixel.
    pub(crate) fn polygon(&mut self, points: &[Point], colour: Rgb, alpha: f32) {
        let top = points.iter().fold(f32::MAX, |a, p| a.min(p.1));
        let low = points.iter().fold(f32::MIN, |a, p| a.max(p.1));
        let (y0, y1) = span(top, low, self.h);
        let mut row = vec![0.0f32; self.w];
        let mut cuts = Vec::new();
        for y in y0..y1 {
            row.fill(0.0);
            for sub in 0..4 {
                let sy = y as f32 + (sub as f32 + 0.5) * 0.25;
                cuts.clear();
                for (a, b) in points.iter().zip(points.iter().cycle().skip(1)) {
                    if (a.1 <= sy) != (b.1 <= sy) {
                        cuts.push(a.0 + (sy - a.1) / (b.1 - a.1) * (b.0 - a.0));
                    }
                }
                cuts.sort_by(f32::total_cmp);
                for pair in cuts.chunks_exact(2) {
                    let (x0, x1) = span(pair[0], pair[1], self.w);
                    for (x, value) in row.iter_mut().enumerate().take(x1).skip(x0) {
                        let fx = x as f32;
                        let part = (fx + 1.0).min(pair[1]) - fx.max(pair[0]);
                        *value += part.clamp(0.0, 1.0) * 0.25;
                    }
                }
            }
            for (x, share) in row.iter().enumerate() {
                if *share > 0.0 {
                    self.blend(y * self.w + x, colour, share.min(1.0) * alpha);
                }
            }
        }
    }

    /// Strokes a set of segments with round ends as one shape.
    pub(crate) fn stroke(
        &mut self,
        segments: &[(Point, Point)],
        radius: f32,
        colour: Rgb,
        alpha: f32,
    ) {
        let mut b = [f32::MAX, f32::MAX, f32::MIN, f32::MIN];
        for (p, q) in segments {
            b[0] = b[0].min(p.0).min(q.0);
            b[1] = b[1].min(p.1).min(q.1);
            b[2] = b[2].max(p.0).max(q.0);
            b[3] = b[3].max(p.1).max(q.1);
        }
        let reach = radius + 1.0;
        // A stroke thinner than a pixel keeps its width's worth of ink.
        let (radius, ink) = if radius < 0.5 {
            (0.5, radius * 2.0 * alpha)
        } else {
            (radius, alpha)
        };
        self.paint(
            [b[0] - reach, b[1] - reach, b[2] + reach, b[3] + reach],
            |x, y| {
                let mut nearest = f32::MAX;
                for (p, q) in segments {
                    let (dx, dy) = (q.0 - p.0, q.1 - p.1);
                    let long = dx * dx + dy * dy;
                    let t = if long > 0.0 {
                        (((x - p.0) * dx + (y - p.1) * dy) / long).clamp(0.0, 1.0)
                    } else {
                        0.0
                    };
                    let (ex, ey) = (p.0 + t * dx - x, p.1 + t * dy - y);
                    nearest = nearest.min(ex * ex + ey * ey);
                }
                (radius + 0.5 - nearest.sqrt()).clamp(0.0, 1.0) * ink
            },
            |_, _| colour,
        );
    }
}
