//! The planning of a video against the reference's scripted runs, and through the session with
//! drawn scenes.
#![allow(clippy::unwrap_used)]

#[path = "sam3_support/scene.rs"]
mod scene;

use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering};

use scene::{Scene, Thing, numbered_frame, rectangle};
use serde::Deserialize;
use shelfscan_inference_core::{Detection, FrameDetections, TextPrompt, TrackId};
use shelfscan_sam3::{
    MaskLogits, Result,
    suppress::Chain,
    tracker::{
        MaskPropagator, Roster, Slot, TrackedMasks,
        video::{
            Candidates, ComposedObject, Composer, Planner, RawDetections, TrackIds, VideoOptions,
            VideoSession,
        },
    },
};

// ---- the reference's scripted runs ----

#[derive(Deserialize)]
struct Case {
    width: u32,
    height: u32,
    side: usize,
    slots: usize,
    max_objects: usize,
    steps: Vec<Step>,
    outputs: Vec<Output>,
}

type Rectangle = Option<[usize; 4]>;

#[derive(Clone, Deserialize)]
struct Step {
    frame: usize,
    detections: Detections,
    tracked: Tracked,
    kept_queries: Vec<usize>,
    births: Vec<(usize, u64)>,
    left_out: usize,
    matches: Vec<(usize, usize)>,
    unmatched: Vec<u64>,
    removed: Vec<u64>,
    reconditioned: Vec<u64>,
    changed_rows: Vec<usize>,
    unmatched_counts: Vec<u32>,
    last_hidden: Vec<i64>,
    ids_after: Vec<u64>,
    confirmation_status: Vec<u8>,
    confirmation_count: Vec<u32>,
    state_ids: Vec<Vec<u64>>,
    buckets: Vec<Vec<Vec<i64>>>,
}

#[derive(Clone, Deserialize)]
struct Detections {
    queries: Vec<usize>,
    scores: Vec<f32>,
    boxes_xyxy: Vec<[f32; 4]>,
    masks: Vec<Rectangle>,
}

#[derive(Clone, Deserialize)]
struct Tracked {
    ids: Vec<u64>,
    masks: Vec<Rectangle>,
    scores: Vec<f32>,
}

#[derive(Deserialize)]
struct Output {
    frame: usize,
    ids: Vec<u64>,
    scores: Vec<f32>,
    areas: Vec<u64>,
    boxes_xywh: Vec<[f32; 4]>,
}

/// Ids of the reference start at 0.
fn ours(id: u64) -> TrackId {
    TrackId(id + 1)
}

fn theirs(ids: &[TrackId]) -> Vec<u64> {
    ids.iter().map(|id| id.0 - 1).collect()
}

fn logits(side: usize, rectangle: &Rectangle, [low, high]: [f32; 2], empty: f32) -> Vec<f32> {
    let Some([x0, y0, x1, y1]) = rectangle else {
        return vec![empty; side * side];
    };
    (0..side * side)
        .map(|i| {
            let inside = (*x0..*x1).contains(&(i % side)) && (*y0..*y1).contains(&(i / side));
            if inside { high } else { low }
        })
        .collect()
}

impl Detections {
    fn raw(&self, side: usize) -> RawDetections {
        let centred = |[x0, y0, x1, y1]: [f32; 4]| {
            [
                f32::midpoint(x0, x1),
                f32::midpoint(y0, y1),
                x1 - x0,
                y1 - y0,
            ]
        };
        let masks = self.masks.iter();
        RawDetections {
            scores: self.scores.clone(),
            boxes: self.boxes_xyxy.iter().map(|b| centred(*b)).collect(),
            masks: MaskLogits {
                side,
                values: masks
                    .flat_map(|m| logits(side, m, [-4.0, 4.0], -4.0))
                    .collect(),
            },
            full: false,
        }
    }
}

/// Answers with the masks of a script and keeps the books of states and buckets.
struct Script {
    side: usize,
    roster: Roster,
    now: Option<Tracked>,
}

impl MaskPropagator for Script {
    fn mask_side(&self) -> usize {
        self.side
    }

    fn propagate(&mut self, _: usize) -> Result<TrackedMasks> {
        let now = self.now.as_ref().unwrap();
        let masks = now.masks.iter();
        Ok(TrackedMasks {
            ids: now.ids.iter().map(|id| ours(*id)).collect(),
            masks: MaskLogits {
                side: self.side,
                values: masks
                    .flat_map(|m| logits(self.side, m, [-6.0, 5.0], -1024.0))
                    .collect(),
            },
            scores: now.scores.clone(),
        })
    }

    fn recondition(&mut self, _: usize, _: &[TrackId], _: &MaskLogits) -> Result<()> {
        Ok(())
    }

    fn remember(&mut self, _: usize, _: &TrackedMasks, _: f32) -> Result<()> {
        Ok(())
    }

    fn add(&mut self, _: usize, ids: &[TrackId], _: &MaskLogits) -> Result<()> {
        self.roster.add(ids);
        Ok(())
    }

    fn remove(&mut self, ids: &[TrackId]) -> Result<()> {
        self.roster.remove(ids);
        Ok(())
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }
}

/// Everything needed to run the steps of a case.
struct Run {
    planner: Planner,
    composer: Composer,
    script: Script,
    ids: TrackIds,
    size: (u32, u32),
    options: VideoOptions,
}

impl Run {
    fn new(case: &Case) -> Self {
        let options = VideoOptions {
            max_objects: case.max_objects,
            ..VideoOptions::reference()
        };
        Self {
            planner: Planner::new(&options).unwrap(),
            composer: Composer::new(&options),
            script: Script {
                side: case.side,
                roster: Roster::new(case.slots),
                now: None,
            },
            ids: TrackIds::default(),
            size: (case.width, case.height),
            options,
        }
    }

    /// Runs a step and compares every decision.
    fn step(&mut self, i: usize, step: &Step) {
        let at = format!("step {i}, frame {}", step.frame);
        let raw = step.detections.raw(self.script.side);
        let chain = if i == 0 { Chain::Matrix } else { Chain::Greedy };
        let found = Candidates::select(&raw, chain, &self.options).unwrap();
        let kept = (0..found.kept()).filter_map(|d| found.raw_row(d));
        let kept: Vec<usize> = kept.map(|row| step.detections.queries[row]).collect();
        assert_eq!(kept, step.kept_queries, "{at}: detections taken up");

        self.script.now = Some(step.tracked.clone());
        let states_before: Vec<Vec<u64>> = self.state_ids();
        let planned = self
            .planner
            .step(step.frame, Some(&found), &mut self.script, &mut self.ids)
            .unwrap();
        let report = &planned.report;
        assert_eq!(
            theirs(&report.carried),
            step.tracked.ids,
            "{at}: carried on"
        );
        let births: Vec<_> = report.births.iter().map(|(d, id)| (*d, id.0 - 1)).collect();
        assert_eq!(births, step.births, "{at}: births");
        assert_eq!(report.left_out, step.left_out, "{at}: left out");
        let place = |id: &TrackId| report.carried.iter().position(|other| other == id).unwrap();
        let matches: Vec<_> = report
            .matches
            .iter()
            .map(|(d, id)| (*d, place(id)))
            .collect();
        assert_eq!(matches, step.matches, "{at}: matches");
        assert_eq!(theirs(&report.unmatched), step.unmatched, "{at}: unmatched");
        assert_eq!(theirs(&report.rejected), step.removed, "{at}: removed");
        assert!(report.retired.is_empty());
        let changed: Vec<usize> = report.changed.iter().map(place).collect();
        assert_eq!(changed, step.changed_rows, "{at}: masks changed");
        // The reference lists every object whose memory is made anew with a reconditioned one.
        let reconditioned = theirs(&report.reconditioned);
        let touched = states_before
            .iter()
            .filter(|state| state.iter().any(|id| reconditioned.contains(id)));
        let mut touched: Vec<u64> = touched.flatten().copied().collect();
        touched.sort_unstable();
        assert_eq!(touched, step.reconditioned, "{at}: reconditioned");

        let objects = self.planner.objects();
        let ids: Vec<TrackId> = objects.iter().map(|o| o.id).collect();
        assert_eq!(theirs(&ids), step.ids_after, "{at}: ids after");
        let counts: Vec<u32> = objects.iter().map(|o| o.consecutive).collect();
        assert_eq!(counts, step.confirmation_count, "{at}: confirmation counts");
        let status = objects.iter().map(|o| 1 + u8::from(o.confirmed.is_some()));
        assert!(
            status.eq(step.confirmation_status.iter().copied()),
            "{at}: confirmation"
        );
        for (t, id) in step.tracked.ids.iter().enumerate() {
            let Some(object) = objects.iter().find(|o| o.id == ours(*id)) else {
                assert!(step.removed.contains(id), "{at}");
                continue;
            };
            assert_eq!(
                object.unmatched, step.unmatched_counts[t],
                "{at}: object {id}"
            );
            let hidden = object.last_hidden.map_or(-1, |frame| frame as i64);
            assert_eq!(hidden, step.last_hidden[t], "{at}: object {id} last hidden");
        }
        assert_eq!(
            self.state_ids(),
            step.state_ids,
            "{at}: objects of the states"
        );
        assert_eq!(self.buckets(), step.buckets, "{at}: buckets");
        self.composer.push(step.frame, &planned, self.size);
    }

    fn state_ids(&self) -> Vec<Vec<u64>> {
        let states = self.script.roster.states().iter();
        states.map(|state| theirs(&state.ids)).collect()
    }

    fn buckets(&self) -> Vec<Vec<Vec<i64>>> {
        let number = |slot: &Slot| match slot {
            Slot::Free => -1,
            Slot::Removed => -1116,
            Slot::Object(i) => *i as i64,
        };
        let bucket = |bucket: &Vec<Slot>| bucket.iter().map(number).collect();
        let states = self.script.roster.states().iter();
        states
            .map(|state| state.slots.buckets().iter().map(bucket).collect())
            .collect()
    }
}

fn case(name: &str) -> Case {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut files = here.map(|p| p.join("tests/fixtures/sam3/video_logic.json"));
    let file = files.find(|p| p.is_file()).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let mut cases: BTreeMap<String, Case> = serde_json::from_str(&text).unwrap();
    cases.remove(name).unwrap()
}

fn compare_object(object: &ComposedObject, told: &Output, i: usize, (w, h): (u32, u32)) {
    let at = format!("frame {}, object {}", told.frame, told.ids[i]);
    assert!((object.score - told.scores[i]).abs() < 1e-6, "{at}");
    let (area, want) = (object.mask.area(), told.areas[i]);
    assert!(
        area.abs_diff(want) * 1000 <= u64::from(w * h),
        "{at}: {area} for {want}"
    );
    let [x, y, bw, bh] = told.boxes_xywh[i];
    // The reference's far edges are the last pixel, ours the one after it.
    let (w, h) = (w as f32, h as f32);
    let want = [x * w, y * h, (x + bw) * w + 1.0, (y + bh) * h + 1.0];
    let got: [f32; 4] = object.bbox.into();
    for (got, want) in got.iter().zip(want) {
        assert!(
            (got - want).abs() < 1.01,
            "{at}: {:?} for {want}",
            object.bbox
        );
    }
}

/// Runs a whole case; returns the ids that were shown in each frame.
fn run_case(name: &str) -> Vec<Vec<u64>> {
    let case = case(name);
    let mut run = Run::new(&case);
    for (i, step) in case.steps.iter().enumerate() {
        run.step(i, step);
    }
    let removed: Vec<u64> = case.steps.iter().flat_map(|s| s.removed.clone()).collect();
    let mut shown = Vec::new();
    for told in &case.outputs {
        assert_eq!(run.composer.oldest(), Some(told.frame));
        let objects = run.composer.pop().unwrap();
        // What the reference took back, it had shown already; this port has not.
        let want: Vec<usize> = (0..told.ids.len())
            .filter(|i| !removed.contains(&told.ids[*i]))
            .collect();
        let ids: Vec<TrackId> = objects.iter().map(|o| o.id).collect();
        let want_ids: Vec<u64> = want.iter().map(|i| told.ids[*i]).collect();
        assert_eq!(theirs(&ids), want_ids, "{name}, frame {}", told.frame);
        for (object, i) in objects.iter().zip(want) {
            compare_object(object, told, i, (case.width, case.height));
        }
        shown.push(theirs(&ids));
    }
    shown
}

#[test]
fn births_and_removals_are_decided_as_in_the_reference() {
    let shown = run_case("births_removals");
    assert_eq!(shown.len(), 20);
    assert_eq!(shown[19], [0, 2, 3, 5, 6, 7]);
}

#[test]
fn duplicates_reconditioning_and_the_object_limit_are_decided_as_in_the_reference() {
    let shown = run_case("duplicates_recondition_limit");
    assert_eq!(shown[19], [0, 1, 2, 5, 6, 7]);
}

#[test]
fn a_false_positive_that_is_removed_never_flashes_up() {
    let case = case("births_removals");
    let flashes = case.outputs.iter().filter(|o| o.ids.contains(&1)).count();
    assert_eq!(
        flashes, 3,
        "the reference shows it just before it is removed"
    );
    let shown = run_case("births_removals");
    assert!(shown.iter().all(|ids| !ids.contains(&1)));
}

#[test]
fn a_state_whose_first_object_goes_is_followed_on() {
    let case = case("crash_last_cond_object");
    let mut run = Run::new(&case);
    for (i, step) in case.steps.iter().enumerate() {
        run.step(i, step);
    }
    // The reference fails in the next frame; here the object that is left goes on.
    let mut step = case.steps.last().unwrap().clone();
    step.tracked.ids.remove(0);
    step.tracked.masks.remove(0);
    step.tracked.scores.remove(0);
    let last = step.frame;
    for frame in last + 1..last + 20 {
        run.script.now = Some(step.tracked.clone());
        let raw = step.detections.raw(case.side);
        let found = Candidates::select(&raw, Chain::Greedy, &run.options).unwrap();
        let planned = run
            .planner
            .step(frame, Some(&found), &mut run.script, &mut run.ids)
            .unwrap();
        assert_eq!(theirs(&planned.report.carried), [1], "frame {frame}");
        assert!(planned.report.births.is_empty() && planned.report.rejected.is_empty());
        run.composer.push(frame, &planned, run.size);
    }
    let mut last_shown = Vec::new();
    while let Some(objects) = run.composer.pop() {
        last_shown = objects.iter().map(|o| o.id).collect();
        assert!(!last_shown.contains(&ours(0)), "it was a false positive");
    }
    assert_eq!(theirs(&last_shown), [1]);
}

// ---- drawn scenes through the session ----

const SIZE: (u32, u32) = (192, 144);

fn product() -> Vec<TextPrompt> {
    vec![TextPrompt::new("product").unwrap()]
}

fn run_scene(scene: &Scene, options: &VideoOptions, frames: usize) -> Vec<FrameDetections> {
    let mut session = VideoSession::new(scene.clone(), &product(), options).unwrap();
    let mut out = Vec::new();
    for n in 0..frames {
        out.extend(session.push(&numbered_frame(n, SIZE)).unwrap());
        assert!(out.len() + options.delay_frames() > n, "later than stated");
    }
    out.extend(session.finish());
    assert_eq!(out.len(), frames);
    for (n, frame) in out.iter().enumerate() {
        assert_eq!(frame.frame_index, n as u64);
    }
    out
}

fn ids(frame: &FrameDetections) -> Vec<u64> {
    let mut ids: Vec<u64> = frame
        .detections
        .iter()
        .map(|d| d.track_id.unwrap().0)
        .collect();
    ids.sort_unstable();
    ids
}

/// The thing a detection lies on: the one whose pixels it covers best.
fn key_of(scene: &Scene, things: &[Thing], detection: &Detection) -> u64 {
    let share = |thing: &&Thing| {
        let pixels: [f32; 4] = scene.pixels(thing, SIZE);
        detection.bbox.iou(&pixels.into())
    };
    let best = things
        .iter()
        .max_by(|a, b| share(a).total_cmp(&share(b)))
        .unwrap();
    assert!(share(&best) > 0.7, "{detection:?} lies on nothing");
    best.key
}

/// Things in rows of 8, `count` of them, on a map of 64 cells a side.
fn grid(count: usize) -> Vec<Thing> {
    (0..count)
        .map(|i| {
            let (x, y) = (i % 8 * 8, i / 8 * 12);
            Thing::new(i as u64, [x + 1, y + 1, x + 7, y + 11], 0.9)
        })
        .collect()
}

#[test]
fn objects_around_the_bucket_edge_are_all_counted_and_keep_their_ids() {
    for count in [15, 16, 17, 33] {
        // The last one appears while the others are followed, so that it has to find a slot.
        let scene = Scene::new(64, move |frame, _| {
            grid(if frame < 6 { count - 1 } else { count })
        });
        let options = VideoOptions::default();
        let out = run_scene(&scene, &options, 30);
        let mut of_key: BTreeMap<u64, u64> = BTreeMap::new();
        for (n, frame) in out.iter().enumerate() {
            let want = if n < 6 { count - 1 } else { count };
            assert_eq!(frame.detections.len(), want, "{count} objects, frame {n}");
            for detection in &frame.detections {
                let key = key_of(&scene, &grid(count), detection);
                let id = detection.track_id.unwrap().0;
                assert_eq!(
                    *of_key.entry(key).or_insert(id),
                    id,
                    "{count} objects, frame {n}"
                );
            }
        }
        assert_eq!(of_key.len(), count);

        let mut session = VideoSession::new(scene, &product(), &options).unwrap();
        for n in 0..10 {
            session.push(&numbered_frame(n, SIZE)).unwrap();
        }
        let buckets = session.trackers().next().unwrap().roster().buckets();
        assert_eq!(buckets, count.div_ceil(16), "cost grows by buckets of 16");
    }
}

#[test]
fn the_references_own_limit_is_sixteen_and_is_said() {
    let scene = Scene::new(64, |_, _| grid(20));
    let out = run_scene(&scene, &VideoOptions::reference(), 20);
    assert!(out.iter().all(|frame| frame.detections.len() == 16));
    assert_eq!(&*out[0].notices[0].code, "object_limit_hit");
    let out = run_scene(&scene, &VideoOptions::default(), 20);
    assert!(out.iter().all(|frame| frame.detections.len() == 20));
    assert!(out.iter().all(|frame| frame.notices.is_empty()));
}

#[test]
fn a_still_picture_repeated_sixty_times_keeps_ids_and_boxes() {
    let scene = Scene::new(64, |_, _| grid(11));
    let out = run_scene(&scene, &VideoOptions::default(), 60);
    assert_eq!(out[0].detections.len(), 11);
    for frame in &out {
        assert_eq!(frame.detections, out[0].detections);
    }
}

#[test]
fn black_frames_at_the_start_in_the_middle_and_at_the_end_cost_no_id() {
    let black = |frame: usize| frame < 3 || (20..26).contains(&frame) || frame >= 45;
    let scene = Scene::new(
        64,
        move |frame, _| {
            if black(frame) { Vec::new() } else { grid(6) }
        },
    );
    let out = run_scene(&scene, &VideoOptions::default(), 50);
    for (n, frame) in out.iter().enumerate() {
        let want: Vec<u64> = if black(n) { vec![] } else { (1..=6).collect() };
        assert_eq!(ids(frame), want, "frame {n}");
    }
}

/// A row of equal packs, one beside the other, under a camera that moves a cell in two frames. The
/// masks carried on lag one frame behind.
fn pan(frame: usize) -> Vec<Thing> {
    let shift = frame / 2;
    (0..40usize)
        .filter_map(|i| {
            let (x0, x1) = ((i * 6).max(shift), (i * 6 + 6).min(shift + 48));
            let cells = [x0.checked_sub(shift)?, 10, x1.checked_sub(shift)?, 30];
            (x1 > x0 + 1).then(|| Thing::new(i as u64, cells, 0.8))
        })
        .collect()
}

#[test]
fn look_alike_packs_in_a_row_keep_their_ids_by_place_under_a_pan() {
    let scene = Scene::new(48, |frame, _| pan(frame));
    let out = run_scene(&scene, &VideoOptions::default(), 120);
    let mut of_key: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sights = 0;
    for (n, frame) in out.iter().enumerate() {
        for detection in &frame.detections {
            let (id, key) = (
                detection.track_id.unwrap().0,
                key_of(&scene, &pan(n), detection),
            );
            assert_eq!(*of_key.entry(key).or_insert(id), id, "frame {n}");
            sights += 1;
        }
        assert!(frame.detections.len() >= 7, "frame {n}");
    }
    let mut all: Vec<u64> = of_key.values().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), of_key.len(), "no id on two packs");
    assert!(of_key.len() >= 16 && sights > 120 * 7);
}

#[test]
fn state_does_not_grow_with_the_length_of_a_video() {
    // A shelf of four boards passes by, five packs of each in view, two columns every 20 frames.
    let conveyor = |frame: usize, _: &str| {
        let shift = frame / 10;
        let mut things = Vec::new();
        for column in shift / 8..=(shift + 32) / 8 {
            let (x0, x1) = (
                (column * 8 + 1).max(shift),
                (column * 8 + 7).min(shift + 32),
            );
            for row in 0..4 {
                if x1 > x0 {
                    let cells = [x0 - shift, row * 8 + 1, x1 - shift, row * 8 + 7];
                    things.push(Thing::new((column * 4 + row) as u64, cells, 0.9));
                }
            }
        }
        things
    };
    let scene = Scene::new(32, conveyor);
    let options = VideoOptions::default();
    let mut session = VideoSession::new(scene, &product(), &options).unwrap();
    let (mut early, mut late, mut seen) = (0, 0, std::collections::BTreeSet::new());
    for n in 0..3000 {
        for frame in session.push(&numbered_frame(n, (64, 64))).unwrap() {
            seen.extend(ids(&frame));
        }
        // Objects leave in waves, so the largest of a wave's length is compared.
        let entries = session.state_entries();
        if (300..500).contains(&n) {
            early = early.max(entries);
        } else if n >= 500 {
            late = late.max(entries);
        }
    }
    assert!(seen.len() > 140, "{} objects went by", seen.len());
    assert!(
        late as f64 <= 1.05 * early as f64,
        "{early} entries grew to {late}"
    );
    let live: usize = session.planners().map(|(_, p)| p.objects().len()).sum();
    assert!((20..=40).contains(&live), "{live} objects are followed");
}

#[test]
fn a_prompt_added_later_leaves_tracks_as_they_are() {
    let scene = Scene::new(64, |_, phrase| match phrase {
        "can" => grid(40).split_off(30),
        _ => grid(20),
    });
    let options = VideoOptions::default();
    let alone = run_scene(&scene, &options, 40);
    let mut session = VideoSession::new(scene, &product(), &options).unwrap();
    let mut both = Vec::new();
    for n in 0..40 {
        if n == 12 {
            session
                .add_prompt(&TextPrompt::new("can").unwrap())
                .unwrap();
        }
        both.extend(session.push(&numbered_frame(n, SIZE)).unwrap());
    }
    both.extend(session.finish());
    for (n, (alone, both)) in alone.iter().zip(&both).enumerate() {
        let of = |label: &str| -> Vec<&Detection> {
            let all = both.detections.iter();
            all.filter(|d| &*d.label == label).collect()
        };
        assert!(alone.detections.iter().eq(of("product")), "frame {n}");
        assert_eq!(of("can").len(), if n < 12 { 0 } else { 10 }, "frame {n}");
        assert!(
            of("can").iter().all(|d| d.track_id.unwrap().0 > 20),
            "one set of ids"
        );
    }
}

#[test]
fn two_prompts_share_the_features_of_a_frame() {
    let scene = Scene::new(64, |_, _| grid(3));
    let work = scene.work.clone();
    let prompts = ["product", "can"].map(|p| TextPrompt::new(p).unwrap());
    let mut session = VideoSession::new(scene, &prompts, &VideoOptions::default()).unwrap();
    let mut out = Vec::new();
    for n in 0..20 {
        out.extend(session.push(&numbered_frame(n, SIZE)).unwrap());
    }
    out.extend(session.finish());
    assert_eq!(work.features.load(Ordering::Relaxed), 20);
    assert_eq!(work.detections.load(Ordering::Relaxed), 20);
    assert!(out.iter().all(|frame| ids(frame) == [1, 2, 3, 4, 5, 6]));
}

#[test]
fn detection_in_every_fifth_frame_finds_the_same_tracks() {
    let script = |frame: usize, _: &str| {
        let mut things = grid(9);
        if frame >= 23 {
            things.extend(grid(12).split_off(9));
        }
        things
    };
    let scene = Scene::new(64, script);
    let options = VideoOptions {
        detect_every: 5,
        ..VideoOptions::default()
    };
    let out = run_scene(&scene, &options, 60);
    assert_eq!(scene.work.detections.load(Ordering::Relaxed), 12);
    assert_eq!(scene.work.features.load(Ordering::Relaxed), 60);
    for (n, frame) in out.iter().enumerate() {
        let want = if n < 25 { 9 } else { 12 };
        assert_eq!(ids(frame), (1..=want).collect::<Vec<_>>(), "frame {n}");
    }
}

#[test]
fn a_false_positive_goes_also_when_detections_are_rare() {
    for detect_every in [1, 2, 5, 16] {
        // Thing 7 is detected once and carried on ever after.
        let scene = Scene::new(64, |frame, _| {
            let mut things = grid(8);
            things[7].score = if frame == 0 { 0.9 } else { 0.1 };
            things
        });
        let options = VideoOptions {
            detect_every,
            ..VideoOptions::default()
        };
        let out = run_scene(&scene, &options, 80);
        for (n, frame) in out.iter().enumerate() {
            let want: Vec<u64> = (1..=7).collect();
            assert_eq!(ids(frame), want, "every {detect_every}, frame {n}");
        }
    }
}

#[test]
fn frames_without_an_object_or_a_detection_cost_nothing() {
    let scene = Scene::new(64, |_, _| Vec::new());
    let options = VideoOptions {
        detect_every: 4,
        ..VideoOptions::default()
    };
    let out = run_scene(&scene, &options, 20);
    assert!(out.iter().all(|frame| frame.detections.is_empty()));
    assert_eq!(scene.work.features.load(Ordering::Relaxed), 5);
}

#[test]
fn an_object_that_left_is_forgotten_and_comes_back_under_a_new_id() {
    let away = |frame: usize| (20..100).contains(&frame);
    let scene = Scene::new(64, move |frame, _| grid(if away(frame) { 3 } else { 4 }));
    let out = run_scene(&scene, &VideoOptions::default(), 130);
    assert_eq!(ids(&out[19]), [1, 2, 3, 4]);
    assert_eq!(ids(&out[50]), [1, 2, 3]);
    assert_eq!(ids(&out[129]), [1, 2, 3, 5]);
    let kept = run_scene(&scene, &VideoOptions::reference(), 130);
    assert_eq!(ids(&kept[129]), [1, 2, 3, 4]);
}

#[test]
fn frames_that_do_not_fit_are_refused_and_lose_nothing() {
    let scene = Scene::new(64, |_, _| grid(4));
    let options = VideoOptions::default();
    let mut session = VideoSession::new(scene, &product(), &options).unwrap();
    for n in 0..3 {
        session.push(&numbered_frame(n, SIZE)).unwrap();
    }
    let error = session.push(&numbered_frame(3, (10, 10))).unwrap_err();
    assert!(error.to_string().contains("10x10"), "{error}");
    let error = session.push(&numbered_frame(2, SIZE)).unwrap_err();
    assert!(error.to_string().contains("in order"), "{error}");
    session.push(&numbered_frame(3, SIZE)).unwrap();
    assert_eq!(session.finish().len(), 4);
    let none = VideoSession::new(Scene::new(8, |_, _| Vec::new()), &[], &options);
    assert!(none.is_err());
}

#[test]
fn a_model_that_fails_ends_the_session_and_earlier_frames_come_out() {
    let mut scene = Scene::new(64, |_, _| grid(4));
    scene.fails_at = Some(5);
    let mut session = VideoSession::new(scene, &product(), &VideoOptions::default()).unwrap();
    for n in 0..5 {
        session.push(&numbered_frame(n, SIZE)).unwrap();
    }
    assert!(session.push(&numbered_frame(5, SIZE)).is_err());
    assert!(session.push(&numbered_frame(6, SIZE)).is_err());
    let out = session.finish();
    assert_eq!(out.len(), 5);
    assert!(out.iter().all(|frame| frame.detections.len() == 4));
}

#[test]
fn a_drawn_rectangle_is_drawn_to_the_pixel() {
    let logits = rectangle(8, [2, 2, 4, 6]);
    assert_eq!(logits.iter().filter(|v| **v > 0.0).count(), 8);
}
