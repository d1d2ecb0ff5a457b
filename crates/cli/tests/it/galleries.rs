//! Galleries: enrolled, looked after, asked in a scan, and judged.

use std::path::{Path, PathBuf};

use serde_json::Value;
use shelfscan_inference_core::RgbImage;
use shelfscan_testkit::packs::pack;

use crate::support::{Place, Ran};

/// SKUs that are drawn for a gallery.
const SKUS: u64 = 4;

pub(crate) fn save(image: &RgbImage, path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let picture =
        image::RgbImage::from_raw(image.width(), image.height(), image.pixels().to_vec()).unwrap();
    picture.save(path).unwrap();
}

/// Draws `views` pictures of each SKU into `FOLDER/sku-N/`.
pub(crate) fn draw(place: &Place, folder: &str, skus: impl IntoIterator<Item = u64>, views: u64) {
    for sku in skus {
        for view in 0..views {
            let path = place.path(format!("{folder}/sku-{sku}/{view}.png"));
            save(&pack(sku, view, 48, 72), &path);
        }
    }
}

/// A tiny checkpoint with the true layout, kept for parity tests.
fn checkpoint() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/dinov2/plain.safetensors")
}

/// Runs a line that needs the embedder.
pub(crate) fn embed(place: &Place, line: &str) -> Ran {
    let weights = checkpoint();
    let mut args: Vec<&str> = line.split(' ').collect();
    args.extend([
        "--embedder-heads",
        "3",
        "--embedder-weights",
        weights.to_str().unwrap(),
    ]);
    place.run(args)
}

#[test]
fn a_gallery_is_enrolled_added_to_listed_verified_and_cut_down() {
    let place = Place::new();
    draw(&place, "packs", 1..=SKUS, 3);
    let metadata = "sku,name,gtin,price\nsku-1,Cola,4006381333931,1.50\n";
    place.write("skus.csv", metadata);
    let report = embed(
        &place,
        "enroll packs --gallery g --metadata skus.csv --json",
    )
    .exits(0)
    .json();
    assert_eq!(
        (report["skus"].as_u64(), report["views"].as_u64()),
        (Some(4), Some(12))
    );
    assert_eq!(report["embedded"], 12);
    let again = embed(
        &place,
        "enroll packs --gallery g --metadata skus.csv --json",
    )
    .exits(0)
    .json();
    assert_eq!(
        (again["embedded"].as_u64(), again["reused"].as_u64()),
        (Some(0), Some(12))
    );

    draw(&place, "more", [9], 2);
    let ran = embed(&place, "gallery add more --gallery g").exits(0);
    assert!(
        ran.stdout.starts_with("5 SKUs, 14 views: 2 embedded"),
        "{}",
        ran.stdout
    );
    let list = place.sh("gallery list --gallery g --json").exits(0).json();
    let names: Vec<&str> = list["skus"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["sku"].as_str())
        .collect();
    assert_eq!(names, ["sku-1", "sku-2", "sku-3", "sku-4", "sku-9"]);
    assert!(
        place
            .sh("gallery list --gallery g")
            .exits(0)
            .stdout
            .contains("Cola")
    );
    assert!(
        place
            .sh("gallery verify --gallery g --decode")
            .exits(0)
            .stdout
            .starts_with("ok: 14 views")
    );

    let ran = place.sh("gallery remove sku-7 --gallery g").exits(2);
    assert!(ran.stderr.contains("no SKU named sku-7"), "{}", ran.stderr);
    let ran = place.sh("gallery remove sku-2 --gallery g").exits(0);
    assert!(
        ran.stdout.starts_with("removed sku-2 (3 views)"),
        "{}",
        ran.stdout
    );
    // A view that is not the enrolled one any more is found.
    save(&pack(70, 0, 48, 72), &find_view(&place.path("g"), "sku-1"));
    let ran = place.sh("gallery verify --gallery g").exits(1);
    assert!(ran.stdout.contains("1 changed"), "{}", ran.stdout);
}

/// The file of a SKU's first view in a gallery.
fn find_view(gallery: &Path, sku: &str) -> PathBuf {
    let index: Value =
        serde_json::from_slice(&std::fs::read(gallery.join("gallery.json")).unwrap()).unwrap();
    let skus = index["skus"].as_array().unwrap();
    let record = skus.iter().find(|s| s["sku"] == sku).unwrap();
    gallery.join(record["views"][0]["file"].as_str().unwrap())
}

#[test]
fn what_cannot_be_enrolled_is_a_usage_error_with_the_way_out() {
    let place = Place::new();
    draw(&place, "packs", 1..=2, 1);
    std::fs::create_dir_all(place.path("empty")).unwrap();
    for (line, says) in [
        ("enroll empty --gallery g", "nothing to enrol"),
        (
            "enroll packs --gallery g --crop-policy round",
            "tight, margin:SHARE",
        ),
        ("enroll packs --gallery g --false-accept-rate 0.9", "0.5"),
        ("gallery list --gallery none", "gallery cannot be used"),
    ] {
        let ran = if line.starts_with("enroll") {
            embed(&place, line)
        } else {
            place.sh(line)
        };
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
    }
    let ran = place
        .sh("enroll packs --gallery g --embedder-weights none.pth")
        .exits(2);
    assert!(ran.stderr.contains("none.pth"), "{}", ran.stderr);
    assert!(!place.path("g/gallery.json").exists());
}

#[test]
fn a_scan_with_a_gallery_says_what_is_known_and_what_is_not_on_any_number_of_threads() {
    let place = Place::new();
    let clip = place.pan("a", 3, 30);
    let seeds: Vec<u64> = clip_seeds(&clip);
    draw(&place, "packs", seeds.iter().copied().take(3), 3);
    embed(&place, "enroll packs --gallery g").exits(0);
    let line = "scan a.y4m --detections truth --gallery g --out out --json";
    let ran = embed(&place, line).exits(0);
    let row = ran.json()["sources"][0].clone();
    let number = |key: &str| row[key].as_u64().unwrap();
    assert!(number("facings") > 0);
    assert_eq!(number("known") + number("unknown"), number("facings"));
    let facings = place.read("out/a.y4m/facings.csv");
    assert_eq!(facings.lines().count() as u64, 1 + number("facings"));
    assert!(place.json("out/a.y4m/run.json")["gallery"].is_string());

    for threads in [1, 8] {
        let line = format!(
            "scan a.y4m --detections truth --gallery g --out out{threads} --threads {threads}"
        );
        embed(&place, &line).exits(0);
        crate::support::assert_same(
            &place.results("out/a.y4m"),
            &place.results(&format!("out{threads}/a.y4m")),
        );
    }
    // The built-in model makes its own vectors of the gallery's pictures, and says that it does.
    let ran = place
        .sh("scan a.y4m --detections truth --gallery g --out out9")
        .exits(0);
    assert!(ran.stderr.contains("pack-tiny"), "{}", ran.stderr);
    let model = &place.json("out9/a.y4m/run.json")["embedder"]["model"];
    assert_eq!(model, "dinov2-192x6");
}

/// Seeds of the SKUs in the first frame, left to right.
pub(crate) fn clip_seeds(clip: &shelfscan_testkit::shelf::ShelfClip) -> Vec<u64> {
    let mut seeds: Vec<u64> = clip
        .truth_of(0, false)
        .objects
        .iter()
        .filter_map(|o| o.sku.rsplit('-').next()?.parse().ok())
        .collect();
    seeds.dedup();
    seeds
}

#[test]
fn identification_is_judged_beside_its_baselines() {
    let place = Place::new();
    draw(&place, "packs", 1..=6, 4);
    let line = "eval gallery packs --views 1,2 --repeats 3 --seed 5";
    let ran = place.sh(&format!("{line} --out report")).exits(0);
    assert!(ran.stdout.contains("top-1 %"), "{}", ran.stdout);
    assert_eq!(place.read("report/table.txt"), ran.stdout);
    assert!(place.read("report/plot.svg").starts_with("<svg"));
    let report = place.json("report/report.json");
    // The built-in model and two baselines, which do not depend on the model beside them.
    assert_eq!(report["methods"].as_array().unwrap().len(), 3);
    let ran = embed(&place, &format!("{line} --json")).exits(0);
    let other = ran.json();
    assert_eq!(other["methods"].as_array().unwrap().len(), 3);
    assert_ne!(other["methods"][0], report["methods"][0]);
    assert_eq!(other["methods"][1], report["methods"][1]);
    place.sh("eval gallery packs --views 9").exits(2);
    place.sh("eval gallery packs --manifest none.csv").exits(2);
}
