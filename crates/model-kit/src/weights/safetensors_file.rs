//! The header of a safetensors file.

use std::{collections::BTreeMap, path::Path};

use super::entry::{Data, Entry, SourceDtype, TensorInfo};
use crate::Error;

/// Every tensor of the file by name.
pub(super) fn entries(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, Entry>, Error> {
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
