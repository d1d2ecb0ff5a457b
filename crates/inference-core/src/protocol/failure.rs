//! Errors of a model, field by field.

use std::{error::Error, fmt, path::PathBuf};

use super::{
    ProtocolError,
    bytes::{Reader, Writer},
};
use crate::{InferenceError, lifecycle};

type Result<T> = std::result::Result<T, ProtocolError>;

const NOT_BUILT: u8 = 0;
const DEVICE_UNAVAILABLE: u8 = 1;
const WEIGHTS: u8 = 2;
const OUT_OF_ORDER: u8 = 3;
const INVALID_INPUT: u8 = 4;
const OUT_OF_MEMORY: u8 = 5;
const NON_FINITE: u8 = 6;
const WORKER: u8 = 7;
const BACKEND: u8 = 8;

/// Causes below a back end's error that are told.
const MAX_CAUSES: usize = 8;
/// Longest text of a cause or reason; the rest is cut off, because an error must always arrive.
const MAX_REASON_BYTES: usize = 64 << 10;

pub(super) fn write_failure(w: &mut Writer, error: &InferenceError) -> Result<()> {
    let (tag, texts) = match error {
        InferenceError::NotBuilt { backend, remedy } => (NOT_BUILT, vec![&**backend, remedy]),
        InferenceError::DeviceUnavailable {
            device,
            reason,
            remedy,
        } => (DEVICE_UNAVAILABLE, vec![&**device, reason, remedy]),
        InferenceError::Weights {
            path,
            reason,
            remedy,
        } => {
            w.u8(WEIGHTS);
            w.text(cut(&path.to_string_lossy()))?;
            w.text(cut(reason))?;
            return w.text(cut(remedy));
        }
        InferenceError::OutOfOrder {
            call,
            state,
            remedy,
        } => (OUT_OF_ORDER, vec![*call, state, remedy]),
        InferenceError::InvalidInput(text) => (INVALID_INPUT, vec![&**text]),
        InferenceError::OutOfMemory {
            stage,
            reason,
            remedy,
        } => (OUT_OF_MEMORY, vec![&**stage, reason, remedy]),
        InferenceError::NonFinite { stage } => (NON_FINITE, vec![&**stage]),
        InferenceError::Worker {
            call,
            reason,
            stderr_tail,
        } => (WORKER, vec![*call, reason, stderr_tail]),
        InferenceError::Backend { stage, source } => {
            w.u8(BACKEND);
            w.text(cut(stage))?;
            let causes = causes(source.as_ref());
            w.count(causes.len())?;
            return causes.iter().try_for_each(|cause| w.text(cut(cause)));
        }
    };
    w.u8(tag);
    texts.into_iter().try_for_each(|text| w.text(cut(text)))
}

pub(super) fn read_failure(r: &mut Reader<'_>) -> Result<InferenceError> {
    let tag = r.u8("error kind")?;
    let mut text = || r.text("error text");
    Ok(match tag {
        NOT_BUILT => InferenceError::NotBuilt {
            backend: text()?.into(),
            remedy: text()?.into(),
        },
        DEVICE_UNAVAILABLE => InferenceError::DeviceUnavailable {
            device: text()?.into(),
            reason: text()?.into(),
            remedy: text()?.into(),
        },
        WEIGHTS => InferenceError::Weights {
            path: PathBuf::from(text()?),
            reason: text()?.into(),
            remedy: text()?.into(),
        },
        OUT_OF_ORDER => InferenceError::OutOfOrder {
            call: lifecycle::known_word(text()?, "a call"),
            state: lifecycle::known_word(text()?, "in another state"),
            remedy: lifecycle::known_word(text()?, "make a new provider"),
        },
        INVALID_INPUT => InferenceError::InvalidInput(text()?.into()),
        OUT_OF_MEMORY => InferenceError::OutOfMemory {
            stage: text()?.into(),
            reason: text()?.into(),
            remedy: text()?.into(),
        },
        NON_FINITE => InferenceError::NonFinite {
            stage: text()?.into(),
        },
        WORKER => InferenceError::Worker {
            call: lifecycle::known_word(text()?, "a call"),
            reason: text()?.into(),
            stderr_tail: text()?.into(),
        },
        BACKEND => {
            let stage: String = text()?.into();
            let causes = r.list("causes", 4, |r| r.text("cause"))?;
            let source = causes
                .into_iter()
                .take(MAX_CAUSES)
                .rev()
                .fold(None, |source, message| {
                    Some(Box::new(ToldCause {
                        message: message.into(),
                        source,
                    }))
                })
                .ok_or(ProtocolError::Damaged("causes"))?;
            InferenceError::Backend { stage, source }
        }
        _ => return Err(ProtocolError::Damaged("error kind")),
    })
}

fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    std::iter::successors(Some(error), |e| (*e).source())
        .take(MAX_CAUSES)
        .map(ToString::to_string)
        .collect()
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_REASON_BYTES))
        .unwrap_or_default()
}

/// A back end's error as the other side told it.
#[derive(Debug)]
struct ToldCause {
    message: String,
    source: Option<Box<ToldCause>>,
}

impl fmt::Display for ToldCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ToldCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossed(error: &InferenceError) -> InferenceError {
        let mut writer = Writer::default();
        write_failure(&mut writer, error).unwrap();
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        let error = read_failure(&mut reader).unwrap();
        reader.end().unwrap();
        error
    }

    #[test]
    fn every_error_arrives_with_its_words() {
        let s = String::from;
        let mut life = crate::Lifecycle::default();
        let cold = life.check_detect().unwrap_err();
        life.shut_down();
        let ended = life.check_track("track_next").unwrap_err();
        for error in [
            InferenceError::NotBuilt {
                backend: s("cuda"),
                remedy: s("build with --features cuda"),
            },
            InferenceError::DeviceUnavailable {
                device: s("cuda:1"),
                reason: s("there is one card"),
                remedy: s("pass --device cuda:0"),
            },
            InferenceError::Weights {
                path: "a/b.pt".into(),
                reason: s("cut"),
                remedy: s("get it again"),
            },
            cold,
            ended,
            InferenceError::InvalidInput(s("no prompt")),
            InferenceError::OutOfMemory {
                stage: s("trunk"),
                reason: s("out of memory"),
                remedy: s("end the others"),
            },
            InferenceError::NonFinite { stage: s("mask") },
            InferenceError::Worker {
                call: "track_next",
                reason: s("killed"),
                stderr_tail: s("a\nb"),
            },
        ] {
            let got = crossed(&error);
            assert_eq!(got.to_string(), error.to_string());
            assert_eq!(got.is_fatal_for_run(), error.is_fatal_for_run());
        }
    }

    #[test]
    fn the_causes_of_a_back_end_stay_apart() {
        let inner = crate::MaskError::BadText { at: 7 };
        let outer = InferenceError::backend("inner", inner);
        let got = crossed(&InferenceError::backend("outer", outer));
        let told: Vec<String> = std::iter::successors(Some(&got as &dyn Error), |e| (*e).source())
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "outer failed",
                "inner failed",
                "compressed run lengths are damaged at byte 7"
            ]
        );
    }

    #[test]
    fn an_endless_reason_is_cut_rather_than_lost() {
        let got = crossed(&InferenceError::InvalidInput("\u{e9}".repeat(1 << 20)));
        let length = got.to_string().len();
        assert!(
            length > MAX_REASON_BYTES && length < MAX_REASON_BYTES + 64,
            "{length}"
        );
    }
}
