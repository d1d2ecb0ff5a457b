//! How the camera moves: one pose a frame.

use std::f32::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

use crate::{Result, SynthError, lens::Homography, plan::DENSITY, seeded::Seeded, shelf::Shelf};

/// Frames of one path at most: an hour at 30 a second.
pub const MAX_FRAMES: u32 = 108_000;

/// The way of a camera along a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Motion {
    /// From the left end of the shelf to the right one.
    Pan,
    /// From the left end to the right one and back; the last frame looks where the first did.
    Return,
    /// At the middle of the shelf, in an unsteady hand.
    Shake,
    /// At the middle of the shelf, on a stand.
    Still,
    /// At the middle of the shelf, nearer and back.
    Zoom,
}

/// Where the camera is in one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pose {
    /// World pixel at the centre of the frame, horizontally.
    pub x_px: f32,
    /// World pixel at the centre of the frame, vertically.
    pub y_px: f32,
    /// 1 sees the shelf's whole height, 2 half of it.
    pub zoom: f32,
    /// Turn of the picture, clockwise, radians.
    pub roll_rad: f32,
    /// Turn to the right, radians.
    pub yaw_rad: f32,
    /// Turn downwards, radians.
    pub pitch_rad: f32,
    /// Brightness against that of the shelf.
    pub gain: f32,
}

impl Pose {
    /// A level view at zoom 1.
    pub fn at(x_px: f32, y_px: f32) -> Self {
        Self {
            x_px,
            y_px,
            zoom: 1.0,
            roll_rad: 0.0,
            yaw_rad: 0.0,
            pitch_rad: 0.0,
            gain: 1.0,
        }
    }

    /// Frame pixels to world pixels for a frame of `width` x `height`.
    pub(crate) fn view(&self, width: u32, height: u32) -> Homography {
        let focal = f64::from(width) * 1.1;
        let (sr, cr) = f64::from(self.roll_rad).sin_cos();
        let (sy, cy) = f64::from(self.yaw_rad).sin_cos();
        let (sp, cp) = f64::from(self.pitch_rad).sin_cos();
        // Roll, then pitch about x, then yaw about y.
        let roll = [[cr, sr, 0.0], [-sr, cr, 0.0], [0.0, 0.0, 1.0]];
        let pitch = [[1.0, 0.0, 0.0], [0.0, cp, sp], [0.0, -sp, cp]];
        let yaw = [[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]];
        let turn = product(&yaw, &product(&pitch, &roll));
        let (cx, cyy) = (f64::from(width) * 0.5, f64::from(height) * 0.5);
        let reach = f64::from(DENSITY) / f64::from(self.zoom.max(0.05)) * focal;
        let mut m = [0.0; 9];
        let row = |r: usize| {
            let [a, b, c] = turn[r];
            [a, b, c * focal - a * cx - b * cyy]
        };
        let (r0, r1, r2) = (row(0), row(1), row(2));
        for c in 0..3 {
            m[c] = reach * r0[c] + f64::from(self.x_px) * r2[c];
            m[3 + c] = reach * r1[c] + f64::from(self.y_px) * r2[c];
            m[6 + c] = r2[c];
        }
        Homography(m)
    }
}

fn product(a: &[[f64; 3]; 3], b: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    let mut out = [[0.0; 3]; 3];
    for (r, row) in out.iter_mut().enumerate() {
        for (c, value) in row.iter_mut().enumerate() {
            *value = (0..3).map(|k| a[r][k] * b[k][c]).sum();
        }
    }
    out
}

/// One pose a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraPath {
    /// The poses, at least one.
    pub poses: Vec<Pose>,
}

impl CameraPath {
    /// The way `motion` takes along `shelf` in `frames` frames; `seed` decides the hand's shake
    /// and the wavering of the exposure.
    ///
    /// # Errors
    /// [`SynthError::OutOfRange`] for no frames or more than [`MAX_FRAMES`].
    pub fn new(motion: Motion, seed: u64, frames: u32, shelf: &Shelf) -> Result<Self> {
        if !(1..=MAX_FRAMES).contains(&frames) {
            return Err(SynthError::OutOfRange(format!(
                "a clip has 1 to {MAX_FRAMES} frames, not {frames}"
            )));
        }
        let (wide, tall) = (shelf.w as f32, shelf.h as f32);
        let (fw, fh) = shelf.plan().frame_px;
        let half = (fw as f32 * DENSITY * 0.5).min(wide * 0.5);
        let (first, last) = (half, wide - half);
        let mut rng = Seeded::of(&[0x6361_6d65, seed]);
        // A hand's wander is a few slow swings, whose phases the seed decides.
        let hand = match motion {
            Motion::Shake => 1.0,
            Motion::Still => 0.0,
            _ => 0.22,
        };
        let swing: Vec<[f32; 3]> = (0..6 * 4)
            .map(|i| {
                [
                    rng.range(0.0, TAU),
                    rng.range(0.5, 1.6) * (1.0 + (i % 4) as f32 * 2.3),
                    rng.range(0.4, 1.0) / (1.0 + (i % 4) as f32),
                ]
            })
            .collect();
        let wander = |axis: usize, secs: f32| -> f32 {
            swing[axis * 4..axis * 4 + 4]
                .iter()
                .map(|[phase, rate, size]| size * (phase + rate * secs * 1.7).sin())
                .sum()
        };
        let steady = if motion == Motion::Still { 0.0 } else { 1.0 };
        let (lean, tip) = (
            rng.range(-0.05, 0.05) * steady,
            rng.range(-0.04, 0.04) * steady,
        );
        let rise = rng.range(-0.01, 0.01) * fh as f32 * steady;
        let poses = (0..frames)
            .map(|i| {
                let share = i as f32 / (frames.max(2) - 1) as f32;
                // Ten frames are taken as a second, whatever they are played at.
                let secs = i as f32 * 0.1;
                let along = match motion {
                    Motion::Pan => ease(share),
                    Motion::Return => (1.0 - (share * TAU).cos()) * 0.5,
                    _ => 0.5,
                };
                // The way back ends as it began, so the hand is quiet at both ends.
                let hand = if motion == Motion::Return {
                    hand * (share * PI).sin().min(0.35) / 0.35
                } else {
                    hand
                };
                let unit = fh as f32 * DENSITY * 0.03 * hand;
                let nearer = match motion {
                    Motion::Zoom => 1.0 + 0.6 * (share * PI).sin().powi(2),
                    _ => 1.02,
                };
                Pose {
                    x_px: first + along * (last - first) + wander(0, secs) * unit,
                    y_px: tall * 0.5 + rise + wander(1, secs) * unit,
                    zoom: nearer * (1.0 + wander(2, secs) * 0.012 * hand),
                    roll_rad: wander(3, secs) * 0.016 * hand,
                    yaw_rad: lean + wander(4, secs) * 0.02 * hand,
                    pitch_rad: tip + wander(5, secs) * 0.015 * hand,
                    gain: 1.0
                        + 0.03
                            * (secs * 0.9).sin()
                            * if motion == Motion::Return {
                                (share * PI).sin()
                            } else {
                                1.0
                            },
                }
            })
            .collect();
        Ok(Self { poses })
    }
}

/// Slow at both ends.
fn ease(t: f32) -> f32 {
    (1.0 - (t * PI).cos()) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ShelfPlan, pick_skus};

    fn shelf() -> Shelf {
        Shelf::draw(&ShelfPlan::new(3, pick_skus(3, 5), 128, 96), &[]).unwrap()
    }

    #[test]
    fn a_return_ends_where_it_began_and_a_pan_at_the_other_end() {
        let shelf = shelf();
        let there = CameraPath::new(Motion::Return, 5, 41, &shelf)
            .unwrap()
            .poses;
        let (first, last) = (there[0], there[40]);
        assert!((first.x_px - last.x_px).abs() < 0.05, "{first:?} {last:?}");
        assert!((first.y_px - last.y_px).abs() < 0.05 && (first.zoom - last.zoom).abs() < 1e-3);
        assert!(there[20].x_px > first.x_px + 100.0);
        let pan = CameraPath::new(Motion::Pan, 5, 41, &shelf).unwrap().poses;
        assert!((pan[40].x_px - there[20].x_px).abs() < 12.0);
    }

    #[test]
    fn a_stand_does_not_move_a_hand_does_and_a_zoom_comes_nearer() {
        let shelf = shelf();
        let path = |motion| CameraPath::new(motion, 2, 30, &shelf).unwrap().poses;
        let spread = |poses: &[Pose]| {
            let x = poses.iter().map(|p| p.x_px);
            x.clone().fold(f32::MIN, f32::max) - x.fold(f32::MAX, f32::min)
        };
        assert_eq!(spread(&path(Motion::Still)), 0.0);
        assert!(spread(&path(Motion::Shake)) > 1.0);
        assert!(path(Motion::Zoom)[15].zoom > 1.4);
    }

    #[test]
    fn a_level_view_maps_the_middle_to_its_place_and_keeps_the_scale() {
        let pose = Pose {
            zoom: 2.0,
            ..Pose::at(300.0, 200.0)
        };
        let view = pose.view(128, 96);
        let middle = view.at(64.0, 48.0);
        assert!((middle.0 - 300.0).abs() < 1e-3 && (middle.1 - 200.0).abs() < 1e-3);
        let right = view.at(74.0, 48.0);
        assert!(
            (right.0 - 300.0 - 10.0 * DENSITY / 2.0).abs() < 1e-3,
            "{right:?}"
        );
    }

    #[test]
    fn a_path_of_no_frames_or_far_too_many_is_refused() {
        let shelf = shelf();
        for frames in [0, MAX_FRAMES + 1, MAX_FRAMES * 10] {
            let error = CameraPath::new(Motion::Pan, 1, frames, &shelf).unwrap_err();
            assert!(error.to_string().contains("1 to 108000 frames"), "{error}");
        }
    }
}
