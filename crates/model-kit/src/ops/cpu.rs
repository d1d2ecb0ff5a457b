//! Borrowing the floats of a CPU tensor.

use candle_core::{CpuStorage, DType, Device, Layout, Result, Storage, StorageRef, Tensor};

use super::pages;

/// The f32 storage of a CPU tensor, held for reading.
pub(crate) struct CpuFloats<'a> {
    guard: StorageRef<'a>,
    layout: &'a Layout,
}

impl<'a> CpuFloats<'a> {
    /// `None` when the tensor is of another dtype or on another device.
    pub(crate) fn of(tensor: &'a Tensor) -> Option<Self> {
        if !is_cpu_f32(tensor) {
            return None;
        }
        let (guard, layout) = tensor.storage_and_layout();
        Some(Self { guard, layout })
    }

    /// Every float from the tensor's first one on; strides tell which belong to it.
    pub(crate) fn data(&self) -> &[f32] {
        match &*self.guard {
            Storage::Cpu(CpuStorage::F32(data)) => &data[self.layout.start_offset()..],
            _ => &[],
        }
    }

    /// The floats of a contiguous tensor.
    pub(crate) fn contiguous(&self) -> &[f32] {
        &self.data()[..self.layout.shape().elem_count()]
    }

    pub(crate) fn strides(&self) -> &[usize] {
        self.layout.stride()
    }
}

pub(crate) fn is_cpu_f32(tensor: &Tensor) -> bool {
    tensor.dtype() == DType::F32 && tensor.device().is_cpu()
}

/// The tensor's floats in order, copied.
pub(crate) fn to_floats(tensor: &Tensor) -> Result<Vec<f32>> {
    match with_floats(tensor, pages::copy)? {
        Some(floats) => Ok(floats),
        None => tensor.flatten_all()?.to_vec1(),
    }
}

pub(crate) fn from_floats(data: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(data, shape, &Device::Cpu)
}

/// Calls `work` with the floats of a contiguous form of `tensor`; `None` off the CPU.
pub(crate) fn with_floats<R>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> R) -> Result<Option<R>> {
    if !is_cpu_f32(tensor) {
        return Ok(None);
    }
    let tensor = tensor.contiguous()?;
    Ok(CpuFloats::of(&tensor).map(|floats| work(floats.contiguous())))
}
