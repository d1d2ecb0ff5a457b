//! The channel between the decoder and the provider.
//!
//! A file's frames are never lost: a full queue makes the decoder wait. A camera cannot wait, so
//! there a full queue loses its oldest frame, which bounds the delay, and the loss is counted.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// What to do when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// The sender waits.
    Wait,
    /// The oldest item is lost and counted.
    DropOldest,
}

struct State<T> {
    items: VecDeque<T>,
    dropped: u64,
    /// The sender is done; what is queued is still handed out.
    finished: bool,
    /// The receiver is gone; nothing more is taken.
    closed: bool,
}

/// A bounded queue of one sender and one receiver.
pub(crate) struct FrameQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
    when_full: WhenFull,
}

impl<T> FrameQueue<T> {
    pub(crate) fn new(capacity: usize, when_full: WhenFull) -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::with_capacity(capacity),
                dropped: 0,
                finished: false,
                closed: false,
            }),
            changed: Condvar::new(),
            capacity: capacity.max(1),
            when_full,
        }
    }

    // A panic elsewhere leaves plain data behind, which is still whole.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item; `false` when the receiver is gone.
    pub(crate) fn send(&self, item: T) -> bool {
        let mut state = self.lock();
        while !state.closed && state.items.len() >= self.capacity {
            match self.when_full {
                WhenFull::Wait => state = self.wait(state),
                WhenFull::DropOldest => {
                    state.items.pop_front();
                    state.dropped += 1;
                }
            }
        }
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        self.changed.notify_all();
        true
    }

    /// The next item, or `None` at the end.
    pub(crate) fn recv(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.changed.notify_all();
                return Some(item);
            }
            if state.finished || state.closed {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// The sender has nothing more to send.
    pub(crate) fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_all();
    }

    /// The receiver takes nothing more; what is queued is freed.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.items.clear();
        self.changed.notify_all();
    }

    /// Items lost because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_queue_keeps_the_newest_and_counts_the_rest() {
        let queue = FrameQueue::new(3, WhenFull::DropOldest);
        for i in 0..30 {
            assert!(queue.send(i));
        }
        queue.finish();
        let kept: Vec<i32> = std::iter::from_fn(|| queue.recv()).collect();
        assert_eq!(kept, [27, 28, 29]);
        assert_eq!(queue.dropped(), 27);
    }

    #[test]
    fn a_file_queue_hands_over_everything_in_order() {
        let queue = FrameQueue::new(2, WhenFull::Wait);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..100 {
                    assert!(queue.send(i));
                }
                queue.finish();
            });
            let got: Vec<i32> = std::iter::from_fn(|| queue.recv()).collect();
            assert_eq!(got, (0..100).collect::<Vec<_>>());
        });
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn a_waiting_sender_is_freed_when_the_receiver_goes() {
        let queue = FrameQueue::new(1, WhenFull::Wait);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut sent = 0;
                while queue.send(sent) {
                    sent += 1;
                }
            });
            queue.recv();
            queue.close();
            sender.join().unwrap();
        });
    }
}
