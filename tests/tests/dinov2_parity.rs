//! DINOv2 against PyTorch, stage by stage, and against damaged and renamed checkpoints.
//!
//! `tests/parity/dinov2.py` makes the fixtures and names the versions it ran with.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use shelfscan_dinov2::{Dinov2, FeedForward, LoadOptions, Naming, PositionGrid};
use shelfscan_inference_core::RgbImage;
use shelfscan_model_kit::{
    preprocess::{Normalisation, PictureFilter, resize, to_tensor},
    weights::SafetensorsWriter,
};

/// Two blocks of products of depth 588 and less in f32, summed in another order than PyTorch's.
const F32_STAGE: f32 = 1e-4;

#[derive(Deserialize)]
struct Reference {
    versions: HashMap<String, String>,
    heads: usize,
    plain: HashMap<String, Case>,
    registers: HashMap<String, Case>,
    swiglu: HashMap<String, Case>,
    sizes_rule: HashMap<String, Case>,
    pictures: Vec<Picture>,
}

#[derive(Deserialize)]
struct Case {
    rows: Vec<u32>,
    stages: Vec<Vec<f32>>,
    class: Vec<f32>,
}

#[derive(Deserialize)]
struct Picture {
    filter: String,
    normal: Vec<f32>,
}

fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("fixtures/dinov2").join(name)
}

fn reference() -> Reference {
    let text = std::fs::read_to_string(fixture("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn options() -> LoadOptions {
    LoadOptions {
        heads: Some(reference().heads),
        positions: None,
    }
}

fn load(name: &str) -> Dinov2 {
    load_path(&fixture(name)).unwrap()
}

fn load_path(path: &Path) -> shelfscan_dinov2::Result<Dinov2> {
    Dinov2::load(path, options(), DType::F32, &Device::Cpu)
}

/// The generator's pixels: a hash of the position, exact in f32.
fn pixels(batch: usize, height: usize, width: usize) -> Tensor {
    let data: Vec<f32> = (0..(batch * 3 * height * width) as u64)
        .map(|i| {
            let mut x = i.wrapping_mul(2_654_435_761).wrapping_add(12_345) & 0xFFFF_FFFF;
            x ^= x >> 15;
            x = x.wrapping_mul(2_246_822_519) & 0xFFFF_FFFF;
            x ^= x >> 13;
            (x >> 16) as f32 / 16384.0 - 2.0
        })
        .collect();
    Tensor::from_vec(data, (batch, 3, height, width), &Device::Cpu).unwrap()
}

fn floats(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn worst(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let pairs = got.iter().zip(want);
    let worst = pairs.fold(0.0f32, |w, (a, b)| w.max((a - b).abs()));
    assert!(got.iter().all(|v| v.is_finite()));
    worst
}

/// `224x336b2` as height, width and batch.
fn size_of(name: &str) -> (usize, usize, usize) {
    let (sides, batch) = name.split_once('b').unwrap();
    let (h, w) = sides.split_once('x').unwrap();
    (
        h.parse().unwrap(),
        w.parse().unwrap(),
        batch.parse().unwrap(),
    )
}

fn check_stages(model: &Dinov2, cases: &HashMap<String, Case>) {
    let mut names: Vec<_> = cases.keys().collect();
    names.sort();
    for name in names {
        let (h, w, batch) = size_of(name);
        let case = &cases[name];
        let rows = Tensor::new(case.rows.as_slice(), &Device::Cpu).unwrap();
        let pick = |tokens: &Tensor| {
            let picked = tokens.get(0).unwrap().index_select(&rows, 0).unwrap();
            floats(&picked)
        };
        let mut stages = Vec::new();
        let tokens = model
            .forward_stages(&pixels(batch, h, w), |_, x| stages.push(pick(x)))
            .unwrap();
        let class = tokens.class.unsqueeze(1).unwrap();
        let all = Tensor::cat(&[&class, &tokens.registers, &tokens.patches], 1).unwrap();
        stages.push(pick(&all));
        assert_eq!(stages.len(), case.stages.len(), "{name}");
        for (i, (got, want)) in stages.iter().zip(&case.stages).enumerate() {
            let off = worst(got, want);
            assert!(off < F32_STAGE, "{name}, stage {i}: off by {off}");
        }
        let off = worst(&floats(&tokens.class), &case.class);
        assert!(off < F32_STAGE, "{name}, class tokens: off by {off}");
    }
}

#[test]
fn every_stage_equals_pytorch_at_all_sizes_and_batches() {
    let reference = reference();
    assert!(reference.versions.contains_key("torch"));
    let plain = load("plain.safetensors");
    assert_eq!(plain.naming(), Naming::HuggingFace);
    assert_eq!(plain.config().grid, 37);
    assert_eq!(plain.config().positions, PositionGrid::Offset);
    check_stages(&plain, &reference.plain);
}

#[test]
fn registers_and_a_nested_pth_with_strided_tensors_equal_pytorch() {
    let model = load("registers.pth");
    assert_eq!(model.naming(), Naming::Original);
    assert_eq!(model.config().registers, 4);
    assert_eq!(model.config().positions, PositionGrid::Antialias);
    check_stages(&model, &reference().registers);
}

#[test]
fn gated_feed_forward_layers_equal_pytorch_under_all_three_namings() {
    let reference = reference();
    for (file, naming) in [
        ("swiglu.pth", Naming::Original),
        ("swiglu_released.safetensors", Naming::HuggingFace),
        ("swiglu.safetensors", Naming::HuggingFaceFlat),
    ] {
        let model = load(file);
        assert_eq!(model.naming(), naming);
        assert_eq!(model.config().feed_forward, FeedForward::SwiGlu);
        check_stages(&model, &reference.swiglu);
    }
}

#[test]
fn the_rule_of_the_transformers_library_can_be_asked_for_and_differs() {
    let reference = reference();
    let options = LoadOptions {
        positions: Some(PositionGrid::Sizes),
        ..options()
    };
    let model = Dinov2::load(
        fixture("plain.safetensors"),
        options,
        DType::F32,
        &Device::Cpu,
    )
    .unwrap();
    check_stages(&model, &reference.sizes_rule);
    let (own, theirs) = (
        &reference.plain["224x224b1"].class,
        &reference.sizes_rule["224x224b1"].class,
    );
    assert!(worst(own, theirs) > 1e-3);
}

#[test]
fn a_batch_gives_what_its_pictures_give_alone() {
    let model = load("plain.safetensors");
    let batch = pixels(7, 98, 140);
    let together = model.embed_pictures(&batch).unwrap();
    for i in 0..7 {
        let alone = model
            .embed_pictures(&batch.narrow(0, i, 1).unwrap())
            .unwrap();
        let row = together.narrow(0, i, 1).unwrap();
        assert!(worst(&floats(&row), &floats(&alone)) < 1e-6);
        let length: f32 = floats(&alone).iter().map(|v| v * v).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
}

#[test]
fn a_size_that_is_no_multiple_of_the_patch_names_the_rule() {
    let model = load("plain.safetensors");
    for dims in [
        (1, 3, 240, 320),
        (1, 3, 0, 14),
        (1, 1, 14, 14),
        (1, 3, 14, 14 * 301),
    ] {
        let error = model.forward(&Tensor::zeros(dims, DType::F32, &Device::Cpu).unwrap());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("multiples of 14"), "{text}");
    }
}

#[test]
fn pictures_are_resized_as_pillow_and_torchvision_do_it() {
    let reference = reference();
    let blobs = candle_core::safetensors::load(fixture("pictures.safetensors"), &Device::Cpu);
    let blobs = blobs.unwrap();
    let bytes = |name: String| blobs[&name].flatten_all().unwrap().to_vec1::<u8>().unwrap();
    assert_eq!(reference.pictures.len(), 20);
    let mut across_first = 0;
    for (i, case) in reference.pictures.iter().enumerate() {
        let (h, w, _) = blobs[&format!("{i}.input")].dims3().unwrap();
        let (to_h, to_w, _) = blobs[&format!("{i}.pil")].dims3().unwrap();
        let picture = RgbImage::new(w as u32, h as u32, bytes(format!("{i}.input"))).unwrap();
        let filter = match case.filter.as_str() {
            "bicubic" => PictureFilter::Bicubic,
            _ => PictureFilter::Bilinear,
        };
        let small = resize(&picture, to_w as u32, to_h as u32, filter).unwrap();
        // Pillow 13 picks the order of its two passes by the sizes; either order has to give its
        // bytes. Turned pictures are resized down first.
        let pillow = bytes(format!("{i}.pil"));
        let turned = resize(&transposed(&picture), to_h as u32, to_w as u32, filter).unwrap();
        let down_first = transposed(&turned);
        across_first += usize::from(small.pixels() == pillow);
        assert!(
            small.pixels() == pillow || down_first.pixels() == pillow,
            "picture {i} is Pillow's in neither order"
        );
        let off = mean_step(small.pixels(), &pillow);
        assert!(off < 1.0, "picture {i}: {off} from Pillow");
        // torchvision goes across first, with fewer bits behind the point.
        let on_tensor = bytes(format!("{i}.tensor"));
        let off = mean_step(small.pixels(), &on_tensor);
        assert!(off < 0.05, "picture {i}: {off} from torchvision");
        let normal = floats(&to_tensor(&[small], Normalisation::IMAGENET).unwrap());
        let step = (normal.len() / 40).max(1);
        let normal: Vec<f32> = normal.into_iter().step_by(step).collect();
        let pairs = normal.iter().zip(&case.normal);
        let mean = pairs.map(|(a, b)| (a - b).abs()).sum::<f32>() / normal.len() as f32;
        // A step of 255 divided by the least standard deviation.
        assert!(mean < 1.0 / 255.0 / 0.224, "picture {i}: {mean}");
    }
    assert!(across_first > 10, "{across_first} pictures");
}

/// Rows and columns swapped.
fn transposed(picture: &RgbImage) -> RgbImage {
    let (w, h) = (picture.width() as usize, picture.height() as usize);
    let pixels = (0..w)
        .flat_map(|x| (0..h).flat_map(move |y| (0..3).map(move |c| (y * w + x) * 3 + c)))
        .map(|at| picture.pixels()[at])
        .collect();
    RgbImage::new(h as u32, w as u32, pixels).unwrap()
}

/// Mean difference in steps of 255.
fn mean_step(a: &[u8], b: &[u8]) -> f32 {
    assert_eq!(a.len(), b.len());
    let total: u32 = a
        .iter()
        .zip(b)
        .map(|(a, b)| u32::from(a.abs_diff(*b)))
        .sum();
    total as f32 / a.len() as f32
}

/// The tensors of a fixture, for writing changed copies.
fn tensors(name: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixture(name), &Device::Cpu).unwrap()
}

fn saved(tensors: &HashMap<String, Tensor>) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    candle_core::safetensors::save(tensors, file.path()).unwrap();
    file
}

#[test]
fn a_complete_file_misses_nothing_and_leaves_nothing_unread() {
    let report = load("plain.safetensors").load_report().clone();
    assert_eq!(report.tensors, tensors("plain.safetensors").len() - 1);
    let ignored: Vec<_> = report.ignored.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(ignored, ["embeddings.mask_token"]);
}

#[test]
fn a_renamed_tensor_is_named_as_missing_and_as_unused_with_shape_and_neighbours() {
    let mut all = tensors("plain.safetensors");
    let tensor = all.remove("encoder.layer.1.mlp.fc1.weight").unwrap();
    all.insert("encoder.layer.1.mlp.fc7.weight".into(), tensor);
    let file = saved(&all);
    let text = load_path(file.path()).unwrap_err().to_string();
    for part in [
        "encoder.layer.1.mlp.fc1.weight",
        "[192, 48]",
        "unused: encoder.layer.1.mlp.fc7.weight",
        "nearest: encoder.layer",
        file.path().to_str().unwrap(),
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_tensor_taken_out_anywhere_is_an_error_that_names_it() {
    let all = tensors("plain.safetensors");
    let mut keys: Vec<_> = all.keys().filter(|k| !k.contains("mask_token")).collect();
    keys.sort();
    for key in keys {
        let mut fewer = all.clone();
        fewer.remove(key);
        let text = load_path(saved(&fewer).path()).unwrap_err().to_string();
        // A block without its first norm ends the model one block early, so its rest is unused.
        assert!(
            text.contains(key.as_str()) || text.contains("unused: encoder.layer.1"),
            "{key} is not in: {text}"
        );
    }
}

#[test]
fn a_prefix_from_training_is_taken_off_and_a_foreign_file_is_refused() {
    let plain = tensors("plain.safetensors");
    let want = load("plain.safetensors")
        .embed_pictures(&pixels(1, 98, 98))
        .unwrap();
    for prefix in [
        "",
        "module.",
        "dinov2.",
        "module.backbone.",
        "model.dinov2.",
    ] {
        let renamed = plain
            .iter()
            .map(|(key, t)| (format!("{prefix}{key}"), t.clone()))
            .collect();
        let model = load_path(saved(&renamed).path()).unwrap();
        let got = model.embed_pictures(&pixels(1, 98, 98)).unwrap();
        assert_eq!(floats(&got), floats(&want), "{prefix}");
    }
    let foreign = plain
        .iter()
        .map(|(key, t)| (format!("text.{key}"), t.clone()))
        .collect();
    let error = load_path(saved(&foreign).path()).unwrap_err().to_string();
    assert!(error.contains("pass a checkpoint"), "{error}");
}

#[test]
fn a_cut_file_is_an_error_that_names_it() {
    for name in ["plain.safetensors", "registers.pth"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for cut in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes[..cut]).unwrap();
            let text = load_path(file.path()).unwrap_err().to_string();
            assert!(
                text.contains(file.path().to_str().unwrap()),
                "{cut}: {text}"
            );
        }
    }
}

#[test]
fn a_full_size_model_runs_from_a_checkpoint_in_the_true_layout() {
    let tiny = *load("plain.safetensors").config();
    let small = shelfscan_dinov2::Dinov2Config {
        dim: 384,
        depth: 12,
        heads: 6,
        hidden: 1536,
        ..tiny
    };
    assert_eq!(small.to_string(), "dinov2-small");
    let specs = Dinov2::tensors_of(small).unwrap();
    assert_eq!(specs.len(), 175);
    let count: usize = specs
        .iter()
        .map(|s| s.shape.iter().product::<usize>())
        .sum();
    assert_eq!(count, 22_056_576);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut state = 1u32;
    SafetensorsWriter::new(DType::F16)
        .write(file.path(), &specs, |i, out| {
            let ones = specs[i].key.contains("norm") || specs[i].key.contains("gamma");
            for v in out {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                *v = f32::from(u8::from(ones)) + noise * 0.05;
            }
        })
        .unwrap();
    let model = Dinov2::load(
        file.path(),
        LoadOptions::default(),
        DType::F32,
        &Device::Cpu,
    )
    .unwrap();
    assert_eq!(*model.config(), small);
    let got = model.embed_pictures(&pixels(2, 224, 224)).unwrap();
    assert_eq!(got.dims(), [2, 384]);
    assert!(floats(&got).iter().all(|v| v.is_finite()));
    let rows = got.to_vec2::<f32>().unwrap();
    assert!(worst(&rows[0], &rows[1]) > 1e-3);
}

#[test]
fn half_precision_stays_close_and_two_models_in_one_process_do_not_touch() {
    let model = load("plain.safetensors");
    let half = Dinov2::load(
        fixture("plain.safetensors"),
        options(),
        DType::BF16,
        &Device::Cpu,
    )
    .unwrap();
    let x = pixels(2, 98, 98);
    let want = model.embed_pictures(&x).unwrap();
    let got = half
        .embed_pictures(&x.to_dtype(DType::BF16).unwrap())
        .unwrap();
    let cosines: Vec<f32> = floats(&(&got * &want).unwrap().sum(1).unwrap());
    assert!(cosines.iter().all(|c| *c > 0.999), "{cosines:?}");
    assert_eq!(floats(&model.embed_pictures(&x).unwrap()), floats(&want));
}

#[test]
fn trained_checkpoints_load_and_give_unit_vectors() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/training");
    for name in ["dinov2_tiny_A", "dinov2_tiny_B"] {
        let file = shared.join(name).join("model.safetensors");
        if !file.is_file() {
            println!("skipped: no trained checkpoint {name}");
            return;
        }
        let model = Dinov2::load(&file, LoadOptions::default(), DType::F32, &Device::Cpu).unwrap();
        assert_eq!(model.config().native_size(), 112);
        assert_eq!(model.config().to_string(), "dinov2-192x6");
        let got = model.embed_pictures(&pixels(3, 112, 112)).unwrap();
        assert_eq!(got.dims(), [3, 192]);
    }
}

/// Every picture below `folder`, in order of path, resized and normalised, with its SKU.
fn crops(folder: &Path, side: u32) -> Vec<(String, Tensor)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .flat_map(|sku| std::fs::read_dir(sku.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let picture = image::open(file).unwrap().to_rgb8();
            let (w, h) = picture.dimensions();
            let picture = RgbImage::new(w, h, picture.into_raw()).unwrap();
            let picture = resize(&picture, side, side, PictureFilter::Bicubic).unwrap();
            let sku = file.parent().unwrap().file_name().unwrap();
            let pixels = to_tensor(&[picture], Normalisation::IMAGENET).unwrap();
            (sku.to_str().unwrap().to_owned(), pixels)
        })
        .collect()
}

#[test]
fn half_precision_keeps_the_first_answer_on_photographs_of_packs() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let file = shared.join("training/dinov2_tiny_B/model.safetensors");
    let data = shared.join("data/retrieval");
    if !file.is_file() || !data.is_dir() {
        println!("skipped: no photographs of packs");
        return;
    }
    let side = 112;
    let (gallery, queries) = (
        crops(&data.join("gallery"), side),
        crops(&data.join("query"), side),
    );
    let answers = |dtype| {
        let model = Dinov2::load(&file, LoadOptions::default(), dtype, &Device::Cpu).unwrap();
        let embed = |crops: &[(String, Tensor)]| {
            let rows: Vec<Tensor> = crops
                .chunks(16)
                .map(|crops| {
                    let pixels: Vec<_> = crops.iter().map(|(_, pixels)| pixels).collect();
                    let pixels = Tensor::cat(&pixels, 0).unwrap();
                    model
                        .embed_pictures(&pixels.to_dtype(dtype).unwrap())
                        .unwrap()
                })
                .collect();
            Tensor::cat(&rows, 0).unwrap()
        };
        let scores = embed(&queries)
            .matmul(&embed(&gallery).t().unwrap())
            .unwrap();
        let best = scores.argmax(1).unwrap().to_vec1::<u32>().unwrap();
        best.iter()
            .map(|i| gallery[*i as usize].0.as_str())
            .collect::<Vec<_>>()
    };
    let (full, half) = (answers(DType::F32), answers(DType::BF16));
    let right = full
        .iter()
        .zip(&queries)
        .filter(|(got, (want, _))| *got == want)
        .count();
    let same = full.iter().zip(&half).filter(|(a, b)| a == b).count();
    println!("f32 {right} of {}, bf16 agrees on {same}", queries.len());
    // A random answer is right in one of 24.
    assert!(
        right * 100 > queries.len() * 40,
        "{right} of {}",
        queries.len()
    );
    // 99.5 %.
    assert!(
        same * 1000 >= queries.len() * 995,
        "{same} of {}",
        queries.len()
    );
}
