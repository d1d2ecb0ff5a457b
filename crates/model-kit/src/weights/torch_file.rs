//! `.pt` and `.pth`: a zip archive with one pickle and one uncompressed entry per storage.

use std::{collections::BTreeMap, io::Cursor, path::Path};

use super::pickle::{self, Id, Pickled, TensorRef, Value};
use crate::Error;

/// A pickle of a checkpoint is a few hundred kilobytes; a larger one is not a checkpoint.
const PICKLE_LIMIT: usize = 256 << 20;
/// Dictionaries nested deeper than this are not looked into.
const DEPTH_LIMIT: usize = 8;
/// Names under which training programs wrap the dictionary of tensors, in the order tried.
const WRAPPERS: [&str; 6] = [
    "state_dict",
    "model",
    "model_state_dict",
    "teacher",
    "ema",
    "module",
];

/// What a PyTorch file holds.
#[derive(Debug)]
pub(super) struct TorchIndex {
    /// Tensors by key.
    pub(super) tensors: BTreeMap<String, TensorRef>,
    /// Byte range in the file of each storage.
    pub(super) storages: BTreeMap<String, (usize, usize)>,
    /// Entries that are no tensors: `key: what it is`.
    pub(super) skipped: Vec<String>,
}

/// True when the bytes start as a zip archive does.
pub(super) fn looks_like_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// True when the bytes start like PyTorch's format from before 2020, a bare pickle.
pub(super) fn looks_like_old_torch(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x80\x02")
}

pub(super) fn index(path: &Path, bytes: &[u8]) -> Result<TorchIndex, Error> {
    let broken = |reason: String| Error::broken(path, reason);
    let zip =
        |e: zip::result::ZipError| Error::broken(path, format!("the zip archive is damaged ({e})"));
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(zip)?;
    let mut pickle_range = None;
    let mut storages = BTreeMap::new();
    for i in 0..archive.len() {
        let entry = archive.by_index_raw(i).map_err(zip)?;
        let name = entry.name().map_err(zip)?.into_owned();
        // The archive's top folder is named after the file it was saved to.
        let inner = name.split_once('/').map_or("", |(_, inner)| inner);
        let storage = inner.strip_prefix("data/");
        if inner != "data.pkl" && storage.is_none() {
            continue;
        }
        let start = entry
            .data_start()
            .and_then(|s| usize::try_from(s).ok())
            .ok_or_else(|| broken(format!("entry {name} has no data")))?;
        let len = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        if entry.compression() != zip::CompressionMethod::Stored {
            return Err(broken(format!(
                "entry {name} is compressed, which torch.save never does"
            )));
        }
        if start.checked_add(len).is_none_or(|end| end > bytes.len()) {
            return Err(broken(format!(
                "entry {name} reaches past the end of the file"
            )));
        }
        match storage {
            Some(key) => {
                storages.insert(key.to_owned(), (start, len));
            }
            None => pickle_range = Some((start, len)),
        }
    }
    let (start, len) = pickle_range.ok_or_else(|| {
        broken("the archive has no data.pkl, so torch.save did not make it".into())
    })?;
    if len > PICKLE_LIMIT {
        return Err(broken(format!("data.pkl has {len} bytes")));
    }
    let pickled = pickle::parse(&bytes[start..start + len])
        .map_err(|reason| broken(format!("the pickle holds {reason}")))?;
    let mut walk = Walk {
        pickled: &pickled,
        tensors: BTreeMap::new(),
        skipped: Vec::new(),
        // Every value is visited a few times at most, whatever the sharing between dictionaries.
        budget: pickled.values.len().saturating_mul(4),
    };
    walk.start();
    Ok(TorchIndex {
        tensors: walk.tensors,
        storages,
        skipped: walk.skipped,
    })
}

struct Walk<'a> {
    pickled: &'a Pickled,
    tensors: BTreeMap<String, TensorRef>,
    skipped: Vec<String>,
    budget: usize,
}

impl<'a> Walk<'a> {
    /// Finds the dictionary of tensors: the root itself, or the one a training program wrapped.
    fn start(&mut self) {
        let mut at = self.pickled.root;
        for _ in 0..DEPTH_LIMIT {
            let Value::Dict(entries) = &self.pickled.values[at] else {
                break;
            };
            if entries.iter().any(|(_, v)| self.is_tensor(*v)) {
                break;
            }
            let named = |name: &str| {
                entries
                    .iter()
                    .find(|(k, v)| self.text(*k) == Some(name) && self.is_dict(*v))
            };
            let inner = WRAPPERS.iter().find_map(|w| named(w)).or_else(|| {
                let mut dicts = entries.iter().filter(|(_, v)| self.is_dict(*v));
                dicts.next().filter(|_| dicts.next().is_none())
            });
            let Some((key, inner)) = inner else { break };
            let passed_over: Vec<String> = entries
                .iter()
                .filter(|(k, _)| k != key)
                .map(|(k, v)| self.describe(&self.key_text(*k), *v))
                .collect();
            self.skipped.extend(passed_over);
            at = *inner;
        }
        self.collect("", at, 0);
    }

    fn collect(&mut self, prefix: &str, at: Id, depth: usize) {
        let pickled: &'a Pickled = self.pickled;
        let Value::Dict(entries) = &pickled.values[at] else {
            let line = self.describe(
                if prefix.is_empty() {
                    "the file"
                } else {
                    prefix
                },
                at,
            );
            self.skipped.push(line);
            return;
        };
        for (key, value) in entries {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let mut name = self.key_text(*key);
            if !prefix.is_empty() {
                name = format!("{prefix}.{name}");
            }
            match &pickled.values[*value] {
                Value::Tensor(tensor) => {
                    self.tensors.insert(name, tensor.clone());
                }
                Value::Dict(_) if depth < DEPTH_LIMIT => self.collect(&name, *value, depth + 1),
                _ => {
                    let line = self.describe(&name, *value);
                    self.skipped.push(line);
                }
            }
        }
    }

    fn is_tensor(&self, id: Id) -> bool {
        matches!(self.pickled.values[id], Value::Tensor(_))
    }

    fn is_dict(&self, id: Id) -> bool {
        matches!(self.pickled.values[id], Value::Dict(_))
    }

    fn text(&self, id: Id) -> Option<&str> {
        match &self.pickled.values[id] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn key_text(&self, id: Id) -> String {
        match &self.pickled.values[id] {
            // A longer name is no tensor's and would be copied into every message.
            Value::Text(text) => text.chars().take(512).collect(),
            Value::Int(number) => number.to_string(),
            _ => "?".into(),
        }
    }

    fn describe(&self, key: &str, id: Id) -> String {
        let what = match &self.pickled.values[id] {
            Value::None => "None",
            Value::Bool => "a flag",
            Value::Int(_) | Value::Float => "a number",
            Value::Text(_) => "a text",
            Value::Bytes => "bytes",
            Value::Tuple(_) | Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Storage(_) => "a bare storage",
            Value::Tensor(_) => "a tensor",
            Value::Global(name) | Value::Unknown(name) => return format!("{key}: {name}"),
        };
        format!("{key}: {what}")
    }
}
