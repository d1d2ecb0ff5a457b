//! What the models run on: picked, named, refused, told and recorded.

use crate::support::Place;

#[test]
fn what_was_picked_and_why_is_told_and_recorded() {
    let place = Place::new();
    place.pan("a", 3, 2);
    let ran = place.sh("scan a.y4m --out out --tiles off").exits(0);
    let line = ran
        .stderr
        .lines()
        .find(|l| l.starts_with("runs on "))
        .unwrap_or_else(|| panic!("{}", ran.stderr));
    let on = &place.json("out/a.y4m/run.json")["runs_on"];
    let (device, why) = (on["device"].as_str().unwrap(), on["why"].as_str().unwrap());
    assert_eq!(line, format!("runs on {device} in f32: {why}"));
    assert_eq!(on["dtype"], "f32");
    if !cfg!(any(feature = "cuda", feature = "metal")) {
        assert_eq!((device, why), ("cpu", "this build has no other back end"));
    }
}

#[test]
fn recorded_detections_need_no_device() {
    let place = Place::new();
    place.pan("a", 3, 2);
    let ran = place
        .sh("scan a.y4m --detections truth --out out --device cuda:7")
        .exits(0);
    assert!(!ran.stderr.contains("runs on"), "{}", ran.stderr);
    assert!(place.json("out/a.y4m/run.json").get("runs_on").is_none());
}

#[test]
#[cfg(not(any(feature = "cuda", target_os = "macos")))]
fn a_device_this_build_lacks_is_refused_with_the_way_to_get_it() {
    let place = Place::new();
    place.pan("a", 3, 2);
    for (options, says) in [
        ("--device cuda", "--features cuda"),
        ("--device cuda:1", "this build has no cuda back end"),
        ("--device metal", "this build has no metal back end"),
        ("--device cpu --dtype bf16", "leave --dtype out"),
        ("--dtype f16", "leave --dtype out"),
        ("--device gpu", "auto, cpu, cuda, cuda:N or metal"),
        ("--dtype half", "f32, bf16 or f16"),
    ] {
        let ran = place
            .sh(&format!("scan a.y4m --out out {options}"))
            .exits(2);
        assert!(ran.stderr.contains(says), "{options}: {}", ran.stderr);
        assert!(!place.path("out").exists(), "{options}");
    }
}

#[test]
fn a_device_may_stand_in_the_file() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place.write(
        "shelfscan.toml",
        "[models]\ndevice = \"cpu\"\ntiles = \"off\"\n",
    );
    place.sh("scan a.y4m --out out").exits(0);
    assert_eq!(
        place.json("out/a.y4m/run.json")["runs_on"]["why"],
        "as asked"
    );
    place.write("shelfscan.toml", "[models]\ndevice = \"gpu\"\n");
    let ran = place.sh("scan a.y4m --out other").exits(2);
    assert!(
        ran.stderr.contains("line 2 of shelfscan.toml"),
        "{}",
        ran.stderr
    );
}
