//! Pictures of the page: key frames with boxes, and crops, each as a data URI.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use image::{ExtendedColorType, codecs::jpeg::JpegEncoder, imageops::FilterType};
use shelfscan_inference_core::{BoxXyxy, RgbImage, VideoFrame};
use shelfscan_pipeline::{ScanOptions, UNCONFIRMED_COLOR, names};
use shelfscan_video::{
    Annotation, FrameReader, Limits, ReadOptions, Source, annotate, load_picture, open, track_color,
};

use super::{frames::FrameLine, source::SourceRun};

/// Largest key frame, in pixels.
const KEY_FRAME_PX: (u32, u32) = (1200, 1600);

/// Largest crop, in pixels; twice what a card shows, for dense screens.
const CROP_PX: (u32, u32) = (260, 260);

/// JPEG quality, 1 to 100.
const QUALITY: u8 = 82;

/// A crop's file is taken as it is when it is small in pixels and in bytes.
const CROP_BYTES: usize = 48 << 10;

/// A source is opened again at a later time rather than read on when more than this lies between.
const JUMP_SECS: f64 = 20.0;

/// A picture that can stand in the page.
#[derive(Clone, Debug)]
pub(super) struct Embedded {
    pub(super) uri: String,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// A key frame.
#[derive(Clone, Debug)]
pub(super) struct KeyFrame {
    pub(super) frame_index: u64,
    pub(super) secs: Option<f64>,
    /// `None` when it could not be had.
    pub(super) picture: Option<Embedded>,
    /// Facings in view, in order of their ids.
    pub(super) facings: Vec<u64>,
    /// Tracks in view that belong to no facing, because the scan has not come to its end.
    pub(super) loose_tracks: u64,
    /// Boxes whose track was not confirmed by then.
    pub(super) unconfirmed: u64,
}

/// The key frames of a source, and why pictures are missing or come from elsewhere.
#[derive(Debug, Default)]
pub(super) struct KeyFrames {
    pub(super) frames: Vec<KeyFrame>,
    pub(super) note: Option<String>,
}

impl KeyFrames {
    /// Draws the `count` frames that show a source best. They are read from the source again; where
    /// it is gone or live, they are taken from the annotated pictures of the scan.
    pub(super) fn draw(source: &SourceRun, reader: &ReadOptions, count: usize) -> Self {
        let lines = source
            .frames
            .key_frames(&source.dir.join(names::DETECTIONS), count);
        if lines.is_empty() {
            return Self::default();
        }
        let labels = Labels::new(source);
        let mut pictures: Vec<Option<Embedded>> = vec![None; lines.len()];
        let mut note = None;
        if let Err(reason) = from_source(source, reader, &lines, &labels, &mut pictures) {
            note = Some(reason);
        }
        if pictures.iter().any(Option::is_none) {
            let folder = source.dir.join(names::ANNOTATED_FRAMES);
            for (picture, line) in pictures.iter_mut().zip(&lines) {
                if picture.is_none() {
                    let path = folder.join(format!("frame_{:06}.jpg", line.frame_index));
                    *picture = load_picture(&path, &Limits::default())
                        .ok()
                        .and_then(|image| embed(&shrunk(&image, KEY_FRAME_PX)?));
                }
            }
            let missing = pictures.iter().filter(|p| p.is_none()).count();
            let what = match missing {
                0 => "the pictures were taken from the annotated frames of the scan".to_owned(),
                n if n == lines.len() => "the pictures are missing".to_owned(),
                n => format!("{n} of {} pictures are missing", lines.len()),
            };
            let reason = note.unwrap_or_else(|| "frames did not come about again".into());
            note = Some(format!("{what}: {reason}"));
        }
        let frames = lines
            .iter()
            .zip(pictures)
            .map(|(line, picture)| labels.key_frame(line, picture))
            .collect();
        Self { frames, note }
    }
}

/// Facings, colours and captions of tracks.
struct Labels<'a> {
    facing_of: BTreeMap<u64, u64>,
    color_of: BTreeMap<u64, [u8; 3]>,
    source: &'a SourceRun,
}

impl<'a> Labels<'a> {
    fn new(source: &'a SourceRun) -> Self {
        Self {
            facing_of: source
                .tracks
                .iter()
                .map(|t| (t.track_id, t.facing_id))
                .collect(),
            color_of: source
                .facings
                .iter()
                .map(|f| (f.facing_id, f.color()))
                .collect(),
            source,
        }
    }

    fn key_frame(&self, line: &FrameLine, picture: Option<Embedded>) -> KeyFrame {
        let tracks = || line.detections.iter().filter_map(|d| d.track_id);
        let mut facings: Vec<u64> = tracks()
            .filter_map(|track| self.facing_of.get(&track).copied())
            .collect();
        facings.sort_unstable();
        facings.dedup();
        KeyFrame {
            frame_index: line.frame_index,
            secs: line.time_secs,
            picture,
            facings,
            loose_tracks: tracks()
                .filter(|track| !self.facing_of.contains_key(track))
                .count() as u64,
            unconfirmed: line
                .detections
                .iter()
                .filter(|d| d.track_id.is_none())
                .count() as u64,
        }
    }

    /// Boxes of a frame, drawn at `scale` of the source's pixels. Those without a track come first,
    /// so that they cover no facing.
    fn annotations(&self, line: &FrameLine, scale: (f32, f32)) -> Vec<Annotation> {
        let mut annotations: Vec<(bool, Annotation)> = line
            .detections
            .iter()
            .filter_map(|d| {
                let [x0, y0, x1, y1] = d.bbox;
                let bbox = BoxXyxy::new(x0? * scale.0, y0? * scale.1, x1? * scale.0, y1? * scale.1);
                let (label, color) = match (d.track_id, d.track_id.map(|t| self.facing_of.get(&t)))
                {
                    (_, Some(Some(facing))) => (
                        format!("#{facing}"),
                        self.color_of
                            .get(facing)
                            .copied()
                            .unwrap_or(UNCONFIRMED_COLOR),
                    ),
                    (Some(track), _) => (
                        format!("t{track}"),
                        track_color(shelfscan_inference_core::TrackId(track)),
                    ),
                    _ => (String::new(), UNCONFIRMED_COLOR),
                };
                let annotation = Annotation {
                    bbox,
                    label,
                    track_id: None,
                    color: Some(color),
                    mask: None,
                };
                Some((d.track_id.is_some(), annotation))
            })
            .collect();
        annotations.sort_by_key(|(confirmed, _)| *confirmed);
        annotations.into_iter().map(|(_, a)| a).collect()
    }

    fn draw(&self, frame: &VideoFrame, line: &FrameLine) -> Option<Embedded> {
        let small = shrunk(&frame.image, KEY_FRAME_PX)?;
        let scale = (
            small.width() as f32 / frame.image.width() as f32,
            small.height() as f32 / frame.image.height() as f32,
        );
        embed(&annotate(&small, &self.annotations(line, scale)))
    }
}

/// Fills in the pictures of `lines`, which are in order, by reading the source again.
fn from_source(
    run: &SourceRun,
    reader: &ReadOptions,
    lines: &[FrameLine],
    labels: &Labels<'_>,
    pictures: &mut [Option<Embedded>],
) -> Result<(), String> {
    let name = &labels.source.run.source;
    let source = Source::parse(name).map_err(|e| e.to_string())?;
    if source.is_live() || run.run.info.as_ref().is_some_and(|i| i.live) {
        return Err("a live source cannot be read twice".into());
    }
    if matches!(source, Source::Url(_)) {
        return Err("an address is not fetched again for a report".into());
    }
    let mut options = serde_json::from_value::<ScanOptions>(run.run.plan.clone())
        .unwrap_or_default()
        .read;
    options.ffmpeg = reader.ffmpeg.clone();
    options.limits = reader.limits.clone();
    options.max_frames = None;
    let asked_start = options.start_secs;
    let mut input: Option<Box<dyn FrameReader>> = None;
    let mut at = f64::NEG_INFINITY;
    for (line, picture) in lines.iter().zip(pictures) {
        let wanted = line.time_secs.unwrap_or(f64::NEG_INFINITY);
        if input.is_none() || wanted - at > JUMP_SECS {
            options.start_secs = asked_start;
            if wanted.is_finite() && asked_start.is_none_or(|start| wanted - start > JUMP_SECS) {
                // A little earlier, for times are rounded on their way through JSON and containers.
                options.start_secs = Some(wanted - 0.5);
            }
            input = Some(open(&source, &options).map_err(|e| e.to_string())?);
        }
        let Some(input) = &mut input else { continue };
        while let Some(frame) = input.next_frame().map_err(|e| e.to_string())? {
            at = frame.time.secs;
            if frame.index < line.frame_index {
                continue;
            }
            let (width, height) = (frame.image.width(), frame.image.height());
            if line.width.is_some_and(|w| w != width) || line.height.is_some_and(|h| h != height) {
                return Err(format!(
                    "the source is another one by now, of {width}x{height} pixels: {name}"
                ));
            }
            if frame.index == line.frame_index {
                *picture = labels.draw(&frame, line);
            }
            break;
        }
    }
    Ok(())
}

/// The best crop of a facing. A path that leads out of the folder is none.
pub(super) fn crop(dir: &Path, path: &str) -> Option<Embedded> {
    let path = PathBuf::from(path);
    if !path.components().all(|c| matches!(c, Component::Normal(_))) {
        return None;
    }
    let path = dir.join(path);
    let image = load_picture(&path, &Limits::default()).ok()?;
    let fits = image.width() <= CROP_PX.0 && image.height() <= CROP_PX.1;
    if fits
        && let Ok(bytes) = std::fs::read(&path)
        && bytes.starts_with(&[0xff, 0xd8])
        && bytes.len() <= CROP_BYTES
    {
        return Some(Embedded {
            uri: jpeg_uri(&bytes),
            width: image.width(),
            height: image.height(),
        });
    }
    embed(&shrunk(&image, CROP_PX)?)
}

/// The picture at a size that fits, or as it is when it does.
fn shrunk(image: &RgbImage, (most_width, most_height): (u32, u32)) -> Option<RgbImage> {
    let (width, height) = (image.width(), image.height());
    let scale =
        (f64::from(most_width) / f64::from(width)).min(f64::from(most_height) / f64::from(height));
    if scale >= 1.0 {
        return Some(image.clone());
    }
    let side = |px: u32| ((f64::from(px) * scale).round() as u32).max(1);
    let whole = image::RgbImage::from_raw(width, height, image.pixels().to_vec())?;
    let small = image::imageops::resize(&whole, side(width), side(height), FilterType::Triangle);
    RgbImage::new(small.width(), small.height(), small.into_raw()).ok()
}

fn embed(image: &RgbImage) -> Option<Embedded> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, QUALITY)
        .encode(
            image.pixels(),
            image.width(),
            image.height(),
            ExtendedColorType::Rgb8,
        )
        .ok()?;
    Some(Embedded {
        uri: jpeg_uri(&bytes),
        width: image.width(),
        height: image.height(),
    })
}

fn jpeg_uri(bytes: &[u8]) -> String {
    let mut uri = "data:image/jpeg;base64,".to_owned();
    STANDARD.encode_string(bytes, &mut uri);
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pictures_shrink_to_fit_and_small_ones_stay() {
        let image = |w: u32, h: u32| RgbImage::new(w, h, vec![90; (w * h * 3) as usize]).unwrap();
        let size = |w, h| {
            let small = shrunk(&image(w, h), (1200, 1600)).unwrap();
            (small.width(), small.height())
        };
        assert_eq!(size(1920, 1080), (1200, 675));
        assert_eq!(size(1080, 1920), (900, 1600));
        assert_eq!(size(640, 480), (640, 480));
        assert_eq!(size(5000, 1), (1200, 1));
    }

    #[test]
    fn a_crop_outside_the_folder_is_not_taken_and_a_large_one_is_shrunk() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("run/crops");
        std::fs::create_dir_all(&inside).unwrap();
        let save = |path: &Path, side: u32| {
            image::RgbImage::from_pixel(side, side, image::Rgb([200, 30, 40]))
                .save(path)
                .unwrap();
        };
        save(&dir.path().join("secret.jpg"), 8);
        save(&inside.join("large.jpg"), 900);
        save(&inside.join("small.jpg"), 60);
        save(&inside.join("small.png"), 60);
        let run = dir.path().join("run");
        assert!(crop(&run, "../secret.jpg").is_none());
        assert!(crop(&run, dir.path().join("secret.jpg").to_str().unwrap()).is_none());
        assert!(crop(&run, "crops/none.jpg").is_none());
        let large = crop(&run, "crops/large.jpg").unwrap();
        assert_eq!((large.width, large.height), CROP_PX);
        let small = crop(&run, "crops/small.jpg").unwrap();
        let bytes = std::fs::read(inside.join("small.jpg")).unwrap();
        assert_eq!(small.uri, jpeg_uri(&bytes));
        assert!(
            crop(&run, "crops/small.png")
                .unwrap()
                .uri
                .starts_with("data:image/jpeg;base64,")
        );
    }
}
