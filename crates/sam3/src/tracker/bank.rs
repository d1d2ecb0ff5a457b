//! What a state remembers, frame by frame, and which of it the next frame reads.
//!
//! Ported from the description of `_prepare_memory_conditioned_features` in
//! `sam3/model/video_tracking_multiplex.py`. Only what some later frame can still read is kept.

use std::collections::BTreeMap;

use candle_core::Tensor;
use shelfscan_inference_core::TrackId;

/// How far back a state remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Conditioning frames that are read.
    pub conditioning: usize,
    /// Frames with a map, the conditioning ones counted as one.
    pub maps: usize,
    /// Frames with object pointers, this one counted.
    pub pointers: usize,
}

/// A map and when it was made.
#[derive(Clone, Debug)]
pub(crate) struct FrameMap {
    /// Of the objects, `[buckets, cells, c]`.
    pub(crate) objects: Tensor,
    /// Of the picture, `[1, cells, c]`.
    pub(crate) picture: Tensor,
}

/// One frame.
#[derive(Clone, Debug)]
pub(crate) struct FrameMemory {
    pub(crate) map: Option<FrameMap>,
    /// `[buckets, slots, c]`, zeros where no object was.
    pub(crate) pointers: Tensor,
    /// Objects whose mask was given in this frame, not carried to it.
    pub(crate) conditioning: Vec<TrackId>,
}

/// A frame to read and the row of the time table its map gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapPick {
    pub(crate) frame: usize,
    pub(crate) time: usize,
}

/// A frame to read pointers of and how many frames ago it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointerPick {
    pub(crate) frame: usize,
    pub(crate) age: usize,
}

/// What a frame reads, in the order it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picks {
    pub(crate) maps: Vec<MapPick>,
    pub(crate) pointers: Vec<PointerPick>,
}

/// Conditioning frames and the others of one state.
#[derive(Debug, Default)]
pub(crate) struct MemoryBank {
    conditioning: BTreeMap<usize, FrameMemory>,
    carried: BTreeMap<usize, FrameMemory>,
}

impl MemoryBank {
    pub(crate) fn get(&self, frame: usize) -> Option<&FrameMemory> {
        let conditioning = self.conditioning.get(&frame);
        conditioning.or_else(|| self.carried.get(&frame))
    }

    pub(crate) fn get_mut(&mut self, frame: usize) -> Option<&mut FrameMemory> {
        match self.conditioning.get_mut(&frame) {
            Some(memory) => Some(memory),
            None => self.carried.get_mut(&frame),
        }
    }

    pub(crate) fn is_conditioning(&self, frame: usize) -> bool {
        self.conditioning.contains_key(&frame)
    }

    /// Stores a frame that masks were given for.
    pub(crate) fn condition(&mut self, frame: usize, memory: FrameMemory) {
        self.carried.remove(&frame);
        self.conditioning.insert(frame, memory);
    }

    /// Stores a frame that masks were carried to.
    pub(crate) fn carry(&mut self, frame: usize, memory: FrameMemory) {
        self.carried.insert(frame, memory);
    }

    /// Forgets what `frame` and those after it cannot read.
    pub(crate) fn prune(&mut self, frame: usize, limits: MemoryLimits) {
        // One that is not among the nearest may still be read as an ordinary frame.
        while self.conditioning.len() > limits.conditioning.max(1)
            && let Some(oldest) = self.conditioning.first_entry()
            && *oldest.key() + limits.pointers <= frame
        {
            oldest.remove();
        }
        self.carried
            .retain(|t, _| *t + limits.pointers > frame && *t <= frame);
        for (t, memory) in &mut self.carried {
            if *t + limits.maps <= frame {
                memory.map = None;
            }
        }
    }

    /// Frames held, and those of them with a map.
    pub(crate) fn size(&self) -> (usize, usize) {
        let all = || self.conditioning.values().chain(self.carried.values());
        (all().count(), all().filter(|m| m.map.is_some()).count())
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut FrameMemory> {
        let carried = self.carried.values_mut();
        self.conditioning.values_mut().chain(carried)
    }

    /// Takes objects out. A conditioning frame that is left without an object whose mask was given
    /// there becomes an ordinary one. When it was the last, a frame takes its place, so that the
    /// state goes on: the first one held in which a remaining object's mask was given, else the
    /// first one carried to, else the frame itself.
    pub(crate) fn forget(&mut self, ids: &[TrackId]) {
        for memory in self.all_mut() {
            memory.conditioning.retain(|id| !ids.contains(id));
        }
        let empty = |(t, m): (&usize, &FrameMemory)| m.conditioning.is_empty().then_some(*t);
        let demoted: Vec<usize> = self.conditioning.iter().filter_map(empty).collect();
        for t in &demoted {
            if let Some(memory) = self.conditioning.remove(t) {
                self.carried.insert(*t, memory);
            }
        }
        if !self.conditioning.is_empty() {
            return;
        }
        let mapped = || self.carried.iter().filter(|(_, m)| m.map.is_some());
        let given = mapped().find(|(_, m)| !m.conditioning.is_empty());
        let other = mapped().find(|(t, _)| !demoted.contains(t));
        let next = given.or(other).map(|(t, _)| *t);
        if let Some(t) = next.or_else(|| demoted.last().copied())
            && let Some(memory) = self.carried.remove(&t)
        {
            self.conditioning.insert(t, memory);
        }
    }

    pub(crate) fn picks(&self, frame: usize, limits: MemoryLimits, pointers: usize) -> Picks {
        let given: Vec<usize> = self.conditioning.keys().copied().collect();
        let chosen = nearest_conditioning(&given, frame, limits.conditioning);
        let carried = |t: &usize| {
            let left_over = self.conditioning.contains_key(t) && !chosen.contains(t);
            self.carried.contains_key(t) || left_over
        };
        let mut picks = Picks::default();
        let oldest = limits.maps.saturating_sub(1);
        for t in &chosen {
            // Frames before this one within reach get the row of their distance, all others the
            // last one. Ordinary frames below get another row for the same distance, as the
            // reference has it.
            let time = match frame.checked_sub(*t) {
                Some(age) if (1..limits.maps).contains(&age) => oldest - age,
                _ => oldest,
            };
            picks.maps.push(MapPick { frame: *t, time });
            picks.pointers.push(PointerPick {
                frame: *t,
                age: frame.abs_diff(*t),
            });
        }
        for age in (1..limits.maps).rev() {
            if let Some(t) = frame.checked_sub(age).filter(carried) {
                picks.maps.push(MapPick {
                    frame: t,
                    time: age - 1,
                });
            }
        }
        for age in 1..pointers {
            if let Some(t) = frame.checked_sub(age).filter(carried) {
                picks.pointers.push(PointerPick { frame: t, age });
            }
        }
        let mapped = |pick: &MapPick| self.get(pick.frame).is_some_and(|m| m.map.is_some());
        picks.maps.retain(mapped);
        picks
    }
}

/// At most `limit` of the conditioning frames `given` (ascending): the nearest before `frame`, the
/// nearest at or after it, then the nearest of the rest. When all fit, they keep their order.
fn nearest_conditioning(given: &[usize], frame: usize, limit: usize) -> Vec<usize> {
    if given.len() <= limit {
        return given.to_vec();
    }
    let split = given.partition_point(|t| *t < frame);
    let before = given[..split].last();
    let after = given[split..].first();
    let mut chosen: Vec<usize> = before.into_iter().chain(after).copied().collect();
    let mut rest: Vec<usize> = given
        .iter()
        .filter(|t| !chosen.contains(t))
        .copied()
        .collect();
    rest.sort_by_key(|t| (t.abs_diff(frame), *t));
    chosen.extend(rest);
    chosen.truncate(limit);
    chosen
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    const LIMITS: MemoryLimits = MemoryLimits {
        conditioning: 4,
        maps: 7,
        pointers: 16,
    };

    fn memory(ids: &[u64]) -> FrameMemory {
        let one = Tensor::zeros((1, 1, 1), DType::F32, &Device::Cpu).unwrap();
        FrameMemory {
            map: Some(FrameMap {
                objects: one.clone(),
                picture: one.clone(),
            }),
            pointers: one,
            conditioning: ids.iter().map(|id| TrackId(*id)).collect(),
        }
    }

    fn frames(picks: &Picks) -> Vec<(usize, usize)> {
        picks.maps.iter().map(|p| (p.frame, p.time)).collect()
    }

    #[test]
    fn a_frame_reads_its_conditioning_frames_and_the_last_six() {
        let mut bank = MemoryBank::default();
        bank.condition(3, memory(&[1]));
        for t in 4..20 {
            bank.carry(t, memory(&[]));
        }
        let picks = bank.picks(20, LIMITS, 16);
        let want = [(3, 6), (14, 5), (15, 4), (16, 3), (17, 2), (18, 1), (19, 0)];
        assert_eq!(frames(&picks), want);
        let ages: Vec<usize> = picks.pointers.iter().map(|p| p.age).collect();
        assert_eq!(
            ages,
            [17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
        );
        // A near conditioning frame has a row of its own distance, one further on.
        assert_eq!(frames(&bank.picks(5, LIMITS, 16)), [(3, 4), (4, 0)]);
    }

    #[test]
    fn of_many_conditioning_frames_the_nearest_are_read() {
        let given = [0, 10, 20, 30, 40, 50];
        assert_eq!(nearest_conditioning(&given, 35, 4), [30, 40, 20, 50]);
        assert_eq!(nearest_conditioning(&given, 60, 4), [50, 40, 30, 20]);
        assert_eq!(nearest_conditioning(&given[..2], 60, 4), [0, 10]);
        assert_eq!(nearest_conditioning(&given, 35, 1), [30]);
    }

    #[test]
    fn ten_times_more_frames_take_no_more_room() {
        let mut bank = MemoryBank::default();
        let mut largest = (0, 0);
        for t in 0..1600 {
            bank.prune(t, LIMITS);
            if t % 2 == 0 {
                bank.condition(t, memory(&[1]));
            } else {
                bank.carry(t, memory(&[]));
            }
            let (frames, maps) = bank.size();
            largest = (largest.0.max(frames), largest.1.max(maps));
        }
        assert!(largest.0 <= 4 + 16 && largest.1 <= 4 + 16, "{largest:?}");
    }

    #[test]
    fn what_is_forgotten_would_not_have_been_read() {
        let (mut all, mut pruned) = (MemoryBank::default(), MemoryBank::default());
        for t in 0..120 {
            pruned.prune(t, LIMITS);
            assert_eq!(all.picks(t, LIMITS, 16), pruned.picks(t, LIMITS, 16));
            for bank in [&mut all, &mut pruned] {
                if t % 3 == 0 || t > 90 {
                    bank.condition(t, memory(&[1]));
                } else {
                    bank.carry(t, memory(&[]));
                }
            }
        }
    }

    #[test]
    fn a_state_whose_last_conditioning_frame_goes_is_given_another() {
        let mut bank = MemoryBank::default();
        bank.condition(0, memory(&[1]));
        for t in 1..9 {
            bank.carry(t, memory(if t == 4 { &[2] } else { &[] }));
        }
        bank.forget(&[TrackId(1)]);
        assert!(bank.is_conditioning(4) && !bank.is_conditioning(0));
        assert!(bank.get(0).is_some(), "it is still an ordinary frame");

        // The frame in which the other object's mask was given is out of reach.
        let mut bank = MemoryBank::default();
        bank.condition(0, memory(&[1]));
        for t in 20..27 {
            bank.carry(t, memory(&[]));
        }
        bank.forget(&[TrackId(1)]);
        assert!(bank.is_conditioning(20));

        let mut bank = MemoryBank::default();
        bank.condition(7, memory(&[1]));
        bank.forget(&[TrackId(1)]);
        assert!(bank.is_conditioning(7), "nothing else to read");
    }

    #[test]
    fn a_conditioning_frame_stays_while_one_of_its_objects_is_left() {
        let mut bank = MemoryBank::default();
        bank.condition(0, memory(&[1, 2]));
        bank.carry(1, memory(&[]));
        bank.forget(&[TrackId(1)]);
        assert!(bank.is_conditioning(0));
        assert_eq!(
            bank.get(0).map(|m| m.conditioning.clone()),
            Some(vec![TrackId(2)])
        );
    }
}
