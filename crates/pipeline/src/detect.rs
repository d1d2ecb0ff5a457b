//! The provider's stage: a frame goes in, frames with detections come out.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, Notice, TextPrompt, TrackId, VideoFrame,
};

use crate::{FrameRecord, PipelineError, Result, journal::EarlierFrames, report::StageTime};

/// A frame with what was found in it.
pub(crate) struct Detected {
    pub(crate) frame: VideoFrame,
    pub(crate) found: FrameDetections,
    /// The line an earlier run wrote for it; then nothing was detected anew.
    pub(crate) earlier: Option<FrameRecord>,
}

/// Runs a provider over the frames of one source.
pub(crate) struct DetectStage<'p> {
    provider: &'p mut dyn InferenceProvider,
    prompts: Vec<TextPrompt>,
    own_ids: bool,
    earlier: EarlierFrames,
    /// Frames whose results the provider holds back.
    held: VecDeque<VideoFrame>,
    /// Size of the frames of the open session.
    session: Option<(u32, u32)>,
    /// Added to the provider's ids, because a new session counts from 1 again.
    id_offset: u64,
    highest_id: u64,
    failed: u64,
    last_failure: Option<String>,
    busy: Duration,
    items: u64,
}

impl<'p> DetectStage<'p> {
    pub(crate) fn new(
        provider: &'p mut dyn InferenceProvider,
        prompts: &[TextPrompt],
        earlier: EarlierFrames,
    ) -> Self {
        Self {
            own_ids: provider.info().assigns_track_ids,
            provider,
            prompts: prompts.to_vec(),
            earlier,
            held: VecDeque::new(),
            session: None,
            id_offset: 0,
            highest_id: 0,
            failed: 0,
            last_failure: None,
            busy: Duration::ZERO,
            items: 0,
        }
    }

    /// Frames the provider refused, and its last word about it.
    pub(crate) fn failures(&self) -> (u64, Option<&str>) {
        (self.failed, self.last_failure.as_deref())
    }

    /// Time spent in the provider.
    pub(crate) fn time(&self) -> StageTime {
        StageTime {
            busy_secs: self.busy.as_secs_f64(),
            items: self.items,
        }
    }

    /// Pushes a frame; returns the frames whose results became final, in order.
    pub(crate) fn push(&mut self, frame: VideoFrame) -> Result<Vec<Detected>> {
        if let Some(record) = self.earlier.take(frame.index)? {
            let found = record.clone().into_detections(false);
            return Ok(vec![Detected {
                frame,
                found,
                earlier: Some(record),
            }]);
        }
        let start = Instant::now();
        let result = if self.own_ids {
            self.track(frame)
        } else {
            self.detect(frame)
        };
        self.busy += start.elapsed();
        self.items += 1;
        result
    }

    /// Ends the session; returns the frames that were still held back.
    pub(crate) fn finish(&mut self) -> Result<Vec<Detected>> {
        if self.session.take().is_none() {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        let found = self.provider.finish_tracking();
        self.busy += start.elapsed();
        let detected = self.pair(found?)?;
        match self.held.front() {
            Some(frame) => Err(broken_promise(format!(
                "frame {} never came back from the tracker",
                frame.index
            ))),
            None => Ok(detected),
        }
    }

    fn detect(&mut self, frame: VideoFrame) -> Result<Vec<Detected>> {
        let found = self.provider.detect_text_prompts(&frame, &self.prompts);
        let found = match found {
            Ok(found) => found,
            Err(error) => self.forgive(&frame, error)?,
        };
        Ok(vec![Detected {
            frame,
            found,
            earlier: None,
        }])
    }

    fn track(&mut self, frame: VideoFrame) -> Result<Vec<Detected>> {
        let size = (frame.image.width(), frame.image.height());
        let mut out = Vec::new();
        if self.session.is_some_and(|open| open != size) {
            // Boxes and masks of another size mean nothing in the open session.
            out = self.finish()?;
            self.id_offset = self.highest_id;
        }
        self.held.push_back(frame.clone());
        let found = if self.session.is_some() {
            self.provider.track_next(&frame)
        } else {
            self.provider.start_tracking(&frame, &self.prompts)
        };
        match found {
            Ok(found) => {
                self.session = Some(size);
                out.extend(self.pair(found)?);
            }
            Err(error) => {
                let empty = self.forgive(&frame, error)?;
                self.held.pop_back();
                // Results come out in order, so those held back have to be out first.
                if !self.held.is_empty() {
                    out.extend(self.finish()?);
                    self.id_offset = self.highest_id;
                }
                out.push(Detected {
                    frame,
                    found: empty,
                    earlier: None,
                });
            }
        }
        Ok(out)
    }

    /// Joins results with their frames, and makes ids unique within the source.
    fn pair(&mut self, found: Vec<FrameDetections>) -> Result<Vec<Detected>> {
        let mut out = Vec::with_capacity(found.len());
        for mut result in found {
            let frame = self
                .held
                .pop_front()
                .filter(|f| f.index == result.frame_index)
                .ok_or_else(|| {
                    broken_promise(format!(
                        "a result for frame {} came out of turn",
                        result.frame_index
                    ))
                })?;
            for detection in &mut result.detections {
                if let Some(id) = &mut detection.track_id {
                    *id = TrackId(id.0.saturating_add(self.id_offset));
                    self.highest_id = self.highest_id.max(id.0);
                }
            }
            out.push(Detected {
                frame,
                found: result,
                earlier: None,
            });
        }
        Ok(out)
    }

    /// A frame the provider refuses is an empty frame with a notice; anything worse ends the source.
    fn forgive(&mut self, frame: &VideoFrame, error: InferenceError) -> Result<FrameDetections> {
        if error.is_fatal_for_run() || error.is_retryable() {
            return Err(error.into());
        }
        self.failed += 1;
        let message = error.to_string();
        self.last_failure = Some(message.clone());
        Ok(FrameDetections {
            frame_index: frame.index,
            detections: Vec::new(),
            notices: vec![Notice::new("frame_failed", message)],
        })
    }
}

fn broken_promise(text: String) -> PipelineError {
    InferenceError::backend("tracking", text).into()
}

#[cfg(test)]
mod tests {
    use shelfscan_inference_core::{FrameTime, RgbImage, SourceId};
    use shelfscan_testkit::scripted::{ScriptedProvider, detection};

    use super::*;

    fn frame(index: u64, width: u32) -> VideoFrame {
        VideoFrame {
            image: RgbImage::new(width, 48, vec![0; width as usize * 48 * 3]).unwrap(),
            index,
            time: FrameTime::exact(index as f64),
            source: SourceId::new("clip"),
        }
    }

    fn ids(detected: &[Detected]) -> Vec<(u64, u64)> {
        detected
            .iter()
            .map(|d| {
                let id = d.found.detections[0].track_id.unwrap().0;
                (d.frame.index, id)
            })
            .collect()
    }

    #[test]
    fn results_that_come_late_are_joined_with_their_own_frames() {
        let mut provider = ScriptedProvider::new(|f| {
            Ok(vec![detection(
                "product",
                0.9,
                [0.0, 0.0, 9.0, 9.0],
                Some(f.index + 1),
            )])
        })
        .with_own_ids()
        .with_delay(2);
        provider.warmup().unwrap();
        let prompts = [TextPrompt::new("product").unwrap()];
        let mut stage = DetectStage::new(&mut provider, &prompts, EarlierFrames::none());
        let mut out = Vec::new();
        for i in 0..5 {
            out.extend(stage.push(frame(i, 64)).unwrap());
        }
        assert_eq!(out.len(), 3);
        out.extend(stage.finish().unwrap());
        assert_eq!(ids(&out), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
    }

    #[test]
    fn a_new_frame_size_opens_a_new_session_whose_ids_are_new_too() {
        let mut provider = ScriptedProvider::new(|_| {
            Ok(vec![detection(
                "product",
                0.9,
                [0.0, 0.0, 9.0, 9.0],
                Some(1),
            )])
        })
        .with_own_ids()
        .with_delay(1);
        provider.warmup().unwrap();
        let prompts = [TextPrompt::new("product").unwrap()];
        let mut stage = DetectStage::new(&mut provider, &prompts, EarlierFrames::none());
        let mut out = Vec::new();
        for (i, width) in [(0, 64), (1, 64), (2, 32), (3, 32)] {
            out.extend(stage.push(frame(i, width)).unwrap());
        }
        out.extend(stage.finish().unwrap());
        assert_eq!(ids(&out), [(0, 1), (1, 1), (2, 2), (3, 2)]);
    }

    #[test]
    fn a_frame_the_provider_refuses_is_empty_with_a_notice_and_the_rest_go_on() {
        let mut provider = ScriptedProvider::new(|f| {
            if f.index == 1 {
                return Err(InferenceError::InvalidInput("too dark".into()));
            }
            Ok(vec![detection("product", 0.9, [0.0, 0.0, 9.0, 9.0], None)])
        });
        provider.warmup().unwrap();
        let prompts = [TextPrompt::new("product").unwrap()];
        let mut stage = DetectStage::new(&mut provider, &prompts, EarlierFrames::none());
        let found: Vec<usize> = (0..3)
            .flat_map(|i| stage.push(frame(i, 64)).unwrap())
            .map(|d| d.found.detections.len())
            .collect();
        assert_eq!(found, [1, 0, 1]);
        assert_eq!(stage.failures().0, 1);
    }
}
