//! Which tracks are the same place on the shelf.
//!
//! A facing is a place where a product stands. A track that comes back to a place where an earlier
//! one of the same label was, and that was never in view together with it, is the same facing. The
//! places are compared on the shelf ([`CameraView::to_shelf`]), so that a camera that pans away and
//! returns counts a pack once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{BoxXyxy, TrackId};

use super::{CameraView, tracker::FrameEdges};

/// Names a facing within one source: the number of the first track that showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FacingId(pub u64);

impl fmt::Display for FacingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// When two tracks are one facing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FacingOptions {
    /// How far the two may lie apart, as a share of the smaller one's width or height.
    pub max_shift: f32,
    /// How much larger one may be than the other along a side.
    pub max_growth: f32,
    /// A track whose centre moves over the shelf by more than this share of its size is not a
    /// facing that stands still, such as a bottle on a belt, and is never merged.
    pub max_travel: f32,
    /// Tracks whose places are remembered, at least 2; beyond it those not seen for longest keep
    /// their facing and are no longer compared.
    pub max_tracks: u32,
}

impl Default for FacingOptions {
    fn default() -> Self {
        Self {
            max_shift: 0.4,
            max_growth: 1.7,
            max_travel: 0.6,
            max_tracks: 5000,
        }
    }
}

/// One confirmed track in one frame.
#[derive(Clone, Debug)]
pub struct SeenTrack {
    /// Its id.
    pub track: TrackId,
    /// Its label; only tracks of one label are merged.
    pub label: Arc<str>,
    /// Its box, in source pixels of the frame.
    pub bbox: BoxXyxy,
}

/// A border of a track's place, of which the frame may have shown nothing yet.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Sum and number of what was seen inside the frame.
    sum: f64,
    count: u32,
    /// The furthest that was seen while the frame cut the track off.
    cut: Option<f64>,
}

/// The place of a track along one axis, in shelf pixels: its low and its high side.
#[derive(Clone, Copy, Debug, Default)]
struct Extent([Side; 2]);

/// How much further out than a side's mean a cut-off view may reach, as a share of the extent,
/// before the few views that seemed whole are not believed.
const CUT_SLACK: f64 = 0.15;

impl Side {
    fn add(&mut self, value: f64, inside: bool, outward: f64) {
        if inside {
            self.sum += value;
            self.count += 1;
        } else {
            let furthest = self.cut.unwrap_or(value) * outward;
            self.cut = Some(furthest.max(value * outward) * outward);
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }

    /// The furthest that was seen in any way.
    fn reach(&self, outward: f64) -> f64 {
        match (self.mean(), self.cut) {
            (Some(mean), Some(cut)) => (mean * outward).max(cut * outward) * outward,
            (mean, cut) => mean.or(cut).unwrap_or(0.0),
        }
    }
}

impl Extent {
    fn reach(&self) -> [f64; 2] {
        [self.0[0].reach(-1.0), self.0[1].reach(1.0)]
    }

    fn length(&self) -> f64 {
        let [low, high] = self.reach();
        (high - low).max(1.0)
    }

    /// The sides that were seen inside the frame; `None` for those the frame always cut.
    fn known(&self) -> [Option<f64>; 2] {
        let slack = CUT_SLACK * self.length();
        [(0, -1.0), (1, 1.0)].map(|(end, outward)| {
            let side = &self.0[end];
            side.mean()
                .filter(|mean| (side.reach(outward) - mean) * outward <= slack)
        })
    }
}

/// What is remembered of a track.
#[derive(Clone, Debug)]
struct Place {
    label: Arc<str>,
    segment: u32,
    /// Along x and along y.
    extents: [Extent; 2],
    /// Smallest and largest centre, while all of the track was in view.
    centre_span: Option<[[f64; 2]; 2]>,
    /// Frames in which it was seen, as `[first, last]` runs of observed frames.
    runs: Vec<[u64; 2]>,
}

/// Merges the tracks of one source into facings.
///
/// Feed every frame's confirmed tracks with the frame's [`CameraView`], call
/// [`settle`](Self::settle) at the end (or whenever an answer is wanted), then ask
/// [`facing_of`](Self::facing_of). Equal input gives equal facings.
pub struct FacingMerger {
    options: FacingOptions,
    /// Boxed, because the map's own nodes are half empty when keys only ever rise.
    places: BTreeMap<TrackId, Box<Place>>,
    /// Only tracks whose facing is not their own number.
    merged: BTreeMap<TrackId, FacingId>,
    observed: u64,
}

impl FacingMerger {
    /// A merger that has seen nothing.
    pub fn new(options: FacingOptions) -> Self {
        Self {
            options,
            places: BTreeMap::new(),
            merged: BTreeMap::new(),
            observed: 0,
        }
    }

    /// Takes the confirmed tracks of the next frame, whose size is `(width, height)` in source
    /// pixels. Frames without tracks may be left out.
    pub fn observe(&mut self, view: &CameraView, size_px: (u32, u32), seen: &[SeenTrack]) {
        self.observed += 1;
        for track in seen.iter().filter(|t| t.bbox.is_valid()) {
            let place = self
                .places
                .entry(track.track)
                .or_insert_with(|| Box::new(Place::new(track.label.clone(), view.segment)));
            place.see(self.observed, view, size_px, &track.bbox);
        }
        if self.places.len() > self.options.max_tracks.max(2) as usize {
            self.forget();
        }
    }

    /// Merges what belongs together, best agreement first.
    pub fn settle(&mut self) {
        let tracks: Vec<(TrackId, &Place)> =
            self.places.iter().map(|(&t, p)| (t, p.as_ref())).collect();
        let mut by_x: Vec<usize> = (0..tracks.len()).collect();
        by_x.sort_by(|&i, &j| {
            let left = |k: usize| tracks[k].1.extents[0].reach()[0];
            left(i).total_cmp(&left(j)).then(i.cmp(&j))
        });
        let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
        for (at, &i) in by_x.iter().enumerate() {
            let right = tracks[i].1.extents[0].reach()[1];
            for &j in &by_x[at + 1..] {
                if tracks[j].1.extents[0].reach()[0] > right {
                    break;
                }
                if let Some(distance) = self.distance(tracks[i].1, tracks[j].1) {
                    pairs.push((distance, i.min(j), i.max(j)));
                }
            }
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut group_of: Vec<usize> = (0..tracks.len()).collect();
        let mut members: Vec<Vec<usize>> = (0..tracks.len()).map(|i| vec![i]).collect();
        for (_, i, j) in pairs {
            let (a, b) = (group_of[i].min(group_of[j]), group_of[i].max(group_of[j]));
            let apart = members[a].iter().all(|&p| {
                let of_b = members[b].iter();
                of_b.copied().all(|q| !tracks[p].1.met(tracks[q].1))
            });
            if a == b || !apart {
                continue;
            }
            let moved = std::mem::take(&mut members[b]);
            for &k in &moved {
                group_of[k] = a;
            }
            members[a].extend(moved);
        }
        let mut settled = Vec::new();
        for (k, (track, _)) in tracks.iter().enumerate() {
            // Groups are named by their smallest index, and tracks are in order of their ids.
            let first = tracks[group_of[k]].0;
            settled.push((*track, self.root(first)));
        }
        for (track, facing) in settled {
            if facing.0 == track.0 {
                self.merged.remove(&track);
            } else {
                self.merged.insert(track, facing);
            }
        }
    }

    /// The facing of a track, by the last [`settle`](Self::settle). A track that was not merged,
    /// or never observed, is a facing of its own.
    pub fn facing_of(&self, track: TrackId) -> FacingId {
        self.merged
            .get(&track)
            .copied()
            .unwrap_or(FacingId(track.0))
    }

    /// The facings of the remembered tracks, by the last [`settle`](Self::settle), in order.
    pub fn facings(&self) -> BTreeSet<FacingId> {
        self.places.keys().map(|&t| self.facing_of(t)).collect()
    }

    /// Number of tracks whose places are remembered.
    pub fn remembered(&self) -> usize {
        self.places.len()
    }

    /// A forgotten track's facing outlives it, so that later ones of its group keep the name.
    fn root(&self, track: TrackId) -> FacingId {
        match self.merged.get(&track) {
            Some(facing) if !self.places.contains_key(&TrackId(facing.0)) => *facing,
            _ => FacingId(track.0),
        }
    }

    /// Settles, then forgets the quarter that was not seen for longest.
    fn forget(&mut self) {
        self.settle();
        let mut last_seen: Vec<(u64, TrackId)> = self
            .places
            .iter()
            .map(|(&track, place)| (place.runs.last().map_or(0, |run| run[1]), track))
            .collect();
        last_seen.sort_unstable();
        let count = last_seen.len().div_ceil(4);
        for (_, track) in last_seen.into_iter().take(count) {
            self.places.remove(&track);
        }
    }

    /// How far two places lie apart, 0 for equal ones; `None` when they cannot be one facing.
    fn distance(&self, a: &Place, b: &Place) -> Option<f64> {
        if a.label != b.label || a.segment != b.segment || a.met(b) {
            return None;
        }
        if self.travels(a) || self.travels(b) {
            return None;
        }
        let mut total = 0.0;
        for (p, q) in a.extents.iter().zip(&b.extents) {
            total += self.axis_distance(p, q)?;
        }
        Some(total)
    }

    /// The same along one axis, as a share of the smaller extent.
    fn axis_distance(&self, a: &Extent, b: &Extent) -> Option<f64> {
        let (smaller, larger) = (a.length().min(b.length()), a.length().max(b.length()));
        let max_shift = f64::from(self.options.max_shift);
        let near = |shift: f64, scale: f64| {
            let share = shift.abs() / scale;
            (share <= max_shift).then_some(share)
        };
        match (a.known(), b.known()) {
            ([Some(a0), Some(a1)], [Some(b0), Some(b1)]) => {
                if larger > smaller * f64::from(self.options.max_growth) {
                    return None;
                }
                near(f64::midpoint(a0, a1) - f64::midpoint(b0, b1), smaller)
            }
            // A cut track has one good side; the other shows only how far it reaches at least.
            ([Some(p), _], [Some(q), _]) | ([_, Some(p)], [_, Some(q)]) => near(p - q, larger),
            _ => {
                let ([a0, a1], [b0, b1]) = (a.reach(), b.reach());
                let missing = 1.0 - (a1.min(b1) - a0.max(b0)) / smaller;
                (missing <= max_shift).then_some(missing.max(0.0))
            }
        }
    }

    fn travels(&self, place: &Place) -> bool {
        let Some(span) = &place.centre_span else {
            return false;
        };
        span.iter().zip(&place.extents).any(|(range, extent)| {
            range[1] - range[0] > f64::from(self.options.max_travel) * extent.length()
        })
    }
}

/// Runs of frames that a place remembers.
const MOST_RUNS: usize = 256;

impl Place {
    fn new(label: Arc<str>, segment: u32) -> Self {
        Self {
            label,
            segment,
            extents: [Extent::default(); 2],
            centre_span: None,
            runs: Vec::new(),
        }
    }

    fn see(&mut self, observed: u64, view: &CameraView, size_px: (u32, u32), bbox: &BoxXyxy) {
        match self.runs.last_mut() {
            Some(run) if run[1] + 1 >= observed => run[1] = observed,
            _ => self.runs.push([observed, observed]),
        }
        if self.runs.len() > MOST_RUNS {
            // A flickering track is taken as seen between its first two runs, which can only keep it
            // apart from others.
            let second = self.runs.remove(1);
            self.runs[0][1] = second[1];
        }
        if !view.located {
            return;
        }
        if view.segment != self.segment {
            // The track lived through a cut: only the place it has now can be met again.
            self.segment = view.segment;
            self.extents = [Extent::default(); 2];
            self.centre_span = None;
        }
        let shelf = view.to_shelf.apply_box(bbox);
        let [left, top, right, bottom] = FrameEdges::of(size_px).cut(bbox);
        let inside = [[!left, !right], [!top, !bottom]];
        let values = [[shelf.x0, shelf.x1], [shelf.y0, shelf.y1]];
        for axis in 0..2 {
            for (end, outward) in [(0, -1.0), (1, 1.0)] {
                let value = f64::from(values[axis][end]);
                self.extents[axis].0[end].add(value, inside[axis][end], outward);
            }
        }
        if inside.iter().flatten().all(|&i| i) {
            let (x, y) = shelf.center();
            let centre = [f64::from(x), f64::from(y)];
            let span = self.centre_span.get_or_insert(centre.map(|c| [c, c]));
            for (range, c) in span.iter_mut().zip(centre) {
                *range = [range[0].min(c), range[1].max(c)];
            }
        }
    }

    /// True when both were seen in one frame.
    fn met(&self, other: &Self) -> bool {
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.runs.get(i), other.runs.get(j)) {
            if a[0].max(b[0]) <= a[1].min(b[1]) {
                return true;
            }
            if a[1] < b[1] {
                i += 1;
            } else {
                j += 1;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::associate::Similarity;

    const SIZE: (u32, u32) = (640, 360);

    fn view(x: f64) -> CameraView {
        CameraView {
            segment: 0,
            to_shelf: Similarity::translation(x, 0.0),
            located: true,
        }
    }

    /// A pack 60 wide and 120 high whose left side is at `x` on the shelf, seen from `camera_x`.
    fn seen(track: u64, x: f32, camera_x: f32) -> SeenTrack {
        SeenTrack {
            track: TrackId(track),
            label: "product".into(),
            bbox: BoxXyxy::from_xywh(x - camera_x, 100.0, 60.0, 120.0).clamped(SIZE.0, SIZE.1),
        }
    }

    fn merger() -> FacingMerger {
        FacingMerger::new(FacingOptions::default())
    }

    #[test]
    fn a_place_seen_again_is_one_facing_and_a_neighbour_is_not() {
        let mut merger = merger();
        merger.observe(
            &view(0.0),
            SIZE,
            &[seen(1, 100.0, 0.0), seen(2, 162.0, 0.0)],
        );
        merger.observe(&view(800.0), SIZE, &[seen(3, 900.0, 800.0)]);
        merger.observe(
            &view(4.0),
            SIZE,
            &[seen(4, 103.0, 0.0), seen(5, 160.0, 0.0)],
        );
        merger.settle();
        let facings: Vec<u64> = (1..=5).map(|t| merger.facing_of(TrackId(t)).0).collect();
        assert_eq!(facings, [1, 2, 3, 1, 2]);
        assert_eq!(merger.facings().len(), 3);
        assert_eq!(merger.facing_of(TrackId(77)), FacingId(77));
    }

    #[test]
    fn tracks_in_view_together_are_never_one_facing() {
        let mut merger = merger();
        for _ in 0..3 {
            merger.observe(
                &view(0.0),
                SIZE,
                &[seen(1, 100.0, 0.0), seen(2, 103.0, 0.0)],
            );
        }
        // A third one fits both, and may join only one of them.
        merger.observe(&view(0.0), SIZE, &[seen(3, 101.0, 0.0)]);
        merger.settle();
        assert_eq!(merger.facings().len(), 2);
        assert_ne!(merger.facing_of(TrackId(1)), merger.facing_of(TrackId(2)));
    }

    #[test]
    fn labels_segments_and_unlocated_views_keep_tracks_apart() {
        let mut merger = merger();
        let mut tag = seen(2, 100.0, 0.0);
        tag.label = "price tag".into();
        let other_bay = CameraView {
            segment: 1,
            ..view(0.0)
        };
        let lost = CameraView {
            located: false,
            ..view(0.0)
        };
        merger.observe(&view(0.0), SIZE, &[seen(1, 100.0, 0.0)]);
        merger.observe(&view(0.0), SIZE, &[tag]);
        merger.observe(&other_bay, SIZE, &[seen(3, 100.0, 0.0)]);
        merger.observe(&lost, SIZE, &[seen(4, 100.0, 0.0)]);
        merger.observe(&lost, SIZE, &[seen(5, 100.0, 0.0)]);
        merger.settle();
        assert_eq!(merger.facings().len(), 5);
    }

    #[test]
    fn a_pack_cut_by_the_frame_is_recognised_by_the_side_that_is_left() {
        let mut merger = merger();
        merger.observe(&view(0.0), SIZE, &[seen(1, 100.0, 0.0)]);
        // Only the right third is in view, at the left edge of the frame.
        merger.observe(&view(140.0), SIZE, &[seen(2, 100.0, 140.0)]);
        // A sliver of its right neighbour, at the right edge, is not it.
        merger.observe(&view(-470.0), SIZE, &[seen(3, 162.0, -470.0)]);
        merger.settle();
        assert_eq!(merger.facing_of(TrackId(2)), FacingId(1));
        assert_eq!(merger.facing_of(TrackId(3)), FacingId(3));
    }

    #[test]
    fn bottles_that_pass_one_place_on_a_belt_are_not_one_facing() {
        let mut merger = merger();
        for bottle in 0..3u64 {
            for step in 0..10 {
                let x = 100.0 + 30.0 * step as f32;
                merger.observe(&view(0.0), SIZE, &[seen(bottle + 1, x, 0.0)]);
            }
        }
        merger.settle();
        assert_eq!(merger.facings().len(), 3);
    }

    #[test]
    fn a_track_that_flickers_stays_below_its_cap_and_still_meets_others() {
        let mut place = Place::new("can".into(), 0);
        let other_seen = |at: u64| {
            let mut other = Place::new("can".into(), 0);
            other.see(at, &view(0.0), SIZE, &seen(2, 100.0, 0.0).bbox);
            other
        };
        let last = 20 * MOST_RUNS as u64;
        for at in (0..=last).step_by(2) {
            place.see(at, &view(0.0), SIZE, &seen(1, 100.0, 0.0).bbox);
            assert!(place.runs.len() <= MOST_RUNS);
        }
        assert!(place.met(&other_seen(last)) && !place.met(&other_seen(last - 1)));
        assert!(place.met(&other_seen(0)));
    }

    #[test]
    fn places_stay_below_their_cap_and_forgotten_tracks_keep_their_facing() {
        let mut merger = FacingMerger::new(FacingOptions {
            max_tracks: 10,
            ..Default::default()
        });
        merger.observe(&view(0.0), SIZE, &[seen(1, 100.0, 0.0)]);
        merger.observe(&view(0.0), SIZE, &[]);
        merger.observe(&view(0.0), SIZE, &[seen(2, 100.0, 0.0)]);
        for track in 3..100u64 {
            let x = 200.0 * track as f32;
            merger.observe(&view(f64::from(x)), SIZE, &[seen(track, x + 100.0, x)]);
            assert!(merger.remembered() <= 10);
        }
        merger.settle();
        assert_eq!(merger.facing_of(TrackId(2)), FacingId(1));
        assert_eq!(merger.facing_of(TrackId(50)), FacingId(50));
    }
}
