//! Galleries on disk: enrolment, its interruption, answers.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use common::{GridEmbedder, decode, draw_skus, pack, scene::Scene, write_picture};
use proptest::prelude::*;
use shelfscan_gallery::{
    CacheState, Channel, CropPolicy, EmbedTools, EnrollOptions, Gallery, GalleryError, Pictures,
    Recognizer, RecognizerOptions, ThresholdBasis,
};
use shelfscan_inference_core::{BoxXyxy, RgbImage};

#[test]
fn g4_a_crop_is_named_by_its_nearest_view_and_a_stranger_is_unknown_with_three_neighbours() {
    let scene = Scene::new(150, 3);
    let report = scene.enroll(&GridEmbedder::default());
    assert_eq!(
        (report.skus, report.views, report.embedded),
        (150, 450, 450)
    );
    let ThresholdBasis::Calibrated {
        false_accept_bound,
        strangers,
        stranger_skus,
        ..
    } = report.thresholds.basis
    else {
        panic!("{}", report.thresholds);
    };
    assert!(false_accept_bound <= 0.05);
    assert_eq!((strangers, stranger_skus), (450, 150));
    let (recognizer, _, _) = scene.load(GridEmbedder::default());
    let known: Vec<RgbImage> = (0..150).map(|sku| pack(sku, 77, 40)).collect();
    for (sku, answer) in recognizer.identify(&known).unwrap().iter().enumerate() {
        assert_eq!(answer.sku.as_deref(), Some(format!("sku{sku:04}").as_str()));
        assert_eq!(answer.channel, Some(Channel::Packaging));
        assert_eq!(answer.nearest.len(), 3);
        assert!(
            answer.nearest[0]
                .view
                .starts_with(&format!("sku{sku:04}/view"))
        );
        assert!(answer.score >= answer.nearest[1].score && answer.margin > 0.0);
    }
    let strangers: Vec<RgbImage> = (500..700).map(|sku| pack(sku, 0, 40)).collect();
    let answers = recognizer.identify(&strangers).unwrap();
    let accepted = answers.iter().filter(|a| a.sku.is_some()).count();
    // Twice the 5 % that were asked for leaves room for what 200 strangers vary by.
    assert!(accepted <= 20, "{accepted} of 200 strangers were accepted");
    let unknown = answers.iter().find(|a| a.sku.is_none()).unwrap();
    assert_eq!((unknown.channel, unknown.nearest.len()), (None, 3));
}

#[test]
fn too_few_views_give_the_documented_thresholds_and_say_so() {
    let scene = Scene::new(4, 2);
    let report = scene.enroll(&GridEmbedder::default());
    assert_eq!(report.thresholds.score, shelfscan_gallery::DEFAULT_SCORE);
    assert!(
        report
            .to_string()
            .contains("defaults: measuring takes at least 20 views")
    );
}

#[test]
fn the_second_start_embeds_no_view_and_warms_the_embedder_once() {
    let scene = Scene::new(6, 3);
    scene.enroll(&GridEmbedder::default());
    let (recognizer, report, embedder) = scene.load(GridEmbedder::default());
    assert_eq!(report.cache.state, CacheState::Hit);
    assert_eq!(
        (report.embedded, embedder.calls.load(Ordering::SeqCst)),
        (0, 0)
    );
    assert_eq!(embedder.warmups.load(Ordering::SeqCst), 1);
    recognizer.identify(&[pack(0, 9, 30)]).unwrap();
    assert_eq!(embedder.embedded(), 1);
}

#[test]
fn five_thousand_skus_are_enrolled_searched_and_started_again_without_embedding() {
    let root = tempfile::tempdir().unwrap();
    draw_skus(&root.path().join("skus"), 5000, 4, 16);
    let dir = root.path().join("gallery");
    let embedder = GridEmbedder::default();
    let options = EnrollOptions {
        pictures: Pictures::Reference,
        batch: 256,
        ..Default::default()
    };
    let (gallery, report) =
        Gallery::enroll(&root.path().join("skus"), &dir, &embedder.tools(), &options).unwrap();
    assert_eq!(
        (report.skus, report.views, report.embedded),
        (5000, 20_000, 20_000)
    );
    assert!(matches!(
        report.thresholds.basis,
        ThresholdBasis::Calibrated { .. }
    ));
    let second = Arc::new(GridEmbedder::default());
    let (recognizer, report) = Recognizer::load(
        gallery,
        second.clone(),
        &decode,
        None,
        &RecognizerOptions::default(),
    )
    .unwrap();
    assert_eq!(
        (report.cache.state, report.cache.reused),
        (CacheState::Hit, 20_000)
    );
    assert_eq!(second.calls.load(Ordering::SeqCst), 0);
    let asked: Vec<u64> = (0..5000).step_by(50).collect();
    let crops: Vec<RgbImage> = asked.iter().map(|sku| pack(*sku, 9, 16)).collect();
    let answers = recognizer.identify(&crops).unwrap();
    let right = asked
        .iter()
        .zip(&answers)
        .filter(|(sku, answer)| *answer.nearest[0].sku == *format!("sku{sku:04}"))
        .count();
    assert!(right >= 99, "{right} of 100");
}

#[test]
fn an_enrolment_that_fails_midway_goes_on_where_it_stopped() {
    let scene = Scene::new(20, 5);
    let failing = GridEmbedder {
        fail_after: 40,
        ..GridEmbedder::default()
    };
    let options = EnrollOptions {
        batch: 8,
        checkpoint_views: 16,
        ..Default::default()
    };
    let error = scene.enroll_with(&failing, &options).unwrap_err();
    assert!(matches!(error, GalleryError::Embedder(_)), "{error}");
    assert_eq!(failing.embedded(), 40);
    let second = GridEmbedder::default();
    let report = scene.enroll(&second);
    assert_eq!(
        (report.embedded, report.reused, second.embedded()),
        (60, 40, 60)
    );
    assert_eq!(
        scene.load(GridEmbedder::default()).1.cache.state,
        CacheState::Hit
    );
    let parts = fs::read_dir(scene.dir()).unwrap().filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("part")
    });
    assert_eq!(parts.count(), 0);
}

#[test]
fn a_process_killed_midway_leaves_its_parts_to_the_next() {
    let scene = Scene::new(10, 4);
    let embedder = GridEmbedder::default();
    // A panic leaves the run the way a kill does: no clean-up runs, only what is on disk stays.
    let killed = std::panic::catch_unwind(|| {
        let stop = |progress: shelfscan_gallery::EmbedProgress| {
            assert!(progress.done < 24, "killed");
            ControlFlow::Continue(())
        };
        let tools = EmbedTools {
            progress: Some(&stop),
            ..embedder.tools()
        };
        let options = EnrollOptions {
            batch: 4,
            checkpoint_views: 8,
            ..Default::default()
        };
        Gallery::enroll(&scene.skus(), &scene.dir(), &tools, &options).map(|_| ())
    });
    assert!(killed.is_err());
    fs::write(scene.dir().join("gallery.json.123.tmp"), b"half").unwrap();
    let second = GridEmbedder::default();
    let report = scene.enroll(&second);
    assert_eq!((report.embedded, report.reused), (16, 24));
    assert!(!scene.dir().join("gallery.json.123.tmp").exists());
}

#[test]
fn a_stop_that_is_asked_for_keeps_what_was_embedded() {
    let scene = Scene::new(5, 4);
    let embedder = GridEmbedder::default();
    let stop = |_| ControlFlow::Break(());
    let tools = EmbedTools {
        progress: Some(&stop),
        ..embedder.tools()
    };
    let options = EnrollOptions {
        batch: 6,
        ..Default::default()
    };
    let error = Gallery::enroll(&scene.skus(), &scene.dir(), &tools, &options).unwrap_err();
    let GalleryError::Stopped {
        embedded,
        wanted: 20,
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(scene.enroll(&GridEmbedder::default()).reused, embedded);
}

#[test]
fn g7_another_model_weight_or_preprocessing_refuses_the_cache_and_says_why() {
    let mut weights = GridEmbedder::default();
    weights.fingerprint.weights_hash = "1".into();
    let mut preprocessing = GridEmbedder::default();
    preprocessing.fingerprint.preprocessing.push('2');
    for (embedder, word) in [
        (weights, "weights 0"),
        (preprocessing, "preprocessing grid"),
    ] {
        let scene = Scene::new(5, 2);
        scene.enroll(&GridEmbedder::default());
        let (_, report, embedder) = scene.load(embedder);
        assert_eq!(report.cache.state, CacheState::Refused);
        assert!(report.cache.reason.unwrap().contains(word));
        assert_eq!((report.embedded, embedder.embedded()), (10, 10));
    }
}

#[test]
fn g6_another_crop_policy_is_refused_and_enrolling_with_it_embeds_again() {
    let scene = Scene::new(5, 2);
    scene.enroll(&GridEmbedder::default());
    let gallery = Gallery::open(&scene.dir()).unwrap();
    let margin = CropPolicy::Margin { share: 0.05 };
    let options = RecognizerOptions {
        crop_policy: Some(margin),
        ..Default::default()
    };
    let error = Recognizer::load(
        gallery,
        Arc::new(GridEmbedder::default()),
        &decode,
        None,
        &options,
    );
    let Err(error) = error else {
        panic!("another policy was taken")
    };
    assert!(
        error
            .to_string()
            .contains("enrolled with crop policy tight, asked for margin:0.05")
    );
    let again = EnrollOptions {
        crop_policy: Some(margin),
        ..Default::default()
    };
    let report = scene.enroll_with(&GridEmbedder::default(), &again).unwrap();
    assert_eq!(
        (report.embedded, report.cache.state),
        (10, CacheState::Refused)
    );
    assert!(report.cache.reason.unwrap().contains("crop policy tight"));
    assert_eq!(scene.load(GridEmbedder::default()).0.crop_policy(), margin);
}

#[test]
fn g8_the_view_that_matched_is_named_and_without_it_the_others_answer() {
    let scene = Scene::new(6, 3);
    scene.enroll(&GridEmbedder::default());
    let crop = pack(2, 1, 24);
    let answer = |scene: &Scene| {
        let (recognizer, _, _) = scene.load(GridEmbedder::default());
        recognizer
            .identify(std::slice::from_ref(&crop))
            .unwrap()
            .remove(0)
            .nearest[0]
            .clone()
    };
    assert_eq!(&*answer(&scene).view, "sku0002/view1.ppm");
    fs::remove_file(scene.skus().join("sku0002/view1.ppm")).unwrap();
    let embedder = GridEmbedder::default();
    assert_eq!(scene.enroll(&embedder).views, 17);
    assert_eq!(embedder.embedded(), 0);
    let other = answer(&scene);
    assert_eq!(&*other.sku, "sku0002");
    assert_ne!(&*other.view, "sku0002/view1.ppm");
}

#[test]
fn j4_the_index_on_disk_states_the_resize_rule() {
    let scene = Scene::new(3, 1);
    let mut embedder = GridEmbedder::default();
    embedder.fingerprint.preprocessing = "bicubic, sides to multiples of 14".into();
    scene.enroll(&embedder);
    let index = fs::read_to_string(scene.dir().join("gallery.json")).unwrap();
    assert!(index.contains("\"preprocessing\": \"bicubic, sides to multiples of 14\""));
    let listing = Gallery::open(&scene.dir()).unwrap().list().to_string();
    assert!(listing.contains("multiples of 14"), "{listing}");
}

#[test]
fn j5_a_mark_at_the_packs_border_reaches_the_embedder() {
    let scene = Scene::new(3, 1);
    let mut picture = vec![100u8; 60 * 20 * 3];
    for (x, y) in [(0, 0), (59, 0), (0, 19), (59, 19)] {
        picture[(y * 60 + x) * 3] = 255;
    }
    let marked = RgbImage::new(60, 20, picture).unwrap();
    write_picture(&scene.skus().join("wide/a.ppm"), &marked);
    let embedder = GridEmbedder::default();
    scene.enroll(&embedder);
    assert!(embedder.last.lock().unwrap().contains(&marked));
    let (recognizer, _, embedder) = scene.load(GridEmbedder::default());
    let whole = BoxXyxy::new(0.0, 0.0, 60.0, 20.0);
    let crop = recognizer
        .crop_policy()
        .crop(&marked, &whole, None)
        .unwrap();
    recognizer.identify(&[crop]).unwrap();
    assert_eq!(*embedder.last.lock().unwrap(), [marked]);
}

#[test]
fn unreadable_views_stay_absent_are_listed_and_do_not_disturb_the_rest() {
    let scene = Scene::new(4, 3);
    fs::write(scene.skus().join("sku0001/view1.ppm"), b"not a picture").unwrap();
    let report = scene.enroll(&GridEmbedder::default());
    assert_eq!(report.unreadable[0].view, "sku0001/view1.ppm");
    let (_, report, embedder) = scene.load(GridEmbedder::default());
    assert_eq!(report.cache.state, CacheState::Hit);
    assert_eq!(
        (report.views, report.unreadable.len(), embedder.embedded()),
        (11, 1, 0)
    );
    write_picture(&scene.skus().join("sku0001/view1.ppm"), &pack(1, 1, 24));
    let report = scene.enroll(&GridEmbedder::default());
    assert_eq!((report.embedded, report.unreadable.len()), (1, 0));
}

#[test]
fn ten_times_more_views_than_the_bound_are_refused_and_nothing_is_lost() {
    let scene = Scene::new(2, 5);
    scene.enroll(&GridEmbedder::default());
    draw_skus(&scene.skus(), 20, 5, 8);
    let options = EnrollOptions {
        max_views: 10,
        ..Default::default()
    };
    let mut gallery = Gallery::open(&scene.dir()).unwrap();
    let error = gallery
        .add(&scene.skus(), &GridEmbedder::default().tools(), &options)
        .unwrap_err();
    assert!(
        matches!(
            error,
            GalleryError::TooManyViews {
                got: 100..,
                bound: 10
            }
        ),
        "{error}"
    );
    assert_eq!(gallery.list().skus.len(), 2);
    assert_eq!(Gallery::open(&scene.dir()).unwrap().list(), gallery.list());
}

#[test]
fn adding_keeps_what_is_there_and_removing_needs_no_embedder() {
    let scene = Scene::new(4, 2);
    scene.enroll(&GridEmbedder::default());
    let more = scene.root.path().join("more");
    write_picture(&more.join("extra/a.ppm"), &pack(90, 0, 24));
    write_picture(&more.join("sku0000/new.ppm"), &pack(0, 8, 24));
    let mut gallery = Gallery::open(&scene.dir()).unwrap();
    let embedder = GridEmbedder::default();
    let report = gallery
        .add(&more, &embedder.tools(), &EnrollOptions::default())
        .unwrap();
    assert_eq!((report.skus, report.views, report.embedded), (5, 10, 2));
    let report = gallery.remove(&["sku0001".into(), "extra".into()]).unwrap();
    assert_eq!(report.views, 3);
    assert!(!scene.dir().join("views/sku0001").exists());
    assert!(gallery.verify(Some(&decode)).unwrap().ok);
    let error = gallery.remove(&["sku000".into()]).unwrap_err().to_string();
    assert!(error.contains("nearest names: sku0000"), "{error}");
    assert_eq!(scene.load(GridEmbedder::default()).1.embedded, 0);
}

#[test]
fn verify_names_missing_and_changed_files_without_an_embedder() {
    let scene = Scene::new(3, 2);
    scene.enroll(&GridEmbedder::default());
    fs::remove_file(scene.dir().join("views/sku0000/view0.ppm")).unwrap();
    write_picture(
        &scene.dir().join("views/sku0001/view1.ppm"),
        &pack(9, 9, 24),
    );
    let report = Gallery::open(&scene.dir()).unwrap().verify(None).unwrap();
    assert!(!report.ok);
    assert_eq!(report.missing, ["sku0000/view0.ppm"]);
    assert_eq!(report.changed, ["sku0001/view1.ppm"]);
}

#[test]
fn metadata_reaches_the_answer_and_a_barcode_overrules_packaging() {
    let scene = Scene::new(5, 2);
    let csv = scene.root.path().join("skus.csv");
    fs::write(
        &csv,
        "sku,name,gtin,price\nsku0003,Oat drink,4006381333931,1.99\nabsent,x,,\n",
    )
    .unwrap();
    let options = EnrollOptions {
        metadata: Some(csv),
        ..Default::default()
    };
    let report = scene
        .enroll_with(&GridEmbedder::default(), &options)
        .unwrap();
    assert_eq!(report.unused_metadata, ["absent"]);
    let (recognizer, _, _) = scene.load(GridEmbedder::default());
    assert_eq!(recognizer.metadata("sku0003").unwrap().price, Some(1.99));
    let plain = pack(1, 0, 320);
    let answers = recognizer
        .identify(&[plain.clone(), with_barcode(plain)])
        .unwrap();
    assert_eq!(answers[0].sku.as_deref(), Some("sku0001"));
    assert_eq!(answers[0].channel, Some(Channel::Packaging));
    assert_eq!(answers[1].sku.as_deref(), Some("sku0003"));
    assert_eq!(answers[1].channel, Some(Channel::Tag));
    assert_eq!(&*answers[1].nearest[0].sku, "sku0001");
}

/// Pastes the EAN-13 code 4006381333931 into the middle of a picture, three pixels a module.
fn with_barcode(picture: RgbImage) -> RgbImage {
    use rxing::{BarcodeFormat, MultiFormatWriter, Writer};
    let code = MultiFormatWriter
        .encode("4006381333931", &BarcodeFormat::EAN_13, 230, 60)
        .unwrap();
    let (width, height) = (picture.width(), picture.height());
    let mut pixels = picture.into_pixels();
    for y in 0..60u32 {
        for x in 0..code.width() {
            let at = (((y + 130) * width + x + 40) * 3) as usize;
            pixels[at..at + 3].fill(if code.get(x, y.min(code.height() - 1)) {
                10
            } else {
                245
            });
        }
    }
    RgbImage::new(width, height, pixels).unwrap()
}

#[test]
fn repeated_views_and_look_alike_skus_are_reported() {
    let scene = Scene::new(5, 2);
    write_picture(&scene.skus().join("sku0000/again.ppm"), &pack(0, 0, 24));
    // The twin has the face of another SKU: one SKU enrolled under two names.
    for view in 0..2 {
        let path = scene.skus().join(format!("twin/view{view}.ppm"));
        write_picture(&path, &pack(3, view + 40, 24));
    }
    let report = scene.enroll(&GridEmbedder::default());
    let repeated = &report.resemblance.near_duplicates;
    assert!(
        repeated
            .iter()
            .any(|p| p.view == "sku0000/again.ppm" && p.other_view == "sku0000/view0.ppm")
    );
    let pair = &report.resemblance.look_alikes[0];
    assert_eq!(
        (pair.sku.as_str(), pair.other.as_str()),
        ("sku0003", "twin")
    );
}

#[test]
fn a_folder_without_skus_or_with_other_files_is_refused_with_the_remedy() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.jpg"), b"x").unwrap();
    let embedder = GridEmbedder::default();
    let options = EnrollOptions::default();
    let enroll = |dir: &Path| Gallery::enroll(root.path(), dir, &embedder.tools(), &options);
    let error = enroll(&root.path().join("g")).unwrap_err().to_string();
    assert!(
        error.contains("a.jpg: it lies beside the SKU folders"),
        "{error}"
    );
    let error = enroll(root.path()).unwrap_err().to_string();
    assert!(error.contains("is no gallery"), "{error}");
}

#[test]
fn the_fingerprint_follows_views_model_and_thresholds() {
    let scene = Scene::new(4, 2);
    scene.enroll(&GridEmbedder::default());
    let first = scene.load(GridEmbedder::default()).0.fingerprint();
    assert_eq!(scene.load(GridEmbedder::default()).0.fingerprint(), first);
    let mut other = GridEmbedder::default();
    other.fingerprint.model = "other".into();
    assert_ne!(scene.load(other).0.fingerprint(), first);
    write_picture(&scene.skus().join("sku0000/new.ppm"), &pack(0, 8, 24));
    scene.enroll(&GridEmbedder::default());
    assert_ne!(scene.load(GridEmbedder::default()).0.fingerprint(), first);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_damage_to_the_cache_leaves_the_answers_as_they_were(at in 0usize..6000, bit in 0u8..8, cut in 0usize..6000) {
        let scene = Scene::new(2, 2);
        scene.enroll(&GridEmbedder::default());
        let path = scene.dir().join("cache.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let crops = [pack(0, 7, 24), pack(1, 7, 24)];
        let honest = scene.load(GridEmbedder::default()).0.identify(&crops).unwrap();
        if cut < bytes.len() {
            bytes.truncate(cut.max(1));
        }
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        prop_assert_eq!(scene.load(GridEmbedder::default()).0.identify(&crops).unwrap(), honest);
    }
}
