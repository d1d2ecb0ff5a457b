//! Numbers of a file to numbers of a tensor.

use candle_core::{DType, Device, Shape, Tensor};
use half::{bf16, f16};

use super::SourceDtype;
use crate::Error;

/// Why bytes did not become a tensor.
pub(super) enum DecodeFailure {
    /// A NaN or an infinity at this element.
    NotFinite(usize),
    /// The pair of source and target type has no meaning.
    Unsupported,
    /// candle refused.
    Tensor(candle_core::Error),
}

impl DecodeFailure {
    pub(super) fn into_error(self, path: &std::path::Path, key: &str, from: SourceDtype) -> Error {
        match self {
            Self::NotFinite(at) => Error::NotFinite {
                path: path.to_path_buf(),
                key: key.to_owned(),
                at,
            },
            Self::Unsupported => Error::broken(
                path,
                format!("tensor {key} has type {from:?}, which no model weight has"),
            ),
            Self::Tensor(source) => Error::Tensor {
                what: format!("reading {key}"),
                source,
            },
        }
    }
}

/// Decodes contiguous little-endian elements into a tensor of `target` type on `device`.
///
/// Every element is checked to be finite; a narrower target that overflows counts as not finite.
pub(super) fn decode(
    bytes: &[u8],
    from: SourceDtype,
    shape: &[usize],
    target: DType,
    device: &Device,
) -> Result<Tensor, DecodeFailure> {
    match target {
        DType::F32 => build::<f32>(bytes, from, shape, device, |v| v, f32::is_finite),
        DType::F16 => build::<f16>(bytes, from, shape, device, f16::from_f32, f16::is_finite),
        DType::BF16 => build::<bf16>(bytes, from, shape, device, bf16::from_f32, bf16::is_finite),
        _ => Err(DecodeFailure::Unsupported),
    }
}

fn build<T: candle_core::WithDType>(
    bytes: &[u8],
    from: SourceDtype,
    shape: &[usize],
    device: &Device,
    cast: impl Fn(f32) -> T,
    finite: impl Fn(T) -> bool,
) -> Result<Tensor, DecodeFailure> {
    let values: Vec<T> = match from {
        SourceDtype::F32 => collect(bytes, |b: [u8; 4]| cast(f32::from_le_bytes(b))),
        SourceDtype::F16 => collect(bytes, |b: [u8; 2]| cast(f16::from_le_bytes(b).to_f32())),
        SourceDtype::BF16 => collect(bytes, |b: [u8; 2]| cast(bf16::from_le_bytes(b).to_f32())),
        SourceDtype::F64 => collect(bytes, |b: [u8; 8]| cast(f64::from_le_bytes(b) as f32)),
        _ => return Err(DecodeFailure::Unsupported),
    };
    if let Some(at) = values.iter().position(|v| !finite(*v)) {
        return Err(DecodeFailure::NotFinite(at));
    }
    Tensor::from_vec(values, Shape::from(shape), device).map_err(DecodeFailure::Tensor)
}

fn collect<T, const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
}
