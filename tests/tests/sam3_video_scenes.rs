//! The planning of a video through the session, with drawn scenes in place of the model.
#![allow(clippy::unwrap_used)]

#[path = "sam3_support/ids.rs"]
mod ids;
#[path = "sam3_support/scene.rs"]
mod scene;

use std::{collections::BTreeMap, sync::atomic::Ordering};

use ids::ids;
use scene::{Scene, Thing, numbered_frame, rectangle};
use shelfscan_inference_core::{BoxXyxy, Detection, FrameDetections, TextPrompt, TrackId};
use shelfscan_sam3::tracker::{
    MaskPropagator,
    video::{VideoOptions, VideoSession},
};

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
fn a_marked_square_is_followed_when_no_later_detection_sees_it_and_its_likes_are_not() {
    // Thing 0 moves; the detector sees it and five of its likes in the first frame, then the likes
    // alone.
    let script = |frame: usize, _: &str| {
        let mut things = grid(6);
        things[0].cells = [1 + frame, 30 + frame, 9 + frame, 38 + frame];
        things[0].score = if frame == 0 { 0.45 } else { 0.0 };
        things
    };
    let scene = Scene::new(64, script);
    let square = scene.pixels(&script(0, "")[0], SIZE);
    let mut session =
        VideoSession::without_prompt(scene.clone(), &VideoOptions::default()).unwrap();
    let visual = TextPrompt::labelled("visual", "the square").unwrap();
    let (w, h) = (SIZE.0 as f32, SIZE.1 as f32);
    let [x0, y0, x1, y1] = square;
    let mark = [
        x0.midpoint(x1) / w,
        y0.midpoint(y1) / h,
        (x1 - x0) / w,
        (y1 - y0) / h,
    ];
    session.follow_marked(&visual, &[mark]).unwrap();
    let mut out = Vec::new();
    for n in 0..25 {
        out.extend(session.push(&numbered_frame(n, SIZE)).unwrap());
    }
    out.extend(session.finish());
    for (n, frame) in out.iter().enumerate() {
        let [found] = frame.detections.as_slice() else {
            panic!("frame {n}: {:?}", frame.detections);
        };
        let truth: BoxXyxy = scene.pixels(&script(n, "")[0], SIZE).into();
        assert!(found.bbox.iou(&truth) > 0.9, "frame {n}: {:?}", found.bbox);
        assert_eq!(
            (found.track_id, &*found.label),
            (Some(TrackId(1)), "the square")
        );
    }
    assert_eq!(scene.work.detections.load(Ordering::Relaxed), 1);
}

#[test]
fn a_box_around_nothing_is_said_and_costs_no_further_frame() {
    let scene = Scene::new(64, |_, _| grid(3));
    let mut session =
        VideoSession::without_prompt(scene.clone(), &VideoOptions::default()).unwrap();
    session
        .follow_marked(&product()[0], &[[0.5, 0.8, 0.1, 0.1]])
        .unwrap();
    for n in 0..5 {
        session.push(&numbered_frame(n, SIZE)).unwrap();
    }
    let out = session.finish();
    assert_eq!(&*out[0].notices[0].code, "marked_missed");
    assert!(out.iter().all(|frame| frame.detections.is_empty()));
    assert_eq!(scene.work.features.load(Ordering::Relaxed), 1);
}

#[test]
fn holes_of_carried_and_of_new_masks_are_filled_up_to_their_limit() {
    let whole = Scene::new(64, |_, _| vec![Thing::new(0, [8, 8, 40, 40], 0.9)]);
    let areas = |scene: &Scene, mend_cells: usize| -> Vec<u64> {
        let options = VideoOptions {
            mend_cells,
            ..VideoOptions::default()
        };
        let out = run_scene(scene, &options, 4);
        let area = |frame: &FrameDetections| frame.detections[0].mask.as_ref().unwrap().area();
        out.iter().map(area).collect()
    };
    let full = areas(&whole, 0);
    let holed = whole.clone().with_hole([20, 20]);
    assert!(areas(&holed, 0)[0] < full[0]);
    assert_eq!(areas(&holed, 1), full);
}

#[test]
fn one_frame_or_two_show_what_all_of_them_had() {
    for frames in [1, 2] {
        let scene = Scene::new(64, move |frame, _| grid(if frame == 0 { 5 } else { 6 }));
        let out = run_scene(&scene, &VideoOptions::default(), frames);
        assert_eq!(ids(&out[0]), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&out[frames - 1]).len(), 4 + frames);
    }
}

#[test]
fn of_two_stacked_detections_one_object_is_born() {
    let scene = Scene::new(64, |_, _| {
        vec![
            Thing::new(0, [8, 8, 40, 40], 0.9),
            Thing::new(1, [9, 8, 41, 40], 0.8),
        ]
    });
    let out = run_scene(&scene, &VideoOptions::default(), 4);
    assert!(out.iter().all(|frame| ids(frame) == [1]));
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
