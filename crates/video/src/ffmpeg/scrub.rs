//! Keeps user and password of an address out of what a decoder says.

use std::borrow::Cow;

use crate::source::credentials;

/// What stands before the user in an address.
const MARK: &[u8] = b"://";

/// Bytes of a password from which on a cut address is taken for the known one.
const LEAST_OF_PASSWORD: usize = 3;

/// Takes user and password out of a child's messages before anything else sees them.
///
/// Those of the known address go whatever is in them and wherever a line was cut; those of others,
/// such as the target of a redirect, up to the last `@` before a slash, a blank or a quote.
#[derive(Clone, Default)]
pub(crate) struct Scrubber {
    known: Option<Known>,
}

/// Parts of an address behind its scheme.
#[derive(Clone)]
struct Known {
    /// All of it.
    whole: Vec<u8>,
    /// The same without credentials.
    plain: Vec<u8>,
    /// User and password with the `@`.
    secret: Vec<u8>,
    /// Bytes of `secret` that are enough to know it by.
    least: usize,
}

impl Scrubber {
    /// One that knows what the child was given to open.
    pub(crate) fn of(address: &str) -> Self {
        let known = credentials(address).map(|place| {
            let secret = &address.as_bytes()[place.clone()];
            let colon = secret.iter().position(|byte| *byte == b':');
            Known {
                whole: address.as_bytes()[place.start..].to_vec(),
                plain: address.as_bytes()[place.end..].to_vec(),
                secret: secret.to_vec(),
                least: colon.map_or(secret.len(), |at| {
                    secret.len().min(at + 1 + LEAST_OF_PASSWORD)
                }),
            }
        });
        Self { known }
    }

    /// The line without what nobody is to read.
    pub(crate) fn scrub<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(mut at) = mark(line) else {
            return Cow::Borrowed(line);
        };
        let (mut clean, mut rest) = (Vec::with_capacity(line.len()), line);
        loop {
            let (head, tail) = rest.split_at(at + MARK.len());
            clean.extend_from_slice(head);
            let known = self
                .known
                .as_ref()
                .and_then(|known| Some((known, tail.strip_prefix(&*known.whole)?)));
            rest = if let Some((known, after)) = known {
                clean.extend_from_slice(&known.plain);
                after
            } else {
                &tail[self.secret_bytes(tail)..]
            };
            match mark(rest) {
                Some(next) => at = next,
                None => break,
            }
        }
        clean.extend_from_slice(rest);
        Cow::Owned(clean)
    }

    /// How much of the text behind a [`MARK`] is user and password.
    fn secret_bytes(&self, text: &[u8]) -> usize {
        let end = text
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || b"/'\"".contains(byte))
            .unwrap_or(text.len());
        let marked = text[..end].iter().rposition(|byte| *byte == b'@');
        let known = self.known.as_ref().map_or(0, |known| {
            let pairs = known.secret.iter().zip(text);
            let alike = pairs.take_while(|(a, b)| a == b).count();
            if alike < known.least { 0 } else { alike }
        });
        marked.map_or(0, |at| at + 1).max(known)
    }
}

fn mark(text: &[u8]) -> Option<usize> {
    text.windows(MARK.len()).position(|part| part == MARK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrubbed(address: &str, line: &str) -> String {
        let scrubber = Scrubber::of(address);
        String::from_utf8_lossy(&scrubber.scrub(line.as_bytes())).into_owned()
    }

    #[test]
    fn an_address_in_a_message_loses_user_and_password_and_nothing_else() {
        for (address, line, clean) in [
            (
                "rtsp://user:secret@127.0.0.1:1/x",
                "[error] rtsp://user:secret@127.0.0.1:1/x: Connection refused",
                "[error] rtsp://127.0.0.1:1/x: Connection refused",
            ),
            (
                "http://user:p%40ss@cam/x?a=b@c",
                "[info] Input #0, mpjpeg, from 'http://user:p%40ss@cam/x?a=b@c':",
                "[info] Input #0, mpjpeg, from 'http://cam/x?a=b@c':",
            ),
            (
                "rtsp://user:p@ss@cam?x=a@b",
                "[error] rtsp://user:p@ss@cam?x=a@b: refused, then rtsp://user:p@ss@cam?x=a@b",
                "[error] rtsp://cam?x=a@b: refused, then rtsp://cam?x=a@b",
            ),
            (
                "rtsp://user:pa/ 's@cam/x",
                "[error] rtsp://user:pa/ 's@cam/x: refused by tcp://user:pa/ 's@cam",
                "[error] rtsp://cam/x: refused by tcp://cam",
            ),
            (
                "rtsp://cam/x",
                "[info] moved to \"http://other:p@ss@cam.example:8080/y@z\"",
                "[info] moved to \"http://cam.example:8080/y@z\"",
            ),
            (
                "rtsp://user:secret@cam/x",
                "[error] rtsp://user:secr[error] more of rtsp://user:",
                "[error] rtsp://[error] more of rtsp://user:",
            ),
        ] {
            assert_eq!(scrubbed(address, line), clean, "{address}");
        }
    }

    #[test]
    fn a_line_without_credentials_stays_as_it_is() {
        for line in [
            "[showinfo@seen @ 0x1] [info] n: 0 pts: 0 fmt:x s:8x4 iskey:1 type:I",
            "[error] Connection to tcp://127.0.0.1:1?timeout=0 failed: mail me@cam",
            "[error] rtsp://cam.local/a@b: refused",
            "://",
            "",
        ] {
            assert_eq!(scrubbed("rtsp://user:secret@cam.local/a@b", line), line);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        let line = b"\xff\xfe rtsp://u:\xff@h/\xfe";
        assert_eq!(&*Scrubber::default().scrub(line), b"\xff\xfe rtsp://h/\xfe");
    }

    proptest! {
        #[test]
        fn no_line_keeps_the_password_of_the_known_address(
            scheme in "rtsp|http|srt",
            user in "[a-z0-9]{0,6}",
            password in "[a-z][a-z0-9@:%/?# '\"\u{e9}]{2,12}",
            rest in "[a-z0-9.]{1,9}(:[0-9]{1,4})?(/[a-z0-9@]{0,6})?",
            noise in proptest::collection::vec("[A-Z][A-Z0-9 @/:'\\[\\]]{0,12}[A-Z]", 1..5),
            cuts in proptest::collection::vec(0usize..80, 4),
            forms in proptest::collection::vec(0usize..3, 4),
        ) {
            let address = format!("{scheme}://{user}:{password}@{rest}");
            let mut line = String::new();
            for ((noise, cut), form) in noise.iter().zip(cuts).zip(forms) {
                line.push_str(noise);
                match form {
                    0 => line.push_str(&address),
                    1 => line += &["tcp://", &user, ":", &password, "@"].concat(),
                    _ => line.extend(address.chars().take(cut)),
                }
            }
            // What may stay: the address itself, and one cut behind two letters of the password.
            let start: String = password.chars().take(2).collect();
            let plain = format!("{scheme}://{rest} tcp:// {scheme}://{user}:{start}");
            prop_assume!(!plain.contains(&password));
            let clean = scrubbed(&address, &line);
            prop_assert!(!clean.contains(&password), "{line} became {clean}");
        }

        #[test]
        fn any_bytes_are_scrubbed_without_a_panic(
            address in ".{0,20}(://)?.{0,20}",
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "(.{0,6}://.{0,9}@?){0,4}",
        ) {
            let scrubber = Scrubber::of(&address);
            scrubber.scrub(&bytes);
            scrubber.scrub(text.as_bytes());
        }
    }
}
