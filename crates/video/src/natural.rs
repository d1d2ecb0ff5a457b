//! Sorting of names the way people count: `frame2` before `frame10`.

use std::cmp::Ordering;

/// Compares digit runs by value and all else byte by byte; ties are broken by the plain bytes, so
/// that the order is total.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        match (x.first(), y.first()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let ((m, rest_x), (n, rest_y)) = (digits(x), digits(y));
                // Without leading zeros the longer number is the greater one, whatever its size.
                match m.len().cmp(&n.len()).then_with(|| m.cmp(n)) {
                    Ordering::Equal => (x, y) = (rest_x, rest_y),
                    other => return other,
                }
            }
            (Some(p), Some(q)) if p == q => (x, y) = (&x[1..], &y[1..]),
            (Some(p), Some(q)) => return p.cmp(q),
        }
    }
}

/// The leading digits without their zeros, and what follows.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|c| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let zeros = text[..end].iter().take_while(|c| **c == b'0').count();
    (&text[zeros..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_names_are_compared_by_value() {
        let mut names = [
            "f10",
            "f2",
            "f1b",
            "f1",
            "f01",
            "e9",
            "f99999999999999999999999",
        ];
        names.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
        assert_eq!(
            names,
            [
                "e9",
                "f01",
                "f1",
                "f1b",
                "f2",
                "f10",
                "f99999999999999999999999"
            ]
        );
    }

    proptest! {
        #[test]
        fn the_order_is_total(names in proptest::collection::vec("[a01]{0,4}", 3)) {
            let at = |i: usize| names[i].as_bytes();
            prop_assert_eq!(compare(at(0), at(1)), compare(at(1), at(0)).reverse());
            if compare(at(0), at(1)).is_le() && compare(at(1), at(2)).is_le() {
                prop_assert!(compare(at(0), at(2)).is_le());
            }
            prop_assert_eq!(compare(at(0), at(1)).is_eq(), names[0] == names[1]);
        }
    }
}
