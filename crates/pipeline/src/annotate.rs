//! The picture record of a scan.
//!
//! Files are read a second time when the scan is done, because only then is it known what a track
//! is: its name stands beside it from the first frame on, and the same input gives the same video.
//! A camera cannot be read twice, so its frames are annotated as they go by with what is known.

use std::{collections::BTreeMap, path::Path};

use shelfscan_inference_core::{TrackId, VideoFrame};
use shelfscan_video::{
    Annotation, ClipOptions, ClipWriter, FrameDirWriter, FrameReader, SourceInfo, annotate,
    find_ffmpeg, track_color,
};

use crate::{
    Annotate, Facing, FacingId, FrameRecord, Identity, IdentityStatus, Result, ScanOptions,
    TrackSummary, journal::names, records::RecordReader,
};

/// JPEG quality of annotated pictures, 1 to 100.
const FRAME_QUALITY: u8 = 88;

/// Rate of the annotated clip of a source that does not state its own, in frames a second.
const DEFAULT_FPS: f64 = 30.0;

/// Rates a container may claim without being believed, in frames a second.
const CREDIBLE_FPS: std::ops::RangeInclusive<f64> = 1.0..=120.0;

enum Sink {
    Clip(Box<ClipWriter>),
    Frames(FrameDirWriter),
}

impl Sink {
    fn create(dir: &Path, options: &ScanOptions, info: &SourceInfo) -> Result<Self> {
        if options.outputs.annotate == Annotate::Frames {
            let folder = dir.join(names::ANNOTATED_FRAMES);
            return Ok(Self::Frames(FrameDirWriter::create(
                &folder,
                FRAME_QUALITY,
            )?));
        }
        let ffmpeg = find_ffmpeg(&options.read.ffmpeg)?;
        let fps = options
            .read
            .fps
            .or(info.declared_fps)
            .filter(|fps| CREDIBLE_FPS.contains(fps))
            .unwrap_or(DEFAULT_FPS);
        let clip = ClipOptions {
            fps,
            ..ClipOptions::default()
        };
        let path = dir.join(names::ANNOTATED_VIDEO);
        Ok(Self::Clip(Box::new(ClipWriter::create(
            &path, &ffmpeg, clip,
        )?)))
    }

    fn write(&mut self, frame: &VideoFrame, annotations: &[Annotation]) -> Result<()> {
        let image = annotate(&frame.image, annotations);
        match self {
            Self::Clip(clip) => clip.write(&image, frame.time.secs)?,
            Self::Frames(frames) => {
                frames.write(&image, frame.index)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Clip(clip) => Ok(clip.finish(None)?),
            Self::Frames(_) => Ok(()),
        }
    }
}

/// Annotates a finished run: reads the source again with `reader`, and draws what the journal says.
/// `go_on` hears the number of frames written and may end it. Returns the number of frames, or
/// `None` when it was ended.
pub(crate) fn annotate_run(
    mut reader: Box<dyn FrameReader>,
    options: &ScanOptions,
    dir: &Path,
    tracks: &[TrackSummary],
    facings: &[Facing],
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Option<u64>> {
    let named: BTreeMap<FacingId, &Identity> =
        facings.iter().map(|f| (f.facing_id, &f.identity)).collect();
    let captions: BTreeMap<TrackId, Caption> = tracks
        .iter()
        .map(|t| {
            let identity = named.get(&t.facing_id).copied().unwrap_or(&t.identity);
            (t.track_id, Caption::new(t.facing_id.0, &t.label, identity))
        })
        .collect();
    let mut records = RecordReader::open(&dir.join(names::DETECTIONS), false)?;
    let mut sink = Sink::create(dir, options, reader.info())?;
    let mut next = records.next_record()?;
    let mut written = 0;
    while let Some(frame) = reader.next_frame()? {
        while next.as_ref().is_some_and(|r| r.frame_index < frame.index) {
            next = records.next_record()?;
        }
        let annotations = match next.as_ref().filter(|r| r.frame_index == frame.index) {
            Some(record) => annotations_of(record, |track| captions.get(&track).cloned()),
            None => Vec::new(),
        };
        sink.write(&frame, &annotations)?;
        written += 1;
        if !go_on(written) {
            // Dropped unfinished, so no half of a clip appears under its name.
            return Ok(None);
        }
    }
    sink.finish()?;
    Ok(Some(written))
}

/// Annotates the frames of a camera as they go by.
pub(crate) struct LiveAnnotator(Sink);

impl LiveAnnotator {
    pub(crate) fn create(dir: &Path, options: &ScanOptions, info: &SourceInfo) -> Result<Self> {
        Sink::create(dir, options, info).map(Self)
    }

    pub(crate) fn write(
        &mut self,
        frame: &VideoFrame,
        record: &FrameRecord,
        identity: impl Fn(TrackId) -> Identity,
    ) -> Result<()> {
        let annotations = annotations_of(record, |track| {
            let label = record
                .detections
                .iter()
                .find(|d| d.track_id == Some(track))
                .map_or("", |d| &d.label);
            Some(Caption::new(track.0, label, &identity(track)))
        });
        self.0.write(frame, &annotations)
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

/// Box colour of a pack that nothing in the gallery is close to.
const UNKNOWN_COLOR: [u8; 3] = [255, 72, 72];

/// Box colour of a detection whose track is not confirmed.
pub const UNCONFIRMED_COLOR: [u8; 3] = [160, 160, 160];

/// What stands beside a box.
#[derive(Clone)]
struct Caption {
    label: String,
    /// One colour for each SKU, so that a wrong name catches the eye.
    color: [u8; 3],
}

impl Caption {
    fn new(number: u64, label: &str, identity: &Identity) -> Self {
        let what = match (identity.status, &identity.sku) {
            (IdentityStatus::Identified, Some(sku)) => {
                format!("{sku} {:.2}", identity.score.unwrap_or_default())
            }
            (IdentityStatus::Unknown, _) => format!("{label} unknown"),
            _ => label.to_owned(),
        };
        Self {
            label: format!("#{number} {what}"),
            color: identity_color(number, identity.status, identity.sku.as_deref()),
        }
    }
}

/// Box colour of a track or facing, the same in every picture of a run: one colour for each SKU,
/// red for what is unknown, and one for each `number` where nothing was asked.
pub fn identity_color(number: u64, status: IdentityStatus, sku: Option<&str>) -> [u8; 3] {
    match (status, sku) {
        (IdentityStatus::Identified, Some(sku)) => track_color(TrackId(stable_hash(sku))),
        (IdentityStatus::Unknown, _) => UNKNOWN_COLOR,
        _ => track_color(TrackId(number)),
    }
}

fn annotations_of(
    record: &FrameRecord,
    caption: impl Fn(TrackId) -> Option<Caption>,
) -> Vec<Annotation> {
    record
        .detections
        .iter()
        .map(|d| {
            let caption = d.track_id.and_then(&caption);
            Annotation {
                bbox: d.bbox.into(),
                mask: d.mask.clone(),
                color: Some(caption.as_ref().map_or(UNCONFIRMED_COLOR, |c| c.color)),
                label: caption.map_or_else(String::new, |c| c.label),
                track_id: None,
            }
        })
        .collect()
}

/// FNV-1a: the same colour for the same SKU on every machine.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
