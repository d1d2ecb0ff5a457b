//! What a checkpoint file holds, before any tensor is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use candle_core::{DType, Device, Tensor};
use sha2::{Digest, Sha256};

use super::{
    decode::{DecodeFailure, decode},
    entry::{Data, Entry, SourceDtype, TensorInfo, TensorPart, TensorPlan, gather, planned_info},
    hash::{hex, sha256_of_file},
    mapped::MappedFile,
    nearest::{first_few, nearest},
    safetensors_file, torch_entries, torch_file,
};
use crate::Error;

/// The tensors of one safetensors or PyTorch file by name.
///
/// The file is mapped and must not change while the checkpoint is open. Opening reads the header
/// alone, so it takes milliseconds and little memory for a file of any size; a cut or hostile
/// header is an error.
///
/// Sources: the safetensors format description; PyTorch's `torch/serialization.py` for the zip
/// layout.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    file: Arc<MappedFile>,
    entries: BTreeMap<String, Entry>,
    skipped: Vec<String>,
}

impl Checkpoint {
    /// Opens a `.safetensors`, `.pt` or `.pth` file; the content decides, not the name.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be opened, [`Error::Broken`] when it is cut, hostile, of
    /// another kind, or holds no tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::index(MappedFile::open(path.as_ref())?)
    }

    /// Reads a checkpoint that is in memory already, such as one compiled into a program. `name`
    /// stands for the path in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for the file.
    pub fn from_bytes(
        name: &str,
        bytes: impl Into<std::borrow::Cow<'static, [u8]>>,
    ) -> Result<Self, Error> {
        Self::index(MappedFile::from_bytes(name, bytes.into()))
    }

    fn index(file: MappedFile) -> Result<Self, Error> {
        let (path, bytes) = (file.path(), file.bytes());
        let (entries, skipped) = if torch_file::looks_like_zip(bytes) {
            torch_entries::entries(path, bytes)?
        } else if torch_file::looks_like_old_torch(bytes) {
            return Err(Error::broken(
                path,
                "this is PyTorch's format from before 2020; save it again with torch.save",
            ));
        } else {
            (safetensors_file::entries(path, bytes)?, Vec::new())
        };
        if entries.is_empty() {
            let seen = if skipped.is_empty() {
                String::new()
            } else {
                format!("; it holds {}", first_few(&skipped))
            };
            return Err(Error::broken(
                path,
                format!("the file holds no tensor{seen}"),
            ));
        }
        Ok(Self {
            file: Arc::new(file),
            entries,
            skipped,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Keys in alphabetical order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is no tensor left, after keys were taken out.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Shape and type of a tensor.
    pub fn info(&self, key: &str) -> Option<&TensorInfo> {
        self.entries.get(key).map(|e| &e.info)
    }

    /// What a PyTorch file holds besides tensors, as `key: what it is`.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Renames every key; `None` drops the tensor.
    ///
    /// # Errors
    /// [`Error::Broken`] when two keys get one name.
    pub fn renamed(mut self, rename: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut entries = BTreeMap::new();
        for (key, entry) in std::mem::take(&mut self.entries) {
            if let Some(new) = rename(&key)
                && entries.insert(new.clone(), entry).is_some()
            {
                return Err(Error::broken(
                    self.path(),
                    format!("two tensors stand for {new}, one of them as {key}"),
                ));
            }
        }
        self.entries = entries;
        Ok(self)
    }

    /// Strips what stands before `probe`, a key every checkpoint of a model has, from all keys.
    ///
    /// What stands before it has to be made of `words`, such as `module.` or `detector.`, so that
    /// a longer name that ends the same is not taken for the probe. Returns the checkpoint and the
    /// prefix that was stripped, which may be empty; keys without the prefix stay as they are.
    ///
    /// # Errors
    /// [`Error::NoMatch`] when no key ends in the probe, [`Error::Broken`] when several do.
    pub fn without_prefix(self, probe: &str, words: &[&str]) -> Result<(Self, String), Error> {
        let mut found = self
            .keys()
            .filter_map(|key| key.strip_suffix(probe))
            .filter(|prefix| made_of(prefix, words))
            .map(str::to_owned)
            .collect::<Vec<_>>();
        if found.len() > 1 {
            return Err(Error::broken(
                self.path(),
                format!(
                    "{probe} stands below several prefixes: {}",
                    first_few(&found)
                ),
            ));
        }
        let Some(prefix) = found.pop() else {
            return Err(Error::NoMatch {
                path: self.path().to_path_buf(),
                probe: probe.to_owned(),
                nearest: self.nearest(probe),
            });
        };
        let stripped =
            self.renamed(|key| Some(key.strip_prefix(prefix.as_str()).unwrap_or(key).to_owned()))?;
        Ok((stripped, prefix))
    }

    /// Puts tensors together under new keys, for files that split or turn what a model keeps
    /// together. Keys that no plan takes from stay as they are; a plan whose pieces are missing is
    /// left out, so that its key counts as missing.
    ///
    /// # Errors
    /// [`Error::Broken`] when pieces do not fit each other.
    pub fn planned(
        mut self,
        plans: impl IntoIterator<Item = (String, TensorPlan)>,
    ) -> Result<Self, Error> {
        let mut taken = BTreeSet::new();
        let mut made = BTreeMap::new();
        for (key, plan) in plans {
            let pieces: Option<Vec<(Entry, TensorPart)>> = plan
                .parts
                .iter()
                .map(|part| Some((self.entries.get(&part.key)?.clone(), part.clone())))
                .collect();
            let Some(pieces) = pieces.filter(|p| !p.is_empty()) else {
                continue;
            };
            let info = planned_info(&pieces, plan.zeros_before).ok_or_else(|| {
                Error::broken(
                    self.path(),
                    format!("the pieces of {key} do not fit each other"),
                )
            })?;
            taken.extend(plan.parts.into_iter().map(|part| part.key));
            let data = Data::Planned {
                pieces,
                zeros_before: plan.zeros_before,
            };
            made.insert(key, Entry { info, data });
        }
        self.entries.retain(|key, _| !taken.contains(key));
        self.entries.extend(made);
        Ok(self)
    }

    /// Reads one tensor as `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no such key, [`Error::NotFinite`] when it holds a NaN or an
    /// infinity, [`Error::Broken`] when its type is no floating-point type.
    pub fn tensor(&self, key: &str, dtype: DType, device: &Device) -> Result<Tensor, Error> {
        let entry = self.entries.get(key).ok_or_else(|| Error::Missing {
            path: self.path().to_path_buf(),
            key: key.to_owned(),
            shape: String::new(),
            nearest: self.nearest(key),
        })?;
        self.read(entry, dtype, device)
            .map_err(|e| e.into_error(self.path(), key, entry.info.dtype))
    }

    /// Reads a complex table as pairs of real and imaginary part.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is no such key, [`Error::Broken`] when it is not complex.
    pub fn complex(&self, key: &str) -> Result<Vec<[f32; 2]>, Error> {
        let entry = self.entries.get(key);
        let Some(Entry { info, data }) = entry else {
            return Err(Error::Missing {
                path: self.path().to_path_buf(),
                key: key.to_owned(),
                shape: String::new(),
                nearest: self.nearest(key),
            });
        };
        match data {
            Data::Bytes { start, len } if info.dtype == SourceDtype::C64 => {
                let bytes = &self.file.bytes()[*start..start + len];
                let part = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                let pairs = bytes.as_chunks::<8>().0.iter();
                Ok(pairs.map(|b| [part(&b[..4]), part(&b[4..])]).collect())
            }
            _ => Err(Error::broken(
                self.path(),
                format!("table {key} is {:?}, not complex", info.dtype),
            )),
        }
    }

    /// The three existing keys that look most like `key`, joined for a message.
    pub fn nearest(&self, key: &str) -> String {
        nearest(self.keys(), key)
    }

    /// SHA-256 of the whole file in hex, read in pieces.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read any more.
    pub fn sha256(&self) -> Result<String, Error> {
        if self.file.is_file() {
            return sha256_of_file(self.path());
        }
        let mut hash = Sha256::new();
        hash.update(self.file.bytes());
        Ok(hex(hash))
    }

    fn read(&self, entry: &Entry, dtype: DType, device: &Device) -> Result<Tensor, DecodeFailure> {
        let TensorInfo { shape, dtype: from } = &entry.info;
        let bytes = self.file.bytes();
        match &entry.data {
            Data::Bytes { start, len } => {
                let tensor = decode(&bytes[*start..start + len], *from, shape, dtype, device);
                self.file.release(*start, *len);
                tensor
            }
            Data::Strided {
                start,
                len,
                offset,
                stride,
            } => {
                let storage = &bytes[*start..start + len];
                let picked = gather(storage, from.size(), *offset, shape, stride);
                decode(&picked, *from, shape, dtype, device)
            }
            Data::Planned {
                pieces,
                zeros_before,
            } => {
                let mut tensors = Vec::with_capacity(pieces.len());
                for (piece, part) in pieces {
                    let mut tensor = self.read(piece, dtype, device)?;
                    if let Some((first, count)) = part.rows {
                        let rows = tensor.narrow(0, first, count);
                        tensor = rows.map_err(DecodeFailure::Tensor)?;
                    }
                    if let Some(axes) = &part.permute {
                        let turned = tensor.permute(axes.as_slice());
                        tensor = turned.map_err(DecodeFailure::Tensor)?;
                    }
                    tensors.push(tensor);
                }
                let whole = match tensors.as_slice() {
                    [one] => one.contiguous(),
                    many => Tensor::cat(many, 0),
                };
                let whole = whole.and_then(|t| match zeros_before {
                    Some((dim, n)) => t.pad_with_zeros(*dim, *n, 0),
                    None => Ok(t),
                });
                whole.map_err(DecodeFailure::Tensor)
            }
        }
    }
}

fn made_of(mut prefix: &str, words: &[&str]) -> bool {
    while !prefix.is_empty() {
        match words.iter().find_map(|w| prefix.strip_prefix(w)) {
            Some(rest) => prefix = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn temp(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn small() -> Vec<u8> {
        let header = br#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header);
        for v in [1f32, 2.0, 3.0, 4.0] {
            bytes.extend_from_slice(&v.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let whole = small();
        for cut in 0..whole.len() {
            assert!(
                Checkpoint::open(temp(&whole[..cut]).path()).is_err(),
                "{cut}"
            );
        }
        assert!(Checkpoint::open(temp(&whole).path()).is_ok());
    }

    #[test]
    fn a_header_of_two_to_the_63_is_an_error() {
        let mut bytes = small();
        bytes[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
        let error = Checkpoint::open(temp(&bytes).path()).unwrap_err();
        assert!(error.to_string().contains("cut"), "{error}");
    }

    #[test]
    fn bytes_in_memory_read_and_hash_like_the_file() {
        let file = temp(&small());
        let (a, b) = (
            Checkpoint::open(file.path()).unwrap(),
            Checkpoint::from_bytes("built in", small()).unwrap(),
        );
        assert_eq!(a.sha256().unwrap(), b.sha256().unwrap());
        let read = |c: &Checkpoint| c.tensor("a", DType::F32, &Device::Cpu).unwrap();
        assert_eq!(
            read(&a).to_vec2::<f32>().unwrap(),
            read(&b).to_vec2::<f32>().unwrap()
        );
        let error = Checkpoint::from_bytes("built in", vec![1])
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("built in"), "{error}");
    }

    #[test]
    fn values_are_cast_and_a_nan_is_named() {
        let mut bytes = small();
        let file = temp(&bytes);
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let half = checkpoint.tensor("a", DType::F16, &Device::Cpu).unwrap();
        assert_eq!(half.dtype(), DType::F16);
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
        let file = temp(&bytes);
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let error = checkpoint
            .tensor("a", DType::F32, &Device::Cpu)
            .unwrap_err();
        assert!(
            matches!(&error, Error::NotFinite { key, at: 3, .. } if key == "a"),
            "{error}"
        );
    }

    #[test]
    fn pieces_are_cut_turned_stacked_and_padded() {
        let file = temp(&small());
        let part = |rows, permute| TensorPart {
            key: "a".into(),
            rows,
            permute,
        };
        let plan = TensorPlan {
            parts: vec![part(Some((1, 1)), None), part(None, Some(vec![1, 0]))],
            zeros_before: Some((1, 1)),
        };
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let turned = checkpoint
            .clone()
            .planned([("b".to_owned(), plan)])
            .unwrap();
        assert_eq!(turned.keys().collect::<Vec<_>>(), ["b"]);
        let b = turned.tensor("b", DType::F32, &Device::Cpu).unwrap();
        assert_eq!(
            b.to_vec2::<f32>().unwrap(),
            [[0.0, 3.0, 4.0], [0.0, 1.0, 3.0], [0.0, 2.0, 4.0]]
        );
        assert_eq!(turned.info("b").unwrap().shape, b.dims());
        let wrong = TensorPlan {
            parts: vec![part(None, Some(vec![0, 0]))],
            zeros_before: None,
        };
        assert!(checkpoint.planned([("b".to_owned(), wrong)]).is_err());
    }

    #[test]
    fn a_prefix_is_made_of_known_words_alone() {
        assert!(made_of("module.detector.", &["module.", "detector."]));
        assert!(made_of("", &["module."]));
        assert!(!made_of("ema_model.", &["model."]));
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(Checkpoint::open(temp(&bytes).path()));
        }

        #[test]
        fn arbitrary_headers_never_panic(text in "\\{\"a\":\\{\"dtype\":\"(F32|C64|F4)\",\"shape\":\\[[0-9]{0,20}(,[0-9]{1,3}){0,2}\\],\"data_offsets\":\\[[0-9]{1,3},[0-9]{1,20}\\]\\}\\}") {
            let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&[0; 64]);
            if let Ok(c) = Checkpoint::open(temp(&bytes).path()) {
                drop(c.tensor("a", DType::F32, &Device::Cpu));
            }
        }
    }
}
