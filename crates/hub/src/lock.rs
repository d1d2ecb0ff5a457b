//! One process at a time downloads a blob.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Result,
    cache::{io_error, make_parent},
};

/// How often a lock that another process holds is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// What came of waiting for a lock.
pub(crate) enum Waited {
    /// The lock is held until this is dropped. `None` where the disk has no locks.
    Held(#[allow(dead_code, reason = "kept for its drop")] Option<File>),
    /// The holder did not get on for that long.
    Stuck(Duration),
    /// The caller asked to stop.
    Stopped,
}

/// Takes the lock at `path`. The system frees it when its holder ends, however that happens, so a
/// file that lies around locks nothing. While another process holds it, `partial` has to grow.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) when the lock file cannot be made.
pub(crate) fn wait_for(
    path: &Path,
    partial: &Path,
    stall: Duration,
    mut waiting: impl FnMut(u64) -> bool,
) -> Result<Waited> {
    make_parent(path)?;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(io_error(path))?;
    let mut grown = (size(partial), Instant::now());
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Waited::Held(Some(file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                tracing::warn!(
                    "this disk has no locks ({error}), so let no second download run beside: {}",
                    path.display()
                );
                return Ok(Waited::Held(None));
            }
        }
        let now = size(partial);
        if now != grown.0 {
            grown = (now, Instant::now());
        }
        if grown.1.elapsed() >= stall {
            return Ok(Waited::Stuck(stall));
        }
        if !waiting(now) {
            return Ok(Waited::Stopped);
        }
        thread::sleep(RETRY.min(stall));
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_lies_around_locks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks/x.lock");
        make_parent(&path).unwrap();
        fs::write(&path, "left by a process that was ended").unwrap();
        let waited = wait_for(&path, &path, Duration::from_secs(9), |_| false).unwrap();
        assert!(matches!(waited, Waited::Held(Some(_))));
    }

    #[test]
    fn a_holder_that_gets_on_is_waited_for_and_one_that_does_not_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let (path, partial) = (dir.path().join("x.lock"), dir.path().join("x.incomplete"));
        let stall = Duration::from_millis(60);
        let held = wait_for(&path, &partial, stall, |_| false).unwrap();
        let stopped = wait_for(&path, &partial, stall, |_| false).unwrap();
        assert!(matches!(stopped, Waited::Stopped));
        let mut rounds = 0;
        let stuck = wait_for(&path, &partial, stall, |bytes| {
            rounds += 1;
            // It grows for a few rounds and then stands still.
            if rounds < 5 {
                assert_eq!(bytes, rounds - 1);
                fs::write(&partial, vec![0; rounds as usize]).unwrap();
            }
            true
        })
        .unwrap();
        assert!(matches!(stuck, Waited::Stuck(_)));
        assert!(rounds >= 5);
        drop(held);
        let waited = wait_for(&path, &partial, stall, |_| false).unwrap();
        assert!(matches!(waited, Waited::Held(Some(_))));
    }
}
