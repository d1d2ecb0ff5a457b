//! What the stages of one source leave behind, and what it amounts to.

use std::any::Any;

use shelfscan_inference_core::{Notice, SourceId};
use shelfscan_video::{ReadStatus, ReadSummary, SourceInfo};

use crate::{
    Facing, FrameCounts, NoticeCount, PipelineError, StageTime, Timings, TrackSummary,
    journal::Journal, replay::RECORD_ENDED, track::TrackStage,
};

/// What the stages left behind.
pub(crate) struct Stages {
    pub(crate) source: SourceId,
    pub(crate) track: Option<TrackStage>,
    pub(crate) read: Option<ReadSummary>,
    pub(crate) error: Option<PipelineError>,
    pub(crate) cancelled: bool,
    pub(crate) dropped: u64,
    pub(crate) detect_time: StageTime,
    pub(crate) decode_time: StageTime,
    pub(crate) failures: (u64, Option<String>),
    /// The read was asked to stop before the end of the source.
    pub(crate) stops_early: bool,
}

impl Stages {
    pub(crate) fn into_outcome(self, info: SourceInfo) -> Outcome {
        let mut outcome = Outcome {
            info: Some(info),
            error: self.error,
            cancelled: self.cancelled,
            ..Outcome::default()
        };
        let Some(mut track) = self.track else {
            return outcome;
        };
        let wait = outcome.error.is_none() && !outcome.cancelled;
        match track.finish(wait) {
            Ok((tracks, facings)) => (outcome.tracks, outcome.facings) = (tracks, facings),
            Err(error) => outcome.error = outcome.error.or(Some(error)),
        }
        outcome.last_frame = track.last_frame();
        let processed = track.processed();
        let mut decoded = self.read.as_ref().map_or(0, |r| r.decoded);
        if self.stops_early {
            // How far a decoder ran ahead of the last frame that was taken is a matter of timing.
            decoded = decoded.min(outcome.last_frame.map_or(0, |(index, _)| index + 1));
        }
        outcome.frames = FrameCounts {
            declared: outcome.info.as_ref().and_then(|i| i.declared_frames),
            decoded,
            processed,
            dropped: self.dropped,
            undecodable: self.read.as_ref().map_or(0, |r| r.dropped),
        };
        if let Some(read) = &self.read {
            for notice in &read.notices {
                track.note(notice, None);
            }
            if let ReadStatus::Partial { reason } = &read.status {
                outcome.partial = Some(reason.clone());
            }
        }
        if let Some(ended) = track.notices.get(RECORD_ENDED) {
            let first = ended.first_frame.unwrap_or_default();
            outcome.partial.get_or_insert(format!(
                "no detections are recorded for {} frames, the first is frame {first}",
                ended.count
            ));
        }
        if self.dropped > 0 {
            let text = format!(
                "{} frames of {} were dropped, the oldest first, because the model was busy",
                self.dropped, self.source
            );
            track.note(&Notice::new("frames_dropped", text), None);
        }
        match self.failures {
            (0, _) => {}
            (n, text) if n == processed => {
                let text = text.unwrap_or_default();
                outcome.error = outcome.error.or(Some(PipelineError::Usage(format!(
                    "every frame failed: {text}"
                ))));
            }
            (n, text) => {
                let refused = format!(
                    "the model refused {n} of {processed} frames: {}",
                    text.unwrap_or_default()
                );
                outcome.partial = Some(match outcome.partial.take() {
                    Some(read) => format!("{read}; {refused}"),
                    None => refused,
                });
            }
        }
        if processed == 0 && outcome.error.is_none() && !outcome.cancelled {
            let text = "no frame lies in the part that was asked for";
            track.note(&Notice::new("no_frames_selected", text), None);
        }
        let (own, identity) = track.times();
        let stages = &mut outcome.timings.stages;
        stages.insert("decode".into(), self.decode_time);
        stages.insert("detect".into(), self.detect_time);
        stages.insert("track".into(), own);
        if let Some(time) = identity {
            stages.insert("identify".into(), time);
            outcome.timings.identity_workers = track.identity_workers();
        }
        outcome.notices = std::mem::take(&mut track.notices).into_counts();
        outcome.journal = track.into_journal();
        outcome
    }
}

/// What came of a source, before it is written.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) info: Option<SourceInfo>,
    pub(crate) frames: FrameCounts,
    pub(crate) tracks: Vec<TrackSummary>,
    pub(crate) facings: Vec<Facing>,
    pub(crate) notices: Vec<NoticeCount>,
    pub(crate) timings: Timings,
    pub(crate) journal: Option<Journal>,
    pub(crate) last_frame: Option<(u64, f64)>,
    pub(crate) error: Option<PipelineError>,
    pub(crate) partial: Option<String>,
    pub(crate) cancelled: bool,
}

impl Outcome {
    pub(crate) fn failed(error: PipelineError) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// An error with its causes, on one line.
pub(crate) fn explain(error: &PipelineError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}

pub(crate) fn panicked(stage: &'static str, panic: &(dyn Any + Send)) -> PipelineError {
    let message = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    PipelineError::Panicked { stage, message }
}
