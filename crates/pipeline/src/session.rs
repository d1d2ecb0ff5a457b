//! Frames pushed one at a time, for apps that have their own loop.

use std::{collections::BTreeMap, sync::Arc};

use shelfscan_inference_core::{InferenceProvider, SourceId, VideoFrame};

use crate::{
    Facing, FrameRecord, Result, ScanOptions, Silent, TrackSummary, detect::DetectStage,
    identity::Identify, journal::EarlierFrames, track::TrackStage,
};

/// A scan of one source whose frames the app pushes itself, without knowing how many will come.
///
/// The same frames give the same tracks and facings as [`crate::Scanner`] gives for a file: both
/// run the same stages. One case is apart: a scanner that is told of one or two frames shows their
/// facings, a session holds them too few to be sure. A result comes at most
/// [`tracking_delay_frames`](shelfscan_inference_core::ProviderInfo::tracking_delay_frames) after
/// its frame.
///
/// ```
/// use shelfscan_inference_core::{FrameTime, InferenceProvider, RgbImage, SourceId, VideoFrame};
/// use shelfscan_pipeline::{FrameSession, ScanOptions};
/// # use shelfscan_testkit::scripted::{ScriptedProvider, detection};
/// # let mut provider = ScriptedProvider::new(|_| Ok(vec![detection("product", 0.9, [4.0, 4.0, 30.0, 40.0], None)]));
/// provider.warmup()?;
/// let source = SourceId::new("shelf camera");
/// let mut session = FrameSession::new(&source, &ScanOptions::default(), &mut provider, None)?;
/// for index in 0..5 {
///     let image = RgbImage::new(64, 48, vec![0; 64 * 48 * 3])?;
///     let time = FrameTime::exact(index as f64 / 30.0);
///     session.push(VideoFrame { image, index, time, source: source.clone() })?;
/// }
/// let (_tracks, facings) = session.finish()?;
/// assert_eq!(facings.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FrameSession<'p> {
    detect: DetectStage<'p>,
    track: TrackStage,
}

impl<'p> FrameSession<'p> {
    /// Opens a session with a warm provider.
    ///
    /// # Errors
    /// Options that cannot be met.
    pub fn new(
        source: &SourceId,
        options: &ScanOptions,
        provider: &'p mut dyn InferenceProvider,
        identify: Option<&Arc<dyn Identify>>,
    ) -> Result<Self> {
        let own_ids = provider.info().assigns_track_ids;
        Ok(Self {
            detect: DetectStage::new(provider, &options.prompts, EarlierFrames::none()),
            track: TrackStage::new(
                source,
                options,
                own_ids,
                identify,
                BTreeMap::new(),
                None,
                Arc::new(Silent),
            )?,
        })
    }

    /// Takes the next frame; returns the frames whose results are final, in order.
    ///
    /// # Errors
    /// The provider or the embedder failed.
    pub fn push(&mut self, frame: VideoFrame) -> Result<Vec<FrameRecord>> {
        let detected = self.detect.push(frame)?;
        detected.into_iter().map(|d| self.track.push(d)).collect()
    }

    /// Ends the session; returns all tracks and facings.
    ///
    /// # Errors
    /// The provider or the embedder failed.
    pub fn finish(mut self) -> Result<(Vec<TrackSummary>, Vec<Facing>)> {
        for detected in self.detect.finish()? {
            self.track.push(detected)?;
        }
        self.track.finish(true)
    }
}
