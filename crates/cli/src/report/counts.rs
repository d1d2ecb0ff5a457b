//! Tables of counts: SKU by facings, and facings against the truth.

use std::collections::BTreeMap;

use shelfscan_pipeline::{Count, IdentityStatus, identity_color};

use super::{
    text::{counted, css_color, grouped, percent, safe},
    truth::Truth,
};

/// The table of counts: SKUs first, the ones with most facings on top, then what is not known.
pub(super) fn counts_table(counts: &[Count]) -> String {
    if counts.is_empty() {
        return "<p>No facing was counted.</p>\n".into();
    }
    let total: u64 = counts.iter().map(|c| c.facings).sum();
    let with_regions = counts.iter().any(|c| c.region.is_some());
    let mut rows: Vec<&Count> = counts.iter().collect();
    rows.sort_by(|a, b| {
        (a.status, b.facings, &a.sku, &a.label, &a.region)
            .cmp(&(b.status, a.facings, &b.sku, &b.label, &b.region))
    });
    let region_head = if with_regions {
        "<th scope=\"col\">region</th>"
    } else {
        ""
    };
    let mut html = format!(
        "<div class=\"wide\"><table class=\"counts\">\n<caption>Facings of each SKU. A facing seen twice counts once.</caption>\n\
         <thead><tr><th scope=\"col\">SKU</th><th scope=\"col\">found as</th>{region_head}<th scope=\"col\" class=\"n\">facings</th><th scope=\"col\" class=\"n\">share</th></tr></thead>\n<tbody>\n"
    );
    for row in rows {
        let (class, what) = match (row.status, &row.sku) {
            (IdentityStatus::Identified, Some(sku)) => ("", sku_cell(sku)),
            (IdentityStatus::Unknown, _) => (
                " class=\"unknown\"",
                "unknown: not close enough to any SKU of the gallery".to_owned(),
            ),
            _ => (" class=\"unknown\"", not_asked(counts).to_owned()),
        };
        let region = if with_regions {
            format!("<td>{}</td>", safe(row.region.as_deref().unwrap_or("–")))
        } else {
            String::new()
        };
        html += &format!(
            "<tr{class}><th scope=\"row\">{what}</th><td>{}</td>{region}<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            safe(&row.label),
            grouped(row.facings),
            percent(row.facings, total)
        );
    }
    let span = if with_regions {
        " colspan=\"3\""
    } else {
        " colspan=\"2\""
    };
    html + &format!(
        "<tr class=\"total\"><th scope=\"row\"{span}>all facings</th><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n</tbody></table></div>\n",
        grouped(total),
        percent(total, total)
    )
}

/// Why facings were not asked about: nobody asked about any, or their crops were no good.
fn not_asked(counts: &[Count]) -> &'static str {
    if counts.iter().all(|c| c.status == IdentityStatus::NotAsked) {
        "not identified: the scan had no gallery"
    } else {
        "not identified: no usable crop"
    }
}

pub(super) fn sku_cell(sku: &str) -> String {
    let color = css_color(identity_color(0, IdentityStatus::Identified, Some(sku)));
    format!(
        "<span class=\"swatch\" style=\"background:{color}\"></span>{}",
        safe(sku)
    )
}

/// Counts of several sources added up.
pub(super) fn added_up<'a>(counts: impl Iterator<Item = &'a Count>) -> Vec<Count> {
    let mut sums: BTreeMap<Count, u64> = BTreeMap::new();
    for count in counts {
        let key = Count {
            facings: 0,
            region: None,
            ..count.clone()
        };
        *sums.entry(key).or_default() += count.facings;
    }
    sums.into_iter()
        .map(|(count, facings)| Count { facings, ..count })
        .collect()
}

/// The table of facings against the truth.
pub(super) fn truth_table(counts: &[Count], truth: &Truth) -> String {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let mut others = 0;
    for count in counts {
        match (&count.sku, count.status) {
            (Some(sku), IdentityStatus::Identified) => {
                *found.entry(sku).or_default() += count.facings;
            }
            _ => others += count.facings,
        }
    }
    let all_found: u64 = counts.iter().map(|c| c.facings).sum();
    let mut rows: BTreeMap<&str, (u64, u64)> = truth
        .skus
        .iter()
        .map(|(sku, n)| (sku.as_str(), (*n, 0)))
        .collect();
    for (sku, n) in found {
        rows.entry(sku).or_default().1 = n;
    }
    let exact = rows.values().filter(|(t, f)| t == f).count() as u64;
    let mut html = format!(
        "<p>{} found where {} stand, {}. The count is exact for {} of {}.</p>\n",
        counted(all_found, "facing was", "facings were"),
        grouped(truth.facings),
        off_by(all_found, truth.facings),
        grouped(exact),
        counted(rows.len() as u64, "SKU", "SKUs"),
    );
    html += "<div class=\"wide\"><table class=\"truth\">\n<caption>Facings against what is known to stand there.</caption>\n\
        <thead><tr><th scope=\"col\">SKU</th><th scope=\"col\" class=\"n\">truth</th><th scope=\"col\" class=\"n\">found</th><th scope=\"col\" class=\"n\">difference</th></tr></thead>\n<tbody>\n";
    let row = |class: &str, what: &str, truth: u64, found: u64| {
        let off = if truth == found { "" } else { " off" };
        format!(
            "<tr{class}><th scope=\"row\">{what}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n{off}\">{}</td></tr>\n",
            grouped(truth),
            grouped(found),
            difference(found, truth)
        )
    };
    for (sku, (truth, found)) in &rows {
        html += &row("", &sku_cell(sku), *truth, *found);
    }
    html += &row(
        " class=\"unknown\"",
        "not in the gallery, found as unknown",
        truth.strangers(),
        others,
    );
    html += &row(" class=\"total\"", "all facings", truth.facings, all_found);
    html + "</tbody></table></div>\n"
}

fn difference(found: u64, truth: u64) -> String {
    match found.cmp(&truth) {
        std::cmp::Ordering::Equal => "0".into(),
        std::cmp::Ordering::Greater => format!("+{}", grouped(found - truth)),
        std::cmp::Ordering::Less => format!("−{}", grouped(truth - found)),
    }
}

fn off_by(found: u64, truth: u64) -> String {
    if found == truth {
        return "as many as there are".into();
    }
    let word = if found > truth { "too many" } else { "too few" };
    let by = found.abs_diff(truth);
    if truth == 0 {
        return format!("{} {word}", grouped(by));
    }
    format!("{} {word} ({})", grouped(by), percent(by, truth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(sku: Option<&str>, status: IdentityStatus, facings: u64) -> Count {
        Count {
            label: "product".into(),
            region: None,
            status,
            sku: sku.map(Into::into),
            facings,
        }
    }

    #[test]
    fn the_most_common_sku_is_on_top_and_the_unknown_have_a_row_of_their_own() {
        let html = counts_table(&[
            count(Some("cola"), IdentityStatus::Identified, 2),
            count(Some("<script>"), IdentityStatus::Identified, 5),
            count(None, IdentityStatus::Unknown, 1),
        ]);
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        assert!(at("&lt;script&gt;") < at("cola"));
        assert!(at("cola") < at("unknown: not close enough"));
        assert!(!html.contains("<script"));
        assert!(
            html.contains("<td class=\"n\">8</td><td class=\"n\">100.0 %</td>"),
            "{html}"
        );
        assert!(html.contains("12.5 %"));
    }

    #[test]
    fn the_truth_is_compared_by_sku_and_in_all() {
        let truth = Truth {
            skus: [("cola".into(), 3), ("tea".into(), 1)].into(),
            facings: 6,
        };
        let html = truth_table(
            &[
                count(Some("cola"), IdentityStatus::Identified, 2),
                count(Some("milk"), IdentityStatus::Identified, 1),
                count(None, IdentityStatus::Unknown, 2),
            ],
            &truth,
        );
        assert!(
            html.contains("5 facings were found where 6 stand, 1 too few (16.7 %)"),
            "{html}"
        );
        assert!(html.contains("exact for 0 of 3 SKUs"), "{html}");
        for (sku, cells) in [("cola", "3|2|−1"), ("milk", "0|1|+1"), ("tea", "1|0|−1")] {
            let row = html.split("<tr").find(|r| r.contains(sku)).unwrap();
            let found: Vec<&str> = row
                .split("<td")
                .skip(1)
                .map(|c| c.split(['>', '<']).nth(1).unwrap())
                .collect();
            assert_eq!(found.join("|"), cells, "{sku}");
        }
    }

    #[test]
    fn sources_are_added_up_over_their_regions() {
        let mut top = count(Some("cola"), IdentityStatus::Identified, 2);
        top.region = Some("top".into());
        let plain = count(Some("cola"), IdentityStatus::Identified, 3);
        assert_eq!(
            added_up([&top, &plain].into_iter()),
            [count(Some("cola"), IdentityStatus::Identified, 5)]
        );
    }
}
