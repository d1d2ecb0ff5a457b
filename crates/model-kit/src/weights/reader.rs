//! Hands tensors to a model by path and shape, and accounts for every one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor};

use super::{Checkpoint, nearest::nearest};
use crate::Error;

/// Name and shape of a tensor that a model wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Full key.
    pub key: String,
    /// Sizes of the dimensions.
    pub shape: Vec<usize>,
}

/// What a load came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Tensors given to the model.
    pub tensors: usize,
    /// Numbers in them.
    pub parameters: usize,
    /// Tensors of the file that were left out on purpose, each with the reason.
    pub ignored: Vec<(String, &'static str)>,
}

#[derive(Debug, Default)]
struct Ledger {
    read: BTreeMap<String, Vec<usize>>,
    problems: Vec<String>,
    ignored: BTreeMap<String, &'static str>,
}

#[derive(Debug)]
struct Shared {
    /// None while only the wanted names and shapes are recorded.
    checkpoint: Option<Checkpoint>,
    ledger: Mutex<Ledger>,
}

/// A checkpoint seen from one path of a model, such as `encoder.layers.3`.
///
/// Readers made with [`pp`](Self::pp) share one ledger. A tensor that is missing or has another
/// shape is noted and stood in for by zeros, so that [`finish`](Self::finish), which a loader must
/// call before it hands out a model, can name everything that is wrong at once.
#[derive(Clone, Debug)]
pub struct WeightReader {
    shared: Arc<Shared>,
    prefix: String,
    dtype: DType,
    device: Device,
}

impl WeightReader {
    /// Reads from `checkpoint` and converts to `dtype` on `device`.
    pub fn new(checkpoint: Checkpoint, dtype: DType, device: &Device) -> Self {
        Self::with(Some(checkpoint), dtype, device)
    }

    /// Reads from no file: every tensor is zeros that take no memory, and
    /// [`specs`](Self::specs) then lists what a model wants.
    pub fn recording(dtype: DType, device: &Device) -> Self {
        Self::with(None, dtype, device)
    }

    fn with(checkpoint: Option<Checkpoint>, dtype: DType, device: &Device) -> Self {
        Self {
            shared: Arc::new(Shared {
                checkpoint,
                ledger: Mutex::default(),
            }),
            prefix: String::new(),
            dtype,
            device: device.clone(),
        }
    }

    /// The same reader one step down the path.
    #[must_use]
    pub fn pp(&self, step: impl std::fmt::Display) -> Self {
        let mut inner = self.clone();
        inner.prefix = self.key(&step.to_string());
        inner
    }

    /// The same reader with another target type, for the parts of a model that stay in `f32`.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        let mut inner = self.clone();
        inner.dtype = dtype;
        inner
    }

    /// Target type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Target device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Full key of a name below this path.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.prefix)
        }
    }

    /// True when the file holds `name` below this path. Always true while recording.
    pub fn has(&self, name: &str) -> bool {
        match &self.shared.checkpoint {
            Some(c) => c.info(&self.key(name)).is_some(),
            None => true,
        }
    }

    /// Shape in the file of `name` below this path.
    pub fn shape_of(&self, name: &str) -> Option<Vec<usize>> {
        let checkpoint = self.shared.checkpoint.as_ref()?;
        checkpoint.info(&self.key(name)).map(|i| i.shape.clone())
    }

    /// The tensor `name` below this path, which must have `shape`.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and other failures of reading. A missing tensor or another shape is
    /// reported by [`finish`](Self::finish); until then zeros stand in for it.
    pub fn get(&self, shape: impl Into<Shape>, name: &str) -> Result<Tensor, Error> {
        let shape = shape.into();
        let key = self.key(name);
        let zeros = || {
            Tensor::zeros(1, self.dtype, &self.device)
                .and_then(|t| t.broadcast_as(&shape))
                .map_err(|source| Error::Tensor {
                    what: format!("making room for {key}"),
                    source,
                })
        };
        let Some(checkpoint) = &self.shared.checkpoint else {
            self.ledger()
                .read
                .insert(key.clone(), shape.dims().to_vec());
            return zeros();
        };
        if let Some(problem) = problem_with(checkpoint, &key, &shape) {
            let mut ledger = self.ledger();
            ledger.problems.push(problem);
            // Named once already, so it is not unused as well.
            ledger.ignored.insert(key.clone(), "of another shape");
            drop(ledger);
            return zeros();
        }
        let tensor = checkpoint.tensor(&key, self.dtype, &self.device)?;
        self.ledger().read.insert(key, shape.dims().to_vec());
        Ok(tensor)
    }

    /// Marks every key below this path that `which` accepts as left out on purpose. The key is
    /// given without this reader's path.
    pub fn ignore(&self, reason: &'static str, which: impl Fn(&str) -> bool) {
        let Some(checkpoint) = &self.shared.checkpoint else {
            return;
        };
        let mut ledger = self.ledger();
        for key in checkpoint.keys() {
            let below = if self.prefix.is_empty() {
                Some(key)
            } else {
                key.strip_prefix(self.prefix.as_str())
                    .and_then(|k| k.strip_prefix('.'))
            };
            if below.is_some_and(&which) {
                ledger.ignored.insert(key.to_owned(), reason);
            }
        }
    }

    /// A tensor the file must hold although this model does not read it, such as one that another
    /// model on the same file reads. Its shape is checked, its data is not touched.
    pub fn expect(&self, shape: impl Into<Shape>, name: &str, reason: &'static str) {
        let shape = shape.into();
        let key = self.key(name);
        let Some(checkpoint) = &self.shared.checkpoint else {
            self.ledger().read.insert(key, shape.dims().to_vec());
            return;
        };
        let problem = problem_with(checkpoint, &key, &shape);
        let mut ledger = self.ledger();
        ledger.problems.extend(problem);
        ledger.ignored.insert(key, reason);
    }

    /// A tensor the file may hold and no model reads, such as a layer that training leaves behind.
    pub fn leave(&self, shape: impl Into<Shape>, name: &str, reason: &'static str) {
        if self.has(name) {
            self.expect(shape, name, reason);
        }
    }

    /// The complex table `name` below this path as pairs of real and imaginary part, when the file
    /// holds one. Such tables can be computed, so a file without them misses nothing.
    ///
    /// # Errors
    /// [`Error::Broken`] when it is there and not complex.
    pub fn complex_table(&self, name: &str) -> Result<Option<Vec<[f32; 2]>>, Error> {
        let key = self.key(name);
        let Some(checkpoint) = &self.shared.checkpoint else {
            return Ok(None);
        };
        if checkpoint.info(&key).is_none() {
            return Ok(None);
        }
        let table = checkpoint.complex(&key)?;
        self.ledger().ignored.insert(key, "computed at start");
        Ok(Some(table))
    }

    /// The file's path for messages; empty while recording.
    pub fn path(&self) -> PathBuf {
        let checkpoint = self.shared.checkpoint.as_ref();
        checkpoint.map_or_else(PathBuf::new, |c| c.path().to_path_buf())
    }

    /// Names and shapes of everything that was asked for, in alphabetical order.
    pub fn specs(&self) -> Vec<TensorSpec> {
        self.ledger()
            .read
            .iter()
            .map(|(key, shape)| TensorSpec {
                key: key.clone(),
                shape: shape.clone(),
            })
            .collect()
    }

    /// Settles the account: nothing missing, nothing of another shape, nothing unread.
    ///
    /// # Errors
    /// [`Error::Unaccounted`] that names the file, each tensor and, for a missing one, the nearest
    /// existing keys.
    pub fn finish(&self) -> Result<LoadReport, Error> {
        let ledger = self.ledger();
        let mut unused = Vec::new();
        let mut ignored = Vec::new();
        let mut path = PathBuf::new();
        if let Some(checkpoint) = &self.shared.checkpoint {
            path = checkpoint.path().to_path_buf();
            for key in checkpoint.keys().filter(|k| !ledger.read.contains_key(*k)) {
                match ledger.ignored.get(key) {
                    Some(reason) => ignored.push((key.to_owned(), *reason)),
                    None => unused.push(key.to_owned()),
                }
            }
            if ledger.read.is_empty() {
                return Err(Error::NoMatch {
                    path,
                    probe: ledger.problems.first().cloned().unwrap_or_default(),
                    nearest: nearest(checkpoint.keys(), "weight"),
                });
            }
        }
        if ledger.problems.is_empty() && unused.is_empty() {
            let mut total = 0;
            for shape in ledger.read.values() {
                total += shape.iter().product::<usize>();
            }
            return Ok(LoadReport {
                tensors: ledger.read.len(),
                parameters: total,
                ignored,
            });
        }
        let distinct: BTreeSet<String> = ledger.problems.iter().cloned().collect();
        Err(Error::Unaccounted {
            path,
            problems: distinct.into_iter().collect(),
            unused,
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Each change is one insert, so a panic elsewhere leaves the ledger whole.
        self.shared
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What keeps `key` from being read as `shape`, in one sentence.
fn problem_with(checkpoint: &Checkpoint, key: &str, shape: &Shape) -> Option<String> {
    match checkpoint.info(key) {
        Some(info) if info.shape == shape.dims() => None,
        Some(info) => Some(format!(
            "{key} has shape {:?} where {:?} is expected",
            info.shape,
            shape.dims()
        )),
        None => Some(format!(
            "{key} of shape {:?} is missing (nearest: {})",
            shape.dims(),
            checkpoint.nearest(key)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::SafetensorsWriter;

    fn checkpoint(keys: &[(&str, &[usize])]) -> (tempfile::NamedTempFile, Checkpoint) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let specs: Vec<TensorSpec> = keys
            .iter()
            .map(|(key, shape)| TensorSpec {
                key: (*key).into(),
                shape: shape.to_vec(),
            })
            .collect();
        SafetensorsWriter::new(DType::F32)
            .write(file.path(), &specs, |_, out| out.fill(0.5))
            .unwrap();
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        (file, checkpoint)
    }

    #[test]
    fn a_complete_read_reports_its_counts() {
        let (_file, c) = checkpoint(&[("a.weight", &[2, 3]), ("a.bias", &[2])]);
        let reader = WeightReader::new(c, DType::F32, &Device::Cpu);
        let a = reader.pp("a");
        a.get((2, 3), "weight").unwrap();
        a.get(2, "bias").unwrap();
        let report = reader.finish().unwrap();
        assert_eq!((report.tensors, report.parameters), (2, 8));
    }

    #[test]
    fn a_missing_an_unread_and_a_misshapen_tensor_are_all_named_at_once() {
        let (file, c) = checkpoint(&[("a.weight", &[2, 3]), ("a.bios", &[2]), ("b", &[4])]);
        let reader = WeightReader::new(c, DType::F32, &Device::Cpu);
        reader.get(4, "b").unwrap();
        reader.pp("a").get((3, 2), "weight").unwrap();
        reader.pp("a").get(2, "bias").unwrap();
        let text = reader.finish().unwrap_err().to_string();
        for part in [
            "a.bias of shape [2] is missing",
            "nearest: a.bios",
            "a.weight has shape [2, 3] where [3, 2] is expected",
            "unused: a.bios",
            file.path().to_str().unwrap(),
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn a_checkpoint_of_which_nothing_fits_is_an_error_of_its_own() {
        let (_file, c) = checkpoint(&[("x", &[1])]);
        let reader = WeightReader::new(c, DType::F32, &Device::Cpu);
        reader.get(2, "y").unwrap();
        assert!(matches!(reader.finish(), Err(Error::NoMatch { .. })));
    }

    #[test]
    fn what_is_ignored_is_reported_with_its_reason() {
        let (_file, c) = checkpoint(&[("x", &[1]), ("rope.freqs_cis", &[1])]);
        let reader = WeightReader::new(c, DType::F32, &Device::Cpu);
        reader.get(1, "x").unwrap();
        reader.ignore("computed at start", |key| key.ends_with("freqs_cis"));
        let report = reader.finish().unwrap();
        assert_eq!(
            report.ignored,
            [("rope.freqs_cis".to_owned(), "computed at start")]
        );
    }

    #[test]
    fn recording_lists_the_wanted_shapes_without_memory() {
        let reader = WeightReader::recording(DType::F32, &Device::Cpu);
        reader.pp("huge").get((100_000, 100_000), "weight").unwrap();
        assert_eq!(reader.specs()[0].shape, [100_000, 100_000]);
    }
}
