//! Writes small `.pt` files the way `torch.save` lays them out.
#![allow(unreachable_pub)]

use std::io::Write;

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// One tensor of a `.pt` file over a storage of its own.
pub struct TorchTensor {
    pub key: String,
    /// Class name of the storage, such as `FloatStorage`.
    pub storage: &'static str,
    pub bytes: Vec<u8>,
    pub elements: usize,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub stride: Vec<usize>,
}

impl TorchTensor {
    pub fn f32(key: &str, shape: &[usize], values: &[f32]) -> Self {
        Self {
            key: key.into(),
            storage: "FloatStorage",
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            elements: values.len(),
            offset: 0,
            shape: shape.to_vec(),
            stride: row_major(shape),
        }
    }
}

pub fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut stride = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        stride[i - 1] = stride[i] * shape[i];
    }
    stride
}

/// `wrappers` are the keys of dictionaries around the tensors, outermost first; `extra` is pickled
/// beside the tensors' dictionary under the key `config`.
pub fn write_torch(tensors: &[TorchTensor], wrappers: &[&str], extra: &[u8]) -> Vec<u8> {
    let mut pickle = vec![0x80, 2];
    for wrapper in wrappers {
        pickle.extend(b"}(");
        text(&mut pickle, wrapper);
    }
    pickle.extend(b"ccollections\nOrderedDict\n)R(");
    for (i, tensor) in tensors.iter().enumerate() {
        text(&mut pickle, &tensor.key);
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut pickle, "storage");
        pickle.extend(format!("ctorch\n{}\n", tensor.storage).bytes());
        text(&mut pickle, &i.to_string());
        text(&mut pickle, "cpu");
        int(&mut pickle, tensor.elements);
        pickle.extend(b"tQ");
        int(&mut pickle, tensor.offset);
        ints(&mut pickle, &tensor.shape);
        ints(&mut pickle, &tensor.stride);
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u");
    for wrapper in wrappers {
        if !extra.is_empty() && *wrapper == *wrappers.last().unwrap() {
            text(&mut pickle, "config");
            pickle.extend(extra);
        }
        pickle.extend(b"u");
    }
    pickle.extend(b".");

    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let plain = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file("archive/data.pkl", plain).unwrap();
    zip.write_all(&pickle).unwrap();
    for (i, tensor) in tensors.iter().enumerate() {
        zip.start_file(format!("archive/data/{i}"), plain).unwrap();
        zip.write_all(&tensor.bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.bytes());
}

fn int(out: &mut Vec<u8>, value: usize) {
    out.push(b'J');
    out.extend((value as i32).to_le_bytes());
}

fn ints(out: &mut Vec<u8>, values: &[usize]) {
    out.push(b'(');
    for value in values {
        int(out, *value);
    }
    out.push(b't');
}
