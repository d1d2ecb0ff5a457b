//! A provider that answers from files of detections.
//!
//! Detect once where the GPU is, then track, identify and count anywhere; or guard a change of
//! everything behind the model in CI.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, Lifecycle, ModelFingerprint, Notice,
    ProviderInfo, Result, SourceId, TextPrompt, VideoFrame,
};

use crate::{FrameRecord, PipelineError, records::RecordReader};

/// Which file answers for which source.
#[derive(Clone, Debug)]
pub enum ReplayFiles {
    /// One file for the only source.
    Single(PathBuf),
    /// A file for each source, as an earlier scan of several sources left them.
    PerSource(BTreeMap<SourceId, PathBuf>),
}

impl ReplayFiles {
    fn for_source(&self, source: &SourceId) -> Option<&Path> {
        match self {
            Self::Single(path) => Some(path),
            Self::PerSource(files) => files.get(source).map(PathBuf::as_path),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        let files: Vec<&Path> = match self {
            Self::Single(path) => vec![path],
            Self::PerSource(files) => files.values().map(PathBuf::as_path).collect(),
        };
        files.into_iter()
    }
}

/// A file being read, and the line that is due next.
struct Cursor {
    source: SourceId,
    reader: RecordReader,
    next: Option<FrameRecord>,
}

/// Notice of a frame for which the file has no line, although it has lines of later ones.
pub(crate) const NOT_RECORDED: &str = "no_recorded_detections";
/// Notice of a frame past the last line of the file.
pub(crate) const RECORD_ENDED: &str = "recorded_detections_end";

/// What a file says about a frame.
enum Looked {
    Line(Box<FrameRecord>),
    /// It has lines of earlier and of later frames.
    Missing,
    /// Its last line is of an earlier frame.
    PastEnd,
}

/// Answers with the detections of `detections.jsonl` files: the line whose `frame_index` is the
/// frame's, or nothing, with a notice, when there is no such line. A line of a frame of another size
/// is refused. Files are read line by line, so memory does not
/// grow with them; asking for an earlier frame starts the file over.
pub struct ReplayProvider {
    files: ReplayFiles,
    keep_ids: bool,
    life: Lifecycle,
    hash: String,
    cursor: Option<Cursor>,
    prompts: Vec<TextPrompt>,
}

impl ReplayProvider {
    /// A provider over `files`. With `keep_ids` the ids in the files count as the provider's own;
    /// otherwise the scan associates detections anew. Nothing is opened before warm-up.
    pub fn new(files: ReplayFiles, keep_ids: bool) -> Self {
        Self {
            files,
            keep_ids,
            life: Lifecycle::default(),
            hash: String::new(),
            cursor: None,
            prompts: Vec::new(),
        }
    }

    fn lookup(&mut self, frame: &VideoFrame, prompts: &[TextPrompt]) -> Result<FrameDetections> {
        let (w, h) = (frame.image.width(), frame.image.height());
        let mut found = match self.seek(frame).map_err(as_inference_error)? {
            Looked::Line(record) => {
                if let (Some(width), Some(height)) = (record.width, record.height)
                    && (width, height) != (w, h)
                {
                    return Err(InferenceError::InvalidInput(format!(
                        "the recorded detections are of frames of {width}x{height} and this one has {w}x{h}; \
                         give those of this source"
                    )));
                }
                record.into_detections(self.keep_ids)
            }
            Looked::Missing => silent(
                NOT_RECORDED,
                "no detections are recorded for some frames; they count as empty",
            ),
            Looked::PastEnd => silent(
                RECORD_ENDED,
                "the recorded detections end before the source does",
            ),
        };
        found.frame_index = frame.index;
        found.detections.retain_mut(|d| {
            if let Some(mask) = &d.mask
                && (mask.width(), mask.height()) != (w, h)
            {
                d.mask = None;
            }
            d.bbox = d.bbox.clamped(w, h);
            match prompts
                .iter()
                .find(|p| p.label == d.label || p.phrase == d.prompt)
            {
                Some(prompt) => {
                    d.label = prompt.label.clone();
                    d.prompt = prompt.phrase.clone();
                    true
                }
                None => false,
            }
        });
        // Stable, so detections of one score keep the order of the file; NaN goes last.
        found.detections.sort_by(|a, b| {
            let key = |s: f32| if s.is_nan() { f32::NEG_INFINITY } else { s };
            key(b.score).total_cmp(&key(a.score))
        });
        Ok(found)
    }

    fn seek(&mut self, frame: &VideoFrame) -> std::result::Result<Looked, PipelineError> {
        let stale = self
            .cursor
            .as_ref()
            .is_none_or(|c| c.source != frame.source);
        if stale {
            let path = self.files.for_source(&frame.source).ok_or_else(|| {
                PipelineError::Usage(format!(
                    "there is no file of detections for {}; scan it with a model first",
                    frame.source
                ))
            })?;
            self.cursor = Some(Cursor {
                source: frame.source.clone(),
                reader: RecordReader::open(path, true)?,
                next: None,
            });
        }
        let Some(cursor) = self.cursor.as_mut() else {
            return Ok(Looked::PastEnd);
        };
        if cursor
            .next
            .as_ref()
            .is_none_or(|r| r.frame_index > frame.index)
        {
            cursor.reader.rewind()?;
            cursor.next = cursor.reader.next_record()?;
        }
        while let Some(record) = &cursor.next {
            if record.frame_index >= frame.index {
                break;
            }
            match cursor.reader.next_record()? {
                Some(next) => cursor.next = Some(next),
                // The last line stays, so that a frame past the end does not start the file over.
                None => return Ok(Looked::PastEnd),
            }
        }
        Ok(match &cursor.next {
            None => Looked::PastEnd,
            Some(record) if record.frame_index == frame.index => {
                Looked::Line(Box::new(record.clone()))
            }
            Some(_) => Looked::Missing,
        })
    }
}

fn silent(code: &'static str, text: &str) -> FrameDetections {
    FrameDetections {
        notices: vec![Notice::new(code, text)],
        ..FrameDetections::default()
    }
}

fn as_inference_error(error: PipelineError) -> InferenceError {
    match error {
        PipelineError::Usage(text) => InferenceError::InvalidInput(text),
        other => InferenceError::InvalidInput(other.to_string()),
    }
}

fn hash_file(path: &Path, hasher: &mut Sha256) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        hasher.update(&buffer[..n]);
    }
}

/// Hex of a digest.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

impl InferenceProvider for ReplayProvider {
    fn info(&self) -> ProviderInfo {
        let models = if self.hash.is_empty() {
            Vec::new()
        } else {
            vec![ModelFingerprint {
                model: "replayed detections".into(),
                weights_hash: self.hash.clone(),
                preprocessing: "none".into(),
            }]
        };
        ProviderInfo {
            name: "replay".into(),
            device: "file".into(),
            assigns_track_ids: self.keep_ids,
            tracking_delay_frames: 0,
            models,
        }
    }

    fn warmup(&mut self) -> Result<()> {
        if !self.life.begin_warmup()? {
            return Ok(());
        }
        let mut hasher = Sha256::new();
        for path in self.files.all() {
            hash_file(path, &mut hasher).map_err(|e| InferenceError::Weights {
                path: path.to_owned(),
                reason: format!("the file of detections does not open ({e})"),
                remedy: "give a detections.jsonl of an earlier scan".into(),
            })?;
        }
        self.hash = hex(&hasher.finalize());
        self.life.warmed_up();
        Ok(())
    }

    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections> {
        self.life.check_detect()?;
        TextPrompt::need_any(prompts)?;
        let mut found = self.lookup(frame, prompts)?;
        for detection in &mut found.detections {
            detection.track_id = None;
        }
        Ok(found)
    }

    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>> {
        self.life.check_start()?;
        TextPrompt::need_any(prompts)?;
        self.prompts = prompts.to_vec();
        self.life.started();
        self.track_next(frame)
    }

    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>> {
        self.life.check_track("track_next")?;
        let prompts = std::mem::take(&mut self.prompts);
        let found = self.lookup(frame, &prompts);
        self.prompts = prompts;
        Ok(vec![found?])
    }

    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        self.life.check_track("finish_tracking")?;
        self.life.stopped();
        Ok(Vec::new())
    }

    fn shutdown(&mut self) -> Result<()> {
        self.life.shut_down();
        self.cursor = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use shelfscan_inference_core::{FrameTime, RgbImage};
    use shelfscan_testkit::{conformance::check_provider, scripted::detection};

    use super::*;

    fn frame(index: u64) -> VideoFrame {
        VideoFrame {
            image: RgbImage::new(64, 48, vec![0; 64 * 48 * 3]).unwrap(),
            index,
            time: FrameTime::exact(index as f64),
            source: SourceId::new("clip"),
        }
    }

    /// Lines for frames 0, 2, 4, ... of `n`, each with two objects and an id.
    fn file(n: u64) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for i in (0..n).step_by(2) {
            let x = i as f32;
            let line = FrameDetections {
                frame_index: i,
                detections: vec![
                    detection("can", 0.3, [x, 0.0, x + 5.0, 9.0], Some(2)),
                    detection("product", 0.9, [x, 0.0, x + 5.0, 9.0], Some(1)),
                ],
                notices: vec![],
            };
            writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
        }
        file.flush().unwrap();
        file
    }

    fn prompts(words: &[&str]) -> Vec<TextPrompt> {
        words.iter().map(|w| TextPrompt::new(w).unwrap()).collect()
    }

    #[test]
    fn it_keeps_the_contract_with_and_without_the_ids_of_the_file() {
        let file = file(8);
        for keep_ids in [false, true] {
            let files = ReplayFiles::Single(file.path().to_owned());
            check_provider(
                || Box::new(ReplayProvider::new(files.clone(), keep_ids)),
                &[0, 1, 2, 4, 6, 9].map(frame),
                &prompts(&["product", "can"]),
            );
        }
    }

    #[test]
    fn a_frame_without_a_line_has_no_detections_and_says_so_and_other_prompts_are_left_out() {
        let file = file(6);
        let mut provider = ReplayProvider::new(ReplayFiles::Single(file.path().to_owned()), false);
        provider.warmup().unwrap();
        let mut look = |index, words: &[&str]| {
            let found = provider
                .detect_text_prompts(&frame(index), &prompts(words))
                .unwrap();
            let said = found.notices.first().map(|n| n.code.to_string());
            (found.detections.len(), said)
        };
        assert_eq!(look(0, &["product"]), (1, None));
        assert_eq!(look(1, &["product"]), (0, Some(NOT_RECORDED.into())));
        assert_eq!(look(4, &["product", "can"]), (2, None));
        assert_eq!(look(100, &["product"]), (0, Some(RECORD_ENDED.into())));
        assert_eq!(look(2, &["bottle"]), (0, None));
    }

    #[test]
    fn a_line_that_was_cut_and_a_frame_of_another_size_are_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line =
            |index| format!(r#"{{"frame_index":{index},"width":32,"height":48,"detections":[]}}"#);
        write!(file, "{}\n{}", line(0), &line(1)[..20]).unwrap();
        file.flush().unwrap();
        let mut provider = ReplayProvider::new(ReplayFiles::Single(file.path().to_owned()), false);
        provider.warmup().unwrap();
        let mut ask = |index| {
            let found = provider.detect_text_prompts(&frame(index), &prompts(&["can"]));
            found.unwrap_err().to_string()
        };
        assert!(
            ask(0).contains("of frames of 32x48 and this one has 64x48"),
            "{}",
            ask(0)
        );
        assert!(ask(1).contains("the file is cut in line 2"), "{}", ask(1));
    }

    #[test]
    fn a_missing_file_is_named_with_what_to_give() {
        let mut provider = ReplayProvider::new(ReplayFiles::Single("no/such.jsonl".into()), false);
        let text = provider.warmup().unwrap_err().to_string();
        assert!(
            text.contains("detections.jsonl") && text.ends_with("no/such.jsonl"),
            "{text}"
        );
    }
}
