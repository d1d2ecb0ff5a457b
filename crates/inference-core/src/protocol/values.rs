//! Frames, detections and the rest of the vocabulary, field by field.

use std::sync::Arc;

use super::{
    ProtocolError,
    bytes::{Reader, Writer},
};
use crate::{
    BoxXyxy, Detection, EmbedderFingerprint, FrameDetections, FrameTime, Mask, ModelFingerprint,
    Notice, ProviderInfo, RgbImage, SourceId, TextPrompt, TrackId, VideoFrame,
};

type Result<T> = std::result::Result<T, ProtocolError>;

/// Least bytes of one of these on the wire.
const DETECTION_BYTES: usize = 30;
const FRAME_BYTES: usize = 16;
const TEXT_BYTES: usize = 4;

pub(super) fn write_size(w: &mut Writer, image: &RgbImage) {
    w.u32(image.width());
    w.u32(image.height());
}

/// Everything of a frame but its pixels.
pub(super) fn write_frame(w: &mut Writer, frame: &VideoFrame) -> Result<()> {
    write_size(w, &frame.image);
    w.u64(frame.index);
    w.f64(frame.time.secs);
    w.u8(u8::from(frame.time.estimated));
    w.text(frame.source.as_str())
}

/// A frame whose pixels are all of `pixels`.
pub(super) fn read_frame(r: &mut Reader<'_>, pixels: Vec<u8>) -> Result<VideoFrame> {
    let (width, height) = (r.u32("frame width")?, r.u32("frame height")?);
    let index = r.u64("frame index")?;
    let time = FrameTime {
        secs: r.f64("frame time")?,
        estimated: r.bool("frame time")?,
    };
    let source = SourceId::new(r.text("source")?);
    let image =
        RgbImage::new(width, height, pixels).map_err(|_| ProtocolError::Damaged("frame pixels"))?;
    Ok(VideoFrame {
        image,
        index,
        time,
        source,
    })
}

/// Pictures whose pixels lie one behind the other in `pixels`.
pub(super) fn read_pictures(r: &mut Reader<'_>, mut pixels: &[u8]) -> Result<Vec<RgbImage>> {
    let field = "crop";
    let pictures = r.list(field, 8, |r| {
        let (width, height) = (r.u32(field)?, r.u32(field)?);
        let bytes = (u64::from(width) * u64::from(height)).checked_mul(3);
        let (own, rest) = bytes
            .and_then(|n| usize::try_from(n).ok())
            .and_then(|n| pixels.split_at_checked(n))
            .ok_or(ProtocolError::Damaged(field))?;
        pixels = rest;
        RgbImage::new(width, height, own.to_vec()).map_err(|_| ProtocolError::Damaged(field))
    })?;
    if pixels.is_empty() {
        Ok(pictures)
    } else {
        Err(ProtocolError::Damaged("crops"))
    }
}

pub(super) fn write_prompts(w: &mut Writer, prompts: &[TextPrompt]) -> Result<()> {
    w.count(prompts.len())?;
    for prompt in prompts {
        w.text(&prompt.phrase)?;
        w.text(&prompt.label)?;
    }
    Ok(())
}

pub(super) fn read_prompts(r: &mut Reader<'_>) -> Result<Vec<TextPrompt>> {
    r.list("prompts", 2 * TEXT_BYTES, |r| {
        TextPrompt::labelled(r.text("phrase")?, r.text("label")?)
            .map_err(|_| ProtocolError::Damaged("prompt"))
    })
}

pub(super) fn write_info(w: &mut Writer, info: &ProviderInfo) -> Result<()> {
    w.text(&info.name)?;
    w.text(&info.device)?;
    w.u8(u8::from(info.assigns_track_ids));
    w.u32(info.tracking_delay_frames);
    w.count(info.models.len())?;
    for model in &info.models {
        w.text(&model.model)?;
        w.text(&model.weights_hash)?;
        w.text(&model.preprocessing)?;
    }
    Ok(())
}

pub(super) fn read_info(r: &mut Reader<'_>) -> Result<ProviderInfo> {
    Ok(ProviderInfo {
        name: r.text("provider name")?.into(),
        device: r.text("device")?.into(),
        assigns_track_ids: r.bool("track id flag")?,
        tracking_delay_frames: r.u32("tracking delay")?,
        models: r.list("models", 3 * TEXT_BYTES, |r| {
            Ok(ModelFingerprint {
                model: r.text("model name")?.into(),
                weights_hash: r.text("weights hash")?.into(),
                preprocessing: r.text("preprocessing")?.into(),
            })
        })?,
    })
}

pub(super) fn write_fingerprint(w: &mut Writer, print: &EmbedderFingerprint) -> Result<()> {
    w.text(&print.model)?;
    w.text(&print.weights_hash)?;
    w.text(&print.preprocessing)?;
    w.u64(print.dimension as u64);
    Ok(())
}

pub(super) fn read_fingerprint(r: &mut Reader<'_>) -> Result<EmbedderFingerprint> {
    Ok(EmbedderFingerprint {
        model: r.text("model name")?.into(),
        weights_hash: r.text("weights hash")?.into(),
        preprocessing: r.text("preprocessing")?.into(),
        dimension: usize::try_from(r.u64("dimension")?)
            .map_err(|_| ProtocolError::Damaged("dimension"))?,
    })
}

pub(super) fn write_found(w: &mut Writer, frames: &[FrameDetections]) -> Result<()> {
    w.count(frames.len())?;
    for frame in frames {
        w.u64(frame.frame_index);
        w.count(frame.detections.len())?;
        for detection in &frame.detections {
            write_detection(w, detection)?;
        }
        w.count(frame.notices.len())?;
        for notice in &frame.notices {
            w.text(&notice.code)?;
            w.text(&notice.message)?;
        }
    }
    Ok(())
}

pub(super) fn read_found(r: &mut Reader<'_>) -> Result<Vec<FrameDetections>> {
    let mut words = Words::default();
    r.list("frames", FRAME_BYTES, |r| {
        Ok(FrameDetections {
            frame_index: r.u64("frame index")?,
            detections: r.list("detections", DETECTION_BYTES, |r| {
                read_detection(r, &mut words)
            })?,
            notices: r.list("notices", 2 * TEXT_BYTES, |r| {
                Ok(Notice::new(r.text("notice")?, r.text("notice")?))
            })?,
        })
    })
}

fn write_detection(w: &mut Writer, detection: &Detection) -> Result<()> {
    w.text(&detection.label)?;
    w.text(&detection.prompt)?;
    w.f32(detection.score);
    for side in <[f32; 4]>::from(detection.bbox) {
        w.f32(side);
    }
    w.option(detection.track_id, |w, id| {
        w.u64(id.0);
        Ok(())
    })?;
    w.option(detection.mask.as_ref(), |w, mask| {
        w.u32(mask.width());
        w.u32(mask.height());
        w.count(mask.runs().len())?;
        for run in mask.runs() {
            w.u32(*run);
        }
        Ok(())
    })
}

fn read_detection(r: &mut Reader<'_>, words: &mut Words) -> Result<Detection> {
    Ok(Detection {
        label: words.shared(r.text("label")?),
        prompt: words.shared(r.text("prompt")?),
        score: r.f32("score")?,
        bbox: BoxXyxy::new(r.f32("box")?, r.f32("box")?, r.f32("box")?, r.f32("box")?),
        track_id: r.option("track id", |r| r.u64("track id").map(TrackId))?,
        mask: r.option("mask", |r| {
            let (width, height) = (r.u32("mask width")?, r.u32("mask height")?);
            let runs = r.list("mask", 4, |r| r.u32("mask"))?;
            Mask::from_runs(width, height, runs).map_err(|_| ProtocolError::Damaged("mask"))
        })?,
    })
}

/// The few labels that hundreds of detections carry, each allocated once.
#[derive(Default)]
struct Words {
    seen: Vec<Arc<str>>,
}

impl Words {
    fn shared(&mut self, text: &str) -> Arc<str> {
        const KEPT: usize = 16;
        if let Some(word) = self.seen.iter().find(|word| &***word == text) {
            return Arc::clone(word);
        }
        let word: Arc<str> = text.into();
        if self.seen.len() < KEPT {
            self.seen.push(Arc::clone(&word));
        }
        word
    }
}
