//! Registers one frame against another.
//!
//! The method is direct: no features are described or matched. A correlation over the coarsest
//! level finds the shift, then inverse-compositional Gauss-Newton steps (Baker and Matthews,
//! "Lucas-Kanade 20 years on", 2004) on chosen points refine shift, turn and zoom level by level.
//! Points are the strongest edge of each small bucket, as in Engel et al., "Direct sparse
//! odometry" (2018). Weights after Huber keep reflections and passers-by from pulling, and a gain
//! and an offset per step follow the camera's exposure.

use super::{
    pyramid::{Plane, Pyramid},
    similarity::Similarity,
};

/// Bucket side per level, finest first, in cells: more and finer points where precision is won.
const BUCKETS: [usize; 4] = [6, 3, 2, 2];

/// Gradients below this many grey levels per cell are noise.
const MIN_GRADIENT: f32 = 1.5;

const STEPS_PER_LEVEL: usize = 5;

/// Step size, in cells, below which a level is done: the next one takes over from there, and the
/// finest ends at a fraction of a source pixel.
const DONE_CELLS: f64 = 0.05;

/// Share of the points that has to lie in the other frame.
const MIN_COMMON: f32 = 0.2;

/// Correlation above which the first guess needs no check by a search.
const SURE: f32 = 0.85;

/// Reach of the search around the guess, in cells of the coarsest level.
const SEARCH_CELLS: i32 = 9;

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Place in source pixels.
    x: f32,
    y: f32,
    value: f32,
    /// Grey levels per source pixel.
    gx: f32,
    gy: f32,
}

/// What is kept of a frame that others are registered against.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    size_px: (u32, u32),
    levels: Vec<Vec<Point>>,
    coarsest: Plane,
    coarsest_cell_px: f32,
}

/// How a frame lies against its reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alignment {
    /// From reference pixels to frame pixels.
    pub(super) to_frame: Similarity,
    /// Correlation of the common points, at most 1.
    pub(super) score: f32,
}

impl Reference {
    pub(super) fn of(pyramid: &Pyramid) -> Self {
        let levels = pyramid.levels.iter().enumerate();
        let levels = levels.map(|(level, plane)| {
            let bucket = BUCKETS.get(level).copied().unwrap_or(1);
            choose_points(plane, pyramid.cell_of(level), bucket)
        });
        let last = pyramid.levels.len() - 1;
        Self {
            size_px: pyramid.size_px,
            levels: levels.collect(),
            coarsest: pyramid.levels[last].clone(),
            coarsest_cell_px: pyramid.cell_of(last),
        }
    }

    /// True when there is too little to hold on to.
    pub(super) fn is_blank(&self) -> bool {
        self.levels.iter().all(|points| points.len() < 12)
    }

    /// Registers `frame`, starting from `guess` (reference pixels to frame pixels). `None` when
    /// the frames share too little.
    pub(super) fn align(&self, frame: &Pyramid, guess: &Similarity) -> Option<Alignment> {
        if self.size_px != frame.size_px {
            return None;
        }
        let mut best = self.refine(frame, guess);
        if best.is_some_and(|found| found.score >= SURE) {
            return best;
        }
        for start in self.search(frame, guess) {
            let found = self.refine(frame, &start);
            if found.map(|f| f.score) > best.map(|f| f.score) {
                best = found;
            }
        }
        best
    }

    /// The most likely shifts near `guess`, by the correlation of the coarsest level.
    fn search(&self, frame: &Pyramid, guess: &Similarity) -> Vec<Similarity> {
        let Some(plane) = frame.levels.last() else {
            return Vec::new();
        };
        let cell = f64::from(self.coarsest_cell_px);
        let (cx, cy) = self.centre();
        let (gx, gy) = guess.apply(cx, cy);
        let middle_x = ((gx - cx) / cell).round() as i32;
        let middle_y = ((gy - cy) / cell).round() as i32;
        let reach = SEARCH_CELLS;
        let side = (2 * reach + 1) as usize;
        let mut scores = vec![f32::NEG_INFINITY; side * side];
        for (at, score) in scores.iter_mut().enumerate() {
            let dx = middle_x - reach + (at % side) as i32;
            let dy = middle_y - reach + (at / side) as i32;
            *score = shifted_correlation(&self.coarsest, plane, dx, dy);
        }
        let mut peaks: Vec<(f32, usize)> = (0..scores.len())
            .filter(|&at| scores[at] > 0.2 && is_peak(&scores, side, at))
            .map(|at| (scores[at], at))
            .collect();
        peaks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let start = |&(_, at): &(f32, usize)| {
            let dx = middle_x - reach + (at % side) as i32;
            let dy = middle_y - reach + (at / side) as i32;
            Similarity::translation(f64::from(dx) * cell, f64::from(dy) * cell)
        };
        peaks.iter().take(3).map(start).collect()
    }

    fn centre(&self) -> (f64, f64) {
        (
            f64::from(self.size_px.0) * 0.5,
            f64::from(self.size_px.1) * 0.5,
        )
    }

    /// Gauss-Newton from the coarsest level to the finest.
    fn refine(&self, frame: &Pyramid, start: &Similarity) -> Option<Alignment> {
        let mut map = *start;
        let mut values = Vec::new();
        for level in (0..self.levels.len().min(frame.levels.len())).rev() {
            let points = &self.levels[level];
            if points.len() < 12 {
                continue;
            }
            let view = LevelView {
                plane: &frame.levels[level],
                per_px: 1.0 / frame.cell_of(level),
            };
            for _ in 0..STEPS_PER_LEVEL {
                let step = self.step(points, &view, &map, &mut values)?;
                map = step.inverse().then(&map);
                if !(0.5..2.0).contains(&map.zoom()) {
                    return None;
                }
                if self.reach_of(&step) < DONE_CELLS / f64::from(view.per_px) {
                    break;
                }
            }
        }
        // Judged on the second level: the finest one would punish a smeared frame.
        let judged = usize::from(self.levels.len() > 1 && self.levels[1].len() >= 12);
        let view = LevelView {
            plane: frame.levels.get(judged)?,
            per_px: 1.0 / frame.cell_of(judged),
        };
        let score = view.correlation(&self.levels[judged], &map)?;
        Some(Alignment {
            to_frame: map,
            score,
        })
    }

    /// How far a step moves a corner of the frame, in source pixels.
    fn reach_of(&self, step: &Similarity) -> f64 {
        let (cx, cy) = self.centre();
        let (x, y) = step.apply(2.0 * cx, 2.0 * cy);
        let (ox, oy) = step.apply(0.0, 0.0);
        (x - 2.0 * cx).hypot(y - 2.0 * cy).max(ox.hypot(oy))
    }

    /// One step: the small map of the reference plane that explains the difference.
    fn step(
        &self,
        points: &[Point],
        view: &LevelView<'_>,
        map: &Similarity,
        values: &mut Vec<f32>,
    ) -> Option<Similarity> {
        let mut sums = Sums::default();
        values.clear();
        for (point, value) in view.values(points, map) {
            values.push(value);
            if value.is_finite() {
                sums.add(point.value, value);
            }
        }
        let (gain, offset) = sums.exposure(points.len())?;
        let (cx, cy) = self.centre();
        let half = cx.max(cy) as f32;
        let (cx, cy) = (cx as f32, cy as f32);
        let mut differences = 0.0f32;
        let mut count = 0usize;
        for (point, value) in points.iter().zip(&*values) {
            if value.is_finite() {
                differences += (value * gain + offset - point.value).abs();
                count += 1;
            }
        }
        // Huber's limit follows the fit, so that early steps use every point.
        let limit = (differences / count as f32).max(1.0) * 1.5;
        let mut normal = [[0.0f32; 5]; 4];
        for (point, value) in points.iter().zip(&*values) {
            if !value.is_finite() {
                continue;
            }
            let error = value * gain + offset - point.value;
            let weight = limit / error.abs().max(limit);
            // Places are centred and scaled, which keeps the four unknowns alike in size.
            let (x, y) = ((point.x - cx) / half, (point.y - cy) / half);
            let slope = [
                point.gx * x + point.gy * y,
                point.gy * x - point.gx * y,
                point.gx,
                point.gy,
            ];
            for (i, row) in normal.iter_mut().enumerate() {
                let scaled = slope[i] * weight;
                for (cell, s) in row.iter_mut().zip(slope).skip(i) {
                    *cell += scaled * s;
                }
                row[4] += scaled * error;
            }
        }
        let [zoom, turn, tx, ty] = solve(normal)?;
        let (a, b) = (1.0 + zoom / f64::from(half), turn / f64::from(half));
        // Back from centred places: p + step * (p - centre).
        let (cx, cy) = (f64::from(cx), f64::from(cy));
        Some(Similarity {
            a,
            b,
            tx: tx + cx - (a * cx - b * cy),
            ty: ty + cy - (b * cx + a * cy),
        })
    }
}

/// A level of the frame that is registered.
struct LevelView<'a> {
    plane: &'a Plane,
    per_px: f32,
}

impl LevelView<'_> {
    /// The frame's values under points of the reference; NaN outside the frame.
    fn values<'p>(
        &self,
        points: &'p [Point],
        map: &Similarity,
    ) -> impl Iterator<Item = (&'p Point, f32)> {
        let scale = f64::from(self.per_px);
        let (a, b) = ((map.a * scale) as f32, (map.b * scale) as f32);
        let (tx, ty) = ((map.tx * scale - 0.5) as f32, (map.ty * scale - 0.5) as f32);
        points.iter().map(move |point| {
            let x = a * point.x - b * point.y + tx;
            let y = b * point.x + a * point.y + ty;
            (point, self.plane.sample(x, y).unwrap_or(f32::NAN))
        })
    }

    fn correlation(&self, points: &[Point], map: &Similarity) -> Option<f32> {
        let mut sums = Sums::default();
        for (point, value) in self.values(points, map) {
            if value.is_finite() {
                sums.add(point.value, value);
            }
        }
        if sums.count < MIN_COMMON * points.len() as f32 {
            return None;
        }
        Some(sums.correlation())
    }
}

/// Sums for mean, spread and correlation of pairs.
#[derive(Default)]
struct Sums {
    count: f32,
    a: f32,
    b: f32,
    aa: f32,
    bb: f32,
    ab: f32,
}

impl Sums {
    fn add(&mut self, a: f32, b: f32) {
        // Grey levels about their middle, so that the squares stay small.
        let (a, b) = (a - 128.0, b - 128.0);
        self.count += 1.0;
        self.a += a;
        self.b += b;
        self.aa += a * a;
        self.bb += b * b;
        self.ab += a * b;
    }

    fn spreads(&self) -> (f32, f32, f32) {
        let n = self.count.max(1.0);
        (
            (self.aa - self.a * self.a / n) / n,
            (self.bb - self.b * self.b / n) / n,
            (self.ab - self.a * self.b / n) / n,
        )
    }

    /// Gain and offset that bring the second of the pairs to the first's exposure; `None` when
    /// too few of `all` pairs are there.
    fn exposure(&self, all: usize) -> Option<(f32, f32)> {
        if self.count < (MIN_COMMON * all as f32).max(8.0) {
            return None;
        }
        let (aa, bb, _) = self.spreads();
        // A smeared frame has less contrast; to stretch it fully would only amplify its errors.
        let gain = (aa.max(1.0) / bb.max(1.0)).sqrt().clamp(0.6, 1.6);
        let (mean_a, mean_b) = (self.a / self.count + 128.0, self.b / self.count + 128.0);
        Some((gain, mean_a - gain * mean_b))
    }

    fn correlation(&self) -> f32 {
        let (aa, bb, ab) = self.spreads();
        if aa < 1.0 || bb < 1.0 {
            return 0.0;
        }
        ab / (aa * bb).sqrt()
    }
}

/// Solves the 4 normal equations, of which the upper half is filled, by Cholesky's method.
fn solve(normal: [[f32; 5]; 4]) -> Option<[f64; 4]> {
    let mut low = [[0.0f64; 4]; 4];
    let damp = 1e-3 * (0..4).map(|i| f64::from(normal[i][i])).sum::<f64>() / 4.0;
    for i in 0..4 {
        for j in 0..=i {
            let mut sum = f64::from(normal[j][i]);
            if i == j {
                sum += damp;
            }
            sum -= (0..j).map(|k| low[i][k] * low[j][k]).sum::<f64>();
            if i == j {
                if sum <= 1e-9 || !sum.is_finite() {
                    return None;
                }
                low[i][i] = sum.sqrt();
            } else {
                low[i][j] = sum / low[j][j];
            }
        }
    }
    let mut solution = [0.0f64; 4];
    for i in 0..4 {
        let known: f64 = (0..i).map(|k| low[i][k] * solution[k]).sum();
        solution[i] = (f64::from(normal[i][4]) - known) / low[i][i];
    }
    for i in (0..4).rev() {
        let known: f64 = (i + 1..4).map(|k| low[k][i] * solution[k]).sum();
        solution[i] = (solution[i] - known) / low[i][i];
    }
    solution.iter().all(|v| v.is_finite()).then_some(solution)
}

/// The strongest edge of each bucket of `bucket` by `bucket` cells.
fn choose_points(plane: &Plane, cell_px: f32, bucket: usize) -> Vec<Point> {
    let mut points = Vec::new();
    if plane.width < 3 || plane.height < 3 {
        return points;
    }
    let gradient = |x: usize, y: usize| {
        let at = y * plane.width + x;
        let gx = (plane.values[at + 1] - plane.values[at - 1]) * 0.5;
        let gy = (plane.values[at + plane.width] - plane.values[at - plane.width]) * 0.5;
        (gx, gy)
    };
    for y0 in (1..plane.height - 1).step_by(bucket) {
        for x0 in (1..plane.width - 1).step_by(bucket) {
            let mut best = (MIN_GRADIENT * MIN_GRADIENT, None);
            for y in y0..(y0 + bucket).min(plane.height - 1) {
                for x in x0..(x0 + bucket).min(plane.width - 1) {
                    let (gx, gy) = gradient(x, y);
                    let strength = gx * gx + gy * gy;
                    if strength > best.0 {
                        best = (strength, Some((x, y, gx, gy)));
                    }
                }
            }
            if let Some((x, y, gx, gy)) = best.1 {
                points.push(Point {
                    x: (x as f32 + 0.5) * cell_px,
                    y: (y as f32 + 0.5) * cell_px,
                    value: plane.values[y * plane.width + x],
                    gx: gx / cell_px,
                    gy: gy / cell_px,
                });
            }
        }
    }
    points
}

/// Correlation of two planes when cell `(x, y)` of the first lies on `(x + dx, y + dy)` of the
/// second; minus infinity when less than a quarter is common.
fn shifted_correlation(a: &Plane, b: &Plane, dx: i32, dy: i32) -> f32 {
    let span = |from: i32, length_a: usize, length_b: usize| {
        let first = (-from).max(0);
        let end = (length_a as i32).min(length_b as i32 - from);
        (first, end.max(first))
    };
    let (x0, x1) = span(dx, a.width, b.width);
    let (y0, y1) = span(dy, a.height, b.height);
    if 4 * (x1 - x0) * (y1 - y0) < (a.width * a.height) as i32 {
        return f32::NEG_INFINITY;
    }
    let mut sums = Sums::default();
    for y in y0..y1 {
        let start_a = y as usize * a.width + x0 as usize;
        let start_b = (y + dy) as usize * b.width + (x0 + dx) as usize;
        let length = (x1 - x0) as usize;
        let rows = a.values[start_a..start_a + length]
            .iter()
            .zip(&b.values[start_b..start_b + length]);
        for (&p, &q) in rows {
            sums.add(p, q);
        }
    }
    sums.correlation()
}

fn is_peak(scores: &[f32], side: usize, at: usize) -> bool {
    let (x, y) = (at % side, at / side);
    let near = |v: usize| v.saturating_sub(1)..(v + 2).min(side);
    near(y)
        .flat_map(|ny| near(x).map(move |nx| ny * side + nx))
        .all(|other| scores[other] <= scores[at])
}

#[cfg(test)]
mod tests {
    use shelfscan_testkit::shelf::{Shelf, ShelfClip, ShelfPlan, Viewpoint};

    use super::*;

    /// The map from the frame at the first viewpoint to the frame at the second.
    fn exact(from: &Viewpoint, to: &Viewpoint, width: f64, height: f64) -> Similarity {
        let to_shelf = |v: &Viewpoint| {
            let (zoom, roll) = (f64::from(v.zoom), f64::from(v.roll_rad));
            let turn = Similarity {
                a: zoom * roll.cos(),
                b: zoom * roll.sin(),
                tx: 0.0,
                ty: 0.0,
            };
            Similarity::translation(-f64::from(v.x_px), -f64::from(v.y_px))
                .then(&turn)
                .then(&Similarity::translation(width * 0.5, height * 0.5))
                .inverse()
        };
        to_shelf(from).then(&to_shelf(to).inverse())
    }

    fn worst_corner(a: &Similarity, b: &Similarity, width: f64, height: f64) -> f64 {
        [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)]
            .iter()
            .map(|&(x, y)| {
                let ((ax, ay), (bx, by)) = (a.apply(x, y), b.apply(x, y));
                (ax - bx).hypot(ay - by)
            })
            .fold(0.0, f64::max)
    }

    fn clip(path: Vec<Viewpoint>, exposure: f32) -> ShelfClip {
        let shelf = Shelf::draw(&ShelfPlan::default());
        let mut clip = ShelfClip::new(shelf.into(), path, 960, 540);
        clip.exposure = exposure;
        clip
    }

    #[test]
    fn shifts_turns_and_zooms_are_found_to_a_pixel_without_a_guess() {
        let first = Viewpoint::at(600.0, 240.0);
        for (dx, dy, zoom, roll) in [
            (3.0, -2.0, 1.0, 0.0),
            (60.0, 10.0, 1.02, 0.01),
            (-150.0, 35.0, 0.97, -0.02),
            (240.0, 0.0, 1.0, 0.0),
        ] {
            let second = Viewpoint {
                x_px: first.x_px + dx,
                y_px: first.y_px + dy,
                zoom,
                roll_rad: roll,
            };
            let clip = clip(vec![first, second], 0.0);
            let reference = Reference::of(&Pyramid::of(&clip.frame(0).image));
            let frame = Pyramid::of(&clip.frame(1).image);
            let found = reference.align(&frame, &Similarity::IDENTITY).unwrap();
            let truth = exact(&first, &second, 960.0, 540.0);
            let off = worst_corner(&found.to_frame, &truth, 960.0, 540.0);
            assert!(
                off < 1.0,
                "{dx} {dy} {zoom} {roll}: off by {off}, {found:?}"
            );
            assert!(found.score > 0.9, "{found:?}");
        }
    }

    #[test]
    fn a_smeared_and_darker_frame_is_still_found_to_a_few_pixels() {
        let path: Vec<_> = (0..3)
            .map(|i| Viewpoint::at(500.0 + 30.0 * i as f32, 240.0))
            .collect();
        let sharp = clip(path.clone(), 0.0);
        let mut smeared = clip(path.clone(), 0.8);
        smeared.noise_levels = 4.0;
        let reference = Reference::of(&Pyramid::of(&sharp.frame(0).image));
        let image = smeared.frame(1).image;
        let dark = image.pixels().iter().map(|&p| p / 4 * 3).collect();
        let dark = shelfscan_inference_core::RgbImage::new(960, 540, dark).unwrap();
        let found = reference
            .align(&Pyramid::of(&dark), &Similarity::IDENTITY)
            .unwrap();
        // The shutter is open while the camera covers 24 of 30 pixels, so the middle of the smear
        // lies 12 pixels (less a fifth for the last sample) further on.
        let middle = exact(&path[0], &Viewpoint::at(530.0 + 9.6, 240.0), 960.0, 540.0);
        let off = worst_corner(&found.to_frame, &middle, 960.0, 540.0);
        assert!(off < 4.0, "off by {off}, {found:?}");
    }

    #[test]
    fn frames_without_a_common_part_or_without_texture_do_not_align() {
        let far = clip(
            vec![Viewpoint::at(300.0, 240.0), Viewpoint::at(1400.0, 240.0)],
            0.0,
        );
        let reference = Reference::of(&Pyramid::of(&far.frame(0).image));
        let frame = Pyramid::of(&far.frame(1).image);
        let found = reference.align(&frame, &Similarity::IDENTITY);
        assert!(found.is_none_or(|f| f.score < 0.7), "{found:?}");
        let black = shelfscan_inference_core::RgbImage::new(960, 540, vec![0; 960 * 540 * 3]);
        let black = Pyramid::of(&black.unwrap());
        assert!(Reference::of(&black).is_blank());
        let found = reference.align(&black, &Similarity::IDENTITY);
        assert!(found.is_none_or(|f| f.score < 0.1), "{found:?}");
    }

    #[test]
    fn the_normal_equations_are_solved() {
        let mut normal = [[0.0; 5]; 4];
        for (i, row) in normal.iter_mut().enumerate() {
            row[i] = 2.0;
            row[4] = i as f32;
        }
        let solution = solve(normal).unwrap();
        for (i, value) in solution.iter().enumerate() {
            assert!((value - i as f64 / 2.0).abs() < 0.01);
        }
        assert!(solve([[0.0; 5]; 4]).is_none());
    }
}
