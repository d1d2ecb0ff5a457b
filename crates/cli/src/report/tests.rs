//! Caps and damaged folders; whole pages are tested through the command.

use std::{fs, path::Path};

use serde_json::json;

use super::*;

/// A folder of a run with `known` and `unknown` facings.
fn write_run(dir: &Path, source: &str, known: usize, unknown: usize) {
    fs::create_dir_all(dir).unwrap();
    let run = json!({
        "schema": "shelfscan.run/1", "version": "1", "status": "complete", "source": source,
        "info": null, "plan": {},
        "provider": {"name": "cpu", "device": "cpu", "assigns_track_ids": false,
            "tracking_delay_frames": 0, "models": [
                {"model": "shelf-tiny", "weights_hash": "0123456789abcdef", "preprocessing": "p"}]},
        "gallery": "feed", "frames": {"declared": null, "decoded": 9, "processed": 9, "dropped": 0, "undecodable": 0},
        "tracks": known + unknown, "facings": known + unknown,
        "counts": [
            {"label": "product", "status": "identified", "sku": "cola", "facings": known},
            {"label": "product", "status": "unknown", "facings": unknown}],
        "notices": [],
        "timings": {"wall_secs": 1.0, "identity_workers": 1, "stages": {}}
    });
    fs::write(dir.join(names::RUN), run.to_string()).unwrap();
    let mut facings = "facing_id,label,status,sku,channel,score,margin,votes,crops,region,first_frame,last_frame,first_secs,last_secs,frames,x0,y0,x1,y1,tracks,best_crop,nearest_1,nearest_1_score,nearest_2,nearest_2_score,nearest_3,nearest_3_score\n".to_owned();
    let mut tracks = String::new();
    for id in 1..=known + unknown {
        let (status, sku) = if id <= known {
            ("identified", "cola")
        } else {
            ("unknown", "")
        };
        facings += &format!(
            "{id},product,{status},{sku},packaging,0.9,0.2,3,3,,0,8,0,0.8,9,1,1,5,5,{id},,cola,0.9,,,,\n"
        );
        tracks += &json!({"track_id": id, "facing_id": id, "first_secs": 0.0, "last_secs": 0.8})
            .to_string();
        tracks.push('\n');
    }
    fs::write(dir.join(names::FACINGS), facings).unwrap();
    fs::write(dir.join(names::TRACKS), tracks).unwrap();
    let frame = json!({"frame_index": 0, "time_secs": 0.0, "detections": []});
    fs::write(dir.join(names::DETECTIONS), frame.to_string() + "\n").unwrap();
}

fn cards(html: &str) -> usize {
    html.matches("<article class=\"card\"").count()
}

#[test]
fn ten_times_the_cap_of_facings_stays_under_it_and_what_is_left_out_is_told() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), "a.mp4", CAPS.cards * 9, CAPS.cards);
    let html = Report::read(dir.path()).unwrap().to_html();
    assert_eq!(cards(&html), CAPS.cards);
    let half = CAPS.cards / 2;
    assert!(
        html.contains(&format!("{half} of 4\u{202f}500 are shown")),
        "known"
    );
    assert!(
        html.contains(&format!("{half} of 500 are shown")),
        "unknown"
    );
    assert_eq!(html.matches("class=\"name\"").count(), CAPS.timeline_rows);
    assert!(html.contains("The first 150 of 5\u{202f}000 facings are drawn"));
}

#[test]
fn one_kind_of_facing_may_use_the_room_the_other_leaves() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), "a.mp4", 3, CAPS.cards + 10);
    let html = Report::read(dir.path()).unwrap().to_html();
    assert_eq!(cards(&html), CAPS.cards);
    assert!(html.contains(&format!("{} of 510 are shown", CAPS.cards - 3)));
}

#[test]
fn ten_times_the_cap_of_sources_are_all_in_the_table_and_the_first_have_a_section() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..CAPS.sections * 10 {
        write_run(
            &dir.path().join(format!("{i:03}.mp4")),
            &format!("{i:03}.mp4"),
            2,
            1,
        );
    }
    let summary = json!({"sources": [
        {"source": "000.mp4", "status": "complete"},
        {"source": "late.mp4", "status": "not_started"}]});
    fs::write(dir.path().join("summary.json"), summary.to_string()).unwrap();
    let html = Report::read(dir.path()).unwrap().to_html();
    assert_eq!(
        html.matches("<section class=\"source\"").count(),
        CAPS.sections
    );
    for name in ["000.mp4", "499.mp4", "late.mp4"] {
        assert!(html.contains(name), "{name}");
    }
    assert!(html.contains("450 are in the table alone"));
    assert!(html.contains("class=\"status not_started\">not started"));
    assert!(html.contains("1\u{202f}500"), "the facings of all sources");
    // Each section has its share of the cards.
    assert!(cards(&html) <= CAPS.cards);
}

#[test]
fn a_small_model_is_called_small_and_a_full_size_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), "a.mp4", 1, 0);
    let html = Report::read(dir.path()).unwrap().to_html();
    assert!(html.contains("a small model that comes with shelfscan"));
    let path = dir.path().join(names::RUN);
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace("shelf-tiny", "sam3.1");
    fs::write(&path, text).unwrap();
    let html = Report::read(dir.path()).unwrap().to_html();
    assert!(html.contains("full-size SAM 3") && !html.contains("a small model"));
}

#[test]
fn damaged_files_cost_their_part_of_the_page_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), "a.mp4", 3, 2);
    for (name, bytes) in [
        (names::FACINGS, &b"facing_id,label\n1,\xff\n"[..]),
        (names::TRACKS, b"{\"track_id\":"),
        (names::DETECTIONS, b"not json\n"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let html = Report::read(dir.path()).unwrap().to_html();
    for name in [names::FACINGS, names::TRACKS, names::DETECTIONS] {
        assert!(html.contains(name), "{name}");
    }
    assert!(html.contains(">cola</th>"), "the counts are still there");
    fs::write(dir.path().join(names::RUN), "{").unwrap();
    let error = Report::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("run.json"), "{error}");
}
