//! Lists of keys, cut short for a message.

/// The three of `keys` that look most like `key`, joined for a message.
///
/// The path's last parts weigh most, because a wrong prefix or a wrong last word is what goes wrong.
pub(super) fn nearest<'a>(keys: impl Iterator<Item = &'a str>, key: &str) -> String {
    let mut ranked: Vec<(usize, &str)> = keys
        .map(|other| {
            let tail = common(key.bytes().rev(), other.bytes().rev());
            let head = common(key.bytes(), other.bytes());
            let length_gap = key.len().abs_diff(other.len());
            ((2 * tail + head).saturating_sub(length_gap / 2), other)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let names: Vec<&str> = ranked.into_iter().take(3).map(|(_, name)| name).collect();
    names.join(", ")
}

fn common(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(x, y)| x == y).count()
}

/// The first items of a list for a message.
pub(super) fn first_few(items: &[String]) -> String {
    let mut some: Vec<String> = items.iter().take(5).cloned().collect();
    if items.len() > some.len() {
        some.push(format!("and {} more", items.len() - some.len()));
    }
    some.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_keys_share_an_ending() {
        let keys = ["model.neck.bias", "model.neck.weight", "other.thing", "x"];
        let text = nearest(keys.into_iter(), "neck.weight");
        assert!(text.starts_with("model.neck.weight"), "{text}");
    }
}
