//! Tensors of a PyTorch file, checked against the bytes that are there.

use std::{collections::BTreeMap, path::Path};

use super::{
    entry::{Data, Entry, TensorInfo},
    torch_file,
};
use crate::Error;

type Indexed = (BTreeMap<String, Entry>, Vec<String>);

/// Every tensor of the file by name, and what else it holds.
pub(super) fn entries(path: &Path, bytes: &[u8]) -> Result<Indexed, Error> {
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
    let mut expected = 1usize;
    for (n, s) in shape.iter().zip(stride).rev() {
        if *n != 1 && *s != expected {
            return false;
        }
        expected = expected.saturating_mul(*n);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_past_the_data_are_refused() {
        assert_eq!(last_element(&[2, 3], &[3, 1], 4), Some(10));
        assert_eq!(last_element(&[2], &[usize::MAX], 1), None);
        assert_eq!(last_element(&[0, 5], &[1, 1], 7), Some(7));
        assert_eq!(last_element(&[2], &[1, 1], 0), None);
    }
}
