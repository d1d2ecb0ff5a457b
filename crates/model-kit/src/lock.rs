//! One model at a time on a device that cannot be shared.
//!
//! Metal's command encoding, readback and kernel compilation are not safe to interleave from
//! several threads, so everything between the first copy to the device and the last copy back runs
//! in a [`DeviceSection`]. The lock belongs to the process, because a device does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Locks by device name. There are as many as devices, so the map stays small.
static SECTIONS: Mutex<BTreeMap<String, Arc<Gate>>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Gate {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The exclusive use of one device by the thread that holds it.
///
/// Covers load, move, forward, normalise and readback. Not re-entrant: a thread that enters twice
/// waits for itself.
///
/// ```
/// use shelfscan_model_kit::lock::DeviceSection;
///
/// let section = DeviceSection::enter("metal:0");
/// // … everything that touches the device …
/// drop(section);
/// ```
#[derive(Debug)]
#[must_use = "the device is free again as soon as this is dropped"]
pub struct DeviceSection {
    gate: Arc<Gate>,
}

impl DeviceSection {
    /// Waits until no other thread of the process is in the section of `device`, such as
    /// `metal:0`.
    pub fn enter(device: &str) -> Self {
        let gate = lock(&SECTIONS)
            .entry(device.to_owned())
            .or_default()
            .clone();
        {
            let mut taken = lock(&gate.taken);
            while *taken {
                taken = gate
                    .free
                    .wait(taken)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            *taken = true;
        }
        Self { gate }
    }

    /// Enters when `device` needs it, and does nothing for one that threads may share.
    pub fn enter_if_exclusive(device: &candle_core::Device) -> Option<Self> {
        device.is_metal().then(|| Self::enter(&name_of(device)))
    }
}

impl Drop for DeviceSection {
    fn drop(&mut self) {
        *lock(&self.gate.taken) = false;
        self.gate.free.notify_one();
    }
}

/// The name a device is locked by, such as `cpu` or `metal:0`.
pub fn name_of(device: &candle_core::Device) -> String {
    match device.location() {
        candle_core::DeviceLocation::Cpu => "cpu".into(),
        candle_core::DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        candle_core::DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
    }
}

/// A panic while the lock was held leaves a plain flag behind, which is still right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
        time::Duration,
    };

    use super::*;

    /// Counts how many threads are inside at once.
    #[derive(Default)]
    struct FakeDevice {
        inside: AtomicUsize,
        most: AtomicUsize,
    }

    impl FakeDevice {
        fn forward(&self) {
            let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The most threads that were inside at once, with eight threads and ten rounds.
    fn most_inside(section: impl Fn() -> Option<DeviceSection> + Sync) -> usize {
        let device = FakeDevice::default();
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..10 {
                        let _held = section();
                        device.forward();
                    }
                });
            }
        });
        device.most.load(Ordering::SeqCst)
    }

    #[test]
    fn eight_threads_are_never_two_at_a_time_on_one_device() {
        assert_eq!(most_inside(|| Some(DeviceSection::enter("fake:0"))), 1);
    }

    #[test]
    fn without_the_lock_the_same_count_sees_more_than_one() {
        assert!(most_inside(|| None) > 1);
    }

    #[test]
    fn two_devices_do_not_wait_for_each_other() {
        let one = DeviceSection::enter("fake:1");
        let two = DeviceSection::enter("fake:2");
        drop((one, two));
    }

    #[test]
    fn a_panic_inside_frees_the_device() {
        let result = thread::spawn(|| {
            let _held = DeviceSection::enter("fake:3");
            panic!("inside");
        })
        .join();
        assert!(result.is_err());
        drop(DeviceSection::enter("fake:3"));
    }

    #[test]
    fn the_cpu_needs_no_lock() {
        assert!(DeviceSection::enter_if_exclusive(&candle_core::Device::Cpu).is_none());
        assert_eq!(name_of(&candle_core::Device::Cpu), "cpu");
    }
}
