//! Evaluation on drawn packs, and on the grocery photos where they are at hand.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fmt::Write, fs, path::Path};

use common::{GridEmbedder, decode, draw_skus, pack, write_picture};
use shelfscan_gallery::eval::{
    ColourHistogram, EmbedderMethod, EvalOptions, EvalReport, EvalSet, LocalFeatures, Method,
    PictureRole, evaluate,
};

fn options(repeats: usize, skus: Option<usize>) -> EvalOptions {
    EvalOptions {
        repeats,
        skus,
        ..EvalOptions::default()
    }
}

fn top1(report: &EvalReport, method: usize) -> Vec<f64> {
    report.methods[method]
        .views
        .iter()
        .map(|r| r.top1.unwrap() * 100.0)
        .collect()
}

#[test]
fn the_baselines_give_their_known_rates_on_the_grocery_photos() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/retrieval");
    if !root.is_dir() {
        println!("skipped: the grocery photos are not at hand");
        return;
    }
    let mut set = EvalSet::from_manifest(&root, &root.join("manifest.csv")).unwrap();
    set.pictures.retain(|p| p.role != PictureRole::Stranger);
    let local = LocalFeatures::default();
    let methods: [&dyn Method; 2] = [&ColourHistogram, &local];
    // The reference rates are means over 100 draws; these are over 40.
    let report = evaluate(&set, &methods, &decode, None, &options(40, Some(12))).unwrap();
    for (method, wanted) in [[33.0, 38.0, 42.0, 43.0], [44.0, 58.0, 63.0, 61.0]]
        .iter()
        .enumerate()
    {
        for (got, wanted) in top1(&report, method).iter().zip(wanted) {
            assert!(
                (got - wanted).abs() <= 5.0,
                "{got:.1}, known {wanted}\n{report}"
            );
        }
    }
}

/// Drawn packs: `enrolled` SKUs with views and queries, and strangers, as the manifest says.
fn drawn_set(root: &Path) -> EvalSet {
    let mut manifest = String::from("path,sku,split,session\n");
    for sku in 0..8 {
        for view in 0..7 {
            let split = if view < 4 { "gallery" } else { "query" };
            let path = format!("{sku}/{view}.ppm");
            write_picture(&root.join(&path), &pack(sku, view, 48));
            writeln!(manifest, "{path},s{sku},{split},phone").unwrap();
        }
    }
    for sku in 50..60 {
        let path = format!("{sku}/0.ppm");
        write_picture(&root.join(&path), &pack(sku, 0, 48));
        writeln!(manifest, "{path},s{sku},stranger,phone").unwrap();
    }
    fs::write(root.join("m.csv"), manifest).unwrap();
    EvalSet::from_manifest(root, &root.join("m.csv")).unwrap()
}

#[test]
fn an_embedder_is_a_row_beside_the_baselines_and_equal_seeds_give_equal_bytes() {
    let root = tempfile::tempdir().unwrap();
    let set = drawn_set(root.path());
    let embedder = GridEmbedder::default();
    let grid = EmbedderMethod::new(&embedder, "grid <64>");
    let local = LocalFeatures::default();
    let methods: [&dyn Method; 3] = [&grid, &ColourHistogram, &local];
    let run = || evaluate(&set, &methods, &decode, None, &options(5, Some(4))).unwrap();
    let report = run();
    assert_eq!(embedder.embedded(), 8 * 7 + 10);
    assert!(
        top1(&report, 0).iter().all(|share| *share > 99.0),
        "{report}"
    );
    assert!(report.methods[0].views[3].auroc.unwrap() > 0.95);
    assert_eq!(report.methods[0].false_reject_at(1.0), Some(0.0));
    let curve = &report.methods[0].curve;
    assert!(curve.is_sorted_by(|a, b| a.false_accept >= b.false_accept));
    assert_eq!(curve.last().unwrap().false_accept, 0.0);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(json, serde_json::to_string(&run()).unwrap());
    let svg = report.to_svg();
    assert!(svg.contains("grid &lt;64&gt;, 4 views, AUROC") && svg.ends_with("</svg>\n"));
}

#[test]
fn k1_damaged_pictures_are_skipped_listed_and_counted() {
    let root = tempfile::tempdir().unwrap();
    let set = drawn_set(root.path());
    fs::write(root.path().join("3/1.ppm"), b"P6\n48 48\n255\ncut").unwrap();
    fs::write(root.path().join("4/5.ppm"), b"").unwrap();
    fs::remove_file(root.path().join("5/6.ppm")).unwrap();
    let report = evaluate(&set, &[&ColourHistogram], &decode, None, &options(3, None)).unwrap();
    let skipped: Vec<_> = report.skipped.iter().map(|s| s.view.as_str()).collect();
    assert_eq!(skipped, ["3/1.ppm", "4/5.ppm", "5/6.ppm"]);
    assert_eq!(
        (report.skipped_count, report.protocol.query_pictures),
        (3, 22)
    );
    assert!(report.to_string().contains("skipped 3 damaged pictures"));
    // Four views can be drawn from the SKUs that still have them.
    assert_eq!(report.methods[0].views[3].skus, 7.0);
}

#[test]
fn a_query_with_the_bytes_of_a_view_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let set = drawn_set(root.path());
    fs::copy(root.path().join("2/0.ppm"), root.path().join("2/5.ppm")).unwrap();
    let report = evaluate(&set, &[&ColourHistogram], &decode, None, &options(3, None)).unwrap();
    assert_eq!(report.repeated_queries[0].query, "2/5.ppm");
    assert_eq!(report.protocol.query_pictures, 23);
}

#[test]
fn a_folder_without_a_manifest_splits_each_sku_anew_in_every_draw() {
    let root = tempfile::tempdir().unwrap();
    draw_skus(root.path(), 6, 4, 32);
    let set = EvalSet::from_folder(root.path()).unwrap();
    let embedder = GridEmbedder::default();
    let grid = EmbedderMethod::new(&embedder, "grid");
    let report = evaluate(&set, &[&grid], &decode, None, &options(10, Some(4))).unwrap();
    let views = &report.methods[0].views;
    assert!(
        views[..3]
            .iter()
            .all(|r| r.top1 == Some(1.0) && r.auroc.is_some()),
        "{report}"
    );
    // With four pictures a SKU there is no query left beside four views.
    assert_eq!((views[3].draws, views[3].top1), (0, None));
    assert!(report.protocol.strangers_are_undrawn_skus);
}

#[test]
fn options_that_cannot_be_drawn_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let set = drawn_set(root.path());
    for wrong in [
        EvalOptions {
            views: vec![],
            ..EvalOptions::default()
        },
        EvalOptions {
            views: vec![0],
            ..EvalOptions::default()
        },
        EvalOptions {
            repeats: 0,
            ..EvalOptions::default()
        },
        EvalOptions {
            views: vec![50],
            ..EvalOptions::default()
        },
    ] {
        assert!(evaluate(&set, &[&ColourHistogram], &decode, None, &wrong).is_err());
    }
}
