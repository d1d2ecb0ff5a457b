//! Whether an earlier run may be gone on with: in what two runs differ, in words.

use std::path::Path;

use serde_json::Value;
use shelfscan_inference_core::ModelFingerprint;

use crate::{PipelineError, Result, RunFile};

/// The type models calculate in, which results hang on more than on the device.
fn dtype(run: &RunFile) -> &str {
    run.runs_on.as_ref().map_or("f32", |on| &on.dtype)
}

/// A resumed run has to decide everything the way the earlier one did.
pub(crate) fn check_same_run(dir: &Path, earlier: &RunFile, now: &RunFile) -> Result<()> {
    let difference = if earlier.schema != now.schema || earlier.version != now.version {
        Some(format!(
            "shelfscan {} wrote it, this is {}",
            earlier.version, now.version
        ))
    } else if earlier.source != now.source {
        Some(format!("it is of {}", earlier.source))
    } else if let (Some(was), Some(is)) = (earlier.source_bytes, now.source_bytes)
        && was != is
    {
        Some(format!("its source had {was} bytes and has {is} now"))
    } else if let Some(difference) = other_models(&earlier.provider.models, &now.provider.models) {
        Some(difference)
    } else if dtype(earlier) != dtype(now) {
        Some(format!(
            "its models calculated in {}, these do in {}",
            dtype(earlier),
            dtype(now)
        ))
    } else if earlier.gallery != now.gallery {
        Some("another gallery was used".into())
    } else {
        first_difference("", &earlier.plan, &now.plan)
            .map(|key| format!("`{key}` was set otherwise"))
    };
    match difference {
        None => Ok(()),
        Some(reason) => Err(PipelineError::Output {
            path: dir.to_owned(),
            reason: format!("the run in the folder cannot be resumed: {reason}"),
            remedy: "give the same options, start over with --overwrite, or name another --out"
                .into(),
        }),
    }
}

/// In what the models of two runs differ, in words.
fn other_models(earlier: &[ModelFingerprint], now: &[ModelFingerprint]) -> Option<String> {
    if earlier == now {
        return None;
    }
    let same = |a: &ModelFingerprint, b: &ModelFingerprint| {
        (&a.model, &a.weights_hash) == (&b.model, &b.weights_hash)
    };
    let other_look = earlier
        .iter()
        .zip(now)
        .find(|(a, b)| a.preprocessing != b.preprocessing);
    Some(match other_look {
        Some((a, b)) if same(a, b) => format!(
            "frames were looked at otherwise (`{}`, now `{}`)",
            a.preprocessing, b.preprocessing
        ),
        _ => "other weights or other detections were used".into(),
    })
}

/// Path of the first value in which two JSON values differ.
fn first_difference(path: &str, a: &Value, b: &Value) -> Option<String> {
    if a == b {
        return None;
    }
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        for key in a.keys().chain(b.keys()) {
            let below = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let null = Value::Null;
            if let Some(found) = first_difference(
                &below,
                a.get(key).unwrap_or(&null),
                b.get(key).unwrap_or(&null),
            ) {
                return Some(found);
            }
        }
    }
    Some(path.to_owned())
}
