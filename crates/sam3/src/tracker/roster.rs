//! Which object lives in which state.

use shelfscan_inference_core::TrackId;

use super::multiplex::Multiplex;

/// Objects of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateObjects {
    /// By position in the state.
    pub ids: Vec<TrackId>,
    /// Where they sit.
    pub slots: Multiplex,
}

/// Where new objects went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Into a state that was there, behind its objects.
    Joined(usize),
    /// Into a new state, the last one.
    Opened(usize),
}

/// What a removal did to one state; indices are those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The state.
    pub state: usize,
    /// Positions of its objects that went, ascending.
    pub objects: Vec<usize>,
    /// The objects themselves.
    pub ids: Vec<TrackId>,
    /// Buckets that stay; none when the state went.
    pub buckets: Vec<usize>,
}

/// The states and their objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    slots: usize,
    states: Vec<StateObjects>,
}

impl Roster {
    /// No state yet; buckets of `slots`.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            states: Vec::new(),
        }
    }

    /// The states in the order they were opened.
    pub fn states(&self) -> &[StateObjects] {
        &self.states
    }

    /// Objects in all states.
    pub fn objects(&self) -> usize {
        self.states.iter().map(|state| state.ids.len()).sum()
    }

    /// Buckets of all states, which is what a frame costs.
    pub fn buckets(&self) -> usize {
        let count = |state: &StateObjects| state.slots.buckets().len();
        self.states.iter().map(count).sum()
    }

    /// State and position of an object.
    pub fn find(&self, id: TrackId) -> Option<(usize, usize)> {
        self.states.iter().enumerate().find_map(|(s, state)| {
            let object = state.ids.iter().position(|other| *other == id)?;
            Some((s, object))
        })
    }

    /// Places new objects together: in the fullest state with room for all of them, the first of
    /// equals, else in a new state.
    pub fn add(&mut self, ids: &[TrackId]) -> Placed {
        let fitting = self.states.iter().enumerate();
        let fitting = fitting.filter(|(_, state)| state.slots.free() >= ids.len());
        if let Some((s, _)) = fitting.min_by_key(|(_, state)| state.slots.free()) {
            let state = &mut self.states[s];
            state.slots.add(ids.len());
            state.ids.extend_from_slice(ids);
            return Placed::Joined(s);
        }
        Placed::Opened(self.open(ids))
    }

    /// Puts new objects into a new state and gives its number.
    pub fn open(&mut self, ids: &[TrackId]) -> usize {
        self.states.push(StateObjects {
            ids: ids.to_vec(),
            slots: Multiplex::new(self.slots, ids.len()),
        });
        self.states.len() - 1
    }

    /// Takes objects out and drops states without one. Gives the states that changed, ascending.
    pub fn remove(&mut self, ids: &[TrackId]) -> Vec<Removed> {
        let mut changes = Vec::new();
        for (state, own) in self.states.iter_mut().enumerate() {
            let objects: Vec<usize> = (0..own.ids.len())
                .filter(|object| ids.contains(&own.ids[*object]))
                .collect();
            if objects.is_empty() {
                continue;
            }
            let buckets = own.slots.remove(&objects);
            let gone = objects.iter().map(|object| own.ids[*object]).collect();
            own.ids.retain(|id| !ids.contains(id));
            changes.push(Removed {
                state,
                objects,
                ids: gone,
                buckets,
            });
        }
        self.states.retain(|state| !state.ids.is_empty());
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::Range<u64>) -> Vec<TrackId> {
        range.map(TrackId).collect()
    }

    #[test]
    fn fifteen_to_thirty_three_objects_cost_one_to_three_buckets() {
        for (objects, buckets) in [(15, 1), (16, 1), (17, 2), (33, 3)] {
            // All at once share a state.
            let mut together = Roster::new(16);
            assert_eq!(together.add(&ids(0..objects)), Placed::Opened(0));
            assert_eq!((together.buckets(), together.states().len()), (buckets, 1));
            // One at a time a state is opened for every sixteen.
            let mut single = Roster::new(16);
            for id in 0..objects {
                let before: Vec<_> = (0..id).map(|id| single.find(TrackId(id))).collect();
                single.add(&ids(id..id + 1));
                let after: Vec<_> = (0..id).map(|id| single.find(TrackId(id))).collect();
                assert_eq!(before, after, "object {id} moved others");
            }
            assert_eq!(
                (single.buckets(), single.states().len()),
                (buckets, buckets)
            );
            assert_eq!(single.objects(), objects as usize);
        }
    }

    #[test]
    fn newcomers_join_the_fullest_state_with_room_for_all_of_them() {
        let mut roster = Roster::new(4);
        roster.add(&ids(0..2));
        assert_eq!(roster.add(&ids(2..5)), Placed::Opened(1));
        assert_eq!(roster.add(&ids(5..6)), Placed::Joined(1));
        assert_eq!(roster.add(&ids(6..9)), Placed::Opened(2));
        assert_eq!(roster.add(&ids(9..10)), Placed::Joined(2));
        assert_eq!(roster.add(&ids(10..12)), Placed::Joined(0));
        assert_eq!(roster.find(TrackId(11)), Some((0, 3)));
    }

    #[test]
    fn a_state_without_objects_is_dropped_and_a_removed_slot_stays_unused() {
        let mut roster = Roster::new(4);
        roster.add(&ids(0..4));
        roster.add(&ids(4..6));
        let gone = [TrackId(1), TrackId(4), TrackId(5), TrackId(99)];
        let removed = |state, objects: &[usize], ids, buckets: &[usize]| Removed {
            state,
            objects: objects.to_vec(),
            ids,
            buckets: buckets.to_vec(),
        };
        let want = [
            removed(0, &[1], ids(1..2), &[0]),
            removed(1, &[0, 1], ids(4..6), &[]),
        ];
        assert_eq!(roster.remove(&gone), want);
        assert_eq!((roster.states().len(), roster.objects()), (1, 3));
        assert_eq!(
            roster.add(&ids(6..7)),
            Placed::Opened(1),
            "the slot was used before"
        );
    }
}
