//! The section of one source.

use std::collections::BTreeMap;

use shelfscan_pipeline::{IdentityStatus, RunFile, RunStatus};
use shelfscan_video::ReadOptions;

use super::{
    counts::{counts_table, sku_cell, truth_table},
    page::status_name,
    pictures::{KeyFrame, KeyFrames, crop},
    settings,
    source::{FacingRow, SourceRun},
    text::{clock, counted, css_color, grouped, safe, score},
    timeline::{TimelineRow, svg},
    truth::Truth,
};

/// How much of a source is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) cards: usize,
    pub(super) key_frames: usize,
    pub(super) timeline_rows: usize,
}

/// What the parts of a section share.
struct Context<'a> {
    source: &'a SourceRun,
    /// Anchors of this section start with it.
    prefix: String,
    /// Facings that get a card: first the known, then the unknown, then those not asked about.
    cards: [Vec<&'a FacingRow>; 3],
    budget: Budget,
}

/// The section of a source: `number` counts from 1 and names its anchors.
pub(super) fn section(
    number: usize,
    source: &SourceRun,
    truth: Option<&Truth>,
    reader: &ReadOptions,
    budget: Budget,
    one_of_many: bool,
) -> String {
    let context = Context {
        source,
        prefix: format!("s{number}"),
        cards: choose_cards(&source.facings, budget.cards),
        budget,
    };
    let run = &source.run;
    let heading = if one_of_many { "h2" } else { "h1" };
    let mut html = format!(
        "<section class=\"source\" id=\"{}\">\n<{heading}>{}</{heading}>\n",
        context.prefix,
        safe(&run.source)
    );
    html += &status_line(source);
    let counted_yet = run.status != RunStatus::Running;
    if counted_yet {
        html += &tiles(source);
    }
    for problem in &source.problems {
        html += &format!("<p class=\"note\">{}</p>\n", safe(problem));
    }
    html += &notices(run);
    if counted_yet {
        html += "<h3>Counts</h3>\n";
        html += &counts_table(&run.counts);
    }
    if let Some(truth) = truth.filter(|_| counted_yet) {
        html += "<h3>Against the truth</h3>\n";
        html += &truth_table(&run.counts, truth);
    }
    let keys = KeyFrames::draw(source, reader, budget.key_frames);
    html += &context.key_frames(&keys);
    html += &context.cards();
    html += &context.timeline(&keys);
    html += &how_it_was_made(source);
    html + "</section>\n"
}

/// Shares `cap` out so that neither kind crowds out the other, and orders the known by SKU, so that
/// packs that should look alike stand side by side.
fn choose_cards(facings: &[FacingRow], cap: usize) -> [Vec<&FacingRow>; 3] {
    let of = |status| {
        facings
            .iter()
            .filter(move |f| f.status == status)
            .collect::<Vec<_>>()
    };
    let mut known = of(IdentityStatus::Identified);
    let mut unknown = of(IdentityStatus::Unknown);
    let mut others = of(IdentityStatus::NotAsked);
    known.sort_by(|a, b| (&a.sku, a.facing_id).cmp(&(&b.sku, b.facing_id)));
    let half = cap / 2;
    let for_unknown = unknown.len().min(half.max(cap.saturating_sub(known.len())));
    unknown.truncate(for_unknown);
    known.truncate(cap - for_unknown);
    others.truncate(cap - for_unknown - known.len());
    [known, unknown, others]
}

fn status_line(source: &SourceRun) -> String {
    let run = &source.run;
    let status = status_name(source);
    let meaning = match run.status {
        RunStatus::Complete => "everything that was asked for is here",
        RunStatus::Partial => "some frames are missing; the others are here",
        RunStatus::Interrupted => {
            "stopped before its end; the figures are those of the part that was scanned"
        }
        RunStatus::Failed => "it could not be scanned to its end; what was finished is here",
        RunStatus::Running => "still going, or ended without a word",
    };
    let mut html = format!("<p><span class=\"status {status}\">{status}</span>: {meaning}</p>\n");
    if let Some(reason) = &run.reason {
        html += &format!("<p class=\"note\">{}</p>\n", safe(reason));
    }
    html
}

/// The figures that are looked for first.
fn tiles(source: &SourceRun) -> String {
    let [known, unknown, _] = source.kinds();
    let mut skus: Vec<_> = source
        .run
        .counts
        .iter()
        .filter_map(|c| c.sku.as_deref())
        .collect();
    skus.sort_unstable();
    skus.dedup();
    let tile = |class: &str, n: u64, what: &str| {
        format!("<li{class}><strong>{}</strong> {what}</li>\n", grouped(n))
    };
    let mut html = "<ul class=\"tiles\">\n".to_owned();
    html += &tile("", source.run.facings, "facings");
    if source.run.gallery.is_some() {
        html += &tile("", skus.len() as u64, "different SKUs");
        html += &tile("", known, "facings with a SKU");
        html += &tile(" class=\"unknown\"", unknown, "unknown facings");
    } else {
        html += "<li><strong>–</strong> no SKUs: the scan had no gallery</li>\n";
    }
    html + "</ul>\n"
}

fn notices(run: &RunFile) -> String {
    if run.notices.is_empty() {
        return String::new();
    }
    let mut html = "<h3>To know</h3>\n<ul class=\"notices\">\n".to_owned();
    for notice in &run.notices {
        let times = if notice.count > 1 {
            format!(" {} times", grouped(notice.count))
        } else {
            String::new()
        };
        let first = notice
            .first_frame
            .map(|f| {
                format!(
                    "{}frame {f}",
                    if notice.count > 1 {
                        ", first in "
                    } else {
                        " in "
                    }
                )
            })
            .unwrap_or_default();
        let when = format!("{times}{first}");
        let when = if when.is_empty() {
            when
        } else {
            format!(" <span class=\"soft\">({})</span>", when.trim_start())
        };
        html += &format!("<li>{}{when}</li>\n", safe(&notice.message));
    }
    html + "</ul>\n"
}

impl Context<'_> {
    fn anchor(&self, facing_id: u64) -> String {
        format!("{}-f{facing_id}", self.prefix)
    }

    /// True when a facing has a card to link to.
    fn has_card(&self, facing_id: u64) -> bool {
        self.cards
            .iter()
            .flatten()
            .any(|f| f.facing_id == facing_id)
    }

    fn key_frames(&self, keys: &KeyFrames) -> String {
        if keys.frames.is_empty() && keys.note.is_none() {
            return String::new();
        }
        let mut html = "<h3>Views</h3>\n".to_owned();
        if let Some(note) = &keys.note {
            html += &format!("<p class=\"note\">{}</p>\n", safe(note));
        }
        if keys.frames.iter().any(|f| f.picture.is_some()) {
            let boxes = if self.source.facings.is_empty() {
                "A box is a track with its number; which of them are one facing is not known yet."
            } else if self.source.run.gallery.is_some() {
                "A box is a facing with its number. Its colour is its SKU; red is unknown."
            } else {
                "A box is a facing with its number."
            };
            html += &format!(
                "<p class=\"soft\">{boxes} Grey ones were not sure enough yet to count.</p>\n"
            );
        }
        html += "<div class=\"frames\">\n";
        let by_id: BTreeMap<u64, &FacingRow> = self
            .source
            .facings
            .iter()
            .map(|f| (f.facing_id, f))
            .collect();
        for frame in &keys.frames {
            html += &key_frame(frame, &by_id);
        }
        html + "</div>\n"
    }

    fn cards(&self) -> String {
        let mut html = String::new();
        let all = |status| {
            self.source
                .facings
                .iter()
                .filter(|f| f.status == status)
                .count()
        };
        let [known, unknown, others] = &self.cards;
        for (title, about, shown, all) in [
            (
                "Facings with a SKU",
                "By SKU, so that packs of one name stand side by side.",
                known,
                all(IdentityStatus::Identified),
            ),
            (
                "Unknown facings",
                "No SKU of the gallery is close enough in enough of their crops. Enrol those that belong to the range.",
                unknown,
                all(IdentityStatus::Unknown),
            ),
            (
                "Facings without an identity",
                "Nothing was asked about them.",
                others,
                all(IdentityStatus::NotAsked),
            ),
        ] {
            if all == 0 {
                continue;
            }
            html += &format!(
                "<h3>{title} ({})</h3>\n<p class=\"soft\">{about}</p>\n",
                grouped(all as u64)
            );
            if all > shown.len() {
                html += &format!(
                    "<p class=\"note\">{} of {} are shown; the others are in facings.csv and their pictures in crops.</p>\n",
                    grouped(shown.len() as u64),
                    grouped(all as u64)
                );
            }
            html += "<div class=\"cards\">\n";
            for facing in shown {
                html += &self.card(facing);
            }
            html += "</div>\n";
        }
        html
    }

    fn card(&self, facing: &FacingRow) -> String {
        let picture = facing
            .best_crop
            .as_deref()
            .and_then(|path| crop(&self.source.dir, path));
        let what = facing.what();
        let picture = match picture {
            Some(p) => format!(
                "<div class=\"crop\"><img src=\"{}\" width=\"{}\" height=\"{}\" alt=\"Best crop of facing {}, {}\"></div>",
                p.uri,
                p.width,
                p.height,
                facing.facing_id,
                safe(what)
            ),
            None => "<div class=\"missing\">no crop saved</div>".into(),
        };
        let mut facts = Vec::new();
        if facing.status != IdentityStatus::NotAsked {
            facts.push(("score", score(facing.score)));
            facts.push(("margin", score(facing.margin)));
            facts.push((
                "votes",
                format!(
                    "{} of {}{}",
                    facing.votes,
                    counted(u64::from(facing.crops), "crop", "crops"),
                    // Its votes are those for no SKU.
                    if facing.status == IdentityStatus::Unknown {
                        " for none"
                    } else {
                        ""
                    }
                ),
            ));
            if let Some(channel) = facing.channel.as_deref().filter(|c| *c != "packaging") {
                facts.push(("by", safe(channel)));
            }
            let nearest: Vec<String> = facing
                .nearest()
                .map(|(sku, value)| format!("<li>{} {}</li>", safe(sku), score(value)))
                .collect();
            if !nearest.is_empty() {
                facts.push(("nearest", format!("<ol>{}</ol>", nearest.concat())));
            }
        }
        if let Some(region) = &facing.region {
            facts.push(("region", safe(region)));
        }
        facts.push((
            "seen",
            format!(
                "{} to {}",
                clock(facing.first_secs),
                clock(facing.last_secs)
            ),
        ));
        facts.push((
            "frames",
            format!(
                "{} ({} to {})",
                grouped(u64::from(facing.frames)),
                facing.first_frame,
                facing.last_frame
            ),
        ));
        let facts = facts
            .into_iter()
            .fold(String::new(), |text, (name, value)| {
                text + &format!("<dt>{name}</dt><dd>{value}</dd>")
            });
        format!(
            "<article class=\"card\" id=\"{}\" style=\"--sku:{}\">{picture}<h4>#{} {}</h4><dl>{facts}</dl></article>\n",
            self.anchor(facing.facing_id),
            css_color(facing.color()),
            facing.facing_id,
            safe(what)
        )
    }

    fn timeline(&self, keys: &KeyFrames) -> String {
        let tracks = self.source.tracks_by_facing();
        let Some(mut span) = self.source.frames.span_secs() else {
            return String::new();
        };
        if self.source.facings.is_empty() {
            return String::new();
        }
        let mut facings: Vec<&FacingRow> = self.source.facings.iter().collect();
        facings.sort_by(|a, b| {
            a.first_secs
                .total_cmp(&b.first_secs)
                .then(a.facing_id.cmp(&b.facing_id))
        });
        let all = facings.len();
        facings.truncate(self.budget.timeline_rows);
        let rows: Vec<TimelineRow> = facings
            .iter()
            .map(|f| TimelineRow {
                name: format!("#{} {}", f.facing_id, f.what()),
                color: f.color(),
                unknown: f.status == IdentityStatus::Unknown,
                seen: tracks
                    .get(&f.facing_id)
                    .into_iter()
                    .flatten()
                    .map(|t| (t.first_secs, t.last_secs))
                    .collect(),
                anchor: self.has_card(f.facing_id).then(|| self.anchor(f.facing_id)),
            })
            .collect();
        let seen = || {
            rows.iter()
                .flat_map(|r| &r.seen)
                .filter(|(a, b)| a.is_finite() && b.is_finite())
        };
        span.0 = seen().fold(span.0, |first, (from, _)| first.min(*from));
        span.1 = seen().fold(span.1, |last, (_, to)| last.max(*to));
        let marks: Vec<f64> = keys.frames.iter().filter_map(|f| f.secs).collect();
        let mut html = "<h3>When each facing was in view</h3>\n".to_owned();
        if all > rows.len() {
            html += &format!(
                "<p class=\"note\">The first {} of {} facings are drawn; the others are in tracks.jsonl.</p>\n",
                rows.len(),
                grouped(all as u64)
            );
        }
        html += "<p class=\"soft\">Two bars in a row are one facing that the camera saw twice. Dotted lines are the views above.</p>\n<div class=\"wide\">\n";
        html += &svg(&rows, span, &marks);
        html + "</div>\n"
    }
}

fn key_frame(frame: &KeyFrame, by_id: &BTreeMap<u64, &FacingRow>) -> String {
    let when = frame
        .secs
        .map(|s| format!(" at {}", clock(s)))
        .unwrap_or_default();
    let in_view = frame.facings.len() as u64 + frame.loose_tracks;
    let title = format!("Frame {}{when}", frame.frame_index);
    let facings = counted(in_view, "facing", "facings");
    let picture = match &frame.picture {
        Some(p) => format!(
            "<img src=\"{}\" width=\"{}\" height=\"{}\" alt=\"{title} with {facings} in boxes\">",
            p.uri, p.width, p.height
        ),
        None => "<div class=\"missing\">picture missing</div>".into(),
    };
    let mut skus: BTreeMap<&str, u64> = BTreeMap::new();
    let mut unknown = 0;
    for facing in frame.facings.iter().filter_map(|id| by_id.get(id)) {
        match (facing.status, &facing.sku) {
            (IdentityStatus::Identified, Some(sku)) => *skus.entry(sku).or_default() += 1,
            (IdentityStatus::Unknown, _) => unknown += 1,
            _ => {}
        }
    }
    let mut legend: Vec<String> = skus
        .iter()
        .map(|(sku, n)| format!("<li>{} × {n}</li>", sku_cell(sku)))
        .collect();
    if unknown > 0 {
        let color = css_color(shelfscan_pipeline::identity_color(
            0,
            IdentityStatus::Unknown,
            None,
        ));
        legend.push(format!(
            "<li><span class=\"swatch\" style=\"background:{color}\"></span>unknown × {unknown}</li>"
        ));
    }
    if frame.unconfirmed > 0 {
        let color = css_color(shelfscan_pipeline::UNCONFIRMED_COLOR);
        legend.push(format!(
            "<li><span class=\"swatch\" style=\"background:{color}\"></span>not counted × {}</li>",
            frame.unconfirmed
        ));
    }
    let legend = if legend.is_empty() {
        String::new()
    } else {
        format!("<ul class=\"legend\">{}</ul>", legend.concat())
    };
    format!(
        "<figure>{picture}<figcaption><strong>{title}</strong>: {facings} in view{legend}</figcaption></figure>\n"
    )
}

/// Source, models, options and times, for those who check or repeat the run.
fn how_it_was_made(source: &SourceRun) -> String {
    let run = &source.run;
    let mut html = "<h3>How it was made</h3>\n".to_owned();
    html += &facts(source);
    html += "<div class=\"wide\"><table class=\"models\">\n<caption>Models</caption>\n<thead><tr><th scope=\"col\">what it did</th><th scope=\"col\">model</th><th scope=\"col\">kind</th><th scope=\"col\">weights</th></tr></thead>\n<tbody>\n";
    for model in settings::models(run) {
        html += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td><code>{}</code></td></tr>\n",
            model.role,
            safe(&model.name),
            safe(&model.kind),
            safe(&model.weights)
        );
    }
    html += "</tbody></table></div>\n";
    let changed = settings::changed(&run.plan);
    if changed.is_empty() {
        html += "<p>All options were at their defaults.</p>\n";
    } else {
        html += "<div class=\"wide\"><table class=\"options\">\n<caption>Options that were not at their defaults</caption>\n<thead><tr><th scope=\"col\">option</th><th scope=\"col\">value</th><th scope=\"col\">default</th></tr></thead>\n<tbody>\n";
        for option in changed {
            html += &format!(
                "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{}</td></tr>\n",
                safe(&option.name),
                safe(&option.value),
                safe(&option.default)
            );
        }
        html += "</tbody></table></div>\n";
    }
    html + &timings(run)
}

fn facts(source: &SourceRun) -> String {
    let run = &source.run;
    let mut facts = vec![("looked for", safe(&settings::prompts(&run.plan)))];
    if let Some(info) = &run.info {
        facts.push((
            "picture",
            format!("{} × {} pixels", info.width, info.height),
        ));
        let codec = match info.declared_fps {
            Some(fps) => format!("{}, {:.2} frames a second", safe(&info.codec), fps),
            None => safe(&info.codec),
        };
        facts.push(("format", codec));
        if let Some(secs) = info.declared_duration_secs {
            facts.push(("length", clock(secs)));
        }
    }
    if let Some((first, last)) = source.frames.span_secs() {
        facts.push(("scanned", format!("{} to {}", clock(first), clock(last))));
    }
    let frames = &run.frames;
    let mut words = vec![format!(
        "{} looked at",
        counted(frames.processed, "frame", "frames")
    )];
    words.push(format!("{} decoded", grouped(frames.decoded)));
    if let Some(declared) = frames.declared {
        words.push(format!("{} declared", grouped(declared)));
    }
    for (n, word) in [
        (frames.dropped, "dropped"),
        (frames.undecodable, "not decodable"),
    ] {
        if n > 0 {
            words.push(format!("{} {word}", grouped(n)));
        }
    }
    facts.push(("frames", words.join(", ")));
    facts.push((
        "tracks",
        format!(
            "{} of {}",
            counted(run.tracks, "sight", "sights"),
            counted(run.facings, "facing", "facings")
        ),
    ));
    if let Some(gallery) = &run.gallery {
        let digits: String = gallery.chars().take(12).collect();
        facts.push(("gallery", format!("<code>{}</code>", safe(&digits))));
    }
    let rows = facts
        .into_iter()
        .fold(String::new(), |text, (name, value)| {
            text + &format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")
        });
    format!(
        "<div class=\"wide\"><table class=\"facts\">\n<caption>Source and frames</caption>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// In a part of its own, because it is all that differs between equal runs.
fn timings(run: &RunFile) -> String {
    let mut html = format!(
        "<div class=\"wide\" id=\"timings\"><table class=\"timings\">\n<caption>Time spent, {:.1} s in all</caption>\n<thead><tr><th scope=\"col\">stage</th><th scope=\"col\" class=\"n\">busy</th><th scope=\"col\" class=\"n\">items</th><th scope=\"col\" class=\"n\">each</th></tr></thead>\n<tbody>\n",
        run.timings.wall_secs
    );
    for (stage, time) in &run.timings.stages {
        let each = if time.items == 0 {
            "–".into()
        } else {
            format!("{:.1} ms", time.busy_secs * 1000.0 / time.items as f64)
        };
        html += &format!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{:.2} s</td><td class=\"n\">{}</td><td class=\"n\">{each}</td></tr>\n",
            safe(stage),
            time.busy_secs,
            grouped(time.items)
        );
    }
    html + "</tbody></table></div>\n"
}
