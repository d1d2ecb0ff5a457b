//! The frames of a run: which of them show it best, and what stands in those.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use serde::Deserialize;

/// Longest line that is read; a frame of 1,000 masks of a 4K picture stays far below it.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// A line of `detections.jsonl` without what a page does not draw.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FrameLine {
    pub(super) frame_index: u64,
    #[serde(default)]
    pub(super) time_secs: Option<f64>,
    #[serde(default)]
    pub(super) width: Option<u32>,
    #[serde(default)]
    pub(super) height: Option<u32>,
    pub(super) detections: Vec<DetectionLine>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct DetectionLine {
    /// `[x0, y0, x1, y1]` in source pixels; `None` where the model gave no finite value.
    #[serde(rename = "box")]
    pub(super) bbox: [Option<f32>; 4],
    #[serde(default)]
    pub(super) track_id: Option<u64>,
}

/// What is kept of a frame while the best are looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FrameSketch {
    /// Time in seconds of the source's clock, or the index where there is none.
    pub(super) secs: f64,
    /// Facings in view.
    pub(super) facings: u32,
    /// Where its line starts in the file, in bytes.
    offset: u64,
}

/// Sketches of all frames, and why the file ends early when it does.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) sketches: Vec<FrameSketch>,
    pub(super) problem: Option<String>,
}

impl Frames {
    /// Reads the file once. `facing_of` gives the facing of a track; a track of no facing counts as
    /// its own. A cut last line, as a kill leaves it, is the end.
    pub(super) fn read(path: &Path, facing_of: &BTreeMap<u64, u64>) -> Self {
        let mut frames = Self::default();
        let mut lines = match Lines::open(path) {
            Ok(lines) => lines,
            Err(error) => {
                frames.problem = Some(format!("the frames cannot be read ({error})"));
                return frames;
            }
        };
        loop {
            let (offset, number) = (lines.offset, lines.number + 1);
            match lines.next_frame() {
                Ok(Some(line)) => {
                    let facings: BTreeSet<Result<u64, u64>> = line
                        .detections
                        .iter()
                        .filter_map(|d| d.track_id)
                        .map(|track| facing_of.get(&track).copied().ok_or(track))
                        .collect();
                    frames.sketches.push(FrameSketch {
                        secs: line
                            .time_secs
                            .filter(|s| s.is_finite())
                            .unwrap_or(line.frame_index as f64),
                        facings: facings.len() as u32,
                        offset,
                    });
                }
                Ok(None) => return frames,
                Err(error) => {
                    frames.problem = Some(format!("the frames end at line {number} ({error})"));
                    return frames;
                }
            }
        }
    }

    /// First and last time.
    pub(super) fn span_secs(&self) -> Option<(f64, f64)> {
        let times = || self.sketches.iter().map(|s| s.secs);
        let first = times().min_by(f64::total_cmp)?;
        let last = times().max_by(f64::total_cmp)?;
        Some((first, last))
    }

    /// The lines of the `count` frames that show the run best, in order.
    pub(super) fn key_frames(&self, path: &Path, count: usize) -> Vec<FrameLine> {
        let Ok(mut lines) = Lines::open(path) else {
            return Vec::new();
        };
        choose(&self.sketches, count)
            .into_iter()
            .filter_map(|at| lines.frame_at(self.sketches[at].offset))
            .collect()
    }
}

/// Picks the frames to show: the time is cut into `count` equal parts, and each gives the frame with
/// the most facings in view, of equal ones the one nearest to its middle. Neighbours keep at least
/// half a part apart, so that no view is shown twice. Frames without a facing are left out when
/// others have some.
pub(super) fn choose(frames: &[FrameSketch], count: usize) -> Vec<usize> {
    let times = || frames.iter().map(|f| f.secs);
    let (Some(first), Some(last)) = (
        times().min_by(f64::total_cmp),
        times().max_by(f64::total_cmp),
    ) else {
        return Vec::new();
    };
    if count == 0 {
        return Vec::new();
    }
    let part = (last - first) / count as f64;
    let mut best: Vec<Option<usize>> = vec![None; count];
    let mut taken: Option<f64> = None;
    let mut at = 0;
    for (number, slot) in best.iter_mut().enumerate() {
        let (from, middle) = (
            first + part * number as f64,
            first + part * (number as f64 + 0.5),
        );
        let end = from + part;
        let is_last = number + 1 == count;
        let mut candidates = Vec::new();
        while at < frames.len() && (is_last || frames[at].secs < end) {
            candidates.push(at);
            at += 1;
        }
        *slot = candidates
            .into_iter()
            .filter(|i| taken.is_none_or(|t| frames[*i].secs >= t + part / 2.0))
            .min_by(|a, b| {
                let (a, b) = (&frames[*a], &frames[*b]);
                let away = |f: &FrameSketch| (f.secs - middle).abs();
                b.facings.cmp(&a.facings).then(away(a).total_cmp(&away(b)))
            });
        if let Some(chosen) = *slot {
            taken = Some(frames[chosen].secs);
        }
    }
    let mut chosen: Vec<usize> = best.into_iter().flatten().collect();
    if chosen.iter().any(|i| frames[*i].facings > 0) {
        chosen.retain(|i| frames[*i].facings > 0);
    }
    // Frames of one time, as where a source has no clock, all fall into the last part.
    chosen.dedup();
    chosen
}

/// Lines of the file, one at a time, so that memory does not grow with the masks in it.
struct Lines {
    input: BufReader<File>,
    offset: u64,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            input: BufReader::with_capacity(1 << 16, File::open(path)?),
            offset: 0,
            number: 0,
            buffer: Vec::new(),
        })
    }

    fn next_frame(&mut self) -> std::io::Result<Option<FrameLine>> {
        loop {
            self.buffer.clear();
            let read = (&mut self.input)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)?;
            self.offset += read as u64;
            self.number += 1;
            if self.buffer.last() != Some(&b'\n') {
                return Ok(None);
            }
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(serde_json::from_slice(&self.buffer)?));
        }
    }

    fn frame_at(&mut self, offset: u64) -> Option<FrameLine> {
        self.input.seek(SeekFrom::Start(offset)).ok()?;
        self.next_frame().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn sketches(facings: &[u32], step_secs: f64) -> Vec<FrameSketch> {
        facings
            .iter()
            .enumerate()
            .map(|(i, facings)| FrameSketch {
                secs: 3.0 + i as f64 * step_secs,
                facings: *facings,
                offset: 0,
            })
            .collect()
    }

    #[test]
    fn key_frames_are_spread_and_each_is_the_fullest_of_its_part() {
        let mut facings = vec![4; 60];
        facings[7] = 9;
        facings[12] = 6;
        facings[31] = 5;
        let chosen = choose(&sketches(&facings, 0.1), 6);
        assert_eq!(chosen.len(), 6);
        // 7 and 12 are the fullest of the first two parts and half a part apart.
        assert_eq!(&chosen[..2], [7, 12]);
        assert!(chosen.contains(&31), "{chosen:?}");
    }

    #[test]
    fn neighbours_of_one_view_are_not_both_chosen() {
        let mut facings = vec![1; 40];
        facings[9] = 8;
        facings[10] = 8;
        let chosen = choose(&sketches(&facings, 1.0), 4);
        assert!(chosen.contains(&9) && !chosen.contains(&10), "{chosen:?}");
    }

    #[test]
    fn frames_without_a_facing_are_shown_only_when_there_is_nothing_else() {
        let mut facings = vec![0; 20];
        assert_eq!(choose(&sketches(&facings, 1.0), 3).len(), 3);
        facings[3] = 1;
        assert_eq!(choose(&sketches(&facings, 1.0), 3), [3]);
    }

    #[test]
    fn few_frames_or_one_time_give_what_there_is_without_repeats() {
        assert!(choose(&[], 6).is_empty());
        assert!(choose(&sketches(&[1, 2], 1.0), 0).is_empty());
        assert_eq!(choose(&sketches(&[1, 2], 1.0), 6), [0, 1]);
        assert_eq!(choose(&sketches(&[1, 7, 2], 0.0), 6), [1]);
    }

    #[test]
    fn a_cut_line_is_the_end_and_a_damaged_one_is_told() {
        let line = |i: u64| {
            format!(
                "{{\"frame_index\":{i},\"time_secs\":{i}.5,\"detections\":[{{\"label\":\"p\",\"box\":[1,2,3,null],\"score\":1,\"track_id\":{}}}]}}\n",
                i + 1
            )
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let whole = line(0) + "\n" + &line(1);
        file.write_all(whole.as_bytes()).unwrap();
        file.write_all(&line(2).as_bytes()[..20]).unwrap();
        let facings = BTreeMap::from([(1, 9), (2, 9)]);
        let frames = Frames::read(file.path(), &facings);
        assert_eq!(frames.sketches.len(), 2);
        assert_eq!(frames.span_secs(), Some((0.5, 1.5)));
        assert!(frames.problem.is_none());
        let keys = frames.key_frames(file.path(), 2);
        assert_eq!(
            keys.iter().map(|k| k.frame_index).collect::<Vec<_>>(),
            [0, 1]
        );
        file.write_all(b"\n").unwrap();
        let damaged = Frames::read(file.path(), &facings);
        assert_eq!(damaged.sketches.len(), 2);
        assert!(damaged.problem.unwrap().contains("line 4"));
    }

    proptest! {
        #[test]
        fn any_times_give_at_most_as_many_frames_as_asked_for(
            frames in proptest::collection::vec((any::<f64>(), 0u32..9), 0..60),
            count in 0usize..12,
        ) {
            let frames: Vec<FrameSketch> = frames
                .into_iter()
                .filter(|(secs, _)| secs.is_finite())
                .map(|(secs, facings)| FrameSketch { secs, facings, offset: 0 })
                .collect();
            let chosen = choose(&frames, count);
            prop_assert!(chosen.len() <= count);
            prop_assert!(chosen.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!(choose(&frames, count), chosen);
        }
    }
}
