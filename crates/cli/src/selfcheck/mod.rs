//! Runs the models on a picture whose packs are known.
//!
//! `shelf.jpg` was drawn with `shelfscan-synth`, so its packs are known to the pixel;
//! `expected.json` holds their boxes and, for the built-in embedder, the embedding of one of them.
//! `shelfscan doctor --print-expected` prints that file anew after the built-in model changed.

use std::{sync::Arc, time::Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{
    BoxXyxy, Embedder, FrameTime, InferenceProvider, RgbImage, SourceId, TextPrompt, VideoFrame,
};

const PICTURE: &[u8] = include_bytes!("shelf.jpg");
const EXPECTED: &str = include_str!("expected.json");
/// Overlap from which a find is a pack.
const MATCH_IOU: f32 = 0.5;
/// Share of the packs a sound detector finds. The built-in one finds all, and two things more.
const MIN_FOUND: f64 = 0.7;
/// Cosine between the embedding of today and the one that was kept. Other processors differ in the
/// last bits, other dtypes in the third digit.
const MIN_SAME: f64 = 0.99;
/// By how much two packs of one SKU have to be more alike than two of different ones.
const MIN_APART: f64 = 0.1;

/// What is known about the picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Expected {
    /// Boxes of all packs, in pixels.
    packs: Vec<[f32; 4]>,
    /// Two packs of one SKU and one of another, by their place in `packs`.
    same: [usize; 2],
    other: usize,
    /// SHA-256 of the built-in embedder's weights.
    weights: String,
    /// Its embedding of the first of `same`.
    embedding: Vec<f32>,
}

/// What the detector did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DetectorCheck {
    pub(crate) model: String,
    pub(crate) device: String,
    pub(crate) known: usize,
    pub(crate) found: usize,
    /// Finds that are none of the known packs.
    pub(crate) extra: usize,
    pub(crate) secs: f64,
}

/// What the embedder did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EmbedderCheck {
    pub(crate) model: String,
    /// Cosine between two packs of one SKU.
    pub(crate) same: f64,
    /// Cosine between packs of two SKUs.
    pub(crate) other: f64,
    /// Cosine to the embedding that was kept; absent for weights of which none is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<f64>,
    pub(crate) secs: f64,
}

/// What the check came to. Sound when there is no problem.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SelfCheck {
    pub(crate) detector: Option<DetectorCheck>,
    pub(crate) embedder: Option<EmbedderCheck>,
    /// What is wrong and what to do about it.
    pub(crate) problems: Vec<String>,
}

/// Runs both models; what fails is a problem, never an error.
pub(crate) fn run(
    detector: anyhow::Result<Box<dyn InferenceProvider>>,
    embedder: anyhow::Result<Arc<dyn Embedder>>,
) -> anyhow::Result<SelfCheck> {
    let (expected, picture) = (expected()?, picture()?);
    // First, because the detector is shut down at its end, and with it a process both run in.
    let embedded = embedder.and_then(|model| embed(&*model, &picture, &expected));
    let detected = detector.and_then(|model| detect(model, &picture, &expected));
    let mut check = SelfCheck::default();
    match detected {
        Ok(found) => {
            check.problems.extend(judge_detector(&found));
            check.detector = Some(found);
        }
        Err(error) => check
            .problems
            .push(format!("the detector failed: {error:#}")),
    }
    match embedded {
        Ok((found, _)) => {
            check.problems.extend(judge_embedder(&found));
            check.embedder = Some(found);
        }
        Err(error) => check
            .problems
            .push(format!("the embedder failed: {error:#}")),
    }
    Ok(check)
}

/// `expected.json` with the embedding this embedder makes.
pub(crate) fn expected_of(embedder: &dyn Embedder) -> anyhow::Result<Expected> {
    let expected = expected()?;
    let (_, embedding) = embed(embedder, &picture()?, &expected)?;
    Ok(Expected {
        weights: embedder.fingerprint()?.weights_hash,
        embedding,
        ..expected
    })
}

fn expected() -> anyhow::Result<Expected> {
    serde_json::from_str(EXPECTED).context("what the self-check expects")
}

fn picture() -> anyhow::Result<RgbImage> {
    let picture = image::load_from_memory(PICTURE).context("the self-check's picture")?;
    let picture = picture.into_rgb8();
    let (width, height) = picture.dimensions();
    Ok(RgbImage::new(width, height, picture.into_raw())?)
}

fn detect(
    mut model: Box<dyn InferenceProvider>,
    picture: &RgbImage,
    expected: &Expected,
) -> anyhow::Result<DetectorCheck> {
    model.warmup()?;
    let frame = VideoFrame {
        image: picture.clone(),
        index: 0,
        time: FrameTime::exact(0.0),
        source: SourceId::new("self-check"),
    };
    let started = Instant::now();
    let finds = model.detect_text_prompts(&frame, &[TextPrompt::new("product")?])?;
    let secs = started.elapsed().as_secs_f64();
    let info = model.info();
    model.shutdown()?;
    let boxes: Vec<BoxXyxy> = finds.detections.iter().map(|d| d.bbox).collect();
    let found = matched(&expected.packs, &boxes);
    Ok(DetectorCheck {
        model: info.models.first().map_or(info.name, |m| m.model.clone()),
        device: info.device,
        known: expected.packs.len(),
        found,
        extra: boxes.len() - found,
        secs,
    })
}

/// How many packs have a find of their own; finds are taken in order.
fn matched(packs: &[[f32; 4]], finds: &[BoxXyxy]) -> usize {
    let mut free: Vec<BoxXyxy> = packs.iter().copied().map(BoxXyxy::from).collect();
    for find in finds {
        let best = free
            .iter()
            .enumerate()
            .map(|(i, pack)| (i, pack.iou(find)))
            .filter(|(_, iou)| *iou >= MATCH_IOU)
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        if let Some((i, _)) = best {
            free.remove(i);
        }
    }
    packs.len() - free.len()
}

fn embed(
    model: &dyn Embedder,
    picture: &RgbImage,
    expected: &Expected,
) -> anyhow::Result<(EmbedderCheck, Vec<f32>)> {
    let [a, b] = expected.same;
    let crops: Vec<RgbImage> = [a, b, expected.other]
        .into_iter()
        .map(|i| {
            let pack = expected.packs.get(i)?;
            picture.crop(&BoxXyxy::from(*pack))
        })
        .collect::<Option<_>>()
        .context("a pack of the self-check lies outside its picture")?;
    model.warmup()?;
    let started = Instant::now();
    let vectors = model.embed(&crops)?;
    let secs = started.elapsed().as_secs_f64();
    let fingerprint = model.fingerprint()?;
    let row = |i| vectors.row(i).unwrap_or_default();
    let is_kept = fingerprint.weights_hash == expected.weights;
    let check = EmbedderCheck {
        model: fingerprint.model,
        same: cosine(row(0), row(1)),
        other: cosine(row(0), row(2)),
        kept: is_kept.then(|| cosine(row(0), &expected.embedding)),
        secs,
    };
    Ok((check, row(0).to_vec()))
}

/// 0 for vectors of different lengths.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return 0.0;
    }
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        x.iter()
            .zip(y)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12)
}

fn judge_detector(check: &DetectorCheck) -> Option<String> {
    let DetectorCheck {
        model,
        known,
        found,
        extra,
        ..
    } = check;
    let sound = *found as f64 >= MIN_FOUND * *known as f64 && *extra * 2 <= *known;
    (!sound).then(|| {
        format!(
            "{model} finds {found} of {known} known packs and {extra} things that are none; check the weights with `shelfscan models verify`, try --device cpu --dtype f32, else get the program again"
        )
    })
}

fn judge_embedder(check: &EmbedderCheck) -> Option<String> {
    let EmbedderCheck {
        model,
        same,
        other,
        kept,
        ..
    } = check;
    let what = match kept {
        Some(kept) if !reaches(*kept, MIN_SAME) => format!(
            "{model} embeds a known pack otherwise than it did (cosine {kept:.4} where at least {MIN_SAME} is expected)"
        ),
        _ if !reaches(same - other, MIN_APART) => format!(
            "{model} does not tell two known SKUs apart (cosine {same:.3} within one, {other:.3} between them)"
        ),
        _ => return None,
    };
    Some(format!(
        "{what}; check the weights with `shelfscan models verify`, try --device cpu --dtype f32, else get the program again"
    ))
}

/// False for NaN as well.
fn reaches(value: f64, least: f64) -> bool {
    value >= least
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "tiny-models")]
    use crate::printer::{Printer, Terminal};

    fn detector(found: usize, extra: usize) -> DetectorCheck {
        DetectorCheck {
            model: "m".into(),
            device: "cpu".into(),
            known: 14,
            found,
            extra,
            secs: 0.1,
        }
    }

    fn embedder(same: f64, other: f64, kept: Option<f64>) -> EmbedderCheck {
        EmbedderCheck {
            model: "m".into(),
            same,
            other,
            kept,
            secs: 0.1,
        }
    }

    #[test]
    fn a_detector_that_finds_too_little_or_too_much_is_a_problem_with_a_remedy() {
        assert_eq!(judge_detector(&detector(13, 2)), None);
        for bad in [detector(0, 0), detector(9, 0), detector(14, 8)] {
            let text = judge_detector(&bad).unwrap();
            assert!(text.contains("shelfscan models verify"), "{text}");
        }
    }

    #[test]
    fn an_embedder_that_changed_or_tells_nothing_apart_is_a_problem_with_a_remedy() {
        assert_eq!(judge_embedder(&embedder(0.9, 0.4, Some(0.9999))), None);
        assert_eq!(judge_embedder(&embedder(0.9, 0.4, None)), None);
        for bad in [
            embedder(0.9, 0.4, Some(0.95)),
            embedder(0.9, 0.4, Some(f64::NAN)),
            embedder(0.9, 0.89, None),
            embedder(f64::NAN, 0.4, None),
        ] {
            let text = judge_embedder(&bad).unwrap();
            assert!(text.contains("get the program again"), "{text}");
        }
    }

    #[test]
    fn each_pack_is_found_once() {
        let packs = [[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 30.0, 10.0]];
        let at = |x: f32| BoxXyxy::new(x, 0.0, x + 10.0, 10.0);
        assert_eq!(matched(&packs, &[at(0.0), at(1.0), at(50.0)]), 1);
        assert_eq!(matched(&packs, &[at(21.0), at(1.0)]), 2);
    }

    #[test]
    fn the_picture_holds_what_is_expected_of_it() {
        let (picture, expected) = (picture().unwrap(), expected().unwrap());
        for pack in &expected.packs {
            let pack = BoxXyxy::from(*pack);
            assert_eq!(pack, pack.clamped(picture.width(), picture.height()));
        }
        assert!(PICTURE.len() < 60_000);
    }

    #[cfg(feature = "tiny-models")]
    #[test]
    fn what_is_kept_is_of_the_model_that_is_built_in() {
        let printer = Printer::new(Terminal::default(), true).into();
        let configuration = crate::isolation::Configuration::default();
        let models = crate::isolation::Models::new(configuration, (false, true), &printer);
        let model = models.unwrap().embedder().unwrap();
        let expected = expected().unwrap();
        assert_eq!(
            model.fingerprint().unwrap().weights_hash,
            expected.weights,
            "make the file anew: `shelfscan doctor --print-expected > crates/cli/src/selfcheck/expected.json`"
        );
    }
}
