//! The picture record of a scan.
//!
//! Files are read a second time when the scan is done, because only then is it known what a track
//! is: its name stands beside it from the first frame on, and the same input gives the same video.
//! A camera cannot be read twice, so its frames are annotated as they go by with what is known.

use std::{collections::BTreeMap, path::Path};

use shelfscan_inference_core::{TrackId, VideoFrame};
use shelfscan_video::{
    ClipOptions, ClipWriter, FrameDirWriter, ReadOptions, Source, SourceInfo,
    find_ffmpeg,
};

use crate::{
    Annotate, Facing, FacingId, FrameRecord, Identity, IdentityStatus, Result, ScanOptions,
    TrackSummary,
    journal::names,
    records::RecordReader,
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
            return Ok(Self::Frames(FrameDirWriter::create(&folder, FRAME_QUALITY)?));
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
        Ok(Self::Clip(Box::new(ClipWriter::create(&path, &ffmpeg, clip)?)))
    }

    fn write(&mut self, frame: &VideoFrame, overlays: &[Overlay]) -> Result<()> {
        let mut image = frame.image.clone();
        draw_overlays(&mut image, overlays);
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

/// Annotates a finished run: reads the source again, and draws what the journal says. `go_on` hears
/// the number of frames written and may end it. Returns the number of frames.
pub(crate) fn annotate_run(
    source: &Source,
    options: &ScanOptions,
    dir: &Path,
    tracks: &[TrackSummary],
    facings: &[Facing],
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64> {
    let named: BTreeMap<FacingId, &Identity> =
        facings.iter().map(|f| (f.facing_id, &f.identity)).collect();
    let captions: BTreeMap<TrackId, Caption> = tracks
        .iter()
        .map(|t| {
            let identity = named.get(&t.facing_id).copied().unwrap_or(&t.identity);
            (t.track_id, Caption::new(t.facing_id.0, &t.label, identity))
        })
        .collect();
    let read: &ReadOptions = &options.read;
    let mut reader = shelfscan_video::open(source, read)?;
    let mut records = RecordReader::open(&dir.join(names::DETECTIONS), false)?;
    let mut sink = Sink::create(dir, options, reader.info())?;
    let mut next = records.next_record()?;
    let mut written = 0;
    while let Some(frame) = reader.next_frame()? {
        while next.as_ref().is_some_and(|r| r.frame_index < frame.index) {
            next = records.next_record()?;
        }
        let overlays = match next.as_ref().filter(|r| r.frame_index == frame.index) {
            Some(record) => overlays(record, |track| captions.get(&track).cloned()),
            None => Vec::new(),
        };
        sink.write(&frame, &overlays)?;
        written += 1;
        if !go_on(written) {
            // Dropped unfinished, so no half of a clip appears under its name.
            return Ok(written);
        }
    }
    sink.finish()?;
    Ok(written)
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
        let overlays = overlays(record, |track| {
            let label = record
                .detections
                .iter()
                .find(|d| d.track_id == Some(track))
                .map_or("", |d| &d.label);
            Some(Caption::new(track.0, label, &identity(track)))
        });
        self.0.write(frame, &overlays)
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

/// What stands beside a box.
#[derive(Clone)]
struct Caption {
    text: String,
    /// Picks the colour; one for each SKU.
    colour_key: u64,
}

impl Caption {
    fn new(number: u64, label: &str, identity: &Identity) -> Self {
        let (what, colour_key) = match (identity.status, &identity.sku) {
            (IdentityStatus::Identified, Some(sku)) => (sku.to_string(), stable_hash(sku)),
            (IdentityStatus::Unknown, _) => (format!("{label} unknown"), 0),
            _ => (label.to_owned(), number),
        };
        let score = match identity.score {
            Some(score) if identity.sku.is_some() => format!(" {score:.2}"),
            _ => String::new(),
        };
        Self {
            text: format!("#{number} {what}{score}"),
            colour_key,
        }
    }
}

fn overlays(
    record: &FrameRecord,
    caption: impl Fn(TrackId) -> Option<Caption>,
) -> Vec<Overlay> {
    record
        .detections
        .iter()
        .filter(|d| d.bbox.iter().all(|v| v.is_finite()))
        .map(|d| {
            let caption = d.track_id.and_then(&caption);
            Overlay {
                bbox: d.bbox.into(),
                mask: d.mask.clone(),
                colour_key: caption.as_ref().map(|c| c.colour_key),
                text: caption.map_or_else(String::new, |c| c.text),
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

struct Overlay { bbox: shelfscan_inference_core::BoxXyxy, mask: Option<shelfscan_inference_core::Mask>, colour_key: Option<u64>, text: String }
fn draw_overlays(_: &mut shelfscan_inference_core::RgbImage, _: &[Overlay]) {}
