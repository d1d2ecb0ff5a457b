//! The models that are compiled in, when they are.

#[cfg(feature = "tiny-models")]
#[allow(
    clippy::unnecessary_wraps,
    reason = "a build without the models has the same functions and answers with nothing"
)]
mod models {
    use std::borrow::Cow;

    use shelfscan_hub::Purpose;
    use shelfscan_provider_cpu::{DetectOptions, DetectorSource, Sam3Config, Tiling, WeightSource};
    use shelfscan_tiny_models::{PACK_TINY, SHELF_TINY, TinyModel};

    /// Names of the built-in weights in messages.
    const DETECTOR: &str = "built-in shelf-tiny";
    const EMBEDDER: &str = "built-in pack-tiny";

    /// Where its precision and recall are best balanced: at 0.45 on drawn shelves and 0.53 on real
    /// photos.
    const BEST_SCORE: f32 = 0.5;

    /// The detector with the options it was measured with; packs of a whole shelf are too small for
    /// its 336 pixels without tiles, and it draws no masks worth having.
    pub(crate) fn detector() -> Option<(DetectorSource, DetectOptions)> {
        let source = DetectorSource {
            weights: WeightSource::Memory {
                name: DETECTOR,
                bytes: SHELF_TINY.weights,
            },
            config: Sam3Config::from_json(SHELF_TINY.config).ok()?,
            merges: SHELF_TINY.merges.map(Cow::Borrowed),
            name: SHELF_TINY.name.into(),
        };
        let options = DetectOptions {
            score_threshold: BEST_SCORE,
            masks: false,
            tiling: Tiling::Auto,
            ..DetectOptions::default()
        };
        Some((source, options))
    }

    pub(crate) fn embedder() -> Option<WeightSource> {
        Some(WeightSource::Memory {
            name: EMBEDDER,
            bytes: PACK_TINY.weights,
        })
    }

    /// Name, purpose and size in bytes of each.
    pub(crate) fn list() -> Vec<(&'static str, Purpose, usize)> {
        vec![
            (SHELF_TINY.name, Purpose::Detector, SHELF_TINY.weights.len()),
            (PACK_TINY.name, Purpose::Embedder, PACK_TINY.weights.len()),
        ]
    }

    pub(crate) fn about_detector() -> Option<String> {
        Some(about(&SHELF_TINY))
    }

    pub(crate) fn about_embedder() -> Option<String> {
        Some(about(&PACK_TINY))
    }

    fn about(model: &TinyModel) -> String {
        format!("{}, {}", model.name, model.about)
    }
}

#[cfg(not(feature = "tiny-models"))]
mod models {
    use shelfscan_hub::Purpose;
    use shelfscan_provider_cpu::{DetectOptions, DetectorSource, WeightSource};

    pub(crate) fn detector() -> Option<(DetectorSource, DetectOptions)> {
        None
    }

    pub(crate) fn embedder() -> Option<WeightSource> {
        None
    }

    pub(crate) fn list() -> Vec<(&'static str, Purpose, usize)> {
        Vec::new()
    }

    pub(crate) fn about_detector() -> Option<String> {
        None
    }

    pub(crate) fn about_embedder() -> Option<String> {
        None
    }
}

pub(crate) use models::{about_detector, about_embedder, detector, embedder, list};
