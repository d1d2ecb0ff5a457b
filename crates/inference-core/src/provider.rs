//! The contract between a detection and tracking model and the rest.

use serde::{Deserialize, Serialize};

use crate::{FrameDetections, Result, TextPrompt, VideoFrame};

/// Names one set of weights, so that a result can be traced to what made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFingerprint {
    /// Name of the model, such as `sam3.1`.
    pub model: String,
    /// Hash of the weights in hex, or of the file that replaces them.
    pub weights_hash: String,
    /// Version of the steps before the model: resize, colour, normalisation.
    pub preprocessing: String,
}

/// What a provider is and does; known before anything is loaded, except for the fingerprints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// Name of the back end, such as `cpu` or `replay`.
    pub name: String,
    /// The device it runs on, such as `cpu` or `cuda:0`.
    pub device: String,
    /// True when [`InferenceProvider::track_next`] fills [`crate::Detection::track_id`] itself.
    /// Otherwise the pipeline associates detections into tracks.
    pub assigns_track_ids: bool,
    /// How many frames a tracking result may lag behind the frame just pushed; 0 for at once.
    pub tracking_delay_frames: u32,
    /// The weights behind it; empty before warm-up.
    pub models: Vec<ModelFingerprint>,
}

/// A model that finds objects by phrase and follows them through a video.
///
/// Calls come in this order: [`warmup`](Self::warmup) once, then
/// [`detect_text_prompts`](Self::detect_text_prompts) at any time, or
/// [`start_tracking`](Self::start_tracking) followed by [`track_next`](Self::track_next) for every
/// further frame, again for each source; [`shutdown`](Self::shutdown) ends it. A call out of order
/// is [`InferenceError::OutOfOrder`](crate::InferenceError::OutOfOrder). Nothing heavy happens
/// before `warmup`. The suite in `shelfscan-testkit` checks any implementation against this text.
///
/// Detections are in source pixels of the frame, highest score first, and equal input gives equal
/// output.
pub trait InferenceProvider: Send {
    /// What this provider is and does.
    fn info(&self) -> ProviderInfo;

    /// Loads the weights and makes the first answer as fast as the later ones. A second call does
    /// nothing.
    ///
    /// # Errors
    /// A missing device, a missing or gated checkpoint, each with what to do about it.
    fn warmup(&mut self) -> Result<()>;

    /// Finds what the phrases name in one frame, without ids. An open tracking session goes on
    /// untouched.
    ///
    /// # Errors
    /// Out of order, no prompt, or a failure of the model.
    fn detect_text_prompts(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<FrameDetections>;

    /// Opens a tracking session on its first frame; a session that was open is dropped.
    ///
    /// Returns the frames whose results are final, which may be none yet
    /// ([`ProviderInfo::tracking_delay_frames`]).
    ///
    /// # Errors
    /// Out of order, no prompt, or a failure of the model.
    fn start_tracking(
        &mut self,
        frame: &VideoFrame,
        prompts: &[TextPrompt],
    ) -> Result<Vec<FrameDetections>>;

    /// Pushes the next frame of the session; returns the frames that became final, in order.
    ///
    /// # Errors
    /// Out of order, or a failure of the model.
    fn track_next(&mut self, frame: &VideoFrame) -> Result<Vec<FrameDetections>>;

    /// Ends the session and hands out the frames still held back. Providers without a delay keep
    /// the default, which has none.
    ///
    /// # Errors
    /// Out of order, or a failure of the model.
    fn finish_tracking(&mut self) -> Result<Vec<FrameDetections>> {
        Ok(Vec::new())
    }

    /// Frees what `warmup` loaded. May be called in any state, more than once; every other call
    /// fails afterwards.
    ///
    /// # Errors
    /// The back end could not be ended cleanly; it is unusable all the same.
    fn shutdown(&mut self) -> Result<()>;
}
