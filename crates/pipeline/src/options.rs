//! What a scan is asked to do. [`crate::ScanPlan`] is what comes of it.

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{BoxXyxy, TextPrompt};
use shelfscan_video::ReadOptions;

use crate::{
    associate::AssociateOptions,
    error::{PipelineError, Result},
};

/// The phrase a scan looks for when none is given: every kind of pack.
pub const DEFAULT_PROMPT: &str = "product";

/// A named part of the picture. Only detections whose centre lies in a region are kept, and counts
/// are given for each region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// The name counts are given under.
    pub name: String,
    /// Where it is, in source pixels of the upright frame.
    #[serde(rename = "box")]
    pub bbox: BoxXyxy,
}

/// How tracks are given a SKU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdentityOptions {
    /// Most crops of one track that are embedded, the largest and sharpest first.
    pub crops_per_track: u32,
    /// Crops embedded in one call.
    pub batch: u32,
    /// A batch that is not full is embedded after this many frames, so that a live view hears
    /// about its tracks.
    pub max_wait_frames: u32,
    /// Crops with a shorter side below this, in source pixels, are not embedded.
    pub min_side_px: u32,
    /// Threads that embed; 0 for one each core, at most 8. Results do not depend on it.
    #[serde(skip)]
    pub workers: usize,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        Self {
            crops_per_track: 3,
            batch: 16,
            max_wait_frames: 15,
            min_side_px: 12,
            workers: 0,
        }
    }
}

impl IdentityOptions {
    /// The number of threads to start.
    pub fn resolved_workers(&self) -> usize {
        if self.workers > 0 {
            return self.workers.min(64);
        }
        std::thread::available_parallelism().map_or(1, |n| n.get().min(8))
    }
}

/// A picture record of the scan for people to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotate {
    /// None.
    #[default]
    Off,
    /// An H.264 clip, which needs ffmpeg.
    Video,
    /// A folder of JPEG pictures, which needs nothing.
    Frames,
}

/// What is written besides the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputOptions {
    /// Annotated video or frames.
    pub annotate: Annotate,
    /// Whether masks go into `detections.jsonl`. They are most of its size.
    pub masks: bool,
    /// Whether the best crop of every track is saved as a JPEG.
    pub crops: bool,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self {
            annotate: Annotate::Off,
            masks: true,
            crops: true,
        }
    }
}

/// Everything a scan can be asked for. The default finds [`DEFAULT_PROMPT`] in every frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScanOptions {
    /// Phrases to look for, in one pass over the frames.
    pub prompts: Vec<TextPrompt>,
    /// Detections below this score are dropped, 0 to 1.
    pub min_score: f32,
    /// Most detections of one frame that are kept, the best first; more give a notice.
    pub max_detections: u32,
    /// Parts of the picture to look at; all of it when empty.
    pub regions: Vec<Region>,
    /// Which frames of a source to read.
    pub read: ReadOptions,
    /// How detections become tracks when the provider gives no ids.
    pub associate: AssociateOptions,
    /// How tracks are given a SKU.
    pub identity: IdentityOptions,
    /// What is written.
    pub outputs: OutputOptions,
}

impl ScanOptions {
    /// The options as `run.json` holds them. A number of 32 bits stands there as it was written, 0.8 and
    /// not 0.800000011920929, which is what `serde_json::to_value` makes of it.
    ///
    /// # Errors
    /// [`PipelineError::Json`] when an option has no form in JSON.
    pub fn to_json(&self) -> Result<serde_json::Value> {
        serde_json::to_string(self)
            .and_then(|text| serde_json::from_str(&text))
            .map_err(PipelineError::Json)
    }
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            prompts: TextPrompt::new(DEFAULT_PROMPT).into_iter().collect(),
            min_score: 0.0,
            max_detections: 1000,
            regions: Vec::new(),
            read: ReadOptions::default(),
            associate: AssociateOptions::default(),
            identity: IdentityOptions::default(),
            outputs: OutputOptions::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_in_the_record_as_it_was_written() {
        let options = ScanOptions {
            min_score: 0.8,
            ..ScanOptions::default()
        };
        let text = options.to_json().unwrap().to_string();
        assert!(text.contains("\"min_score\":0.8,"), "{text}");
        let back: ScanOptions = serde_json::from_str(&text).unwrap();
        assert_eq!(back, options);
    }
}
