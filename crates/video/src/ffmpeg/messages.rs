//! Making sense of what ffmpeg says on stderr.
//!
//! Two `showinfo` filters, named `seen` and `out`, print one line for every decoded and for every
//! delivered frame, with its exact time stamp in ticks. The rest is the description of the input,
//! warnings and errors.

use crate::SourceInfo;

/// Which of the two filters a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before anything was left out.
    Seen,
    /// What reaches our pipe.
    Out,
}

/// A line that matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Line {
    /// A filter starts, or starts again because the picture changed; seconds a tick.
    Config { stage: Stage, tick_secs: f64 },
    /// A frame went through.
    Frame {
        stage: Stage,
        /// Presentation time in ticks, when the source gives one.
        pts: Option<i64>,
        width: u32,
        height: u32,
        is_key: bool,
    },
}

/// Reads a line of one of the two filters.
pub(crate) fn parse_showinfo(line: &[u8]) -> Option<Line> {
    let rest = line.strip_prefix(b"[showinfo@")?;
    let (stage, rest) = if let Some(rest) = rest.strip_prefix(b"seen @ ") {
        (Stage::Seen, rest)
    } else {
        (Stage::Out, rest.strip_prefix(b"out @ ")?)
    };
    let text = std::str::from_utf8(rest).ok()?;
    let text = text.split_once("] [info] ")?.1;
    if let Some(config) = text.strip_prefix("config in time_base: ") {
        let (num, den) = config.split_once(',')?.0.split_once('/')?;
        let (num, den): (f64, f64) = (num.trim().parse().ok()?, den.trim().parse().ok()?);
        let tick_secs = num / den;
        return (tick_secs.is_finite() && tick_secs > 0.0)
            .then_some(Line::Config { stage, tick_secs });
    }
    if !text.starts_with("n:") {
        return None;
    }
    let pts = match field(text, " pts:")? {
        "NOPTS" => None,
        ticks => Some(ticks.parse().ok()?),
    };
    let (width, height) = field(text, " s:")?.split_once('x')?;
    Some(Line::Frame {
        stage,
        pts,
        width: width.parse().ok()?,
        height: height.parse().ok()?,
        is_key: field(text, " iskey:")? == "1",
    })
}

/// The word behind a name, with or without blanks between.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(name)? + name.len();
    text[at..].split_ascii_whitespace().next()
}

/// Importance of a line, from the prefix that `-loglevel level` puts into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Info,
    Warning,
    Error,
}

/// The importance of a line and its text without addresses, so that equal runs give equal texts.
pub(crate) fn weigh(line: &str) -> (Weight, String) {
    let (weight, mark) = [
        (Weight::Error, "[error] "),
        (Weight::Error, "[fatal] "),
        (Weight::Error, "[panic] "),
        (Weight::Warning, "[warning] "),
    ]
    .into_iter()
    .find(|(_, mark)| line.contains(mark))
    .unwrap_or((Weight::Info, "[info] "));
    let (context, text) = line.split_once(mark).unwrap_or(("", line));
    let context = context
        .trim_start_matches('[')
        .split(" @ ")
        .next()
        .unwrap_or_default()
        .trim();
    if context.is_empty() {
        (weight, text.trim().to_owned())
    } else {
        (weight, format!("{context}: {}", text.trim()))
    }
}

/// True for messages that come with whole files too: the raw output's dislike of equal times, the
/// search for a hardware decoder.
pub(crate) fn is_harmless(text: &str) -> bool {
    ["rawvideo: ", "AVHWDeviceContext: ", "null: "]
        .iter()
        .any(|context| text.starts_with(context))
        || text.contains("non monotonically increasing dts")
}

/// True for messages that say that a picture or a part of the file is lost or spoiled. A decoder
/// grumbles about more than that; a complaint alone is no damage.
pub(crate) fn is_damage(text: &str) -> bool {
    [
        "corrupt decoded frame",
        "corrupt input packet",
        "Packet corrupt",
        "partial file",
        "Error while decoding stream",
        "Error submitting packet to decoder",
        "truncated",
        "Truncated",
        "premature end",
        "Connection reset",
        "I/O error",
        "Input/output error",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}

/// What the description of the input says, collected line by line.
// Four independent yes-or-no facts, not a state in disguise.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Banner {
    pub(crate) info: SourceInfo,
    pub(crate) has_video: bool,
    pub(crate) has_other_streams: bool,
    in_input: bool,
    after_video: bool,
    sar: f64,
}

impl Banner {
    /// Takes the next line; lines of other parts are passed over.
    pub(crate) fn push(&mut self, line: &str) {
        let text = line.trim_start_matches("[info] ");
        if let Some(rest) = text.strip_prefix("Input #0, ") {
            self.in_input = true;
            self.info.container = rest.split(", from '").next().unwrap_or_default().into();
            return;
        }
        if ["Stream mapping:", "Output #", "Press [q]"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            self.in_input = false;
        }
        if !self.in_input {
            return;
        }
        let text = text.trim_start();
        if let Some(rest) = text.strip_prefix("Duration: ") {
            self.info.declared_duration_secs = clock_secs(word(rest));
            if let Some((_, start)) = rest.split_once("start: ") {
                self.info.start_secs = word(start).parse().unwrap_or(0.0);
            }
        } else if text.starts_with("Stream #0:") {
            self.after_video = false;
            match text.split_once(": Video: ") {
                Some((_, rest)) if !self.has_video && !rest.contains("(attached pic)") => {
                    self.has_video = true;
                    self.after_video = true;
                    self.video(rest);
                }
                _ => self.has_other_streams = true,
            }
        } else if self.after_video
            && let Some(rest) = text.strip_prefix("displaymatrix: rotation of ")
            && let Some(angle) = rest.split(' ').next().and_then(|a| a.parse::<f64>().ok())
        {
            // The matrix turns counter-clockwise, the field tells the turn clockwise.
            let quarter = (-angle / 90.0).round() as i64;
            self.info.rotation_degrees = quarter.rem_euclid(4) as u32 * 90;
        }
    }

    /// The description with the size as it is shown.
    pub(crate) fn upright(&self) -> SourceInfo {
        let mut info = self.info.clone();
        if self.sar > 0.0 {
            let wide = f64::from(info.width) * self.sar.clamp(SAR_MIN, SAR_MAX);
            info.width = wide.round().max(1.0) as u32;
        }
        if info.rotation_degrees % 180 == 90 {
            std::mem::swap(&mut info.width, &mut info.height);
        }
        info
    }

    fn video(&mut self, text: &str) {
        self.info.codec = word(text).into();
        for (i, part) in top_level_parts(text).enumerate() {
            let first = word(part);
            if let Some((width, height)) = first
                .split_once('x')
                .and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)))
            {
                (self.info.width, self.info.height) = (width, height);
                if let Some((_, sar)) = part.split_once("[SAR ")
                    && let Some((num, den)) = word(sar).split_once(':')
                    && let (Ok(num), Ok(den)) = (num.parse::<f64>(), den.parse::<f64>())
                    && num > 0.0
                    && den > 0.0
                {
                    self.sar = num / den;
                }
            } else if i == 1 {
                self.info.pixel_format = Some(first.split('(').next().unwrap_or(first).to_owned());
            } else if let Some(rate) = part.strip_suffix(" fps") {
                self.info.declared_fps = rate.trim().parse().ok();
            }
        }
    }
}

/// Widest and narrowest pixel that is made square; more is a mistake in the file.
pub(crate) const SAR_MIN: f64 = 0.125;
/// See [`SAR_MIN`].
pub(crate) const SAR_MAX: f64 = 8.0;

fn word(text: &str) -> &str {
    text.split([' ', ',']).next().unwrap_or_default()
}

/// Parts between commas that stand in no bracket.
fn top_level_parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c: char| {
        depth += i32::from(c == '(' || c == '[') - i32::from(c == ')' || c == ']');
        c == ',' && depth <= 0
    })
    .map(str::trim)
}

/// `hours:minutes:seconds` as seconds.
fn clock_secs(text: &str) -> Option<f64> {
    let mut total = 0.0;
    for part in text.split(':') {
        total = total * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_line_gives_the_exact_ticks_and_the_size() {
        let line = b"[showinfo@out @ 0x5592] [info] n:   3 pts: 123456789 pts_time:8.03756e+06 pos:  10 fmt:rgb24 sar:0/1 s:720x1280 i:P iskey:1 type:I ";
        assert_eq!(
            parse_showinfo(line),
            Some(Line::Frame {
                stage: Stage::Out,
                pts: Some(123_456_789),
                width: 720,
                height: 1280,
                is_key: true
            })
        );
        let line = b"[showinfo@seen @ 0x1] [info] n:0 pts:NOPTS pts_time:NOPTS duration:1 s:2x4 i:P iskey:0 type:P";
        assert!(matches!(
            parse_showinfo(line),
            Some(Line::Frame {
                stage: Stage::Seen,
                pts: None,
                width: 2,
                height: 4,
                is_key: false
            })
        ));
        let line = b"[showinfo@seen @ 0x1] [info] config in time_base: 1/90000, frame_rate: 25/1";
        assert_eq!(
            parse_showinfo(line),
            Some(Line::Config {
                stage: Stage::Seen,
                tick_secs: 1.0 / 90000.0
            })
        );
    }

    #[test]
    fn text_that_only_looks_like_a_frame_line_is_none() {
        for line in [
            "[info]     title : [showinfo@out @ 0x1] [info] n: 0 pts: 0 s:1x1 iskey:1",
            "[showinfo@out @ 0x1] [info]   side data - pts: 1",
            "[showinfo@out @ 0x1] [info] n: 1 pts: 1x s:1x1 iskey:1",
            "[showinfo@out @ 0x1] [info] config in time_base: 0/0, frame_rate: 0/0",
        ] {
            assert_eq!(parse_showinfo(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_description_of_a_phone_clip_is_turned_upright() {
        let mut banner = Banner::default();
        for line in [
            "[info] Input #0, mov,mp4,m4a,3gp,3g2,mj2, from 'file:a.mov':",
            "[info]   Duration: 01:02:03.50, start: 6.876778, bitrate: 1235 kb/s",
            "[info]   Stream #0:0[0x1](eng): Audio: aac (LC) (mp4a / 0x6134706D), 44100 Hz",
            "[info]   Stream #0:1[0x1]: Video: h264 (Baseline) (avc1 / 0x31637661), yuv420p(tv, bt709, progressive), 568x320 [SAR 2:1 DAR 4:3], 1172 kb/s, 29.97 fps, 30 tbr, 19200 tbn (default)",
            "[info]       displaymatrix: rotation of -90.00 degrees",
            "[info] Stream mapping:",
            "[info]   Stream #0:0: Video: rawvideo (RGB[24] / 0x18424752), rgb24, 1x1, 30 fps",
        ] {
            banner.push(line);
        }
        let info = banner.upright();
        assert_eq!(
            (info.width, info.height, info.rotation_degrees),
            (320, 1136, 90)
        );
        assert_eq!(info.codec, "h264");
        assert_eq!(info.container, "mov,mp4,m4a,3gp,3g2,mj2");
        assert_eq!(info.pixel_format.as_deref(), Some("yuv420p"));
        assert_eq!(info.declared_fps, Some(29.97));
        assert_eq!(info.declared_duration_secs, Some(3723.5));
        assert_eq!(info.start_secs, 6.876778);
        assert!(banner.has_other_streams);
    }

    #[test]
    fn a_cover_picture_is_no_video() {
        let mut banner = Banner::default();
        banner.push("[info] Input #0, mp3, from 'file:a.mp3':");
        banner.push("[info]   Stream #0:1: Video: mjpeg (Baseline), yuvj420p(pc), 100x100, 90k tbr (attached pic)");
        assert!(!banner.has_video && banner.has_other_streams);
    }

    #[test]
    fn damage_is_told_apart_from_grumbling() {
        let (weight, text) = weigh("[h264 @ 0x55f5] [error] mmco: unref short failure");
        assert_eq!(
            (weight, text.as_str()),
            (Weight::Error, "h264: mmco: unref short failure")
        );
        assert!(!is_damage(&text) && !is_harmless(&text));
        let (weight, text) = weigh("[warning] file:a.mp4: corrupt decoded frame in stream 0");
        assert!(weight == Weight::Warning && is_damage(&text));
        let (_, text) = weigh(
            "[rawvideo @ 0x1] [error] Application provided invalid, non monotonically increasing dts to muxer",
        );
        assert!(is_harmless(&text));
        let (_, text) = weigh("[AVHWDeviceContext @ 0x1] [error] libva: open failed");
        assert!(is_harmless(&text));
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), tail in ".*") {
            parse_showinfo(&bytes);
            let prefixed = [b"[showinfo@out @ 0x1] [info] n:".as_slice(), &bytes].concat();
            parse_showinfo(&prefixed);
            let mut banner = Banner::default();
            banner.push("[info] Input #0, x, from 'y':");
            for start in ["  Stream #0:0: Video: ", "  Duration: ", "", "displaymatrix: rotation of "] {
                banner.push(&format!("[info] {start}{tail}"));
                banner.push(&format!("[info] {start}{}", String::from_utf8_lossy(&bytes)));
            }
            banner.upright();
            weigh(&tail);
        }
    }
}
