//! Baseline: local features and a geometric check, the way shelf software matched packs before
//! embeddings.
//!
//! Corners are FAST-9 over an image pyramid, each with the direction of its intensity centroid and
//! 256 brightness comparisons turned by that direction (Rublee et al., "ORB: an efficient
//! alternative to SIFT or SURF", ICCV 2011). Matches that pass the ratio test vote for a similarity
//! transform, and the score is the number of matches that agree with the best one (Fischler and
//! Bolles, "Random sample consensus", CACM 1981).
//!
//! Differs from ORB: the comparisons are drawn at random, not learned, and corners are ranked by
//! their FAST score.

use image::{GrayImage, imageops};
use imageproc::{
    corners::{Corner, corners_fast9},
    filter::gaussian_blur_f32,
};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use shelfscan_inference_core::RgbImage;

use super::{PairScorer, draw::SplitMix};
use crate::Result;

/// Pictures are shrunk to this many pixels on their longer side, never enlarged.
const LONG_SIDE: u32 = 352;
/// Features kept of a picture, unless another number is asked for: with this many, top-1 on
/// grocery photos agrees with that of an `OpenCV` ORB matcher within 5 points.
const FEATURES: usize = 250;
/// Levels of the pyramid and the factor between them.
const LEVELS: usize = 8;
const LEVEL_SCALE: f32 = 1.2;
/// Least contrast of a corner.
const FAST_THRESHOLD: u8 = 20;
/// Half the side of the patch that a feature looks at.
const PATCH_RADIUS: i32 = 15;
/// Comparisons reach this far once they are turned, so corners keep that distance to the edge.
const BORDER: u32 = 22;
/// Directions that patterns are prepared for.
const DIRECTIONS: usize = 30;
/// A match needs its second best to be farther by this factor.
const RATIO: f32 = 0.75;
/// Rounds of the search for a transform.
const ROUNDS: usize = 200;
/// Distance within which a match agrees with a transform, in pixels of the query.
const AGREE_PX: f32 = 5.0;
/// Matches needed before a transform means anything.
const MIN_MATCHES: usize = 4;

/// Counts local features that match under one similarity transform.
#[derive(Clone, Debug)]
pub struct LocalFeatures {
    /// Features kept of a picture.
    features: usize,
    /// Pairs of points to compare, for each direction.
    patterns: Vec<Vec<[(i32, i32); 2]>>,
}

/// One corner: where it is in the shrunk picture, and its comparisons as bits.
#[derive(Clone, Copy, Debug)]
pub struct LocalFeature {
    x_px: f32,
    y_px: f32,
    bits: [u64; 4],
}

impl Default for LocalFeatures {
    fn default() -> Self {
        Self::new(FEATURES)
    }
}

impl LocalFeatures {
    /// A matcher that keeps at most about `features` corners of a picture. More corners match
    /// better and take longer, by the square of their number.
    pub fn new(features: usize) -> Self {
        let mut random = SplitMix::new(0x0b5e_55ed);
        let reach = PATCH_RADIUS as f32;
        let mut point = || {
            // A sum of uniform numbers is close to the normal distribution of the paper, and keeps
            // the point in the patch.
            let mut axis = || (random.unit() + random.unit() + random.unit() - 1.5) / 1.5 * reach;
            (axis(), axis())
        };
        let pairs: Vec<[(f32, f32); 2]> = (0..256).map(|_| [point(), point()]).collect();
        let patterns = (0..DIRECTIONS)
            .map(|direction| {
                let angle = direction as f32 / DIRECTIONS as f32 * std::f32::consts::TAU;
                let (sin, cos) = angle.sin_cos();
                let turn = |(x, y): (f32, f32)| {
                    (
                        (x * cos - y * sin).round() as i32,
                        (x * sin + y * cos).round() as i32,
                    )
                };
                pairs.iter().map(|pair| pair.map(turn)).collect()
            })
            .collect();
        Self { features, patterns }
    }
}

impl PairScorer for LocalFeatures {
    type Features = Vec<LocalFeature>;

    fn name(&self) -> String {
        if self.features == FEATURES {
            "local features".into()
        } else {
            format!("local features ({})", self.features)
        }
    }

    fn features(&self, pictures: &[RgbImage]) -> Result<Vec<Self::Features>> {
        Ok(pictures.par_iter().map(|p| self.describe(p)).collect())
    }

    fn score(&self, query: &Self::Features, view: &Self::Features) -> f32 {
        agreeing(&Arch::new().dispatch(Matching { query, view })) as f32
    }
}

impl LocalFeatures {
    fn describe(&self, picture: &RgbImage) -> Vec<LocalFeature> {
        let base = grey(picture);
        let shares: Vec<f32> = (0..LEVELS)
            .map(|level| LEVEL_SCALE.powi(-2 * level as i32))
            .collect();
        let total: f32 = shares.iter().sum();
        let mut features = Vec::new();
        for (level, share) in shares.iter().enumerate() {
            let scale = LEVEL_SCALE.powi(level as i32);
            let width = (base.width() as f32 / scale).round() as u32;
            let height = (base.height() as f32 / scale).round() as u32;
            if width <= 2 * BORDER || height <= 2 * BORDER {
                break;
            }
            let image = if level == 0 {
                base.clone()
            } else {
                imageops::resize(&base, width, height, imageops::FilterType::Triangle)
            };
            let wanted = (self.features as f32 * share / total).round() as usize;
            let smooth = gaussian_blur_f32(&image, 2.0);
            for corner in strongest_corners(&image, wanted) {
                features.push(LocalFeature {
                    x_px: corner.x as f32 * scale,
                    y_px: corner.y as f32 * scale,
                    bits: self.compare(&image, &smooth, &corner),
                });
            }
        }
        features
    }

    fn compare(&self, image: &GrayImage, smooth: &GrayImage, corner: &Corner) -> [u64; 4] {
        let angle = direction(image, corner).rem_euclid(std::f32::consts::TAU);
        let turn = (angle / std::f32::consts::TAU * DIRECTIONS as f32).round() as usize;
        let at = |(dx, dy): (i32, i32)| {
            let x = (corner.x as i32 + dx) as u32;
            let y = (corner.y as i32 + dy) as u32;
            smooth.get_pixel_checked(x, y).map_or(0, |p| p.0[0])
        };
        let mut bits = [0u64; 4];
        for (i, [a, b]) in self.patterns[turn % DIRECTIONS].iter().enumerate() {
            bits[i / 64] |= u64::from(at(*a) < at(*b)) << (i % 64);
        }
        bits
    }
}

fn grey(picture: &RgbImage) -> GrayImage {
    let full = GrayImage::from_fn(picture.width(), picture.height(), |x, y| {
        let [r, g, b] = picture.pixel(x, y).unwrap_or_default().map(u32::from);
        image::Luma([((r * 77 + g * 150 + b * 29) >> 8) as u8])
    });
    let long = full.width().max(full.height());
    if long <= LONG_SIDE {
        return full;
    }
    let fit = |side: u32| (side * LONG_SIDE / long).max(1);
    let (width, height) = (fit(full.width()), fit(full.height()));
    imageops::resize(&full, width, height, imageops::FilterType::Triangle)
}

/// The corners with the highest scores, none beside a stronger one.
fn strongest_corners(image: &GrayImage, wanted: usize) -> Vec<Corner> {
    let (width, height) = image.dimensions();
    let inside = |c: &Corner| {
        (BORDER..width - BORDER).contains(&c.x) && (BORDER..height - BORDER).contains(&c.y)
    };
    let mut corners = corners_fast9(image, FAST_THRESHOLD);
    corners.retain(inside);
    let mut scores = vec![0.0f32; (width * height) as usize];
    for corner in &corners {
        scores[(corner.y * width + corner.x) as usize] = corner.score;
    }
    corners.retain(|c| {
        (c.y - 1..=c.y + 1).all(|y| {
            (c.x - 1..=c.x + 1).all(|x| {
                let other = scores[(y * width + x) as usize];
                // Of equal neighbours the first in reading order stays.
                other < c.score || (other == c.score && (y, x) >= (c.y, c.x))
            })
        })
    });
    corners.sort_by(|a, b| (b.score.total_cmp(&a.score)).then((a.y, a.x).cmp(&(b.y, b.x))));
    corners.truncate(wanted);
    corners
}

/// Direction from a corner to the centre of brightness around it, in radians.
fn direction(image: &GrayImage, corner: &Corner) -> f32 {
    let (mut mx, mut my) = (0i64, 0i64);
    for dy in -PATCH_RADIUS..=PATCH_RADIUS {
        for dx in -PATCH_RADIUS..=PATCH_RADIUS {
            if dx * dx + dy * dy > PATCH_RADIUS * PATCH_RADIUS {
                continue;
            }
            let x = (corner.x as i32 + dx) as u32;
            let y = (corner.y as i32 + dy) as u32;
            let value = image
                .get_pixel_checked(x, y)
                .map_or(0, |p| i64::from(p.0[0]));
            mx += i64::from(dx) * value;
            my += i64::from(dy) * value;
        }
    }
    (my as f32).atan2(mx as f32)
}

/// A match: the point in the query and the point in the view.
type PointPair = [(f32, f32); 2];

/// The matching of one pair of pictures.
struct Matching<'a> {
    query: &'a [LocalFeature],
    view: &'a [LocalFeature],
}

impl WithSimd for Matching<'_> {
    type Output = Vec<PointPair>;

    #[allow(
        clippy::inline_always,
        reason = "only what is inlined into a dispatched operation is compiled for the machine"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<PointPair> {
        matches(self.query, self.view)
    }
}

/// Features of the query with a clearly nearest feature of the view.
///
/// Inlined so that the caller's dispatch decides which instructions count the bits.
#[allow(
    clippy::inline_always,
    reason = "only what is inlined into a dispatched operation is compiled for the machine"
)]
#[inline(always)]
fn matches(query: &[LocalFeature], view: &[LocalFeature]) -> Vec<PointPair> {
    if view.len() < 2 {
        return Vec::new();
    }
    query
        .iter()
        .filter_map(|feature| {
            let (mut best, mut second, mut at) = (u32::MAX, u32::MAX, 0);
            for (i, other) in view.iter().enumerate() {
                let distance: u32 = feature
                    .bits
                    .iter()
                    .zip(other.bits)
                    .map(|(a, b)| (a ^ b).count_ones())
                    .sum();
                if distance < best {
                    (second, best, at) = (best, distance, i);
                } else if distance < second {
                    second = distance;
                }
            }
            ((best as f32) < RATIO * second as f32).then(|| {
                let other = &view[at];
                [(feature.x_px, feature.y_px), (other.x_px, other.y_px)]
            })
        })
        .collect()
}

/// The largest number of matches that one similarity transform from view to query explains.
fn agreeing(pairs: &[PointPair]) -> usize {
    if pairs.len() < MIN_MATCHES {
        return 0;
    }
    let mut random = SplitMix::new(pairs.len() as u64);
    let mut best = 0;
    for _ in 0..ROUNDS {
        let (i, j) = (random.below(pairs.len()), random.below(pairs.len()));
        let Some(transform) = similarity(&pairs[i], &pairs[j]) else {
            continue;
        };
        let count = pairs
            .iter()
            .filter(|[q, v]| {
                let (x, y) = transform(*v);
                (x - q.0).powi(2) + (y - q.1).powi(2) <= AGREE_PX * AGREE_PX
            })
            .count();
        best = best.max(count);
    }
    if best < MIN_MATCHES { 0 } else { best }
}

/// The similarity that carries two points of a view onto two of a query, unless they fall together
/// or it shrinks or enlarges beyond what two photos of a pack differ by.
fn similarity(a: &PointPair, b: &PointPair) -> Option<impl Fn((f32, f32)) -> (f32, f32)> {
    let (dx, dy) = (b[1].0 - a[1].0, b[1].1 - a[1].1);
    let (ex, ey) = (b[0].0 - a[0].0, b[0].1 - a[0].1);
    let length = dx * dx + dy * dy;
    let ratio = (ex * ex + ey * ey) / length;
    if length < 4.0 * AGREE_PX * AGREE_PX || !(0.04..25.0).contains(&ratio) {
        return None;
    }
    // Complex division: the turn and scale that take (dx, dy) to (ex, ey).
    let (re, im) = ((ex * dx + ey * dy) / length, (ey * dx - ex * dy) / length);
    let (qx, qy, vx, vy) = (a[0].0, a[0].1, a[1].0, a[1].1);
    Some(move |(x, y): (f32, f32)| {
        let (x, y) = (x - vx, y - vy);
        (qx + re * x - im * y, qy + im * x + re * y)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pack face of random blocks, turned by `quarters` quarter turns.
    fn face(seed: u64, quarters: u32) -> RgbImage {
        let side = 240;
        let mut random = SplitMix::new(seed);
        let cells: Vec<u8> = (0..400).map(|_| random.below(256) as u8).collect();
        let mut pixels = Vec::new();
        for y in 0..side {
            for x in 0..side {
                let (mut u, mut v) = (x, y);
                for _ in 0..quarters {
                    (u, v) = (v, side - 1 - u);
                }
                pixels.extend([cells[(v / 12 * 20 + u / 12) as usize]; 3]);
            }
        }
        RgbImage::new(side, side, pixels).unwrap()
    }

    #[test]
    fn a_turned_pack_agrees_far_more_than_another_pack() {
        let method = LocalFeatures::default();
        let features = method
            .features(&[face(1, 0), face(1, 1), face(2, 0)])
            .unwrap();
        let same = method.score(&features[0], &features[1]);
        let other = method.score(&features[0], &features[2]);
        assert!(same > 40.0 && same > 4.0 * other, "{same} {other}");
    }

    #[test]
    fn pictures_without_corners_or_too_small_for_a_patch_score_nothing() {
        let method = LocalFeatures::default();
        let flat = RgbImage::new(100, 100, vec![128; 30_000]).unwrap();
        let tiny = RgbImage::new(1, 1, vec![0; 3]).unwrap();
        let features = method.features(&[flat, tiny, face(1, 0)]).unwrap();
        assert_eq!(method.score(&features[0], &features[2]), 0.0);
        assert_eq!(method.score(&features[2], &features[1]), 0.0);
    }

    #[test]
    fn more_corners_are_another_method_that_agrees_more_often() {
        let (usual, more) = (LocalFeatures::default(), LocalFeatures::new(500));
        let score = |method: &LocalFeatures| {
            let features = method.features(&[face(1, 0), face(1, 1)]).unwrap();
            method.score(&features[0], &features[1])
        };
        assert!(score(&more) > score(&usual));
        assert_eq!(
            [usual.name(), more.name()],
            ["local features", "local features (500)"]
        );
    }

    #[test]
    fn a_score_is_the_same_on_every_call() {
        let method = LocalFeatures::default();
        let features = method.features(&[face(1, 0), face(1, 3)]).unwrap();
        let first = method.score(&features[0], &features[1]);
        assert_eq!(first, method.score(&features[0], &features[1]));
    }
}
