//! What crossing into a worker costs a frame of 1920 x 1080 pixels with a hundred masks in the
//! answer, beside a plain copy of its pixels and the same call in this process.

use std::io;

use divan::{Bencher, black_box, counter::BytesCount};
use shelfscan_inference_core::{
    BoxXyxy, Detection, FrameTime, InferenceProvider, Mask, ProviderInfo, RgbImage, SourceId,
    TextPrompt, VideoFrame,
};
use shelfscan_testkit::scripted::ScriptedProvider;
use shelfscan_worker::{Served, Worker, WorkerCommand, WorkerOptions, serve};

const SIZE: (u32, u32) = (1920, 1080);
/// The argument this program starts itself with.
const SERVE: &str = "serve";

fn main() -> io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(SERVE) {
        let make = |_: &[u8]| {
            Ok(Served {
                provider: Box::new(provider()),
                embedder: None,
            })
        };
        return serve(make, io::stdin(), io::stdout()).map_err(io::Error::other);
    }
    divan::main();
    Ok(())
}

/// Answers every frame with the same hundred packs.
fn provider() -> ScriptedProvider {
    let packs: Vec<Detection> = (0..100u16)
        .map(|i| {
            let (x, y) = (f32::from(i % 20) * 90.0, f32::from(i / 20) * 200.0);
            let bbox = BoxXyxy::from_xywh(x, y, 80.0, 180.0);
            Detection {
                label: "product".into(),
                prompt: "product".into(),
                score: 0.9,
                bbox,
                mask: Some(Mask::from_box(SIZE.0, SIZE.1, &bbox)),
                track_id: None,
            }
        })
        .collect();
    ScriptedProvider::new(move |_| Ok(packs.clone()))
}

fn frame() -> io::Result<VideoFrame> {
    let pixels = (0..SIZE.0 * SIZE.1 * 3).map(|i| i as u8).collect();
    Ok(VideoFrame {
        image: RgbImage::new(SIZE.0, SIZE.1, pixels).map_err(io::Error::other)?,
        index: 0,
        time: FrameTime::exact(0.0),
        source: SourceId::new("bench"),
    })
}

fn detect(bencher: Bencher<'_, '_>, provider: &mut dyn InferenceProvider) -> io::Result<()> {
    let frame = frame()?;
    let prompts = [TextPrompt::new("product").map_err(io::Error::other)?];
    provider.warmup().map_err(io::Error::other)?;
    bencher
        .counter(BytesCount::of_slice(frame.image.pixels()))
        .bench_local(|| provider.detect_text_prompts(&frame, &prompts));
    provider.shutdown().map_err(io::Error::other)
}

#[divan::bench]
fn a_copy_of_the_pixels(bencher: Bencher<'_, '_>) {
    let Ok(frame) = frame() else { return };
    let mut to = vec![1; frame.image.pixels().len()];
    bencher
        .counter(BytesCount::of_slice(&to))
        .bench_local(|| black_box(&mut to).copy_from_slice(black_box(frame.image.pixels())));
}

#[divan::bench]
fn in_this_process(bencher: Bencher<'_, '_>) {
    detect(bencher, &mut provider()).ok();
}

#[divan::bench]
fn in_a_worker(bencher: Bencher<'_, '_>) {
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let worker = Worker::new(
        WorkerCommand::new(program).arg(SERVE),
        Vec::new(),
        WorkerOptions::default(),
    );
    let cold = ProviderInfo {
        models: Vec::new(),
        ..provider().info()
    };
    detect(bencher, &mut worker.provider(cold)).ok();
}
