//! Which crops are asked about, and what a track is called.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shelfscan_gallery::{Answer, Candidate, Channel, GalleryError};
use shelfscan_inference_core::{BoxXyxy, Mask, RgbImage};
use shelfscan_pipeline::{Identify, IdentityStatus, ScanOptions};

use crate::drawn::{only, pan};

/// Names a crop after its mean colour, rounded so that views of one pack agree.
#[derive(Default)]
pub(crate) struct ByColour {
    pub(crate) crops: AtomicUsize,
}

pub(crate) fn colour_name(image: &RgbImage) -> String {
    let n = u64::from(image.width()) * u64::from(image.height());
    let mut sums = [0u64; 3];
    for pixel in image.pixels().chunks_exact(3) {
        for (sum, value) in sums.iter_mut().zip(pixel) {
            *sum += u64::from(*value);
        }
    }
    let [r, g, b] = sums.map(|s| s / n / 48);
    format!("sku-{r}{g}{b}")
}

impl Identify for ByColour {
    fn crop(&self, image: &RgbImage, bbox: &BoxXyxy, _: Option<&Mask>) -> Option<RgbImage> {
        image.crop(bbox)
    }

    fn identify(&self, crops: &[RgbImage]) -> Result<Vec<Answer>, GalleryError> {
        self.crops.fetch_add(crops.len(), Ordering::SeqCst);
        Ok(crops
            .iter()
            .map(|crop| {
                let sku: Arc<str> = colour_name(crop).into();
                Answer {
                    sku: Some(sku.clone()),
                    channel: Some(Channel::Packaging),
                    score: 0.9,
                    margin: 0.2,
                    nearest: vec![Candidate {
                        sku,
                        score: 0.9,
                        view: "front.jpg".into(),
                    }],
                }
            })
            .collect())
    }

    fn fingerprint(&self) -> String {
        "colours".into()
    }
}

#[test]
fn a_track_asks_about_few_crops_and_is_called_what_all_its_frames_would_say() {
    let drawn = pan(60);
    let run = |crops_per_track: u32| {
        let identify = Arc::new(ByColour::default());
        let mut options = ScanOptions::default();
        options.identity.crops_per_track = crops_per_track;
        let done = only(
            drawn
                .scanner(options, None)
                .with_identity(identify.clone())
                .run()
                .unwrap(),
        );
        (done, identify.crops.load(Ordering::SeqCst))
    };
    let (few, few_crops) = run(3);
    let (all, all_crops) = run(10_000);
    assert!(
        few_crops <= few.tracks.len() * 3,
        "{few_crops} crops of {} tracks",
        few.tracks.len()
    );
    assert!(all_crops > few_crops);
    let equal = few
        .facings
        .iter()
        .zip(&all.facings)
        .filter(|(a, b)| a.identity.sku == b.identity.sku)
        .count();
    assert!(
        equal * 100 >= few.facings.len() * 98,
        "{equal} of {}",
        few.facings.len()
    );
}

#[test]
fn without_a_gallery_nothing_is_asked() {
    let drawn = pan(20);
    let done = only(drawn.scanner(ScanOptions::default(), None).run().unwrap());
    assert!(
        done.facings
            .iter()
            .all(|f| f.identity.status == IdentityStatus::NotAsked)
    );
}

#[test]
fn an_embedder_that_fails_fails_the_source_and_keeps_its_frames() {
    struct Broken;
    impl Identify for Broken {
        fn crop(&self, image: &RgbImage, bbox: &BoxXyxy, _: Option<&Mask>) -> Option<RgbImage> {
            image.crop(bbox)
        }
        fn identify(&self, _: &[RgbImage]) -> Result<Vec<Answer>, GalleryError> {
            Err(GalleryError::InvalidInput("on purpose".into()))
        }
        fn fingerprint(&self) -> String {
            "broken".into()
        }
    }
    let drawn = pan(20);
    let report = drawn
        .scanner(ScanOptions::default(), Some(&drawn.out("out")))
        .with_identity(Arc::new(Broken))
        .run()
        .unwrap();
    let done = only(report);
    assert!(done.run.reason.unwrap().contains("on purpose"));
    assert!(done.run.frames.processed > 0);
}
