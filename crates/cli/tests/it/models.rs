//! Models by name: refusals, downloads, the cache, and what is never told.

use std::{fs, path::PathBuf};

use shelfscan_testkit::hub::{Access, COMMIT, GOOD_TOKEN, Mishap, MockHub, SIGNATURE, sha256};

use crate::{
    galleries::draw,
    support::{Place, Ran, finish},
};

const BAD_TOKEN: &str = "hf_wrongTokenOfATest";

/// The small embedder of this repository, which stands for a large one.
pub(crate) fn weights() -> Vec<u8> {
    fs::read(models().join("pack-tiny/model.safetensors")).unwrap()
}

pub(crate) fn models() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// A folder to work in, and a hub that holds SAM 3.1 and DINOv2 by name.
struct Hub {
    place: Place,
    mock: MockHub,
}

impl Hub {
    fn new() -> Self {
        let mock = MockHub::start();
        mock.add("facebook/dinov2-small", "model.safetensors", &weights());
        mock.add("facebook/sam3.1", "sam3.1_multiplex.pt", b"no checkpoint");
        Self {
            place: Place::new(),
            mock,
        }
    }

    fn run(&self, line: &str, variables: &[(&str, &str)]) -> Ran {
        let mut command = self.place.command(line.split_whitespace());
        command.env("HF_ENDPOINT", self.mock.endpoint());
        command.envs(variables.iter().copied());
        let ran = finish(&mut command);
        for secret in [GOOD_TOKEN, BAD_TOKEN, SIGNATURE] {
            assert!(!ran.stdout.contains(secret), "{}", ran.stdout);
            assert!(!ran.stderr.contains(secret), "{}", ran.stderr);
        }
        ran
    }

    /// What was said, with the places of this run left out.
    fn said(&self, text: &str) -> String {
        let here = self.place.path("");
        text.replace(&self.mock.endpoint(), "HUB")
            .replace(&here.display().to_string(), "HERE/")
    }
}

#[test]
fn each_reason_for_a_refusal_has_a_message_of_its_own_with_the_next_step() {
    let hub = Hub::new();
    let refused = |variables: &[(&str, &str)]| {
        let ran = hub.run("models pull sam3.1", variables).exits(2);
        let told = hub.said(&ran.stderr);
        let asking = "asking HUB for sam3.1_multiplex.pt of facebook/sam3.1 at main\n";
        told.strip_prefix(asking).unwrap().to_owned()
    };
    hub.mock.set_access(Access::Accepted);
    insta::assert_snapshot!(refused(&[]), @"error: facebook/sam3.1 is given only to accounts that accepted its licence, and there is no token; accept it at HUB/facebook/sam3.1, make a token with read access at HUB/settings/tokens, and set HF_TOKEN or log in with `hf auth login`");
    insta::assert_snapshot!(refused(&[("HF_TOKEN", BAD_TOKEN)]), @"error: the token from HF_TOKEN is not accepted: Invalid credentials in Authorization header: [token]; make a new one with read access and put it there");
    hub.mock.set_access(Access::NotAccepted);
    insta::assert_snapshot!(refused(&[("HUGGING_FACE_HUB_TOKEN", GOOD_TOKEN)]), @"error: the token from HUGGING_FACE_HUB_TOKEN is known, but its account may not have facebook/sam3.1 yet (Your request to access model me/packs is awaiting a review from the repo authors.); accept the licence or wait for the approval at HUB/facebook/sam3.1");
    hub.mock.set_access(Access::WiderToken);
    hub.place.write("hf/token", format!("{GOOD_TOKEN}\n"));
    insta::assert_snapshot!(refused(&[]), @"error: the token from HERE/hf/token may not read facebook/sam3.1 (Please enable access to public gated repositories in your fine-grained token settings); make one with read access to gated repositories at HUB/settings/tokens");
}

#[test]
fn what_is_not_there_is_told_apart_and_so_is_a_hub_that_does_not_answer() {
    let hub = Hub::new();
    let told = |line: &str, code: i32| {
        let ran = hub.run(line, &[]).exits(code);
        hub.said(&ran.stderr)
    };
    insta::assert_snapshot!(told("models pull hf:me/none -q", 2), @"error: no repository me/none can be seen without a token; check the name: HUB/me/none");
    insta::assert_snapshot!(told("models pull hf:facebook/sam3.1@v9 -q", 2), @"error: facebook/sam3.1 has no revision v9; the ones it has are at HUB/facebook/sam3.1/commits/main");
    insta::assert_snapshot!(told("models pull hf:facebook/sam3.1:w.pt -q", 2), @"error: facebook/sam3.1 has no file w.pt at revision main; the ones it has are at HUB/facebook/sam3.1/tree/main");
    insta::assert_snapshot!(told("models pull hf:../etc", 2), @"error: `hf:../etc` names no model: a repository is OWNER/NAME; write a path, one of sam3.1, dinov2-small, dinov2-base, dinov2-large, or hf:OWNER/NAME[@REVISION][:FILE]");
    insta::assert_snapshot!(told("models pull sam3.1.pt", 2), @r"
    error: only models of the hub can be pulled, and this is a path: sam3.1.pt
    hint: give a short name such as sam3.1, or hf:OWNER/NAME[@REVISION][:FILE]; `shelfscan models list` has the names
    ");
    hub.mock.answer_about(429, "Retry-After: 30");
    insta::assert_snapshot!(told("models pull sam3.1 -q", 1), @"error: the hub answers no more requests for now; try again in 30 s, or set HF_TOKEN, which raises the limit");
    insta::assert_snapshot!(told("models pull sam3.1 -q --hub-endpoint http://127.0.0.1:9", 1), @"error: the hub cannot be reached (connection refused); check the network and HTTPS_PROXY, or copy a filled cache here: http://127.0.0.1:9");
    insta::assert_snapshot!(told("models pull sam3.1 -q --hub-endpoint ftp://x", 2), @"error: the hub cannot be at this address, it has no https:// and host; give https://HOST: ftp://x");
}

#[test]
fn a_model_is_pulled_once_found_by_its_name_verified_and_listed() {
    let hub = Hub::new();
    let path = format!(
        "HERE/hf/hub/models--facebook--dinov2-small/snapshots/{COMMIT}/model.safetensors\n"
    );
    let ran = hub.run("models path dinov2-small", &[]).exits(1);
    insta::assert_snapshot!(ran.stderr, @r"
    error: dinov2-small is not in the cache
    hint: get it with `shelfscan models pull dinov2-small`
    ");
    let ran = hub.run("models pull dinov2-small", &[]).exits(0);
    assert_eq!(hub.said(&ran.stdout), path);
    let said = hub.said(&ran.stderr);
    assert!(
        said.starts_with("asking HUB for model.safetensors of facebook/dinov2-small at main\n"),
        "{said}"
    );
    assert!(
        said.ends_with(" of dinov2-small downloaded and verified\n"),
        "{said}"
    );
    let ran = hub.run("models pull dinov2-small --json", &[]).exits(0);
    assert_eq!(ran.json()[0]["downloaded_bytes"], 0);
    assert_eq!(ran.json()[0]["hash"], sha256(&weights()));
    let before = hub.mock.connections();
    let ran = hub.run("models path dinov2-small", &[]).exits(0);
    assert_eq!(hub.said(&ran.stdout), path);

    let list = hub.run("models list --json", &[]).exits(0).json();
    let dinov2 = list
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["name"] == "dinov2-small")
        .unwrap();
    assert_eq!(dinov2["cached"]["bytes"], weights().len());
    assert_eq!(dinov2["purpose"], "embedder");
    let ran = hub.run("models list", &[]).exits(0);
    for part in [
        "sam3.1",
        "accept its licence",
        "pack-tiny",
        "built in",
        "dinov2-large",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }

    let verified = hub.run("models verify --json", &[]).exits(0).json();
    assert_eq!(verified[0]["as_promised"], true);
    assert_eq!(verified[0]["hash_kind"], "sha256");
    assert_eq!(verified[0]["problems"].as_array().unwrap().len(), 0);
    assert!(verified[0]["layout"]["tensors"].as_u64().unwrap() > 50);
    // Nothing but pulling asks the hub.
    assert_eq!(hub.mock.connections(), before);
}

#[test]
fn a_model_whose_bytes_changed_and_a_file_that_is_no_model_are_found_out() {
    let hub = Hub::new();
    hub.run("models pull dinov2-small sam3.1", &[]).exits(0);
    let ran = hub.run("models verify sam3.1", &[]).exits(1);
    assert!(ran.stdout.contains("sam3.1: not usable"), "{}", ran.stdout);
    let path = hub.run("models path dinov2-small", &[]).stdout;
    let mut bytes = weights();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path.trim(), &bytes).unwrap();
    let ran = hub.run("models verify dinov2-small", &[]).exits(1);
    assert!(
        ran.stdout.contains("its bytes changed since the download"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains(&sha256(&bytes)), "{}", ran.stdout);
    hub.place.write("own.safetensors", weights());
    let ran = hub.run("models verify own.safetensors", &[]).exits(0);
    assert!(
        ran.stdout.contains("own.safetensors: sound"),
        "{}",
        ran.stdout
    );
    hub.run("models verify none.pt", &[]).exits(1);
}

#[test]
fn a_download_that_breaks_off_goes_on_with_the_next_run() {
    let hub = Hub::new();
    hub.mock.mishaps([Mishap::CutAfter(1_000_000); 4]);
    let ran = hub.run("models pull dinov2-small", &[]).exits(1);
    assert!(
        ran.stderr.contains("the download broke off at 4000000 of"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("run it again to go on from there"),
        "{}",
        ran.stderr
    );
    hub.run("models path dinov2-small", &[]).exits(1);
    let ran = hub.run("models pull dinov2-small --json", &[]).exits(0);
    assert_eq!(
        ran.json()[0]["downloaded_bytes"],
        weights().len() - 4_000_000
    );
    hub.run("models verify dinov2-small", &[]).exits(0);
}

#[test]
fn a_damaged_download_is_thrown_away() {
    let hub = Hub::new();
    hub.mock.mishaps([Mishap::Flipped]);
    let ran = hub.run("models pull dinov2-small", &[]).exits(1);
    assert!(
        ran.stderr
            .contains("the download of dinov2-small is damaged"),
        "{}",
        ran.stderr
    );
    hub.run("models path dinov2-small", &[]).exits(1);
    hub.run("models pull dinov2-small", &[]).exits(0);
}

#[test]
fn a_scan_downloads_what_it_needs_before_it_begins_and_then_needs_no_network() {
    let hub = Hub::new();
    draw(&hub.place, "skus", 0..2, 2);
    let ran = hub
        .run(
            "enroll skus --gallery g --embedder-weights dinov2-small",
            &[],
        )
        .exits(0);
    assert!(
        ran.stderr.contains("asking http://127.0.0.1"),
        "{}",
        ran.stderr
    );
    let before = hub.mock.connections();
    hub.place.pan("a", 3, 4);
    let scan = "scan a.y4m --detections truth --gallery g --embedder-weights dinov2-small";
    hub.run(&format!("{scan} --out one"), &[]).exits(0);
    hub.run(&format!("{scan} --out two"), &[("HF_HUB_OFFLINE", "1")])
        .exits(0);
    hub.place.write(
        "shelfscan.toml",
        "[models]\noffline = true\nembedder-weights = \"hf:me/packs\"\n",
    );
    let ran = hub
        .run("scan a.y4m --detections truth --gallery g --out three", &[])
        .exits(2);
    insta::assert_snapshot!(hub.said(&ran.stderr), @"error: hf:me/packs is not in the cache and downloads are switched off; get it with `shelfscan models pull hf:me/packs` where there is a network, and copy the cache here: HERE/hf/hub");
    assert!(!hub.place.path("three").exists());
    assert_eq!(hub.mock.connections(), before);
}

#[test]
fn a_file_on_this_machine_opens_no_connection() {
    let hub = Hub::new();
    hub.place.write("w.safetensors", weights());
    draw(&hub.place, "skus", 0..1, 1);
    let line = "enroll skus --gallery g --embedder-weights w.safetensors";
    hub.run(line, &[("HF_TOKEN", GOOD_TOKEN)]).exits(0);
    assert_eq!(hub.mock.connections(), 0);
}

#[test]
fn a_token_is_used_and_never_told_however_much_is_said() {
    let hub = Hub::new();
    hub.mock.set_access(Access::Accepted);
    let good = [("HF_TOKEN", GOOD_TOKEN)];
    hub.run("models pull dinov2-small -vv", &good).exits(0);
    hub.run("doctor --json -vv", &good);
    let bad = [("HF_TOKEN", BAD_TOKEN)];
    hub.run("models pull sam3.1 -vv", &bad).exits(2);
    let asked = hub.mock.asked();
    assert!(asked.iter().any(|a| a.with_token));
    assert!(
        asked
            .iter()
            .all(|a| !a.with_token || a.host.starts_with("127.0.0.1")),
        "{asked:?}"
    );
}

#[test]
fn a_slip_on_the_command_line_is_told_before_anything_is_downloaded() {
    let hub = Hub::new();
    hub.place.pan("a", 3, 2);
    draw(&hub.place, "skus", 0..1, 1);
    for (line, said) in [
        ("scan a.y4m --out x --threads 0", "--threads"),
        ("scan a.y4m --out x --detect-every 31", "--detect-every"),
        (
            "scan a.y4m --out x --duplicate-overlap 2",
            "--duplicate-overlap",
        ),
        ("scan a.y4m --out x --device metal:0", "--device"),
        ("scan a.y4m --out x --gallery none", "none"),
        ("enroll none --gallery g", "none"),
        ("eval gallery skus --views 0", "views"),
    ] {
        let detector = if line.starts_with("scan") {
            "--weights sam3.1"
        } else {
            ""
        };
        let all = format!("{line} {detector} --embedder-weights dinov2-small");
        hub.run(&all, &[]).exits(2).tells(said);
    }
    assert_eq!(hub.mock.connections(), 0);
}

#[test]
fn a_variable_set_to_nothing_counts_as_one_that_is_not_set() {
    let hub = Hub::new();
    hub.place.pan("a", 3, 2);
    let empty = [("HF_HUB_CACHE", ""), ("SHELFSCAN_FFMPEG", "")];
    hub.run("probe a.y4m", &empty).exits(0);
    hub.run("models list", &empty).exits(0);
}
