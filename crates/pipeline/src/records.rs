//! Lines of `detections.jsonl`, written and read.
//!
//! A line is one processed frame. Numbers that are not finite are written as `null` and read back
//! as NaN, so one bad value of a model never costs a line.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize};
use shelfscan_inference_core::{
    BoxXyxy, Detection, FrameDetections, FrameTime, Mask, Notice, TrackId,
};

use crate::{PipelineError, Result};

/// Longest line that is read; a frame of 1,000 masks of a 4K picture stays far below it.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// One detection as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectionRecord {
    /// The label of the prompt.
    pub label: Arc<str>,
    /// The phrase that found it.
    pub prompt: Arc<str>,
    /// Confidence, 0 to 1; `null` when the model gave no finite number.
    #[serde(deserialize_with = "nan_for_null")]
    pub score: f32,
    /// `[x0, y0, x1, y1]` in source pixels.
    #[serde(rename = "box", deserialize_with = "nan_for_nulls")]
    pub bbox: [f32; 4],
    /// The shape over the whole frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Mask>,
    /// The track, once it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track_id: Option<TrackId>,
}

/// One processed frame as it is written: a line of `detections.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameRecord {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// Presentation time in seconds of the source's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_secs: Option<f64>,
    /// True when the source gave no time and it was interpolated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub time_estimated: bool,
    /// Width of the upright frame in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Height of the upright frame in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// What was found, highest score first.
    pub detections: Vec<DetectionRecord>,
    /// What the model had to say about the frame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl FrameRecord {
    /// Presentation time, when the line has one.
    pub fn time(&self) -> Option<FrameTime> {
        self.time_secs.map(|secs| FrameTime {
            secs,
            estimated: self.time_estimated,
        })
    }

    /// The detections as a provider would give them, with or without the ids in the file.
    pub fn into_detections(self, keep_ids: bool) -> FrameDetections {
        FrameDetections {
            frame_index: self.frame_index,
            detections: self
                .detections
                .into_iter()
                .map(|d| Detection {
                    label: d.label,
                    prompt: d.prompt,
                    score: d.score,
                    bbox: BoxXyxy::from(d.bbox),
                    mask: d.mask,
                    track_id: d.track_id.filter(|_| keep_ids),
                })
                .collect(),
            notices: self.notices,
        }
    }
}

fn nan_for_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Ok(Option::<f32>::deserialize(deserializer)?.unwrap_or(f32::NAN))
}

fn nan_for_nulls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f32; 4], D::Error> {
    let values = <[Option<f32>; 4]>::deserialize(deserializer)?;
    Ok(values.map(|v| v.unwrap_or(f32::NAN)))
}

/// Reads frame lines one at a time, so memory does not grow with the file.
pub(crate) struct RecordReader {
    path: PathBuf,
    input: BufReader<File>,
    line: u64,
    buffer: Vec<u8>,
    /// Byte offset after the last whole line that was read.
    good_bytes: u64,
    last_index: Option<u64>,
    /// Whether a last line without a line end is a frame. In a file that was handed over it is; in
    /// a journal it may have been cut.
    unended_counts: bool,
}

impl RecordReader {
    pub(crate) fn open(path: &Path, unended_counts: bool) -> Result<Self> {
        let file = File::open(path).map_err(PipelineError::io("opening", path))?;
        Ok(Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 16, file),
            line: 0,
            buffer: Vec::new(),
            good_bytes: 0,
            last_index: None,
            unended_counts,
        })
    }

    /// Bytes of the whole, sound lines read so far.
    pub(crate) fn good_bytes(&self) -> u64 {
        self.good_bytes
    }

    /// Goes back to the first line.
    pub(crate) fn rewind(&mut self) -> Result<()> {
        self.input
            .seek(SeekFrom::Start(0))
            .map_err(PipelineError::io("reading", &self.path))?;
        self.line = 0;
        self.good_bytes = 0;
        self.last_index = None;
        Ok(())
    }

    /// The next frame, or `None` at the end. A last line that was cut, as a kill leaves it, is the
    /// end of a journal as well.
    pub(crate) fn next_record(&mut self) -> Result<Option<FrameRecord>> {
        loop {
            self.buffer.clear();
            let read = self
                .input
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)
                .map_err(PipelineError::io("reading", &self.path))?;
            self.line += 1;
            let whole = self.buffer.last() == Some(&b'\n');
            if read == 0 {
                return Ok(None);
            }
            if !whole && read as u64 >= MAX_LINE_BYTES {
                return Err(self.damaged(format!("more than {} MiB", MAX_LINE_BYTES >> 20)));
            }
            if self.buffer.trim_ascii().is_empty() {
                self.good_bytes += read as u64;
                continue;
            }
            if !whole && !self.unended_counts {
                return Ok(None);
            }
            let record: FrameRecord = match serde_json::from_slice(&self.buffer) {
                Ok(record) => record,
                Err(_) if !whole => return Err(self.damaged("the file is cut".into())),
                Err(error) => return Err(self.damaged(error.to_string())),
            };
            if self
                .last_index
                .is_some_and(|last| record.frame_index <= last)
            {
                return Err(self.damaged(format!(
                    "frame {} comes after frame {}",
                    record.frame_index,
                    self.last_index.unwrap_or_default()
                )));
            }
            self.last_index = Some(record.frame_index);
            self.good_bytes += read as u64;
            return Ok(Some(record));
        }
    }

    fn damaged(&self, reason: String) -> PipelineError {
        PipelineError::Record {
            path: self.path.clone(),
            line: self.line,
            reason,
            remedy: "give a detections.jsonl with one frame a line, in order".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Vec<FrameRecord>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut reader = RecordReader::open(file.path(), false)?;
        let mut all = Vec::new();
        while let Some(record) = reader.next_record()? {
            all.push(record);
        }
        Ok(all)
    }

    fn line(index: u64, score: f32) -> String {
        let record = FrameRecord {
            frame_index: index,
            time_secs: Some(index as f64 / 30.0),
            time_estimated: false,
            width: Some(64),
            height: Some(48),
            detections: vec![DetectionRecord {
                label: "product".into(),
                prompt: "product".into(),
                score,
                bbox: [1.0, 2.0, 3.5, f32::INFINITY],
                mask: None,
                track_id: Some(TrackId(3)),
            }],
            notices: vec![],
        };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn a_value_that_is_not_finite_becomes_null_and_costs_no_line() {
        let text = line(0, f32::NAN);
        assert!(
            text.contains("\"score\":null") && text.contains("3.5,null]"),
            "{text}"
        );
        let all = read_all(text.as_bytes()).unwrap();
        assert!(all[0].detections[0].score.is_nan());
        assert!(all[0].detections[0].bbox[3].is_nan());
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error_with_its_number() {
        let (a, b) = (line(0, 0.5), line(1, 0.5));
        let torn = format!("{a}{}", &b[..b.len() / 2]);
        assert_eq!(read_all(torn.as_bytes()).unwrap().len(), 1);
        let unended = format!("{a}{}", b.trim_end());
        assert_eq!(read_all(unended.as_bytes()).unwrap().len(), 1);
        let middle = format!("{a}{}\n{b}", &a[..20]);
        let error = read_all(middle.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn frames_out_of_order_are_refused() {
        let text = format!("{}{}", line(5, 0.5), line(5, 0.5));
        assert!(read_all(text.as_bytes()).is_err());
    }

    #[test]
    fn ids_are_kept_only_when_asked_for() {
        let record = read_all(line(0, 0.5).as_bytes()).unwrap().remove(0);
        let kept = record.clone().into_detections(true);
        assert_eq!(kept.detections[0].track_id, Some(TrackId(3)));
        assert_eq!(record.into_detections(false).detections[0].track_id, None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(frames) = read_all(&bytes) {
                prop_assert!(frames.len() <= bytes.len());
            }
        }

        #[test]
        fn a_cut_anywhere_keeps_every_whole_line(cut in 0usize..400) {
            let text = format!("{}{}{}", line(0, 0.5), line(1, 0.25), line(2, 1.0));
            let bytes = &text.as_bytes()[..cut.min(text.len())];
            let whole = bytes.split(|b| *b == b'\n').count() - 1;
            prop_assert_eq!(read_all(bytes).unwrap().len(), whole);
        }
    }
}
