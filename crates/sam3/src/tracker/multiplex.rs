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
