//! First come, first served.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A value that threads use in the order in which they asked.
///
/// A plain mutex would let a thread that detects frame after frame take it again before the one
/// that waits to embed a crop has woken up.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    queue: Mutex<Queue>,
    moved: Condvar,
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct Queue {
    last_drawn: u64,
    served: u64,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            queue: Mutex::default(),
            moved: Condvar::new(),
            value: Mutex::new(value),
        }
    }

    /// Waits for its turn, then runs `work`.
    pub(crate) fn take<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut queue = lock(&self.queue);
        let ticket = queue.last_drawn;
        queue.last_drawn += 1;
        while queue.served != ticket {
            queue = self
                .moved
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        let _turn = Turn(self);
        work(&mut lock(&self.value))
    }
}

/// Calls the next one, also when the work panicked.
struct Turn<'a, T>(&'a Turns<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        lock(&self.0.queue).served += 1;
        self.0.moved.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
        time::Duration,
    };

    use super::*;

    #[test]
    fn a_thread_that_asks_again_and_again_does_not_keep_another_waiting() {
        let turns = Turns::new(0u32);
        thread::scope(|scope| {
            let waiting = turns.take(|_| {
                let waiting = scope.spawn(|| turns.take(|count| *count));
                while lock(&turns.queue).last_drawn < 2 {
                    thread::sleep(Duration::from_millis(1));
                }
                waiting
            });
            for _ in 0..100 {
                turns.take(|count| *count += 1);
            }
            assert_eq!(waiting.join().unwrap(), 0, "it waited for a later one");
        });
    }

    #[test]
    fn a_panic_ends_a_turn() {
        let turns = Turns::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| turns.take(|_| panic!("inside"))));
        assert!(panicked.is_err());
        assert_eq!(turns.take(|value| *value), 1);
    }
}
