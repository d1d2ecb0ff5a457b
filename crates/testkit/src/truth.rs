//! Known truth of a clip: which object is where in each frame.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use serde::Deserialize;
use shelfscan_inference_core::{BoxXyxy, Detection, FrameDetections, Mask, TrackId};

use crate::seeded::Seeded;

/// One object as it really is in one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct TruthObject {
    /// The physical object, the same in every frame of the clip, also after it left the view.
    pub track_id: TrackId,
    /// The category, such as `product`.
    pub label: Arc<str>,
    /// The product; empty when it is not known.
    pub sku: Arc<str>,
    /// Bounds of the part in view, in source pixels.
    pub bbox: BoxXyxy,
    /// Share of the object's area in view, 0 to 1.
    pub visible_fraction: f32,
    /// True when the camera's motion smears this frame.
    pub blurred: bool,
    /// The exact shape in view, where it was asked for.
    pub mask: Option<Mask>,
}

/// The objects of one frame, by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TruthFrame {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// The objects in view.
    pub objects: Vec<TruthObject>,
}

/// The truth of a whole clip, a row for every frame from 0 on, empty ones included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// The frames in order.
    pub frames: Vec<TruthFrame>,
}

#[derive(Deserialize)]
struct TracksRow {
    frame: u64,
    track_id: u64,
    category: String,
    sku: String,
    x: f32,
    y: f32,
    w: f32,
    h: f32,
    visible_fraction: f32,
    motion_blurred: u8,
}

impl Truth {
    /// Reads `frame,track_id,category,sku,x,y,w,h,visible_fraction,motion_blurred` rows.
    ///
    /// # Errors
    /// The file cannot be opened, or a row is not of that shape.
    pub fn read_tracks_csv(path: &Path) -> io::Result<Self> {
        let mut by_frame: BTreeMap<u64, Vec<TruthObject>> = BTreeMap::new();
        for row in csv::Reader::from_path(path)?.deserialize() {
            let row: TracksRow = row?;
            by_frame.entry(row.frame).or_default().push(TruthObject {
                track_id: TrackId(row.track_id),
                label: row.category.into(),
                sku: row.sku.into(),
                bbox: BoxXyxy::from_xywh(row.x, row.y, row.w, row.h),
                visible_fraction: row.visible_fraction,
                blurred: row.motion_blurred != 0,
                mask: None,
            });
        }
        let count = by_frame.last_key_value().map_or(0, |(&last, _)| last + 1);
        let frames = (0..count)
            .map(|frame_index| TruthFrame {
                frame_index,
                objects: by_frame.remove(&frame_index).unwrap_or_default(),
            })
            .collect();
        Ok(Self { frames })
    }

    /// Only the objects that `keep` accepts; every frame stays.
    #[must_use]
    pub fn only(&self, mut keep: impl FnMut(&TruthObject) -> bool) -> Self {
        let frames = self
            .frames
            .iter()
            .map(|frame| TruthFrame {
                frame_index: frame.frame_index,
                objects: frame.objects.iter().filter(|&o| keep(o)).cloned().collect(),
            })
            .collect();
        Self { frames }
    }

    /// Renames an object that was out of view for more than `max_gap_frames`: each visit to the
    /// view becomes an id of its own, as a tracker without memory of places must see it.
    #[must_use]
    pub fn split_visits(&self, max_gap_frames: u64) -> Self {
        let mut last: BTreeMap<TrackId, (u64, TrackId)> = BTreeMap::new();
        let mut next = 1 + self.ids().last().map_or(0, |id| id.0);
        let mut split = self.clone();
        for frame in &mut split.frames {
            for object in &mut frame.objects {
                let seen = last
                    .entry(object.track_id)
                    .or_insert((frame.frame_index, object.track_id));
                if frame.frame_index - seen.0 > max_gap_frames + 1 {
                    seen.1 = TrackId(next);
                    next += 1;
                }
                seen.0 = frame.frame_index;
                object.track_id = seen.1;
            }
        }
        split
    }

    /// All ids of the clip, in order.
    pub fn ids(&self) -> BTreeSet<TrackId> {
        self.frames
            .iter()
            .flat_map(|frame| frame.objects.iter().map(|o| o.track_id))
            .collect()
    }

    /// The objects that count as facings: `label` objects seen in at least `min_frames` frames
    /// with at least `min_visible` of their area in view.
    pub fn facings(&self, label: &str, min_visible: f32, min_frames: usize) -> BTreeSet<TrackId> {
        let mut seen: BTreeMap<TrackId, usize> = BTreeMap::new();
        for object in self.frames.iter().flat_map(|frame| &frame.objects) {
            if &*object.label == label && object.visible_fraction >= min_visible {
                *seen.entry(object.track_id).or_default() += 1;
            }
        }
        seen.into_iter()
            .filter(|(_, frames)| *frames >= min_frames)
            .map(|(id, _)| id)
            .collect()
    }

    /// What a detector that makes no mistake would find: no track ids, score 0.9, the label as the
    /// phrase.
    pub fn detections(&self) -> Vec<FrameDetections> {
        let detection = |object: &TruthObject| Detection {
            label: object.label.clone(),
            prompt: object.label.clone(),
            score: 0.9,
            bbox: object.bbox,
            mask: object.mask.clone(),
            track_id: None,
        };
        self.frames
            .iter()
            .map(|frame| FrameDetections {
                frame_index: frame.frame_index,
                detections: frame.objects.iter().map(detection).collect(),
                notices: Vec::new(),
            })
            .collect()
    }

    /// Ids and boxes of every frame, for [`crate::metrics::score_tracks`].
    pub fn id_boxes(&self) -> Vec<Vec<(u64, BoxXyxy)>> {
        self.frames
            .iter()
            .map(|frame| {
                let pairs = frame.objects.iter();
                pairs.map(|o| (o.track_id.0, o.bbox)).collect()
            })
            .collect()
    }
}

/// Mistakes of a detector, drawn from a seed.
#[derive(Clone, Debug)]
pub struct DetectorNoise {
    /// Decides every draw.
    pub seed: u64,
    /// Deviation of each box side, as a share of the box's own width or height.
    pub jitter_share: f32,
    /// Probability that an object is not found in a frame.
    pub miss_rate: f32,
    /// Mean number of boxes a frame that show nothing.
    pub false_positives_per_frame: f32,
}

impl DetectorNoise {
    /// Adds the mistakes to one frame of `width_px` x `height_px`; masks are dropped, because they
    /// would betray the exact box. Scores: 0.5 to 1 for objects, 0.3 to 0.7 for nothing.
    pub fn applied(
        &self,
        frame: &FrameDetections,
        width_px: u32,
        height_px: u32,
    ) -> FrameDetections {
        let mut rng = Seeded::of(&[0x6e6f_6973, self.seed, frame.frame_index]);
        let mut detections = Vec::with_capacity(frame.detections.len());
        for exact in &frame.detections {
            // All draws are made for each object, so that one rate does not move the others.
            let missed = rng.chance(self.miss_rate);
            let score = (0.85 + 0.1 * rng.normal()).clamp(0.5, 1.0);
            let (w, h) = (exact.bbox.width(), exact.bbox.height());
            let mut side = |at: f32, size: f32| at + rng.normal() * self.jitter_share * size;
            let bbox = BoxXyxy::new(
                side(exact.bbox.x0, w),
                side(exact.bbox.y0, h),
                side(exact.bbox.x1, w),
                side(exact.bbox.y1, h),
            )
            .clamped(width_px, height_px);
            if !missed && bbox.is_valid() {
                detections.push(Detection {
                    score,
                    bbox,
                    mask: None,
                    ..exact.clone()
                });
            }
        }
        let label: Arc<str> = frame
            .detections
            .first()
            .map_or_else(|| "product".into(), |d| d.label.clone());
        let (width, height) = (width_px as f32, height_px as f32);
        let whole = self.false_positives_per_frame.floor();
        let extra = rng.chance(self.false_positives_per_frame - whole);
        for _ in 0..whole as u32 + u32::from(extra) {
            let (w, h) = (rng.range(0.04, 0.2) * width, rng.range(0.06, 0.3) * height);
            detections.push(Detection {
                label: label.clone(),
                prompt: label.clone(),
                score: rng.range(0.3, 0.7),
                bbox: BoxXyxy::from_xywh(
                    rng.range(0.0, width - w),
                    rng.range(0.0, height - h),
                    w,
                    h,
                ),
                mask: None,
                track_id: None,
            });
        }
        detections.sort_by(|a, b| b.score.total_cmp(&a.score));
        FrameDetections {
            frame_index: frame.frame_index,
            detections,
            notices: frame.notices.clone(),
        }
    }
}

/// Writes one JSON line per frame, the form in which recorded detections are replayed.
///
/// # Errors
/// The file cannot be written.
pub fn write_detections(path: &Path, frames: &[FrameDetections]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for frame in frames {
        serde_json::to_writer(&mut out, frame)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Reads what [`write_detections`] wrote.
///
/// # Errors
/// The file cannot be read, or a line is not a frame of detections.
pub fn read_detections(path: &Path) -> io::Result<Vec<FrameDetections>> {
    std::fs::read_to_string(path)?
        .lines()
        .map(|line| serde_json::from_str(line).map_err(io::Error::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: u64, visible_fraction: f32) -> TruthObject {
        TruthObject {
            track_id: TrackId(id),
            label: "product".into(),
            sku: "a".into(),
            bbox: BoxXyxy::from_xywh(10.0 * id as f32, 5.0, 8.0, 8.0),
            visible_fraction,
            blurred: false,
            mask: None,
        }
    }

    fn truth(rows: &[&[(u64, f32)]]) -> Truth {
        let frame = |(index, objects): (usize, &&[(u64, f32)])| TruthFrame {
            frame_index: index as u64,
            objects: objects.iter().map(|&(id, v)| object(id, v)).collect(),
        };
        Truth {
            frames: rows.iter().enumerate().map(frame).collect(),
        }
    }

    #[test]
    fn a_tracks_file_gives_every_frame_and_a_bad_row_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tracks.csv");
        let head = "frame,track_id,category,sku,x,y,w,h,visible_fraction,motion_blurred\n";
        let rows = "0,4,product,\"Cola, 1L\",1.5,2,30,40,0.5,0\n2,4,product,,1,2,30,40,1.0,1\n";
        std::fs::write(&path, format!("{head}{rows}")).unwrap();
        let truth = Truth::read_tracks_csv(&path).unwrap();
        assert_eq!(truth.frames.len(), 3);
        assert!(truth.frames[1].objects.is_empty());
        let first = &truth.frames[0].objects[0];
        assert_eq!((&*first.sku, first.bbox.x1), ("Cola, 1L", 31.5));
        assert!(truth.frames[2].objects[0].blurred);
        std::fs::write(&path, format!("{head}0,x,product,,1,2,3,4,1,0\n")).unwrap();
        assert!(Truth::read_tracks_csv(&path).is_err());
    }

    #[test]
    fn an_object_that_left_for_long_is_another_visit_but_a_short_gap_is_not() {
        let truth = truth(&[&[(1, 1.0)], &[], &[(1, 1.0)], &[], &[], &[(1, 1.0)]]);
        let ids: Vec<u64> = truth
            .split_visits(1)
            .frames
            .iter()
            .flat_map(|f| f.objects.iter().map(|o| o.track_id.0))
            .collect();
        assert_eq!(ids, [1, 1, 2]);
    }

    #[test]
    fn a_facing_needs_enough_frames_with_enough_of_it_in_view() {
        let truth = truth(&[&[(1, 0.9), (2, 0.1)], &[(1, 0.6), (2, 0.9)]]);
        assert_eq!(truth.facings("product", 0.5, 2).len(), 1);
        assert_eq!(truth.facings("product", 0.5, 1).len(), 2);
        assert!(truth.facings("tag", 0.0, 1).is_empty());
    }

    #[test]
    fn detections_survive_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("detections.jsonl");
        let frames = truth(&[&[(1, 1.0)], &[]]).detections();
        write_detections(&path, &frames).unwrap();
        assert_eq!(read_detections(&path).unwrap(), frames);
    }

    #[test]
    fn noise_is_decided_by_its_seed_and_has_the_stated_rates() {
        let noise = DetectorNoise {
            seed: 3,
            jitter_share: 0.05,
            miss_rate: 0.2,
            false_positives_per_frame: 0.5,
        };
        let rows = vec![&[(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0)][..]; 400];
        let frames = truth(&rows).detections();
        let noisy: Vec<_> = frames.iter().map(|f| noise.applied(f, 100, 100)).collect();
        assert_eq!(noisy[7], noise.applied(&frames[7], 100, 100));
        let found: usize = noisy.iter().map(|f| f.detections.len()).sum();
        // 2,000 objects less a fifth, and 200 boxes of nothing.
        assert!((1650..1950).contains(&found), "{found}");
        assert!(noisy.iter().all(|f| {
            f.detections.is_sorted_by(|a, b| a.score >= b.score)
                && f.detections.iter().all(|d| d.bbox.is_valid())
        }));
    }
}
