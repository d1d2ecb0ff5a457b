//! The models of a command, in this process or in one of their own.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{Embedder, InferenceError, InferenceProvider};
use shelfscan_worker::{Served, Worker, WorkerCommand, WorkerOptions};

use crate::{
    args::{DeviceArg, ModelSettings},
    backend::{self, Detector, Placement},
    exit::Usage,
    printer::Printer,
    routing::Route,
    weights,
};

/// Name of the hidden command that answers the calls of another one.
pub(crate) const WORKER: &str = "worker";

/// All that the models of a command depend on; it crosses to a worker as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) models: ModelSettings,
    /// Score that finds need; the model's own default when `None`.
    pub(crate) min_score: Option<f32>,
    /// Frames from one detection to the next, for a model that tracks by itself.
    pub(crate) detect_every: Option<u32>,
    /// Threads to use; one each core when `None`.
    pub(crate) threads: Option<usize>,
}

/// The models of a configuration in this process.
struct Here {
    configuration: Configuration,
    route: Route,
    place: Placement,
}

impl Here {
    fn new(mut configuration: Configuration) -> anyhow::Result<Self> {
        check_threads(configuration.threads)?;
        backend::check(&configuration.models, configuration.detect_every)?;
        let route = backend::route(&configuration.models)?;
        let place = backend::place(&route)?;
        // From here on nobody decides anew, a worker least of all.
        configuration.models.device = Some(route.device);
        configuration.models.dtype = Some(route.dtype);
        Ok(Self {
            configuration,
            route,
            place,
        })
    }

    fn detector(&self) -> anyhow::Result<Box<dyn InferenceProvider>> {
        backend::open_provider(Detector::Model {
            models: self.configuration.models.clone(),
            min_score: self.configuration.min_score,
            detect_every: self.configuration.detect_every,
            place: self.place.clone(),
        })
    }

    fn embedder(&self) -> anyhow::Result<Arc<dyn Embedder>> {
        backend::open_embedder(&self.configuration.models, self.place.clone())
    }
}

/// Opens the models where they are to run; nothing heavy happens before their warm-up.
pub(crate) struct Models {
    here: Here,
    worker: Option<Worker>,
}

impl Models {
    /// Checks the settings, decides where to run, and then downloads what the detector or the embedder,
    /// as far as they are wanted, lack.
    pub(crate) fn new(
        configuration: Configuration,
        (detector, embedder): (bool, bool),
        printer: &Arc<Printer>,
    ) -> anyhow::Result<Self> {
        let options = options(configuration.models.call_deadline_secs)?;
        let isolate = configuration.models.isolate;
        let mut here = Here::new(configuration)?;
        let models = std::mem::take(&mut here.configuration.models);
        here.configuration.models = weights::fetch(models, detector, embedder, printer)?;
        let worker = isolate
            .unwrap_or(here.route.device == DeviceArg::Metal)
            .then(|| worker(&here.configuration, options))
            .transpose()?;
        Ok(Self { here, worker })
    }

    /// The settings, with files in the place of names.
    pub(crate) fn settings(&self) -> &ModelSettings {
        &self.here.configuration.models
    }

    /// What the models run on and why.
    pub(crate) fn route(&self) -> &Route {
        &self.here.route
    }

    pub(crate) fn detector(&self) -> anyhow::Result<Box<dyn InferenceProvider>> {
        // Made here in either case, so that a slip on the command line is told before a process is
        // started; it is dropped cold.
        let here = self.here.detector()?;
        Ok(match &self.worker {
            Some(worker) => Box::new(worker.provider(here.info())),
            None => here,
        })
    }

    pub(crate) fn embedder(&self) -> anyhow::Result<Arc<dyn Embedder>> {
        let here = self.here.embedder()?;
        Ok(match &self.worker {
            Some(worker) => Arc::new(worker.embedder()),
            None => here,
        })
    }
}

/// What a worker makes of the configuration it is given.
pub(crate) fn served(configuration: &[u8]) -> Result<Served, InferenceError> {
    let configuration: Configuration = serde_json::from_slice(configuration)
        .map_err(|e| InferenceError::InvalidInput(format!("the worker's configuration: {e}")))?;
    set_threads(configuration.threads).map_err(crossing)?;
    let here = Here::new(configuration).map_err(crossing)?;
    Ok(Served {
        provider: here.detector().map_err(crossing)?,
        // A scan without a gallery asks for none, so a missing one is no error here.
        embedder: here.embedder().ok(),
    })
}

/// An error of this program in the words of the contract, which is what crosses.
fn crossing(error: anyhow::Error) -> InferenceError {
    match error.downcast::<InferenceError>() {
        Ok(error) => error,
        Err(error) => InferenceError::InvalidInput(format!("{error:#}")),
    }
}

fn check_threads(threads: Option<usize>) -> anyhow::Result<()> {
    match threads {
        Some(0) => Err(Usage::new("--threads cannot be 0; 1 is the least").into()),
        Some(threads @ 1025..) => Err(Usage::new(format!(
            "--threads cannot be {threads}; 1024 is the most, and more than the cores do not help"
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Sets how many threads calculate, once for the process.
pub(crate) fn set_threads(threads: Option<usize>) -> anyhow::Result<()> {
    check_threads(threads)?;
    let Some(threads) = threads else {
        return Ok(());
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .context("starting the threads")
}

fn worker(configuration: &Configuration, options: WorkerOptions) -> anyhow::Result<Worker> {
    let program = std::env::current_exe().context("finding this program to start it again")?;
    let mut configuration = configuration.clone();
    configuration.models.isolate = Some(false);
    let configuration = serde_json::to_vec(&configuration).context(
        "a path that is not UTF-8 cannot cross to another process; pass --isolate=false",
    )?;
    let command = WorkerCommand::new(program).arg(WORKER);
    Ok(Worker::new(command, configuration, options))
}

fn options(deadline_secs: Option<f64>) -> anyhow::Result<WorkerOptions> {
    let options = WorkerOptions::default();
    let Some(secs) = deadline_secs else {
        return Ok(options);
    };
    let deadline = Duration::try_from_secs_f64(secs)
        .ok()
        .filter(|d| !d.is_zero());
    match deadline {
        Some(deadline) => Ok(options
            .with_deadline(deadline)
            .with_warmup_deadline(deadline)),
        None => Err(Usage::new(format!(
            "--call-deadline-secs cannot be {secs}; it has to be above 0"
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_a_worker_survives_the_crossing() {
        let sent = Configuration {
            models: ModelSettings {
                weights: Some("a/b.pt".into()),
                device: Some("cuda:1".parse().unwrap()),
                tiles: Some("2x3".parse().unwrap()),
                ..ModelSettings::default()
            },
            min_score: Some(0.3),
            detect_every: Some(4),
            threads: Some(2),
        };
        let bytes = serde_json::to_vec(&sent).unwrap();
        let got: Configuration = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
    }

    #[test]
    fn a_deadline_that_cannot_be_met_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let text = options(Some(bad)).unwrap_err().to_string();
            assert!(text.contains("--call-deadline-secs"), "{text}");
        }
        assert_eq!(options(Some(1.5)).unwrap().deadline.as_secs_f64(), 1.5);
    }

    #[test]
    fn an_error_crosses_with_its_hint_less_words() {
        let told = crossing(Usage::new("no such device").hint("try cpu").into());
        assert_eq!(told.to_string(), "invalid input: no such device");
        assert!(matches!(
            crossing(InferenceError::NonFinite { stage: "x".into() }.into()),
            InferenceError::NonFinite { .. }
        ));
    }
}
