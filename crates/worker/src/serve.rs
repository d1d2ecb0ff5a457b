//! The worker's side.

use std::{
    io::{self, Read, Write},
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use shelfscan_inference_core::{
    Embedder, InferenceError, InferenceProvider, Result,
    protocol::{ProtocolError, Request, Response},
};

use crate::wire::{self, WireError};

/// What a worker holds.
pub struct Served {
    /// The detector.
    pub provider: Box<dyn InferenceProvider>,
    /// The embedder, when there is one.
    pub embedder: Option<Arc<dyn Embedder>>,
}

/// Why serving ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// What arrived is no request. Remedy: start the worker from the program, not by hand.
    #[error(
        "the other side does not speak the worker protocol; a worker is started by the program itself"
    )]
    Protocol(#[source] ProtocolError),
    /// A stream broke: the program that started the worker is gone.
    #[error("the program that started the worker is gone")]
    Gone(#[source] io::Error),
}

/// Answers calls that arrive from `from` on `to`, one by one, until it is asked to end or `from`
/// ends.
///
/// `make` gets the configuration that the caller gave to [`Worker::new`](crate::Worker::new), and
/// its error is the answer to the caller's first warm-up. Nothing but this may write to `to`.
///
/// `from` is read on a thread of its own while a call is under way, so a reader can act on the end
/// of the stream at once, as a worker must whose program is gone.
///
/// # Errors
/// The streams broke, or carried something else. Errors of the models are answers.
pub fn serve(
    make: impl FnOnce(&[u8]) -> Result<Served>,
    mut from: impl Read + Send + 'static,
    mut to: impl Write,
) -> Result<(), ServeError> {
    // Holds nothing: a request is read while the one before it is answered, and no further.
    let (arriving, requests) = sync_channel(0);
    thread::Builder::new()
        .name("worker-requests".into())
        .spawn(move || {
            loop {
                let next = next_request(&mut from);
                let last = !matches!(next, Ok(Some((_, ref request))) if !matches!(request, Request::Shutdown));
                if arriving.send(next).is_err() || last {
                    return;
                }
            }
        })
        .map_err(ServeError::Gone)?;

    let mut make = Some(make);
    let mut served = None;
    for arrived in requests {
        let Some((call, request)) = arrived? else {
            return Ok(());
        };
        let last = matches!(request, Request::Shutdown);
        let response = match (request, &mut served) {
            (Request::Configure(configuration), None) => match make.take() {
                Some(make) => make(&configuration).map(|models| {
                    let info = models.provider.info();
                    served = Some(models);
                    Response::Info(info)
                }),
                None => Err(out_of_turn("configure")),
            },
            (Request::Shutdown, None) => Ok(Response::Done),
            (request, None) => Err(out_of_turn(request.call_name())),
            (request, Some(models)) => models.answer(request),
        };
        let response = response.unwrap_or_else(Response::Failed);
        let message = response.encode(call).or_else(|error| {
            // An answer that cannot cross is an error that can.
            Response::Failed(InferenceError::backend("the answer of a worker", error)).encode(call)
        });
        wire::write(&mut to, &message.map_err(ServeError::Protocol)?).map_err(ServeError::Gone)?;
        if last {
            return Ok(());
        }
    }
    Ok(())
}

type Next = std::result::Result<Option<(u32, Request)>, ServeError>;

fn next_request(from: &mut impl Read) -> Next {
    let arrived = wire::read(from).map_err(|error| match error {
        WireError::Protocol(error) => ServeError::Protocol(error),
        WireError::CutShort => ServeError::Gone(io::ErrorKind::UnexpectedEof.into()),
        WireError::Io(error) => ServeError::Gone(error),
    })?;
    let Some(arrived) = arrived else {
        return Ok(None);
    };
    let request = Request::decode(&arrived.header, &arrived.meta, arrived.bulk)
        .map_err(ServeError::Protocol)?;
    Ok(Some((arrived.header.call, request)))
}

impl Served {
    fn answer(&mut self, request: Request) -> Result<Response> {
        let provider = self.provider.as_mut();
        Ok(match request {
            Request::Warmup => {
                provider.warmup()?;
                Response::Info(provider.info())
            }
            Request::Detect(frame, prompts) => {
                Response::Found(vec![provider.detect_text_prompts(&frame, &prompts)?])
            }
            Request::Start(frame, prompts) => {
                Response::Found(provider.start_tracking(&frame, &prompts)?)
            }
            Request::Track(frame) => Response::Found(provider.track_next(&frame)?),
            Request::Finish => Response::Found(provider.finish_tracking()?),
            Request::Shutdown => {
                provider.shutdown()?;
                Response::Done
            }
            Request::WarmupEmbedder => {
                self.embedder()?.warmup()?;
                Response::Done
            }
            Request::Fingerprint => Response::Fingerprint(self.embedder()?.fingerprint()?),
            Request::Embed(crops) => Response::Embeddings(self.embedder()?.embed(&crops)?),
            other => return Err(out_of_turn(other.call_name())),
        })
    }

    fn embedder(&self) -> Result<&dyn Embedder> {
        self.embedder
            .as_deref()
            .ok_or_else(|| InferenceError::InvalidInput("this worker has no embedder".into()))
    }
}

fn out_of_turn(call: &'static str) -> InferenceError {
    InferenceError::OutOfOrder {
        call,
        state: "not configured, or configured already",
        remedy: "make a new provider",
    }
}

#[cfg(test)]
mod tests {
    use std::{io::pipe, time::Duration};

    use shelfscan_inference_core::{
        EmbedderFingerprint, Embeddings, FrameTime, ProviderInfo, RgbImage, SourceId, TextPrompt,
        VideoFrame,
    };
    use shelfscan_testkit::{
        conformance::check_provider,
        scripted::{ScriptedProvider, detection},
    };

    use super::*;
    use crate::{Worker, WorkerOptions, link::Link};

    fn frames(n: u64) -> Vec<VideoFrame> {
        (0..n)
            .map(|index| VideoFrame {
                image: RgbImage::new(64, 48, vec![index as u8; 64 * 48 * 3]).unwrap(),
                index,
                time: FrameTime::exact(index as f64 / 30.0),
                source: SourceId::new("drawn"),
            })
            .collect()
    }

    fn script() -> ScriptedProvider {
        ScriptedProvider::new(|frame| {
            if frame.index == 66 {
                return Err(InferenceError::InvalidInput("frame 66".into()));
            }
            let x = f32::from(frame.image.pixels()[0]);
            Ok(vec![
                detection("product", 0.9, [x, 2.0, x + 10.0, 20.0], Some(1)),
                detection("product", 0.8, [x + 20.0, 2.0, x + 30.0, 20.0], Some(2)),
            ])
        })
    }

    fn prompts() -> Vec<TextPrompt> {
        vec![TextPrompt::new("product").unwrap()]
    }

    /// Two numbers of a crop.
    struct Corners;

    impl Embedder for Corners {
        fn fingerprint(&self) -> Result<EmbedderFingerprint> {
            Ok(EmbedderFingerprint {
                model: "corners".into(),
                weights_hash: "0".into(),
                preprocessing: "none".into(),
                dimension: 2,
            })
        }

        fn warmup(&self) -> Result<()> {
            Ok(())
        }

        fn embed(&self, crops: &[RgbImage]) -> Result<Embeddings> {
            let corners = crops
                .iter()
                .flat_map(|c| [c.pixels()[0], *c.pixels().last().unwrap()])
                .map(f32::from);
            Embeddings::new(2, corners.collect())
        }
    }

    /// A worker on a thread of this process, made anew at each start.
    fn worker(make: impl Fn() -> Result<Served> + Send + Sync + 'static) -> Worker {
        let make = Arc::new(make);
        let launch = move || {
            let (their_input, our_output) = pipe()?;
            let (our_input, their_output) = pipe()?;
            let make = Arc::clone(&make);
            thread::spawn(move || serve(|_| make(), their_input, their_output));
            Link::over(our_input, our_output)
        };
        let options = WorkerOptions::default().with_deadline(Duration::from_mins(10));
        Worker::launched_by(Box::new(launch), Vec::new(), options)
    }

    fn scripted(script: impl Fn() -> ScriptedProvider + Send + Sync + 'static) -> Worker {
        worker(move || {
            Ok(Served {
                provider: Box::new(script()),
                embedder: Some(Arc::new(Corners)),
            })
        })
    }

    fn cold(script: &ScriptedProvider) -> ProviderInfo {
        script.info()
    }

    #[test]
    fn a_provider_behind_the_protocol_keeps_the_contract_with_and_without_ids_and_delay() {
        fn check(script: fn() -> ScriptedProvider) {
            check_provider(
                || Box::new(scripted(script).provider(cold(&script()))),
                &frames(6),
                &prompts(),
            );
        }
        check(script);
        check(|| script().with_own_ids());
        check(|| script().with_own_ids().with_delay(3));
    }

    #[test]
    fn an_error_of_the_model_is_told_and_the_worker_goes_on() {
        let mut provider = scripted(script).provider(cold(&script()));
        provider.warmup().unwrap();
        let mut bad = frames(1).remove(0);
        bad.index = 66;
        let error = provider.detect_text_prompts(&bad, &prompts()).unwrap_err();
        assert_eq!(error.to_string(), "invalid input: frame 66");
        assert!(
            provider
                .detect_text_prompts(&frames(1)[0], &prompts())
                .is_ok()
        );
    }

    #[test]
    fn the_embedder_shares_the_worker_and_its_threads_take_turns() {
        let worker = scripted(script);
        let embedder = worker.embedder();
        assert_eq!(embedder.fingerprint().unwrap().dimension, 2);
        embedder.warmup().unwrap();
        let mut provider = worker.provider(cold(&script()));
        provider.warmup().unwrap();
        thread::scope(|scope| {
            for value in 0..8u8 {
                let embedder = &embedder;
                scope.spawn(move || {
                    for _ in 0..20 {
                        let crop = RgbImage::new(1, 2, vec![value, 0, 0, 0, 0, value + 1]).unwrap();
                        let got = embedder.embed(&[crop.clone(), crop]).unwrap();
                        let want = [f32::from(value), f32::from(value + 1)];
                        assert_eq!(got.values(), [want, want].concat());
                    }
                });
            }
            for frame in frames(20) {
                provider.detect_text_prompts(&frame, &prompts()).unwrap();
            }
        });
        assert!(embedder.embed(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_configuration_that_is_refused_is_the_error_of_the_warm_up() {
        let refuse = || -> Result<Served> {
            Err(InferenceError::NotBuilt {
                backend: "cuda".into(),
                remedy: "build it".into(),
            })
        };
        let mut provider = worker(refuse).provider(cold(&script()));
        let error = provider.warmup().unwrap_err();
        assert_eq!(
            error.to_string(),
            "this build has no cuda back end; build it"
        );
    }

    #[test]
    fn an_answer_that_cannot_be_is_a_lie_and_the_next_warm_up_starts_anew() {
        let lying = || {
            ScriptedProvider::new(|frame| {
                let score = if frame.index == 1 { f32::NAN } else { 0.9 };
                Ok(vec![detection(
                    "product",
                    score,
                    [0.0, 0.0, 9.0, 9.0],
                    None,
                )])
            })
        };
        let mut provider = scripted(lying).provider(cold(&lying()));
        provider.warmup().unwrap();
        let frames = frames(3);
        provider.start_tracking(&frames[0], &prompts()).unwrap();
        let error = provider.track_next(&frames[1]).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("worker failed in track_next: it answered nonsense"),
            "{text}"
        );
        let text = provider.track_next(&frames[2]).unwrap_err().to_string();
        assert!(text.contains("warm it up to start it anew"), "{text}");
        provider.warmup().unwrap();
        provider.track_next(&frames[2]).unwrap_err();
        assert!(provider.detect_text_prompts(&frames[2], &prompts()).is_ok());
    }

    #[test]
    fn bytes_that_are_no_request_end_the_worker_with_a_reason() {
        let make = || -> Result<Served> { unreachable!("nothing was configured") };
        let mut out = Vec::new();
        let ended = serve(|_| make(), &b"hello there, what is this?"[..], &mut out);
        assert!(matches!(ended, Err(ServeError::Protocol(_))), "{ended:?}");
        assert!(serve(|_| make(), &b""[..], &mut out).is_ok());
        assert!(out.is_empty());
    }
}
