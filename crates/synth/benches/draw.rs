//! What drawing costs: a training scene, a crop, a shelf, a frame of a clip and its truth alone.

use std::{hint::black_box, sync::Arc};

use divan::Bencher;
use shelfscan_synth::{
    CameraPath, Clip, Motion, Shelf, ShelfPlan, StillOptions, draw_crop, draw_still, pick_skus,
};

fn main() {
    divan::main();
}

#[divan::bench]
fn scene_of_336_px(bencher: Bencher) {
    let options = StillOptions {
        side_px: 336,
        zoom: false,
        kind: None,
        mostly: None,
        pictures: &[],
    };
    let mut index = 0;
    bencher.bench_local(|| {
        index += 1;
        black_box(draw_still(1, index, &options))
    });
}

#[divan::bench]
fn crop_of_128_px(bencher: Bencher) {
    let skus = pick_skus(1, 21);
    let mut view = 0;
    bencher.bench_local(|| {
        view += 1;
        black_box(draw_crop(skus[view % skus.len()], view as u64, 128, &[]))
    });
}

fn clip() -> Clip {
    let plan = ShelfPlan::new(1, pick_skus(1, 14), 960, 540);
    let shelf = Arc::new(Shelf::draw(&plan, &[]).unwrap_or_else(|e| panic!("{e}")));
    let path = CameraPath::new(Motion::Return, 1, 80, &shelf).unwrap_or_else(|e| panic!("{e}"));
    Clip::new(shelf, path, 1)
}

#[divan::bench(sample_count = 5)]
fn shelf_for_960x540(bencher: Bencher) {
    let plan = ShelfPlan::new(1, pick_skus(1, 14), 960, 540);
    bencher.bench_local(|| black_box(Shelf::draw(&plan, &[])));
}

#[divan::bench(sample_count = 40)]
fn frame_of_960x540(bencher: Bencher) {
    let clip = clip();
    let mut index = 0;
    bencher.bench_local(|| {
        index += 1;
        black_box(clip.frame(index % clip.len()))
    });
}

#[divan::bench(sample_count = 40)]
fn truth_of_960x540(bencher: Bencher) {
    let clip = clip();
    let mut index = 0;
    bencher.bench_local(|| {
        index += 1;
        black_box(clip.frame_truth(index % clip.len()))
    });
}
