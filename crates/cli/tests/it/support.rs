//! A folder to work in, drawn clips with their truth as detections, and the command itself.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::Value;
use shelfscan_inference_core::{FrameDetections, RgbImage};
use shelfscan_testkit::{
    shelf::{Shelf, ShelfClip, ShelfPlan},
    truth::write_detections,
    y4m::write_y4m,
};
use tempfile::TempDir;

/// Width and height of a drawn clip.
pub(crate) const SIZE: (u32, u32) = (320, 240);

/// What a finished command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Asserts the exit code, showing what was said otherwise.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// Asserts that people are told this, showing what they were told otherwise.
    #[track_caller]
    pub(crate) fn tells(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{}", self.stderr);
        self
    }

    /// Asserts that this is among the data, showing all of it otherwise.
    #[track_caller]
    pub(crate) fn gives(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{}", self.stdout);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// A folder of its own for a test.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The command in this folder, with nothing from outside that could change what it does.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shelfscan"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env("COLUMNS", "100");
        for name in [
            "SHELFSCAN_FFMPEG",
            "NO_COLOR",
            "CI",
            "TERM",
            "CLICOLOR_FORCE",
            "HF_ENDPOINT",
            "HF_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "HF_TOKEN",
            "HF_TOKEN_PATH",
            "HUGGINGFACE_HUB_CACHE",
            "HUGGING_FACE_HUB_TOKEN",
            "ALL_PROXY",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "all_proxy",
            "https_proxy",
            "http_proxy",
        ] {
            command.env_remove(name);
        }
        command.env("HF_HOME", self.path("hf"));
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        finish(&mut self.command(args))
    }

    /// Runs a line whose words are split at blanks.
    pub(crate) fn sh(&self, line: &str) -> Ran {
        self.run(line.split_whitespace())
    }

    /// Draws a pan over packs into `NAME.y4m`, and its truth into `truth/NAME.y4m/`, the way
    /// an earlier scan would have left it.
    pub(crate) fn pan(&self, name: &str, seed: u64, frames: u32) -> ShelfClip {
        let plan = ShelfPlan {
            seed,
            rows: 2,
            packs_per_row: 6,
            ..ShelfPlan::default()
        };
        let clip = ShelfClip::forth_and_back(Arc::new(Shelf::draw(&plan)), frames, SIZE.0, SIZE.1);
        let images: Vec<RgbImage> = clip.frames().map(|f| f.image).collect();
        self.y4m(&format!("{name}.y4m"), &images);
        self.truth(&format!("{name}.y4m"), &clip.truth().detections());
        clip
    }

    /// Writes detections where `--detections truth` looks for them.
    pub(crate) fn truth(&self, folder: &str, frames: &[FrameDetections]) {
        let path = self.path("truth").join(folder);
        fs::create_dir_all(&path).unwrap();
        write_detections(&path.join("detections.jsonl"), frames).unwrap();
    }

    /// Writes 4:4:4 frames in full range at 30 frames a second.
    pub(crate) fn y4m(&self, name: &str, images: &[RgbImage]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_y4m(&path, images).unwrap();
    }

    pub(crate) fn json(&self, name: impl AsRef<Path>) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    pub(crate) fn lines(&self, name: impl AsRef<Path>) -> Vec<Value> {
        self.read(name)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Every file below a folder with its bytes; times are taken out of JSON, because they are all
    /// that may differ between equal runs.
    pub(crate) fn results(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let root = self.path(folder);
        let mut found = BTreeMap::new();
        collect(&root, &root, &mut found);
        assert!(!found.is_empty());
        found
    }
}

fn collect(root: &Path, dir: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if path.file_name().unwrap() == "run.json" {
            let mut run: Value = serde_json::from_slice(&bytes).unwrap();
            run.as_object_mut().unwrap().remove("timings").unwrap();
            bytes = serde_json::to_vec_pretty(&run).unwrap();
        }
        let name = path.strip_prefix(root).unwrap().display().to_string();
        found.insert(name, bytes);
    }
}

/// Asserts that two folders of results are equal, naming the first file that is not.
#[track_caller]
pub(crate) fn assert_same(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in a {
        assert!(bytes == &b[name], "{name} differs");
    }
}

pub(crate) fn finish(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Lines of frames in which nothing was found.
pub(crate) fn nothing(frames: u64) -> Vec<FrameDetections> {
    (0..frames)
        .map(|frame_index| FrameDetections {
            frame_index,
            ..FrameDetections::default()
        })
        .collect()
}

/// A picture of one grey.
pub(crate) fn flat(value: u8) -> RgbImage {
    let bytes = SIZE.0 as usize * SIZE.1 as usize * 3;
    RgbImage::new(SIZE.0, SIZE.1, vec![value; bytes]).unwrap()
}

/// True when a new enough ffmpeg is on the search path; says so in a line otherwise.
pub(crate) fn ffmpeg(test: &str) -> bool {
    let found = shelfscan_video::find_ffmpeg(&shelfscan_video::FfmpegLocation::SearchPath).is_ok();
    if !found {
        shelfscan_testkit::shared::skip_line(&format!("{test} needs ffmpeg"));
    }
    found
}
