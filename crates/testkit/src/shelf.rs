//! A drawn shelf and a camera that moves over it, with the truth of every frame.

use std::{collections::BTreeSet, sync::Arc};

use shelfscan_inference_core::{
    BoxXyxy, FrameDetections, FrameTime, Mask, RgbImage, SourceId, TrackId, VideoFrame,
};

use crate::{
    packs::{pack, picture},
    seeded::Seeded,
    truth::{Truth, TruthFrame, TruthObject},
};

/// What to draw. Lengths are in shelf pixels, which equal frame pixels at zoom 1.
#[derive(Clone, Debug)]
pub struct ShelfPlan {
    /// Decides which products stand where and how everything looks.
    pub seed: u64,
    /// Boards above each other.
    pub rows: u32,
    /// Packs on each board, gaps not counted.
    pub packs_per_row: u32,
    /// Different products to choose from.
    pub skus: u32,
    /// Longest run of one product side by side.
    pub longest_run: u32,
    /// Probability of an empty place before a run.
    pub gap_chance: f32,
    /// Width of a pack.
    pub pack_width_px: u32,
    /// Height of the tallest pack.
    pub pack_height_px: u32,
}

impl Default for ShelfPlan {
    fn default() -> Self {
        Self {
            seed: 1,
            rows: 2,
            packs_per_row: 12,
            skus: 10,
            longest_run: 3,
            gap_chance: 0.15,
            pack_width_px: 90,
            pack_height_px: 150,
        }
    }
}

/// One pack on the shelf.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnFacing {
    /// Its id in the truth, from 1 in reading order.
    pub id: TrackId,
    /// Seed of the product's look, see [`crate::packs::pack`].
    pub sku_seed: u64,
    /// Where it stands, in shelf pixels.
    pub bbox: BoxXyxy,
}

/// A whole shelf as one wide picture.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// The picture; shelf pixels are its pixels.
    pub picture: RgbImage,
    /// The packs in reading order.
    pub facings: Vec<DrawnFacing>,
}

const BOARD_PX: u32 = 26;
const MARGIN_PX: u32 = 60;

impl Shelf {
    /// Draws the shelf of a plan. Equal plans give equal pixels.
    pub fn draw(plan: &ShelfPlan) -> Self {
        let mut rng = Seeded::of(&[0x7368_656c, plan.seed]);
        let bay = plan.pack_height_px + plan.pack_height_px / 6;
        let mut facings = Vec::new();
        let mut right_px = 0;
        for row in 0..plan.rows {
            let board_y = MARGIN_PX + bay + row * (bay + BOARD_PX);
            let mut x = MARGIN_PX;
            let mut placed = 0;
            while placed < plan.packs_per_row {
                if rng.chance(plan.gap_chance) {
                    x += plan.pack_width_px;
                }
                let sku_seed = plan.seed * 1000 + u64::from(rng.below(plan.skus.max(1)));
                // The size belongs to the product, so that a run stands level.
                let mut own = Seeded::of(&[0x7369_7a65, sku_seed]);
                let width = (plan.pack_width_px as f32 * own.range(0.8, 1.0)) as u32;
                let height = (plan.pack_height_px as f32 * own.range(0.75, 1.0)) as u32;
                let run = 1 + rng.below(plan.longest_run.max(1));
                for _ in 0..run.min(plan.packs_per_row - placed) {
                    let (left, top) = (x as f32, (board_y - height) as f32);
                    facings.push(DrawnFacing {
                        id: TrackId(facings.len() as u64 + 1),
                        sku_seed,
                        bbox: BoxXyxy::from_xywh(left, top, width as f32, height as f32),
                    });
                    placed += 1;
                    x += width + 2 + rng.below(5);
                }
            }
            right_px = right_px.max(x);
        }
        let width = right_px + MARGIN_PX;
        let height = 2 * MARGIN_PX + plan.rows * (bay + BOARD_PX);
        let picture = Canvas::new(width, height, plan.seed)
            .with_boards(plan, bay)
            .with_packs(&facings, plan.seed)
            .finish();
        Self { picture, facings }
    }

    /// The products that stand here, each once, in order of their seeds.
    pub fn sku_seeds(&self) -> BTreeSet<u64> {
        self.facings.iter().map(|f| f.sku_seed).collect()
    }
}

/// The picture while it is being drawn.
struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
    rng: Seeded,
}

impl Canvas {
    /// A dark, uneven back wall.
    fn new(width: u32, height: u32, seed: u64) -> Self {
        let mut rng = Seeded::of(&[0x7761_6c6c, seed]);
        let (cells_x, cells_y) = (width / 24 + 2, height / 24 + 2);
        let shade: Vec<f32> = (0..cells_x * cells_y)
            .map(|_| rng.range(22.0, 62.0))
            .collect();
        let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
        for y in 0..height {
            for x in 0..width {
                let (cx, cy) = (x / 24, y / 24);
                let (fx, fy) = ((x % 24) as f32 / 24.0, (y % 24) as f32 / 24.0);
                let at = |dx: u32, dy: u32| shade[((cy + dy) * cells_x + cx + dx) as usize];
                let top = at(0, 0) * (1.0 - fx) + at(1, 0) * fx;
                let low = at(0, 1) * (1.0 - fx) + at(1, 1) * fx;
                let value = (top * (1.0 - fy) + low * fy) as u8;
                pixels.extend([value, value, value.saturating_add(6)]);
            }
        }
        Self {
            width,
            height,
            pixels,
            rng,
        }
    }

    fn fill(&mut self, x0: u32, y0: u32, x1: u32, y1: u32, colour: [u8; 3]) {
        for y in y0..y1.min(self.height) {
            for x in x0..x1.min(self.width) {
                let at = (y * self.width + x) as usize * 3;
                self.pixels[at..at + 3].copy_from_slice(&colour);
            }
        }
    }

    /// Boards with price tags and bars of print, and the two side posts.
    fn with_boards(mut self, plan: &ShelfPlan, bay: u32) -> Self {
        for row in 0..plan.rows {
            let y = MARGIN_PX + bay + row * (bay + BOARD_PX);
            self.fill(0, y, self.width, y + BOARD_PX, [150, 148, 142]);
            self.fill(0, y + BOARD_PX - 4, self.width, y + BOARD_PX, [88, 86, 84]);
            let mut x = MARGIN_PX + self.rng.below(plan.pack_width_px.max(1));
            while x + 60 < self.width {
                self.fill(x, y + 3, x + 46, y + BOARD_PX - 4, [236, 236, 228]);
                for line in 0..3 {
                    let length = 8 + self.rng.below(32);
                    let top = y + 6 + line * 5;
                    self.fill(x + 4, top, x + 4 + length, top + 3, [30, 30, 34]);
                }
                x += 60 + self.rng.below(2 * plan.pack_width_px.max(1));
            }
        }
        let (width, height) = (self.width, self.height);
        self.fill(8, 0, 34, height, [206, 204, 198]);
        self.fill(width - 34, 0, width - 8, height, [206, 204, 198]);
        self
    }

    fn with_packs(mut self, facings: &[DrawnFacing], seed: u64) -> Self {
        for facing in facings {
            let (w, h) = (facing.bbox.width() as u32, facing.bbox.height() as u32);
            let front = pack(facing.sku_seed, seed * 7919 + facing.id.0, w, h);
            let (x, y) = (facing.bbox.x0 as usize, facing.bbox.y0 as usize);
            let row_bytes = w as usize * 3;
            for (line, pixels) in front.pixels().chunks_exact(row_bytes).enumerate() {
                let at = ((y + line) * self.width as usize + x) * 3;
                self.pixels[at..at + row_bytes].copy_from_slice(pixels);
            }
        }
        self
    }

    fn finish(self) -> RgbImage {
        picture(self.width, self.height, self.pixels)
    }
}

/// Where the camera looks in one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Viewpoint {
    /// Shelf pixel at the centre of the frame, horizontally.
    pub x_px: f32,
    /// Shelf pixel at the centre of the frame, vertically.
    pub y_px: f32,
    /// Frame pixels per shelf pixel.
    pub zoom: f32,
    /// Turn of the picture, clockwise, in radians.
    pub roll_rad: f32,
}

impl Viewpoint {
    /// A level view at zoom 1.
    pub fn at(x_px: f32, y_px: f32) -> Self {
        Self {
            x_px,
            y_px,
            zoom: 1.0,
            roll_rad: 0.0,
        }
    }

    fn between(&self, other: &Self, share: f32) -> Self {
        let mix = |a: f32, b: f32| a + (b - a) * share;
        Self {
            x_px: mix(self.x_px, other.x_px),
            y_px: mix(self.y_px, other.y_px),
            zoom: mix(self.zoom, other.zoom),
            roll_rad: mix(self.roll_rad, other.roll_rad),
        }
    }
}

/// A clip of a shelf: the camera's way and what each frame shows.
#[derive(Clone, Debug)]
pub struct ShelfClip {
    /// The shelf, shared between clips.
    pub shelf: Arc<Shelf>,
    /// One viewpoint per frame.
    pub path: Vec<Viewpoint>,
    /// Width of a frame.
    pub width_px: u32,
    /// Height of a frame.
    pub height_px: u32,
    /// Frames per second.
    pub fps: f64,
    /// Share of the time between two frames during which the shutter is open; 0 for no blur.
    pub exposure: f32,
    /// Deviation of the sensor noise, in grey levels of 255.
    pub noise_levels: f32,
    /// Decides shake and noise.
    pub seed: u64,
}

impl ShelfClip {
    /// A clip of `width_px` x `height_px` along `path`, 30 frames per second, sharp, a little noise.
    pub fn new(shelf: Arc<Shelf>, path: Vec<Viewpoint>, width_px: u32, height_px: u32) -> Self {
        Self {
            shelf,
            path,
            width_px: width_px.max(1),
            height_px: height_px.max(1),
            fps: 30.0,
            exposure: 0.0,
            noise_levels: 2.0,
            seed: 1,
        }
    }

    /// A pan from the left end of the shelf to the right one and back, `frames` in all, half way
    /// up the shelf, slow at the turning points.
    pub fn forth_and_back(shelf: Arc<Shelf>, frames: u32, width_px: u32, height_px: u32) -> Self {
        let (wide, tall) = (shelf.picture.width() as f32, shelf.picture.height() as f32);
        let half = (width_px as f32 * 0.5).min(wide * 0.5);
        let path = (0..frames)
            .map(|i| {
                let turn = i as f32 / (frames.max(2) - 1) as f32 * std::f32::consts::TAU;
                let share = (1.0 - turn.cos()) * 0.5;
                Viewpoint::at(half + share * (wide - 2.0 * half), tall * 0.5)
            })
            .collect();
        Self::new(shelf, path, width_px, height_px)
    }

    /// Adds a hand's shake: `pixels` of slow wander, and a little zoom and roll with it.
    #[must_use]
    pub fn shaken(mut self, pixels: f32) -> Self {
        let mut rng = Seeded::of(&[0x7368_616b, self.seed]);
        let mut wander = [0.0f32; 4];
        for viewpoint in &mut self.path {
            for value in &mut wander {
                *value = *value * 0.8 + rng.normal() * 0.6;
            }
            viewpoint.x_px += wander[0] * pixels;
            viewpoint.y_px += wander[1] * pixels;
            viewpoint.zoom *= 1.0 + wander[2] * 0.004;
            viewpoint.roll_rad += wander[3] * 0.004;
        }
        self
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.path.len()
    }

    /// True when the camera takes no frame.
    pub fn is_empty(&self) -> bool {
        self.path.is_empty()
    }

    /// All frames in order, drawn one at a time.
    pub fn frames(&self) -> impl Iterator<Item = VideoFrame> + '_ {
        (0..self.len()).map(|index| self.frame(index))
    }

    /// Draws one frame. Past the end the camera stands still.
    pub fn frame(&self, index: usize) -> VideoFrame {
        let (here, next) = (self.viewpoint(index), self.viewpoint(index + 1));
        let samples = if self.exposure > 0.0 { 5u32 } else { 1 };
        let length = self.width_px as usize * self.height_px as usize * 3;
        let mut sums = vec![0.0f32; length];
        for sample in 0..samples {
            let share = self.exposure * sample as f32 / samples as f32;
            self.expose(&here.between(&next, share), &mut sums);
        }
        let mut rng = Seeded::of(&[0x6672_616d, self.seed, index as u64]);
        let spread = self.noise_levels * 1.732;
        let pixels = sums
            .iter()
            .map(|sum| {
                let value = sum / samples as f32 + rng.range(-spread, spread);
                (value.clamp(0.0, 255.0) + 0.5) as u8
            })
            .collect();
        VideoFrame {
            image: picture(self.width_px, self.height_px, pixels),
            index: index as u64,
            time: FrameTime::exact(index as f64 / self.fps),
            source: SourceId::new("drawn shelf"),
        }
    }

    /// The truth of every frame, without masks.
    pub fn truth(&self) -> Truth {
        let frames = (0..self.len()).map(|i| self.truth_of(i, false)).collect();
        Truth { frames }
    }

    /// The truth of one frame, with exact masks when asked for.
    pub fn truth_of(&self, index: usize, with_masks: bool) -> TruthFrame {
        let viewpoint = self.viewpoint(index);
        let objects = self
            .shelf
            .facings
            .iter()
            .filter_map(|facing| self.seen(facing, &viewpoint, with_masks))
            .collect();
        TruthFrame {
            frame_index: index as u64,
            objects,
        }
    }

    /// The truth as detections, with track ids and, when asked for, masks.
    pub fn tracked_detections(&self, with_masks: bool) -> Vec<FrameDetections> {
        let frames = (0..self.len())
            .map(|i| self.truth_of(i, with_masks))
            .collect();
        let truth = Truth { frames };
        let mut detections = truth.detections();
        for (found, exact) in detections.iter_mut().zip(&truth.frames) {
            for (detection, object) in found.detections.iter_mut().zip(&exact.objects) {
                detection.track_id = Some(object.track_id);
            }
        }
        detections
    }

    fn viewpoint(&self, index: usize) -> Viewpoint {
        self.path
            .get(index)
            .or(self.path.last())
            .copied()
            .unwrap_or(Viewpoint::at(0.0, 0.0))
    }

    /// Adds the picture seen from `viewpoint` to `sums`, `[height, width, 3]`.
    fn expose(&self, viewpoint: &Viewpoint, sums: &mut [f32]) {
        let (wide, tall) = (self.shelf.picture.width(), self.shelf.picture.height());
        let source = self.shelf.picture.pixels();
        let (sin, cos) = viewpoint.roll_rad.sin_cos();
        let (sin, cos) = (sin / viewpoint.zoom, cos / viewpoint.zoom);
        let (half_w, half_h) = (self.width_px as f32 * 0.5, self.height_px as f32 * 0.5);
        let row_values = self.width_px as usize * 3;
        for (y, row) in sums.chunks_exact_mut(row_values).enumerate() {
            let fy = y as f32 + 0.5 - half_h;
            for (x, out) in row.chunks_exact_mut(3).enumerate() {
                let fx = x as f32 + 0.5 - half_w;
                // Beyond its edges the shelf's outermost pixels go on.
                let sx = (viewpoint.x_px + fx * cos + fy * sin - 0.5).clamp(0.0, (wide - 2) as f32);
                let sy = (viewpoint.y_px - fx * sin + fy * cos - 0.5).clamp(0.0, (tall - 2) as f32);
                let (ix, iy) = (sx as usize, sy as usize);
                let (rx, ry) = (sx - ix as f32, sy - iy as f32);
                let at = (iy * wide as usize + ix) * 3;
                let below = at + wide as usize * 3;
                for (c, value) in out.iter_mut().enumerate() {
                    let top =
                        f32::from(source[at + c]) * (1.0 - rx) + f32::from(source[at + 3 + c]) * rx;
                    let low = f32::from(source[below + c]) * (1.0 - rx)
                        + f32::from(source[below + 3 + c]) * rx;
                    *value += top * (1.0 - ry) + low * ry;
                }
            }
        }
    }

    fn seen(&self, facing: &DrawnFacing, viewpoint: &Viewpoint, mask: bool) -> Option<TruthObject> {
        let (sin, cos) = viewpoint.roll_rad.sin_cos();
        let (half_w, half_h) = (self.width_px as f32 * 0.5, self.height_px as f32 * 0.5);
        let place = |x: f32, y: f32| {
            let (dx, dy) = (
                (x - viewpoint.x_px) * viewpoint.zoom,
                (y - viewpoint.y_px) * viewpoint.zoom,
            );
            (half_w + dx * cos - dy * sin, half_h + dx * sin + dy * cos)
        };
        let b = &facing.bbox;
        let corners = [
            place(b.x0, b.y0),
            place(b.x1, b.y0),
            place(b.x1, b.y1),
            place(b.x0, b.y1),
        ];
        let inside = clip(&corners, self.width_px as f32, self.height_px as f32);
        let visible_fraction = area(&inside) / area(&corners);
        if visible_fraction <= 0.0 {
            return None;
        }
        let bbox = inside.iter().fold(
            BoxXyxy::new(f32::MAX, f32::MAX, f32::MIN, f32::MIN),
            |b, &(x, y)| BoxXyxy::new(b.x0.min(x), b.y0.min(y), b.x1.max(x), b.y1.max(y)),
        );
        let mask = mask.then(|| {
            Mask::from_fn(self.width_px, self.height_px, |x, y| {
                let (dx, dy) = (x as f32 + 0.5 - half_w, y as f32 + 0.5 - half_h);
                let sx = viewpoint.x_px + (dx * cos + dy * sin) / viewpoint.zoom;
                let sy = viewpoint.y_px + (dy * cos - dx * sin) / viewpoint.zoom;
                (b.x0..b.x1).contains(&sx) && (b.y0..b.y1).contains(&sy)
            })
        });
        Some(TruthObject {
            track_id: facing.id,
            label: "product".into(),
            sku: format!("sku-{}", facing.sku_seed).into(),
            bbox,
            visible_fraction,
            blurred: self.exposure > 0.0,
            mask,
        })
    }
}

/// Cuts a convex polygon to the frame (Sutherland and Hodgman, 1974).
fn clip(polygon: &[(f32, f32)], width: f32, height: f32) -> Vec<(f32, f32)> {
    type Depth = fn((f32, f32), f32) -> f32;
    let edges: [(Depth, f32); 4] = [
        (|p, _| p.0, 0.0),
        (|p, w| w - p.0, width),
        (|p, _| p.1, 0.0),
        (|p, h| h - p.1, height),
    ];
    let mut points = polygon.to_vec();
    for (depth, limit) in edges {
        let mut kept = Vec::with_capacity(points.len() + 2);
        for (i, &here) in points.iter().enumerate() {
            let before = points[(i + points.len() - 1) % points.len()];
            let (d0, d1) = (depth(before, limit), depth(here, limit));
            if (d0 < 0.0) != (d1 < 0.0) {
                let share = d0 / (d0 - d1);
                kept.push((
                    before.0 + (here.0 - before.0) * share,
                    before.1 + (here.1 - before.1) * share,
                ));
            }
            if d1 >= 0.0 {
                kept.push(here);
            }
        }
        points = kept;
    }
    points
}

fn area(polygon: &[(f32, f32)]) -> f32 {
    let twice: f32 = polygon
        .iter()
        .zip(polygon.iter().cycle().skip(1))
        .map(|(a, b)| a.0 * b.1 - b.0 * a.1)
        .sum();
    twice.abs() * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arc<Shelf> {
        Arc::new(Shelf::draw(&ShelfPlan {
            packs_per_row: 5,
            ..ShelfPlan::default()
        }))
    }

    #[test]
    fn a_shelf_holds_the_planned_packs_and_none_overlap() {
        let shelf = Shelf::draw(&ShelfPlan::default());
        assert_eq!(shelf.facings.len(), 24);
        for (i, a) in shelf.facings.iter().enumerate() {
            for b in &shelf.facings[i + 1..] {
                assert_eq!(a.bbox.iou(&b.bbox), 0.0);
            }
        }
        assert_eq!(shelf.picture, Shelf::draw(&ShelfPlan::default()).picture);
    }

    #[test]
    fn a_level_view_shows_the_pixels_of_the_shelf_where_the_truth_says() {
        let shelf = small();
        let facing = shelf.facings[2].clone();
        let (x, y) = facing.bbox.center();
        let mut clip = ShelfClip::new(
            shelf.clone(),
            vec![Viewpoint::at(x.floor(), y.floor())],
            320,
            240,
        );
        clip.noise_levels = 0.0;
        let frame = clip.frame(0);
        let seen = clip.truth_of(0, true);
        let object = seen
            .objects
            .iter()
            .find(|o| o.track_id == facing.id)
            .unwrap();
        assert_eq!(object.visible_fraction, 1.0);
        assert_eq!(
            frame.image.crop(&object.bbox),
            shelf.picture.crop(&facing.bbox)
        );
        assert_eq!(
            object.mask.as_ref().unwrap().bounding_box(),
            Some(object.bbox)
        );
    }

    #[test]
    fn a_pack_cut_by_the_frame_has_the_share_that_is_left() {
        let shelf = small();
        let b = shelf.facings[0].bbox;
        let viewpoint = Viewpoint::at(b.center().0 + 160.0, b.center().1);
        let clip = ShelfClip::new(shelf, vec![viewpoint], 320, 480);
        let seen = &clip.truth_of(0, false).objects[0];
        assert!((seen.visible_fraction - 0.5).abs() < 0.01, "{seen:?}");
        assert_eq!(seen.bbox.x0, 0.0);
    }

    #[test]
    fn a_turned_view_keeps_mask_and_box_together() {
        let shelf = small();
        let (x, y) = shelf.facings[1].bbox.center();
        let viewpoint = Viewpoint {
            roll_rad: 0.2,
            zoom: 1.3,
            ..Viewpoint::at(x, y)
        };
        let clip = ShelfClip::new(shelf, vec![viewpoint], 400, 400);
        for object in clip.truth_of(0, true).objects {
            let bounds = object.mask.and_then(|m| m.bounding_box());
            if object.visible_fraction > 0.05 {
                assert!(bounds.unwrap().iou(&object.bbox) > 0.9, "{:?}", object.bbox);
            }
        }
    }

    #[test]
    fn a_pan_comes_back_to_where_it_began_and_its_frames_are_reproducible() {
        let clip = ShelfClip::forth_and_back(small(), 21, 240, 200).shaken(1.0);
        assert_eq!(clip.frame(3).image, clip.clone().frame(3).image);
        let level = ShelfClip::forth_and_back(small(), 21, 240, 200);
        let (first, last) = (level.truth_of(0, false), level.truth_of(20, false));
        assert_eq!(first.objects.len(), last.objects.len());
        let truth = level.truth();
        assert_eq!(truth.ids().len(), 10);
        assert_eq!(truth.frames.len(), 21);
    }

    #[test]
    fn an_open_shutter_smears_a_moving_frame() {
        let mut clip = ShelfClip::forth_and_back(small(), 12, 200, 160);
        clip.noise_levels = 0.0;
        let sharp = clip.frame(3).image;
        clip.exposure = 0.8;
        let smeared = clip.frame(3).image;
        let contrast = |image: &RgbImage| -> u64 {
            let row = image.pixels().chunks_exact(3).map(|p| i64::from(p[1]));
            let values: Vec<i64> = row.collect();
            values
                .windows(2)
                .map(|p| (p[0] - p[1]).unsigned_abs())
                .sum()
        };
        assert!(contrast(&smeared) < contrast(&sharp));
    }
}
