//! The tracker part by part, on a model small enough for a bench run: what a remembered frame, an
//! object and a bucket cost. The full-size split is measured by the `full_size_tracker` example.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use divan::Bencher;
use shelfscan_inference_core::TrackId;
use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter, WeightReader};
use shelfscan_sam3::{
    MaskLogits, Sam3Config,
    tracker::{MaskPropagator, SessionOptions, Tracker, TrackerFeatures, TrackerSession},
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() {
    divan::main();
}

/// The released structure at a quarter of the width and a third of the picture.
fn config() -> Sam3Config {
    Sam3Config {
        image_size: 336,
        vit_dim: 256,
        vit_heads: 4,
        d_model: 64,
        heads: 8,
        ..Sam3Config::sam3_1()
    }
}

fn noise(seed: &mut u32) -> f32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 8) as f32 / (1u32 << 24) as f32 * 0.1 - 0.05
}

fn tracker() -> Outcome<Arc<Tracker>> {
    let (config, file) = (config(), tempfile::NamedTempFile::new()?);
    let (layout, mut seed) = (Tracker::layout(&config)?, 1);
    SafetensorsWriter::new(DType::F32).write(file.path(), &layout, |_, out| {
        for v in out {
            *v = noise(&mut seed);
        }
    })?;
    let checkpoint = Checkpoint::open(file.path())?;
    let reader = WeightReader::new(checkpoint, DType::F32, &Device::Cpu);
    Ok(Arc::new(Tracker::new(&reader, &config)?))
}

fn frame(seed: u32) -> Outcome<Arc<TrackerFeatures>> {
    let (c, side, mut seed) = (config().vit_dim, config().grid(), seed);
    let values: Vec<f32> = (0..c * side * side).map(|_| noise(&mut seed)).collect();
    let trunk = Tensor::from_vec(values, (1, c, side, side), &Device::Cpu)?;
    Ok(Arc::new(TrackerFeatures::new(&trunk, (640, 480))?))
}

/// Boxes in a row.
fn boxes(count: usize) -> MaskLogits {
    let side = config().mask_size();
    let mut values = vec![-5.0; count * side * side];
    for (i, plane) in values.chunks_exact_mut(side * side).enumerate() {
        for row in plane.chunks_exact_mut(side).skip(side / 3).take(side / 3) {
            row[i * side / count..(i + 1) * side / count].fill(5.0);
        }
    }
    MaskLogits { side, values }
}

/// A session that has followed `objects` objects for `frames` frames.
fn followed(objects: usize, frames: usize) -> Outcome<(Arc<Tracker>, TrackerSession)> {
    let tracker = tracker()?;
    let mut session = TrackerSession::new(Arc::clone(&tracker), SessionOptions::default())?;
    let ids: Vec<TrackId> = (1..=objects as u64).map(TrackId).collect();
    session.see(frame(0)?);
    session.add(0, &ids, &boxes(objects))?;
    for t in 1..frames {
        session.see(frame(t as u32)?);
        let carried = session.propagate(t)?;
        session.remember(t, &carried, 0.3)?;
    }
    Ok((tracker, session))
}

/// Runs `work` on what `ready` made, or fails the bench with the reason.
fn run<S: Sync, T>(
    bencher: Bencher<'_, '_>,
    ready: Outcome<S>,
    work: impl Fn(&S) -> Outcome<T> + Sync,
) {
    match ready.and_then(|s| work(&s).map(|_| s)) {
        Ok(s) => bencher.bench(|| work(&s).map_err(|e| e.to_string())),
        Err(error) => panic!("{error}"),
    }
}

#[divan::bench(args = [1, 2, 4, 7])]
fn memory_attention_by_remembered_frames(bencher: Bencher<'_, '_>, frames: usize) {
    let ready = || {
        let (tracker, session) = followed(4, frames)?;
        let seen = frame(99)?;
        let picture = tracker.propagation(&seen)?.tokens.clone();
        Ok((tracker, picture, session.memory_tokens(0, frames)?))
    };
    run(bencher, ready(), |(tracker, picture, memory)| {
        Ok(tracker
            .attention
            .forward(picture, &tracker.positions, memory)?)
    });
}

#[divan::bench(args = [1, 2, 16, 17, 33])]
fn a_frame_by_objects(bencher: Bencher<'_, '_>, objects: usize) {
    let ready = followed(objects, 3).and_then(|both| Ok((both, frame(99)?)));
    let (mut session, seen) = match ready {
        Ok(((_, session), seen)) => (session, seen),
        Err(error) => panic!("{error}"),
    };
    let mut t = 3;
    bencher.bench_local(|| {
        session.see(Arc::clone(&seen));
        let carried = session.propagate(t)?;
        t += 1;
        session.remember(t - 1, &carried, 0.3)
    });
}

#[divan::bench(args = [1, 16])]
fn objects_given(bencher: Bencher<'_, '_>, objects: usize) {
    let ready = tracker().and_then(|tracker| Ok((tracker, frame(1)?)));
    let ids: Vec<TrackId> = (1..=objects as u64).map(TrackId).collect();
    run(bencher, ready, |(tracker, seen)| {
        let mut session = TrackerSession::new(Arc::clone(tracker), SessionOptions::default())?;
        session.see(Arc::clone(seen));
        Ok(session.add(0, &ids, &boxes(objects))?)
    });
}
