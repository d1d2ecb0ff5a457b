//! Words and numbers of the page, safe to stand in it.

use crate::printer::clean_cell;

/// Text from outside as the content of an element or of a quoted attribute. Control characters and
/// those that reorder text are shown as `�`, for they could fake what is read beside them.
pub(super) fn safe(text: &str) -> String {
    html_escape::encode_quoted_attribute(&clean_cell(text)).into_owned()
}

/// The first `most` characters of a text, with an ellipsis when some are missing.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let text = clean_cell(text);
    if text.chars().count() <= most {
        return text;
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// A time of the source's clock: `1:07.3` for 67.3 seconds, `1:02:07` from an hour on.
pub(super) fn clock(secs: f64) -> String {
    if !secs.is_finite() {
        return "?".into();
    }
    let sign = if secs < 0.0 { "-" } else { "" };
    let tenths = (secs.abs() * 10.0).round() as u64;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    let (hours, minutes, secs) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{sign}{hours}:{minutes:02}:{secs:02}")
    } else {
        format!("{sign}{minutes}:{secs:02}.{tenth}")
    }
}

/// `1 frame`, `2 frames`.
pub(super) fn counted(n: u64, one: &str, many: &str) -> String {
    let noun = if n == 1 { one } else { many };
    format!("{} {noun}", grouped(n))
}

/// Digits in groups of three, parted by a thin space.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A share in percent, with one digit behind the point.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// A similarity or margin, `–` when there is none.
pub(super) fn score(value: Option<f32>) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(|| "–".into(), |v| format!("{v:.2}"))
}

/// A colour as CSS writes it.
pub(super) fn css_color([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(clock(0.0), "0:00.0");
        assert_eq!(clock(67.26), "1:07.3");
        assert_eq!(clock(59.96), "1:00.0");
        assert_eq!(clock(3727.0), "1:02:07");
        assert_eq!(clock(-1.5), "-0:01.5");
        assert_eq!(clock(f64::NAN), "?");
        assert_eq!(counted(1, "frame", "frames"), "1 frame");
        assert_eq!(
            counted(1234567, "frame", "frames"),
            "1\u{202f}234\u{202f}567 frames"
        );
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "–");
        assert_eq!(score(Some(f32::NAN)), "–");
        assert_eq!(css_color([255, 0, 10]), "#ff000a");
        assert_eq!(shortened("a longer name", 8), "a longe…");
    }

    proptest! {
        #[test]
        fn no_text_opens_a_tag_or_leaves_its_attribute(text in ".{0,200}") {
            let safe = safe(&text);
            prop_assert!(!safe.contains(['<', '>', '"', '\'']), "{}", safe);
        }
    }
}
