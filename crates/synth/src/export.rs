//! A clip on disk: its frames, its truth, and views to enrol its products.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use image::{
    ExtendedColorType, ImageEncoder as _,
    codecs::{
        jpeg::JpegEncoder,
        png::{CompressionType, FilterType, PngEncoder},
    },
};
use rayon::prelude::*;
use serde::Serialize;
use shelfscan_inference_core::RgbImage;

use crate::{Clip, ClipFrame, Result, SynthError, canvas::Picture, crop::draw_view, sku::Sku};

/// File of the truth, a line a frame.
pub const TRUTH_FILE: &str = "truth.jsonl";
/// File of the facings that the clip shows, with the columns `sku` and `facings`.
pub const FACINGS_FILE: &str = "facings.csv";
/// Folder of the views to enrol, a folder a SKU.
pub const VIEWS_FOLDER: &str = "views";
/// The clip, when it is one file.
pub const CLIP_FILE: &str = "clip.y4m";

/// Frames in which half of a pack has to be in view for it to count as a facing.
pub const FACING_FRAMES: u32 = 3;
const JPEG_QUALITY: u8 = 90;
/// Frames that are drawn before they are written.
const BATCH: usize = 16;

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// `000000.jpg` and so on.
    Jpeg,
    /// `000000.png` and so on, without loss.
    Png,
    /// One uncompressed [`CLIP_FILE`].
    Y4m,
}

/// What is written besides the frames.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions<'a> {
    /// How frames are written.
    pub format: FrameFormat,
    /// SKUs that get views; the others stay strangers to a gallery made of these.
    pub enrolled: &'a [Sku],
    /// Views of each, 1 to 1000; 0 for none at all.
    pub views: u32,
    /// Longer side of a view, px.
    pub view_px: u32,
    /// Masks in the truth.
    pub masks: bool,
    /// Photographs that were printed on the packs of the shelf.
    pub pictures: &'a [Picture],
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// Frames of the clip.
    pub frames: u64,
    /// Facings the clip shows, by SKU name; the name is that of its folder of views.
    pub facings: BTreeMap<String, u64>,
    /// Names of the SKUs that have views.
    pub enrolled: Vec<String>,
    /// Pictures under [`VIEWS_FOLDER`].
    pub views: u64,
}

impl ExportReport {
    /// Facings in all.
    pub fn total_facings(&self) -> u64 {
        self.facings.values().sum()
    }
}

/// Writes `clip` into `dir`, which is made when it is not there and has to be empty when it is.
///
/// `done` is told how many frames are written, now and then. Frames are drawn on all cores, a
/// batch at a time, so memory does not grow with the clip.
///
/// # Errors
/// [`SynthError::NotEmpty`], [`SynthError::OutOfRange`], [`SynthError::Io`],
/// [`SynthError::Encode`]. What was written before an error stays.
pub fn export(
    clip: &Clip,
    dir: &Path,
    options: &ExportOptions,
    mut done: impl FnMut(u64),
) -> Result<ExportReport> {
    clip.check()?;
    if options.views > 1000 {
        return Err(SynthError::OutOfRange(format!(
            "a SKU gets at most 1000 views, not {}",
            options.views
        )));
    }
    make_room(dir)?;
    let mut truth = Output::create(&dir.join(TRUTH_FILE))?;
    let mut clip_file = match options.format {
        FrameFormat::Y4m => {
            let mut file = Output::create(&dir.join(CLIP_FILE))?;
            let (w, h) = clip.size_px();
            let (rate, per) = ratio(clip.fps);
            file.write(y4m_head((w, h), (rate, per)).as_bytes())?;
            Some(file)
        }
        FrameFormat::Jpeg | FrameFormat::Png => None,
    };
    let indices: Vec<usize> = (0..clip.len()).collect();
    for batch in indices.chunks(BATCH) {
        let drawn: Vec<Result<(Vec<u8>, Vec<u8>)>> = batch
            .par_iter()
            .map(|&index| encoded(&clip.frame(index), options))
            .collect();
        for (&index, drawn) in batch.iter().zip(drawn) {
            let (line, frame) = drawn?;
            truth.write(&line)?;
            if let Some(file) = &mut clip_file {
                file.write(&frame)?;
                continue;
            }
            let ending = match options.format {
                FrameFormat::Png => "png",
                FrameFormat::Jpeg | FrameFormat::Y4m => "jpg",
            };
            write_file(&dir.join(format!("{index:06}.{ending}")), &frame)?;
        }
        done(batch.last().map_or(0, |&last| last as u64 + 1));
    }
    truth.finish()?;
    if let Some(file) = clip_file {
        file.finish()?;
    }
    write_views(dir, options)?;
    let facings = write_facings(clip, &dir.join(FACINGS_FILE), options.enrolled)?;
    Ok(ExportReport {
        frames: clip.len() as u64,
        facings,
        enrolled: options.enrolled.iter().map(|sku| sku.slug()).collect(),
        views: options.enrolled.len() as u64 * u64::from(options.views),
    })
}

fn make_room(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(SynthError::io(dir))?;
    let mut entries = fs::read_dir(dir).map_err(SynthError::io(dir))?;
    if entries.next().is_some() {
        return Err(SynthError::NotEmpty(dir.into()));
    }
    Ok(())
}

/// A frame's line of truth, and the frame itself in the wanted form.
fn encoded(drawn: &ClipFrame, options: &ExportOptions) -> Result<(Vec<u8>, Vec<u8>)> {
    let record = drawn.truth.record(drawn.frame.time.secs, options.masks);
    let mut line = serde_json::to_vec(&record)
        .map_err(|error| SynthError::io(Path::new(TRUTH_FILE))(io::Error::from(error)))?;
    line.push(b'\n');
    let image = &drawn.frame.image;
    let bytes = match options.format {
        FrameFormat::Jpeg => jpeg(image, JPEG_QUALITY)?,
        FrameFormat::Png => png(image)?,
        FrameFormat::Y4m => y4m_frame(image),
    };
    Ok((line, bytes))
}

fn jpeg(image: &RgbImage, quality: u8) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality).encode(
        image.pixels(),
        image.width(),
        image.height(),
        ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

fn png(image: &RgbImage) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Up).write_image(
        image.pixels(),
        image.width(),
        image.height(),
        ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

/// The first line of a Y4M file of frames of `w` x `h` pixels, `rate` of them in `per` seconds.
pub fn y4m_head((w, h): (u32, u32), (rate, per): (u64, u64)) -> String {
    format!("YUV4MPEG2 W{w} H{h} F{rate}:{per} Ip A1:1 C444 XCOLORRANGE=FULL\n")
}

/// A frame of Y4M: planes of luma and both differences, full range, BT.601.
pub fn y4m_frame(image: &RgbImage) -> Vec<u8> {
    let count = image.pixels().len() / 3;
    let mut bytes = Vec::with_capacity(count * 3 + 6);
    bytes.extend_from_slice(b"FRAME\n");
    let luma =
        |p: &[u8]| 0.299 * f32::from(p[0]) + 0.587 * f32::from(p[1]) + 0.114 * f32::from(p[2]);
    let pixels = || image.pixels().chunks_exact(3);
    bytes.extend(pixels().map(|p| luma(p).round() as u8));
    bytes.extend(pixels().map(|p| (128.0 + (f32::from(p[2]) - luma(p)) * 0.564).round() as u8));
    bytes.extend(pixels().map(|p| (128.0 + (f32::from(p[0]) - luma(p)) * 0.713).round() as u8));
    bytes
}

/// A rate as a fraction, exact to a thousandth.
fn ratio(fps: f64) -> (u64, u64) {
    let whole = fps.round();
    if (fps - whole).abs() < 1e-9 {
        (whole as u64, 1)
    } else {
        ((fps * 1000.0).round() as u64, 1000)
    }
}

fn write_views(dir: &Path, options: &ExportOptions) -> Result<()> {
    if options.views == 0 || options.enrolled.is_empty() {
        return Ok(());
    }
    let folder = dir.join(VIEWS_FOLDER);
    options.enrolled.par_iter().try_for_each(|&sku| {
        let own = folder.join(sku.slug());
        fs::create_dir_all(&own).map_err(SynthError::io(&own))?;
        for view in 0..options.views {
            let picture = draw_view(sku, u64::from(view), options.view_px, options.pictures);
            write_file(
                &own.join(format!("{view:03}.jpg")),
                &jpeg(&picture, JPEG_QUALITY)?,
            )?;
        }
        Ok(())
    })
}

/// Writes how many facings of each SKU the clip shows, as a table with the columns `sku` and
/// `facings`, and returns them by name. SKUs that are not enrolled are one row without a name, as
/// whoever counts them can only say that they are strangers.
///
/// # Errors
/// [`SynthError::Io`].
pub fn write_facings(clip: &Clip, path: &Path, enrolled: &[Sku]) -> Result<BTreeMap<String, u64>> {
    let mut facings: BTreeMap<String, u64> = BTreeMap::new();
    let (mut known, mut strangers) = (BTreeMap::<String, u64>::new(), 0);
    for facing in clip.facings() {
        if facing.frames_half_seen < FACING_FRAMES.min(clip.len() as u32) {
            continue;
        }
        let name = facing.sku.slug();
        if enrolled.contains(&facing.sku) {
            *known.entry(name.clone()).or_default() += 1;
        } else {
            strangers += 1;
        }
        *facings.entry(name).or_default() += 1;
    }
    let stranger = (strangers > 0).then_some((String::new(), strangers));
    let rows = known.into_iter().chain(stranger);
    let lines = rows.map(|(name, count)| format!("{name},{count}\n"));
    let csv: String = std::iter::once("sku,facings\n".to_owned())
        .chain(lines)
        .collect();
    write_file(path, csv.as_bytes())?;
    Ok(facings)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(SynthError::io(path))
}

/// A file being written, which names itself in its errors.
struct Output {
    path: PathBuf,
    file: BufWriter<fs::File>,
}

impl Output {
    fn create(path: &Path) -> Result<Self> {
        let file = fs::File::create(path).map_err(SynthError::io(path))?;
        Ok(Self {
            path: path.into(),
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(SynthError::io(&self.path))
    }

    fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(SynthError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{CameraPath, Motion, Shelf, ShelfPlan, pick_skus};

    fn clip() -> Clip {
        let plan = ShelfPlan::new(5, pick_skus(5, 4), 96, 72);
        let shelf = Arc::new(Shelf::draw(&plan, &[]).unwrap());
        let path = CameraPath::new(Motion::Return, 5, 18, &shelf).unwrap();
        Clip::new(shelf, path, 5)
    }

    fn options(format: FrameFormat, enrolled: &[Sku]) -> ExportOptions<'_> {
        ExportOptions {
            format,
            enrolled,
            views: 2,
            view_px: 48,
            masks: true,
            pictures: &[],
        }
    }

    #[test]
    fn a_folder_of_pictures_has_a_line_of_truth_for_each_and_strangers_have_no_views() {
        let clip = clip();
        let skus = &clip.shelf.plan().skus;
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("new");
        let mut told = 0;
        let report = export(&clip, &out, &options(FrameFormat::Png, &skus[..3]), |n| {
            told = n;
        })
        .unwrap();
        assert_eq!((report.frames, report.views, told), (18, 6, 18));
        let lines = fs::read_to_string(out.join(TRUTH_FILE)).unwrap();
        assert_eq!(lines.lines().count(), 18);
        let picture = image::open(out.join("000017.png")).unwrap().to_rgb8();
        assert_eq!(picture.as_raw(), clip.frame(17).frame.image.pixels());
        assert!(
            out.join(VIEWS_FOLDER)
                .join(skus[0].slug())
                .join("001.jpg")
                .is_file()
        );
        assert!(!out.join(VIEWS_FOLDER).join(skus[3].slug()).exists());
        let csv = fs::read_to_string(out.join(FACINGS_FILE)).unwrap();
        let strangers = report.facings[&skus[3].slug()];
        assert!(csv.ends_with(&format!("\n,{strangers}\n")), "{csv}");
        let counted: u64 = csv
            .lines()
            .skip(1)
            .filter_map(|l| l.rsplit_once(',')?.1.parse::<u64>().ok())
            .sum();
        assert_eq!(counted, report.total_facings());
    }

    #[test]
    fn a_clip_is_one_file_of_the_stated_size_and_rate() {
        let mut clip = clip();
        clip.fps = 12.5;
        let dir = tempfile::tempdir().unwrap();
        export(&clip, dir.path(), &options(FrameFormat::Y4m, &[]), |_| ()).unwrap();
        let bytes = fs::read(dir.path().join(CLIP_FILE)).unwrap();
        let head = b"YUV4MPEG2 W96 H72 F12500:1000 Ip A1:1 C444 XCOLORRANGE=FULL\n";
        assert!(bytes.starts_with(head));
        assert_eq!(bytes.len(), head.len() + 18 * (6 + 96 * 72 * 3));
        assert!(!dir.path().join(VIEWS_FOLDER).exists());
    }

    #[test]
    fn a_folder_that_holds_something_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        let error = export(
            &clip(),
            dir.path(),
            &options(FrameFormat::Jpeg, &[]),
            |_| (),
        )
        .unwrap_err();
        assert!(
            error.to_string().starts_with("give a folder that is empty"),
            "{error}"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let many = ExportOptions {
            views: 10_000,
            ..options(FrameFormat::Jpeg, &[])
        };
        let error = export(&clip(), &dir.path().join("x"), &many, |_| ()).unwrap_err();
        assert!(error.to_string().contains("at most 1000 views"), "{error}");
    }
}
