//! How a run was made, in words: its models and the options that were not the default.

use serde_json::Value;
use shelfscan_pipeline::{RunFile, ScanOptions};

/// Options whose flag has another name than the field in `run.json`.
const FLAGS: [(&str, &str); 18] = [
    ("associate.camera.max_key_frames", "max-key-frames"),
    ("associate.facings.max_growth", "facing-growth"),
    ("associate.facings.max_shift", "facing-shift"),
    ("associate.facings.max_tracks", "facing-tracks"),
    ("associate.facings.max_travel", "facing-travel"),
    ("identity.batch", "identity-batch"),
    ("identity.max_wait_frames", "identity-wait-frames"),
    ("identity.min_side_px", "min-crop-px"),
    ("outputs.crops", "no-crops"),
    ("outputs.masks", "no-masks"),
    ("associate.motion_compensation", "no-motion-compensation"),
    ("read.end_secs", "end"),
    ("read.limits.max_pixels", "max-pixels"),
    ("read.limits.stall_secs", "stall-secs"),
    ("read.start_secs", "start"),
    ("min_score", "min-score"),
    ("prompts", "prompt"),
    ("regions", "region"),
];

/// Flags that switch something off which is on by default.
const NEGATED: &str = "no-";

/// An option that was not left at its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// The flag as it is typed, or the path in `run.json` of what has no flag.
    pub(super) name: String,
    pub(super) value: String,
    pub(super) default: String,
}

/// The options of a run that differ from the defaults of this version, in order of their paths.
pub(super) fn changed(plan: &Value) -> Vec<Changed> {
    let defaults = ScanOptions::default().to_json().unwrap_or_default();
    let mut found = Vec::new();
    compare("", plan, &defaults, &mut found);
    found
}

fn compare(path: &str, value: &Value, default: &Value, found: &mut Vec<Changed>) {
    if value == default {
        return;
    }
    if let (Value::Object(values), Value::Object(defaults)) = (value, default) {
        for (key, value) in values {
            let below = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            compare(
                &below,
                value,
                defaults.get(key).unwrap_or(&Value::Null),
                found,
            );
        }
        return;
    }
    let flag = flag(path);
    let negated = flag.strip_prefix(NEGATED).is_some();
    found.push(Changed {
        name: format!("--{flag}"),
        value: shown(value, negated),
        default: shown(default, negated),
    });
}

fn flag(path: &str) -> String {
    let known = FLAGS.iter().find(|(known, _)| *known == path);
    known.map_or_else(
        || path.rsplit('.').next().unwrap_or(path).replace('_', "-"),
        |(_, flag)| (*flag).to_owned(),
    )
}

fn shown(value: &Value, negated: bool) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(on) => if *on == negated { "no" } else { "yes" }.into(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(item).collect();
            items.join(", ")
        }
        other => number(other),
    }
}

/// Settings are single numbers, whose digits as a double say nothing.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(n) if value.is_f64() => (n as f32).to_string(),
        _ => value.to_string(),
    }
}

/// A prompt or a region, the way it is typed.
fn item(value: &Value) -> String {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match (
        text("phrase"),
        text("label"),
        text("name"),
        value.get("box"),
    ) {
        (Some(phrase), Some(label), ..) if phrase != label => format!("{phrase}={label}"),
        (Some(phrase), ..) => phrase.to_owned(),
        (_, _, Some(name), Some(Value::Array(sides))) => {
            let sides: Vec<String> = sides.iter().map(number).collect();
            format!("{name}={}", sides.join(","))
        }
        _ => value.to_string(),
    }
}

/// The phrases that were looked for.
pub(super) fn prompts(plan: &Value) -> String {
    plan.get("prompts")
        .map(|p| shown(p, false))
        .unwrap_or_default()
}

/// A model of a run, and what kind of model that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    /// What it did.
    pub(super) role: &'static str,
    pub(super) name: String,
    /// In plain words; empty when nothing is known about it.
    pub(super) kind: String,
    /// The start of the hash of its weights.
    pub(super) weights: String,
}

/// Digits of a hash that are enough to tell weights apart.
const HASH_DIGITS: usize = 12;

/// The models of a run.
pub(super) fn models(run: &RunFile) -> Vec<Model> {
    let weights = |hash: &str| hash.chars().take(HASH_DIGITS).collect();
    let mut models: Vec<Model> = run
        .provider
        .models
        .iter()
        .map(|m| Model {
            role: "found the products",
            name: m.model.clone(),
            kind: match (run.provider.name.as_str(), m.model.as_str()) {
                ("replay", _) => "no model ran in this scan: the detections were taken from a file, \
                     whose hash this is"
                    .into(),
                (_, "shelf-tiny") => format!(
                    "a small model that comes with shelfscan, on {}: it is there to try things out, \
                     and finds less and errs more than full-size SAM 3.1",
                    run.provider.device
                ),
                (_, name) if name.starts_with("sam3") => {
                    format!("full-size SAM 3, on {}", run.provider.device)
                }
                _ => format!("on {}", run.provider.device),
            },
            weights: weights(&m.weights_hash),
        })
        .collect();
    if let Some(embedder) = &run.embedder {
        let full_size = ["small", "base", "large", "giant"]
            .iter()
            .any(|size| embedder.model.starts_with(&format!("dinov2-{size}")));
        models.push(Model {
            role: "told SKUs apart",
            name: embedder.model.clone(),
            kind: if full_size {
                "full-size DINOv2".into()
            } else {
                "a small model such as the pack-tiny that comes with shelfscan: it is there to try \
                 things out, and mixes up more SKUs than full-size DINOv2"
                    .into()
            },
            weights: weights(&embedder.weights_hash),
        });
    }
    models
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use serde_json::json;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn options_at_their_default_are_not_listed_and_others_as_they_are_typed() {
        let mut plan = ScanOptions::default().to_json().unwrap();
        plan["read"].as_object_mut().unwrap().remove("ffmpeg");
        assert_eq!(changed(&plan), []);
        plan["read"]["every"] = json!(3);
        plan["read"]["end_secs"] = json!(2.5);
        plan["outputs"]["masks"] = json!(false);
        plan["prompts"] = json!([
            {"phrase": "can", "label": "can"},
            {"phrase": "price tag", "label": "tag"},
        ]);
        plan["regions"] = json!([{"name": "top", "box": [0.0, 0.0, 9.0, 4.5]}]);
        let rows: Vec<String> = changed(&plan)
            .into_iter()
            .map(|c| format!("{} {} ({})", c.name, c.value, c.default))
            .collect();
        assert_eq!(
            rows,
            [
                "--no-masks yes (no)",
                "--prompt can, price tag=tag (product)",
                "--end 2.5 (none)",
                "--every 3 (1)",
                "--region top=0,0,9,4.5 (none)",
            ]
        );
    }

    #[test]
    fn every_option_has_the_name_of_its_flag() {
        fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    for (key, value) in fields {
                        let below = if path.is_empty() {
                            key.clone()
                        } else {
                            format!("{path}.{key}")
                        };
                        leaves(&below, value, found);
                    }
                }
                _ => found.push(path.to_owned()),
            }
        }
        let mut options = Vec::new();
        let defaults = ScanOptions::default().to_json().unwrap();
        leaves("", &defaults, &mut options);
        let cli = Cli::command();
        let scan = cli.find_subcommand("scan").unwrap();
        let flags: Vec<&str> = scan.get_arguments().filter_map(|a| a.get_long()).collect();
        let without: Vec<&String> = options
            .iter()
            // A resumed scan sets this itself.
            .filter(|path| *path != "read.after_index")
            .filter(|path| !flags.contains(&flag(path).as_str()))
            .collect();
        assert_eq!(without, Vec::<&String>::new());
    }
}
