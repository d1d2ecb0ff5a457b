//! The device and the number type of the models of a process.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use candle_core::{DType, Device};
use shelfscan_inference_core::Result;
use shelfscan_model_kit::lock::DeviceSection;

/// Where models run and in which type they calculate. A clone is the same place: both models of a
/// process share one device, because tensors of two handles to a card do not mix and weights have to
/// be used on the stream they were loaded on.
///
/// Nothing is opened before a model needs it.
#[derive(Clone)]
pub struct Placement {
    shared: Arc<Shared>,
}

struct Shared {
    back_end: &'static str,
    device_name: String,
    dtype: DType,
    /// Only one thread at a time may use the device.
    exclusive: bool,
    open: Open,
    opening: Mutex<()>,
    opened: OnceLock<Device>,
}

type Open = Box<dyn Fn() -> Result<Device> + Send + Sync>;

impl Placement {
    /// The CPU in f32, which its operators are written for.
    pub fn cpu() -> Self {
        Self::new("cpu", "cpu", DType::F32, || Ok(Device::Cpu))
    }

    /// A device that `open` gives when it is needed first, such as `cuda:0` of the back end `cuda`.
    pub fn new(
        back_end: &'static str,
        device_name: impl Into<String>,
        dtype: DType,
        open: impl Fn() -> Result<Device> + Send + Sync + 'static,
    ) -> Self {
        Self::with(back_end, device_name.into(), dtype, false, Box::new(open))
    }

    /// As [`new`](Self::new), for a device that one thread at a time may use.
    pub fn exclusive(
        back_end: &'static str,
        device_name: impl Into<String>,
        dtype: DType,
        open: impl Fn() -> Result<Device> + Send + Sync + 'static,
    ) -> Self {
        Self::with(back_end, device_name.into(), dtype, true, Box::new(open))
    }

    fn with(
        back_end: &'static str,
        device_name: String,
        dtype: DType,
        exclusive: bool,
        open: Open,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                back_end,
                device_name,
                dtype,
                exclusive,
                open,
                opening: Mutex::default(),
                opened: OnceLock::new(),
            }),
        }
    }

    /// Name of the back end, such as `cuda`.
    pub fn back_end(&self) -> &'static str {
        self.shared.back_end
    }

    /// Name of the device, such as `cuda:0`.
    pub fn device_name(&self) -> &str {
        &self.shared.device_name
    }

    /// The type weights and activations have. Coordinates, scores and rotary tables are f32 whatever
    /// it is.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// The device, opened by the first caller while others wait.
    ///
    /// # Errors
    /// The device cannot be opened; the next call tries again.
    pub fn device(&self) -> Result<Device> {
        let Shared {
            opened,
            opening,
            open,
            ..
        } = &*self.shared;
        if let Some(device) = opened.get() {
            return Ok(device.clone());
        }
        let _one = opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get() {
            return Ok(device.clone());
        }
        let device = open()?;
        Ok(opened.get_or_init(|| device).clone())
    }

    /// Waits for the sole use of a device that threads cannot share; nothing for one that they can.
    /// Held over loading, moving, the forward pass and reading back. Not re-entrant.
    pub fn enter(&self) -> Option<DeviceSection> {
        self.shared
            .exclusive
            .then(|| DeviceSection::enter(&self.shared.device_name))
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placement({}, {:?})", self.device_name(), self.dtype())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use shelfscan_inference_core::InferenceError;

    use super::*;

    #[test]
    fn a_device_is_opened_once_for_all_threads_and_only_when_it_is_needed() {
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&opened);
        let place = Placement::new("fake", "fake:0", DType::F16, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Device::Cpu)
        });
        assert_eq!(opened.load(Ordering::SeqCst), 0);
        thread::scope(|scope| {
            for _ in 0..8 {
                let place = place.clone();
                scope.spawn(move || assert!(place.device().unwrap().is_cpu()));
            }
        });
        assert_eq!(opened.load(Ordering::SeqCst), 1);
        assert_eq!(format!("{place:?}"), "Placement(fake:0, F16)");
    }

    #[test]
    fn a_device_that_did_not_open_may_open_later() {
        let tries = AtomicUsize::new(0);
        let place = Placement::new("fake", "fake:1", DType::F32, move || {
            match tries.fetch_add(1, Ordering::SeqCst) {
                0 => Err(InferenceError::InvalidInput("busy".into())),
                _ => Ok(Device::Cpu),
            }
        });
        assert!(place.device().is_err());
        assert!(place.device().is_ok());
    }

    #[test]
    fn two_models_at_one_exclusive_place_wait_for_each_other() {
        let place = Placement::exclusive("fake", "fake:2", DType::F32, || Ok(Device::Cpu));
        let other = place.clone();
        let held = place.enter();
        assert!(held.is_some());
        let waiting = thread::spawn(move || drop(other.enter()));
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap();
        assert!(Placement::cpu().enter().is_none());
    }
}
