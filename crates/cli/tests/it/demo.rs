//! The demo, and what the built-in models are worth on shelves they never saw.

use std::collections::BTreeMap;

use crate::support::Place;

/// Facings by SKU; packs without one under the empty name.
fn facings(table: &str) -> BTreeMap<String, i64> {
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| columns.iter().position(|c| *c == name).unwrap();
    let (sku, count) = (at("sku"), at("facings"));
    let mut rows = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        *rows.entry(cells[sku].to_owned()).or_default() += cells[count].parse::<i64>().unwrap();
    }
    rows
}

#[test]
fn the_demo_counts_an_unseen_shelf_and_names_no_stranger() {
    let place = Place::new();
    let ran = place.sh("demo --seed 1 --secs 12").exits(0);
    let truth = facings(&place.read("shelfscan-demo/truth.csv"));
    let counts = facings(&place.read("shelfscan-demo/scan/clip/counts.csv"));

    let (all, counted): (i64, i64) = (truth.values().sum(), counts.values().sum());
    assert!(all >= 25, "{truth:?}");
    // A detector this small takes a part of a pack for a pack now and then.
    assert!((counted - all).abs() * 10 <= all, "{counted} of {all}");
    let of = |rows: &BTreeMap<String, i64>, sku: &str| rows.get(sku).copied().unwrap_or(0);
    let known: Vec<&String> = truth.keys().filter(|sku| !sku.is_empty()).collect();
    let right: i64 = known.iter().map(|s| of(&counts, s).min(truth[*s])).sum();
    let wrong: i64 = counts
        .iter()
        .filter(|(sku, _)| !sku.is_empty())
        .map(|(sku, n)| (n - of(&truth, sku)).max(0))
        .sum();
    let there: i64 = known.iter().map(|s| truth[*s]).sum();
    assert!(right * 100 >= there * 95, "{right} of {there}: {counts:?}");
    assert!(
        wrong * 20 <= there,
        "{wrong} too many: {counts:?} {truth:?}"
    );

    for sku in known {
        assert!(ran.stdout.contains(sku.as_str()), "{}", ran.stdout);
    }
    assert!(ran.stdout.contains("Report: shelfscan-demo/report.html"));
    assert!(
        ran.stderr.contains("built in: shelf-tiny"),
        "{}",
        ran.stderr
    );
    let page = place.read("shelfscan-demo/report.html");
    assert!(page.contains("Against the truth"), "no table of the truth");
    let run = place.read("shelfscan-demo/scan/clip/run.json");
    assert!(run.contains("shelf-tiny"), "{run}");

    // What is there is not replaced by mistake.
    let again = place.sh("demo").exits(2);
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
}

#[test]
fn the_demo_leaves_a_folder_alone_that_is_not_its_own() {
    let place = Place::new();
    place.write("mine/letter.txt", "dear");
    let ran = place.sh("demo --out mine --overwrite").exits(2);
    assert!(ran.stderr.contains("holds no demo"), "{}", ran.stderr);
    assert_eq!(place.read("mine/letter.txt"), "dear");
}
