//! The singular of an English phrase, for a hint; never put in place of what was asked for.

/// Nouns whose plural follows no rule, plural first.
const IRREGULAR: [(&str, &str); 15] = [
    ("children", "child"),
    ("feet", "foot"),
    ("geese", "goose"),
    ("halves", "half"),
    ("knives", "knife"),
    ("leaves", "leaf"),
    ("loaves", "loaf"),
    ("men", "man"),
    ("mice", "mouse"),
    ("people", "person"),
    ("shelves", "shelf"),
    ("teeth", "tooth"),
    ("wolves", "wolf"),
    ("women", "woman"),
    ("cookies", "cookie"),
];

/// Words that end like a plural and are none.
const NO_PLURAL: [&str; 10] = [
    "asparagus",
    "bus",
    "cactus",
    "canvas",
    "citrus",
    "couscous",
    "gas",
    "hummus",
    "lens",
    "molasses",
];

/// The phrase with its noun in the singular, or `None` when it does not look like a plural.
///
/// The noun is the last word, or the last one before a preposition: `boxes of cereal`.
pub(crate) fn singular(phrase: &str) -> Option<String> {
    let words: Vec<&str> = phrase.split_whitespace().collect();
    let noun = words
        .iter()
        .position(|w| ["of", "on", "in", "with", "for", "from"].contains(w))
        .filter(|at| *at > 0)
        .unwrap_or(words.len())
        .checked_sub(1)?;
    let one = singular_word(words.get(noun)?)?;
    let mut words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
    words[noun] = one;
    Some(words.join(" "))
}

fn singular_word(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    if let Some((_, one)) = IRREGULAR.iter().find(|(many, _)| *many == lower) {
        return Some((*one).into());
    }
    if NO_PLURAL.contains(&lower.as_str()) || lower.len() < 4 {
        return None;
    }
    // Endings are ASCII, so cutting them off keeps the text whole.
    let cut = |n: usize| word[..word.len() - n].to_owned();
    if lower.ends_with("ss") || lower.ends_with("us") || lower.ends_with("is") {
        None
    } else if lower.ends_with("ies") {
        Some(cut(3) + "y")
    } else if ["sses", "shes", "ches", "xes", "zes", "atoes"]
        .iter()
        .any(|e| lower.ends_with(e))
    {
        Some(cut(2))
    } else if lower.ends_with('s') {
        Some(cut(1))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_get_their_singular_and_all_else_gets_none() {
        for (phrase, one) in [
            ("people", Some("person")),
            ("bottles", Some("bottle")),
            ("red Cereal Boxes", Some("red Cereal Box")),
            ("boxes of cereal", Some("box of cereal")),
            ("berries", Some("berry")),
            ("price tags", Some("price tag")),
            ("dishes", Some("dish")),
            ("cans with lids", Some("can with lids")),
            ("tomatoes", Some("tomato")),
            ("glass", None),
            ("gas", None),
            ("product", None),
            ("of", None),
            ("", None),
            ("Äpfels", Some("Äpfel")),
        ] {
            assert_eq!(singular(phrase).as_deref(), one, "{phrase}");
        }
    }
}
