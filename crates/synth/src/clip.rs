//! A clip: frames of a shelf along a camera's path, each with its exact truth.

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{
    BoxXyxy, Detection, FrameDetections, FrameTime, Mask, RgbImage, SourceId, TrackId, VideoFrame,
};

use crate::{
    Result, SynthError,
    camera::{CameraPath, Pose},
    lens::Homography,
    seeded::Seeded,
    shelf::Shelf,
    sku::Sku,
};

/// Share of an object that has to be in view for it to be in a frame's truth.
pub const MIN_VISIBLE: f32 = 0.15;
const MIN_SIDE_PX: u32 = 4;

/// The word under which packs are in the truth: the prompt that looks for them.
pub const PRODUCT: &str = "product";

/// One object as it really is in one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct TruthObject {
    /// The physical object, the same in every frame, also after it was out of view.
    pub track_id: TrackId,
    /// `product`, or `price tag`.
    pub label: &'static str,
    /// The category, such as `bottle` or `price tag`.
    pub category: &'static str,
    /// The SKU; `None` for a price tag.
    pub sku: Option<Sku>,
    /// Bounds of the pixels in view, source px.
    pub bbox: BoxXyxy,
    /// Share of the object's area in view, 0 to 1.
    pub visible: f32,
}

/// Which object each pixel of a frame shows, and what is known of the objects.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameTruth {
    /// Index of the frame in its clip.
    pub frame_index: u64,
    /// Width of the frame, px.
    pub width: u32,
    /// Height of the frame, px.
    pub height: u32,
    /// Track id of what each pixel shows, `[height, width]`, 0 for none.
    pub ids: Vec<u16>,
    /// The objects in view, by id.
    pub objects: Vec<TruthObject>,
}

impl FrameTruth {
    /// The exact shape of an object in this frame; empty when it is not in view.
    pub fn mask(&self, id: TrackId) -> Mask {
        let width = self.width as usize;
        Mask::from_fn(self.width, self.height, |x, y| {
            u64::from(self.ids[y as usize * width + x as usize]) == id.0
        })
    }

    /// What a detector that makes no mistake would find, with the true track ids.
    pub fn detections(&self, with_masks: bool) -> FrameDetections {
        FrameDetections {
            frame_index: self.frame_index,
            detections: self
                .objects
                .iter()
                .map(|o| Detection {
                    label: o.label.into(),
                    prompt: o.label.into(),
                    score: 1.0,
                    bbox: o.bbox,
                    mask: with_masks.then(|| self.mask(o.track_id)),
                    track_id: Some(o.track_id),
                })
                .collect(),
            notices: Vec::new(),
        }
    }

    /// The line of `truth.jsonl` for this frame.
    pub fn record(&self, time_secs: f64, with_masks: bool) -> TruthRecord {
        TruthRecord {
            frame_index: self.frame_index,
            time_secs,
            width: self.width,
            height: self.height,
            detections: self
                .objects
                .iter()
                .zip(self.detections(with_masks).detections)
                .map(|(o, detection)| TruthDetection {
                    detection,
                    category: o.category.into(),
                    sku: o.sku.map(Sku::slug),
                    visible: (f64::from(o.visible) * 1000.0).round() / 1000.0,
                })
                .collect(),
        }
    }
}

/// A frame in `truth.jsonl`: a line of `detections.jsonl` that says more about each object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthRecord {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// Presentation time in seconds.
    pub time_secs: f64,
    /// Width of the frame, px.
    pub width: u32,
    /// Height of the frame, px.
    pub height: u32,
    /// The objects in view, by id.
    pub detections: Vec<TruthDetection>,
}

/// An object in `truth.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruthDetection {
    /// What a detector would say: label, prompt, score 1, box, mask and track id.
    #[serde(flatten)]
    pub detection: Detection,
    /// The category, such as `bottle` or `price tag`.
    pub category: Arc<str>,
    /// Name of the SKU, as its folder of views is called; none for a price tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Share of the object's area in view, 0 to 1.
    pub visible: f64,
}

/// One drawn frame.
#[derive(Clone, Debug)]
pub struct ClipFrame {
    /// The frame as a reader would deliver it.
    pub frame: VideoFrame,
    /// What it shows.
    pub truth: FrameTruth,
}

/// What a clip shows of one pack in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FacingTruth {
    /// The pack.
    pub track_id: TrackId,
    /// Its SKU.
    pub sku: Sku,
    /// Frames in which it is in the truth.
    pub frames: u32,
    /// Frames in which at least half of it is in view.
    pub frames_half_seen: u32,
    /// Largest share in view in any frame.
    pub best_visible: f32,
}

/// A shelf, a way of looking at it, and what the camera adds.
#[derive(Clone, Debug)]
pub struct Clip {
    /// The shelf, shared between clips.
    pub shelf: Arc<Shelf>,
    /// One pose a frame.
    pub path: CameraPath,
    /// Frames a second, above 0.
    pub fps: f64,
    /// Share of the time between two frames in which the shutter is open, 0 to 1.
    pub exposure: f32,
    /// Deviation of the sensor's noise, grey levels of 255.
    pub noise_levels: f32,
    /// Share of the light that is missing in the corners, 0 to 1.
    pub vignette: f32,
    /// Decides the noise.
    pub seed: u64,
    /// The source its frames name.
    pub source: SourceId,
}

impl Clip {
    /// A clip of ten frames a second with a little noise, smear and vignetting.
    pub fn new(shelf: Arc<Shelf>, path: CameraPath, seed: u64) -> Self {
        Self {
            shelf,
            path,
            fps: 10.0,
            exposure: 0.12,
            noise_levels: 2.5,
            vignette: 0.25,
            seed,
            source: SourceId::new("drawn shelf"),
        }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.path.poses.len()
    }

    /// True when the path has no pose.
    pub fn is_empty(&self) -> bool {
        self.path.poses.is_empty()
    }

    /// Width and height of the frames, px.
    pub fn size_px(&self) -> (u32, u32) {
        self.shelf.plan().frame_px
    }

    /// All frames in order, drawn one at a time.
    pub fn frames(&self) -> impl Iterator<Item = ClipFrame> + '_ {
        (0..self.len()).map(|index| self.frame(index))
    }

    fn pose(&self, index: usize) -> Pose {
        let poses = &self.path.poses;
        poses
            .get(index)
            .or(poses.last())
            .copied()
            .unwrap_or(Pose::at(0.0, 0.0))
    }

    /// Draws one frame; past the end the camera stands still. Any frame can be drawn alone, with
    /// the same bytes as in order.
    pub fn frame(&self, index: usize) -> ClipFrame {
        let (w, h) = self.size_px();
        let view = self.pose(index).view(w, h);
        let (mut px, ids) = expose(&self.shelf, &view, w as usize, h as usize);
        if let Some(step) = self.smear(index) {
            px = smeared(&px, w as usize, h as usize, step);
        }
        let image = self.develop(&px, index);
        let truth = self.truth(index, &view, ids);
        let frame = VideoFrame {
            image,
            index: index as u64,
            time: FrameTime::exact(index as f64 / self.fps.max(1e-3)),
            source: self.source.clone(),
        };
        ClipFrame { frame, truth }
    }

    /// The truth of one frame without drawing it.
    pub fn frame_truth(&self, index: usize) -> FrameTruth {
        let (w, h) = self.size_px();
        let view = self.pose(index).view(w, h);
        let mut ids = Vec::with_capacity(w as usize * h as usize);
        each_source(&view, w as usize, h as usize, |x, y| {
            let inside =
                x >= 0.0 && y >= 0.0 && (x as usize) < self.shelf.w && (y as usize) < self.shelf.h;
            ids.push(if inside {
                self.shelf.ids[y as usize * self.shelf.w + x as usize]
            } else {
                0
            });
        });
        self.truth(index, &view, ids)
    }

    /// What the whole clip shows of each pack that is in the truth of any frame, by id.
    pub fn facings(&self) -> Vec<FacingTruth> {
        let frames: Vec<FrameTruth> = (0..self.len())
            .into_par_iter()
            .map(|i| FrameTruth {
                ids: Vec::new(),
                ..self.frame_truth(i)
            })
            .collect();
        let mut facings: Vec<FacingTruth> = self
            .shelf
            .packs()
            .filter_map(|o| {
                o.sku.map(|sku| FacingTruth {
                    track_id: o.track_id,
                    sku,
                    frames: 0,
                    frames_half_seen: 0,
                    best_visible: 0.0,
                })
            })
            .collect();
        for object in frames.iter().flat_map(|f| &f.objects) {
            let Ok(at) = facings.binary_search_by_key(&object.track_id, |f| f.track_id) else {
                continue;
            };
            let facing = &mut facings[at];
            facing.frames += 1;
            facing.frames_half_seen += u32::from(object.visible >= 0.5);
            facing.best_visible = facing.best_visible.max(object.visible);
        }
        facings.retain(|f| f.frames > 0);
        facings
    }

    /// Motion of the picture while the shutter is open, px; `None` when it is too little to see.
    fn smear(&self, index: usize) -> Option<(f32, f32)> {
        let (w, h) = self.size_px();
        let (cx, cy) = (w as f32 * 0.5, h as f32 * 0.5);
        let (here, next) = (self.pose(index), self.pose(index + 1));
        let (a, b) = (here.view(w, h).at(cx, cy), next.view(w, h).at(cx, cy));
        let scale = here.zoom / crate::plan::DENSITY * self.exposure.clamp(0.0, 1.0);
        let step = ((b.0 - a.0) * scale, (b.1 - a.1) * scale);
        (step.0.hypot(step.1) > 1.2).then_some(step)
    }

    fn develop(&self, px: &[[u8; 4]], index: usize) -> RgbImage {
        let (w, h) = self.size_px();
        let gain = self.pose(index).gain;
        let mut rng = Seeded::of(&[0x6e6f_6973, self.seed, index as u64]);
        // An even distribution of this width has the wanted deviation; noise in 1/256 levels.
        let spread = (self.noise_levels.max(0.0) * 3.464 * 256.0) as i32;
        let across: Vec<f32> = (0..w)
            .map(|x| ((x as f32 + 0.5) / w as f32 - 0.5).powi(2))
            .collect();
        let mut bytes = vec![0u8; px.len() * 3];
        let rows = px.chunks_exact(w as usize);
        for ((y, row), out) in rows.enumerate().zip(bytes.chunks_exact_mut(w as usize * 3)) {
            let dv = ((y as f32 + 0.5) / h as f32 - 0.5).powi(2);
            for ((p, du), out) in row.iter().zip(&across).zip(out.chunks_exact_mut(3)) {
                let on = gain * (1.0 - self.vignette * (du + dv) * 2.0);
                let factor = (on * 256.0) as i32;
                let mut bits = rng.next_u64();
                for (value, &v) in out.iter_mut().zip(p) {
                    let draw = (bits & 0xffff) as i32 - 0x8000;
                    bits >>= 16;
                    let lit = i32::from(v) * factor + ((draw * spread) >> 16) + 128;
                    *value = (lit >> 8).clamp(0, 255) as u8;
                }
            }
        }
        crate::picture(w, h, bytes)
    }

    fn truth(&self, index: usize, view: &Homography, ids: Vec<u16>) -> FrameTruth {
        let (width, height) = self.size_px();
        let objects = self.shelf.objects();
        let mut seen = vec![([u32::MAX, u32::MAX, 0u32, 0u32], 0u32); objects.len() + 1];
        for (y, row) in ids.chunks_exact(width as usize).enumerate() {
            let y = y as u32;
            for (x, &id) in row.iter().enumerate() {
                if id > 0 {
                    let (b, count) = &mut seen[usize::from(id)];
                    *b = [
                        b[0].min(x as u32),
                        b[1].min(y),
                        b[2].max(x as u32 + 1),
                        b[3].max(y + 1),
                    ];
                    *count += 1;
                }
            }
        }
        let mut ids = ids;
        let mut kept = vec![false; objects.len() + 1];
        let mut truth = Vec::new();
        for object in objects {
            let (b, count) = seen[object.track_id.0 as usize];
            if count == 0 {
                continue;
            }
            // The view is nearly even over one pack, so its middle stands for all of it.
            let growth = view.growth((b[0] + b[2]) as f32 * 0.5, (b[1] + b[3]) as f32 * 0.5);
            let visible = (count as f32 * growth / object.whole_px.max(1.0)).min(1.0);
            if visible < MIN_VISIBLE || b[2] - b[0] < MIN_SIDE_PX || b[3] - b[1] < MIN_SIDE_PX {
                continue;
            }
            kept[object.track_id.0 as usize] = true;
            truth.push(TruthObject {
                track_id: object.track_id,
                label: if object.sku.is_some() {
                    PRODUCT
                } else {
                    object.category()
                },
                category: object.category(),
                sku: object.sku,
                bbox: BoxXyxy::new(b[0] as f32, b[1] as f32, b[2] as f32, b[3] as f32),
                visible,
            });
        }
        for id in &mut ids {
            if !kept[usize::from(*id)] {
                *id = 0;
            }
        }
        FrameTruth {
            frame_index: index as u64,
            width,
            height,
            ids,
            objects: truth,
        }
    }

    /// Refuses a clip whose rate or flaws make no sense.
    ///
    /// # Errors
    /// [`SynthError::OutOfRange`] says what is wrong.
    pub fn check(&self) -> Result<()> {
        if self.is_empty() {
            return Err(SynthError::OutOfRange(
                "a clip needs at least one frame".into(),
            ));
        }
        if !(self.fps.is_finite() && self.fps > 0.0 && self.fps <= 240.0) {
            return Err(SynthError::OutOfRange(format!(
                "the rate is above 0 and at most 240 frames a second, not {}",
                self.fps
            )));
        }
        Ok(())
    }
}

/// Calls `each` with the world position of every pixel's centre, row by row.
fn each_source(view: &Homography, w: usize, h: usize, mut each: impl FnMut(f32, f32)) {
    let m = &view.0;
    for y in 0..h {
        let fy = y as f64 + 0.5;
        let (nx, ny, nw) = (m[1] * fy + m[2], m[4] * fy + m[5], m[7] * fy + m[8]);
        for x in 0..w {
            let fx = x as f64 + 0.5;
            let d = 1.0 / (m[6] * fx + nw);
            each(((m[0] * fx + nx) * d) as f32, ((m[3] * fx + ny) * d) as f32);
        }
    }
}

/// Colours and owners of a frame. Beyond its edges the shelf's outermost pixels go on.
fn expose(shelf: &Shelf, view: &Homography, w: usize, h: usize) -> (Vec<[u8; 4]>, Vec<u16>) {
    let mut px = Vec::with_capacity(w * h);
    let mut ids = Vec::with_capacity(w * h);
    let (limit_x, limit_y) = ((shelf.w - 2) as f32, (shelf.h - 2) as f32);
    each_source(view, w, h, |x, y| {
        let inside = x >= 0.0 && y >= 0.0 && (x as usize) < shelf.w && (y as usize) < shelf.h;
        ids.push(if inside {
            shelf.ids[y as usize * shelf.w + x as usize]
        } else {
            0
        });
        let (sx, sy) = ((x - 0.5).clamp(0.0, limit_x), (y - 0.5).clamp(0.0, limit_y));
        let (ix, iy) = (sx as usize, sy as usize);
        let (fx, fy) = (
            ((sx - ix as f32) * 128.0) as u32,
            ((sy - iy as f32) * 128.0) as u32,
        );
        let at = iy * shelf.w + ix;
        let (a, b) = (shelf.px[at], shelf.px[at + 1]);
        let (c, d) = (shelf.px[at + shelf.w], shelf.px[at + shelf.w + 1]);
        let mut out = [0u8; 4];
        for k in 0..3 {
            let top = u32::from(a[k]) * (128 - fx) + u32::from(b[k]) * fx;
            let low = u32::from(c[k]) * (128 - fx) + u32::from(d[k]) * fx;
            out[k] = ((top * (128 - fy) + low * fy + 8192) >> 14) as u8;
        }
        px.push(out);
    });
    (px, ids)
}

/// The mean along a line about each pixel.
fn smeared(px: &[[u8; 4]], w: usize, h: usize, step: (f32, f32)) -> Vec<[u8; 4]> {
    let length = step.0.hypot(step.1);
    let taps = (length.ceil() as usize).clamp(2, 16);
    let reach = w as isize - 1;
    let offsets: Vec<(isize, isize)> = (0..taps)
        .map(|i| {
            let t = i as f32 / (taps - 1) as f32 - 0.5;
            let dx = (step.0 * t).round() as isize;
            (dx.clamp(-reach, reach), (step.1 * t).round() as isize)
        })
        .collect();
    let mut out = Vec::with_capacity(px.len());
    let mut sums = vec![[0u16; 4]; w];
    let add = |sum: &mut [u16; 4], p: &[u8; 4]| {
        for (s, &v) in sum.iter_mut().zip(p) {
            *s += u16::from(v);
        }
    };
    for y in 0..h {
        sums.fill([0; 4]);
        for &(dx, dy) in &offsets {
            let sy = (y as isize + dy).clamp(0, h as isize - 1) as usize;
            let row = &px[sy * w..(sy + 1) * w];
            // Between `from` and `to` no edge has to be watched; beyond, the row's ends go on.
            let from = (-dx).clamp(0, w as isize) as usize;
            let to = (w as isize - dx).clamp(0, w as isize) as usize;
            let (first, last) = (row[0], row[w - 1]);
            let inner = &row[(from as isize + dx) as usize..(to as isize + dx) as usize];
            for sum in &mut sums[..from] {
                add(sum, &first);
            }
            for (sum, p) in sums[from..to].iter_mut().zip(inner) {
                add(sum, p);
            }
            for sum in &mut sums[to..] {
                add(sum, &last);
            }
        }
        out.extend(sums.iter().map(|s| {
            let mean = |v: u16| ((u32::from(v) + taps as u32 / 2) / taps as u32) as u8;
            [mean(s[0]), mean(s[1]), mean(s[2]), 0]
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Motion, ShelfPlan, pick_skus};

    fn clip(motion: Motion, frames: u32) -> Clip {
        let plan = ShelfPlan::new(12, pick_skus(12, 6), 200, 144);
        let shelf = Arc::new(Shelf::draw(&plan, &[]).unwrap());
        let path = CameraPath::new(motion, 12, frames, &shelf).unwrap();
        Clip::new(shelf, path, 12)
    }

    #[test]
    fn frames_have_the_same_bytes_at_any_number_of_threads_and_in_any_order() {
        let clip = clip(Motion::Return, 9);
        let alone: Vec<_> = clip.frames().collect();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let again = pool.install(|| {
                let plan = clip.shelf.plan().clone();
                let shelf = Arc::new(Shelf::draw(&plan, &[]).unwrap());
                let clip = Clip {
                    shelf,
                    ..clip.clone()
                };
                (0..9)
                    .into_par_iter()
                    .rev()
                    .map(|i| clip.frame(i))
                    .collect::<Vec<_>>()
            });
            for (a, b) in alone.iter().zip(again.iter().rev()) {
                assert_eq!(a.frame.image, b.frame.image);
                assert_eq!(a.truth, b.truth);
            }
        }
    }

    #[test]
    fn masks_and_boxes_agree_and_the_truth_alone_is_the_truth_of_the_frame() {
        let clip = clip(Motion::Shake, 4);
        for drawn in clip.frames() {
            assert_eq!(drawn.truth, clip.frame_truth(drawn.frame.index as usize));
            assert!(!drawn.truth.objects.is_empty());
            let detections = drawn.truth.detections(true).detections;
            for (object, found) in drawn.truth.objects.iter().zip(detections) {
                let mask = found.mask.unwrap();
                assert_eq!(mask.bounding_box(), Some(object.bbox));
                let ids = drawn.truth.ids.iter();
                let area = ids
                    .filter(|&&id| u64::from(id) == object.track_id.0)
                    .count();
                assert_eq!(mask.area(), area as u64);
                assert_eq!(found.track_id, Some(object.track_id));
                assert!(object.visible >= MIN_VISIBLE && object.visible <= 1.0);
            }
        }
    }

    #[test]
    fn a_way_back_shows_the_first_view_again_with_the_same_ids() {
        let clip = clip(Motion::Return, 13);
        let (first, last) = (clip.frame_truth(0), clip.frame_truth(12));
        assert_eq!(first.objects.len(), last.objects.len());
        for (a, b) in first.objects.iter().zip(&last.objects) {
            assert_eq!((a.track_id, a.sku), (b.track_id, b.sku));
            assert!(a.bbox.iou(&b.bbox) > 0.97, "{a:?} {b:?}");
        }
        let middle = clip.frame_truth(6);
        assert_ne!(first.objects[0].track_id, middle.objects[0].track_id);
    }

    #[test]
    fn a_pack_in_the_middle_of_a_level_frame_is_seen_whole_and_with_its_own_colours() {
        let clip = clip(Motion::Still, 1);
        let pack = clip.shelf.packs().find(|o| {
            let (x, _) = o.bbox.center();
            x > clip.shelf.size_px().0 as f32 * 0.4
        });
        let pack = pack.unwrap();
        let (x, y) = pack.bbox.center();
        let clip = Clip {
            path: CameraPath {
                poses: vec![Pose::at(x, y)],
            },
            noise_levels: 0.0,
            vignette: 0.0,
            ..clip.clone()
        };
        let drawn = clip.frame(0);
        let object = drawn
            .truth
            .objects
            .iter()
            .find(|o| o.track_id == pack.track_id)
            .unwrap();
        assert!(object.visible > 0.9, "{object:?}");
        let (u, v) = object.bbox.center();
        assert!((u - 100.0).abs() < 4.0 && (v - 72.0).abs() < 4.0);
        let world = clip.shelf.px[y as usize * clip.shelf.w + x as usize];
        let seen = drawn.frame.image.pixel(100, 72).unwrap();
        for c in 0..3 {
            assert!(
                (i32::from(world[c]) - i32::from(seen[c])).abs() < 40,
                "{world:?} {seen:?}"
            );
        }
    }

    #[test]
    fn facings_count_each_pack_once_however_often_it_comes_into_view() {
        let clip = clip(Motion::Return, 13);
        let facings = clip.facings();
        let packs = clip.shelf.packs().count();
        assert!(facings.len() <= packs && facings.len() * 10 >= packs * 9);
        assert!(facings.is_sorted_by(|a, b| a.track_id < b.track_id));
        let first = &clip.frame_truth(0).objects[0];
        let counted = facings
            .iter()
            .find(|f| f.track_id == first.track_id)
            .unwrap();
        assert!(counted.frames >= 2 && counted.best_visible >= first.visible);
    }

    #[test]
    fn an_open_shutter_smears_what_moves() {
        let mut clip = clip(Motion::Pan, 5);
        clip.noise_levels = 0.0;
        clip.exposure = 0.0;
        let sharp = clip.frame(2).frame.image;
        clip.exposure = 0.9;
        let smeared = clip.frame(2).frame.image;
        let contrast = |image: &RgbImage| -> u64 {
            let rows = image.pixels().chunks_exact(200 * 3);
            rows.flat_map(|row| row.windows(4).map(|p| u64::from(p[0].abs_diff(p[3]))))
                .sum()
        };
        assert!(contrast(&smeared) * 10 < contrast(&sharp) * 8);
    }

    #[test]
    fn a_smear_longer_than_the_picture_is_wide_stays_within_it() {
        let px: Vec<[u8; 4]> = (0..6u8).map(|i| [i * 40, 10, 200, 0]).collect();
        for step in [(400.0, 0.0), (-400.0, 3.0), (2.0, -90.0), (0.0, 7.0)] {
            let out = smeared(&px, 3, 2, step);
            assert_eq!(out.len(), 6);
            assert!(out.iter().all(|p| p[1] == 10 && p[2] == 200 && p[0] <= 200));
        }
    }

    #[test]
    fn a_line_of_truth_reads_as_a_frame_of_detections() {
        let drawn = clip(Motion::Still, 1).frame(0);
        let line = serde_json::to_string(&drawn.truth.record(0.0, true)).unwrap();
        let read: FrameDetections =
            serde_json::from_str(&line.replace("\"time_secs\":0.0", "\"notices\":[]")).unwrap();
        assert_eq!(read, drawn.truth.detections(true));
        let whole: TruthRecord = serde_json::from_str(&line).unwrap();
        let named = whole.detections.iter().filter(|d| d.sku.is_some());
        assert!(named.count() > 0);
    }

    #[test]
    fn a_rate_that_makes_no_sense_is_refused() {
        for fps in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
            let clip = Clip {
                fps,
                ..clip(Motion::Still, 1)
            };
            assert!(
                clip.check()
                    .unwrap_err()
                    .to_string()
                    .contains("240 frames a second")
            );
        }
    }
}
