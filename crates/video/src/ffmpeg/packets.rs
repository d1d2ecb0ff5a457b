//! The packet list of a file, read without decoding, so that a frame reached by seeking knows its
//! index.

use std::{path::Path, process::Command, time::Duration};

use super::{
    locate::{file_argument, tool},
    process,
};

/// Most packets that are kept in memory: a day at 60 frames a second.
const MAX_PACKETS: usize = 86_400 * 60;

/// When the frames of a file are shown, in presentation order, as its index of packets says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PacketTimes {
    /// Ascending times in seconds.
    secs: Vec<f64>,
    /// The ones of `secs` that are key frames, ascending.
    key_secs: Vec<f64>,
    /// Half a tick; times closer than this are the same.
    slack_secs: f64,
}

impl PacketTimes {
    /// Number of frames shown before `secs`, which is the index of the frame shown at it.
    pub(crate) fn index_at(&self, secs: f64) -> u64 {
        self.secs.partition_point(|t| *t < secs - self.slack_secs) as u64
    }

    /// Time of the last key frame at or before `secs`.
    pub(crate) fn key_before(&self, secs: f64) -> Option<f64> {
        let count = self
            .key_secs
            .partition_point(|t| *t <= secs + self.slack_secs);
        count.checked_sub(1).map(|i| self.key_secs[i])
    }
}

/// Number of frames the container declares for its video, when it does.
pub(crate) fn declared_frames(ffprobe: &Path, file: &Path, stall: Duration) -> Option<u64> {
    let mut found = None;
    let mut command = ffprobe_command(ffprobe);
    command
        .args(["-show_entries", "stream=nb_frames"])
        .arg(file_argument(file));
    process::run(&mut command, stall, |line| {
        if let Some(value) = compact(line, "stream").and_then(|f| value(f, "nb_frames")) {
            found = found.or(value.parse().ok());
        }
    })
    .ok()?;
    found
}

/// Lists the packets up to `until_secs`, or all. `None` when a packet has no time, when there are
/// too many, or when the list cannot be had; then nothing must be skipped undecoded.
pub(crate) fn packet_times(
    ffprobe: &Path,
    file: &Path,
    until_secs: Option<f64>,
    stall: Duration,
) -> Option<PacketTimes> {
    let mut command = ffprobe_command(ffprobe);
    if let Some(until) = until_secs {
        command.args(["-read_intervals", &format!("%{:.3}", until.max(0.0))]);
    }
    command
        .args(["-show_entries", "packet=pts,flags:stream=time_base"])
        .arg(file_argument(file));
    let mut list = Listing::default();
    let finished = process::run(&mut command, stall, |line| list.push(line)).ok()?;
    finished
        .status
        .is_some_and(|s| s.success())
        .then(|| list.finish())
        .flatten()
}

fn ffprobe_command(ffprobe: &Path) -> Command {
    let mut command = tool(ffprobe);
    command
        .args(["-v", "error", "-protocol_whitelist", "file,crypto,data"])
        .args(["-select_streams", "V:0", "-of", "compact"]);
    command
}

#[derive(Debug, Default)]
struct Listing {
    packets: Vec<(i64, bool)>,
    tick_secs: Option<f64>,
    unusable: bool,
}

impl Listing {
    fn push(&mut self, line: &[u8]) {
        if let Some(fields) = compact(line, "packet") {
            let flags = value(fields, "flags").unwrap_or_default();
            // Packets before an edit's start are decoded and never shown.
            if flags.contains('D') {
                return;
            }
            match value(fields, "pts").and_then(|pts| pts.parse().ok()) {
                Some(pts) if self.packets.len() < MAX_PACKETS => {
                    self.packets.push((pts, flags.contains('K')));
                }
                _ => self.unusable = true,
            }
        } else if let Some(base) = compact(line, "stream").and_then(|f| value(f, "time_base"))
            && let Some((num, den)) = base.split_once('/')
            && let (Ok(num), Ok(den)) = (num.parse::<f64>(), den.parse::<f64>())
        {
            self.tick_secs = Some(num / den);
        }
    }

    fn finish(mut self) -> Option<PacketTimes> {
        let tick_secs = self.tick_secs.filter(|t| t.is_finite() && *t > 0.0)?;
        if self.unusable || self.packets.is_empty() {
            return None;
        }
        self.packets.sort_unstable();
        let secs = |pts: i64| pts as f64 * tick_secs;
        Some(PacketTimes {
            secs: self.packets.iter().map(|(pts, _)| secs(*pts)).collect(),
            key_secs: self
                .packets
                .iter()
                .filter(|(_, key)| *key)
                .map(|(pts, _)| secs(*pts))
                .collect(),
            slack_secs: tick_secs / 2.0,
        })
    }
}

/// The fields of a line of the wanted section.
fn compact<'a>(line: &'a [u8], section: &str) -> Option<&'a str> {
    std::str::from_utf8(line)
        .ok()?
        .strip_prefix(section)?
        .strip_prefix('|')
}

fn value<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields
        .split('|')
        .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(lines: &[&str]) -> Option<PacketTimes> {
        let mut list = Listing::default();
        for line in lines {
            list.push(line.as_bytes());
        }
        list.finish()
    }

    #[test]
    fn packets_in_decoding_order_are_counted_in_showing_order() {
        let times = listed(&[
            "packet|pts=0|flags=K__",
            "packet|pts=1536|flags=___",
            "packet|pts=512|flags=___",
            "packet|pts=-512|flags=_D_",
            "packet|pts=1024|flags=K__",
            "stream|time_base=1/512",
        ])
        .unwrap();
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 4.0].map(|t| times.index_at(t)),
            [0, 1, 2, 3, 4]
        );
        assert_eq!(times.key_before(1.9), Some(0.0));
        assert_eq!(times.key_before(2.0), Some(2.0));
        assert_eq!(times.key_before(-1.0), None);
    }

    #[test]
    fn a_packet_without_a_time_makes_the_list_unusable() {
        assert_eq!(
            listed(&["packet|pts=N/A|flags=K_", "stream|time_base=1/512"]),
            None
        );
        assert_eq!(listed(&["packet|pts=3|flags=K_"]), None);
        assert_eq!(listed(&["stream|time_base=1/512"]), None);
    }

    proptest! {
        #[test]
        fn any_listing_is_read_without_a_panic(lines in proptest::collection::vec("(packet|stream)?[|=a-zA-Z_/0-9-]{0,30}", 0..20)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            if let Some(times) = listed(&lines) {
                times.index_at(0.5);
            }
        }
    }
}
