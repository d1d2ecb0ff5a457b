//! What a checkpoint file holds, before any tensor is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::Path,
    sync::Arc,
};

use candle_core::{DType, Device, Tensor};
use sha2::{Digest, Sha256};

use super::{
    decode::{DecodeFailure, decode},
    mapped::MappedFile,
    torch_file,
};
use crate::Error;

/// Element type of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum SourceDtype {
    F64,
    F32,
    F16,
    BF16,
    /// Two `f32`: real and imaginary part.
    C64,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
    /// Anything else a safetensors header may name.
    Other,
}

impl SourceDtype {
    /// Bytes of one element; 0 for [`SourceDtype::Other`].
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::C64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::Other => 0,
        }
    }
}

/// Shape and type of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Sizes of the dimensions.
    pub shape: Vec<usize>,
    /// Element type in the file.
    pub dtype: SourceDtype,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// One piece of a tensor that a checkpoint of another layout spreads over several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorPart {
    /// The key in the file.
    pub key: String,
    /// Rows of the file's tensor to take, first and count; all of them when absent.
    pub rows: Option<(usize, usize)>,
    /// Order of the file's dimensions in the wanted tensor, when it differs.
    pub permute: Option<Vec<usize>>,
}

/// How a tensor is put together from those of a checkpoint of another layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorPlan {
    /// The pieces, stacked along the first dimension.
    pub parts: Vec<TensorPart>,
    /// Zeros put before the result: along which dimension, and how many.
    pub zeros_before: Option<(usize, usize)>,
}

#[derive(Clone, Debug)]
enum Data {
    /// One run of bytes in the file.
    Bytes { start: usize, len: usize },
    /// Elements picked with steps from a storage.
    Strided {
        start: usize,
        len: usize,
        offset: usize,
        stride: Vec<usize>,
    },
    /// Put together from other tensors.
    Planned {
        pieces: Vec<(Entry, TensorPart)>,
        zeros_before: Option<(usize, usize)>,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    info: TensorInfo,
    data: Data,
}

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
            torch_entries(path, bytes)?
        } else if torch_file::looks_like_old_torch(bytes) {
            return Err(Error::broken(
                path,
                "this is PyTorch's format from before 2020; save it again with torch.save",
            ));
        } else {
            (safetensors_entries(path, bytes)?, Vec::new())
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

/// SHA-256 of a file in hex, read in pieces.
pub(crate) fn sha256_of_file(path: &Path) -> Result<String, Error> {
    let io = |source| Error::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(io)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    Ok(hex(hash))
}

fn hex(hash: Sha256) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    hash.finalize()
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// The three of `keys` that look most like `key`, joined for a message.
///
/// The path's last parts weigh most, because a wrong prefix or a wrong last word is what goes wrong.
pub(super) fn nearest<'a>(keys: impl Iterator<Item = &'a str>, key: &str) -> String {
    let mut ranked: Vec<(usize, &str)> = keys
        .map(|other| {
            let tail = common(key.bytes().rev(), other.bytes().rev());
            let head = common(key.bytes(), other.bytes());
            let length_gap = key.len().abs_diff(other.len());
            ((2 * tail + head).saturating_sub(length_gap / 2), other)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let names: Vec<&str> = ranked.into_iter().take(3).map(|(_, name)| name).collect();
    names.join(", ")
}

fn common(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(x, y)| x == y).count()
}

/// The first items of a list for a message.
pub(super) fn first_few(items: &[String]) -> String {
    let mut some: Vec<String> = items.iter().take(5).cloned().collect();
    if items.len() > some.len() {
        some.push(format!("and {} more", items.len() - some.len()));
    }
    some.join(", ")
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

fn planned_info(
    pieces: &[(Entry, TensorPart)],
    zeros_before: Option<(usize, usize)>,
) -> Option<TensorInfo> {
    let mut whole: Option<TensorInfo> = None;
    for (entry, part) in pieces {
        let mut shape = entry.info.shape.clone();
        if let Some((first, count)) = part.rows {
            let rows = shape.first_mut()?;
            first.checked_add(count).filter(|end| end <= rows)?;
            *rows = count;
        }
        if let Some(axes) = &part.permute {
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            if sorted.iter().copied().ne(0..shape.len()) {
                return None;
            }
            shape = axes.iter().map(|a| shape[*a]).collect();
        }
        match &mut whole {
            None => {
                whole = Some(TensorInfo {
                    shape,
                    dtype: entry.info.dtype,
                });
            }
            Some(info) => {
                if info.shape.get(1..)? != shape.get(1..)? {
                    return None;
                }
                info.shape[0] += shape[0];
            }
        }
    }
    let mut info = whole?;
    if let Some((dim, n)) = zeros_before {
        *info.shape.get_mut(dim)? += n;
    }
    Some(info)
}

fn gather(
    storage: &[u8],
    size: usize,
    offset: usize,
    shape: &[usize],
    stride: &[usize],
) -> Vec<u8> {
    let total: usize = shape.iter().product();
    let mut out = Vec::with_capacity(total * size);
    let mut index = vec![0usize; shape.len()];
    for _ in 0..total {
        let at: usize = offset + index.iter().zip(stride).map(|(i, s)| i * s).sum::<usize>();
        out.extend_from_slice(&storage[at * size..(at + 1) * size]);
        for (i, n) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
    out
}

fn safetensors_entries(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, Entry>, Error> {
    let damaged = |e: safetensors::SafeTensorError| {
        Error::broken(
            path,
            format!("the file is cut or not a safetensors or PyTorch checkpoint ({e})"),
        )
    };
    let (header, metadata) = safetensors::SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let data_start = header + 8;
    let mut entries = BTreeMap::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else {
            continue;
        };
        let (start, end) = info.data_offsets;
        entries.insert(
            name,
            Entry {
                info: TensorInfo {
                    shape: info.shape.clone(),
                    dtype: safetensors_dtype(info.dtype),
                },
                data: Data::Bytes {
                    start: data_start + start,
                    len: end - start,
                },
            },
        );
    }
    Ok(entries)
}

fn safetensors_dtype(dtype: safetensors::Dtype) -> SourceDtype {
    use safetensors::Dtype as D;
    match dtype {
        D::F64 => SourceDtype::F64,
        D::F32 => SourceDtype::F32,
        D::F16 => SourceDtype::F16,
        D::BF16 => SourceDtype::BF16,
        D::C64 => SourceDtype::C64,
        D::I64 => SourceDtype::I64,
        D::I32 => SourceDtype::I32,
        D::I16 => SourceDtype::I16,
        D::I8 => SourceDtype::I8,
        D::U8 => SourceDtype::U8,
        D::BOOL => SourceDtype::Bool,
        _ => SourceDtype::Other,
    }
}

type Indexed = (BTreeMap<String, Entry>, Vec<String>);

fn torch_entries(path: &Path, bytes: &[u8]) -> Result<Indexed, Error> {
    let index = torch_file::index(path, bytes)?;
    let mut entries = BTreeMap::new();
    for (key, tensor) in index.tensors {
        let size = tensor.storage.dtype.size();
        let Some(&(start, len)) = index.storages.get(&tensor.storage.key) else {
            return Err(Error::broken(
                path,
                format!("the data of tensor {key} is not in the file"),
            ));
        };
        let fits = last_element(&tensor.shape, &tensor.stride, tensor.offset)
            .is_some_and(|last| last.checked_mul(size).is_some_and(|end| end <= len));
        if !fits {
            return Err(Error::broken(
                path,
                format!("tensor {key} reaches past the end of its data"),
            ));
        }
        let elements: usize = tensor.shape.iter().product();
        // Overlapping steps can name a huge tensor over little data.
        if elements.checked_mul(size).is_none_or(|n| n > bytes.len()) {
            return Err(Error::broken(
                path,
                format!(
                    "tensor {key} of shape {:?} is larger than the file",
                    tensor.shape
                ),
            ));
        }
        let data = if contiguous(&tensor.shape, &tensor.stride) {
            Data::Bytes {
                start: start + tensor.offset * size,
                len: elements * size,
            }
        } else {
            Data::Strided {
                start,
                len,
                offset: tensor.offset,
                stride: tensor.stride,
            }
        };
        entries.insert(
            key,
            Entry {
                info: TensorInfo {
                    shape: tensor.shape,
                    dtype: tensor.storage.dtype,
                },
                data,
            },
        );
    }
    Ok((entries, index.skipped))
}

/// One past the index of the last element; `None` on overflow or a rank mismatch.
fn last_element(shape: &[usize], stride: &[usize], offset: usize) -> Option<usize> {
    if shape.len() != stride.len() {
        return None;
    }
    let mut last = offset;
    let mut total = 1usize;
    for (n, s) in shape.iter().zip(stride) {
        total = total.checked_mul(*n)?;
        last = last.checked_add(n.saturating_sub(1).checked_mul(*s)?)?;
    }
    if total == 0 {
        Some(offset)
    } else {
        last.checked_add(1)
    }
}

fn contiguous(shape: &[usize], stride: &[usize]) -> bool {
    let mut expected = 1;
    for (n, s) in shape.iter().zip(stride).rev() {
        if *n != 1 && *s != expected {
            return false;
        }
        expected *= n;
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
    fn the_nearest_keys_share_an_ending() {
        let keys = ["model.neck.bias", "model.neck.weight", "other.thing", "x"];
        let text = nearest(keys.into_iter(), "neck.weight");
        assert!(text.starts_with("model.neck.weight"), "{text}");
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

    #[test]
    fn steps_past_the_data_are_refused() {
        assert_eq!(last_element(&[2, 3], &[3, 1], 4), Some(10));
        assert_eq!(last_element(&[2], &[usize::MAX], 1), None);
        assert_eq!(last_element(&[0, 5], &[1, 1], 7), Some(7));
        assert_eq!(last_element(&[2], &[1, 1], 0), None);
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
