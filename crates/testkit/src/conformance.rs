//! Checks any provider against the text of the contract.
//!
//! Each check panics with the sentence that was broken. A back end calls [`check_provider`] from
//! one test of its own, with frames it can handle.

use std::collections::BTreeSet;

use shelfscan_inference_core::{
    FrameDetections, InferenceError, InferenceProvider, Result, TextPrompt, TrackId, VideoFrame,
};

/// Runs a provider through the whole contract.
///
/// `make` builds a fresh, cold provider each time. `frames` are at least three frames of one
/// source with rising indices, `prompts` at least one phrase.
///
/// # Panics
/// With the sentence of the contract that does not hold.
pub fn check_provider(
    make: impl Fn() -> Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    assert!(
        frames.len() >= 3 && !prompts.is_empty(),
        "the suite needs three frames and a prompt"
    );
    calls_before_warmup_are_refused(make(), frames, prompts);
    warmup_is_idempotent_and_names_the_models(make());
    detection_keeps_its_promises(make(), frames, prompts);
    tracking_keeps_its_promises(make(), frames, prompts);
    a_new_session_starts_from_nothing(make(), frames, prompts);
    detection_leaves_a_session_alone(&make, frames, prompts);
    nothing_works_after_shutdown(make(), frames, prompts);
    provider_moves_between_threads(make(), frames, prompts);
}

fn out_of_order<T>(result: Result<T>, sentence: &str) {
    match result {
        Err(InferenceError::OutOfOrder { remedy, .. }) => {
            assert!(
                !remedy.is_empty(),
                "an out-of-order error names the call that was due"
            );
        }
        Err(other) => panic!("{sentence}, but the error was: {other}"),
        Ok(_) => panic!("{sentence}, but the call was answered"),
    }
}

fn calls_before_warmup_are_refused(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    let info = provider.info();
    assert!(
        !info.name.is_empty() && !info.device.is_empty(),
        "info names the back end and the device before anything is loaded"
    );
    out_of_order(
        provider.detect_text_prompts(&frames[0], prompts),
        "detect_text_prompts before warmup is out of order",
    );
    out_of_order(
        provider.start_tracking(&frames[0], prompts),
        "start_tracking before warmup is out of order",
    );
    out_of_order(
        provider.track_next(&frames[0]),
        "track_next before warmup is out of order",
    );
    provider
        .shutdown()
        .expect("shutdown is allowed before warmup");
}

fn warmup_is_idempotent_and_names_the_models(mut provider: Box<dyn InferenceProvider>) {
    provider.warmup().expect("warmup succeeds");
    let first = provider.info();
    assert!(
        !first.models.is_empty(),
        "after warmup, info lists the weights that are loaded"
    );
    provider.warmup().expect("a second warmup does nothing");
    assert_eq!(first, provider.info(), "a second warmup changes nothing");
}

fn check_frame(found: &FrameDetections, frame: &VideoFrame, prompts: &[TextPrompt]) {
    assert_eq!(
        found.frame_index, frame.index,
        "a result carries the index of its frame"
    );
    let (w, h) = (frame.image.width(), frame.image.height());
    for pair in found.detections.windows(2) {
        assert!(
            pair[0].score >= pair[1].score,
            "detections come highest score first"
        );
    }
    for detection in &found.detections {
        assert!(
            (0.0..=1.0).contains(&detection.score),
            "scores lie between 0 and 1"
        );
        assert!(detection.bbox.is_valid(), "boxes are finite and not empty");
        assert_eq!(
            detection.bbox,
            detection.bbox.clamped(w, h),
            "boxes lie inside the frame, in source pixels"
        );
        assert!(
            prompts
                .iter()
                .any(|p| p.phrase == detection.prompt && p.label == detection.label),
            "a detection carries a phrase that was asked for, and its label"
        );
        if let Some(mask) = &detection.mask {
            assert_eq!(
                (mask.width(), mask.height()),
                (w, h),
                "masks have the size of the frame"
            );
        }
    }
}

fn detection_keeps_its_promises(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    provider.warmup().expect("warmup succeeds");
    assert!(
        matches!(
            provider.detect_text_prompts(&frames[0], &[]),
            Err(InferenceError::InvalidInput(_))
        ),
        "no prompt at all is invalid input"
    );
    let first = provider
        .detect_text_prompts(&frames[0], prompts)
        .expect("detection succeeds");
    check_frame(&first, &frames[0], prompts);
    assert!(
        first.detections.iter().all(|d| d.track_id.is_none()),
        "detection gives no track ids"
    );
    provider
        .detect_text_prompts(&frames[1], prompts)
        .expect("detection succeeds");
    let again = provider
        .detect_text_prompts(&frames[0], prompts)
        .expect("detection succeeds");
    assert_eq!(first, again, "equal input gives equal output");
    out_of_order(
        provider.track_next(&frames[1]),
        "track_next before start_tracking is out of order",
    );
}

/// Tracks all frames; returns every result in order.
fn track_all(
    provider: &mut dyn InferenceProvider,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) -> Vec<FrameDetections> {
    let delay = provider.info().tracking_delay_frames as usize;
    let mut results = provider
        .start_tracking(&frames[0], prompts)
        .expect("start_tracking succeeds");
    for (pushed, frame) in frames.iter().enumerate().skip(1) {
        results.extend(provider.track_next(frame).expect("track_next succeeds"));
        assert!(
            results.len() + delay > pushed,
            "a result comes no later than the stated delay"
        );
    }
    results.extend(
        provider
            .finish_tracking()
            .expect("finish_tracking succeeds"),
    );
    results
}

fn tracking_keeps_its_promises(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    provider.warmup().expect("warmup succeeds");
    assert!(
        matches!(
            provider.start_tracking(&frames[0], &[]),
            Err(InferenceError::InvalidInput(_))
        ),
        "a session needs a prompt"
    );
    let results = track_all(provider.as_mut(), frames, prompts);
    assert_eq!(results.len(), frames.len(), "every frame has one result");
    let own_ids = provider.info().assigns_track_ids;
    for (found, frame) in results.iter().zip(frames) {
        check_frame(found, frame, prompts);
        let ids: Vec<TrackId> = found.detections.iter().filter_map(|d| d.track_id).collect();
        let unique: BTreeSet<TrackId> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len(), "no id appears twice in a frame");
        assert!(ids.iter().all(|id| id.0 >= 1), "ids start at 1");
        assert!(
            own_ids || ids.is_empty(),
            "a provider that says it gives no ids gives none"
        );
    }
    out_of_order(
        provider.track_next(&frames[0]),
        "track_next after finish_tracking is out of order",
    );
}

fn a_new_session_starts_from_nothing(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    provider.warmup().expect("warmup succeeds");
    let first = track_all(provider.as_mut(), frames, prompts);
    let second = track_all(provider.as_mut(), frames, prompts);
    assert_eq!(
        first, second,
        "a second source starts from nothing: same frames, same ids"
    );
}

fn detection_leaves_a_session_alone(
    make: &impl Fn() -> Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    let mut plain = make();
    plain.warmup().expect("warmup succeeds");
    let expected = track_all(plain.as_mut(), frames, prompts);

    let mut disturbed = make();
    disturbed.warmup().expect("warmup succeeds");
    let mut results = disturbed
        .start_tracking(&frames[0], prompts)
        .expect("start_tracking succeeds");
    for frame in &frames[1..] {
        disturbed
            .detect_text_prompts(&frames[0], prompts)
            .expect("detection succeeds during a session");
        results.extend(disturbed.track_next(frame).expect("track_next succeeds"));
    }
    results.extend(
        disturbed
            .finish_tracking()
            .expect("finish_tracking succeeds"),
    );
    assert_eq!(
        expected, results,
        "detect_text_prompts leaves an open session untouched"
    );
}

fn nothing_works_after_shutdown(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    provider.warmup().expect("warmup succeeds");
    provider
        .start_tracking(&frames[0], prompts)
        .expect("start_tracking succeeds");
    provider.shutdown().expect("shutdown succeeds");
    provider.shutdown().expect("a second shutdown is allowed");
    out_of_order(provider.warmup(), "warmup after shutdown is out of order");
    out_of_order(
        provider.detect_text_prompts(&frames[0], prompts),
        "detect_text_prompts after shutdown is out of order",
    );
    out_of_order(
        provider.start_tracking(&frames[0], prompts),
        "start_tracking after shutdown is out of order",
    );
    out_of_order(
        provider.track_next(&frames[1]),
        "track_next after shutdown is out of order",
    );
}

fn provider_moves_between_threads(
    mut provider: Box<dyn InferenceProvider>,
    frames: &[VideoFrame],
    prompts: &[TextPrompt],
) {
    provider.warmup().expect("warmup succeeds");
    let here = provider
        .detect_text_prompts(&frames[0], prompts)
        .expect("detection succeeds");
    let there = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                provider
                    .detect_text_prompts(&frames[0], prompts)
                    .expect("detection succeeds on another thread")
            })
            .join()
            .expect("the thread ends")
    });
    assert_eq!(here, there, "the answer does not depend on the thread");
}

#[cfg(test)]
mod tests {
    use shelfscan_inference_core::{FrameTime, RgbImage, SourceId};

    use super::*;
    use crate::scripted::{ScriptedProvider, detection};

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
            let x = frame.index as f32;
            Ok(vec![
                detection("product", 0.9, [x, 2.0, x + 10.0, 20.0], Some(1)),
                detection("product", 0.8, [x + 20.0, 2.0, x + 30.0, 20.0], Some(2)),
            ])
        })
    }

    fn prompts() -> Vec<TextPrompt> {
        vec![TextPrompt::new("product").unwrap()]
    }

    #[test]
    fn the_scripted_provider_keeps_the_contract_with_and_without_ids_and_delay() {
        check_provider(|| Box::new(script()), &frames(6), &prompts());
        check_provider(|| Box::new(script().with_own_ids()), &frames(6), &prompts());
        check_provider(
            || Box::new(script().with_own_ids().with_delay(3)),
            &frames(6),
            &prompts(),
        );
    }

    #[test]
    #[should_panic(expected = "boxes lie inside the frame")]
    fn a_provider_that_leaves_the_frame_is_caught() {
        check_provider(
            || {
                Box::new(ScriptedProvider::new(|_| {
                    Ok(vec![detection(
                        "product",
                        0.9,
                        [0.0, 0.0, 900.0, 20.0],
                        None,
                    )])
                }))
            },
            &frames(3),
            &prompts(),
        );
    }

    #[test]
    #[should_panic(expected = "equal input gives equal output")]
    fn a_provider_that_drifts_is_caught() {
        check_provider(
            || {
                let mut n = 0.0;
                Box::new(ScriptedProvider::new(move |_| {
                    n += 1.0;
                    Ok(vec![detection(
                        "product",
                        0.9,
                        [n, 0.0, n + 9.0, 20.0],
                        None,
                    )])
                }))
            },
            &frames(3),
            &prompts(),
        );
    }
}
