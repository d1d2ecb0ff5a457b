//! What a decoder complained about, and where.

use shelfscan_inference_core::Notice;

use super::messages::{Weight, is_damage, is_harmless, weigh};

/// Places that are listed one by one; the rest is only counted.
pub(crate) const MAX_LISTED: usize = 20;

/// Complaints of one run of the decoder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaints {
    places: Vec<String>,
    pub(crate) damage: u64,
    pub(crate) errors: u64,
    /// The first error in full, and the last one, which tells why a run ended.
    pub(crate) first_error: Option<String>,
    pub(crate) last_error: Option<String>,
}

impl Complaints {
    /// Takes a message that came while `at` was the last decoded frame, as index and time.
    pub(crate) fn push(&mut self, line: &str, at: Option<(u64, f64)>) {
        let (weight, mut text) = weigh(line);
        // Some messages begin with the file's own name, which the reader knows and which must not
        // make two runs on the same bytes differ.
        if text.starts_with("file:")
            && let Some(colon) = text.rfind(": ")
        {
            text.drain(..colon + 2);
        }
        if weight == Weight::Info || is_harmless(&text) {
            return;
        }
        if is_damage(&text) {
            self.damage += 1;
            if self.places.len() < MAX_LISTED {
                let place = at.map_or_else(
                    || "before the first frame".into(),
                    |(index, secs)| format!("near frame {index} ({secs:.3} s)"),
                );
                self.places.push(format!("{place}: {text}"));
            }
        }
        if weight == Weight::Error {
            self.errors += 1;
            self.first_error.get_or_insert_with(|| text.clone());
            self.last_error = Some(text);
        }
    }

    /// Why the frames are not all good, when that is so.
    pub(crate) fn damage_text(&self) -> Option<String> {
        self.places
            .first()
            .map(|first| format!("{} damaged place(s), the first {first}", self.damage))
    }

    /// The listed places, or the grumbling of a decoder that lost nothing.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        if self.damage == 0 {
            return self
                .first_error
                .iter()
                .map(|first| {
                    Notice::new(
                        "decoder_complaints",
                        format!(
                            "the decoder printed {} error(s) without losing a picture, the first: {first}",
                            self.errors
                        ),
                    )
                })
                .collect();
        }
        self.places
            .iter()
            .map(|place| Notice::new("damaged_place", place.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_listed_with_its_place_and_the_list_is_bounded() {
        let mut complaints = Complaints::default();
        complaints.push(
            "[warning] file:my clip: 2.mp4: corrupt decoded frame in stream 0",
            Some((7, 0.28)),
        );
        assert_eq!(
            complaints.damage_text().unwrap(),
            "1 damaged place(s), the first near frame 7 (0.280 s): corrupt decoded frame in stream 0"
        );
        for i in 0..MAX_LISTED as u64 * 10 {
            complaints.push("[error] Error while decoding stream #0:0", Some((i, 0.0)));
        }
        assert_eq!(complaints.damage, 1 + MAX_LISTED as u64 * 10);
        assert_eq!(complaints.notices().len(), MAX_LISTED);
    }

    #[test]
    fn grumbling_is_one_notice_and_no_damage() {
        let mut complaints = Complaints::default();
        complaints.push("[h264 @ 0x1] [error] mmco: unref short failure", None);
        complaints.push(
            "[h264 @ 0x1] [error] number of reference frames exceeds max",
            None,
        );
        complaints.push("[info] nothing", None);
        assert_eq!(complaints.damage_text(), None);
        let notices = complaints.notices();
        assert_eq!(notices.len(), 1);
        assert!(notices[0].message.contains("2 error(s)"));
    }
}
