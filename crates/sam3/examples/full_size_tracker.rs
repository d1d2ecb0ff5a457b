//! Times the full-size tracker with random weights, part by part and bucket by bucket.
//!
//! `cargo run --release -p shelfscan-sam3 --example full_size_tracker -- CHECKPOINT [FRAMES]`
//!
//! A checkpoint that does not exist is made first: 34 million random numbers in bf16, 67 MB. The
//! image trunk is left out; every frame has a random map in its place.
#![allow(clippy::print_stdout)]

mod timing;

use std::{error::Error, path::Path, sync::Arc};

use candle_core::{DType, Device, Tensor};
use shelfscan_inference_core::TrackId;
use shelfscan_model_kit::weights::{Checkpoint, WeightReader};
use shelfscan_sam3::{
    MaskLogits, Sam3Config,
    tracker::{MaskPropagator, SessionOptions, Tracker, TrackerFeatures, TrackerSession},
};
use timing::{Clock, make_checkpoint};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let Some(weights) = args.next() else {
        return Err("usage: full_size_tracker CHECKPOINT [FRAMES]".into());
    };
    let frames: usize = args.next().map_or(Ok(8), |n| n.parse())?;
    let config = Sam3Config::sam3_1();
    let layout = Tracker::layout(&config)?;
    println!("layout: {} tensors", layout.len());
    let weights = Path::new(&weights);
    if !weights.exists() {
        make_checkpoint(weights, &layout)?;
    }
    let clock = &mut Clock::start();
    let reader = WeightReader::new(Checkpoint::open(weights)?, DType::F32, &Device::Cpu);
    let tracker = Arc::new(Tracker::new(&reader, &config)?);
    reader.finish()?;
    clock.lap("load");
    parts(&tracker, clock)?;
    for objects in [1, 2, 16, 17] {
        follow(&tracker, objects, frames, clock)?;
    }
    Ok(())
}

/// A frame whose trunk's map is random.
fn frame(config: &Sam3Config) -> Outcome<Arc<TrackerFeatures>> {
    let (c, side) = (config.vit_dim, config.grid());
    let trunk = Tensor::randn(0f32, 1.0, (1, c, side, side), &Device::Cpu)?;
    Ok(Arc::new(TrackerFeatures::new(&trunk, (1920, 1080))?))
}

/// Masks of `count` boxes in a row.
fn boxes(config: &Sam3Config, count: usize) -> MaskLogits {
    let side = config.mask_size();
    let mut values = vec![-5.0; count * side * side];
    let width = side / count.max(4);
    for (i, plane) in values.chunks_exact_mut(side * side).enumerate() {
        for row in plane.chunks_exact_mut(side).skip(side / 3).take(side / 3) {
            row[i * width..][..width].fill(5.0);
        }
    }
    MaskLogits { side, values }
}

/// Every part once, with two frames remembered.
fn parts(tracker: &Arc<Tracker>, clock: &mut Clock) -> Outcome<()> {
    let config = tracker.config().clone();
    println!("\nparts, one bucket");
    let mut session = TrackerSession::new(Arc::clone(tracker), SessionOptions::default())?;
    let ids: Vec<TrackId> = (1..=16).map(TrackId).collect();
    let seen = frame(&config)?;
    session.see(Arc::clone(&seen));
    clock.lap("(a random frame)");
    tracker.propagation(&seen)?;
    clock.lap("propagation neck, small map");
    tracker.propagation_fine(&seen)?;
    clock.lap("propagation neck, fine maps");
    tracker.interactive(&seen)?;
    clock.lap("interactive neck, small map");
    session.add(0, &ids, &boxes(&config, ids.len()))?;
    clock.lap("16 objects given, memory included");
    session.see(frame(&config)?);
    let carried = session.propagate(1)?;
    clock.lap("frame 1, necks included");
    session.remember(1, &carried, 0.3)?;
    clock.lap("memory of frame 1");
    let seen = frame(&config)?;
    session.see(Arc::clone(&seen));
    let picture = tracker.propagation(&seen)?.tokens.clone();
    let fine = tracker.propagation_fine(&seen)?;
    clock.lap("necks of frame 2");
    let memory = session.memory_tokens(0, 2)?;
    clock.lap("gathering two remembered frames");
    let conditioned = tracker
        .attention
        .forward(&picture, &tracker.positions, &memory)?;
    clock.lap("memory attention over two frames");
    let slots = &session.roster().states()[0].slots;
    let decoded = tracker.decode(&conditioned, slots)?;
    clock.lap("mask decoder before drawing");
    tracker.draw(&decoded, fine, slots)?;
    clock.lap("drawing 16 masks and pointers");
    Ok(())
}

/// `objects` objects from frame to frame, as a video does it.
fn follow(tracker: &Arc<Tracker>, objects: usize, frames: usize, clock: &mut Clock) -> Outcome<()> {
    let config = tracker.config().clone();
    let mut session = TrackerSession::new(Arc::clone(tracker), SessionOptions::default())?;
    let ids: Vec<TrackId> = (1..=objects as u64).map(TrackId).collect();
    session.see(frame(&config)?);
    session.add(0, &ids, &boxes(&config, objects))?;
    let buckets = session.roster().buckets();
    println!("\n{objects} objects, {buckets} buckets; seconds are those of all buckets");
    clock.lap("given");
    for t in 1..=frames {
        let seen = frame(&config)?;
        tracker.propagation(&seen)?;
        tracker.propagation_fine(&seen)?;
        session.see(seen);
        clock.lap("necks");
        let carried = session.propagate(t)?;
        let maps = session.memory_use().maps;
        clock.lap(&format!("frame {t}, {maps} maps read"));
        session.remember(t, &carried, 0.3)?;
        clock.lap(&format!("memory of frame {t}"));
    }
    Ok(())
}
