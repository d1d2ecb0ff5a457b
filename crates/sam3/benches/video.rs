//! A frame of a video from picture to tracks, with a detection and without one.
//!
//! The model is small, with the released structure and random weights; 16 objects are followed,
//! which fill one bucket.

use std::sync::Arc;

use candle_core::{DType, Device};
use divan::{Bencher, black_box};
use shelfscan_inference_core::{FrameTime, RgbImage, SourceId, TextPrompt, VideoFrame};
use shelfscan_model_kit::weights::{Checkpoint, SafetensorsWriter};
use shelfscan_sam3::{
    Detector, Sam3, Sam3Config, Tokenizer,
    tracker::video::{Sam3Video, VideoOptions, VideoSession, halves_from},
};

fn main() {
    divan::main();
}

/// The released structure at a quarter of the width and less of the depth.
fn config() -> Sam3Config {
    Sam3Config {
        image_size: 336,
        vit_dim: 256,
        vit_depth: 8,
        vit_heads: 4,
        vit_global_blocks: vec![3, 7],
        vit_window: 8,
        d_model: 64,
        heads: 8,
        ffn_dim: 256,
        fusion_layers: 3,
        decoder_layers: 3,
        text_width: 128,
        text_heads: 4,
        text_layers: 4,
        ..Sam3Config::sam3_1()
    }
}

type Failed = Box<dyn std::error::Error>;

fn model() -> Result<Sam3Video, Failed> {
    let (config, file) = (config(), tempfile::NamedTempFile::new()?);
    let layout = Detector::layout(&config)?;
    let mut state = 1u32;
    SafetensorsWriter::new(DType::F32).write(file.path(), &layout, |_, out| {
        for v in out {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *v = (state >> 8) as f32 / (1u32 << 24) as f32 * 0.1 - 0.05;
        }
    })?;
    let checkpoint = Checkpoint::open(file.path())?;
    let (detector, tracker, _) = halves_from(checkpoint, &config, DType::F32, &Device::Cpu)?;
    let sam3 = Sam3::new(detector, Tokenizer::new(config.context_length)?);
    let tracker = tracker.ok_or("the layout holds a tracker")?;
    Ok(Sam3Video::new(Arc::new(sam3), Arc::new(tracker))?)
}

fn picture(index: u64) -> Result<VideoFrame, Failed> {
    let (w, h) = (480u32, 360u32);
    let level = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
    let pixels = (0..w * h * 3).map(|i| level(i + index as u32)).collect();
    Ok(VideoFrame {
        image: RgbImage::new(w, h, pixels)?,
        index,
        time: FrameTime::exact(index as f64 / 30.0),
        source: SourceId::new("bench"),
    })
}

/// One in so many frames has a detection; with 1000 none of those timed has.
#[divan::bench(args = [1, 1000], sample_count = 10, sample_size = 1)]
fn push(bencher: Bencher<'_, '_>, detect_every: usize) {
    // Everything is taken for an object and kept.
    let options = VideoOptions {
        score_threshold: 0.0,
        birth_score: 0.0,
        border_margin: None,
        duplicate_overlap: 1.0,
        match_overlap: 1.0,
        hot_start_frames: 0,
        confirm_consecutive: 1,
        max_objects: 16,
        retire_after: None,
        detect_every,
        ..VideoOptions::default()
    };
    let start = || -> Result<VideoSession<Sam3Video>, Failed> {
        let mut session = VideoSession::new(model()?, &[TextPrompt::new("product")?], &options)?;
        // The memory is full after seven frames.
        for index in 0..8 {
            session.push(&picture(index)?)?;
        }
        Ok(session)
    };
    let mut session = match start() {
        Ok(session) => session,
        Err(error) => std::panic::panic_any(error.to_string()),
    };
    let mut index = 8;
    bencher.bench_local(|| {
        index += 1;
        let frame = picture(index);
        black_box(frame.map(|frame| session.push(&frame)))
    });
}
