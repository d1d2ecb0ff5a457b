//! Brings a model of one's own: here, whatever stands out from a plain background.
//!
//! `cargo run -p shelfscan-pipeline --example own_provider -- folder/of/pictures`

#![allow(clippy::print_stdout)]

use std::error::Error;

use shelfscan_inference_core::{
    Detection, FrameDetections, InferenceProvider, Lifecycle, Mask, ProviderInfo, Result,
    TextPrompt, VideoFrame,
};
use shelfscan_pipeline::{ScanOptions, ScanPlan, Scanner};
use shelfscan_video::Source;

/// Finds the one region that differs from the picture's upper left pixel.
#[derive(Default)]
struct StandsOut(Lifecycle);

impl InferenceProvider for StandsOut {
    fn info(&self) -> ProviderInfo {
        ProviderInfo {
            name: "stands-out".into(),
            device: "cpu".into(),
            assigns_track_ids: false,
            tracking_delay_frames: 0,
            models: Vec::new(),
        }
    }

    fn warmup(&mut self) -> Result<()> {
        self.0.begin_warmup()?;
        self.0.warmed_up();
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections> {
        self.0.check_detect()?;
        let (image, plain) = (&frame.image, frame.image.pixel(0, 0));
        let mask = Mask::from_fn(image.width(), image.height(), |x, y| {
            image.pixel(x, y) != plain
        });
        let found = mask.bounding_box().zip(prompts.first());
        let detections = found.map(|(bbox, prompt)| Detection {
            label: prompt.label.clone(),
            prompt: prompt.phrase.clone(),
            score: 0.9,
            bbox,
            mask: Some(mask),
            track_id: None,
        });
        Ok(FrameDetections {
            frame_index: frame.index,
            detections: detections.into_iter().collect(),
            notices: Vec::new(),
        })
    }

    // The pipeline associates the detections itself, because `assigns_track_ids` is false.
    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.0.started();
        Ok(vec![self.detect_text_prompts(frame, prompts)?])
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.0.check_track("track_next")?;
        Ok(vec![self.detect_text_prompts(
            frame,
            &[TextPrompt::new("product")?],
        )?])
    }

    fn shutdown(&mut self) -> Result<()> {
        self.0.shut_down();
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let source = std::env::args()
        .nth(1)
        .ok_or("give a video or a folder of pictures")?;
    let plan = ScanPlan::new(
        ScanOptions::default(),
        vec![Source::parse(&source)?],
        None,
        None,
    )?;
    let report = Scanner::new(plan, Box::<StandsOut>::default()).run()?;
    println!("{} facings", report.sources[0].run.facings);
    Ok(())
}
