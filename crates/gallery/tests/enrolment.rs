//! What an enrolment that fails leaves of the gallery that was there, and the way out of it.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{GridEmbedder, decode, draw_skus, pack, scene::Scene, write_picture};
use shelfscan_gallery::{
    CacheState, CropPolicy, EmbedTools, EnrollOptions, EnrollReport, Gallery, GalleryError,
    Recognizer, RecognizerOptions,
};

/// Every file below a folder with its bytes, and every folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
            found.insert(path, None);
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, Some(bytes));
        }
    }
    found
}

fn parts(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().contains("part"))
        .count()
}

fn enroll(
    folder: &Path,
    dir: &Path,
    embedder: &GridEmbedder,
    options: &EnrollOptions,
) -> Result<EnrollReport, GalleryError> {
    Gallery::enroll(folder, dir, &embedder.tools(), options).map(|(_, report)| report)
}

/// A folder whose one picture cannot be read and has the name of an enrolled view.
fn unreadable(scene: &Scene) -> PathBuf {
    let folder = scene.root.path().join("unreadable");
    fs::create_dir_all(folder.join("sku0000")).unwrap();
    fs::write(folder.join("sku0000/view0.ppm"), b"").unwrap();
    folder
}

#[test]
fn an_enrolment_without_a_readable_picture_leaves_the_gallery_as_it_was() {
    let scene = Scene::new(12, 2);
    scene.enroll(&GridEmbedder::default());
    let before = tree(&scene.dir());
    let folder = unreadable(&scene);
    let options = EnrollOptions::default();
    let error = enroll(&folder, &scene.dir(), &GridEmbedder::default(), &options).unwrap_err();
    assert!(
        matches!(error, GalleryError::NothingToEnroll { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("none of the 1 pictures"));
    assert!(tree(&scene.dir()) == before);
    let (_, report, embedder) = scene.load(GridEmbedder::default());
    assert_eq!((report.skus, report.views), (12, 24));
    assert_eq!(embedder.embedded(), 0);
}

#[test]
fn an_enrolment_without_a_readable_picture_makes_no_folder() {
    let scene = Scene::new(1, 1);
    let folder = unreadable(&scene);
    let options = EnrollOptions::default();
    let dir = scene.root.path().join("new/gallery");
    for embedder in [
        GridEmbedder::default(),
        GridEmbedder {
            broken: true,
            ..GridEmbedder::default()
        },
    ] {
        enroll(&folder, &dir, &embedder, &options).unwrap_err();
        assert!(!scene.root.path().join("new").exists());
    }
    fs::create_dir(scene.dir()).unwrap();
    enroll(&folder, &scene.dir(), &GridEmbedder::default(), &options).unwrap_err();
    assert!(tree(&scene.dir()).is_empty());
}

/// A folder of other SKUs, and another picture for a view that is enrolled.
fn big(scene: &Scene, skus: u64) -> PathBuf {
    let folder = scene.root.path().join("big");
    draw_skus(&folder, skus, 1, 24);
    write_picture(&folder.join("sku0000/view0.ppm"), &pack(50, 0, 24));
    folder
}

#[test]
fn an_embedder_that_does_not_start_or_fails_at_once_leaves_the_gallery_as_it_was() {
    let scene = Scene::new(12, 2);
    scene.enroll(&GridEmbedder::default());
    let before = tree(&scene.dir());
    let big = big(&scene, 20);
    for (broken, fail_after) in [(true, usize::MAX), (false, 0)] {
        let embedder = GridEmbedder {
            fail_after,
            broken,
            ..GridEmbedder::default()
        };
        let options = EnrollOptions::default();
        let error = enroll(&big, &scene.dir(), &embedder, &options).unwrap_err();
        assert!(matches!(error, GalleryError::Embedder(_)), "{error}");
        assert!(tree(&scene.dir()) == before);
        let mut gallery = Gallery::open(&scene.dir()).unwrap();
        let listed = gallery.list();
        gallery.add(&big, &embedder.tools(), &options).unwrap_err();
        assert_eq!(gallery.list(), listed);
        assert!(tree(&scene.dir()) == before);
    }
}

#[test]
fn a_gallery_answers_as_before_until_an_enrolment_is_done() {
    let scene = Scene::new(12, 2);
    scene.enroll(&GridEmbedder::default());
    let before = tree(&scene.dir());
    let big = big(&scene, 40);
    for crop_policy in [None, Some(CropPolicy::Margin { share: 0.05 })] {
        let options = EnrollOptions {
            crop_policy,
            batch: 4,
            checkpoint_views: 8,
            ..EnrollOptions::default()
        };
        let failing = GridEmbedder {
            fail_after: 20,
            ..GridEmbedder::default()
        };
        enroll(&big, &scene.dir(), &failing, &options).unwrap_err();
        assert!(parts(&scene.dir()) > 0);
        let kept = tree(&scene.dir());
        assert!(
            before
                .iter()
                .all(|(path, bytes)| kept.get(path) == Some(bytes))
        );
        assert!(
            Gallery::open(&scene.dir())
                .unwrap()
                .verify(None)
                .unwrap()
                .ok
        );
        let (_, report, embedder) = scene.load(GridEmbedder::default());
        assert_eq!(report.cache.state, CacheState::Hit);
        assert_eq!((report.views, embedder.embedded()), (24, 0));
        // The parts were not taken for leftovers of the gallery that was loaded.
        assert_eq!(tree(&scene.dir()), kept);
    }
    let second = GridEmbedder::default();
    let options = EnrollOptions {
        crop_policy: Some(CropPolicy::Margin { share: 0.05 }),
        ..EnrollOptions::default()
    };
    let report = enroll(&big, &scene.dir(), &second, &options).unwrap();
    assert_eq!((report.skus, report.views), (40, 40));
    assert_eq!((report.embedded, second.embedded()), (20, 20));
    assert_eq!(parts(&scene.dir()), 0);
    assert!(!scene.dir().join("views/sku0000/view1.ppm").exists());
    assert!(
        Gallery::open(&scene.dir())
            .unwrap()
            .verify(None)
            .unwrap()
            .ok
    );
}

#[test]
fn a_run_that_was_killed_after_its_last_view_is_finished_without_embedding() {
    let scene = Scene::new(4, 2);
    scene.enroll(&GridEmbedder::default());
    draw_skus(&scene.skus(), 9, 2, 24);
    let embedder = GridEmbedder::default();
    let stop_at_the_end = |_| ControlFlow::Break(());
    let tools = EmbedTools {
        progress: Some(&stop_at_the_end),
        ..embedder.tools()
    };
    let options = EnrollOptions::default();
    Gallery::enroll(&scene.skus(), &scene.dir(), &tools, &options).unwrap_err();
    assert_eq!((embedder.embedded(), parts(&scene.dir())), (10, 1));
    let report = scene.enroll(&GridEmbedder::default());
    assert_eq!((report.embedded, report.reused), (0, 18));
    assert_eq!(parts(&scene.dir()), 0);
}

#[test]
fn a_picture_that_changes_while_it_is_enrolled_is_named_and_nothing_is_copied() {
    let scene = Scene::new(3, 2);
    scene.enroll(&GridEmbedder::default());
    let before = tree(&scene.dir());
    draw_skus(&scene.skus(), 6, 2, 24);
    let embedder = GridEmbedder::default();
    let changed = scene.skus().join("sku0004/view1.ppm");
    let change = |_| {
        write_picture(&changed, &pack(60, 0, 24));
        ControlFlow::Continue(())
    };
    let tools = EmbedTools {
        progress: Some(&change),
        ..embedder.tools()
    };
    let options = EnrollOptions::default();
    let error = Gallery::enroll(&scene.skus(), &scene.dir(), &tools, &options).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with(&changed.display().to_string()), "{text}");
    assert!(text.contains("enrol again"), "{text}");
    let mut after = tree(&scene.dir());
    after.retain(|path, _| !path.to_string_lossy().contains("part"));
    assert!(after == before);
    // Only the picture that changed is embedded again.
    assert_eq!(scene.enroll(&GridEmbedder::default()).embedded, 1);
}

#[test]
fn a_damaged_index_is_replaced_the_way_its_message_says() {
    let scene = Scene::new(3, 2);
    scene.enroll(&GridEmbedder::default());
    fs::write(scene.dir().join("gallery.json"), b"{").unwrap();
    let options = EnrollOptions::default();
    let error = scene
        .enroll_with(&GridEmbedder::default(), &options)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("remove the folder, or name another, and enrol again"),
        "{text}"
    );
    fs::remove_dir_all(scene.dir()).unwrap();
    assert_eq!(scene.enroll(&GridEmbedder::default()).views, 6);
}

#[test]
fn removing_without_a_cache_leaves_the_thresholds_to_the_next_load() {
    let scene = Scene::new(14, 3);
    let options = EnrollOptions {
        false_accept_rate: 0.2,
        ..EnrollOptions::default()
    };
    scene
        .enroll_with(&GridEmbedder::default(), &options)
        .unwrap();
    let cache = scene.dir().join("cache.safetensors");
    fs::remove_file(&cache).unwrap();
    let mut gallery = Gallery::open(&scene.dir()).unwrap();
    let report = gallery.remove(&["sku0001".into()]).unwrap();
    assert_eq!((report.views, &report.thresholds), (3, &None));
    assert!(report.to_string().contains("not set until"), "{report}");
    assert!(!cache.exists());
    assert!(Gallery::open(&scene.dir()).unwrap().thresholds().is_none());
    let (recognizer, loaded, embedder) = scene.load(GridEmbedder::default());
    assert_eq!((loaded.views, embedder.embedded()), (39, 39));
    assert_eq!(recognizer.thresholds().target_false_accept, 0.2);

    // As measured as when the cache had been there.
    let other = Scene::new(14, 3);
    other
        .enroll_with(&GridEmbedder::default(), &options)
        .unwrap();
    let mut whole = Gallery::open(&other.dir()).unwrap();
    let report = whole.remove(&["sku0001".into()]).unwrap();
    assert_eq!(report.thresholds.as_ref(), Some(recognizer.thresholds()));
}

#[test]
fn a_gallery_without_a_view_says_so() {
    let scene = Scene::new(2, 1);
    scene.enroll(&GridEmbedder::default());
    let mut gallery = Gallery::open(&scene.dir()).unwrap();
    gallery
        .remove(&["sku0000".into(), "sku0001".into()])
        .unwrap();
    let loaded = Recognizer::load(
        Gallery::open(&scene.dir()).unwrap(),
        Arc::new(GridEmbedder::default()),
        &decode,
        None,
        &RecognizerOptions::default(),
    );
    let Err(error) = loaded else {
        panic!("a gallery without a view was loaded")
    };
    let text = error.to_string();
    assert!(text.contains("it holds no view; enrol"), "{text}");
    assert_eq!(scene.enroll(&GridEmbedder::default()).views, 2);
}
