//! Phrases, and the slips people make with them.

use shelfscan_testkit::truth::read_detections;

use crate::support::Place;

#[test]
fn a_picture_where_a_phrase_belongs_gets_a_hint() {
    let place = Place::new();
    place.pan("a", 3, 2);
    place.write("cola.jpg", "x");
    for picture in ["cola.jpg", "refs/Pepsi.PNG"] {
        let ran = place
            .sh(&format!("scan a.y4m --out out --prompt {picture}"))
            .exits(2);
        assert!(
            ran.stderr.contains("a prompt is a phrase"),
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains("hint:") && ran.stderr.contains("shelfscan enroll"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn without_a_phrase_products_are_looked_for_and_the_help_and_the_output_say_so() {
    let place = Place::new();
    place.pan("a", 3, 4);
    place.sh("scan a.y4m --detections truth --out out").exits(0);
    let plan = &place.json("out/a.y4m/run.json")["plan"];
    assert_eq!(plan["prompts"].as_array().unwrap().len(), 1);
    assert_eq!(plan["prompts"][0]["phrase"], "product");
    let help = place.sh("scan --help").exits(0).stdout;
    assert!(help.contains("[default: product]"), "{help}");
    place.sh("scan a.y4m --out out2 --prompt").exits(2);
    let ran = place
        .run(["scan", "a.y4m", "--out", "out2", "--prompt", "  "])
        .exits(2);
    assert!(
        ran.stderr.contains("needs at least one word"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_plural_that_finds_nothing_gets_the_singular_as_a_hint_and_is_not_swapped() {
    let place = Place::new();
    place.pan("a", 3, 4);
    let scan = |out: &str, phrase: &str| {
        place
            .run([
                "scan",
                "a.y4m",
                "--detections",
                "truth",
                "--out",
                out,
                "--prompt",
                "product",
                "--prompt",
                phrase,
            ])
            .exits(0)
    };
    let ran = scan("out", "cereal boxes");
    assert!(
        ran.stderr.contains("nothing was found for `cereal boxes`"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("try --prompt \"cereal box\""),
        "{}",
        ran.stderr
    );
    let plan = &place.json("out/a.y4m/run.json")["plan"];
    assert_eq!(plan["prompts"][1]["phrase"], "cereal boxes");
    let ran = scan("out2", "glass");
    assert!(!ran.stderr.contains("hint:"), "{}", ran.stderr);
}

#[test]
fn several_phrases_are_found_in_one_pass_and_tagged() {
    let place = Place::new();
    place.pan("a", 3, 4);
    let path = place.path("truth/a.y4m/detections.jsonl");
    let mut frames = read_detections(&path).unwrap();
    for frame in &mut frames {
        if let Some(first) = frame.detections.first_mut() {
            first.label = "can".into();
            first.prompt = "can".into();
        }
    }
    place.truth("a.y4m", &frames);
    place
        .sh("scan a.y4m --detections truth --out out --prompt product --prompt can")
        .exits(0);
    let text = place.read("out/a.y4m/detections.jsonl");
    assert!(text.contains("\"prompt\":\"can\"") && text.contains("\"prompt\":\"product\""));
}

#[test]
fn without_weights_and_without_detections_the_built_in_model_looks_and_says_so() {
    let place = Place::new();
    place.pan("a", 3, 2);
    let ran = place.sh("scan a.y4m --out out").exits(0);
    assert!(
        ran.stderr.contains("built in: shelf-tiny"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("by association"), "{}", ran.stderr);
    let run = place.json("out/a.y4m/run.json");
    assert_eq!(run["provider"]["models"][0]["model"], "shelf-tiny");
}
