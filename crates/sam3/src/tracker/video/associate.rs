//! Which detection belongs to which object.

use super::{VideoOptions, candidates::Candidates, footprint::Footprint};

/// Overlaps of the detections with the objects of a frame, and what follows from them.
#[derive(Debug)]
pub(crate) struct Association {
    objects: usize,
    /// `[candidates, objects]`.
    overlaps: Vec<f32>,
    /// As `overlaps`, with the rows and columns that are ambiguous set to 0.
    clear: Vec<f32>,
}

impl Association {
    pub(crate) fn new(
        found: &Candidates<'_>,
        objects: &[Footprint],
        options: &VideoOptions,
    ) -> Self {
        let n = objects.len();
        let mut overlaps = vec![0.0; found.len() * n];
        for (row, values) in found.rows.iter().zip(overlaps.chunks_exact_mut(n.max(1))) {
            // A detection that is not taken up counts as an empty mask.
            if row.kept {
                for (value, object) in values.iter_mut().zip(objects) {
                    *value = row.footprint.overlap(object, options.match_metric);
                }
            }
        }
        let clear = without_ambiguity(&overlaps, n, options.recondition_overlap);
        Self {
            objects: n,
            overlaps,
            clear,
        }
    }

    fn row<'a>(&self, values: &'a [f32], d: usize) -> &'a [f32] {
        values
            .get(d * self.objects..(d + 1) * self.objects)
            .unwrap_or(&[])
    }

    fn column(&self, t: usize) -> impl Iterator<Item = f32> + '_ {
        self.overlaps
            .iter()
            .skip(t)
            .step_by(self.objects.max(1))
            .copied()
    }

    /// True when some detection overlaps object `t` by at least `overlap`.
    pub(crate) fn is_seen(&self, t: usize, overlap: f32) -> bool {
        self.column(t).any(|v| v >= overlap)
    }

    /// True when detection `d` overlaps no object by `overlap`.
    pub(crate) fn is_free(&self, d: usize, overlap: f32) -> bool {
        self.row(&self.overlaps, d).iter().all(|v| *v < overlap)
    }

    /// The objects detection `d` belongs to beyond doubt.
    pub(crate) fn partners(&self, d: usize, overlap: f32) -> impl Iterator<Item = usize> + '_ {
        let row = self.row(&self.clear, d).iter().enumerate();
        row.filter(move |(_, v)| **v >= overlap).map(|(t, _)| t)
    }

    /// The object detection `d` overlaps most, with the overlap; the first of equals.
    pub(crate) fn best(&self, d: usize) -> Option<(usize, f32)> {
        let mut best: Option<(usize, f32)> = None;
        for (t, value) in self.row(&self.clear, d).iter().enumerate() {
            if best.is_none_or(|(_, most)| *value > most) {
                best = Some((t, *value));
            }
        }
        best
    }
}

/// Sets rows and columns with more than one entry of at least `overlap` to 0.
fn without_ambiguity(overlaps: &[f32], objects: usize, overlap: f32) -> Vec<f32> {
    let mut clear = overlaps.to_vec();
    let mut partners = vec![0u32; objects];
    for (row, cleared) in overlaps
        .chunks_exact(objects.max(1))
        .zip(clear.chunks_exact_mut(objects.max(1)))
    {
        let mut own = 0;
        for (value, count) in row.iter().zip(&mut partners) {
            let close = u32::from(*value >= overlap);
            own += close;
            *count += close;
        }
        if own > 1 {
            cleared.fill(0.0);
        }
    }
    for row in clear.chunks_exact_mut(objects.max(1)) {
        for (value, count) in row.iter_mut().zip(&partners) {
            if *count > 1 {
                *value = 0.0;
            }
        }
    }
    clear
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detection_over_two_objects_belongs_to_neither() {
        let overlaps = [0.9, 0.8, 0.0, 0.0, 0.2, 0.7];
        let clear = without_ambiguity(&overlaps, 3, 0.5);
        assert_eq!(clear, [0.0, 0.0, 0.0, 0.0, 0.2, 0.7]);
    }

    #[test]
    fn an_object_under_two_detections_belongs_to_neither() {
        let overlaps = [0.9, 0.1, 0.6, 0.3];
        assert_eq!(without_ambiguity(&overlaps, 2, 0.5), [0.0, 0.1, 0.0, 0.3]);
    }
}
