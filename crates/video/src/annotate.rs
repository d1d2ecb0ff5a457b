//! Boxes, labels and masks drawn into a frame, the same bytes for the same input.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts};
use shelfscan_inference_core::{BoxXyxy, Mask, RgbImage, TrackId};

/// Side of a glyph at scale 1, in pixels.
const GLYPH: i64 = 8;

/// Longest label that is drawn, in characters.
const MAX_LABEL: usize = 64;

/// How strongly a mask tints the picture, of 256.
const TINT: u32 = 96;

/// Something to draw into a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// Where it is, in source pixels.
    pub bbox: BoxXyxy,
    /// Text above the box, such as `cola 0.5l 0.93`; may be empty.
    pub label: String,
    /// The track, written before the label; it also picks the colour.
    pub track_id: Option<TrackId>,
    /// Colour of box, label and tint; `None` picks one by track, or a plain one without a track.
    pub color: Option<[u8; 3]>,
    /// The exact shape, tinted when its size is that of the frame.
    pub mask: Option<Mask>,
}

/// Draws annotations in order, later ones on top.
///
/// Thickness and letters grow with the picture. What lies outside is cut off, and a box that is no
/// box is left out. Characters the small font lacks are drawn as `?`.
#[must_use]
pub fn annotate(frame: &RgbImage, annotations: &[Annotation]) -> RgbImage {
    let (width, height) = (frame.width(), frame.height());
    let mut canvas = Canvas {
        width: i64::from(width),
        height: i64::from(height),
        pixels: frame.pixels().to_vec(),
    };
    let short = i64::from(width.min(height));
    let stroke = (short / 360).clamp(1, 8);
    let scale = (short / 480 + 1).clamp(1, 6);
    for annotation in annotations {
        if let Some(mask) = &annotation.mask {
            canvas.tint(mask, color_of(annotation));
        }
    }
    for annotation in annotations.iter().filter(|a| a.bbox.is_valid()) {
        let color = color_of(annotation);
        let cut = annotation.bbox.clamped(width, height);
        let [x0, y0, x1, y1] = [cut.x0, cut.y0, cut.x1, cut.y1].map(|v| v.round() as i64);
        canvas.frame([x0, y0, x1, y1], stroke, color);
        canvas.label(&label_text(annotation), (x0, y0), scale, color);
    }
    RgbImage::new(width, height, canvas.pixels).unwrap_or_else(|_| frame.clone())
}

/// The colour of a track: neighbouring ids get colours far apart, and all are bright.
pub fn track_color(id: TrackId) -> [u8; 3] {
    // The golden angle keeps the hues of any run of ids spread out.
    let hue = (id.0 % 360_000) as f64 * 137.507_764 % 360.0;
    let channel = |offset: f64| {
        let k = (offset + hue / 60.0) % 6.0;
        let level = 1.0 - 0.75 * k.min(4.0 - k).clamp(0.0, 1.0);
        (level * 255.0).round() as u8
    };
    [channel(5.0), channel(3.0), channel(1.0)]
}

fn color_of(annotation: &Annotation) -> [u8; 3] {
    annotation
        .color
        .or_else(|| annotation.track_id.map(track_color))
        .unwrap_or([255, 200, 0])
}

fn label_text(annotation: &Annotation) -> String {
    let text = match annotation.track_id {
        Some(id) if annotation.label.is_empty() => format!("#{id}"),
        Some(id) => format!("#{id} {}", annotation.label),
        None => annotation.label.clone(),
    };
    text.chars().take(MAX_LABEL).collect()
}

struct Canvas {
    width: i64,
    height: i64,
    pixels: Vec<u8>,
}

impl Canvas {
    /// Fills a rectangle, its right and lower edge exclusive.
    fn fill(&mut self, [x0, y0, x1, y1]: [i64; 4], color: [u8; 3]) {
        let (x0, x1) = (x0.clamp(0, self.width), x1.clamp(0, self.width));
        for y in y0.max(0)..y1.min(self.height) {
            let row = (y * self.width) as usize;
            let span = (row + x0 as usize) * 3..(row + x1.max(x0) as usize) * 3;
            for pixel in self.pixels[span].chunks_exact_mut(3) {
                pixel.copy_from_slice(&color);
            }
        }
    }

    /// Draws the outline of a rectangle, inside it.
    fn frame(&mut self, [x0, y0, x1, y1]: [i64; 4], stroke: i64, color: [u8; 3]) {
        self.fill([x0, y0, x1, (y0 + stroke).min(y1)], color);
        self.fill([x0, (y1 - stroke).max(y0), x1, y1], color);
        self.fill([x0, y0, (x0 + stroke).min(x1), y1], color);
        self.fill([(x1 - stroke).max(x0), y0, x1, y1], color);
    }

    /// Writes a line of text on a plate above a corner, or below it at the picture's upper edge.
    fn label(&mut self, text: &str, (x, y): (i64, i64), scale: i64, color: [u8; 3]) {
        if text.is_empty() {
            return;
        }
        let (glyph, rim) = (GLYPH * scale, scale);
        let (width, height) = (
            text.chars().count() as i64 * glyph + 2 * rim,
            glyph + 2 * rim,
        );
        let x = x.min(self.width - width).max(0);
        let y = if y >= height { y - height } else { y };
        self.fill([x, y, x + width, y + height], color);
        let ink = ink_on(color);
        for (i, letter) in text.chars().enumerate() {
            let rows = BASIC_FONTS
                .get(letter)
                .or_else(|| LATIN_FONTS.get(letter))
                .or_else(|| BASIC_FONTS.get('?'))
                .unwrap_or_default();
            let left = x + rim + i as i64 * glyph;
            for (row, bits) in (0..).zip(rows) {
                for column in (0..GLYPH).filter(|column| bits >> column & 1 == 1) {
                    let (px, py) = (left + column * scale, y + rim + row * scale);
                    self.fill([px, py, px + scale, py + scale], ink);
                }
            }
        }
    }

    /// Blends a colour over the set pixels of a mask of the canvas's size.
    fn tint(&mut self, mask: &Mask, color: [u8; 3]) {
        if (i64::from(mask.width()), i64::from(mask.height())) != (self.width, self.height) {
            return;
        }
        let (width, height) = (self.width as usize, self.height as usize);
        // Runs go down the columns, background first.
        let mut at = 0;
        for (i, &run) in mask.runs().iter().enumerate() {
            let end = at + run as usize;
            if i % 2 == 1 {
                for k in at..end {
                    let pixel = (k % height * width + k / height) * 3;
                    for (value, wanted) in self.pixels[pixel..pixel + 3].iter_mut().zip(color) {
                        let blended = u32::from(*value) * (256 - TINT) + u32::from(wanted) * TINT;
                        *value = (blended >> 8) as u8;
                    }
                }
            }
            at = end;
        }
    }
}

/// Black or white, whichever reads better on a colour.
fn ink_on([r, g, b]: [u8; 3]) -> [u8; 3] {
    let light = u32::from(r) * 299 + u32::from(g) * 587 + u32::from(b) * 114;
    if light > 128_000 { [0; 3] } else { [255; 3] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grey(width: u32, height: u32) -> RgbImage {
        RgbImage::new(width, height, vec![90; (width * height * 3) as usize]).unwrap()
    }

    fn boxed(bbox: BoxXyxy) -> Annotation {
        Annotation {
            bbox,
            label: String::new(),
            track_id: None,
            color: Some([250, 10, 20]),
            mask: None,
        }
    }

    #[test]
    fn a_box_is_drawn_on_its_edge_and_leaves_its_inside_alone() {
        let drawn = annotate(
            &grey(100, 80),
            &[boxed(BoxXyxy::new(20.0, 30.0, 60.0, 70.0))],
        );
        for (x, y) in [(20, 30), (59, 69), (20, 69), (40, 30), (59, 50)] {
            assert_eq!(drawn.pixel(x, y), Some([250, 10, 20]), "{x},{y}");
        }
        for (x, y) in [(40, 50), (19, 30), (60, 50), (40, 70)] {
            assert_eq!(drawn.pixel(x, y), Some([90; 3]), "{x},{y}");
        }
    }

    #[test]
    fn a_mask_tints_its_own_pixels_only() {
        let region = BoxXyxy::new(10.0, 10.0, 20.0, 20.0);
        let annotation = Annotation {
            mask: Some(Mask::from_box(50, 40, &region)),
            bbox: BoxXyxy::new(f32::NAN, 0.0, 1.0, 1.0),
            ..boxed(region)
        };
        let drawn = annotate(&grey(50, 40), &[annotation]);
        assert_eq!(drawn.pixel(9, 10), Some([90; 3]));
        assert_eq!(drawn.pixel(20, 19), Some([90; 3]));
        assert_eq!(drawn.pixel(15, 15), Some([150, 60, 63]));
    }

    #[test]
    fn a_label_is_readable_and_stays_inside_the_picture() {
        let annotation = |x0: f32, y0: f32| Annotation {
            label: "I".into(),
            track_id: Some(TrackId(7)),
            ..boxed(BoxXyxy::new(x0, y0, x0 + 30.0, y0 + 30.0))
        };
        for (x0, y0) in [(10.0, 40.0), (0.0, 0.0), (80.0, 60.0)] {
            let drawn = annotate(&grey(100, 80), &[annotation(x0, y0)]);
            let inked = drawn.pixels().chunks(3).filter(|p| p == &[255; 3]).count();
            // Three drawn letters of an 8x8 font.
            assert!((30..150).contains(&inked), "{inked} at {x0},{y0}");
        }
    }

    #[test]
    fn neighbouring_tracks_have_colours_far_apart() {
        for id in 1..200 {
            let (a, b) = (track_color(TrackId(id)), track_color(TrackId(id + 1)));
            let distance: i32 = a
                .iter()
                .zip(b)
                .map(|(p, q)| (i32::from(*p) - i32::from(q)).abs())
                .sum();
            assert!(distance > 100, "{id}: {a:?} {b:?}");
        }
    }

    proptest! {
        #[test]
        fn any_box_and_text_is_drawn_without_a_panic_and_always_alike(
            corners in proptest::array::uniform4(-1e6f32..1e6),
            label in ".{0,80}",
            id in proptest::option::of(any::<u64>()),
            size in (1u32..60, 1u32..60),
        ) {
            let [x0, y0, x1, y1] = corners;
            let annotation = Annotation {
                label,
                track_id: id.map(TrackId),
                color: None,
                ..boxed(BoxXyxy::new(x0, y0, x1, y1))
            };
            let frame = grey(size.0, size.1);
            let once = annotate(&frame, std::slice::from_ref(&annotation));
            prop_assert_eq!(once, annotate(&frame, &[annotation]));
        }
    }
}
