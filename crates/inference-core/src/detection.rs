//! What a model found in a frame.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{BoxXyxy, InferenceError, Mask, Result};

/// Names a track within one source. Ids start at 1 for every source and are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrackId(pub u64);

impl fmt::Display for TrackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A phrase to look for, and the label its finds carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TextPrompt {
    /// The phrase given to the model, trimmed, never empty.
    pub phrase: Arc<str>,
    /// The label written to the results; the phrase itself unless another was given.
    pub label: Arc<str>,
}

impl TextPrompt {
    /// A prompt whose finds are labelled with the phrase.
    ///
    /// # Errors
    /// [`InferenceError::InvalidInput`] when the phrase is empty or only blanks.
    pub fn new(phrase: &str) -> Result<Self> {
        Self::labelled(phrase, phrase)
    }

    /// A prompt whose finds carry `label`, so that several phrases can mean one thing.
    ///
    /// # Errors
    /// [`InferenceError::InvalidInput`] when either text is empty or only blanks.
    pub fn labelled(phrase: &str, label: &str) -> Result<Self> {
        let (phrase, label) = (phrase.trim(), label.trim());
        if phrase.is_empty() || label.is_empty() {
            return Err(InferenceError::InvalidInput(
                "a prompt needs at least one word, such as \"product\"".into(),
            ));
        }
        Ok(Self {
            phrase: phrase.into(),
            label: label.into(),
        })
    }

    /// Refuses a call that looks for nothing.
    ///
    /// # Errors
    /// [`InferenceError::InvalidInput`] when there is no prompt.
    pub fn need_any(prompts: &[Self]) -> Result<()> {
        if prompts.is_empty() {
            return Err(InferenceError::InvalidInput(
                "no prompt was given; pass at least one phrase, such as \"product\"".into(),
            ));
        }
        Ok(())
    }
}

/// One object found in a frame, in source pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// What it is, in the words of the prompt's label.
    pub label: Arc<str>,
    /// The phrase that found it.
    pub prompt: Arc<str>,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Where it is.
    #[serde(rename = "box")]
    pub bbox: BoxXyxy,
    /// Its exact shape over the whole frame, when the model gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Mask>,
    /// The track it belongs to, when the provider tracks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track_id: Option<TrackId>,
}

/// Something the reader of a result has to know although the work went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// A stable name in `snake_case`, such as `query_cap_hit`.
    pub code: Arc<str>,
    /// One sentence for people.
    pub message: String,
}

impl Notice {
    /// A notice from its code and sentence.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// All that was found in one frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FrameDetections {
    /// Index of the frame in its source.
    pub frame_index: u64,
    /// The objects, highest score first, ties in the model's own order.
    pub detections: Vec<Detection>,
    /// What the model had to say about the frame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_trimmed_and_never_empty() {
        assert_eq!(
            &*TextPrompt::new("  milk carton ").unwrap().phrase,
            "milk carton"
        );
        assert!(TextPrompt::new(" \t").is_err());
        assert!(TextPrompt::labelled("soda", "").is_err());
        let error = TextPrompt::need_any(&[]).unwrap_err();
        assert!(error.to_string().contains("at least one phrase"));
    }

    #[test]
    fn a_detection_survives_json() {
        let detection = Detection {
            label: "product".into(),
            prompt: "product".into(),
            score: 0.5,
            bbox: BoxXyxy::new(1.0, 2.0, 3.0, 4.0),
            mask: Some(Mask::from_box(8, 8, &BoxXyxy::new(1.0, 2.0, 3.0, 4.0))),
            track_id: Some(TrackId(7)),
        };
        let text = serde_json::to_string(&detection).unwrap();
        assert!(text.contains("\"box\":[1.0,2.0,3.0,4.0]"), "{text}");
        assert_eq!(serde_json::from_str::<Detection>(&text).unwrap(), detection);
    }
}
