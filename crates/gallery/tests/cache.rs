//! The cache of vectors on disk: what does not fit its gallery is refused and embedded again.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path};

use common::{GridEmbedder, pack, scene::Scene};
use shelfscan_gallery::{CacheState, Gallery};
use shelfscan_inference_core::RgbImage;

/// Rewrites the cache's row list and vectors, both given in order.
fn rewrite_rows(dir: &Path, change: impl Fn(&mut Vec<serde_json::Value>, &mut Vec<Vec<u8>>)) {
    use safetensors::{Dtype, SafeTensors, tensor::TensorView};
    let path = dir.join("cache.safetensors");
    let bytes = fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let vectors = tensors.tensor("vectors").unwrap();
    let dimension = vectors.shape()[1];
    let mut rows: Vec<serde_json::Value> =
        serde_json::from_slice(tensors.tensor("rows").unwrap().data()).unwrap();
    let mut data: Vec<Vec<u8>> = vectors
        .data()
        .chunks_exact(dimension * 4)
        .map(<[u8]>::to_vec)
        .collect();
    change(&mut rows, &mut data);
    let (list, data) = (serde_json::to_vec(&rows).unwrap(), data.concat());
    let shape = vec![rows.len(), dimension];
    let file = safetensors::serialize(
        [
            (
                "vectors",
                TensorView::new(Dtype::F32, shape, &data).unwrap(),
            ),
            (
                "rows",
                TensorView::new(Dtype::U8, vec![list.len()], &list).unwrap(),
            ),
        ],
        header.metadata().clone(),
    )
    .unwrap();
    fs::write(path, file).unwrap();
}

#[test]
fn moved_repeated_foreign_and_swapped_rows_are_refused_and_embedded_again() {
    type Change = fn(&mut Vec<serde_json::Value>, &mut Vec<Vec<u8>>);
    let cases: [(&str, Change); 4] = [
        ("moved or repeated", |rows, data| {
            rows.swap(2, 5);
            data.swap(2, 5);
        }),
        ("moved or repeated", |rows, data| {
            rows.insert(4, rows[3].clone());
            data.insert(4, data[3].clone());
        }),
        ("no such view", |rows, _| {
            rows[3]["view"] = "elsewhere/a.ppm".into();
        }),
        ("not the one that was written", |_, data| data.swap(2, 5)),
    ];
    for (reason, change) in cases {
        let scene = Scene::new(4, 3);
        scene.enroll(&GridEmbedder::default());
        let (honest, _, _) = scene.load(GridEmbedder::default());
        rewrite_rows(&scene.dir(), change);
        let verified = Gallery::open(&scene.dir()).unwrap().verify(None).unwrap();
        assert!(!verified.ok, "{reason}");
        let (recognizer, report, _) = scene.load(GridEmbedder::default());
        assert_eq!(report.cache.state, CacheState::Partial, "{reason}");
        assert!(
            report.cache.refused_rows[0].reason.contains(reason),
            "{:?}",
            report.cache
        );
        assert_eq!(report.cache.reused + report.embedded, 12, "{reason}");
        let crops: Vec<RgbImage> = (0..4).map(|sku| pack(sku, 5, 24)).collect();
        assert_eq!(
            recognizer.identify(&crops).unwrap(),
            honest.identify(&crops).unwrap()
        );
        assert_eq!(
            scene.load(GridEmbedder::default()).1.cache.state,
            CacheState::Hit
        );
    }
}

#[test]
fn a_cut_or_hostile_cache_is_refused_at_once_and_built_again() {
    let scene = Scene::new(4, 2);
    scene.enroll(&GridEmbedder::default());
    let path = scene.dir().join("cache.safetensors");
    let good = fs::read(&path).unwrap();
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    for bytes in [
        vec![],
        good[..7].to_vec(),
        good[..100].to_vec(),
        good[..good.len() - 5].to_vec(),
        huge,
    ] {
        fs::write(&path, &bytes).unwrap();
        let (_, report, _) = scene.load(GridEmbedder::default());
        assert_eq!(
            (report.cache.state, report.embedded),
            (CacheState::Refused, 8)
        );
        assert!(report.cache.reason.unwrap().contains("cache is not usable"));
        assert_eq!(fs::read(&path).unwrap(), good);
    }
}

#[test]
fn a_cache_ten_times_over_its_bound_is_not_read() {
    let scene = Scene::new(2, 1);
    scene.enroll(&GridEmbedder::default());
    let file = fs::File::options()
        .write(true)
        .open(scene.dir().join("cache.safetensors"))
        .unwrap();
    file.set_len(10 * 300_000 * (64 * 4 + 1024)).unwrap();
    let (_, report, _) = scene.load(GridEmbedder::default());
    assert_eq!(report.cache.state, CacheState::Refused);
    assert!(report.cache.reason.unwrap().contains("needs at most"));
}
