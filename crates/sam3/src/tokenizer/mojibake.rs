//! Repair of UTF-8 that was read as Windows-1252 on its way here, such as `cafÃ©`.
//!
//! A stretch is repaired when its characters are the bytes of whole UTF-8 sequences and it is no
//! likely text of its own: sequences of three or four bytes, those that start with `Â` or `Ã`, and
//! runs of two or more. Real words such as `CAFÉ®` stay.

/// Times a text may have gone through the wrong encoding.
const ROUNDS: usize = 3;

/// The characters of bytes 0x80 to 0x9f in Windows-1252; bytes without one stand for themselves.
const HIGH: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Repairs what is damaged and leaves the rest.
pub(super) fn repair(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..ROUNDS {
        let next = once(&text);
        if next == text {
            break;
        }
        text = next;
    }
    text
}

fn once(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (decoded, used, sequences) = run(&chars[at..]);
        if used == 0 {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        if sequences >= 2 || damaged_alone(&chars[at..at + used]) {
            out.push_str(&decoded);
        } else {
            out.extend(&chars[at..at + used]);
        }
        at += used;
    }
    out
}

/// The longest run of whole sequences at the start: what it decodes to, characters, sequences.
fn run(chars: &[char]) -> (String, usize, usize) {
    let (mut decoded, mut used, mut sequences) = (String::new(), 0, 0);
    while let Some((c, n)) = sequence(&chars[used..]) {
        decoded.push(c);
        used += n;
        sequences += 1;
    }
    (decoded, used, sequences)
}

fn sequence(chars: &[char]) -> Option<(char, usize)> {
    let lead = byte(*chars.first()?)?;
    let n = match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let bytes: Vec<u8> = chars
        .get(..n)?
        .iter()
        .map(|c| byte(*c))
        .collect::<Option<_>>()?;
    let c = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    // A control character is no text, so this was none that was damaged.
    (!c.is_control()).then_some((c, n))
}

fn damaged_alone(chars: &[char]) -> bool {
    match chars {
        ['Â' | 'Ã', ..] => true,
        ['Ä' | 'Å', next] => !next.is_alphanumeric(),
        _ => chars.len() > 2,
    }
}

fn byte(c: char) -> Option<u8> {
    if let Some(i) = HIGH.iter().position(|h| *h == c) {
        return u8::try_from(0x80 + i).ok();
    }
    u8::try_from(u32::from(c)).ok().filter(|b| *b >= 0xa0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn damaged_text_is_repaired_once_and_twice() {
        assert_eq!(repair("cafÃ©"), "café");
        assert_eq!(repair("cafÃƒÂ©"), "café");
        assert_eq!(repair("â€œquotedâ€\u{9d}"), "“quoted”");
        assert_eq!(repair("ÐœÐ¾Ð»Ð¾ÐºÐ¾"), "Молоко");
    }

    #[test]
    fn real_text_stays() {
        for text in [
            "CAFÉ®",
            "naïve",
            "l'été à la plage",
            "Привет",
            "東京",
            "ß»",
            "â€",
        ] {
            assert_eq!(repair(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_survives(text in ".{0,80}") {
            prop_assert!(repair(&text).len() <= text.len());
        }
    }
}
