//! The session on a small model with random weights.

use candle_core::DType;
use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter, WeightReader};

use super::*;
use crate::{Sam3Config, TrackerConfig};

const SLOTS: usize = 4;

/// The released structure, as small as it goes.
fn config() -> Sam3Config {
    Sam3Config {
        image_size: 56,
        pretrain_img_size: 56,
        vit_dim: 16,
        vit_heads: 1,
        d_model: 16,
        heads: 2,
        text_width: 16,
        text_heads: 1,
        tracker: TrackerConfig {
            multiplex_count: SLOTS,
            mem_layers: 1,
            mem_ffn: 16,
            maskmem_start_chan: 1,
            cx_kernel: 3,
            fuser_layers: 1,
            sam_mlp_dim: 16,
            sam_depth: 1,
            iou_head_hidden: 16,
            prompt_mask_in_chans: 4,
            ..TrackerConfig::default()
        },
        ..Sam3Config::sam3_1()
    }
}

fn noise(seed: &mut u32) -> f32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 8) as f32 / (1u32 << 23) as f32 - 1.0
}

fn session() -> TrackerSession {
    let (config, file) = (config(), tempfile::NamedTempFile::new().unwrap());
    let layout = Tracker::layout(&config).unwrap();
    let mut seed = 7;
    SafetensorsWriter::new(DType::F32)
        .write(file.path(), &layout, |_, out| {
            for v in out {
                *v = 0.3 * noise(&mut seed);
            }
        })
        .unwrap();
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    let reader = WeightReader::new(checkpoint, DType::F32, &Device::Cpu);
    let tracker = Tracker::new(&reader, &config).unwrap();
    reader.finish().unwrap();
    TrackerSession::new(Arc::new(tracker), SessionOptions::default()).unwrap()
}

fn see(session: &mut TrackerSession, frame: usize) {
    let (c, side) = (config().vit_dim, config().grid());
    let mut seed = frame as u32;
    let values: Vec<f32> = (0..c * side * side).map(|_| noise(&mut seed)).collect();
    let trunk = Tensor::from_vec(values, (1, c, side, side), &Device::Cpu).unwrap();
    session.see(Arc::new(TrackerFeatures::new(&trunk, (64, 48)).unwrap()));
}

/// One mask an object, each a column of its own.
fn columns(ids: &[TrackId]) -> MaskLogits {
    let side = config().mask_size();
    let mut values = vec![-4.0; ids.len() * side * side];
    for (id, plane) in ids.iter().zip(values.chunks_exact_mut(side * side)) {
        for row in plane.chunks_exact_mut(side) {
            row[id.0 as usize % side] = 4.0;
        }
    }
    MaskLogits { side, values }
}

fn ids(range: std::ops::Range<u64>) -> Vec<TrackId> {
    range.map(TrackId).collect()
}

/// A frame with births. No mask is held back, so that states do not touch each other.
fn step(session: &mut TrackerSession, frame: usize, born: &[TrackId]) -> TrackedMasks {
    see(session, frame);
    let carried = session.propagate(frame).unwrap();
    session.remember(frame, &carried, 0.0).unwrap();
    session.add(frame, born, &columns(born)).unwrap();
    carried
}

fn masks_of(tracked: &TrackedMasks, id: TrackId) -> &[f32] {
    tracked.masks.mask(tracked.ids.binary_search(&id).unwrap())
}

#[test]
fn a_bucket_more_leaves_the_objects_of_the_others_as_they_are() {
    for (count, buckets) in [(3, 1), (4, 1), (5, 2), (9, 3)] {
        // All are born one by one, but the other session stops at the first bucket.
        let (mut all, mut few) = (session(), session());
        for frame in 0..count + 3 {
            let born = ids(frame as u64..frame as u64 + 1);
            let in_all: &[TrackId] = if frame < count { &born } else { &[] };
            let in_few: &[TrackId] = if frame < count.min(SLOTS) { &born } else { &[] };
            let (got, want) = (step(&mut all, frame, in_all), step(&mut few, frame, in_few));
            for id in &want.ids {
                assert_eq!(masks_of(&got, *id), masks_of(&want, *id), "object {id}");
            }
        }
        assert_eq!(
            (all.roster().objects(), all.roster().buckets()),
            (count, buckets)
        );
        let got = step(&mut all, count + 3, &[]);
        assert_eq!(got.ids, ids(0..count as u64));
    }
}

#[test]
fn a_state_goes_on_when_the_object_it_began_with_is_removed() {
    let mut session = session();
    step(&mut session, 0, &ids(1..2));
    step(&mut session, 1, &ids(2..3));
    assert_eq!(session.roster().states().len(), 1);
    session.remove(&ids(1..2)).unwrap();
    for frame in 2..30 {
        let got = step(&mut session, frame, &[]);
        assert_eq!(got.ids, ids(2..3));
    }
    // The same after the frame of the second object's birth has left the memory.
    let mut session = self::session();
    step(&mut session, 0, &ids(1..2));
    for frame in 1..40 {
        step(
            &mut session,
            frame,
            if frame == 1 { &[TrackId(2)] } else { &[] },
        );
    }
    session.remove(&ids(1..2)).unwrap();
    assert_eq!(step(&mut session, 40, &[]).ids, ids(2..3));
}

#[test]
fn removing_a_bucket_leaves_the_others_as_they_are() {
    let (mut whole, mut cut) = (session(), session());
    for frame in 0..8 {
        let born = if frame == 0 { ids(0..9) } else { Vec::new() };
        let want = step(&mut whole, frame, &born);
        let got = step(&mut cut, frame, &born);
        for id in &got.ids {
            assert_eq!(masks_of(&got, *id), masks_of(&want, *id), "frame {frame}");
        }
        if frame == 3 {
            cut.remove(&ids(4..8)).unwrap();
            assert_eq!((cut.roster().buckets(), cut.roster().objects()), (2, 5));
        }
    }
}

#[test]
fn ten_times_more_frames_hold_no_more_memory() {
    let mut session = session();
    step(&mut session, 0, &ids(0..8));
    let mut held = Vec::new();
    for frame in 1..170 {
        step(&mut session, frame, &[]);
        held.push(session.memory_use());
    }
    // One conditioning frame and what is read of the last fifteen.
    let most = held.iter().map(|h| (h.frames, h.maps)).max();
    assert_eq!(most, Some((17, 8)));
    assert_eq!(held.last(), held.get(24));
}

#[test]
fn equal_frames_give_equal_bytes() {
    let run = || {
        let mut session = session();
        let mut all = Vec::new();
        for frame in 0..6 {
            let born = if frame % 2 == 0 {
                ids(frame..frame + 2)
            } else {
                Vec::new()
            };
            all.extend(step(&mut session, frame as usize, &born).masks.values);
        }
        all
    };
    assert_eq!(run(), run());
}

#[test]
fn a_replaced_mask_is_what_the_frame_holds_from_then_on() {
    let mut session = session();
    step(&mut session, 0, &ids(1..4));
    see(&mut session, 1);
    session.propagate(1).unwrap();
    let one = ids(2..3);
    session.recondition(1, &one, &columns(&one)).unwrap();
    let again = session.propagate(1).unwrap();
    assert_eq!(again.scores[1], 10.0);
    let inside = |id: u64| masks_of(&again, TrackId(id))[2] > 0.0;
    assert!(inside(2));
    session.remember(1, &again, 0.3).unwrap();
    step(&mut session, 2, &[]);
}

#[test]
fn a_call_that_cannot_be_met_says_so_and_changes_nothing() {
    let mut session = session();
    let one = ids(1..2);
    let error = session
        .add(0, &one, &columns(&one))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no frame has been seen"), "{error}");
    assert_eq!(session.roster().objects(), 0);
    step(&mut session, 0, &one);
    see(&mut session, 1);
    let other = ids(2..3);
    let error = session
        .add(1, &other, &columns(&other))
        .unwrap_err()
        .to_string();
    assert!(error.contains("last carried to frame 0"), "{error}");
    let carried = session.propagate(1).unwrap();
    for (again, want) in [
        (
            session.add(1, &one, &columns(&one)),
            "object 1 is followed already",
        ),
        (
            session.recondition(1, &other, &columns(&other)),
            "object 2 is not followed",
        ),
        (
            session.add(1, &other, &columns(&ids(2..4))),
            "1 objects came with",
        ),
        (
            session.add_clicked(1, TrackId(5), &[]).map(drop),
            "at least one click",
        ),
    ] {
        let error = again.unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    assert_eq!(session.roster().objects(), 1);
    session.remove(&other).unwrap();
    session.remember(1, &carried, 0.3).unwrap();
    session.add(1, &other, &columns(&other)).unwrap();
    assert_eq!(step(&mut session, 2, &[]).ids, ids(1..3));
    let none = MemoryLimits {
        maps: 0,
        ..SessionOptions::default().memory
    };
    let options = SessionOptions {
        memory: none,
        ..SessionOptions::default()
    };
    assert!(TrackerSession::new(Arc::clone(&session.tracker), options).is_err());
}
