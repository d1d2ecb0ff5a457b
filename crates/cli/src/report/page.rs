//! The page around the sections.

use std::collections::BTreeSet;

use super::{
    Report,
    counts::{added_up, counts_table, truth_table},
    section::{Budget, section},
    source::SourceRun,
    text::{counted, grouped, safe},
};

/// Nothing may be loaded and nothing may run, whatever stands in the page.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let title = match report.sources.as_slice() {
        [only] if !report.of_scan => only.run.source.clone(),
        all => format!("scan of {}", counted(all.len() as u64, "source", "sources")),
    };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>shelfscan: {}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        safe(&title),
        include_str!("page.css")
    );
    if report.of_scan {
        html += "<header>\n";
        html += &format!("<h1>{}</h1>\n", safe(&capitalised(&title)));
        html += &overview(report);
        html += "</header>\n<main>\n";
    } else {
        html += "<main>\n";
    }
    let shown = report.sources.len().min(report.caps.sections);
    let budget = Budget {
        cards: fair_share(report.caps.cards, shown),
        key_frames: report
            .key_frames
            .min(fair_share(report.caps.key_frames, shown)),
        timeline_rows: report.caps.timeline_rows,
    };
    for (number, source) in report.sources.iter().take(shown).enumerate() {
        // A truth is one shelf's; of a scan of several clips it is told above.
        let truth = report.truth.as_ref().filter(|_| !report.of_scan);
        html += &section(
            number + 1,
            source,
            truth,
            &report.reader,
            budget,
            report.of_scan,
        );
    }
    html += "</main>\n";
    let versions: BTreeSet<&str> = report
        .sources
        .iter()
        .map(|s| s.run.version.as_str())
        .collect();
    let versions: Vec<String> = versions.into_iter().map(safe).collect();
    html += &format!(
        "<footer><p>Scanned with shelfscan {}. An <em>unknown</em> pack is one that no SKU of the gallery is close enough to; it is never given the nearest name.</p></footer>\n</body>\n</html>\n",
        versions.join(", ")
    );
    html
}

/// An equal part of what there is for the page, and at least one.
fn fair_share(all: usize, parts: usize) -> usize {
    (all / parts.max(1)).max(1)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// A row for every source, and the counts of all of them.
fn overview(report: &Report) -> String {
    let mut html = String::new();
    let left_out = report.sources.len().saturating_sub(report.caps.sections);
    if left_out > 0 {
        html += &format!(
            "<p class=\"note\">The first {} sources have a section below; {} are in the table alone. `shelfscan report` makes a page of its own for any source's folder.</p>\n",
            report.caps.sections,
            grouped(left_out as u64)
        );
    }
    html += "<div class=\"wide\"><table class=\"sources\">\n<caption>Sources of the scan</caption>\n<thead><tr>";
    for (name, class) in [
        ("source", ""),
        ("status", ""),
        ("frames", "n"),
        ("facings", "n"),
        ("known", "n"),
        ("unknown", "n"),
        ("reason", ""),
    ] {
        html += &format!("<th scope=\"col\" class=\"{class}\">{name}</th>");
    }
    html += "</tr></thead>\n<tbody>\n";
    for (number, source) in report.sources.iter().enumerate() {
        html += &source_row(number, source, number < report.caps.sections);
    }
    for absent in &report.absent {
        html += &format!(
            "<tr><th scope=\"row\">{}</th><td class=\"status {}\">{}</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td><td>{}</td></tr>\n",
            safe(&absent.source),
            status_class(&absent.status),
            safe(&absent.status.replace('_', " ")),
            safe(&absent.reason)
        );
    }
    html += "</tbody></table></div>\n";
    let sum = added_up(report.sources.iter().flat_map(|s| &s.run.counts));
    if report.sources.len() > 1 {
        html += "<h2>All sources together</h2>\n<p class=\"soft\">A pack that was filmed in two sources counts in both.</p>\n";
        html += &counts_table(&sum);
    }
    if let Some(truth) = &report.truth {
        html += "<h2>Against the truth</h2>\n";
        html += &truth_table(&sum, truth);
    }
    html
}

fn source_row(number: usize, source: &SourceRun, linked: bool) -> String {
    let run = &source.run;
    let [known, unknown, _] = source.kinds();
    let identity = |n: u64| {
        if run.gallery.is_some() {
            grouped(n)
        } else {
            "–".into()
        }
    };
    let name = if linked {
        format!("<a href=\"#s{}\">{}</a>", number + 1, safe(&run.source))
    } else {
        safe(&run.source)
    };
    let status = status_name(source);
    format!(
        "<tr><th scope=\"row\">{name}</th><td class=\"status {status}\">{status}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
        grouped(run.frames.processed),
        grouped(run.facings),
        identity(known),
        identity(unknown),
        safe(run.reason.as_deref().unwrap_or_default())
    )
}

/// Name of a source's status, as in `run.json`; also its class in the style.
pub(super) fn status_name(source: &SourceRun) -> &'static str {
    use shelfscan_pipeline::RunStatus::{Complete, Failed, Interrupted, Partial, Running};
    match source.run.status {
        Running => "running",
        Complete => "complete",
        Partial => "partial",
        Interrupted => "interrupted",
        Failed => "failed",
    }
}

/// The class of a status that was read from a file and could be anything.
fn status_class(status: &str) -> &'static str {
    match status {
        "failed" => "failed",
        "unreadable" => "unreadable",
        _ => "not_started",
    }
}
