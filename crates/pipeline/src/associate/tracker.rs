//! Gives ids to the detections of a provider that has none.
//!
//! The matching is BoT-SORT (Aharon et al., 2022) from the crate `trackforge`, one instance per
//! label, without appearance: two stages after ByteTrack (Zhang et al., 2021) with the camera's
//! motion taken out first. Around it stand what a count needs: ids only for confirmed tracks, equal
//! results whatever the order of the detections, and caps.

use std::{collections::BTreeMap, sync::Arc};

use shelfscan_inference_core::{BoxXyxy, Detection, TrackId, VideoFrame};
use trackforge::trackers::{
    botsort::{BotSort, BotSortParams},
    common::{CameraMotion, CommonParams},
};

use super::{AssociateOptions, CameraTracker, CameraView, Similarity};
use crate::Result;

/// A detection that belonged to a track before the track had its id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackHit {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// Position of the detection in the slice that was given for that frame.
    pub detection: usize,
    /// Its box, in source pixels.
    pub bbox: BoxXyxy,
    /// Its score, 0 to 1.
    pub score: f32,
}

/// What happened to a track in one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum TrackEvent {
    /// A track was seen often enough and has its id from now on.
    Confirmed {
        /// The id.
        track: TrackId,
        /// The label of all its detections.
        label: Arc<str>,
        /// The detections it had before this frame, oldest first; they carry the id too.
        earlier: Vec<TrackHit>,
    },
    /// A track was missed for too long. Its id never comes back.
    Ended {
        /// The id.
        track: TrackId,
        /// The label of all its detections.
        label: Arc<str>,
        /// The last frame it was seen in.
        last_frame_index: u64,
    },
}

/// A track between its first detection and its end.
struct Live {
    id: Option<TrackId>,
    last_step: u64,
    last_frame_index: u64,
    /// Kept until the track is confirmed, at most `confirm_hits` of them.
    hits: Vec<TrackHit>,
}

/// The tracks of one label.
struct LabelTracks {
    sort: BotSort,
    /// By the id `sort` gives, which is in order of birth.
    live: BTreeMap<u64, Live>,
    /// Width and height of what the frame shows whole, lately, in source pixels.
    usual_size: Option<(f32, f32)>,
}

/// The association tracker of one source.
///
/// ```
/// use shelfscan_inference_core::{
///     BoxXyxy, Detection, FrameTime, RgbImage, SourceId, TrackId, VideoFrame,
/// };
/// use shelfscan_pipeline::associate::{AssociateOptions, Associator};
///
/// let mut tracks = Associator::new(AssociateOptions::default())?;
/// let pack = Detection {
///     label: "product".into(),
///     prompt: "product".into(),
///     score: 0.9,
///     bbox: BoxXyxy::new(8.0, 8.0, 24.0, 40.0),
///     mask: None,
///     track_id: None,
/// };
/// let ids: Vec<_> = (0..3)
///     .map(|index| {
///         let image = RgbImage::new(64, 48, vec![0; 64 * 48 * 3]).unwrap();
///         let time = FrameTime::exact(index as f64 / 30.0);
///         let source = SourceId::new("clip");
///         let frame = VideoFrame { image, index, time, source };
///         tracks.step(&frame, std::slice::from_ref(&pack))[0]
///     })
///     .collect();
/// assert_eq!(ids, [None, None, Some(TrackId(1))]);
/// # Ok::<(), shelfscan_pipeline::PipelineError>(())
/// ```
pub struct Associator {
    options: AssociateOptions,
    labels: BTreeMap<Arc<str>, LabelTracks>,
    camera: CameraTracker,
    step: u64,
    next_id: u64,
    events: Vec<TrackEvent>,
    /// Camera motion over frames that were skipped, from the last stepped frame on.
    pending_motion: Similarity,
}

impl Associator {
    /// A tracker for a new source; its ids start at 1.
    ///
    /// # Errors
    /// [`PipelineError::Usage`](crate::PipelineError::Usage) when the options contradict each
    /// other.
    pub fn new(options: AssociateOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            camera: CameraTracker::new(options.camera),
            options,
            labels: BTreeMap::new(),
            step: 0,
            next_id: 1,
            events: Vec::new(),
            pending_motion: Similarity::IDENTITY,
        })
    }

    /// Says that a source has no more than so many frames. With fewer than
    /// [`confirm_hits`](AssociateOptions::confirm_hits), what is seen in all of them counts: a
    /// photo shows its facings once.
    pub fn expect_frames(&mut self, frames: u64) {
        let hits = u32::try_from(frames.max(1)).unwrap_or(u32::MAX);
        self.options.confirm_hits = self.options.confirm_hits.min(hits);
    }

    /// Assigns ids to the detections of the next frame: per detection its track, `None` while the
    /// track is unconfirmed and for what is left out (invalid boxes, doubles, beyond the caps).
    ///
    /// The result does not depend on the order of the detections. Frames come in order.
    pub fn step(&mut self, frame: &VideoFrame, detections: &[Detection]) -> Vec<Option<TrackId>> {
        self.skip(frame);
        let motion = std::mem::take(&mut self.pending_motion);
        self.step += 1;
        self.events.clear();
        for detection in detections {
            if !self.labels.contains_key(&detection.label)
                && self.labels.len() < self.options.max_live_tracks as usize
            {
                let tracks = LabelTracks::new(&self.options);
                self.labels.insert(detection.label.clone(), tracks);
            }
        }
        let chosen = choose(detections, &self.options);
        let edges = FrameEdges::of((frame.image.width(), frame.image.height()));
        let alive: usize = self.labels.values().map(|tracks| tracks.live.len()).sum();
        let mut births = (self.options.max_live_tracks as usize).saturating_sub(alive);
        let mut assigned = vec![None; detections.len()];
        for (label, tracks) in &mut self.labels {
            let own = chosen.get(label).map_or(&[][..], Vec::as_slice);
            tracks.learn_size(own.iter().map(|&index| detections[index].bbox), &edges);
            let mut given = Vec::with_capacity(own.len());
            for &index in own {
                let detection = &detections[index];
                let b = edges.completed(&detection.bbox, tracks.usual_size);
                let mut score = detection.score;
                if score >= self.options.new_track_score {
                    if births > 0 {
                        births -= 1;
                    } else {
                        // Still matched first, but too low to start a track.
                        score =
                            f32::midpoint(self.options.high_score, self.options.new_track_score);
                    }
                }
                given.push(([b.x0, b.y0, b.width(), b.height()], score, 0));
            }
            let matched = tracks
                .sort
                .update_with_camera_motion(given, &[], &to_cmc(&motion));
            let mut placed = Vec::with_capacity(matched.len());
            for track in matched {
                let Some(&index) = track.det_ind.and_then(|own_index| own.get(own_index)) else {
                    continue;
                };
                placed.push((track.track_id, index));
                let live = tracks.live.entry(track.track_id).or_insert(Live {
                    id: None,
                    last_step: self.step,
                    last_frame_index: frame.index,
                    hits: Vec::new(),
                });
                if live.id.is_none() {
                    let missed = (self.step - live.last_step).saturating_sub(1);
                    if missed > u64::from(self.options.tentative_gap_frames) {
                        live.hits.clear();
                    }
                    live.hits.push(TrackHit {
                        frame_index: frame.index,
                        detection: index,
                        bbox: detections[index].bbox,
                        score: detections[index].score,
                    });
                }
                live.last_step = self.step;
                live.last_frame_index = frame.index;
            }
            // In order of birth, so that ids do not hang on the order of the matches.
            for live in tracks.live.values_mut() {
                if live.id.is_none() && live.hits.len() >= self.options.confirm_hits as usize {
                    let id = TrackId(self.next_id);
                    self.next_id += 1;
                    live.id = Some(id);
                    // The last one is this frame's, which is in the result itself.
                    live.hits.pop();
                    self.events.push(TrackEvent::Confirmed {
                        track: id,
                        label: label.clone(),
                        earlier: std::mem::take(&mut live.hits),
                    });
                }
            }
            for (born, index) in placed {
                assigned[index] = tracks.live.get(&born).and_then(|live| live.id);
            }
        }
        self.end_missed(u64::from(self.options.max_gap_frames));
        assigned
    }

    /// Takes a frame without detections, such as one between two that the provider looks at, to
    /// follow the camera over it. Gaps are counted in stepped frames only.
    pub fn skip(&mut self, frame: &VideoFrame) {
        if self.options.motion_compensation {
            self.camera.observe(&frame.image);
            self.pending_motion = self.pending_motion.then(&self.camera.motion());
        }
    }

    /// Where the last frame lies on the shelf; its map is the camera's whole way since the first
    /// frame. Stays at the identity without motion compensation.
    pub fn camera_shift(&self) -> CameraView {
        self.camera.view()
    }

    /// What the last step did: confirmations, then ends, each by label and birth.
    pub fn events(&self) -> &[TrackEvent] {
        &self.events
    }

    /// Number of tracks alive, unconfirmed ones included.
    pub fn live_tracks(&self) -> usize {
        self.labels.values().map(|tracks| tracks.live.len()).sum()
    }

    /// Ends all tracks, at the end of the source, and says which.
    pub fn finish(mut self) -> Vec<TrackEvent> {
        self.events.clear();
        self.step += 1;
        self.end_missed(0);
        self.events
    }

    fn end_missed(&mut self, max_missed: u64) {
        for (label, tracks) in &mut self.labels {
            let step = self.step;
            let events = &mut self.events;
            tracks.live.retain(|_, live| {
                let keep = step - live.last_step <= max_missed;
                if let (false, Some(track)) = (keep, live.id) {
                    events.push(TrackEvent::Ended {
                        track,
                        label: label.clone(),
                        last_frame_index: live.last_frame_index,
                    });
                }
                keep
            });
        }
        self.labels.retain(|_, tracks| !tracks.live.is_empty());
    }
}

impl LabelTracks {
    fn new(options: &AssociateOptions) -> Self {
        Self {
            sort: BotSort::from_params(BotSortParams {
                common: CommonParams::new(options.max_gap_frames as usize, 1),
                track_thresh: options.high_score,
                match_thresh: 1.0 - options.match_iou,
                det_thresh: options.new_track_score,
                second_match_thresh: 1.0 - options.low_match_iou,
                ..BotSortParams::default()
            }),
            live: BTreeMap::new(),
            usual_size: None,
        }
    }

    /// Follows the size of the detections that the frame does not cut.
    fn learn_size(&mut self, boxes: impl Iterator<Item = BoxXyxy>, edges: &FrameEdges) {
        let (mut widths, mut heights) = (Vec::new(), Vec::new());
        for b in boxes {
            let [left, top, right, bottom] = edges.cut(&b);
            if !(left || right) {
                widths.push(b.width());
            }
            if !(top || bottom) {
                heights.push(b.height());
            }
        }
        let median = |values: &mut Vec<f32>| {
            values.sort_by(f32::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let now = (median(&mut widths), median(&mut heights));
        self.usual_size = match (self.usual_size, now) {
            (Some((w, h)), (now_w, now_h)) => Some((
                w + (now_w.unwrap_or(w) - w) * SIZE_MEMORY,
                h + (now_h.unwrap_or(h) - h) * SIZE_MEMORY,
            )),
            (None, (Some(w), Some(h))) => Some((w, h)),
            (None, _) => None,
        };
    }
}

/// Share of the new that enters the usual size with each frame.
const SIZE_MEMORY: f32 = 0.2;

/// Where boxes are cut.
pub(super) struct FrameEdges {
    width: f32,
    height: f32,
}

impl FrameEdges {
    /// The edges of a frame of `(width, height)` source pixels.
    pub(super) fn of(size_px: (u32, u32)) -> Self {
        Self {
            width: size_px.0 as f32,
            height: size_px.1 as f32,
        }
    }

    /// Whether the left, upper, right and lower side may be cut: they lie nearer to the edge than
    /// a detector's usual error, which grows with the box.
    pub(super) fn cut(&self, b: &BoxXyxy) -> [bool; 4] {
        let least = 0.006 * self.width.max(self.height);
        let (across, along) = (least.max(0.1 * b.width()), least.max(0.1 * b.height()));
        [
            b.x0 <= across,
            b.y0 <= along,
            b.x1 >= self.width - across,
            b.y1 >= self.height - along,
        ]
    }

    /// The box with its cut sides moved out to the usual size. The part in view changes from frame
    /// to frame as the camera moves, the whole does not, and so overlaps stay large.
    fn completed(&self, b: &BoxXyxy, usual: Option<(f32, f32)>) -> BoxXyxy {
        let Some((w, h)) = usual else {
            return *b;
        };
        let along = |low: f32, high: f32, cut_low: bool, cut_high: bool, size: f32| match (
            cut_low, cut_high,
        ) {
            (true, false) => (low.min(high - size), high),
            (false, true) => (low, high.max(low + size)),
            _ => (low, high),
        };
        let [left, top, right, bottom] = self.cut(b);
        let (x0, x1) = along(b.x0, b.x1, left, right, w);
        let (y0, y1) = along(b.y0, b.y1, top, bottom, h);
        BoxXyxy::new(x0, y0, x1, y1)
    }
}

/// The detections worth matching, by label, in an order that their own values decide.
fn choose(detections: &[Detection], options: &AssociateOptions) -> BTreeMap<Arc<str>, Vec<usize>> {
    let mut usable: Vec<usize> = (0..detections.len())
        .filter(|&i| detections[i].bbox.is_valid() && detections[i].score.is_finite())
        .collect();
    usable.sort_by(|&i, &j| {
        let (a, b) = (&detections[i], &detections[j]);
        let sides = |d: &Detection| <[f32; 4]>::from(d.bbox);
        let by_box = sides(a)
            .iter()
            .zip(sides(b))
            .map(|(p, q)| p.total_cmp(&q))
            .find(|order| order.is_ne());
        b.score
            .total_cmp(&a.score)
            .then_with(|| a.label.cmp(&b.label))
            .then(by_box.unwrap_or(i.cmp(&j)))
    });
    usable.truncate(options.max_live_tracks as usize);
    let mut chosen: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    for index in usable {
        let own = chosen.entry(detections[index].label.clone()).or_default();
        let bbox = &detections[index].bbox;
        let double = own
            .iter()
            .any(|&kept| detections[kept].bbox.iou(bbox) > options.duplicate_iou);
        if !double {
            own.push(index);
        }
    }
    chosen
}

fn to_cmc(map: &Similarity) -> CameraMotion {
    let (a, b) = (map.a as f32, map.b as f32);
    CameraMotion::new(a, -b, map.tx as f32, b, a, map.ty as f32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shelfscan_inference_core::{FrameTime, RgbImage, SourceId};
    use shelfscan_testkit::seeded::Seeded;

    use super::*;

    fn frame(index: u64) -> VideoFrame {
        VideoFrame {
            image: RgbImage::new(640, 360, vec![0; 640 * 360 * 3]).unwrap(),
            index,
            time: FrameTime::exact(index as f64 / 30.0),
            source: SourceId::new("squares"),
        }
    }

    fn square(label: &str, x: f32, y: f32) -> Detection {
        Detection {
            label: label.into(),
            prompt: label.into(),
            score: 0.9,
            bbox: BoxXyxy::from_xywh(x, y, 40.0, 40.0),
            mask: None,
            track_id: None,
        }
    }

    fn associator() -> Associator {
        Associator::new(AssociateOptions::default()).unwrap()
    }

    /// Ids per frame, `None` included.
    fn follow(tracks: &mut Associator, clip: &[Vec<Detection>]) -> Vec<Vec<Option<TrackId>>> {
        let frames = clip.iter().enumerate();
        frames
            .map(|(index, detections)| tracks.step(&frame(index as u64), detections))
            .collect()
    }

    #[test]
    fn each_source_starts_at_id_one_and_confirms_after_three_hits() {
        let clip = vec![vec![square("product", 100.0, 100.0)]; 6];
        for _ in 0..2 {
            let ids = follow(&mut associator(), &clip);
            let flat: Vec<_> = ids.iter().map(|row| row[0].map(|id| id.0)).collect();
            assert_eq!(flat, [None, None, Some(1), Some(1), Some(1), Some(1)]);
        }
    }

    #[test]
    fn a_confirmation_hands_over_the_frames_before_it() {
        let mut tracks = associator();
        let clip = vec![vec![square("product", 100.0, 100.0)]; 3];
        follow(&mut tracks, &clip);
        let [TrackEvent::Confirmed { track, earlier, .. }] = tracks.events() else {
            panic!("{:?}", tracks.events());
        };
        assert_eq!(*track, TrackId(1));
        let frames: Vec<u64> = earlier.iter().map(|hit| hit.frame_index).collect();
        assert_eq!(frames, [0, 1]);
    }

    #[test]
    fn a_box_seen_once_never_gets_an_id() {
        let mut clip = vec![vec![]; 60];
        for (index, row) in clip.iter_mut().enumerate().step_by(12) {
            row.push(square("product", 100.0, 100.0));
            assert!(index % 12 == 0);
        }
        let ids = follow(&mut associator(), &clip);
        assert!(ids.iter().flatten().all(Option::is_none));
    }

    #[test]
    fn two_squares_that_cross_keep_their_ids_and_no_two_tracks_share_a_place() {
        let clip: Vec<_> = (0..80)
            .map(|i| {
                let x = 5.0 * i as f32;
                vec![
                    square("product", 60.0 + x, 150.0),
                    square("product", 460.0 - x, 154.0),
                ]
            })
            .collect();
        let ids = follow(&mut associator(), &clip);
        assert_eq!(ids[2], [Some(TrackId(1)), Some(TrackId(2))]);
        assert_eq!(ids[79], ids[2]);
        for (row, detections) in ids.iter().zip(&clip) {
            if row[0].is_some() && row[1].is_some() {
                assert!(detections[0].bbox.iou(&detections[1].bbox) <= 0.8);
                assert_ne!(row[0], row[1]);
            }
        }
    }

    #[test]
    fn tracks_survive_gaps_up_to_the_limit_and_ids_are_never_used_again() {
        let present = |frames: usize| vec![vec![square("product", 100.0, 100.0)]; frames];
        let mut clip = present(4);
        clip.extend(vec![vec![]; 30]);
        clip.extend(present(4));
        clip.extend(vec![vec![]; 31]);
        clip.extend(present(4));
        let mut tracks = associator();
        let mut ended = Vec::new();
        let mut ids = Vec::new();
        for (index, detections) in clip.iter().enumerate() {
            ids.push(
                tracks
                    .step(&frame(index as u64), detections)
                    .pop()
                    .flatten(),
            );
            for event in tracks.events() {
                if let TrackEvent::Ended {
                    track,
                    last_frame_index,
                    ..
                } = event
                {
                    ended.push((track.0, *last_frame_index));
                }
            }
        }
        assert_eq!(ids[34], Some(TrackId(1)));
        assert_eq!(ids[72], Some(TrackId(2)));
        assert_eq!(ended, [(1, 37)]);
        let [TrackEvent::Ended { track, .. }] = tracks.finish()[..] else {
            panic!("one track was alive");
        };
        assert_eq!(track, TrackId(2));
    }

    #[test]
    fn empty_frames_at_the_start_in_the_middle_and_at_the_end_change_no_id() {
        assert!(
            follow(&mut associator(), &vec![vec![]; 50])
                .iter()
                .all(Vec::is_empty)
        );
        let mut clip = vec![vec![square("product", 100.0, 100.0)]; 20];
        for index in [0, 9, 10, 19] {
            clip[index].clear();
        }
        let ids = follow(&mut associator(), &clip);
        let seen: std::collections::BTreeSet<_> = ids.iter().flatten().flatten().collect();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn a_detector_that_runs_on_every_fifth_frame_keeps_the_ids() {
        let mut tracks = associator();
        let mut ids = Vec::new();
        for index in 0..60u64 {
            if index % 5 == 0 {
                let place = 100.0 + index as f32;
                ids.extend(tracks.step(&frame(index), &[square("product", place, 100.0)]));
            } else {
                tracks.skip(&frame(index));
            }
        }
        assert!(ids[2..].iter().all(|id| *id == Some(TrackId(1))), "{ids:?}");
    }

    #[test]
    fn labels_never_share_a_track_even_in_one_place() {
        let both = vec![
            square("bottle", 100.0, 100.0),
            square("price tag", 100.0, 100.0),
        ];
        let mut clip = vec![both.clone(); 5];
        // From here on the bottle is gone and the tag remains.
        clip.extend(vec![vec![both[1].clone()]; 5]);
        let ids = follow(&mut associator(), &clip);
        assert_eq!(ids[4], [Some(TrackId(1)), Some(TrackId(2))]);
        assert_eq!(ids[9], [Some(TrackId(2))]);
    }

    #[test]
    fn of_two_boxes_on_one_pack_the_weaker_is_left_out() {
        let strong = square("product", 100.0, 100.0);
        let weak = Detection {
            score: 0.6,
            ..square("product", 102.0, 101.0)
        };
        let ids = follow(&mut associator(), &vec![vec![weak, strong]; 4]);
        assert_eq!(ids[3], [None, Some(TrackId(1))]);
    }

    #[test]
    fn broken_boxes_and_scores_are_left_out_and_harm_nothing() {
        let mut nan = square("product", f32::NAN, 0.0);
        let flat = Detection {
            bbox: BoxXyxy::new(5.0, 5.0, 5.0, 9.0),
            ..square("product", 0.0, 0.0)
        };
        let unscored = Detection {
            score: f32::NAN,
            ..square("product", 300.0, 100.0)
        };
        nan.score = 1.0;
        let row = vec![nan, flat, unscored, square("product", 100.0, 100.0)];
        let ids = follow(&mut associator(), &vec![row; 4]);
        assert_eq!(ids[3], [None, None, None, Some(TrackId(1))]);
    }

    #[test]
    fn live_tracks_stay_below_their_cap_when_ten_times_as_many_come() {
        let mut tracks = Associator::new(AssociateOptions {
            max_live_tracks: 20,
            ..Default::default()
        })
        .unwrap();
        let mut rng = Seeded::new(4);
        for index in 0..60 {
            let crowd: Vec<_> = (0..200)
                .map(|i| {
                    let label = format!("label {}", i % 40);
                    square(&label, rng.range(0.0, 600.0), rng.range(0.0, 320.0))
                })
                .collect();
            tracks.step(&frame(index), &crowd);
            assert!(tracks.live_tracks() <= 20, "{}", tracks.live_tracks());
            assert!(tracks.labels.len() <= 20);
        }
        // And what is alive is still followed.
        assert!(tracks.live_tracks() > 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_order_of_the_detections_changes_no_id(seed: u64) {
            let mut rng = Seeded::new(seed);
            let places: Vec<(f32, f32)> = (0..12)
                .map(|i| (40.0 + 48.0 * (i % 6) as f32, 40.0 + 90.0 * (i / 6) as f32))
                .collect();
            let (mut plain, mut shuffled) = (associator(), associator());
            for index in 0..12 {
                let mut row: Vec<Detection> = places
                    .iter()
                    .enumerate()
                    .map(|(i, (x, y))| {
                        let label = if i % 3 == 0 { "price tag" } else { "product" };
                        let mut d = square(label, x + rng.range(-3.0, 3.0), y + index as f32);
                        d.score = rng.range(0.3, 1.0);
                        d
                    })
                    .collect();
                let ids = plain.step(&frame(index), &row);
                let mut expected: Vec<_> = row
                    .iter()
                    .zip(&ids)
                    .map(|(d, id)| (<[f32; 4]>::from(d.bbox).map(f32::to_bits), d.label.clone(), *id))
                    .collect();
                for i in (1..row.len()).rev() {
                    row.swap(i, rng.below(i as u32 + 1) as usize);
                }
                let ids = shuffled.step(&frame(index), &row);
                let mut got: Vec<_> = row
                    .iter()
                    .zip(&ids)
                    .map(|(d, id)| (<[f32; 4]>::from(d.bbox).map(f32::to_bits), d.label.clone(), *id))
                    .collect();
                expected.sort();
                got.sort();
                prop_assert_eq!(expected, got);
            }
        }
    }
}
