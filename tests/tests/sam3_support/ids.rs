//! Ids in results.
#![allow(unreachable_pub)]

use shelfscan_inference_core::FrameDetections;

/// The ids of a frame, ascending.
pub fn ids(frame: &FrameDetections) -> Vec<u64> {
    let mut ids: Vec<u64> = frame
        .detections
        .iter()
        .map(|d| d.track_id.unwrap().0)
        .collect();
    ids.sort_unstable();
    ids
}
