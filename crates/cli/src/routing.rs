//! What the models of a command run on.
//!
//! Without a word from the caller it is the fastest there is: Metal on Apple silicon, else the first
//! CUDA card, else the CPU. A device that was named is taken or refused, never replaced.

use shelfscan_inference_core::InferenceError;
use shelfscan_pipeline::RunsOn;

use crate::args::{DeviceArg, DtypeArg};

/// A device that was decided on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Never [`DeviceArg::Auto`].
    pub(crate) device: DeviceArg,
    pub(crate) dtype: DtypeArg,
    /// What led to it, for people.
    pub(crate) why: String,
}

impl Route {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!(
            "runs on {} in {}: {}",
            self.device,
            self.dtype.name(),
            self.why
        )
    }
}

impl From<&Route> for RunsOn {
    fn from(route: &Route) -> Self {
        Self {
            device: route.device.to_string(),
            dtype: route.dtype.name().into(),
            why: route.why.clone(),
        }
    }
}

/// What a machine and a build have to offer. Each answer is what a device is, or why it cannot be
/// used and what to do about it.
pub(crate) trait Machine {
    fn cuda(&self, card: usize, dtype: DtypeArg) -> Result<String, InferenceError>;
    fn metal(&self, dtype: DtypeArg) -> Result<String, InferenceError>;
}

/// Decides what the models run on.
pub(crate) fn route(
    device: DeviceArg,
    dtype: DtypeArg,
    machine: &dyn Machine,
) -> Result<Route, InferenceError> {
    let named = |what: &str| format!("{what}, as asked");
    let why = match device {
        DeviceArg::Auto => return fastest(dtype, machine),
        DeviceArg::Cpu => {
            check_cpu(dtype)?;
            "as asked".into()
        }
        DeviceArg::Cuda(card) => named(&machine.cuda(card, dtype)?),
        DeviceArg::Metal => named(&machine.metal(dtype)?),
    };
    Ok(Route { device, dtype, why })
}

fn fastest(dtype: DtypeArg, machine: &dyn Machine) -> Result<Route, InferenceError> {
    let picked = |device, why| Ok(Route { device, dtype, why });
    let no_metal = match machine.metal(dtype) {
        Ok(what) => return picked(DeviceArg::Metal, what),
        Err(error) => error,
    };
    let no_cuda = match machine.cuda(0, dtype) {
        Ok(what) => return picked(DeviceArg::Cuda(0), what),
        Err(error) => error,
    };
    // The one that could have been, had the card or the driver been another.
    let nearest = match (&no_cuda, &no_metal) {
        (InferenceError::NotBuilt { .. }, InferenceError::NotBuilt { .. }) => None,
        (InferenceError::NotBuilt { .. }, _) => Some(no_metal),
        _ => Some(no_cuda),
    };
    match nearest {
        None => {
            check_cpu(dtype)?;
            picked(DeviceArg::Cpu, "this build has no other back end".into())
        }
        // A type that was asked for is as good as a device that was.
        Some(error) if dtype != DtypeArg::F32 => Err(error),
        Some(error) => picked(DeviceArg::Cpu, reason(&error)),
    }
}

fn check_cpu(dtype: DtypeArg) -> Result<(), InferenceError> {
    if dtype == DtypeArg::F32 {
        return Ok(());
    }
    Err(InferenceError::DeviceUnavailable {
        device: "cpu".into(),
        reason: format!("its operators calculate in f32, not in {}", dtype.name()),
        remedy: "leave --dtype out, or pass --device cuda or metal with a build that has it".into(),
    })
}

/// Why a device cannot be used, without what to do about it.
fn reason(error: &InferenceError) -> String {
    match error {
        InferenceError::DeviceUnavailable { device, reason, .. } => {
            format!("no {device}: {reason}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made up of answers.
    #[derive(Default)]
    struct Made {
        cuda: Option<(u32, &'static str)>,
        metal: bool,
        built: bool,
    }

    impl Machine for Made {
        fn cuda(&self, card: usize, dtype: DtypeArg) -> Result<String, InferenceError> {
            let unusable = |reason: &str| {
                Err(InferenceError::DeviceUnavailable {
                    device: format!("cuda:{card}"),
                    reason: reason.into(),
                    remedy: "pass --device cpu".into(),
                })
            };
            match self.cuda {
                _ if !self.built => Err(absent("cuda")),
                None => unusable("the driver finds no card"),
                Some(_) if card > 0 => unusable("there is one card"),
                Some((major, _)) if major < 8 && dtype == DtypeArg::Bf16 => unusable("no bf16"),
                Some((_, name)) => Ok(name.into()),
            }
        }

        fn metal(&self, _: DtypeArg) -> Result<String, InferenceError> {
            if self.metal {
                Ok("a GPU".into())
            } else {
                Err(absent("metal"))
            }
        }
    }

    fn absent(backend: &str) -> InferenceError {
        InferenceError::NotBuilt {
            backend: backend.into(),
            remedy: "build it".into(),
        }
    }

    fn picked(text: &str, dtype: DtypeArg, machine: &Made) -> String {
        match route(text.parse().unwrap(), dtype, machine) {
            Ok(route) => route.line(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_fastest_device_that_works_is_taken_and_the_reason_told() {
        let f32 = DtypeArg::F32;
        let card = Made {
            cuda: Some((9, "H200")),
            built: true,
            ..Made::default()
        };
        let mac = Made {
            metal: true,
            ..Made::default()
        };
        let no_card = Made {
            built: true,
            ..Made::default()
        };
        assert_eq!(picked("auto", f32, &card), "runs on cuda:0 in f32: H200");
        assert_eq!(picked("auto", f32, &mac), "runs on metal in f32: a GPU");
        assert_eq!(
            picked("auto", f32, &no_card),
            "runs on cpu in f32: no cuda:0: the driver finds no card"
        );
        assert_eq!(
            picked("auto", f32, &Made::default()),
            "runs on cpu in f32: this build has no other back end"
        );
    }

    #[test]
    fn a_named_device_is_never_replaced() {
        let f32 = DtypeArg::F32;
        let no_card = Made {
            built: true,
            metal: true,
            ..Made::default()
        };
        assert_eq!(
            picked("cuda:0", f32, &no_card),
            "device cuda:0 cannot be used: the driver finds no card; pass --device cpu"
        );
        assert_eq!(
            picked("metal", f32, &Made::default()),
            "this build has no metal back end; build it"
        );
        assert_eq!(picked("cpu", f32, &no_card), "runs on cpu in f32: as asked");
        assert_eq!(
            picked("metal", f32, &no_card),
            "runs on metal in f32: a GPU, as asked"
        );
    }

    #[test]
    fn a_type_that_was_asked_for_is_not_dropped_to_find_a_device() {
        let old = Made {
            cuda: Some((7, "T4")),
            built: true,
            ..Made::default()
        };
        assert!(picked("auto", DtypeArg::Bf16, &old).contains("no bf16"));
        assert_eq!(
            picked("auto", DtypeArg::F16, &old),
            "runs on cuda:0 in f16: T4"
        );
        let text = picked("auto", DtypeArg::Bf16, &Made::default());
        assert!(text.contains("leave --dtype out"), "{text}");
        assert!(picked("cpu", DtypeArg::F16, &old).contains("calculate in f32"));
    }
}
