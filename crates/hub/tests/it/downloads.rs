//! Whole, broken, damaged and cached downloads.

use std::{fs, net::TcpListener, ops::ControlFlow, thread, time::Duration};

use shelfscan_hub::{Error, HashKind, Hub, HubFile, HubOptions, Phase};
use shelfscan_testkit::hub::{COMMIT, GOOD_TOKEN, Mishap, sha256};

use crate::{Place, packs, remember};

#[test]
fn a_download_is_whole_verified_and_named_as_other_tools_name_it() {
    let place = Place::new();
    let hub = Hub::new(place.options.clone());
    assert_eq!(hub.find(&packs()).unwrap(), None);
    let mut told = Vec::new();
    let fetched = hub.fetch(&packs(), &mut remember(&mut told)).unwrap();
    assert_eq!(fetched.downloaded_bytes, place.bytes.len() as u64);
    let snapshot = format!("models--me--packs/snapshots/{COMMIT}/model.safetensors");
    assert_eq!(fetched.file.path, place.cache().join(snapshot));
    assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
    assert_eq!(
        fetched.file.hash.as_deref(),
        Some(sha256(&place.bytes).as_str())
    );
    assert_eq!(place.blobs(), [sha256(&place.bytes)]);
    let main = fs::read_to_string(place.cache().join("models--me--packs/refs/main")).unwrap();
    assert_eq!(main, COMMIT);
    assert_eq!(hub.find(&packs()).unwrap().unwrap().path, fetched.file.path);
    let (first, last) = (told.first().unwrap(), told.last().unwrap());
    assert_eq!(
        (first.done_bytes, last.done_bytes),
        (0, place.bytes.len() as u64)
    );
    assert!(
        told.iter()
            .all(|p| p.total_bytes == place.bytes.len() as u64)
    );
    assert!(told.iter().all(|p| p.phase == Phase::Downloading));
}

#[test]
fn what_is_cached_opens_no_socket_and_offline_never_does() {
    let mut place = Place::new();
    place.fetch(&packs()).unwrap();
    let before = place.mock.connections();
    let again = place.fetch(&packs()).unwrap();
    assert_eq!(again.downloaded_bytes, 0);
    let at_commit = HubFile::new("me/packs", COMMIT, "model.safetensors").unwrap();
    place.fetch(&at_commit).unwrap();
    place.options.offline = true;
    place.fetch(&packs()).unwrap();
    let hub = Hub::new(place.options.clone());
    hub.pull(&packs(), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let other = HubFile::new("me/packs", "main", "other.pt").unwrap();
    let error = place.fetch(&other).unwrap_err();
    assert!(matches!(error, Error::NotCached { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("shelfscan models pull hf:me/packs:other.pt"),
        "{error}"
    );
    assert_eq!(place.mock.connections(), before);
}

#[test]
fn pulling_asks_whether_the_branch_moved_and_downloads_nothing_twice() {
    let place = Place::new();
    place.fetch(&packs()).unwrap();
    let before = place.mock.asked().len();
    let hub = Hub::new(place.options.clone());
    let pulled = hub
        .pull(&packs(), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(pulled.downloaded_bytes, 0);
    let asked = place.mock.asked().split_off(before);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].method, "HEAD");
}

#[test]
fn a_download_that_is_cut_goes_on_where_it_stopped() {
    let place = Place::new();
    let forty = place.bytes.len() * 2 / 5;
    place
        .mock
        .mishaps([Mishap::CutAfter(forty), Mishap::CutAfter(1000)]);
    let fetched = place.fetch(&packs()).unwrap();
    assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
    let ranges: Vec<_> = place
        .mock
        .asked()
        .into_iter()
        .filter(|a| a.path.starts_with("/elsewhere/"))
        .map(|a| a.from.unwrap())
        .collect();
    assert_eq!(ranges, [0, forty as u64, forty as u64 + 1000]);
    assert_eq!(fetched.downloaded_bytes, place.bytes.len() as u64);
}

#[test]
fn a_download_that_keeps_breaking_says_how_far_it_is_and_the_next_run_goes_on() {
    let place = Place::new();
    place.mock.mishaps([Mishap::CutAfter(700_000); 4]);
    let error = place.fetch(&packs()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(
            error,
            Error::Interrupted {
                done_bytes: 2_800_000,
                ..
            }
        ),
        "{text}"
    );
    assert!(text.contains("2800000 of 3200004 bytes"), "{text}");
    assert!(text.ends_with(".incomplete"), "{text}");
    assert_eq!(place.blobs(), [sha256(&place.bytes) + ".incomplete"]);
    assert_eq!(
        Hub::new(place.options.clone()).find(&packs()).unwrap(),
        None
    );

    let mut told = Vec::new();
    let hub = Hub::new(place.options.clone());
    let fetched = hub.fetch(&packs(), &mut remember(&mut told)).unwrap();
    assert_eq!(
        fetched.downloaded_bytes,
        place.bytes.len() as u64 - 2_800_000
    );
    assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
    assert_eq!(told[0].phase, Phase::Resuming);
    assert_eq!(place.blobs(), [sha256(&place.bytes)]);
}

#[test]
fn a_server_that_cannot_go_on_in_the_middle_is_read_from_the_start() {
    let place = Place::new();
    place
        .mock
        .mishaps([Mishap::CutAfter(500_000), Mishap::WholeFile]);
    let fetched = place.fetch(&packs()).unwrap();
    assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
    assert_eq!(fetched.downloaded_bytes, place.bytes.len() as u64 + 500_000);
}

#[test]
fn a_damaged_download_never_gets_the_name_of_a_whole_one() {
    let place = Place::new();
    place.mock.mishaps([Mishap::Flipped]);
    let error = place.fetch(&packs()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&sha256(&place.bytes)), "{error}");
    assert_eq!(place.blobs(), [""; 0]);
    assert_eq!(
        Hub::new(place.options.clone()).find(&packs()).unwrap(),
        None
    );
    place.fetch(&packs()).unwrap();
}

#[test]
fn a_damaged_rest_of_an_earlier_run_is_found_out_and_fetched_anew() {
    let place = Place::new();
    place.mock.mishaps([Mishap::CutAfter(700_000); 4]);
    place.fetch(&packs()).unwrap_err();
    let partial = place
        .cache()
        .join("models--me--packs/blobs")
        .join(&place.blobs()[0]);
    for rest in [vec![0; 100_000], vec![0; 9_000_000]] {
        fs::write(&partial, rest).unwrap();
        let fetched = place.fetch(&packs()).unwrap();
        assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
        fs::remove_dir_all(place.cache().join("models--me--packs/snapshots")).unwrap();
        fs::remove_file(
            place
                .cache()
                .join("models--me--packs/blobs")
                .join(&place.blobs()[0]),
        )
        .unwrap();
    }
}

#[test]
fn a_small_file_that_git_keeps_is_verified_by_its_own_hash() {
    let place = Place::new();
    place.mock.add_small("me/packs", "config.json", b"{}\n");
    let file = HubFile::new("me/packs", "main", "config.json").unwrap();
    place.mock.mishaps([Mishap::Flipped]);
    assert!(matches!(place.fetch(&file), Err(Error::Damaged { .. })));
    let fetched = place.fetch(&file).unwrap();
    let hub = Hub::new(place.options.clone());
    let checked = hub
        .check(&fetched.file, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(
        (checked.kind, checked.as_promised),
        (HashKind::GitSha1, Some(true))
    );
    assert_eq!(checked.hash.len(), 40);
}

#[test]
fn an_empty_file_is_a_file() {
    let place = Place::new();
    place.mock.add("me/packs", "empty.pt", b"");
    let file = HubFile::new("me/packs", "main", "empty.pt").unwrap();
    assert_eq!(place.fetch(&file).unwrap().file.bytes, 0);
}

#[test]
fn a_cached_file_whose_bytes_changed_is_found_out() {
    let place = Place::new();
    let fetched = place.fetch(&packs()).unwrap();
    let hub = Hub::new(place.options.clone());
    let check = || {
        hub.check(&fetched.file, &mut |_| ControlFlow::Continue(()))
            .unwrap()
    };
    assert_eq!(check().as_promised, Some(true));
    let mut bytes = place.bytes.clone();
    bytes[1_500_000] ^= 1;
    fs::write(&fetched.file.path, bytes).unwrap();
    let checked = check();
    assert_eq!(
        (checked.as_promised, checked.kind),
        (Some(false), HashKind::Sha256)
    );
    let stop = hub.check(&fetched.file, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stop, Err(Error::Stopped { .. })));
}

#[test]
fn stopping_keeps_what_came() {
    let place = Place::new();
    let hub = Hub::new(place.options.clone());
    let stop = hub.fetch(&packs(), &mut |progress| {
        if progress.done_bytes > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let Err(Error::Stopped {
        done_bytes,
        partial,
        ..
    }) = stop
    else {
        panic!("{stop:?}");
    };
    assert!(done_bytes > 0);
    assert_eq!(fs::metadata(partial).unwrap().len(), done_bytes);
    assert_eq!(
        place.fetch(&packs()).unwrap().downloaded_bytes,
        place.bytes.len() as u64 - done_bytes
    );
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_where_the_bytes_lie() {
    let place = Place::new().with_token(GOOD_TOKEN);
    place.fetch(&packs()).unwrap();
    let asked = place.mock.asked();
    let (elsewhere, hub): (Vec<_>, Vec<_>) = asked
        .iter()
        .partition(|a| a.path.starts_with("/elsewhere/"));
    assert!(!elsewhere.is_empty() && !hub.is_empty());
    assert!(hub.iter().all(|a| a.with_token), "{asked:?}");
    assert!(elsewhere.iter().all(|a| !a.with_token), "{asked:?}");
}

#[test]
fn a_renamed_repository_is_followed() {
    let place = Place::new();
    let old = HubFile::new("old/name", "main", "model.safetensors").unwrap();
    let fetched = place.fetch(&old).unwrap();
    assert!(fs::read(&fetched.file.path).unwrap() == place.bytes);
}

#[test]
fn two_at_once_download_it_one_time() {
    let place = Place::new();
    let fetched: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| place.fetch(&packs()).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let came: u64 = fetched.iter().map(|f| f.downloaded_bytes).sum();
    assert_eq!(came, place.bytes.len() as u64);
    assert!(fetched.iter().all(|f| f.file.path == fetched[0].file.path));
}

#[test]
fn a_connection_that_falls_silent_is_given_up() {
    let mut place = Place::new();
    place.options.stall = Duration::from_secs(2);
    place
        .mock
        .mishaps([Mishap::CutAfter(1_000_000), Mishap::Silence]);
    let error = place.fetch(&packs()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(
            error,
            Error::Interrupted {
                done_bytes: 1_000_000,
                ..
            }
        ),
        "{text}"
    );
    assert!(text.contains("nothing came for 2 s"), "{text}");
}

#[test]
fn a_refusing_machine_is_named_as_out_of_reach() {
    let place = Place::new();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let options = HubOptions {
        endpoint: format!("http://127.0.0.1:{port}"),
        ..place.options.clone()
    };
    let error = Hub::new(options)
        .fetch(&packs(), &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("HTTPS_PROXY"), "{error}");
}

#[test]
fn a_disk_that_is_too_small_is_told_before_the_first_byte() {
    let place = Place::new();
    place.mock.answer_about(200, "X-Repo-Commit: 5f1e0c0de5f1e0c0de5f1e0c0de5f1e0c0de5f1e\r\nX-Linked-Size: 9000000000000000000\r\nETag: \"x\"");
    let error = place.fetch(&packs()).unwrap_err();
    if cfg!(unix) {
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    }
    assert!(place.mock.asked().iter().all(|a| a.method == "HEAD"));
}
