//! The stage behind the provider: ids, books, journal, identities.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use shelfscan_inference_core::{Notice, RgbImage, SourceId};

use crate::{
    Facing, FrameRecord, Phase, PipelineError, Progress, Result, ScanObserver, ScanOptions,
    TrackSummary,
    annotate::LiveAnnotator,
    book::{Book, CropToSave},
    detect::Detected,
    identity::{BatchAnswer, CropAnswer, Identify, IdentityLane},
    journal::{Journal, names},
    report::{NoticeBook, StageTime},
};

/// JPEG quality of saved crops, 1 to 100.
const CROP_QUALITY: u8 = 90;

/// Everything that happens to a frame after detection, on one thread.
pub(crate) struct TrackStage {
    source: SourceId,
    book: Book,
    journal: Option<Journal>,
    save_crops: bool,
    lane: Option<IdentityLane>,
    observer: Arc<dyn ScanObserver>,
    expected: Option<u64>,
    pub(crate) notices: NoticeBook,
    last: Option<(u64, f64)>,
    live: Option<LiveAnnotator>,
    identity_workers: usize,
    busy: Duration,
}

impl TrackStage {
    pub(crate) fn new(
        source: &SourceId,
        options: &ScanOptions,
        own_ids: bool,
        identify: Option<&Arc<dyn Identify>>,
        known: BTreeMap<u64, Vec<CropAnswer>>,
        journal: Option<Journal>,
        observer: Arc<dyn ScanObserver>,
    ) -> Result<Self> {
        Ok(Self {
            source: source.clone(),
            book: Book::new(options, own_ids, identify.cloned())?,
            save_crops: options.outputs.crops && journal.is_some(),
            journal,
            lane: identify.map(|i| IdentityLane::new(i, &options.identity, known)),
            observer,
            expected: None,
            notices: NoticeBook::default(),
            last: None,
            live: None,
            identity_workers: options.identity.resolved_workers(),
            busy: Duration::ZERO,
        })
    }

    /// How many frames will come, for the progress and for sources of a frame or two.
    pub(crate) fn expect(&mut self, frames: Option<u64>) {
        self.expected = frames;
        if let Some(frames) = frames {
            self.book.expect_frames(frames);
        }
    }

    /// Annotates the frames as they go by, for sources that cannot be read twice.
    pub(crate) fn annotate_live(&mut self, annotator: LiveAnnotator) {
        self.live = Some(annotator);
    }

    /// Takes a detected frame; returns its record, which is on disk by then.
    pub(crate) fn push(&mut self, detected: Detected) -> Result<FrameRecord> {
        let start = Instant::now();
        let Detected {
            frame,
            found,
            earlier,
        } = detected;
        let step = self.book.step(&frame, found)?;
        for notice in &step.record.notices {
            self.note(notice, Some(frame.index));
        }
        if let Some(journal) = &mut self.journal {
            journal.frame(&step.record, earlier.as_ref())?;
        }
        self.last = Some((frame.index, frame.time.secs));
        if let Some(lane) = &mut self.lane {
            for job in step.jobs {
                lane.submit(job, self.book.steps());
            }
            lane.tick(self.book.steps());
            let ready = lane.ready()?;
            self.take_answers(ready)?;
        }
        self.save(step.saves)?;
        if let Some(live) = &mut self.live {
            live.write(&frame, &step.record, |track| self.book.identity(track))?;
        }
        self.busy += start.elapsed();
        self.observer.frame(&self.source, &step.record);
        self.observer.progress(&Progress {
            source: &self.source,
            phase: Phase::Scanning,
            frames: self.book.steps(),
            expected: self.expected,
        });
        Ok(step.record)
    }

    /// Ends the source. Without `wait` the crops that are not answered yet stay unanswered, so that
    /// a scan that was stopped ends at once.
    pub(crate) fn finish(&mut self, wait: bool) -> Result<(Vec<TrackSummary>, Vec<Facing>)> {
        let start = Instant::now();
        let steps = self.book.steps();
        let (jobs, saves) = self.book.finish();
        self.save(saves)?;
        if wait && let Some(lane) = &mut self.lane {
            for job in jobs {
                lane.submit(job, steps);
            }
        }
        self.busy += start.elapsed();
        if wait {
            self.drain()?;
        }
        let start = Instant::now();
        if let Some(live) = self.live.take() {
            live.finish()?;
        }
        let summary = self.book.summarise();
        self.busy += start.elapsed();
        Ok(summary)
    }

    fn drain(&mut self) -> Result<()> {
        let mut done = 0;
        while let Some(lane) = &mut self.lane {
            let Some(answers) = lane.drain()? else {
                return Ok(());
            };
            done += answers.len() as u64;
            let expected = Some(done + lane.waiting());
            self.take_answers(answers)?;
            self.observer.progress(&Progress {
                source: &self.source,
                phase: Phase::Identifying,
                frames: done,
                expected,
            });
        }
        Ok(())
    }

    /// Frames that went through.
    pub(crate) fn processed(&self) -> u64 {
        self.book.steps()
    }

    /// Index and time of the last frame that went through.
    pub(crate) fn last_frame(&self) -> Option<(u64, f64)> {
        self.last
    }

    /// The journal.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The journal, to write the end of the run with.
    pub(crate) fn into_journal(self) -> Option<Journal> {
        self.journal
    }

    /// Threads that embed crops.
    pub(crate) fn identity_workers(&self) -> usize {
        self.identity_workers
    }

    /// Time spent here, and in the identity workers.
    pub(crate) fn times(&self) -> (StageTime, Option<StageTime>) {
        let own = StageTime {
            busy_secs: self.busy.as_secs_f64(),
            items: self.book.steps(),
        };
        (own, self.lane.as_ref().map(IdentityLane::time))
    }

    /// Notes something the reader has to know, and says it the first time.
    pub(crate) fn note(&mut self, notice: &Notice, frame: Option<u64>) {
        if self.notices.add(notice, frame) {
            self.observer.notice(&self.source, notice);
        }
    }

    fn take_answers(&mut self, batches: Vec<BatchAnswer>) -> Result<()> {
        for batch in batches {
            if let Some(journal) = &mut self.journal {
                journal.identities(&batch)?;
            }
            for answer in batch.answers {
                self.book.answer(answer.track_id, answer.answer);
            }
        }
        Ok(())
    }

    fn save(&mut self, saves: Vec<CropToSave>) -> Result<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| self.save_crops) else {
            return Ok(());
        };
        for CropToSave { track, image } in saves {
            let name = format!("{}/track-{:06}.jpg", names::CROPS, track.0);
            let path = journal.dir().join(&name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)
                    .map_err(PipelineError::io("making the folder", folder))?;
            }
            write_jpeg(&image, &path)?;
            self.book.saved(track, name);
        }
        Ok(())
    }
}

fn write_jpeg(image: &RgbImage, path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, CROP_QUALITY)
        .encode(
            image.pixels(),
            image.width(),
            image.height(),
            image::ExtendedColorType::Rgb8,
        )
        .map_err(|e| PipelineError::Io {
            action: "encoding",
            path: path.to_owned(),
            source: std::io::Error::other(e),
        })?;
    crate::journal::write_whole(path, &bytes)
}
