//! Fresh memory for large results.
//!
//! A result of a full-size model is tens of MiB that the allocator takes from the system each time.
//! In pages of 4 KiB that is thousands of page faults and more addresses than the processor
//! remembers; asking Linux for large pages took 9 % off the time of SAM 3.1's image trunk.
#![allow(unsafe_code)]

/// Smaller buffers come from memory the process holds already. Two large pages.
const MIN_BYTES: usize = 4 << 20;

/// `len` zeros.
pub(crate) fn zeros(len: usize) -> Vec<f32> {
    let mut buffer = vec![0.0; len];
    prefer_large_pages(&mut buffer);
    buffer
}

/// A copy.
pub(crate) fn copy(floats: &[f32]) -> Vec<f32> {
    let mut buffer = zeros(floats.len());
    buffer.copy_from_slice(floats);
    buffer
}

/// Asks for large pages where nothing was touched yet. It is a wish: any answer will do.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_large_pages(buffer: &mut [f32]) {
    const PAGE: usize = 4096;
    let bytes = std::mem::size_of_val(buffer);
    if bytes < MIN_BYTES {
        return;
    }
    let start = buffer.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(PAGE);
    if skip >= bytes {
        return;
    }
    // SAFETY: the range starts on a page at or after the buffer's first byte and ends at or before
    // its last one, so it lies in memory that is borrowed here alone, and MADV_HUGEPAGE changes
    // neither contents nor access rights of any page.
    unsafe {
        libc::madvise(start.add(skip).cast(), bytes - skip, libc::MADV_HUGEPAGE);
    }
}

/// Other systems choose their page sizes themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_large_pages(_: &mut [f32]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_are_zeros_and_copies_are_equal() {
        for len in [0, 1, 1000, MIN_BYTES / 4, MIN_BYTES / 4 + 12_345] {
            let mut buffer = zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|v| *v == 0.0));
            for (i, v) in buffer.iter_mut().enumerate() {
                *v = i as f32;
            }
            assert_eq!(copy(&buffer), buffer);
        }
    }
}
