//! `report.html`, as people and browsers get it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use shelfscan_testkit::packs::pack;

use crate::{
    galleries::{embed, save},
    support::{Place, Ran},
};

/// The pan over a drawn shelf that comes with the repository.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/shelf-pan")
}

fn scan_sample(place: &Place, out: &str) -> Ran {
    let folder = sample();
    let detections = folder.join("detections.jsonl");
    let args = ["scan", folder.to_str().unwrap(), "--detections"];
    let rest = [detections.to_str().unwrap(), "--out", out];
    place.run(args.into_iter().chain(rest)).exits(0)
}

/// The page without the part that times make different.
fn without_times(html: &str) -> String {
    let (before, rest) = html
        .split_once("<div class=\"wide\" id=\"timings\">")
        .unwrap();
    let (times, after) = rest.split_once("</div>").unwrap();
    assert!(times.contains("decode"), "{times}");
    before.to_owned() + after
}

/// Everything a browser would have to load; pictures within the page are none of it.
fn fetches(html: &str) -> Vec<&str> {
    [
        "src=\"",
        "href=\"",
        "srcset=\"",
        "url(",
        "@import",
        "<link",
        "<script",
        "<iframe",
    ]
    .iter()
    .flat_map(|mark| html.split(mark).skip(1))
    .filter(|rest| !rest.starts_with("data:image/jpeg;base64,") && !rest.starts_with('#'))
    .map(|rest| rest.get(..40).unwrap_or(rest))
    .collect()
}

fn cards(html: &str) -> usize {
    html.matches("<article class=\"card\"").count()
}

fn pictures(html: &str) -> usize {
    html.matches("src=\"data:image/jpeg;base64,").count()
}

#[test]
fn the_page_of_a_scan_holds_counts_views_and_cards_and_loads_nothing() {
    let place = Place::new();
    scan_sample(&place, "out");
    let ran = place.sh("report out/shelf-pan").exits(0);
    assert_eq!(ran.stdout, "out/shelf-pan/report.html\n");
    let html = place.read("out/shelf-pan/report.html");
    assert_eq!(fetches(&html), Vec::<&str>::new());
    assert!(!html.contains("://"));
    assert!(html.contains("default-src 'none'"));
    let run = place.json("out/shelf-pan/run.json");
    let facings = run["facings"].as_u64().unwrap();
    assert!(facings > 10);
    assert!(html.contains(&format!("<strong>{facings}</strong> facings")));
    assert_eq!(cards(&html) as u64, facings);
    // Six views, and a crop on every card.
    assert_eq!(pictures(&html) as u64, 6 + facings);
    assert_eq!(html.matches("<text class=\"name\"").count() as u64, facings);
    assert_eq!(
        html.matches("<img ").count(),
        html.matches(" alt=\"").count()
    );
    assert!(html.contains("no model ran in this scan"));
    assert!(html.contains("60 frames looked at"));
    assert!(html.contains("All options were at their defaults."));

    place
        .sh("report out/shelf-pan --key-frames 2 --out two.html")
        .exits(0);
    assert_eq!(pictures(&place.read("two.html")) as u64, 2 + facings);
}

#[test]
fn two_runs_of_one_source_give_the_same_page_but_for_the_times() {
    let place = Place::new();
    for out in ["one", "two"] {
        scan_sample(&place, out);
        place.sh(&format!("report {out}")).exits(0);
    }
    let (one, two) = (place.read("one/report.html"), place.read("two/report.html"));
    assert!(without_times(&one) == without_times(&two));
    place.sh("report one --out again.html").exits(0);
    assert!(place.read("again.html") == one);
}

#[test]
#[cfg(unix)]
fn names_that_are_markup_come_out_as_text() {
    let place = Place::new();
    let clip = place.pan("a", 3, 20);
    let names = ["<script>alert(1)<!--", "x\" onload=\"alert(2)", "<b>'&amp;"];
    let seeds: Vec<u64> = crate::galleries::clip_seeds(&clip);
    for (name, seed) in names.iter().zip(&seeds) {
        for view in 0..3 {
            let path = place.path(format!("packs/{name}/{view}.png"));
            save(&pack(*seed, view, 48, 72), &path);
        }
    }
    embed(&place, "enroll packs --gallery g").exits(0);
    embed(
        &place,
        "scan a.y4m --detections truth --gallery g --out out",
    )
    .exits(0);
    let ran = place.run([
        "scan",
        "a.y4m",
        "--detections",
        "truth",
        "--out",
        "plain",
        "--prompt",
        "pack=<svg onload=alert(3)>",
        "--region",
        "<i>top</i>=0,0,320,240",
    ]);
    ran.exits(0);
    for run in ["out/a.y4m", "plain"] {
        place.sh(&format!("report {run} --out page.html")).exits(0);
        let html = place.read("page.html");
        for mark in ["<script", "<svg onload", "<b>", "<i>", "onload=\"alert"] {
            assert!(!html.contains(mark), "{run}: {mark}");
        }
        assert_eq!(fetches(&html), Vec::<&str>::new());
    }
    place.sh("report out --out page.html").exits(0);
    let html = place.read("page.html");
    assert!(
        html.contains("&lt;script&gt;alert(1)&lt;!--"),
        "the name is still told"
    );
    // A tiny model with random weights told them apart, and the page says what kind it is.
    assert!(html.contains("a small model such as the pack-tiny"));
    let known = place.json("out/summary.json")["sources"][0]["known"]
        .as_u64()
        .unwrap();
    let unknown = place.json("out/summary.json")["sources"][0]["unknown"]
        .as_u64()
        .unwrap();
    assert!(html.contains(&format!("<strong>{known}</strong> facings with a SKU")));
    assert!(html.contains(&format!("<strong>{unknown}</strong> unknown facings")));
    assert!(html.contains("Unknown facings (") == (unknown > 0));
}

#[test]
fn without_its_source_a_page_says_that_views_are_missing_or_takes_the_annotated_frames() {
    let place = Place::new();
    place.pan("a", 3, 20);
    place
        .sh("scan a.y4m --detections truth --out bare")
        .exits(0);
    place
        .sh("scan a.y4m --detections truth --out drawn --annotate frames")
        .exits(0);
    fs::rename(place.path("a.y4m"), place.path("gone.y4m")).unwrap();
    let facings = place.json("bare/a.y4m/run.json")["facings"]
        .as_u64()
        .unwrap();
    place.sh("report bare/a.y4m").exits(0);
    let html = place.read("bare/a.y4m/report.html");
    assert!(html.contains("the pictures are missing: no such file or folder"));
    assert_eq!(pictures(&html) as u64, facings);
    assert_eq!(html.matches("picture missing").count(), 6);
    place.sh("report drawn/a.y4m").exits(0);
    let html = place.read("drawn/a.y4m/report.html");
    assert!(html.contains("taken from the annotated frames"));
    assert_eq!(pictures(&html) as u64, 6 + facings);
    // Another clip under the same name is not drawn into.
    let other = shelfscan_inference_core::RgbImage::new(64, 48, vec![9; 64 * 48 * 3]).unwrap();
    place.y4m("a.y4m", &vec![other; 20]);
    place.sh("report bare/a.y4m").exits(0);
    let html = place.read("bare/a.y4m/report.html");
    assert!(html.contains("the source is another one by now, of 64x48 pixels"));
    assert_eq!(pictures(&html) as u64, facings);
}

#[test]
fn a_scan_of_several_sources_is_one_page_with_the_bad_ones_in_its_table() {
    let place = Place::new();
    place.pan("a", 3, 12);
    place.pan("b", 4, 12);
    place.write("c.gif", "GIF89a, or so it says");
    place
        .sh("scan a.y4m b.y4m c.gif --detections truth --out out --report --max-frames 8")
        .exits(1);
    for folder in ["a.y4m", "b.y4m", "c.gif"] {
        assert!(
            place.path(format!("out/{folder}/report.html")).is_file(),
            "{folder}"
        );
    }
    let ran = place.sh("report out").exits(0);
    assert_eq!(ran.stdout, "out/report.html\n");
    let html = place.read("out/report.html");
    assert!(html.contains("Scan of 3 sources"));
    assert_eq!(html.matches("<section class=\"source\"").count(), 3);
    assert!(html.contains("href=\"#s3\">c.gif</a></th><td class=\"status failed\">failed"));
    assert!(html.contains("All sources together"));
    assert!(html.contains("<code>--max-frames</code></th><td>8</td><td>none</td>"));
    // A page is part of the results: it goes when they are replaced.
    place
        .sh("scan a.y4m --detections truth --out out --overwrite")
        .exits(0);
    assert!(!place.path("out/a.y4m/report.html").exists());
    assert!(place.path("out/b.y4m/report.html").exists());
}

#[test]
fn the_configuration_can_ask_for_a_page_and_a_flag_can_refuse_it() {
    let place = Place::new();
    place.pan("a", 3, 6);
    place.write("shelfscan.toml", "[scan]\nreport = true\n");
    place.sh("scan a.y4m --detections truth --out one").exits(0);
    assert!(place.path("one/a.y4m/report.html").is_file());
    place
        .sh("scan a.y4m --detections truth --out two --report=false")
        .exits(0);
    assert!(!place.path("two/a.y4m/report.html").exists());
}

#[test]
fn counts_are_held_against_a_table_of_the_truth() {
    let place = Place::new();
    place.pan("a", 3, 20);
    place.sh("scan a.y4m --detections truth --out out").exits(0);
    let facings = place.json("out/a.y4m/run.json")["facings"]
        .as_u64()
        .unwrap();
    let truth = format!("sku,facings\ncola,2\n,{facings}\n");
    place.write("truth.csv", truth);
    place.sh("report out/a.y4m --truth truth.csv").exits(0);
    let html = place.read("out/a.y4m/report.html");
    assert!(
        html.contains(&format!(
            "{facings} facings were found where {} stand, 2 too few",
            facings + 2
        )),
        "{html}"
    );
    place.write("truth.csv", "product,count\ncola,2\n");
    let ran = place.sh("report out/a.y4m --truth truth.csv").exits(2);
    assert!(
        ran.stderr.contains("columns `sku` and `facings`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_is_no_run_is_named_with_what_to_give_instead() {
    let place = Place::new();
    fs::create_dir_all(place.path("empty")).unwrap();
    let ran = place.sh("report empty").exits(2);
    assert!(
        ran.stderr.contains("there is no run here: empty"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("run.json"), "{}", ran.stderr);
    place.sh("report nothing").exits(2);
    place.write("broken/run.json", "{");
    let ran = place.run(["report", "broken"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not parse"), "{}", ran.stderr);
}
