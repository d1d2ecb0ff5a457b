//! Whole pans against their truth: the clip of a real shelf where it is there, the drawn shelf
//! everywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

use shelfscan_inference_core::{
    FrameDetections, FrameTime, RgbImage, SourceId, TrackId, VideoFrame,
};
use shelfscan_testkit::{
    metrics::{IdBoxes, score_tracks},
    shared,
    shelf::{Shelf, ShelfClip, ShelfPlan, Viewpoint},
    truth::{DetectorNoise, Truth},
};

use super::{AssociateOptions, Associator, FacingMerger, FacingOptions, SeenTrack, TrackEvent};

/// What the tracker made of a clip.
struct Followed {
    /// Confirmed ids and boxes per frame, the frames before the confirmation included.
    tracks: Vec<IdBoxes>,
    /// The same under the ids of the facings.
    facings: Vec<IdBoxes>,
    /// Facings by label.
    labels: BTreeMap<u64, String>,
}

impl Followed {
    fn count(&self, label: &str) -> usize {
        self.labels.values().filter(|l| *l == label).count()
    }
}

fn follow(
    frames: impl Iterator<Item = VideoFrame>,
    detections: &[FrameDetections],
    options: AssociateOptions,
) -> Followed {
    let mut associator = Associator::new(options).unwrap();
    let mut merger = FacingMerger::new(FacingOptions::default());
    let mut tracks: Vec<IdBoxes> = Vec::new();
    let mut labels = BTreeMap::new();
    for (frame, found) in frames.zip(detections) {
        let ids = associator.step(&frame, &found.detections);
        for event in associator.events() {
            if let TrackEvent::Confirmed {
                track,
                label,
                earlier,
            } = event
            {
                labels.insert(*track, label.to_string());
                for hit in earlier {
                    tracks[hit.frame_index as usize].push((track.0, hit.bbox));
                }
            }
        }
        let seen: Vec<SeenTrack> = ids
            .iter()
            .zip(&found.detections)
            .filter_map(|(id, detection)| {
                Some(SeenTrack {
                    track: (*id)?,
                    label: detection.label.clone(),
                    bbox: detection.bbox,
                })
            })
            .collect();
        let size_px = (frame.image.width(), frame.image.height());
        merger.observe(&associator.camera_shift(), size_px, &seen);
        tracks.push(seen.iter().map(|s| (s.track.0, s.bbox)).collect());
    }
    merger.settle();
    let facing = |id: u64| merger.facing_of(TrackId(id)).0;
    let renamed = |row: &IdBoxes| row.iter().map(|&(id, b)| (facing(id), b)).collect();
    Followed {
        facings: tracks.iter().map(renamed).collect(),
        labels: labels
            .into_iter()
            .map(|(track, label)| (facing(track.0), label))
            .collect(),
        tracks,
    }
}

/// All frames of a clip as ffmpeg decodes it; `None` without ffmpeg.
fn decode(path: &Path, width: u32, height: u32) -> Option<Vec<VideoFrame>> {
    let mut child = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-i"])
        .arg(path)
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"])
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut out = child.stdout.take()?;
    let mut frames = Vec::new();
    let mut pixels = vec![0; (width * height * 3) as usize];
    while out.read_exact(&mut pixels).is_ok() {
        let index = frames.len() as u64;
        frames.push(VideoFrame {
            image: RgbImage::new(width, height, pixels.clone()).unwrap(),
            index,
            time: FrameTime::exact(index as f64 / 30.0),
            source: SourceId::new("pan"),
        });
    }
    child.wait().unwrap();
    Some(frames)
}

/// The real pan and its truth, objects with at least a tenth in view. A facing of the truth is an
/// object that has at least a tenth in view in three frames or more.
fn real_pan() -> Option<(Vec<VideoFrame>, Truth)> {
    let clip = shared::file("data/videos/derived_pan_cola_1280x720.mp4");
    let rows = shared::file("data/videos/derived_pan_cola_1280x720.tracks.csv");
    let (Some(clip), Some(rows)) = (clip, rows) else {
        shared::skip_line("the pan over a real shelf, its clip is not there");
        return None;
    };
    let Some(frames) = decode(&clip, 1280, 720) else {
        shared::skip_line("the pan over a real shelf, ffmpeg is not there");
        return None;
    };
    let truth = Truth::read_tracks_csv(&rows).unwrap();
    assert_eq!(frames.len(), truth.frames.len());
    Some((frames, truth.only(|o| o.visible_fraction >= 0.1)))
}

#[test]
fn a_pan_over_a_real_shelf_keeps_its_ids_and_counts_each_facing_once() {
    let Some((frames, truth)) = real_pan() else {
        return;
    };
    let exact = follow(
        frames.iter().cloned(),
        &truth.detections(),
        AssociateOptions::default(),
    );
    // A track ends when its object is out of view for longer than a gap may last, so the truth of
    // tracks has an id per visit. The truth of facings has one per object.
    let visits = score_tracks(&truth.split_visits(30).id_boxes(), &exact.tracks, 0.5);
    assert!(visits.idf1() >= 0.99, "{visits:?}");
    assert_eq!(visits.id_switches, 0, "{visits:?}");
    let objects = score_tracks(&truth.id_boxes(), &exact.facings, 0.5);
    assert!(objects.idf1() >= 0.99, "{objects:?}");
    for label in ["product", "price tag"] {
        let facings = truth.facings(label, 0.1, 3).len();
        let off = exact.count(label).abs_diff(facings);
        assert!(
            off * 50 <= facings,
            "{label}: {} of {facings}",
            exact.count(label)
        );
    }
}

#[test]
fn a_careless_detector_on_a_real_pan_costs_little_more_than_its_own_misses() {
    let Some((frames, truth)) = real_pan() else {
        return;
    };
    let noise = DetectorNoise {
        seed: 5,
        jitter_share: 0.03,
        miss_rate: 0.05,
        false_positives_per_frame: 0.3,
    };
    let exact = truth.detections();
    let noisy: Vec<_> = exact.iter().map(|f| noise.applied(f, 1280, 720)).collect();
    let found = follow(frames.into_iter(), &noisy, AssociateOptions::default());
    let objects = score_tracks(&truth.id_boxes(), &found.facings, 0.5);
    // With a twentieth of the boxes missing, perfect ids would reach 0.974.
    assert!(objects.idf1() >= 0.95, "{objects:?}");
    let facings = truth.facings("product", 0.1, 3).len();
    let off = found.count("product").abs_diff(facings);
    assert!(off <= 2, "{} of {facings}", found.count("product"));
}

/// Without the camera's motion the same tracker loses the packs, which is why it is followed.
#[test]
fn following_the_camera_is_what_keeps_the_ids() {
    let shelf = Shelf::draw(&ShelfPlan::default());
    let clip = ShelfClip::forth_and_back(shelf.into(), 40, 480, 420).shaken(2.0);
    let truth = clip.truth().only(|o| o.visible_fraction >= 0.1);
    let score = |motion_compensation| {
        let options = AssociateOptions {
            motion_compensation,
            ..Default::default()
        };
        let found = follow(clip.frames(), &truth.detections(), options);
        score_tracks(&truth.id_boxes(), &found.facings, 0.5).idf1()
    };
    let (with, without) = (score(true), score(false));
    assert!(with > 0.95 && without < 0.9, "{with} {without}");
}

#[test]
fn a_pan_over_24_drawn_packs_forth_and_back_gives_24_facings_with_their_ranges() {
    // The second time with an open shutter, which smears every frame of the pan.
    for (seed, exposure) in [(1, 0.0), (2, 0.5)] {
        let shelf = Shelf::draw(&ShelfPlan {
            seed,
            ..ShelfPlan::default()
        });
        let mut clip = ShelfClip::forth_and_back(shelf.into(), 90, 480, 420).shaken(1.5);
        clip.exposure = exposure;
        let truth = clip.truth().only(|o| o.visible_fraction >= 0.1);
        assert_eq!(truth.facings("product", 0.1, 3).len(), 24);
        let found = follow(
            clip.frames(),
            &truth.detections(),
            AssociateOptions::default(),
        );
        assert_eq!(found.count("product"), 24, "seed {seed}");
        let scores = score_tracks(&truth.id_boxes(), &found.facings, 0.5);
        assert!(scores.idf1() > 0.99, "seed {seed}: {scores:?}");
        let ranges = |rows: &[IdBoxes]| -> BTreeSet<(usize, usize, usize)> {
            let mut of_id: BTreeMap<u64, (usize, usize, usize)> = BTreeMap::new();
            for (index, row) in rows.iter().enumerate() {
                for (id, _) in row {
                    let range = of_id.entry(*id).or_insert((index, index, 0));
                    range.1 = index;
                    range.2 += 1;
                }
            }
            of_id.into_values().collect()
        };
        assert_eq!(
            ranges(&found.facings),
            ranges(&truth.id_boxes()),
            "seed {seed}"
        );
    }
}

#[test]
fn equal_input_gives_equal_tracks_and_facings() {
    let shelf = Shelf::draw(&ShelfPlan::default());
    let clip = ShelfClip::forth_and_back(shelf.into(), 30, 320, 240).shaken(2.0);
    let noise = DetectorNoise {
        seed: 9,
        jitter_share: 0.04,
        miss_rate: 0.1,
        false_positives_per_frame: 0.5,
    };
    let exact = clip.truth().detections();
    let noisy: Vec<_> = exact.iter().map(|f| noise.applied(f, 320, 240)).collect();
    let run = || follow(clip.frames(), &noisy, AssociateOptions::default());
    let (first, second) = (run(), run());
    assert_eq!(first.tracks, second.tracks);
    assert_eq!(first.facings, second.facings);
}

#[test]
fn phrases_asked_for_on_different_frames_give_tracks_from_their_own_frame_on() {
    let shelf = Shelf::draw(&ShelfPlan::default());
    let clip = ShelfClip::new(
        shelf.into(),
        vec![Viewpoint::at(260.0, 210.0); 14],
        480,
        420,
    );
    let truth = clip.truth().only(|o| o.track_id.0 <= 3);
    let mut detections = truth.detections();
    for (frame, exact) in detections.iter_mut().zip(&truth.frames) {
        for (detection, object) in frame.detections.iter_mut().zip(&exact.objects) {
            detection.label = format!("phrase {}", object.track_id).into();
        }
        let asked = |label: &str| match label {
            "phrase 1" => 0,
            "phrase 2" => 5,
            _ => 9,
        };
        let index = frame.frame_index;
        frame.detections.retain(|d| index >= asked(&d.label));
    }
    let found = follow(clip.frames(), &detections, AssociateOptions::default());
    let first = |id: u64| {
        let has = |row: &IdBoxes| row.iter().any(|t| t.0 == id);
        found.tracks.iter().position(has)
    };
    let firsts = [first(1), first(2), first(3), first(4)];
    assert_eq!(firsts, [Some(0), Some(5), Some(9), None]);
}
