//! Where the numbers of a tensor lie in a file.

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
pub(super) enum Data {
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
pub(super) struct Entry {
    pub(super) info: TensorInfo,
    pub(super) data: Data,
}

/// Shape and type of the tensor that pieces make; `None` when they do not fit each other.
pub(super) fn planned_info(
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

/// Copies elements of `size` bytes out of a storage, in row-major order of `shape`.
pub(super) fn gather(
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
