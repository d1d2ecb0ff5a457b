//! A decoder that floods, hangs or dies, played by a shell script.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use shelfscan_testkit::program::write_program;
use shelfscan_video::{
    FfmpegLocation, FrameReader, ReadOptions, ReadStatus, Source, VideoError, open,
};

/// Prints the messages of a decoder about two frames of 4x2 pixels, up to the frame given.
const FUNCTIONS: &str = r#"
describe() {
    echo "[info] Input #0, fake, from 'file:x':" >&2
    echo "[info]   Duration: 00:00:01.00, start: 0.000000, bitrate: 1 kb/s" >&2
    echo "[info]   Stream #0:0: Video: fake, rgb24, 4x2, 25 fps, 25 tbr, 25 tbn" >&2
    echo "[info] Stream mapping:" >&2
    echo "[showinfo@seen @ 0x1] [info] config in time_base: 1/25, frame_rate: 25/1" >&2
}
frame() {
    echo "[showinfo@seen @ 0x1] [info] n: $1 pts: $1 fmt:rgb24 s:4x2 i:P iskey:1 type:I" >&2
    echo "[showinfo@out @ 0x1] [info] n: $1 pts: $1 fmt:rgb24 s:4x2 i:P iskey:1 type:I" >&2
    printf 'abcdefghijklmnopqrstuvwx'
}
flood() {
    line="[x @ 0x1] [warning] $(printf '%0100d' 7)"
    i=0
    while [ $i -lt 2500 ]; do echo "$line" >&2; i=$((i+1)); done
}
"#;

struct StandIn {
    folder: tempfile::TempDir,
    options: ReadOptions,
}

impl StandIn {
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program: PathBuf = folder.path().join("decoder");
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in -version) echo 'ffmpeg version 7.0 stand-in'; exit 0;; esac\n{FUNCTIONS}\n{body}\n"
        );
        write_program(&program, &script).unwrap();
        std::fs::write(folder.path().join("clip.bin"), b"no matter").unwrap();
        let mut options = ReadOptions {
            ffmpeg: FfmpegLocation::Path(program),
            ..ReadOptions::default()
        };
        options.limits.stall_secs = 20.0;
        Self { folder, options }
    }

    fn open(&self) -> Result<Box<dyn FrameReader>, VideoError> {
        open(
            &Source::File(self.folder.path().join("clip.bin")),
            &self.options,
        )
    }

    fn read(&self) -> Result<(u64, ReadStatus), VideoError> {
        let mut reader = self.open()?;
        let mut count = 0;
        while reader.next_frame()?.is_some() {
            count += 1;
        }
        Ok((count, reader.summary().status))
    }
}

#[test]
fn a_flood_of_warnings_blocks_nobody() {
    let stand_in = StandIn::new("flood; describe; frame 0; flood; frame 1; flood; exit 0");
    assert_eq!(stand_in.read().unwrap(), (2, ReadStatus::Complete));
}

#[test]
fn the_last_words_of_a_failed_decoder_are_in_the_error() {
    let stand_in = StandIn::new("flood; echo '[fatal] out of paper' >&2; exit 3");
    let error = stand_in.read().unwrap_err();
    let VideoError::DecoderFailed { stderr_tail, .. } = &error else {
        panic!("{error}");
    };
    assert!(stderr_tail.len() <= 4096 && stderr_tail.len() > 3000);
    assert!(stderr_tail.ends_with("out of paper"), "{stderr_tail}");
    assert!(error.to_string().contains("exit status: 3"), "{error}");
}

#[test]
fn a_password_is_in_no_error_and_no_status_whatever_the_decoder_prints() {
    let address = "rtsp://user:se@c ret@127.0.0.1:1/x";
    let source = Source::Url(address.into());
    let told = [
        format!("[error] {address}: Connection refused"),
        format!("[warning] Input/output error of tcp://{}", &address[7..]),
        "[error] moved to http://user:se%40c%20ret@127.0.0.1/y".to_owned(),
    ]
    .map(|line| format!("echo \"{line}\" >&2"))
    .join("; ");
    let hidden = |text: String| {
        for part in ["user", "ret", "se@c", "se%40c"] {
            assert!(!text.contains(part), "{part} is in {text}");
        }
        assert!(text.contains("127.0.0.1"), "{text}");
    };
    for (body, stall_secs) in [("exit 1", 20.0), ("sleep 600", 0.5)] {
        let mut stand_in = StandIn::new(&format!("{told}; {body}"));
        stand_in.options.limits.stall_secs = stall_secs;
        let error = open(&source, &stand_in.options).err().unwrap();
        hidden(format!("{error} {error:?}"));
    }
    let stand_in = StandIn::new(&format!("describe; frame 0; {told}; exit 1"));
    let mut reader = open(&source, &stand_in.options).unwrap();
    while reader.next_frame().unwrap().is_some() {}
    let summary = reader.summary();
    assert!(matches!(summary.status, ReadStatus::Partial { .. }));
    hidden(format!("{summary:?} {:?}", reader.info()));
}

#[test]
fn a_decoder_that_hangs_is_ended_with_all_it_started() {
    for body in [
        "sleep 600",
        "flood; sleep 600 & sleep 600",
        "describe; sleep 600",
    ] {
        let mut stand_in = StandIn::new(body);
        stand_in.options.limits.stall_secs = 0.3;
        let error = stand_in.read().unwrap_err();
        assert!(
            matches!(error, VideoError::Stalled { .. }),
            "{body}: {error}"
        );
        assert!(error.is_retryable());
    }
}

#[test]
fn a_hang_in_the_middle_keeps_the_good_frames() {
    for body in [
        "describe; frame 0; frame 1; sleep 600",
        // The line of a frame came, its pixels did not.
        "describe; frame 0; frame 1; frame 2 | head -c 5; sleep 600",
    ] {
        let mut stand_in = StandIn::new(body);
        stand_in.options.limits.stall_secs = 0.5;
        let (count, status) = stand_in.read().unwrap();
        assert_eq!(count, 2, "{body}");
        assert!(
            status.to_string().contains("gave nothing for 0.5 s"),
            "{body}: {status}"
        );
    }
}

#[test]
fn a_slow_reader_is_no_stalled_decoder() {
    let mut stand_in = StandIn::new("describe; frame 0; frame 1; exit 0");
    stand_in.options.limits.stall_secs = 0.3;
    let mut reader = stand_in.open().unwrap();
    reader.next_frame().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(reader.next_frame().unwrap().is_some());
    assert!(reader.next_frame().unwrap().is_none());
    assert_eq!(reader.summary().status, ReadStatus::Complete);
}

#[test]
fn a_crash_is_an_error_before_the_first_frame_and_partial_after_it() {
    let error = StandIn::new("kill -SEGV $$").read().unwrap_err();
    assert!(matches!(error, VideoError::DecoderFailed { .. }), "{error}");
    let (count, status) = StandIn::new("describe; frame 0; frame 1; kill -SEGV $$")
        .read()
        .unwrap();
    assert_eq!(count, 2);
    let text = status.to_string();
    assert!(
        text.contains("after frame 1 at 0.040 s") && text.contains("signal"),
        "{text}"
    );
}

#[test]
fn half_a_frame_at_the_end_is_never_delivered() {
    let stand_in = StandIn::new("describe; frame 0; frame 1 | head -c 7; exit 0");
    let (count, status) = stand_in.read().unwrap();
    assert_eq!(count, 1);
    assert!(matches!(status, ReadStatus::Partial { .. }), "{status}");
}

#[test]
fn a_huge_size_in_a_message_allocates_nothing() {
    let line =
        "[showinfo@out @ 0x1] [info] n: 0 pts: 0 fmt:rgb24 s:999999x999999 i:P iskey:1 type:I";
    let body = format!(
        "describe; echo '{}' >&2; echo '{line}' >&2; sleep 600",
        line.replace("@out", "@seen")
    );
    let error = StandIn::new(&body).read().unwrap_err();
    assert!(
        matches!(error, VideoError::PictureTooLarge { .. }),
        "{error}"
    );
}

#[test]
fn a_stuck_read_is_unblocked_by_its_cancel_handle() {
    let stand_in = StandIn::new("describe; frame 0; sleep 600");
    let mut reader = stand_in.open().unwrap();
    assert!(reader.next_frame().unwrap().is_some());
    let cancel = reader.cancel_handle().unwrap();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        cancel();
    });
    let start = Instant::now();
    assert!(reader.next_frame().unwrap().is_none());
    // Far below the stall limit of the stand-in.
    assert!(start.elapsed() < Duration::from_secs_f64(stand_in.options.limits.stall_secs));
    other.join().unwrap();
    assert!(
        reader
            .summary()
            .status
            .to_string()
            .contains("cancelled after frame 0")
    );
}
