//! Models in a process of their own: the contract, the ways a worker can fail, and whole scans.
#![cfg(unix)]

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use shelfscan_inference_core::{
    FrameTime, InferenceError, InferenceProvider, ProviderInfo, RgbImage, SourceId, TextPrompt,
    VideoFrame,
};
use shelfscan_testkit::conformance::check_provider;
use shelfscan_worker::{Worker, WorkerCommand, WorkerOptions, WorkerProvider};

use crate::{
    galleries::draw,
    support::{Place, assert_same},
};

const SHELFSCAN: &str = env!("CARGO_BIN_EXE_shelfscan");
/// Longer than any call of a worker that is well takes, also on a busy machine.
const PATIENT: Duration = Duration::from_mins(5);
/// A picture cut into 17 keeps a worker busy for a while.
const SLOW: &str = r#"{"models":{"tiles":"4x4"}}"#;
const PLAIN: &str = r#"{"models":{"tiles":"off"}}"#;

/// A worker with all the time in the world.
fn worker(command: WorkerCommand, configuration: &str) -> Worker {
    worker_with(command, configuration, PATIENT)
}

/// A worker whose calls may take `deadline`, warm-ups apart.
fn worker_with(command: WorkerCommand, configuration: &str, deadline: Duration) -> Worker {
    let options = WorkerOptions::default()
        .with_warmup_deadline(PATIENT)
        .with_deadline(deadline);
    Worker::new(command, configuration.into(), options)
}

/// The command itself.
fn plain() -> WorkerCommand {
    WorkerCommand::new(SHELFSCAN).arg("worker")
}

/// A shell line in which `$0` is the command.
fn shell(line: &str) -> WorkerCommand {
    WorkerCommand::new("sh").arg("-c").arg(line).arg(SHELFSCAN)
}

fn cold() -> ProviderInfo {
    ProviderInfo {
        name: "cpu".into(),
        device: "cpu".into(),
        assigns_track_ids: false,
        tracking_delay_frames: 0,
        models: Vec::new(),
    }
}

fn frames(n: u64) -> Vec<VideoFrame> {
    (0..n)
        .map(|index| {
            let pixels = (0..64u64 * 48 * 3).map(|i| (i * (index + 3) / 7) as u8);
            VideoFrame {
                image: RgbImage::new(64, 48, pixels.collect()).unwrap(),
                index,
                time: FrameTime::exact(index as f64 / 30.0),
                source: SourceId::new("drawn"),
            }
        })
        .collect()
}

fn prompts() -> [TextPrompt; 1] {
    [TextPrompt::new("product").unwrap()]
}

fn detect(provider: &mut WorkerProvider) -> Result<usize, InferenceError> {
    let found = provider.detect_text_prompts(&frames(1)[0], &prompts())?;
    Ok(found.detections.len())
}

/// Asserts that a call failed in the worker, and returns the reason and the last lines.
#[track_caller]
fn failed_in<T: std::fmt::Debug>(
    wanted: &str,
    result: Result<T, InferenceError>,
) -> (String, String) {
    match result {
        Err(InferenceError::Worker {
            call,
            reason,
            stderr_tail,
        }) => {
            assert_eq!(call, wanted, "{reason}");
            (reason, stderr_tail)
        }
        other => panic!("{other:?}"),
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap()).unwrap()
}

/// Waits until a process that is not our child is gone.
#[track_caller]
fn is_gone_soon(id: u32) {
    let end = Instant::now() + Duration::from_mins(1);
    while test_kill_process(pid(id)).is_ok() && !is_zombie(id) {
        assert!(Instant::now() < end, "process {id} outlives its parent");
        thread::sleep(Duration::from_millis(20));
    }
}

/// An orphan that has ended may stay listed until someone asks for its exit code.
fn is_zombie(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|s| s.trim().starts_with('Z'))
    })
}

#[test]
fn a_detector_in_a_worker_keeps_the_contract() {
    check_provider(
        || Box::new(worker(plain(), PLAIN).provider(cold())),
        &frames(3),
        &prompts(),
    );
}

#[test]
fn a_worker_killed_in_a_call_is_an_error_and_the_next_warm_up_starts_another() {
    let worker = worker(plain(), SLOW);
    let mut provider = worker.provider(cold());
    provider.warmup().unwrap();
    let first = worker.process_id().unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(|| detect(&mut provider));
        thread::sleep(Duration::from_millis(300));
        kill_process(pid(first), Signal::KILL).unwrap();
        let (reason, _) = failed_in("detect_text_prompts", call.join().unwrap());
        assert!(reason.contains("signal: 9"), "{reason}");
    });
    let (reason, _) = failed_in("detect_text_prompts", detect(&mut provider));
    assert!(reason.contains("warm it up"), "{reason}");
    provider.warmup().unwrap();
    assert_ne!(worker.process_id().unwrap(), first);
    detect(&mut provider).unwrap();
    provider.shutdown().unwrap();
    assert_eq!(worker.process_id(), None);
}

#[test]
fn a_worker_that_sleeps_past_the_deadline_is_ended() {
    let worker = worker_with(plain(), PLAIN, Duration::from_secs(1));
    let mut provider = worker.provider(cold());
    provider.warmup().unwrap();
    let id = worker.process_id().unwrap();
    kill_process(pid(id), Signal::STOP).unwrap();
    let start = Instant::now();
    let (reason, _) = failed_in("detect_text_prompts", detect(&mut provider));
    assert!(reason.contains("no answer within 1 s"), "{reason}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(test_kill_process(pid(id)).is_err(), "it is still there");
    provider.shutdown().unwrap();
}

#[test]
fn a_worker_that_hangs_at_the_end_is_given_five_seconds() {
    let worker = worker(plain(), PLAIN);
    let mut provider = worker.provider(cold());
    provider.warmup().unwrap();
    let id = worker.process_id().unwrap();
    kill_process(pid(id), Signal::STOP).unwrap();
    let start = Instant::now();
    failed_in("shutdown", provider.shutdown());
    assert!(start.elapsed() >= Duration::from_secs(5));
    assert!(
        test_kill_process(pid(id)).is_err(),
        "the process is still there"
    );
    provider.shutdown().unwrap();
}

#[test]
fn a_worker_that_writes_something_else_is_named_as_such() {
    let garbage = worker(
        shell("echo to the log >&2; echo 'loading, please wait a moment'; exec \"$0\" worker"),
        PLAIN,
    );
    let (reason, log) = failed_in("warmup", garbage.provider(cold()).warmup());
    assert!(reason.contains("nonsense"), "{reason}");
    assert!(log.contains("to the log"), "{log}");

    let noise = worker(shell("head -c 100000 /dev/urandom; sleep 600"), PLAIN);
    let (reason, _) = failed_in("warmup", noise.provider(cold()).warmup());
    assert!(reason.contains("nonsense"), "{reason}");
}

#[test]
fn a_worker_that_ends_or_never_starts_says_why() {
    let ends = worker(shell("echo no driver here >&2; exit 7"), PLAIN);
    let (reason, log) = failed_in("warmup", ends.provider(cold()).warmup());
    assert!(reason.contains("exit status: 7"), "{reason}");
    assert_eq!(log, "no driver here");
    let missing = worker(WorkerCommand::new("/no/such/program"), PLAIN);
    let (reason, _) = failed_in("warmup", missing.provider(cold()).warmup());
    assert!(reason.contains("did not start"), "{reason}");
}

#[test]
fn a_flood_of_64_mib_on_standard_error_neither_stops_a_worker_nor_swells_its_error() {
    let flood = "yes 'a line of a chatty driver' | head -c 67108864 >&2; exec \"$0\" worker";
    let worker = worker(shell(flood), PLAIN);
    let mut provider = worker.provider(cold());
    provider.warmup().unwrap();
    detect(&mut provider).unwrap();
    kill_process(pid(worker.process_id().unwrap()), Signal::KILL).unwrap();
    let (_, log) = failed_in("detect_text_prompts", detect(&mut provider));
    assert!(log.contains("a chatty driver"), "{log}");
    assert!(log.len() < 32 << 10, "{}", log.len());
}

#[test]
fn a_model_that_cannot_be_loaded_is_its_own_error_and_not_the_workers() {
    let configuration = r#"{"models":{"weights":"no/such/model.pt"}}"#;
    let mut provider = worker(plain(), configuration).provider(cold());
    match provider.warmup() {
        Err(InferenceError::Weights { path, .. }) => {
            assert_eq!(path.to_str(), Some("no/such/model.pt"));
        }
        other => panic!("{other:?}"),
    }
}

/// Workers that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task"))
        .into_iter()
        .flatten()
    {
        let path = task.unwrap().path().join("children");
        let text = fs::read_to_string(path).unwrap_or_default();
        found.extend(text.split_whitespace().map(|id| id.parse::<u32>().unwrap()));
    }
    found
}

#[test]
fn no_worker_outlives_a_scan_that_was_killed() {
    if !fs::exists("/proc/self/task").unwrap_or_default() {
        shelfscan_testkit::shared::skip_line("a killed scan's worker is looked for in /proc");
        return;
    }
    let place = Place::new();
    place.pan("a", 3, 60);
    let mut scan = place
        .command("scan a.y4m --out out --isolate --tiles 8x8".split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENT;
    let workers = loop {
        let workers = children(scan.id());
        if !workers.is_empty() || Instant::now() > end || scan.try_wait().unwrap().is_some() {
            break workers;
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(workers.len(), 1);
    // Long enough for it to load and to be in the middle of a call.
    thread::sleep(Duration::from_millis(500));
    scan.kill().unwrap();
    scan.wait().unwrap();
    is_gone_soon(workers[0]);
}

#[test]
fn a_scan_in_a_worker_gives_the_same_bytes() {
    let place = Place::new();
    place.pan("a", 3, 6);
    draw(&place, "photos", 1..=2, 2);
    place.sh("enroll photos --gallery skus --isolate").exits(0);
    let scan =
        "scan a.y4m --gallery skus --min-score 0.05 --confirm-hits 1 --tiles off --annotate frames";
    place.sh(&format!("{scan} --out here")).exits(0);
    let ran = place.sh(&format!("{scan} --out there --isolate")).exits(0);
    assert!(!ran.stderr.contains("error"), "{}", ran.stderr);
    assert_same(&place.results("here/a.y4m"), &place.results("there/a.y4m"));
}

#[test]
fn what_a_worker_has_to_say_reaches_people_with_its_last_lines() {
    let place = Place::new();
    place.pan("a", 3, 3);
    let ran = place
        .sh("scan a.y4m --out out --isolate --tiles 8x8 --call-deadline-secs 0.05")
        .exits(3);
    assert!(
        ran.stderr
            .contains("worker failed in warmup: it gave no answer within 0.05 s"),
        "{}",
        ran.stderr
    );
    assert!(!place.path("out").exists());
}
