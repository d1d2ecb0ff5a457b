//! The identity lane: crops go in, answers come out, detection never waits.
//!
//! Batches are made of crops in the order the frames bring them, never of what happens to be
//! waiting, because the size of a batch can change the last digits of an embedding. So the answers
//! are the same for any number of workers, and come back in the order of the batches.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use serde::{Deserialize, Serialize};
use shelfscan_gallery::{Answer, GalleryError, Recognizer};
use shelfscan_inference_core::{BoxXyxy, EmbedderFingerprint, Mask, RgbImage, TrackId};

use crate::{IdentityOptions, PipelineError, Result, report::StageTime};

/// Batches that may wait for a worker. With the default batch that is a thousand crops; a lane that
/// falls further behind holds the scan up rather than fill the memory.
const MAX_WAITING_BATCHES: usize = 64;

/// Names the SKU of a crop. A loaded [`Recognizer`] does; an app may bring its own.
pub trait Identify: Send + Sync {
    /// Cuts a pack out of its frame the way the enrolled views were cut.
    fn crop(&self, image: &RgbImage, bbox: &BoxXyxy, mask: Option<&Mask>) -> Option<RgbImage>;

    /// One answer for each crop, in order.
    ///
    /// # Errors
    /// The embedder failed.
    fn identify(&self, crops: &[RgbImage]) -> Result<Vec<Answer>, GalleryError>;

    /// Changes whenever an answer could: hex over the gallery and the embedder.
    fn fingerprint(&self) -> String;

    /// The model that embeds the crops, for the record; `None` when no single one does.
    fn embedder(&self) -> Option<EmbedderFingerprint> {
        None
    }
}

impl Identify for Recognizer {
    fn crop(&self, image: &RgbImage, bbox: &BoxXyxy, mask: Option<&Mask>) -> Option<RgbImage> {
        self.crop_policy().crop(image, bbox, mask)
    }

    fn identify(&self, crops: &[RgbImage]) -> Result<Vec<Answer>, GalleryError> {
        Recognizer::identify(self, crops)
    }

    fn fingerprint(&self) -> String {
        Recognizer::fingerprint(self)
    }

    fn embedder(&self) -> Option<EmbedderFingerprint> {
        Some(self.embedder_fingerprint().clone())
    }
}

/// A crop on its way to an answer.
#[derive(Clone, Debug)]
pub(crate) struct CropJob {
    pub(crate) track: TrackId,
    pub(crate) frame_index: u64,
    pub(crate) image: RgbImage,
}

/// The answer to one crop of one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CropAnswer {
    pub(crate) track_id: TrackId,
    pub(crate) frame_index: u64,
    pub(crate) answer: Answer,
}

/// The answers to one batch: a line of `identities.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchAnswer {
    pub(crate) batch: u64,
    pub(crate) answers: Vec<CropAnswer>,
}

struct Batch {
    number: u64,
    jobs: Vec<CropJob>,
}

struct Done {
    number: u64,
    answers: Result<Vec<CropAnswer>, GalleryError>,
    busy: Duration,
}

/// Embeds and matches crops on its own threads.
pub(crate) struct IdentityLane {
    to_workers: Option<Sender<Batch>>,
    from_workers: Receiver<Done>,
    workers: Vec<JoinHandle<()>>,
    batch: usize,
    max_wait_frames: u64,
    forming: Vec<CropJob>,
    forming_since: u64,
    next_number: u64,
    /// Answers that came before their turn.
    early: BTreeMap<u64, Result<Vec<CropAnswer>, GalleryError>>,
    next_out: u64,
    /// Answers an earlier run put on disk, by batch.
    known: BTreeMap<u64, Vec<CropAnswer>>,
    time: StageTime,
}

impl IdentityLane {
    pub(crate) fn new(
        identify: &Arc<dyn Identify>,
        options: &IdentityOptions,
        known: BTreeMap<u64, Vec<CropAnswer>>,
    ) -> Self {
        let (to_workers, jobs) = bounded::<Batch>(MAX_WAITING_BATCHES);
        let (answers, from_workers) = unbounded();
        let workers = (0..options.resolved_workers())
            .map(|_| {
                let (identify, jobs, answers) =
                    (Arc::clone(identify), jobs.clone(), answers.clone());
                std::thread::spawn(move || work(identify.as_ref(), &jobs, &answers))
            })
            .collect();
        Self {
            to_workers: Some(to_workers),
            from_workers,
            workers,
            batch: options.batch.max(1) as usize,
            max_wait_frames: u64::from(options.max_wait_frames),
            forming: Vec::new(),
            forming_since: 0,
            next_number: 0,
            early: BTreeMap::new(),
            next_out: 0,
            known,
            time: StageTime::default(),
        }
    }

    /// Adds a crop; `step` is the number of the processed frame it comes with.
    pub(crate) fn submit(&mut self, job: CropJob, step: u64) {
        if self.forming.is_empty() {
            self.forming_since = step;
        }
        self.forming.push(job);
        if self.forming.len() >= self.batch {
            self.send();
        }
    }

    /// Sends a batch that waited long enough.
    pub(crate) fn tick(&mut self, step: u64) {
        if !self.forming.is_empty() && step >= self.forming_since + self.max_wait_frames {
            self.send();
        }
    }

    fn send(&mut self) {
        let jobs = std::mem::take(&mut self.forming);
        let number = self.next_number;
        self.next_number += 1;
        let known = self.known.remove(&number).filter(|answers| {
            answers.len() == jobs.len()
                && answers
                    .iter()
                    .zip(&jobs)
                    .all(|(a, j)| (a.track_id, a.frame_index) == (j.track, j.frame_index))
        });
        if let Some(answers) = known {
            self.early.insert(number, Ok(answers));
        } else if let Some(to_workers) = &self.to_workers
            && to_workers.send(Batch { number, jobs }).is_err()
        {
            // Every worker is gone, which only a panic does; the wait for answers will say so.
            self.to_workers = None;
        }
    }

    /// The batches that are answered, in order; does not wait.
    pub(crate) fn ready(&mut self) -> Result<Vec<BatchAnswer>> {
        while let Ok(done) = self.from_workers.try_recv() {
            self.take(done);
        }
        self.in_order()
    }

    /// Sends what is forming and waits for the next answers; `None` when all are there.
    pub(crate) fn drain(&mut self) -> Result<Option<Vec<BatchAnswer>>> {
        if !self.forming.is_empty() {
            self.send();
        }
        if self.next_out == self.next_number {
            return Ok(None);
        }
        if !self.early.contains_key(&self.next_out) {
            // No more batches will come, so the workers end, and a panic shows as a closed channel.
            self.to_workers = None;
            let done = self
                .from_workers
                .recv()
                .map_err(|_| PipelineError::Panicked {
                    stage: "identity",
                    message: "a worker ended without an answer".into(),
                })?;
            self.take(done);
        }
        self.in_order().map(Some)
    }

    /// Crops sent that are not answered yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.next_number - self.next_out
    }

    /// Time spent embedding and matching.
    pub(crate) fn time(&self) -> StageTime {
        self.time
    }

    fn take(&mut self, done: Done) {
        self.time.busy_secs += done.busy.as_secs_f64();
        if let Ok(answers) = &done.answers {
            self.time.items += answers.len() as u64;
        }
        self.early.insert(done.number, done.answers);
    }

    fn in_order(&mut self) -> Result<Vec<BatchAnswer>> {
        let mut out = Vec::new();
        while let Some(answers) = self.early.remove(&self.next_out) {
            out.push(BatchAnswer {
                batch: self.next_out,
                answers: answers?,
            });
            self.next_out += 1;
        }
        Ok(out)
    }
}

impl Drop for IdentityLane {
    fn drop(&mut self) {
        self.to_workers = None;
        for worker in self.workers.drain(..) {
            // A panic was already reported as a missing answer.
            drop(worker.join());
        }
    }
}

fn work(identify: &dyn Identify, jobs: &Receiver<Batch>, answers: &Sender<Done>) {
    for batch in jobs {
        let start = Instant::now();
        let images: Vec<RgbImage> = batch.jobs.iter().map(|j| j.image.clone()).collect();
        let found = identify.identify(&images).map(|found| {
            batch
                .jobs
                .iter()
                .zip(found)
                .map(|(job, answer)| CropAnswer {
                    track_id: job.track,
                    frame_index: job.frame_index,
                    answer,
                })
                .collect()
        });
        let done = Done {
            number: batch.number,
            answers: found,
            busy: start.elapsed(),
        };
        if answers.send(done).is_err() {
            return;
        }
    }
}

/// Reads the answers an earlier run put on disk. A cut or damaged line and all after it are
/// ignored: they are asked again.
pub(crate) fn read_known(path: &Path) -> BTreeMap<u64, Vec<CropAnswer>> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return BTreeMap::new();
    };
    text.split_inclusive('\n')
        .take_while(|line| line.ends_with('\n'))
        .map_while(|line| serde_json::from_str::<BatchAnswer>(line).ok())
        .map(|line| (line.batch, line.answers))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers with the first byte of a crop as its SKU; slower for small ones.
    struct ByFirstByte {
        calls: AtomicUsize,
    }

    impl Identify for ByFirstByte {
        fn crop(&self, image: &RgbImage, _: &BoxXyxy, _: Option<&Mask>) -> Option<RgbImage> {
            Some(image.clone())
        }

        fn identify(&self, crops: &[RgbImage]) -> Result<Vec<Answer>, GalleryError> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let first = crops[0].pixels()[0];
            std::thread::sleep(Duration::from_millis(u64::from(20 - first.min(20))));
            Ok(crops
                .iter()
                .map(|c| Answer {
                    sku: Some(format!("{}", c.pixels()[0]).into()),
                    channel: None,
                    score: 1.0,
                    margin: 1.0,
                    nearest: vec![],
                })
                .collect())
        }

        fn fingerprint(&self) -> String {
            "test".into()
        }
    }

    fn job(n: u8) -> CropJob {
        CropJob {
            track: TrackId(u64::from(n)),
            frame_index: u64::from(n),
            image: RgbImage::new(1, 1, vec![n; 3]).unwrap(),
        }
    }

    fn run(workers: usize, known: BTreeMap<u64, Vec<CropAnswer>>) -> (Vec<BatchAnswer>, usize) {
        let fake = Arc::new(ByFirstByte {
            calls: AtomicUsize::new(0),
        });
        let identify: Arc<dyn Identify> = fake.clone();
        let options = IdentityOptions {
            batch: 2,
            workers,
            ..IdentityOptions::default()
        };
        let mut lane = IdentityLane::new(&identify, &options, known);
        let mut out = Vec::new();
        for n in 0..9 {
            lane.submit(job(n), u64::from(n));
            out.extend(lane.ready().unwrap());
        }
        while let Some(more) = lane.drain().unwrap() {
            out.extend(more);
        }
        assert_eq!(lane.waiting(), 0);
        (out, fake.calls.load(Ordering::SeqCst))
    }

    #[test]
    fn answers_come_in_order_and_equal_for_any_number_of_workers() {
        let (one, _) = run(1, BTreeMap::new());
        let (eight, _) = run(8, BTreeMap::new());
        assert_eq!(one, eight);
        assert_eq!(one.len(), 5);
        assert_eq!(one[4].answers.len(), 1);
    }

    #[test]
    fn batches_an_earlier_run_answered_are_not_asked_again() {
        let (all, calls) = run(2, BTreeMap::new());
        assert_eq!(calls, 5);
        let mut known: BTreeMap<u64, Vec<CropAnswer>> = all
            .iter()
            .take(3)
            .map(|b| (b.batch, b.answers.clone()))
            .collect();
        // A batch of other crops proves nothing.
        known.get_mut(&1).unwrap()[0].frame_index = 99;
        let (again, calls) = run(2, known);
        assert_eq!(again, all);
        assert_eq!(calls, 3);
    }

    #[test]
    fn a_batch_that_is_not_full_goes_out_after_the_stated_wait() {
        let identify: Arc<dyn Identify> = Arc::new(ByFirstByte {
            calls: AtomicUsize::new(0),
        });
        let options = IdentityOptions {
            max_wait_frames: 5,
            workers: 1,
            ..IdentityOptions::default()
        };
        let mut lane = IdentityLane::new(&identify, &options, BTreeMap::new());
        lane.submit(job(20), 10);
        lane.tick(14);
        assert_eq!(lane.waiting(), 0);
        lane.tick(15);
        assert_eq!(lane.waiting(), 1);
    }

    #[test]
    fn a_worker_that_panics_is_an_error_and_not_a_hang() {
        struct Panics;
        impl Identify for Panics {
            fn crop(&self, _: &RgbImage, _: &BoxXyxy, _: Option<&Mask>) -> Option<RgbImage> {
                None
            }
            fn identify(&self, _: &[RgbImage]) -> Result<Vec<Answer>, GalleryError> {
                panic!("on purpose")
            }
            fn fingerprint(&self) -> String {
                String::new()
            }
        }
        let identify: Arc<dyn Identify> = Arc::new(Panics);
        let options = IdentityOptions {
            batch: 1,
            workers: 2,
            ..IdentityOptions::default()
        };
        let mut lane = IdentityLane::new(&identify, &options, BTreeMap::new());
        lane.submit(job(1), 0);
        assert!(matches!(lane.drain(), Err(PipelineError::Panicked { .. })));
    }
}
