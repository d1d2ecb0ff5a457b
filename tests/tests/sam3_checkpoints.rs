//! Checkpoints of every shape a user may have: complete, renamed, cut, wrapped, hostile, foreign.
#![allow(clippy::unwrap_used)]

mod sam3_support;
#[path = "sam3_support/torch.rs"]
mod torch;

use std::{io::Write, path::Path, time::Instant};

use candle_core::{DType, Device, Tensor};
use sam3_support::{Reference, floats, picture, shared, small_config, write_checkpoint};
use shelfscan_model_kit::weights::{Checkpoint, TensorSpec};
use shelfscan_sam3::{Detector, Error, Sam3Config, load_detector, open_checkpoint};
use torch::{TorchTensor, row_major, write_torch};

type Weights = Vec<(TensorSpec, Vec<f32>)>;

fn load(path: &Path) -> Result<Detector, Error> {
    load_detector(path, &small_config(), DType::F32, &Device::Cpu).map(|(detector, _)| detector)
}

fn weights() -> Weights {
    Reference::open("seed0").weights()
}

fn error_of(weights: &Weights) -> String {
    let file = write_checkpoint(weights);
    let start = Instant::now();
    let error = load(file.path()).unwrap_err().to_string();
    // Generous: the point is that nothing is run or retried.
    assert!(start.elapsed().as_secs() < 20, "{error}");
    assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    error
}

/// A number that changes with every weight of the image side.
fn features(detector: &Detector) -> Vec<f32> {
    floats(&detector.image_features(&picture()).unwrap().tokens)
}

#[test]
fn a_complete_checkpoint_leaves_nothing_missing_and_nothing_unused() {
    let all = weights();
    let file = write_checkpoint(&all);
    let (_, report) =
        load_detector(file.path(), &small_config(), DType::F32, &Device::Cpu).unwrap();
    assert_eq!(report.tensors + report.ignored.len(), all.len());
    for (key, reason) in &report.ignored {
        assert!(!reason.is_empty(), "{key}");
    }
}

#[test]
fn a_removed_or_renamed_tensor_is_named_with_its_shape_and_its_nearest_keys() {
    let key = "detector.transformer.encoder.layers.1.linear1.weight";
    let mut removed = weights();
    removed.retain(|(spec, _)| spec.key != key);
    let error = error_of(&removed);
    assert!(
        error.contains(&format!("{key} of shape [128, 32] is missing")),
        "{error}"
    );
    assert!(
        error.contains("layers.0.linear1.weight"),
        "nearest: {error}"
    );

    let mut renamed = weights();
    for (spec, _) in &mut renamed {
        if spec.key == key {
            spec.key = key.replace("linear1", "linear_one");
        }
    }
    let error = error_of(&renamed);
    assert!(error.contains(&format!("{key} of shape")), "{error}");
    assert!(
        error.contains("unused: detector.transformer.encoder.layers.1.linear_one"),
        "{error}"
    );
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    let mut wrong = weights();
    for (spec, _) in &mut wrong {
        if spec
            .key
            .ends_with("geometry_encoder.points_direct_project.weight")
        {
            spec.shape.reverse();
        }
    }
    let error = error_of(&wrong);
    assert!(
        error.contains("has shape [2, 32] where [32, 2] is expected"),
        "{error}"
    );
}

#[test]
fn a_nan_or_infinite_weight_is_named() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut broken = weights();
        for (spec, values) in &mut broken {
            if spec.key.ends_with("trunk.blocks.2.mlp.fc2.weight") {
                values[7] = bad;
            }
        }
        let error = error_of(&broken);
        assert!(
            error.contains("blocks.2.mlp.fc2.weight") && error.contains("element 7"),
            "{error}"
        );
    }
}

#[test]
fn a_file_cut_short_or_with_a_huge_header_is_an_error_at_once() {
    let file = write_checkpoint(&weights());
    let whole = std::fs::read(file.path()).unwrap();
    let cut = tempfile::NamedTempFile::new().unwrap();
    for n in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(cut.path(), &whole[..n]).unwrap();
        let error = load(cut.path()).unwrap_err().to_string();
        assert!(error.contains(cut.path().to_str().unwrap()), "{n}: {error}");
    }
    let mut hostile = whole;
    hostile[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    std::fs::write(cut.path(), &hostile).unwrap();
    let start = Instant::now();
    assert!(load(cut.path()).is_err());
    assert!(start.elapsed().as_secs() < 5);
    let missing = cut.path().with_extension("nowhere");
    assert!(load(&missing).unwrap_err().to_string().contains("nowhere"));
}

#[test]
fn any_prefix_gives_the_same_model_and_a_foreign_file_is_refused() {
    let want = features(&load(write_checkpoint(&weights()).path()).unwrap());
    for prefix in [
        "",
        "module.",
        "module.detector.",
        "model.detector.",
        "sam3_model.",
    ] {
        let mut all = weights();
        for (spec, _) in &mut all {
            spec.key = format!("{prefix}{}", spec.key.strip_prefix("detector.").unwrap());
        }
        let file = write_checkpoint(&all);
        let got = load(file.path()).unwrap_or_else(|e| panic!("{prefix}: {e}"));
        assert_eq!(features(&got), want, "{prefix}");
    }
    let foreign = vec![(
        TensorSpec {
            key: "unet.conv.weight".into(),
            shape: vec![2],
        },
        vec![0.0; 2],
    )];
    let error = error_of(&foreign);
    assert!(error.contains("no tensor of this model"), "{error}");
}

#[test]
fn a_sam_3_0_checkpoint_is_refused_by_name() {
    let mut all = weights();
    let sam2 = "detector.backbone.vision_backbone.sam2_convs.0.conv_1x1.weight";
    all.push((
        TensorSpec {
            key: sam2.into(),
            shape: vec![1],
        },
        vec![0.0],
    ));
    let error = error_of(&all);
    assert!(
        error.contains("SAM 3.0") && error.contains("SAM 3.1"),
        "{error}"
    );
}

fn torch_tensors(all: &Weights) -> Vec<TorchTensor> {
    all.iter()
        .map(|(spec, values)| TorchTensor::f32(&spec.key, &spec.shape, values))
        .collect()
}

fn temp(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn flat_and_wrapped_pickles_give_the_same_model_as_safetensors() {
    let all = weights();
    let want = features(&load(write_checkpoint(&all).path()).unwrap());
    for wrappers in [
        &[][..],
        &["model"],
        &["state_dict"],
        &["checkpoint", "model"],
    ] {
        let file = temp(&write_torch(&torch_tensors(&all), wrappers, b""));
        let got = load(file.path()).unwrap_or_else(|e| panic!("{wrappers:?}: {e}"));
        assert_eq!(features(&got), want, "{wrappers:?}");
    }
}

#[test]
fn what_a_pickle_holds_besides_tensors_is_named_and_never_run() {
    let one = [TorchTensor::f32("x", &[2], &[1.0, 2.0])];
    let evil = b"cos\nsystem\nX\x04\0\0\0exit\x85R";
    let file = temp(&write_torch(&one, &["model"], evil));
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    assert_eq!(checkpoint.keys().collect::<Vec<_>>(), ["x"]);
    assert_eq!(checkpoint.skipped(), ["config: os.system"]);
    let empty = temp(&write_torch(&[], &["model"], evil));
    let error = Checkpoint::open(empty.path()).unwrap_err().to_string();
    assert!(
        error.contains("no tensor") && error.contains("os.system"),
        "{error}"
    );
}

#[test]
fn strided_offset_and_half_precision_storages_are_read_right() {
    let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let mut turned = TorchTensor::f32("turned", &[3, 2], &values);
    (turned.stride, turned.offset) = (vec![1, 3], 4);
    let mut half = TorchTensor::f32("half", &[3], &[]);
    half.storage = "HalfStorage";
    half.bytes = [0.5f32, -2.0, 8.0]
        .iter()
        .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
        .collect();
    half.elements = 3;
    let mut brain = TorchTensor::f32("brain", &[2], &[]);
    brain.storage = "BFloat16Storage";
    brain.bytes = [1.0f32, -0.25]
        .iter()
        .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
        .collect();
    brain.elements = 2;
    let mut past = TorchTensor::f32("past", &[4], &values[..4]);
    past.offset = 1;
    let file = temp(&write_torch(&[turned, half, brain], &[], b""));
    let checkpoint = Checkpoint::open(file.path()).unwrap();
    let read = |key: &str| -> Tensor { checkpoint.tensor(key, DType::F32, &Device::Cpu).unwrap() };
    assert_eq!(
        read("turned").to_vec2::<f32>().unwrap(),
        [[4.0, 7.0], [5.0, 8.0], [6.0, 9.0]]
    );
    assert_eq!(read("half").to_vec1::<f32>().unwrap(), [0.5, -2.0, 8.0]);
    assert_eq!(read("brain").to_vec1::<f32>().unwrap(), [1.0, -0.25]);
    let file = temp(&write_torch(&[past], &[], b""));
    let error = Checkpoint::open(file.path()).unwrap_err().to_string();
    assert!(
        error.contains("past") && error.contains("end of its data"),
        "{error}"
    );
}

#[test]
fn a_pickle_cut_short_is_an_error_at_any_length() {
    let bytes = write_torch(&[TorchTensor::f32("x", &[2], &[1.0, 2.0])], &["model"], b"");
    for n in (0..bytes.len()).step_by(13) {
        assert!(Checkpoint::open(temp(&bytes[..n]).path()).is_err(), "{n}");
    }
}

/// The rotary table a complete file may carry, as complex numbers.
fn rotary_bytes(angle_of_first: f32) -> (Vec<u8>, usize) {
    let (side, quarter) = (6, 4);
    let mut bytes = Vec::new();
    for token in 0..side * side {
        for place in [token % side, token / side] {
            for i in 0..quarter {
                let speed = 10_000f32.powf(-(4.0 * i as f32) / 16.0);
                let mut angle = place as f32 * speed;
                if token == 0 {
                    angle += angle_of_first;
                }
                bytes.extend(angle.cos().to_le_bytes());
                bytes.extend(angle.sin().to_le_bytes());
            }
        }
    }
    (bytes, side * side)
}

#[test]
fn a_stored_rotary_table_is_checked_and_a_missing_one_is_not_missed() {
    let key = "detector.backbone.vision_backbone.trunk.blocks.0.attn.freqs_cis";
    for (turn, fits) in [(0.0, true), (0.5, false)] {
        let (bytes, tokens) = rotary_bytes(turn);
        let mut tensors = torch_tensors(&weights());
        tensors.push(TorchTensor {
            key: key.into(),
            storage: "ComplexFloatStorage",
            elements: bytes.len() / 8,
            bytes,
            offset: 0,
            shape: vec![tokens, 8],
            stride: row_major(&[tokens, 8]),
        });
        let file = temp(&write_torch(&tensors, &["model"], b""));
        let loaded = load_detector(file.path(), &small_config(), DType::F32, &Device::Cpu);
        match loaded {
            Ok((_, report)) => {
                assert!(fits);
                let named = report
                    .ignored
                    .iter()
                    .any(|(k, why)| k == key && *why == "computed at start");
                assert!(named, "{:?}", report.ignored);
            }
            Err(error) => assert!(!fits && error.to_string().contains("freqs_cis"), "{error}"),
        }
    }
}

#[test]
fn the_released_model_has_its_published_number_of_parameters() {
    let layout = Detector::layout(&Sam3Config::sam3_1()).unwrap();
    // Two random projections are fixed tables and no parameters.
    let learned = layout
        .iter()
        .filter(|s| !s.key.ends_with("gaussian_matrix"));
    let count: usize = learned.map(|s| s.shape.iter().product::<usize>()).sum();
    assert_eq!(count, 873_185_516);
    assert_eq!(layout.len(), 1591);
}

#[test]
fn the_layout_equals_the_published_list_of_tensors() {
    let Some(path) = shared("sam3/keys-sam3.1.json") else {
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut want: Vec<(String, Vec<usize>)> = list["tensors"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, info)| info["dtype"] != "complex64")
        .map(|(key, info)| {
            (
                key.clone(),
                serde_json::from_value(info["shape"].clone()).unwrap(),
            )
        })
        .collect();
    want.sort();
    let layout = Detector::layout(&Sam3Config::sam3_1()).unwrap();
    let got: Vec<(String, Vec<usize>)> = layout.into_iter().map(|s| (s.key, s.shape)).collect();
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got, want);
    }
    assert_eq!(got.len(), want.len());
}

/// A file of the right names and sizes whose data is one hole, so that it takes no room.
fn hollow(entries: &[(String, Vec<usize>)]) -> tempfile::NamedTempFile {
    let mut header = serde_json::Map::new();
    let mut at = 0usize;
    for (key, shape) in entries {
        let end = at + shape.iter().product::<usize>() * 2;
        header.insert(
            key.clone(),
            serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let text = serde_json::Value::Object(header).to_string();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.as_file()
        .set_len((8 + text.len() + at) as u64)
        .unwrap();
    file
}

#[test]
fn the_mlx_conversion_is_brought_back_to_the_published_names_and_shapes() {
    let Some(path) = shared("sam3/keys-mlx.json") else {
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entries: Vec<(String, Vec<usize>)> = list["map"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            let key = e["mlx"].as_str().unwrap().to_owned();
            (key, serde_json::from_value(e["shape"].clone()).unwrap())
        })
        .collect();
    let file = hollow(&entries);
    let config = Sam3Config::sam3_1();
    let checkpoint = open_checkpoint(file.path(), &config).unwrap();
    let layout = Detector::layout(&config).unwrap();
    for spec in &layout {
        let info = checkpoint
            .info(&spec.key)
            .unwrap_or_else(|| panic!("{} is missing", spec.key));
        assert_eq!(info.shape, spec.shape, "{}", spec.key);
    }
    let extra: Vec<&str> = checkpoint
        .keys()
        .filter(|k| layout.binary_search_by(|s| s.key.as_str().cmp(k)).is_err())
        .collect();
    assert!(extra.is_empty(), "{extra:?}");
}
