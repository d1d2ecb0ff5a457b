//! What a scan costs besides its model, for a frame of 1080p with some forty packs.
//!
//! Lay it beside the `decode` rows of the video crate's bench: together with writing the journal it
//! should stay below a tenth of decoding.

use std::sync::Arc;

use divan::{Bencher, counter::ItemsCount};
use shelfscan_inference_core::{Detection, InferenceProvider, VideoFrame};
use shelfscan_pipeline::{FrameSession, ScanOptions};
use shelfscan_testkit::{
    scripted::ScriptedProvider,
    shelf::{Shelf, ShelfClip, ShelfPlan},
};

/// Frames that are measured, of a slow pan of many: about 5 pixels a frame.
const FRAMES: usize = 48;
const PAN_FRAMES: u32 = 600;

fn main() {
    divan::main();
}

struct Clip {
    frames: Vec<VideoFrame>,
    detections: Vec<Vec<Detection>>,
}

fn pan_1080p() -> Clip {
    let shelf = Arc::new(Shelf::draw(&ShelfPlan {
        seed: 3,
        rows: 3,
        packs_per_row: 24,
        pack_width_px: 120,
        pack_height_px: 320,
        ..ShelfPlan::default()
    }));
    let clip = ShelfClip::forth_and_back(shelf, PAN_FRAMES, 1920, 1080);
    // From the middle of the way, where the camera moves.
    let from = PAN_FRAMES as usize / 4;
    let frames = clip.frames().skip(from).take(FRAMES);
    Clip {
        frames: frames
            .enumerate()
            .map(|(i, mut frame)| {
                frame.index = i as u64;
                frame
            })
            .collect(),
        detections: clip
            .truth()
            .detections()
            .into_iter()
            .skip(from)
            .take(FRAMES)
            .map(|f| f.detections)
            .collect(),
    }
}

fn session(bencher: Bencher<'_, '_>, motion_compensation: bool) {
    let clip = pan_1080p();
    let mut options = ScanOptions::default();
    options.associate.motion_compensation = motion_compensation;
    bencher.counter(ItemsCount::new(FRAMES)).bench_local(|| {
        let mut provider = ScriptedProvider::from_frames(clip.detections.clone());
        provider.warmup().ok();
        let source = clip.frames[0].source.clone();
        let Ok(mut session) = FrameSession::new(&source, &options, &mut provider, None) else {
            return 0;
        };
        for frame in &clip.frames {
            divan::black_box(session.push(frame.clone()).ok());
        }
        session.finish().map_or(0, |(_, facings)| facings.len())
    });
}

#[divan::bench]
fn books_of_48_frames_1080p(bencher: Bencher<'_, '_>) {
    session(bencher, true);
}

#[divan::bench]
fn books_of_48_frames_1080p_without_following_the_camera(bencher: Bencher<'_, '_>) {
    session(bencher, false);
}
