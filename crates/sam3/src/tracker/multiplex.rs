//! Slots of a state: which object sits where in which bucket.

/// One slot of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Never used.
    Free,
    /// Used once; the object was removed. It takes no object again, since the memories of the
    /// state still show the old one there.
    Removed,
    /// Position of the object among those of the state.
    Object(usize),
}

/// Buckets of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiplex {
    slots: usize,
    buckets: Vec<Vec<Slot>>,
}

impl Multiplex {
    /// `objects` objects in buckets of `slots`, filled in order.
    pub fn new(slots: usize, objects: usize) -> Self {
        let mut new = Self {
            slots: slots.max(1),
            buckets: Vec::new(),
        };
        for object in 0..objects {
            if object % new.slots == 0 {
                new.buckets.push(vec![Slot::Free; new.slots]);
            }
            if let Some(bucket) = new.buckets.last_mut() {
                bucket[object % new.slots] = Slot::Object(object);
            }
        }
        new
    }

    /// Slots of a bucket.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The buckets, each of [`slots`](Self::slots) slots.
    pub fn buckets(&self) -> &[Vec<Slot>] {
        &self.buckets
    }

    /// Objects in all buckets.
    pub fn objects(&self) -> usize {
        self.all()
            .filter(|slot| matches!(slot, Slot::Object(_)))
            .count()
    }

    /// Slots that can still take an object.
    pub fn free(&self) -> usize {
        self.all().filter(|slot| **slot == Slot::Free).count()
    }

    fn all(&self) -> impl Iterator<Item = &Slot> {
        self.buckets.iter().flatten()
    }

    /// `(bucket, slot)` of each object, in their order.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut places = vec![(0, 0); self.objects()];
        for (b, bucket) in self.buckets.iter().enumerate() {
            for (s, slot) in bucket.iter().enumerate() {
                if let Slot::Object(object) = slot {
                    places[*object] = (b, s);
                }
            }
        }
        places
    }

    /// Puts `count` further objects, numbered after the others, into free slots in order; false,
    /// with nothing changed, when there is no room.
    pub fn add(&mut self, count: usize) -> bool {
        if self.free() < count {
            return false;
        }
        let first = self.objects();
        let free = self.buckets.iter_mut().flatten();
        let free = free.filter(|slot| **slot == Slot::Free);
        for (object, slot) in (first..first + count).zip(free) {
            *slot = Slot::Object(object);
        }
        true
    }

    /// Takes objects out, numbers the rest from 0 without gaps and drops buckets without an object.
    /// Gives the former numbers of the buckets that stay.
    pub fn remove(&mut self, objects: &[usize]) -> Vec<usize> {
        let mut numbers = vec![None; self.objects()];
        let mut next = 0;
        for (object, number) in numbers.iter_mut().enumerate() {
            if !objects.contains(&object) {
                *number = Some(next);
                next += 1;
            }
        }
        for slot in self.buckets.iter_mut().flatten() {
            if let Slot::Object(object) = slot {
                *slot = match numbers[*object] {
                    Some(number) => Slot::Object(number),
                    None => Slot::Removed,
                };
            }
        }
        let used = |bucket: &[Slot]| bucket.iter().any(|slot| matches!(slot, Slot::Object(_)));
        let kept: Vec<usize> = (0..self.buckets.len())
            .filter(|b| used(&self.buckets[*b]))
            .collect();
        self.buckets.retain(|bucket| used(bucket));
        kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_is_opened_only_when_the_last_one_is_full() {
        for (objects, buckets, free) in [
            (0, 0, 0),
            (1, 1, 15),
            (15, 1, 1),
            (16, 1, 0),
            (17, 2, 15),
            (33, 3, 15),
        ] {
            let multiplex = Multiplex::new(16, objects);
            let got = (
                multiplex.buckets().len(),
                multiplex.free(),
                multiplex.objects(),
            );
            assert_eq!(got, (buckets, free, objects));
            let places: Vec<(usize, usize)> = (0..objects).map(|i| (i / 16, i % 16)).collect();
            assert_eq!(multiplex.places(), places);
        }
    }

    #[test]
    fn an_object_keeps_its_slot_when_others_come_and_go() {
        let mut multiplex = Multiplex::new(16, 15);
        assert!(multiplex.add(1));
        assert!(!multiplex.add(1), "the bucket is full");
        assert_eq!(multiplex.places()[15], (0, 15));
        assert_eq!(multiplex.remove(&[3, 7]), [0]);
        assert_eq!(
            multiplex.places()[13],
            (0, 15),
            "numbered anew, in the same slot"
        );
        assert_eq!((multiplex.objects(), multiplex.free()), (14, 0));
    }

    #[test]
    fn a_bucket_whose_objects_are_gone_is_dropped() {
        let mut multiplex = Multiplex::new(4, 9);
        assert_eq!(multiplex.remove(&[4, 5, 6, 7]), [0, 2]);
        assert_eq!(multiplex.places(), [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
        assert_eq!(multiplex.remove(&[0, 1, 2, 3, 4]), [0usize; 0]);
        assert_eq!((multiplex.objects(), multiplex.buckets().len()), (0, 0));
    }

    /// What to do next: objects to add, or which of the present ones to take out.
    fn steps() -> impl Strategy<Value = Vec<(bool, Vec<prop::sample::Index>)>> {
        let one = (
            any::<bool>(),
            prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        );
        prop::collection::vec(one, 0..40)
    }

    proptest! {
        #[test]
        fn no_two_objects_share_a_slot_and_none_moves(slots in 1usize..18, first in 1usize..40, steps in steps()) {
            let mut multiplex = Multiplex::new(slots, first);
            // Name and slot of each object; the bucket's own name moves along with it.
            let mut names: Vec<usize> = (0..first).collect();
            let mut buckets: Vec<usize> = (0..multiplex.buckets().len()).collect();
            let mut known: Vec<(usize, usize, usize)> = Vec::new();
            let mut next = first;
            for (add, picks) in steps {
                if add {
                    let room = multiplex.free();
                    prop_assert_eq!(multiplex.add(picks.len()), picks.len() <= room);
                    if picks.len() <= room {
                        names.extend(next..next + picks.len());
                        next += picks.len();
                    }
                } else if !names.is_empty() {
                    let mut gone: Vec<usize> = picks.iter().map(|p| p.index(names.len())).collect();
                    gone.sort_unstable();
                    gone.dedup();
                    let used = multiplex.objects() + multiplex.free();
                    let kept = multiplex.remove(&gone);
                    prop_assert!(multiplex.objects() + multiplex.free() < used, "a used slot is not free");
                    buckets = kept.iter().map(|b| buckets[*b]).collect();
                    for object in gone.iter().rev() {
                        names.remove(*object);
                    }
                }
                prop_assert_eq!(multiplex.objects(), names.len());
                prop_assert_eq!(multiplex.buckets().len(), buckets.len());
                let places = multiplex.places();
                let mut taken = places.clone();
                taken.sort_unstable();
                taken.dedup();
                prop_assert_eq!(taken.len(), places.len());
                let now: Vec<(usize, usize, usize)> = names
                    .iter()
                    .zip(&places)
                    .map(|(name, (b, s))| (*name, buckets[*b], *s))
                    .collect();
                for before in known.iter().filter(|k| names.contains(&k.0)) {
                    prop_assert!(now.contains(before), "{before:?} moved");
                }
                known = now;
                for bucket in multiplex.buckets() {
                    prop_assert!(bucket.iter().any(|slot| matches!(slot, Slot::Object(_))));
                }
            }
        }
    }
}
