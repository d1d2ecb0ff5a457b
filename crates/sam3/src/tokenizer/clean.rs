//! Cleaning of a phrase before it is cut into tokens.
//!
//! The reference runs `ftfy.fix_text`, then unescapes HTML twice, joins runs of blanks and lowers
//! the case. The rules here follow ftfy 6's documentation: damaged encodings are repaired,
//! ligatures spelled out, full-width letters narrowed, quotes made straight, control characters
//! dropped, and accents joined to their letters.

use unicode_normalization::UnicodeNormalization;

use super::mojibake;

/// A clean phrase: lower case, single blanks, nothing at the ends.
pub(super) fn clean(phrase: &str) -> String {
    let text = fix_text(phrase);
    let text = unescape(&unescape(&text));
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

fn unescape(text: &str) -> String {
    html_escape::decode_html_entities(text).into_owned()
}

fn fix_text(text: &str) -> String {
    // Angle brackets mean that the text may be markup on purpose, so entities stay for later.
    let text = if text.contains('<') {
        text.to_owned()
    } else {
        unescape(text)
    };
    let text = mojibake::repair(&text);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // A terminal's colour code ends at its letter.
            '\u{1b}' if chars.peek() == Some(&'[') => {
                for skipped in chars.by_ref().skip(1) {
                    if skipped.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
            '\u{02bc}' | '\u{2018}'..='\u{201b}' => out.push('\''),
            '\u{201c}'..='\u{201f}' => out.push('"'),
            '\u{3000}' => out.push(' '),
            '\u{ff01}'..='\u{ffef}' => out.extend(c.nfkc()),
            '\u{0085}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            _ if is_control(c) => {}
            _ => match ligature(c) {
                Some(letters) => out.push_str(letters),
                None => out.push(c),
            },
        }
    }
    out.nfc().collect()
}

fn is_control(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{08}'
            | '\u{0b}'
            | '\u{0e}'..='\u{1f}'
            | '\u{7f}'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffc}'
    )
}

fn ligature(c: char) -> Option<&'static str> {
    Some(match c {
        'Ĳ' => "IJ",
        'ĳ' => "ij",
        'ŉ' => "ʼn",
        'Ǆ' => "DŽ",
        'ǅ' => "Dž",
        'ǆ' => "dž",
        'Ǉ' => "LJ",
        'ǈ' => "Lj",
        'ǉ' => "lj",
        'Ǌ' => "NJ",
        'ǋ' => "Nj",
        'ǌ' => "nj",
        'Ǳ' => "DZ",
        'ǲ' => "Dz",
        'ǳ' => "dz",
        'ﬀ' => "ff",
        'ﬁ' => "fi",
        'ﬂ' => "fl",
        'ﬃ' => "ffi",
        'ﬄ' => "ffl",
        'ﬅ' => "ſt",
        'ﬆ' => "st",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_accent_are_one() {
        assert_eq!(clean("Cafe\u{301}"), clean("Caf\u{e9}"));
    }

    #[test]
    fn blanks_entities_widths_and_quotes_are_made_plain() {
        assert_eq!(clean("  two\t\n words "), "two words");
        assert_eq!(clean("salt &amp;amp; pepper"), "salt & pepper");
        assert_eq!(clean("ＷＩＤＥ　ﬁsh"), "wide fish");
        assert_eq!(clean("“it’s”"), "\"it's\"");
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m"), "red");
    }
}
