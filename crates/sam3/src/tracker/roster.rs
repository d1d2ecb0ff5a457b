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
        self.states.push(StateObjects {
            ids: ids.to_vec(),
            slots: Multiplex::new(self.slots, ids.len()),
        });
        Placed::Opened(self.states.len() - 1)
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
            own.ids.retain(|id| !ids.contains(id));
            changes.push(Removed {
                state,
                objects,
                buckets,
            });
        }
        self.states.retain(|state| !state.ids.is_empty());
        changes
    }
}
