//! Where the camera looks, in a coordinate frame fixed to the shelf.
//!
//! Every frame is registered against a stored key frame rather than against its predecessor, so
//! that errors add up per key frame and not per frame; and when the camera comes back, the key
//! frame of that place is used again, which takes the drift out.

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::RgbImage;

use super::{
    align::{Alignment, Reference},
    pyramid::Pyramid,
    similarity::Similarity,
};

/// Correlation a registration needs to be believed. Smeared frames of the right place reach 0.88,
/// another shelf of the same make 0.6.
const MIN_SCORE: f32 = 0.75;

/// A key frame that shares at least this much with the frame is worth registering against.
const GOOD_OVERLAP: f64 = 0.6;

/// Below this share the next sharp frame becomes a key frame; below half of it any frame does.
const NEW_KEY_OVERLAP: f64 = 0.6;

/// Mean step between cells, in grey levels, below which a frame shows nothing.
const MIN_SHARPNESS: f32 = 0.3;

/// Frames that may pass without any registration before the shelf counts as another one.
const PATIENCE_FRAMES: u32 = 10;

/// Where one frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraView {
    /// Counts from 0 and rises when the picture changed so much that no common place was found
    /// (a cut, another bay). Positions of different segments cannot be compared.
    pub segment: u32,
    /// From pixels of this frame to shelf pixels, which are the pixels of the segment's first
    /// frame. Its `tx` and `ty` are the camera's way since then, in source pixels.
    pub to_shelf: Similarity,
    /// False while the place is only guessed: blank, smeared beyond use or just after a cut.
    pub located: bool,
}

/// Limits of the [`CameraTracker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CameraOptions {
    /// Key frames kept, at least 2 and about 60 KiB each; beyond it the one unused for longest
    /// goes.
    pub max_key_frames: u32,
}

impl Default for CameraOptions {
    fn default() -> Self {
        Self {
            max_key_frames: 200,
        }
    }
}

struct KeyFrame {
    reference: Reference,
    to_shelf: Similarity,
    segment: u32,
    sharpness: f32,
    last_used: u64,
}

/// Follows the camera over the shelf. One per source; give it the frames in order.
///
/// The motion model is a shift with a small turn and zoom, which fits a camera that pans along a
/// shelf. Frames may be left out as long as neighbours share a third of the picture.
///
/// ```
/// use shelfscan_inference_core::RgbImage;
/// use shelfscan_pipeline::associate::CameraTracker;
///
/// let mut camera = CameraTracker::new(Default::default());
/// let black = RgbImage::new(64, 48, vec![0; 64 * 48 * 3])?;
/// assert!(!camera.observe(&black).located);
/// # Ok::<(), shelfscan_inference_core::InferenceError>(())
/// ```
pub struct CameraTracker {
    options: CameraOptions,
    key_frames: Vec<KeyFrame>,
    /// Index of the key frame in use.
    active: usize,
    clock: u64,
    view: CameraView,
    /// From the frame before to this one, for the prediction of the next.
    motion: Similarity,
    previous: Option<Pyramid>,
    frames_lost: u32,
}

impl CameraTracker {
    /// A tracker that has seen nothing.
    pub fn new(options: CameraOptions) -> Self {
        Self {
            options,
            key_frames: Vec::new(),
            active: 0,
            clock: 0,
            view: CameraView {
                segment: 0,
                to_shelf: Similarity::IDENTITY,
                located: false,
            },
            motion: Similarity::IDENTITY,
            previous: None,
            frames_lost: 0,
        }
    }

    /// Where the last frame lies.
    pub fn view(&self) -> CameraView {
        self.view
    }

    /// From pixels of the frame before to pixels of the last frame. A correction of drift does not
    /// show in it.
    pub fn motion(&self) -> Similarity {
        self.motion
    }

    /// Number of key frames kept.
    pub fn key_frames(&self) -> usize {
        self.key_frames.len()
    }

    /// Takes the next frame and says where it lies.
    pub fn observe(&mut self, image: &RgbImage) -> CameraView {
        self.clock += 1;
        let frame = Pyramid::of(image);
        if self
            .previous
            .as_ref()
            .is_some_and(|p| p.size_px != frame.size_px)
        {
            // Another picture size: nothing known can be compared with it.
            self.previous = None;
            self.frames_lost = PATIENCE_FRAMES;
        }
        let empty = frame.sharpness() < MIN_SHARPNESS;
        let blank = (empty || self.place(&frame).is_none()) && self.get_lost(&frame);
        if !blank {
            self.previous = Some(frame);
        }
        self.view
    }

    /// Registers the frame against what is known; `None` when nothing fits.
    fn place(&mut self, frame: &Pyramid) -> Option<()> {
        let motion = if self.view.located {
            self.motion
        } else {
            Similarity::IDENTITY
        };
        // From the frame to the shelf, had the camera gone on as before.
        let predicted = motion.inverse().then(&self.view.to_shelf);
        let (to_shelf, by_key) = self
            .register_by_key(frame, &predicted)
            .map(|to_shelf| (to_shelf, true))
            .or_else(|| {
                self.register_by_previous(frame, &motion)
                    .map(|to_shelf| (to_shelf, false))
            })?;
        let from = self.view;
        self.view = CameraView {
            to_shelf,
            located: true,
            ..self.view
        };
        self.motion = from.to_shelf.then(&to_shelf.inverse());
        self.frames_lost = 0;
        let overlap = self.revisit(frame);
        let sharp_enough = self
            .key_frames
            .get(self.active)
            .is_none_or(|key| frame.sharpness() > 0.6 * key.sharpness);
        if overlap < NEW_KEY_OVERLAP * 0.5 || (overlap < NEW_KEY_OVERLAP && by_key && sharp_enough)
        {
            self.add_key_frame(frame);
        }
        Some(())
    }

    fn register_by_key(&mut self, frame: &Pyramid, predicted: &Similarity) -> Option<Similarity> {
        let active = self.active;
        let mut order: Vec<(usize, f64)> = self
            .key_frames
            .iter()
            .enumerate()
            .filter(|(_, key)| key.segment == self.view.segment)
            .map(|(index, key)| (index, overlap(key, predicted, frame.size_px)))
            .filter(|&(index, share)| index == active || share > 0.2)
            .collect();
        // The one in use first, for a steady motion; then by what they share.
        order.sort_by(|a, b| {
            (b.0 == active)
                .cmp(&(a.0 == active))
                .then(b.1.total_cmp(&a.1))
                .then(a.0.cmp(&b.0))
        });
        for (index, _) in order.into_iter().take(3) {
            let key = &mut self.key_frames[index];
            if let Some(to_shelf) = register(key, frame, predicted) {
                key.last_used = self.clock;
                self.active = index;
                return Some(to_shelf);
            }
        }
        None
    }

    /// The frame before is smeared like this one where key frames are not.
    fn register_by_previous(&self, frame: &Pyramid, motion: &Similarity) -> Option<Similarity> {
        let reference = Reference::of(self.previous.as_ref()?);
        if reference.is_blank() || !self.view.located {
            return None;
        }
        let found = believed(reference.align(frame, motion))?;
        Some(found.to_frame.inverse().then(&self.view.to_shelf))
    }

    /// Changes to the key frame that shares most with the frame, oldest first among good ones, and
    /// corrects the place by it. Returns what the key frame then in use shares with the frame.
    fn revisit(&mut self, frame: &Pyramid) -> f64 {
        let to_shelf = self.view.to_shelf;
        let shares: Vec<(usize, f64)> = self
            .key_frames
            .iter()
            .enumerate()
            .filter(|(_, key)| key.segment == self.view.segment)
            .map(|(index, key)| (index, overlap(key, &to_shelf, frame.size_px)))
            .collect();
        let share_of_active = shares
            .iter()
            .find(|(index, _)| *index == self.active)
            .map_or(0.0, |(_, share)| *share);
        if share_of_active >= GOOD_OVERLAP {
            return share_of_active;
        }
        let oldest_good = shares.iter().find(|(_, share)| *share >= GOOD_OVERLAP);
        let Some(&(index, share)) = oldest_good else {
            return share_of_active;
        };
        let key = &mut self.key_frames[index];
        let Some(corrected) = register(key, frame, &to_shelf) else {
            return share_of_active;
        };
        key.last_used = self.clock;
        self.active = index;
        self.view.to_shelf = corrected;
        share
    }

    /// Holds the place through frames that cannot be registered, and starts another segment when
    /// there were too many. Returns true when the frame is blank.
    fn get_lost(&mut self, frame: &Pyramid) -> bool {
        let blank = Reference::of(frame).is_blank();
        self.view.located = false;
        self.motion = Similarity::IDENTITY;
        if blank {
            return true;
        }
        self.frames_lost += 1;
        if self.key_frames.is_empty() || self.frames_lost > PATIENCE_FRAMES {
            if !self.key_frames.is_empty() {
                self.view.segment += 1;
            }
            self.view.to_shelf = Similarity::IDENTITY;
            self.view.located = true;
            self.frames_lost = 0;
            self.add_key_frame(frame);
        }
        false
    }

    fn add_key_frame(&mut self, frame: &Pyramid) {
        let reference = Reference::of(frame);
        if reference.is_blank() {
            return;
        }
        if self.key_frames.len() >= self.options.max_key_frames.max(2) as usize {
            let unused = (0..self.key_frames.len())
                .filter(|&index| index != self.active)
                .min_by_key(|&index| self.key_frames[index].last_used);
            if let Some(index) = unused {
                self.key_frames.remove(index);
            }
        }
        self.key_frames.push(KeyFrame {
            reference,
            to_shelf: self.view.to_shelf,
            segment: self.view.segment,
            sharpness: frame.sharpness(),
            last_used: self.clock,
        });
        self.active = self.key_frames.len() - 1;
    }
}

fn believed(found: Option<Alignment>) -> Option<Alignment> {
    found.filter(|f| f.score >= MIN_SCORE)
}

/// The frame's place by one key frame, from a predicted place.
fn register(key: &KeyFrame, frame: &Pyramid, predicted: &Similarity) -> Option<Similarity> {
    let guess = key.to_shelf.then(&predicted.inverse());
    let found = believed(key.reference.align(frame, &guess))?;
    Some(found.to_frame.inverse().then(&key.to_shelf))
}

/// Share of the frame at `to_shelf` that the key frame shows, turns aside.
fn overlap(key: &KeyFrame, to_shelf: &Similarity, size_px: (u32, u32)) -> f64 {
    let (w, h) = (f64::from(size_px.0), f64::from(size_px.1));
    let to_key = to_shelf.then(&key.to_shelf.inverse());
    let (x, y) = to_key.apply(w * 0.5, h * 0.5);
    let zoom = to_key.zoom();
    let common = |middle: f64, side: f64| {
        let half = side * 0.5 * zoom;
        let (low, high) = ((middle - half).max(0.0), (middle + half).min(side));
        ((high - low) / side.max(2.0 * half)).max(0.0)
    };
    common(x, w) * common(y, h)
}

#[cfg(test)]
mod tests {
    use shelfscan_testkit::shelf::{Shelf, ShelfClip, ShelfPlan, Viewpoint};

    use super::*;

    fn clip(path: Vec<Viewpoint>) -> ShelfClip {
        let shelf = Shelf::draw(&ShelfPlan::default());
        ShelfClip::new(shelf.into(), path, 640, 360)
    }

    fn wide_pan() -> ShelfClip {
        let shelf = Shelf::draw(&ShelfPlan::default());
        ShelfClip::forth_and_back(shelf.into(), 80, 480, 400).shaken(1.5)
    }

    /// Shift of the view against the first one, by the truth.
    fn way(clip: &ShelfClip, index: usize) -> (f64, f64) {
        let (first, here) = (clip.path[0], clip.path[index]);
        (
            f64::from(here.x_px - first.x_px),
            f64::from(here.y_px - first.y_px),
        )
    }

    /// The way the tracker found: where the frame's centre lies against the first frame's.
    fn found_way(view: &CameraView, clip: &ShelfClip) -> (f64, f64) {
        let (cx, cy) = (
            f64::from(clip.width_px) * 0.5,
            f64::from(clip.height_px) * 0.5,
        );
        let (x, y) = view.to_shelf.apply(cx, cy);
        (x - cx, y - cy)
    }

    #[test]
    fn a_pan_forth_and_back_is_followed_and_ends_where_it_began() {
        let clip = wide_pan();
        let mut camera = CameraTracker::new(CameraOptions::default());
        let mut worst = 0.0f64;
        for (index, frame) in clip.frames().enumerate() {
            let view = camera.observe(&frame.image);
            assert!(view.located && view.segment == 0, "frame {index}: {view:?}");
            let ((x, y), (fx, fy)) = (way(&clip, index), found_way(&view, &clip));
            worst = worst.max((x - fx).hypot(y - fy));
        }
        // The shelf is over 1,000 pixels wide; a pack is about 80.
        assert!(worst < 8.0, "off by {worst}");
        assert!(camera.key_frames() < 12, "{}", camera.key_frames());
        let end = found_way(&camera.view(), &clip);
        let truth = way(&clip, clip.len() - 1);
        let off = (end.0 - truth.0).hypot(end.1 - truth.1);
        assert!(off < 1.0, "{off}");
    }

    #[test]
    fn black_frames_hold_the_place_and_a_cut_starts_another_segment() {
        let mut camera = CameraTracker::new(CameraOptions::default());
        let here = clip(vec![Viewpoint::at(500.0, 240.0)]).frame(0).image;
        let black = RgbImage::new(640, 360, vec![0; 640 * 360 * 3]).unwrap();
        assert!(!camera.observe(&black).located);
        let first = camera.observe(&here);
        assert!(first.located);
        for _ in 0..30 {
            let view = camera.observe(&black);
            assert!(!view.located && view.segment == 0);
        }
        let again = camera.observe(&here);
        assert!(again.located && again.segment == 0, "{again:?}");
        let other = Shelf::draw(&ShelfPlan {
            seed: 99,
            ..ShelfPlan::default()
        });
        let other = ShelfClip::new(other.into(), vec![Viewpoint::at(500.0, 240.0)], 640, 360);
        let views: Vec<_> = (0..20)
            .map(|_| camera.observe(&other.frame(0).image))
            .collect();
        assert!(!views[0].located && views[0].segment == 0, "{:?}", views[0]);
        assert!(
            views[19].located && views[19].segment == 1,
            "{:?}",
            views[19]
        );
    }

    #[test]
    fn another_picture_size_is_another_segment() {
        let mut camera = CameraTracker::new(CameraOptions::default());
        let view = |w, h| {
            let shelf = Shelf::draw(&ShelfPlan::default());
            ShelfClip::new(shelf.into(), vec![Viewpoint::at(500.0, 240.0)], w, h)
                .frame(0)
                .image
        };
        assert_eq!(camera.observe(&view(640, 360)).segment, 0);
        let changed = camera.observe(&view(320, 240));
        assert!(changed.located && changed.segment == 1, "{changed:?}");
    }

    #[test]
    fn key_frames_stay_below_their_cap_over_ten_times_as_many_places() {
        let options = CameraOptions { max_key_frames: 4 };
        let mut camera = CameraTracker::new(options);
        let shelf = std::sync::Arc::new(Shelf::draw(&ShelfPlan {
            packs_per_row: 14,
            ..ShelfPlan::default()
        }));
        let clip = ShelfClip::forth_and_back(shelf, 60, 160, 200);
        for _ in 0..2 {
            for frame in clip.frames() {
                camera.observe(&frame.image);
                assert!(camera.key_frames() <= 4);
            }
        }
    }
}
