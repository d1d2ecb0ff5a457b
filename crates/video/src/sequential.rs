//! What the readers that need no ffmpeg have in common: one frame after the other, each asked
//! whether it is wanted before its pixels are made.

use std::path::Path;

use shelfscan_inference_core::{FrameTime, Notice, RgbImage, SourceId, VideoFrame};

use crate::{
    CancelHandle, FrameReader, ReadOptions, ReadStatus, ReadSummary, Result, SourceInfo,
    VideoError,
    select::{Choice, Selector},
};

/// Lost frames that are named one by one.
const MAX_NAMED: usize = 20;

/// What became of the next frame of a source.
pub(crate) enum Step {
    /// It was wanted; here it is.
    Frame(RgbImage, FrameTime),
    /// It was not wanted.
    Skipped,
    /// Nothing later is wanted.
    Stop,
    /// It was wanted and cannot be decoded.
    Lost(String),
    /// The source ended as it should.
    End,
    /// The source broke off.
    Broken(String),
}

/// A source that is walked frame by frame.
pub(crate) trait Steps: Send {
    /// Goes to the next frame. `choose` is asked with its time exactly once, when there is one.
    fn step(&mut self, choose: &mut dyn FnMut(FrameTime) -> Choice) -> Step;

    /// What the reader of a result has to know so far.
    fn notices(&self) -> Vec<Notice> {
        Vec::new()
    }
}

/// Reads any [`Steps`].
pub(crate) struct Sequential<S> {
    steps: S,
    info: SourceInfo,
    source: SourceId,
    selector: Selector,
    next_index: u64,
    delivered: u64,
    lost: Vec<String>,
    lost_count: u64,
    broken: Option<String>,
    ended: bool,
}

impl<S: Steps> Sequential<S> {
    pub(crate) fn new(steps: S, info: SourceInfo, source: SourceId, options: &ReadOptions) -> Self {
        Self {
            steps,
            info,
            source,
            selector: Selector::new(options),
            next_index: 0,
            delivered: 0,
            lost: Vec::new(),
            lost_count: 0,
            broken: None,
            ended: false,
        }
    }

    /// A source without one frame is an error, whatever the reason.
    fn end(&mut self, broken: Option<String>) -> Result<Option<VideoFrame>> {
        self.ended = true;
        // Nothing but broken frames is no source either; the first of them tells most.
        if self.next_index == self.lost_count {
            let name = self.source.to_string();
            return Err(match self.lost.first().cloned().or(broken) {
                Some(reason) => VideoError::Unreadable { reason, name },
                None => VideoError::NoFrames {
                    reason: "it ends after its header".into(),
                    name,
                },
            });
        }
        self.broken = broken.map(|reason| format!("{reason}, after {} frames", self.next_index));
        Ok(None)
    }
}

impl<S: Steps> FrameReader for Sequential<S> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<VideoFrame>> {
        while !self.ended && !self.selector.is_full() {
            let (index, selector) = (self.next_index, &mut self.selector);
            let step = self
                .steps
                .step(&mut |time| selector.choose(index, time.secs, true));
            match step {
                Step::Frame(image, time) => {
                    self.next_index += 1;
                    self.delivered += 1;
                    return Ok(Some(VideoFrame {
                        image,
                        index,
                        time,
                        source: self.source.clone(),
                    }));
                }
                Step::Skipped => self.next_index += 1,
                Step::Lost(reason) => {
                    self.next_index += 1;
                    self.selector.take_back();
                    self.lost_count += 1;
                    if self.lost.len() < MAX_NAMED {
                        self.lost.push(format!("frame {index} is lost: {reason}"));
                    }
                }
                Step::Stop => {
                    self.next_index += 1;
                    self.ended = true;
                }
                Step::End => return self.end(None),
                Step::Broken(reason) => return self.end(Some(reason)),
            }
        }
        Ok(None)
    }

    fn summary(&self) -> ReadSummary {
        let mut notices: Vec<Notice> = self
            .lost
            .iter()
            .map(|text| Notice::new("damaged_place", text.clone()))
            .collect();
        notices.extend(self.steps.notices());
        let reason = self.broken.clone().or_else(|| {
            let first = self.lost.first()?;
            Some(format!(
                "{} frame(s) are lost, the first: {first}",
                self.lost_count
            ))
        });
        ReadSummary {
            decoded: self.next_index - self.lost_count,
            delivered: self.delivered,
            dropped: self.lost_count,
            status: reason.map_or(ReadStatus::Complete, |reason| ReadStatus::Partial {
                reason,
            }),
            notices,
        }
    }

    fn cancel_handle(&self) -> Option<CancelHandle> {
        None
    }
}

/// A source that breaks before its first frame.
pub(crate) fn unreadable(reason: impl Into<String>, path: &Path) -> VideoError {
    VideoError::Unreadable {
        reason: reason.into(),
        name: path.display().to_string(),
    }
}
