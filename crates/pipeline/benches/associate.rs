//! What association costs per frame at 1080p on one core, beside the cost of reading the pixels.
//!
//! `cargo bench -p shelfscan-pipeline --bench associate`

use std::sync::Arc;

use divan::{Bencher, black_box};
use shelfscan_inference_core::{FrameDetections, RgbImage, VideoFrame};
use shelfscan_pipeline::associate::{
    AssociateOptions, Associator, CameraOptions, CameraTracker, FacingMerger, FacingOptions,
    SeenTrack,
};
use shelfscan_testkit::shelf::{Shelf, ShelfClip, ShelfPlan};

fn main() {
    divan::main();
}

/// A pan over packs at 1080p, and what stands in each frame.
fn pan(pack_width_px: u32, packs_per_row: u32) -> (Vec<VideoFrame>, Vec<FrameDetections>) {
    let shelf = Arc::new(Shelf::draw(&ShelfPlan {
        rows: 3,
        packs_per_row,
        pack_width_px,
        pack_height_px: 260,
        ..ShelfPlan::default()
    }));
    let clip = ShelfClip::forth_and_back(shelf, 40, 1920, 1080).shaken(2.0);
    (clip.frames().collect(), clip.truth().detections())
}

/// The floor: one pass over the bytes of a frame.
#[divan::bench]
fn read_all_pixels(bencher: Bencher) {
    let frame =
        RgbImage::new(1920, 1080, vec![7; 1920 * 1080 * 3]).unwrap_or_else(|e| panic!("{e}"));
    bencher.bench_local(|| {
        let sum: u64 = black_box(&frame)
            .pixels()
            .iter()
            .map(|&p| u64::from(p))
            .sum();
        black_box(sum)
    });
}

/// Camera motion alone, per frame of the pan.
#[divan::bench(sample_count = 20)]
fn follow_camera_40_frames(bencher: Bencher) {
    let (frames, _) = pan(130, 24);
    bencher.bench_local(|| {
        let mut camera = CameraTracker::new(CameraOptions::default());
        for frame in &frames {
            black_box(camera.observe(&frame.image));
        }
    });
}

/// Ids and facings, camera motion included; the argument is the width of a pack, and so the number
/// of packs in view: about 30 and about 90.
#[divan::bench(args = [(170, 24), (60, 60)], sample_count = 20)]
fn associate_40_frames(bencher: Bencher, (width, packs): (u32, u32)) {
    let (frames, detections) = pan(width, packs);
    bencher.bench_local(|| run(&frames, &detections, true));
}

/// The same without camera motion: the share of the matching.
#[divan::bench(args = [(170, 24), (60, 60)], sample_count = 20)]
fn match_only_40_frames(bencher: Bencher, (width, packs): (u32, u32)) {
    let (frames, detections) = pan(width, packs);
    bencher.bench_local(|| run(&frames, &detections, false));
}

fn run(frames: &[VideoFrame], detections: &[FrameDetections], motion_compensation: bool) -> usize {
    let options = AssociateOptions {
        motion_compensation,
        ..AssociateOptions::default()
    };
    let mut associator = Associator::new(options).unwrap_or_else(|e| panic!("{e}"));
    let mut merger = FacingMerger::new(FacingOptions::default());
    for (frame, found) in frames.iter().zip(detections) {
        let ids = associator.step(frame, &found.detections);
        let seen: Vec<SeenTrack> = ids
            .iter()
            .zip(&found.detections)
            .filter_map(|(id, d)| {
                Some(SeenTrack {
                    track: (*id)?,
                    label: d.label.clone(),
                    bbox: d.bbox,
                })
            })
            .collect();
        merger.observe(&associator.camera_shift(), (1920, 1080), &seen);
    }
    merger.settle();
    merger.facings().len()
}
