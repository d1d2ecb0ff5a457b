//! The folder of one source's results, as a journal.
//!
//! A frame's line is on disk before the next frame is taken, whole files are written aside and
//! renamed, and `run.json` says *running* until the end, so a process that is killed at any point
//! leaves a folder that tells the truth and can be resumed.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    FrameRecord, PipelineError, Result, RunFile, RunStatus,
    identity::{BatchAnswer, CropAnswer, read_known},
    records::RecordReader,
    same_run::check_same_run,
};

/// Names of the files in a source's folder.
pub mod names {
    /// What was done and what came of it.
    pub const RUN: &str = "run.json";
    /// A line for every processed frame.
    pub const DETECTIONS: &str = "detections.jsonl";
    /// A line for every confirmed track.
    pub const TRACKS: &str = "tracks.jsonl";
    /// A row for every facing.
    pub const FACINGS: &str = "facings.csv";
    /// A row for every SKU.
    pub const COUNTS: &str = "counts.csv";
    /// The answers to crops, kept so that a resumed scan need not embed again.
    pub const IDENTITIES: &str = "identities.jsonl";
    /// Folder of the best crop of every track.
    pub const CROPS: &str = "crops";
    /// The annotated clip.
    pub const ANNOTATED_VIDEO: &str = "annotated.mp4";
    /// Folder of annotated pictures.
    pub const ANNOTATED_FRAMES: &str = "annotated";
    /// The page for people, when one was made.
    pub const REPORT: &str = "report.html";
}

/// What to do when the folder already holds a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Refuse, so that no result is lost by mistake.
    #[default]
    Refuse,
    /// Go on where it stopped; a finished run is left as it is.
    Resume,
    /// Start over.
    Overwrite,
}

/// How a journal was opened.
pub(crate) enum Opened {
    /// There is work to do.
    Work(Box<Work>),
    /// An earlier run finished it; this is what it wrote.
    Finished(Box<RunFile>),
}

/// A journal to go on with, and what an earlier run left in it.
pub(crate) struct Work {
    pub(crate) journal: Journal,
    pub(crate) earlier: EarlierFrames,
    /// Answers to crops, by batch.
    pub(crate) known: BTreeMap<u64, Vec<CropAnswer>>,
}

/// The frames an earlier run finished, read in step with the frames of this run.
pub(crate) struct EarlierFrames {
    dir: PathBuf,
    reader: Option<RecordReader>,
    next: Option<FrameRecord>,
}

impl EarlierFrames {
    /// No earlier run.
    pub(crate) fn none() -> Self {
        Self {
            dir: PathBuf::new(),
            reader: None,
            next: None,
        }
    }

    fn read(dir: &Path) -> Result<Self> {
        let mut reader = RecordReader::open(&dir.join(names::DETECTIONS), false)?;
        Ok(Self {
            dir: dir.to_owned(),
            next: reader.next_record()?,
            reader: Some(reader),
        })
    }

    /// What the earlier run wrote for this frame, if it did. Frames have to be asked for in order.
    pub(crate) fn take(&mut self, index: u64) -> Result<Option<FrameRecord>> {
        match &self.next {
            Some(record) if record.frame_index == index => {
                let following = match self.reader.as_mut() {
                    Some(reader) => reader.next_record()?,
                    None => None,
                };
                Ok(std::mem::replace(&mut self.next, following))
            }
            // The earlier run saw a frame that does not come any more.
            Some(record) if record.frame_index < index => {
                Err(changed(&self.dir, record.frame_index))
            }
            _ => Ok(None),
        }
    }
}

fn changed(dir: &Path, frame: u64) -> PipelineError {
    PipelineError::Output {
        path: dir.to_owned(),
        reason: format!(
            "frame {frame} of the earlier run does not come about again, so the source or the program changed"
        ),
        remedy: "start over with --overwrite or name another --out".into(),
    }
}

/// The open journal of one source.
pub(crate) struct Journal {
    dir: PathBuf,
    detections: File,
    identities: File,
}

impl Journal {
    /// Opens `dir` for `head`, the run file as it stands before the first frame.
    ///
    /// With `keep_frames` false a resumed run starts from its first frame, for providers whose
    /// state cannot be rebuilt from their detections.
    pub(crate) fn open(
        dir: &Path,
        head: &RunFile,
        existing: Existing,
        keep_frames: bool,
    ) -> Result<Opened> {
        fs::create_dir_all(dir).map_err(PipelineError::io("making the folder", dir))?;
        let earlier_run = match read_run(dir) {
            // A damaged run file is what starting over is for.
            Err(PipelineError::Output { .. }) if existing == Existing::Overwrite => None,
            read => {
                let read = read?;
                if read.is_none() {
                    check_nobodys(dir)?;
                }
                read
            }
        };
        let mut keep = false;
        if let Some(earlier) = earlier_run {
            match existing {
                Existing::Refuse => {
                    return Err(PipelineError::Output {
                        path: dir.to_owned(),
                        reason: "the folder already holds a run".into(),
                        remedy: "resume it with --resume, replace it with --overwrite, or name another --out".into(),
                    });
                }
                Existing::Overwrite => {}
                Existing::Resume => {
                    check_same_run(dir, &earlier, head)?;
                    if earlier.status == RunStatus::Complete {
                        return Ok(Opened::Finished(Box::new(earlier)));
                    }
                    keep = true;
                }
            }
        }
        let detections_path = dir.join(names::DETECTIONS);
        let detections = append(&detections_path)?;
        // Held as long as the journal is; systems without locks do without.
        if let Err(TryLockError::WouldBlock) = detections.try_lock() {
            return Err(PipelineError::Output {
                path: dir.to_owned(),
                reason: "another process is scanning into this folder".into(),
                remedy: "wait for it or name another --out".into(),
            });
        }
        if !keep {
            clear(dir)?;
            // First of all, so that no result ever lies in a folder without one.
            write_run(dir, head)?;
        }
        let earlier = if keep && keep_frames && detections_path.exists() {
            let good = whole_bytes(&detections_path)?;
            truncate(&detections_path, good)?;
            EarlierFrames::read(dir)?
        } else {
            truncate(&detections_path, 0)?;
            EarlierFrames::none()
        };
        let identities_path = dir.join(names::IDENTITIES);
        let known = if keep {
            read_known(&identities_path)
        } else {
            BTreeMap::new()
        };
        // Written anew as the answers come about again, so that a cut line does not stay.
        truncate(&identities_path, 0)?;
        let journal = Self {
            detections,
            identities: append(&identities_path)?,
            dir: dir.to_owned(),
        };
        if keep {
            journal.write_run(head)?;
        }
        Ok(Opened::Work(Box::new(Work {
            journal,
            earlier,
            known,
        })))
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Puts a frame's line on disk, or checks it against the one an earlier run put there.
    pub(crate) fn frame(
        &mut self,
        record: &FrameRecord,
        earlier: Option<&FrameRecord>,
    ) -> Result<()> {
        let line = to_line(record)?;
        if let Some(earlier) = earlier {
            // As text, because NaN is never equal to itself.
            if line != to_line(earlier)? {
                return Err(changed(&self.dir, record.frame_index));
            }
            return Ok(());
        }
        self.detections.write_all(&line).map_err(PipelineError::io(
            "writing",
            self.dir.join(names::DETECTIONS),
        ))
    }

    /// Puts the answers to one batch of crops on disk.
    pub(crate) fn identities(&mut self, batch: &BatchAnswer) -> Result<()> {
        let line = to_line(batch)?;
        self.identities.write_all(&line).map_err(PipelineError::io(
            "writing",
            self.dir.join(names::IDENTITIES),
        ))
    }

    /// Writes `run.json` whole.
    pub(crate) fn write_run(&self, run: &RunFile) -> Result<()> {
        write_run(&self.dir, run)
    }
}

fn write_run(dir: &Path, run: &RunFile) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(run).map_err(PipelineError::Json)?;
    text.push(b'\n');
    write_whole(&dir.join(names::RUN), &text)
}

/// Refuses a folder without a run that holds something of the name of a result: it is somebody
/// else's, and a scan would replace it.
fn check_nobodys(dir: &Path) -> Result<()> {
    let theirs = FILES
        .into_iter()
        .chain(FOLDERS)
        .find(|name| dir.join(name).symlink_metadata().is_ok());
    match theirs {
        None => Ok(()),
        Some(name) => Err(PipelineError::Output {
            path: dir.to_owned(),
            reason: format!("the folder holds {name}, and no run that wrote it"),
            remedy: "name another --out, or move it away".into(),
        }),
    }
}

/// Reads a folder's `run.json`; `None` when there is none.
///
/// # Errors
/// [`PipelineError::Output`] when it is there and unreadable.
pub fn read_run(dir: &Path) -> Result<Option<RunFile>> {
    let path = dir.join(names::RUN);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(PipelineError::io("reading", path)(e)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|e| PipelineError::Output {
            path,
            reason: format!("the run file does not parse ({e})"),
            remedy: "start over with --overwrite or name another --out".into(),
        })
}

/// Writes a file aside and renames it, so that a reader never sees half of it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    fs::write(&aside, bytes).map_err(PipelineError::io("writing", &aside))?;
    fs::rename(&aside, path).map_err(PipelineError::io("renaming to", path))
}

pub(crate) fn to_line(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(PipelineError::Json)?;
    line.push(b'\n');
    Ok(line)
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(PipelineError::io("opening", path))
}

fn truncate(path: &Path, bytes: u64) -> Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(PipelineError::io("opening", path))?;
    file.set_len(bytes)
        .map_err(PipelineError::io("cutting", path))
}

/// Length of the sound lines at the start of a journal.
fn whole_bytes(path: &Path) -> Result<u64> {
    let mut reader = RecordReader::open(path, false)?;
    while reader.next_record()?.is_some() {}
    Ok(reader.good_bytes())
}

/// The files a run writes.
const FILES: [&str; 8] = [
    names::RUN,
    names::DETECTIONS,
    names::TRACKS,
    names::FACINGS,
    names::COUNTS,
    names::IDENTITIES,
    names::ANNOTATED_VIDEO,
    names::REPORT,
];
/// The folders of pictures a run writes.
const FOLDERS: [&str; 2] = [names::CROPS, names::ANNOTATED_FRAMES];

/// Removes what an earlier run wrote, and nothing else. The file of detections is locked; whoever holds
/// it empties it.
fn clear(dir: &Path) -> Result<()> {
    for name in FILES.into_iter().filter(|name| *name != names::DETECTIONS) {
        remove(&dir.join(name))?;
    }
    for name in FOLDERS {
        let folder = dir.join(name);
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(PipelineError::io("listing", &folder))?,
        };
        for entry in entries {
            let path = entry.map_err(PipelineError::io("listing", &folder))?.path();
            if path.extension().is_some_and(|e| e == "jpg" || e == "part") {
                remove(&path)?;
            }
        }
        // What somebody put there stays, and the folder with it.
        drop(fs::remove_dir(&folder));
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(PipelineError::io("removing", path)(e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shelfscan_inference_core::{ModelFingerprint, ProviderInfo};

    use super::*;
    use crate::{FrameCounts, RUN_SCHEMA, RunsOn, Timings};

    fn head(every: u32) -> RunFile {
        RunFile {
            schema: RUN_SCHEMA.into(),
            version: "1".into(),
            status: RunStatus::Running,
            reason: None,
            source: "clip.mp4".into(),
            source_bytes: Some(1000),
            info: None,
            plan: json!({"read": {"every": every}, "min_score": 0.5}),
            provider: ProviderInfo {
                name: "replay".into(),
                device: "file".into(),
                assigns_track_ids: false,
                tracking_delay_frames: 0,
                models: vec![ModelFingerprint {
                    model: "m".into(),
                    weights_hash: "h".into(),
                    preprocessing: "p".into(),
                }],
            },
            runs_on: None,
            gallery: None,
            embedder: None,
            frames: FrameCounts::default(),
            tracks: 0,
            facings: 0,
            counts: vec![],
            notices: vec![],
            timings: Timings::default(),
        }
    }

    fn record(frame_index: u64) -> FrameRecord {
        FrameRecord {
            frame_index,
            time_secs: Some(frame_index as f64 / 30.0),
            time_estimated: false,
            width: None,
            height: None,
            detections: vec![],
            notices: vec![],
        }
    }

    fn open(dir: &Path, existing: Existing) -> Work {
        match Journal::open(dir, &head(1), existing, true).unwrap() {
            Opened::Work(work) => *work,
            Opened::Finished(_) => panic!("the run was not finished"),
        }
    }

    #[test]
    fn a_killed_run_is_resumed_behind_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = open(dir.path(), Existing::Refuse);
        for i in 0..3 {
            work.journal.frame(&record(i), None).unwrap();
        }
        drop(work);
        let path = dir.path().join(names::DETECTIONS);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();

        let mut work = open(dir.path(), Existing::Resume);
        for i in 0..2 {
            let earlier = work.earlier.take(i).unwrap().unwrap();
            work.journal.frame(&record(i), Some(&earlier)).unwrap();
        }
        assert!(work.earlier.take(2).unwrap().is_none());
        work.journal.frame(&record(2), None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn a_frame_that_comes_about_otherwise_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = open(dir.path(), Existing::Refuse);
        work.journal.frame(&record(0), None).unwrap();
        work.journal.frame(&record(1), None).unwrap();
        drop(work);
        let mut work = open(dir.path(), Existing::Resume);
        let earlier = work.earlier.take(0).unwrap().unwrap();
        assert!(work.journal.frame(&record(7), Some(&earlier)).is_err());
        // Frame 1 was seen before and is passed over now.
        assert!(work.earlier.take(2).is_err());
    }

    #[test]
    fn results_are_never_overwritten_by_mistake() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        let Err(error) = Journal::open(dir.path(), &head(1), Existing::Refuse, true) else {
            panic!("the folder holds a run");
        };
        assert!(error.to_string().contains("--resume"), "{error}");
        let mut work = open(dir.path(), Existing::Overwrite);
        assert!(work.earlier.take(0).unwrap().is_none());
    }

    #[test]
    fn files_of_somebody_else_are_neither_replaced_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |existing| match Journal::open(dir.path(), &head(1), existing, true) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("the folder holds what no run wrote"),
        };
        let theirs = dir.path().join(names::CROPS).join("mine.txt");
        fs::create_dir(theirs.parent().unwrap()).unwrap();
        fs::write(&theirs, "mine").unwrap();
        for existing in [Existing::Refuse, Existing::Resume, Existing::Overwrite] {
            let text = refused(existing);
            assert!(text.contains("the folder holds crops"), "{text}");
        }
        fs::remove_file(&theirs).unwrap();
        fs::remove_dir(theirs.parent().unwrap()).unwrap();
        drop(open(dir.path(), Existing::Refuse));
        // In the folder of a run only what the run wrote goes.
        let crops = dir.path().join(names::CROPS);
        fs::create_dir(&crops).unwrap();
        fs::write(crops.join("track-000001.jpg"), "a crop").unwrap();
        fs::write(&theirs, "mine").unwrap();
        drop(open(dir.path(), Existing::Overwrite));
        assert_eq!(fs::read_dir(&crops).unwrap().count(), 1);
        assert!(theirs.exists());
    }

    #[test]
    fn a_damaged_run_file_is_named_and_gone_after_starting_over() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        fs::write(dir.path().join(names::RUN), "{").unwrap();
        let resumed = Journal::open(dir.path(), &head(1), Existing::Resume, true);
        assert!(resumed.is_err_and(|e| e.to_string().contains("--overwrite")));
        drop(open(dir.path(), Existing::Overwrite));
        assert!(read_run(dir.path()).unwrap().is_some());
    }

    #[test]
    fn a_folder_that_is_being_scanned_into_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = open(dir.path(), Existing::Refuse);
        first.journal.frame(&record(0), None).unwrap();
        for existing in [Existing::Resume, Existing::Overwrite] {
            let second = Journal::open(dir.path(), &head(1), existing, true);
            assert!(second.is_err_and(|e| e.to_string().contains("another process")));
        }
        first.journal.frame(&record(1), None).unwrap();
        drop(first);
        let mut again = open(dir.path(), Existing::Resume);
        assert!(again.earlier.take(1).is_err(), "frame 0 is there as well");
    }

    #[test]
    fn a_source_that_was_replaced_is_not_taken_for_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        let other = RunFile {
            source_bytes: Some(1001),
            ..head(1)
        };
        let resumed = Journal::open(dir.path(), &other, Existing::Resume, true);
        assert!(resumed.is_err_and(|e| e.to_string().contains("had 1000 bytes and has 1001 now")));
    }

    #[test]
    fn a_run_with_other_options_is_not_resumed_and_the_option_is_named() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        let Err(error) = Journal::open(dir.path(), &head(5), Existing::Resume, true) else {
            panic!("another stride was asked for");
        };
        assert!(error.to_string().contains("`read.every`"), "{error}");
    }

    #[test]
    fn a_run_is_resumed_on_another_device_and_not_in_another_type() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        let on = |device: &str, dtype: &str| RunFile {
            runs_on: Some(RunsOn {
                device: device.into(),
                dtype: dtype.into(),
                why: "as asked".into(),
            }),
            ..head(1)
        };
        let resume = |run: &RunFile| Journal::open(dir.path(), run, Existing::Resume, true);
        assert!(resume(&on("cuda:0", "f32")).is_ok());
        let Err(error) = resume(&on("cuda:0", "bf16")) else {
            panic!("another type was asked for");
        };
        assert!(
            error.to_string().contains("in f32, these do in bf16"),
            "{error}"
        );
    }

    #[test]
    fn a_finished_run_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let work = open(dir.path(), Existing::Refuse);
        let mut run = head(1);
        run.status = RunStatus::Complete;
        run.facings = 7;
        work.journal.write_run(&run).unwrap();
        match Journal::open(dir.path(), &head(1), Existing::Resume, true).unwrap() {
            Opened::Finished(found) => assert_eq!(*found, run),
            Opened::Work(_) => panic!("there is nothing left to do"),
        }
    }

    #[test]
    fn overwriting_removes_results_and_leaves_other_files() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Existing::Refuse));
        fs::write(dir.path().join(names::FACINGS), "old").unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        drop(open(dir.path(), Existing::Overwrite));
        assert!(!dir.path().join(names::FACINGS).exists());
        assert!(dir.path().join("notes.txt").exists());
    }
}
