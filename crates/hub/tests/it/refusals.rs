//! What the hub refuses, each case told apart and with its next step.

use shelfscan_hub::{Error, HubFile};
use shelfscan_testkit::hub::{Access, GOOD_TOKEN, Mishap, SIGNATURE};

use crate::{Place, packs};

const BAD_TOKEN: &str = "hf_wrongTokenOfATest";

fn refused(place: &Place) -> (Error, String) {
    let error = place.fetch(&packs()).unwrap_err();
    let text = format!("{error} {error:?}");
    for secret in [GOOD_TOKEN, BAD_TOKEN, SIGNATURE] {
        assert!(!text.contains(secret), "{text}");
    }
    let text = error.to_string().replace(&place.mock.endpoint(), "HUB");
    (error, text)
}

fn gated(access: Access) -> Place {
    let place = Place::new();
    place.mock.set_access(access);
    place
}

#[test]
fn a_gated_repository_without_a_token_says_how_to_get_one() {
    let (error, text) = refused(&gated(Access::Accepted));
    assert!(matches!(error, Error::NoToken { .. }));
    for part in [
        "HUB/me/packs",
        "HUB/settings/tokens",
        "HF_TOKEN",
        "hf auth login",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_unknown_token_is_named_by_its_place_and_never_shown() {
    for access in [Access::Open, Access::Accepted] {
        let (error, text) = refused(&gated(access).with_token(BAD_TOKEN));
        assert!(matches!(error, Error::BadToken { .. }), "{text}");
        assert!(
            text.contains("the token from HF_TOKEN is not accepted"),
            "{text}"
        );
        // The server repeats the token; the message does not.
        assert!(text.contains("Authorization header: [token]"), "{text}");
    }
}

#[test]
fn a_licence_that_was_not_accepted_yet_is_no_matter_of_the_token() {
    let (error, text) = refused(&gated(Access::NotAccepted).with_token(GOOD_TOKEN));
    assert!(matches!(error, Error::NotAccepted { .. }), "{text}");
    assert!(text.contains("awaiting a review"), "{text}");
    assert!(text.ends_with("HUB/me/packs"), "{text}");
}

#[test]
fn a_token_with_too_few_rights_is_a_matter_of_the_token() {
    let (error, text) = refused(&gated(Access::WiderToken).with_token(GOOD_TOKEN));
    assert!(matches!(error, Error::Forbidden { .. }), "{text}");
    assert!(text.contains("fine-grained token settings"), "{text}");
    assert!(text.ends_with("HUB/settings/tokens"), "{text}");
}

#[test]
fn an_accepted_licence_and_a_good_token_give_the_file() {
    let place = gated(Access::Accepted).with_token(GOOD_TOKEN);
    assert_eq!(
        place.fetch(&packs()).unwrap().downloaded_bytes,
        place.bytes.len() as u64
    );
}

#[test]
fn a_missing_repository_revision_and_file_are_three_things() {
    let place = Place::new();
    let fetch = |repo, revision, file| {
        let file = HubFile::new(repo, revision, file).unwrap();
        place.fetch(&file).unwrap_err()
    };
    let error = fetch("me/none", "main", "w.pt");
    assert!(
        matches!(
            error,
            Error::RepoNotFound {
                anonymous: true,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("no repository me/none can be seen without a token"),
        "{error}"
    );
    let error = fetch("me/packs", "v9", "model.safetensors");
    assert!(matches!(error, Error::RevisionNotFound { .. }), "{error}");
    assert!(
        error.to_string().contains("me/packs has no revision v9"),
        "{error}"
    );
    let error = fetch("me/packs", "main", "w.pt");
    assert!(matches!(error, Error::FileNotFound { .. }), "{error}");
    assert!(
        error.to_string().ends_with("/me/packs/tree/main"),
        "{error}"
    );
    let place = place.with_token(GOOD_TOKEN);
    let error = place
        .fetch(&HubFile::new("me/none", "main", "w.pt").unwrap())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::RepoNotFound {
                anonymous: false,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_rate_limit_says_how_long_to_wait() {
    let place = Place::new();
    place.mock.answer_about(429, "Retry-After: 30");
    let (error, text) = refused(&place);
    assert!(matches!(
        error,
        Error::RateLimited {
            retry_after_secs: Some(30),
            anonymous: true
        }
    ));
    assert!(text.contains("in 30 s, or set HF_TOKEN"), "{text}");
}

#[test]
fn a_hub_in_trouble_is_asked_again_and_then_named() {
    let place = Place::new();
    for _ in 0..2 {
        place.mock.answer_about(503, "X-Error-Message: maintenance");
    }
    place.mock.mishaps([Mishap::Status(502)]);
    place.fetch(&packs()).unwrap();

    let place = Place::new();
    for _ in 0..4 {
        place.mock.answer_about(503, "X-Error-Message: maintenance");
    }
    let (error, text) = refused(&place);
    assert!(matches!(error, Error::Server { status: 503, .. }), "{text}");
    assert!(text.contains("503 (maintenance)"), "{text}");
}

#[test]
fn another_web_server_is_no_hub() {
    let place = Place::new();
    place.mock.answer_about(200, "Server: something else");
    let (error, text) = refused(&place);
    assert!(matches!(error, Error::NoHub { .. }), "{text}");
    for (header, reason) in [
        (
            "X-Repo-Commit: ../../x\r\nETag: \"a\"",
            "its commit is no hash",
        ),
        (
            "X-Repo-Commit: 5f1e0c0de5f1e0c0de5f1e0c0de5f1e0c0de5f1e\r\nETag: \"../../x\"",
            "it gives no usable ETag",
        ),
    ] {
        place.mock.answer_about(200, header);
        let (error, text) = refused(&place);
        assert!(matches!(error, Error::NoHub { .. }), "{text}");
        assert!(text.contains(reason), "{text}");
    }
    assert!(place.blobs().is_empty());
}

#[test]
fn one_hub_may_be_asked_again_after_a_refusal() {
    let place = gated(Access::NotAccepted).with_token(GOOD_TOKEN);
    place.fetch(&packs()).unwrap_err();
    place.mock.set_access(Access::Accepted);
    place.fetch(&packs()).unwrap();
}
