//! Stopping a scan from outside.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

type Hook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// Ends what cannot look at the flag itself, such as a decoder stuck in a read.
    hook: Mutex<Option<Hook>>,
}

/// Stops the scan it was taken from, from any thread or a signal handler's thread. Finished frames
/// stay on disk, and the folder can be resumed. Clones stop the same scan.
#[derive(Clone, Default)]
pub struct CancelHandle(Arc<Shared>);

impl CancelHandle {
    /// A handle that was not used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the scan to stop; returns at once. A second call does nothing.
    pub fn cancel(&self) {
        if !self.0.cancelled.swap(true, Ordering::SeqCst) {
            self.run_hook();
        }
    }

    /// Ends what is stuck in a read without stopping the scan.
    pub(crate) fn run_hook(&self) {
        if let Ok(hook) = self.0.hook.lock()
            && let Some(hook) = hook.as_ref()
        {
            hook();
        }
    }

    /// True once [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Sets what to end when the scan is stopped; runs it at once when it already was.
    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        let Ok(mut slot) = self.0.hook.lock() else {
            return;
        };
        if self.is_cancelled()
            && let Some(hook) = hook.as_ref()
        {
            hook();
        }
        *slot = hook;
    }
}

impl std::fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelHandle(cancelled: {})", self.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_hook_runs_once_whether_it_was_set_before_or_after_the_cancel() {
        for before in [true, false] {
            let handle = CancelHandle::new();
            let runs = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&runs);
            let hook: Hook = Box::new(move || {
                seen.fetch_add(1, Ordering::SeqCst);
            });
            if before {
                handle.set_hook(Some(hook));
                handle.cancel();
            } else {
                handle.cancel();
                handle.set_hook(Some(hook));
            }
            handle.cancel();
            assert_eq!(runs.load(Ordering::SeqCst), 1);
            assert!(handle.clone().is_cancelled());
        }
    }
}
