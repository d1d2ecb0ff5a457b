//! Working memory that is kept between calls.
//!
//! A tile of a product needs up to a few MiB for a moment. Fresh memory of that size costs a page
//! fault per 4 KiB, which was half of the time of a small model, so each thread keeps what it used.

use std::cell::RefCell;

use super::pages;

/// A thread keeps at most this many buffers, and none above [`MAX_KEPT_FLOATS`].
const MAX_KEPT: usize = 4;
/// 32 MiB.
const MAX_KEPT_FLOATS: usize = 8 << 20;
/// One cache line, the width of the widest vector register.
const ALIGN_BYTES: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<AlignedBuffer>> = const { RefCell::new(Vec::new()) };
}

/// Floats that start on a cache line.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut buffer = Self::default();
        buffer.resize(len);
        buffer
    }

    /// Room for `len` floats; what they hold is not said.
    fn resize(&mut self, len: usize) {
        if self.data.len() < self.start + len {
            let pad = ALIGN_BYTES / size_of::<f32>();
            // Dropped first: the old contents are never wanted.
            self.data = Vec::new();
            self.data = pages::zeros(len + pad);
            self.start = self.data.as_ptr().align_offset(ALIGN_BYTES).min(pad);
        }
        self.len = len;
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        &self.data[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data[self.start..self.start + self.len]
    }
}

/// Lends `len` floats of unspecified content to `work`; every float must be written before it is
/// read.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = KEPT
        .with(|kept| kept.borrow_mut().pop())
        .unwrap_or_default();
    buffer.resize(len);
    let result = work(buffer.as_mut_slice());
    KEPT.with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT && buffer.data.len() <= MAX_KEPT_FLOATS {
            kept.push(buffer);
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_few_buffers_and_no_huge_one() {
        fn nest(depth: usize) {
            with_scratch(1000, |slice| {
                slice.fill(depth as f32);
                if depth > 0 {
                    nest(depth - 1);
                }
                assert!(slice.iter().all(|&v| v == depth as f32));
            });
        }
        nest(10 * MAX_KEPT);
        with_scratch(MAX_KEPT_FLOATS + 1, |slice| slice[0] = 1.0);
        KEPT.with(|kept| {
            let kept = kept.borrow();
            assert!(kept.len() <= MAX_KEPT);
            assert!(kept.iter().all(|b| b.data.len() <= MAX_KEPT_FLOATS));
        });
    }

    #[test]
    fn a_buffer_starts_on_a_cache_line() {
        for len in [1, 17, 4096, 100_001] {
            let buffer = AlignedBuffer::zeros(len);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(ALIGN_BYTES), 0);
            assert_eq!(buffer.as_slice().len(), len);
        }
    }
}
