//! Sources that do not wait: a file played through a camera's door.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use shelfscan_inference_core::{SourceId, VideoFrame};
use shelfscan_pipeline::{FrameRecord, RunStatus, ScanObserver, ScanOptions, ScanPlan, Scanner};
use shelfscan_testkit::scripted::{ScriptedProvider, detection};
use shelfscan_video::{
    CancelHandle, FrameReader, ReadOptions, ReadStatus, ReadSummary, Source, SourceInfo, VideoError,
};

use crate::drawn::{only, pan};

/// Gives the frames of a file as a camera would, at a pace of its own.
struct FakeCamera {
    file: Box<dyn FrameReader>,
    info: SourceInfo,
    pace: Duration,
    captured: u64,
}

fn fake_camera(
    file: &Source,
    options: &ReadOptions,
    pace: Duration,
) -> Result<Box<dyn FrameReader>, VideoError> {
    let file = shelfscan_video::open(file, options)?;
    let info = SourceInfo {
        live: true,
        declared_frames: None,
        ..file.info().clone()
    };
    Ok(Box::new(FakeCamera {
        file,
        info,
        pace,
        captured: 0,
    }))
}

impl FrameReader for FakeCamera {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<VideoFrame>, VideoError> {
        std::thread::sleep(self.pace);
        let frame = self.file.next_frame()?;
        self.captured += u64::from(frame.is_some());
        Ok(frame)
    }

    fn summary(&self) -> ReadSummary {
        ReadSummary {
            decoded: self.captured,
            delivered: self.captured,
            dropped: 0,
            status: ReadStatus::Complete,
            notices: Vec::new(),
        }
    }

    fn cancel_handle(&self) -> Option<CancelHandle> {
        None
    }
}

#[test]
fn a_file_through_a_slow_camera_gives_the_tracks_of_the_file() {
    let drawn = pan(40);
    let file = only(drawn.scanner(ScanOptions::default(), None).run().unwrap());
    let camera = only(
        drawn
            .scanner(ScanOptions::default(), None)
            .with_opener(|source, options| fake_camera(source, options, Duration::from_millis(40)))
            .run()
            .unwrap(),
    );
    if camera.run.frames.dropped == 0 {
        assert_eq!((camera.tracks, camera.facings), (file.tracks, file.facings));
    } else {
        // A starved machine may drop a frame even at this pace; then the count has to say so.
        assert_eq!(camera.run.frames.processed + camera.run.frames.dropped, 40);
    }
}

#[test]
fn a_camera_faster_than_the_model_loses_its_oldest_frames_and_they_are_counted() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<u64>>);
    impl ScanObserver for Seen {
        fn frame(&self, _: &SourceId, record: &FrameRecord) {
            self.0.lock().unwrap().push(record.frame_index);
        }
    }
    let drawn = pan(60);
    let provider = ScriptedProvider::new(|_| {
        std::thread::sleep(Duration::from_millis(40));
        Ok(vec![detection(
            "product",
            0.9,
            [10.0, 10.0, 60.0, 90.0],
            None,
        )])
    });
    let seen = Arc::new(Seen::default());
    let plan = ScanPlan::new(ScanOptions::default(), vec![drawn.source()], None, None).unwrap();
    let done = only(
        Scanner::new(plan, Box::new(provider))
            .with_opener(|source, options| fake_camera(source, options, Duration::from_millis(2)))
            .with_observer(seen.clone())
            .run()
            .unwrap(),
    );
    assert_eq!(done.run.status, RunStatus::Complete);
    let frames = &done.run.frames;
    assert!(frames.dropped > 10, "{frames:?}");
    assert_eq!(frames.decoded, 60);
    assert_eq!(frames.processed + frames.dropped, frames.decoded);
    assert!(
        done.run
            .notices
            .iter()
            .any(|n| &*n.code == "frames_dropped")
    );
    // The newest frame is never lost, so what comes out is never far behind the camera.
    assert_eq!(seen.0.lock().unwrap().last(), Some(&59));
}
