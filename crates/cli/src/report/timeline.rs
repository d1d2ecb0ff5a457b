//! When each facing was in view, as a drawing.

use super::text::{clock, css_color, safe, shortened};

/// Width of the drawing, in its own units.
const WIDTH: f64 = 1000.0;

/// Left edge of the time axis; names stand before it.
const AXIS_X: f64 = 210.0;

const ROW_HEIGHT: f64 = 18.0;
const AXIS_HEIGHT: f64 = 22.0;

/// Characters of a name that fit before the axis.
const NAME_CHARS: usize = 28;

/// Narrowest bar; a facing seen in one frame is seen on the page too.
const MIN_BAR: f64 = 2.0;

/// Ticks the axis has at most.
const MAX_TICKS: f64 = 8.0;

/// Distances between ticks that people read easily, in seconds.
const TICK_SECS: [f64; 16] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
    3600.0,
];

/// One facing.
#[derive(Clone, Debug)]
pub(super) struct TimelineRow {
    /// Stands before the bars.
    pub(super) name: String,
    pub(super) color: [u8; 3],
    /// Unknown facings have an outline as well, so that colour is not all that tells them.
    pub(super) unknown: bool,
    /// From when to when its tracks were seen, in seconds.
    pub(super) seen: Vec<(f64, f64)>,
    /// Anchor of its card, when it has one.
    pub(super) anchor: Option<String>,
}

/// Draws rows over a span of time; `marks` are the times of the pictures above.
pub(super) fn svg(rows: &[TimelineRow], span_secs: (f64, f64), marks: &[f64]) -> String {
    let (first, last) = span_secs;
    let length = if last > first { last - first } else { 1.0 };
    let x =
        |secs: f64| AXIS_X + ((secs - first) / length).clamp(0.0, 1.0) * (WIDTH - AXIS_X - 10.0);
    let height = AXIS_HEIGHT + rows.len() as f64 * ROW_HEIGHT + 4.0;
    let mut svg = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"When each of {} facings was in view, from {} to {}\">\n",
        rows.len(),
        clock(first),
        clock(last),
    );
    for secs in ticks(first, length) {
        let at = x(secs);
        svg += &format!(
            "<line class=\"tick\" x1=\"{at:.1}\" y1=\"{AXIS_HEIGHT}\" x2=\"{at:.1}\" y2=\"{height}\"/><text class=\"axis\" x=\"{at:.1}\" y=\"14\">{}</text>\n",
            clock(secs)
        );
    }
    for secs in marks.iter().filter(|s| s.is_finite()) {
        let at = x(*secs);
        svg += &format!(
            "<line class=\"mark\" x1=\"{at:.1}\" y1=\"{AXIS_HEIGHT}\" x2=\"{at:.1}\" y2=\"{height}\"/>\n"
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let top = AXIS_HEIGHT + number as f64 * ROW_HEIGHT;
        svg += &draw_row(row, top, &x);
    }
    svg + "</svg>\n"
}

fn draw_row(row: &TimelineRow, top: f64, x: &impl Fn(f64) -> f64) -> String {
    let name = format!(
        "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        AXIS_X - 8.0,
        top + 13.0,
        safe(&shortened(&row.name, NAME_CHARS))
    );
    let mut drawn = match &row.anchor {
        Some(anchor) => format!("<a href=\"#{}\">{name}</a>", safe(anchor)),
        None => name,
    };
    let class = if row.unknown { "bar unknown" } else { "bar" };
    for (from, to) in &row.seen {
        if !from.is_finite() || !to.is_finite() {
            continue;
        }
        let (left, right) = (x(*from), x(*to));
        drawn += &format!(
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\" rx=\"2\" fill=\"{}\"><title>{} from {} to {}</title></rect>",
            top + 3.0,
            (right - left).max(MIN_BAR),
            css_color(row.color),
            safe(&row.name),
            clock(*from),
            clock(*to)
        );
    }
    drawn + "\n"
}

/// Times of the ticks: round ones, at most [`MAX_TICKS`] and one.
fn ticks(first: f64, length: f64) -> Vec<f64> {
    let step = TICK_SECS
        .iter()
        .copied()
        .find(|step| length / step <= MAX_TICKS)
        .unwrap_or_else(|| (length / MAX_TICKS / 3600.0).ceil() * 3600.0);
    let start = (first / step).ceil();
    (0..=MAX_TICKS as u32)
        .map(|i| (start + f64::from(i)) * step)
        .take_while(|secs| *secs <= first + length)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, seen: &[(f64, f64)]) -> TimelineRow {
        TimelineRow {
            name: name.into(),
            color: [1, 2, 3],
            unknown: false,
            seen: seen.to_vec(),
            anchor: Some("s1-f1".into()),
        }
    }

    /// Left edge and width of every bar.
    fn bars(svg: &str) -> Vec<(f64, f64)> {
        let number = |part: &str, key: &str| -> f64 {
            let rest = part.split(&format!(" {key}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        svg.split("<rect")
            .skip(1)
            .map(|p| (number(p, "x"), number(p, "width")))
            .collect()
    }

    #[test]
    fn a_row_has_a_bar_for_each_time_its_facing_was_in_view() {
        let svg = svg(
            &[
                row("#1 cola", &[(0.0, 5.0), (7.5, 10.0)]),
                row("#2", &[(5.0, 5.0)]),
            ],
            (0.0, 10.0),
            &[2.5],
        );
        let axis = WIDTH - AXIS_X - 10.0;
        assert_eq!(
            bars(&svg),
            [
                (AXIS_X, axis / 2.0),
                (AXIS_X + axis * 0.75, axis / 4.0),
                (AXIS_X + axis / 2.0, MIN_BAR)
            ]
        );
        assert_eq!(svg.matches("class=\"mark\"").count(), 1);
        assert!(svg.contains("from 0:07.5 to 0:10.0"), "{svg}");
    }

    #[test]
    fn ticks_are_round_and_few_for_any_length() {
        assert_eq!(ticks(0.0, 2.0), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(ticks(6.877, 61.0), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        for length in [0.01, 1.0, 59.0, 3600.0, 1e6, 1e12] {
            let ticks = ticks(0.0, length);
            assert!((1..=9).contains(&ticks.len()), "{length}: {ticks:?}");
        }
    }

    #[test]
    fn times_that_are_no_numbers_and_names_that_are_markup_do_no_harm() {
        let hostile = row("<b onload='x'>", &[(f64::NAN, 1.0), (-1e300, 1e300)]);
        let svg = svg(&[hostile], (3.0, 3.0), &[f64::INFINITY]);
        assert!(
            !svg.contains("<b") && !svg.contains("NaN") && !svg.contains("inf"),
            "{svg}"
        );
        assert_eq!(bars(&svg).len(), 1);
    }
}
