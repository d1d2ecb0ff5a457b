//! The plot of an evaluation: top-1 by number of views, and false rejects by false accepts.

use super::EvalReport;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 430.0;
const PANEL: f64 = 340.0;
const TOP: f64 = 50.0;
const LEFT_PANEL: f64 = 70.0;
const RIGHT_PANEL: f64 = 560.0;
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
];

impl EvalReport {
    /// The plot as an SVG file.
    pub fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let most = self.protocol.views.iter().max().copied().unwrap_or(1);
        let least = self.protocol.views.iter().min().copied().unwrap_or(1);
        let span = (most - least).max(1) as f64;
        let mut ticks = self.protocol.views.clone();
        ticks.sort_unstable();
        ticks.dedup();
        let ticks: Vec<(f64, String)> = ticks
            .iter()
            .map(|k| ((k - least) as f64 / span, k.to_string()))
            .collect();
        axes(&mut svg, LEFT_PANEL, "Top-1 (%)", "views per SKU", &ticks);
        let percents: Vec<(f64, String)> = (0..=5)
            .map(|i| (f64::from(i) / 5.0, (i * 20).to_string()))
            .collect();
        let title = "False rejects (%) by false accepts (%)";
        axes(
            &mut svg,
            RIGHT_PANEL,
            title,
            "strangers accepted (%)",
            &percents,
        );
        for (i, method) in self.methods.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let mut points: Vec<(f64, f64)> = method
                .views
                .iter()
                .filter_map(|r| Some(((r.views - least) as f64 / span, r.top1?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            line(&mut svg, LEFT_PANEL, &points, colour);
            for point in &points {
                dot(&mut svg, LEFT_PANEL, *point, colour);
            }
            let curve: Vec<(f64, f64)> = method
                .curve
                .iter()
                .map(|p| (p.false_accept, p.false_reject))
                .collect();
            line(&mut svg, RIGHT_PANEL, &curve, colour);
            legend(&mut svg, LEFT_PANEL, i, &method.name, colour);
            let auroc = method
                .views
                .iter()
                .find(|r| r.views == method.curve_views)
                .and_then(|r| r.auroc);
            if let Some(auroc) = auroc {
                let text = format!(
                    "{}, {} views, AUROC {auroc:.3}",
                    method.name, method.curve_views
                );
                legend(&mut svg, RIGHT_PANEL, i, &text, colour);
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A frame with a title, a grid of fifths in height, and labelled ticks in width (shares of it).
fn axes(svg: &mut String, x: f64, title: &str, below: &str, ticks: &[(f64, String)]) {
    let bottom = TOP + PANEL;
    let middle = x + PANEL / 2.0;
    push(
        svg,
        format_args!(
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"15\">{}</text>",
            TOP - 18.0,
            escape(title)
        ),
    );
    for fifth in 0..=5 {
        let y = bottom - f64::from(fifth) / 5.0 * PANEL;
        push(
            svg,
            format_args!(
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                x + PANEL,
                x - 8.0,
                y + 4.0,
                fifth * 20
            ),
        );
    }
    for (share, label) in ticks {
        let at = x + share * PANEL;
        push(
            svg,
            format_args!(
                "<line x1=\"{at}\" y1=\"{bottom}\" x2=\"{at}\" y2=\"{}\" stroke=\"#333\"/><text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                escape(label)
            ),
        );
    }
    push(
        svg,
        format_args!(
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text><rect x=\"{x}\" y=\"{TOP}\" width=\"{PANEL}\" height=\"{PANEL}\" fill=\"none\" stroke=\"#333\"/>",
            bottom + 36.0,
            escape(below)
        ),
    );
}

/// A line through points whose sides are shares of the panel, from its lower left corner.
fn line(svg: &mut String, x: f64, points: &[(f64, f64)], colour: &str) {
    if points.len() < 2 {
        return;
    }
    let path: Vec<String> = points.iter().map(|p| place(x, *p)).collect();
    push(
        svg,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        ),
    );
}

fn dot(svg: &mut String, x: f64, point: (f64, f64), colour: &str) {
    let at = place(x, point);
    if let Some((cx, cy)) = at.split_once(',') {
        push(
            svg,
            format_args!("<circle cx=\"{cx}\" cy=\"{cy}\" r=\"4\" fill=\"{colour}\"/>"),
        );
    }
}

fn place(x: f64, (right, up): (f64, f64)) -> String {
    format!(
        "{:.1},{:.1}",
        x + right.clamp(0.0, 1.0) * PANEL,
        TOP + PANEL - up.clamp(0.0, 1.0) * PANEL
    )
}

fn legend(svg: &mut String, x: f64, row: usize, text: &str, colour: &str) {
    let y = TOP + 20.0 + row as f64 * 18.0;
    let right = x + PANEL - 12.0;
    push(
        svg,
        format_args!(
            "<text x=\"{right}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            escape(text)
        ),
    );
}

fn push(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.push_str(&text.to_string());
    svg.push('\n');
}

fn escape(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => clean.push_str("&amp;"),
            '<' => clean.push_str("&lt;"),
            '>' => clean.push_str("&gt;"),
            '"' => clean.push_str("&quot;"),
            // XML has no place for control characters, whatever a file is called.
            c if c.is_control() => clean.push('\u{FFFD}'),
            c => clean.push(c),
        }
    }
    clean
}
