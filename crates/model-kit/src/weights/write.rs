//! Writes checkpoints of any size without holding one in memory.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use candle_core::DType;
use half::{bf16, f16};

use super::TensorSpec;
use crate::Error;

/// Numbers produced and written at a time.
const CHUNK: usize = 1 << 18;

/// Writes a safetensors file tensor by tensor, in one element type.
#[derive(Clone, Copy, Debug)]
pub struct SafetensorsWriter {
    dtype: DType,
}

impl SafetensorsWriter {
    /// A writer of `dtype`: `F32`, `F16` or `BF16`.
    pub fn new(dtype: DType) -> Self {
        Self { dtype }
    }

    /// Writes `specs` to `path`. `fill` is called with the index of the tensor in `specs` and the
    /// next piece of it, in row-major order.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk refuses, [`Error::Broken`] for another element type.
    pub fn write(
        &self,
        path: &Path,
        specs: &[TensorSpec],
        mut fill: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        let io = |source| Error::Io {
            path: path.to_path_buf(),
            source,
        };
        let (name, size) = match self.dtype {
            DType::F32 => ("F32", 4),
            DType::F16 => ("F16", 2),
            DType::BF16 => ("BF16", 2),
            other => {
                return Err(Error::broken(
                    path,
                    format!("checkpoints are not written as {other:?}"),
                ));
            }
        };
        let mut header = serde_json::Map::new();
        let mut at = 0usize;
        for spec in specs {
            let end = at + spec.shape.iter().product::<usize>() * size;
            header.insert(
                spec.key.clone(),
                serde_json::json!({
                    "dtype": name,
                    "shape": spec.shape,
                    "data_offsets": [at, end],
                }),
            );
            at = end;
        }
        let mut text = serde_json::Value::Object(header).to_string();
        // Data starts at a multiple of 8, as the format asks.
        while !text.len().is_multiple_of(8) {
            text.push(' ');
        }
        let mut out = BufWriter::new(File::create(path).map_err(io)?);
        out.write_all(&(text.len() as u64).to_le_bytes())
            .and_then(|()| out.write_all(text.as_bytes()))
            .map_err(io)?;
        let mut numbers = vec![0f32; CHUNK];
        let mut bytes = Vec::with_capacity(CHUNK * size);
        for (index, spec) in specs.iter().enumerate() {
            let mut left: usize = spec.shape.iter().product();
            while left > 0 {
                let n = left.min(CHUNK);
                fill(index, &mut numbers[..n]);
                bytes.clear();
                for v in &numbers[..n] {
                    match self.dtype {
                        DType::F16 => bytes.extend_from_slice(&f16::from_f32(*v).to_le_bytes()),
                        DType::BF16 => bytes.extend_from_slice(&bf16::from_f32(*v).to_le_bytes()),
                        _ => bytes.extend_from_slice(&v.to_le_bytes()),
                    }
                }
                out.write_all(&bytes).map_err(io)?;
                left -= n;
            }
        }
        out.flush().map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::weights::Checkpoint;

    #[test]
    fn what_is_written_is_read_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let specs = [
            TensorSpec {
                key: "b".into(),
                shape: vec![2, 2],
            },
            TensorSpec {
                key: "a".into(),
                shape: vec![],
            },
        ];
        let mut next = 0.0;
        SafetensorsWriter::new(DType::BF16)
            .write(file.path(), &specs, |_, out| {
                for v in out {
                    *v = next;
                    next += 1.0;
                }
            })
            .unwrap();
        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let b = checkpoint.tensor("b", DType::F32, &Device::Cpu).unwrap();
        assert_eq!(b.to_vec2::<f32>().unwrap(), [[0.0, 1.0], [2.0, 3.0]]);
        let a = checkpoint.tensor("a", DType::F32, &Device::Cpu).unwrap();
        assert_eq!(a.to_scalar::<f32>().unwrap(), 4.0);
    }
}
