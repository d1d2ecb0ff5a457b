//! What this program and this machine can do, and the check on a picture whose packs are known.

use std::fs;

use crate::{
    models::models,
    support::{Place, finish},
};

#[test]
fn a_sound_program_finds_the_known_packs_and_says_what_there_is() {
    let place = Place::new();
    place.write("shelfscan.toml", "[models]\noffline = true\n");
    let mut command = place.command(["doctor", "--json"]);
    command.env("HF_TOKEN", "hf_tokenOfATest");
    let ran = finish(&mut command).exits(0);
    assert!(!ran.stdout.contains("hf_tokenOfATest"), "{}", ran.stdout);
    let report = ran.json();
    assert_eq!(report["ok"], true);
    assert_eq!(report["config"], "shelfscan.toml");
    assert_eq!(report["hub"]["token_from"], "HF_TOKEN");
    assert_eq!(report["hub"]["offline"], true);
    assert_eq!(
        report["hub"]["cache"],
        place.path("hf/hub").to_str().unwrap()
    );
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[0]["name"], "cpu");
    assert_eq!(devices[0]["dtypes"][0], "f32");
    let check = &report["self_check"];
    assert_eq!(check["detector"]["known"], 14);
    assert!(
        check["detector"]["found"].as_u64().unwrap() >= 10,
        "{check}"
    );
    assert!(
        check["embedder"]["kept"].as_f64().unwrap() > 0.99,
        "{check}"
    );

    // In a process of their own the models do the same.
    let report = place.sh("doctor --json --isolate").exits(0).json();
    assert_eq!(
        report["self_check"]["detector"]["found"],
        check["detector"]["found"]
    );
    assert_eq!(
        report["self_check"]["embedder"]["kept"],
        check["embedder"]["kept"]
    );

    let text = place.sh("doctor").exits(0).stdout;
    for part in [
        "built with",
        "tiny-models",
        "ffmpeg",
        "cameras",
        "cache",
        "free",
        "self-check",
        "all is well",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn weights_that_load_and_find_nothing_fail_loudly() {
    let place = Place::new();
    for name in ["config.json", "merges.txt"] {
        let text = fs::read(models().join("shelf-tiny").join(name)).unwrap();
        place.write(format!("dull/{name}"), text);
    }
    let mut bytes = fs::read(models().join("shelf-tiny/model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[header..].fill(0);
    place.write("dull/model.safetensors", bytes);
    let ran = place.sh("doctor --weights dull").exits(1);
    assert!(
        ran.stdout.ends_with("something is wrong\n"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("finds 0 of 14 known packs"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("shelfscan models verify"),
        "{}",
        ran.stderr
    );
    let ran = place.sh("doctor --weights none.pt --json").exits(1);
    assert!(
        ran.json()["self_check"]["problems"][0]
            .as_str()
            .unwrap()
            .contains("none.pt")
    );
}
