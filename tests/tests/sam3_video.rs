//! Whole videos against the reference: detector, tracker and planning together.
#![allow(clippy::unwrap_used)]

#[path = "sam3_support/ids.rs"]
mod ids;
#[path = "sam3_support/places.rs"]
mod places;
#[path = "sam3_support/tracker.rs"]
mod tracker_support;
#[path = "sam3_support/whole.rs"]
mod whole;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use candle_core::{DType, Device};
use ids::ids;
use places::{shared, small_config};
use shelfscan_inference_core::{
    FrameDetections, FrameTime, RgbImage, SourceId, TextPrompt, TrackId, VideoFrame,
};
use shelfscan_model_kit::{
    preprocess::{PictureFilter, resize},
    weights::Checkpoint,
};
use shelfscan_sam3::{
    Exemplars, MaskLogits, Result, Sam3, Tokenizer,
    tracker::{
        MaskPropagator, MemoryPrecision, Roster, Slot, TrackedMasks, TrackerSession,
        video::{
            RawDetections, Sam3Video, VideoFeatures, VideoModel, VideoOptions, VideoSession,
            halves_from,
        },
    },
};
use tracker_support::{Stages, frame, in_half};
use whole::whole_checkpoint;

fn model(all: &Path, folder: &str) -> Sam3Video {
    let file = whole_checkpoint(all, folder);
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    let config = small_config();
    let (detector, tracker, _) =
        halves_from(checkpoint, &config, DType::F32, &Device::Cpu).unwrap();
    let tokenizer = Tokenizer::new(config.context_length).unwrap();
    let sam3 = Arc::new(Sam3::new(detector, tokenizer));
    Sam3Video::new(sam3, Arc::new(tracker.unwrap())).unwrap()
}

/// The model with the reference's way of scaling frames, and a record of what was carried on.
#[derive(Clone)]
struct AsReference {
    video: Sam3Video,
    carried: Arc<Mutex<Vec<TrackedMasks>>>,
}

struct Recorder {
    tracker: TrackerSession,
    carried: Arc<Mutex<Vec<TrackedMasks>>>,
}

impl VideoModel for AsReference {
    type Features = VideoFeatures;
    type Tracker = Recorder;

    fn features(&self, picture: &RgbImage) -> Result<VideoFeatures> {
        let detector = self.video.sam3().detector();
        let side = detector.config().image_size as u32;
        let small = resize(picture, side, side, PictureFilter::Bicubic)?;
        let image = detector.image_features(&in_half(&small))?;
        VideoFeatures::new(image, (picture.width(), picture.height()))
    }

    fn detections(
        &self,
        features: &VideoFeatures,
        prompts: &[TextPrompt],
        score_threshold: f32,
    ) -> Result<Vec<RawDetections>> {
        self.video.detections(features, prompts, score_threshold)
    }

    fn like(
        &self,
        features: &VideoFeatures,
        prompt: &TextPrompt,
        examples: &Exemplars,
        score_threshold: f32,
    ) -> Result<RawDetections> {
        self.video.like(features, prompt, examples, score_threshold)
    }

    fn tracker(&self) -> Result<Recorder> {
        Ok(Recorder {
            tracker: self.video.tracker()?,
            carried: self.carried.clone(),
        })
    }

    fn hand_over(
        &self,
        features: &VideoFeatures,
        frame: usize,
        tracker: &mut Recorder,
    ) -> Result<()> {
        self.video.hand_over(features, frame, &mut tracker.tracker)
    }
}

impl MaskPropagator for Recorder {
    fn mask_side(&self) -> usize {
        self.tracker.mask_side()
    }

    fn propagate(&mut self, frame: usize) -> Result<TrackedMasks> {
        let masks = self.tracker.propagate(frame)?;
        self.carried.lock().unwrap().push(TrackedMasks {
            ids: masks.ids.clone(),
            masks: MaskLogits {
                side: masks.masks.side,
                values: masks.masks.values.clone(),
            },
            scores: masks.scores.clone(),
        });
        Ok(masks)
    }

    fn recondition(&mut self, frame: usize, ids: &[TrackId], masks: &MaskLogits) -> Result<()> {
        self.tracker.recondition(frame, ids, masks)
    }

    fn remember(&mut self, frame: usize, masks: &TrackedMasks, area_shrink: f32) -> Result<()> {
        self.tracker.remember(frame, masks, area_shrink)
    }

    fn add(&mut self, frame: usize, ids: &[TrackId], masks: &MaskLogits) -> Result<()> {
        self.tracker.add(frame, ids, masks)
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        self.tracker.remove(ids)
    }

    fn roster(&self) -> &Roster {
        self.tracker.roster()
    }
}

/// A video of the reference: its decisions and its tensors.
struct Told {
    json: serde_json::Value,
    stages: Stages,
    frames: Vec<RgbImage>,
}

impl Told {
    fn open(all: &Path, name: &str) -> Self {
        let text = std::fs::read_to_string(all.join(format!("{name}.json"))).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (file, key) = json["frames"].as_str().unwrap().split_once(':').unwrap();
        let (shape, values) = Stages::open(&all.join(file)).get(key);
        let count = shape[0];
        let video = (shape, values);
        Self {
            json,
            stages: Stages::open(&all.join(format!("{name}.safetensors"))),
            frames: (0..count).map(|t| frame(&video, t)).collect(),
        }
    }

    fn steps(&self) -> &[serde_json::Value] {
        self.json["steps"].as_array().unwrap()
    }

    fn outputs(&self) -> &[serde_json::Value] {
        self.json["outputs"].as_array().unwrap()
    }
}

fn numbers(value: &serde_json::Value) -> Vec<i64> {
    let all = value.as_array().unwrap();
    all.iter().map(|v| v.as_i64().unwrap()).collect()
}

fn video_frame(image: &RgbImage, index: usize) -> VideoFrame {
    VideoFrame {
        image: image.clone(),
        index: index as u64,
        time: FrameTime::exact(index as f64 / 25.0),
        source: SourceId::new("reference"),
    }
}

fn red_box() -> Vec<TextPrompt> {
    vec![TextPrompt::new("red box").unwrap()]
}

/// Options of a reference video: its defaults, or the wider ones of the random weights.
fn options(random: bool) -> VideoOptions {
    let reference = VideoOptions::reference();
    if !random {
        return reference;
    }
    VideoOptions {
        confirm_consecutive: 1,
        border_margin: None,
        duplicate_overlap: 0.6,
        birth_score: 0.5,
        ..reference
    }
}

/// Bars each gap; masks that were given are stored as logits of 1024, whose last digit counts more.
fn near(at: &str, got: &[f32], want: &[f32], bar: f32) {
    assert_eq!(got.len(), want.len(), "{at}: number of values");
    for (got, want) in got.iter().zip(want) {
        let gap = (got - want).abs();
        assert!(gap <= bar + 1e-6 * want.abs(), "{at}: {got} for {want}");
    }
}

/// Runs a video and compares carried masks, states, and what the user receives.
fn compare_video(all: &Path, name: &str) {
    let told = Told::open(all, name);
    let (folder, file) = name.split_once('/').unwrap();
    let exact = file.ends_with("_f32mem");
    let precision = if exact {
        MemoryPrecision::Full
    } else {
        MemoryPrecision::Bf16
    };
    let carried = Arc::new(Mutex::new(Vec::new()));
    let video = model(all, folder)
        .with_precision(precision)
        .with_known_length(told.frames.len());
    let as_reference = AsReference {
        video,
        carried: carried.clone(),
    };
    let options = options(file.contains("random"));
    let mut session = VideoSession::new(as_reference, &red_box(), &options).unwrap();
    let mut out: Vec<FrameDetections> = Vec::new();
    for (t, image) in told.frames.iter().enumerate() {
        out.extend(session.push(&video_frame(image, t)).unwrap());
        let number = |slot: &Slot| match slot {
            Slot::Free => -1,
            Slot::Removed => -1116,
            Slot::Object(i) => *i as i64,
        };
        let states = session.trackers().next().unwrap().roster().states();
        let ids: Vec<Vec<i64>> = states
            .iter()
            .map(|s| s.ids.iter().map(|id| id.0 as i64 - 1).collect())
            .collect();
        let buckets: Vec<Vec<Vec<i64>>> = states
            .iter()
            .map(|s| {
                s.slots
                    .buckets()
                    .iter()
                    .map(|b| b.iter().map(number).collect())
                    .collect()
            })
            .collect();
        let step = &told.steps()[t + 1];
        assert_eq!(
            serde_json::json!(ids),
            step["state_obj_ids"],
            "{name}, frame {t}"
        );
        assert_eq!(
            serde_json::json!(buckets),
            step["buckets"],
            "{name}, frame {t}"
        );
    }
    out.extend(session.finish());

    let carried = carried.lock().unwrap();
    let mut carried = carried.iter();
    for (i, step) in told.steps().iter().enumerate() {
        let ids = numbers(&step["trk_obj_ids"]);
        if ids.is_empty() {
            continue;
        }
        let masks = carried.next().unwrap();
        let ours: Vec<i64> = masks.ids.iter().map(|id| id.0 as i64 - 1).collect();
        assert_eq!(ours, ids, "{name}, step {i}");
        let bar = if exact { 3e-4 } else { 5e-2 };
        let key = |part: &str| format!("step{i}.{part}");
        told.stages
            .check_values(&key("trk_obj_scores"), &masks.scores, bar);
        let want = told.stages.values(&key("trk_masks_in"));
        let at = format!("{name} {}", key("trk_masks_in"));
        near(&at, &masks.masks.values, &want, bar);
    }
    assert!(carried.next().is_none());

    assert_eq!(out.len(), told.outputs().len());
    for (t, (found, want)) in out.iter().zip(told.outputs()).enumerate() {
        compare_frame(&told, name, t, found, want);
    }
}

fn compare_frame(
    told: &Told,
    name: &str,
    t: usize,
    found: &FrameDetections,
    want: &serde_json::Value,
) {
    let at = format!("{name}, frame {t}");
    let mut found = found.detections.clone();
    found.sort_by_key(|d| d.track_id);
    let ids: Vec<i64> = found
        .iter()
        .map(|d| d.track_id.unwrap().0 as i64 - 1)
        .collect();
    assert_eq!(ids, numbers(&want["obj_ids"]), "{at}");
    let (shape, bits) = told.stages.bits(&format!("out{t}.masks_packed"));
    let boxes = told.stages.values(&format!("out{t}.boxes_xywh"));
    let probs = told.stages.values(&format!("out{t}.probs"));
    let (w, h) = (told.frames[t].width(), told.frames[t].height());
    let padded = shape.last().copied().unwrap();
    for (i, detection) in found.iter().enumerate() {
        assert!(
            (detection.score - probs[i]).abs() < 1e-4,
            "{at}, object {}",
            ids[i]
        );
        let map = detection.mask.as_ref().unwrap().to_binary();
        let plane = &bits[i * padded * h as usize..][..padded * h as usize];
        let rows = plane.chunks_exact(padded).zip(map.chunks_exact(w as usize));
        let wrong: usize = rows
            .map(|(want, got)| {
                got.iter()
                    .zip(want)
                    .filter(|(g, w)| (**g != 0) != **w)
                    .count()
            })
            .sum();
        assert!(
            wrong * 1000 <= map.len(),
            "{at}, object {}: {wrong} pixels",
            ids[i]
        );
        let [x, y, bw, bh] = *boxes[i * 4..].first_chunk::<4>().unwrap();
        // The reference's far edges are the last pixel, ours the one after it.
        let (w, h) = (w as f32, h as f32);
        let want = [x * w, y * h, (x + bw) * w + 1.0, (y + bh) * h + 1.0];
        let got: [f32; 4] = detection.bbox.into();
        for (got, want) in got.iter().zip(want) {
            assert!(
                (got - want).abs() < 1.01,
                "{at}, object {}: {got} for {want}",
                ids[i]
            );
        }
    }
}

fn fixtures() -> Option<PathBuf> {
    shared("sam3/fixtures")
}

#[test]
fn videos_of_trained_weights_come_out_as_in_the_reference() {
    let Some(all) = fixtures() else { return };
    for name in ["video_main", "video_bucket", "video_leave"] {
        compare_video(&all, &format!("fit/{name}_f32mem"));
        compare_video(&all, &format!("fit/{name}"));
    }
}

#[test]
fn videos_of_random_weights_come_out_as_in_the_reference() {
    let Some(all) = fixtures() else { return };
    for seed in ["seed0", "seed1"] {
        compare_video(&all, &format!("{seed}/video_random_f32mem"));
        compare_video(&all, &format!("{seed}/video_random"));
    }
}

#[test]
fn a_still_frame_repeated_sixty_times_keeps_ids_and_boxes_with_the_model() {
    let Some(all) = fixtures() else { return };
    let told = Told::open(&all, "fit/video_main");
    let video = model(&all, "fit");
    let mut session = VideoSession::new(video, &red_box(), &VideoOptions::default()).unwrap();
    let mut out = Vec::new();
    for t in 0..60 {
        out.extend(session.push(&video_frame(&told.frames[0], t)).unwrap());
    }
    out.extend(session.finish());
    let first = &out[20].detections;
    assert_eq!(first.len(), 4);
    for (t, frame) in out.iter().enumerate() {
        assert_eq!(frame.detections.len(), first.len(), "frame {t}");
        for (now, then) in frame.detections.iter().zip(first) {
            assert_eq!(now.track_id, then.track_id, "frame {t}");
            assert!(
                now.bbox.iou(&then.bbox) > 0.8,
                "frame {t}: {:?} {:?}",
                now.bbox,
                then.bbox
            );
        }
    }
}

#[test]
fn black_frames_before_between_and_after_cost_no_id_with_the_model() {
    let Some(all) = fixtures() else { return };
    let told = Told::open(&all, "fit/video_main");
    let (w, h) = (told.frames[0].width(), told.frames[0].height());
    let black = RgbImage::new(w, h, vec![0; (w * h * 3) as usize]).unwrap();
    let mut frames = vec![black.clone(); 2];
    frames.extend_from_slice(&told.frames[..6]);
    frames.push(black.clone());
    frames.extend_from_slice(&told.frames[6..12]);
    frames.push(black);
    let video = model(&all, "fit");
    let mut session = VideoSession::new(video, &red_box(), &VideoOptions::default()).unwrap();
    let mut out = Vec::new();
    for (t, image) in frames.iter().enumerate() {
        out.extend(session.push(&video_frame(image, t)).unwrap());
    }
    out.extend(session.finish());
    assert_eq!(out.len(), frames.len());
    let ids = |t: usize| ids(&out[t]);
    assert!(ids(0).is_empty() && ids(1).is_empty());
    assert_eq!(ids(2), [1, 2, 3, 4]);
    for t in (2..8).chain(10..15) {
        assert_eq!(ids(t), [1, 2, 3, 4], "frame {t}");
    }
}

/// What comes of a box in later frames is shown with drawn scenes: these weights were trained on four
/// objects at once and mix up fewer.
#[test]
fn objects_are_born_where_boxes_mark_them_with_the_model() {
    let Some(all) = fixtures() else { return };
    let told = Told::open(&all, "fit/video_main");
    let frames = told.frames.iter().take(10).enumerate();
    let frames: Vec<VideoFrame> = frames.map(|(t, image)| video_frame(image, t)).collect();
    let run = |mark: Option<&[[f32; 4]]>| -> Vec<FrameDetections> {
        let model = model(&all, "fit");
        let mut session = VideoSession::without_prompt(model, &options(false)).unwrap();
        match mark {
            None => session.add_prompt(&red_box()[0]).unwrap(),
            Some(boxes) => session.follow_marked(&red_box()[0], boxes).unwrap(),
        }
        let pushed = frames.iter().flat_map(|f| session.push(f).unwrap());
        let mut out: Vec<_> = pushed.collect();
        out.extend(session.finish());
        out
    };
    let by_phrase = run(None);
    let first = &frames[0].image;
    let (w, h) = (first.width() as f32, first.height() as f32);
    let found = by_phrase[0].detections.iter().map(|d| d.bbox);
    let marks: Vec<[f32; 4]> = found
        .map(|b| {
            let (cx, cy) = (b.x0.midpoint(b.x1), b.y0.midpoint(b.y1));
            [cx / w, cy / h, b.width() / w, b.height() / h]
        })
        .collect();
    assert_eq!(marks.len(), 4);
    let marked = run(Some(&marks));
    // They were not trained on examples either and miss one of the four.
    assert!(marked.iter().all(|frame| ids(frame) == ids(&marked[0])));
    assert_eq!(marked[0].detections.len(), 3);
    for own in &marked[0].detections {
        let found = by_phrase[0].detections.iter();
        let best = found.map(|d| own.bbox.iou(&d.bbox)).fold(0f32, f32::max);
        assert!(best > 0.9, "{best}");
    }
}
