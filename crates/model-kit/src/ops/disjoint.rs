//! One buffer, written by several tasks in strips that do not overlap.

use std::marker::PhantomData;

/// A mutable slice whose parts are handed out by range instead of by splitting, for outputs whose
/// strips interleave, such as columns of a row-major matrix.
pub(crate) struct DisjointSlice<'a> {
    start: *mut f32,
    len: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer comes from an exclusive borrow that lasts as long as the value, and `part`
// asks its callers to keep the parts apart; f32 is Send.
unsafe impl Send for DisjointSlice<'_> {}
// SAFETY: as above; a shared reference gives nothing but `part`.
unsafe impl Sync for DisjointSlice<'_> {}

impl<'a> DisjointSlice<'a> {
    pub(crate) fn new(data: &'a mut [f32]) -> Self {
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            life: PhantomData,
        }
    }

    /// `data[first..first + len]`, or an empty slice when that is not inside.
    ///
    /// # Safety
    /// No two parts that live at the same time may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, first: usize, len: usize) -> &mut [f32] {
        if first.checked_add(len).is_none_or(|end| end > self.len) {
            return &mut [];
        }
        // SAFETY: the range lies inside the borrowed slice, and the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), len) }
    }
}

/// Splits the columns of a row-major `[rows, columns]` buffer into strips of `strip` columns and
/// calls `work(first column, the strip's part of each row)` for each, in parallel.
pub(crate) fn column_strips(
    data: &mut [f32],
    columns: usize,
    strip: usize,
    work: impl Fn(usize, &mut dyn Iterator<Item = &mut [f32]>) + Sync,
) {
    use rayon::prelude::*;

    if columns == 0 || strip == 0 {
        return;
    }
    let rows = data.len() / columns;
    let parts = DisjointSlice::new(data);
    (0..columns.div_ceil(strip)).into_par_iter().for_each(|i| {
        let first = i * strip;
        let width = strip.min(columns - first);
        let mut lines = (0..rows).map(|row| {
            // SAFETY: row `row` of strip `i`; rows and strips do not overlap, and each is asked
            // for once.
            unsafe { parts.part(row * columns + first, width) }
        });
        work(first, &mut lines);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_cover_every_cell_once() {
        for (rows, columns, strip) in [(1, 1, 1), (3, 10, 4), (7, 64, 64), (5, 65, 16), (2, 3, 9)] {
            let mut data = vec![0.0; rows * columns];
            column_strips(&mut data, columns, strip, |first, lines| {
                for (row, line) in lines.enumerate() {
                    for (i, cell) in line.iter_mut().enumerate() {
                        *cell += (row * columns + first + i) as f32 + 1.0;
                    }
                }
            });
            assert!(data.iter().enumerate().all(|(i, v)| *v == i as f32 + 1.0));
        }
    }

    #[test]
    fn a_part_outside_is_empty() {
        let mut data = [1.0, 2.0];
        let parts = DisjointSlice::new(&mut data);
        // SAFETY: one part at a time.
        unsafe {
            assert!(parts.part(1, 2).is_empty());
            assert!(parts.part(usize::MAX, 2).is_empty());
            assert_eq!(parts.part(1, 1), [2.0]);
        }
    }
}
