//! The command line of the decoder.

use std::{ffi::OsString, path::Path, process::Command};

use super::{
    locate::tool,
    messages::{SAR_MAX, SAR_MIN},
};
use crate::{ReadOptions, select::CELL_LIFT};

/// Input options and the `-i` argument, apart from what concerns every input.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Input {
    pub(crate) before: Vec<OsString>,
    pub(crate) address: OsString,
}

/// How one run of the decoder leaves out what is not wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Jump to the key frame before this time first.
    pub(crate) seek_secs: Option<f64>,
    /// Decode key frames alone.
    pub(crate) skip_nokey: bool,
    /// Index of the first frame that comes out of the decoder.
    pub(crate) base: u64,
    /// Let the decoder's own filter count frames. It counts from 0 again when the size of the
    /// picture changes, so such a source is counted here.
    pub(crate) count_in_filter: bool,
}

/// The whole command: raw RGB to our pipe, one line for every frame to stderr.
pub(crate) fn decode_command(
    program: &Path,
    input: &Input,
    plan: &Plan,
    options: &ReadOptions,
) -> Command {
    let mut command = tool(program);
    command.args([
        "-hide_banner",
        "-nostdin",
        "-nostats",
        "-loglevel",
        "level+info",
    ]);
    let max_pixels = options.limits.max_pixels.min(i32::MAX as u64);
    command.args(["-max_pixels", &max_pixels.to_string()]);
    if plan.skip_nokey {
        command.args(["-skip_frame", "nokey"]);
    }
    if let Some(secs) = plan.seek_secs {
        // The clock is the source's own, and what lies before the wanted time is left out by the
        // filter, whose rounding is ours.
        command.args(["-noaccurate_seek", "-seek_timestamp", "1"]);
        command.args(["-ss", &format!("{secs:.6}")]);
    }
    command
        .arg("-copyts")
        .args(&input.before)
        .arg("-i")
        .arg(&input.address)
        // `V` leaves out cover pictures. Without `-autoscale 0` a change of size in the middle
        // makes the two sides wait for each other.
        .args(["-map", "0:V:0", "-an", "-sn", "-dn", "-autoscale", "0"])
        .args(["-fps_mode", "passthrough", "-vf", &filters(plan, options)])
        .args([
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-flush_packets",
            "1",
            "pipe:1",
        ]);
    command
}

/// The chain of filters. It may let through more than is wanted, never less; the reader decides.
pub(crate) fn filters(plan: &Plan, options: &ReadOptions) -> String {
    let mut wanted = Vec::new();
    if options.keyframes_only && !plan.skip_nokey {
        wanted.push("key".to_owned());
    }
    if let Some(start) = options.start_secs {
        wanted.push(format!("(isnan(t)+gte(t\\,{start}))"));
    }
    if let Some(end) = options.end_secs {
        wanted.push(format!("(isnan(t)+lt(t\\,{end}))"));
    }
    if let Some(fps) = options.fps {
        let cell = |t: &str| format!("floor({t}*{fps}+{CELL_LIFT})");
        wanted.push(format!(
            "(isnan(t)+isnan(prev_selected_t)+gt({}\\,{}))",
            cell("t"),
            cell("prev_selected_t")
        ));
    }
    if plan.count_in_filter && !plan.skip_nokey {
        let index = format!("(n+{})", plan.base);
        if options.every > 1 && !options.keyframes_only {
            wanted.push(format!("not(mod({index}\\,{}))", options.every));
        }
        // With a rate, the frames before the resume point decide which one comes next.
        if let Some(after) = options.after_index.filter(|_| options.fps.is_none()) {
            wanted.push(format!("gt({index}\\,{after})"));
        }
    }
    let select = if wanted.is_empty() {
        String::new()
    } else {
        format!("select={},", wanted.join("*"))
    };
    format!(
        "showinfo@seen=checksum=0,{select}\
         scale=w=max(1\\,round(iw*clip(sar\\,{SAR_MIN}\\,{SAR_MAX}))):h=ih,setsar=1,\
         format=rgb24,showinfo@out=checksum=0"
    )
}

/// True when the filters count frames, so that a restart of the filters would be noticed.
pub(crate) fn counts_frames(options: &ReadOptions) -> bool {
    options.every > 1 || options.after_index.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        seek_secs: None,
        skip_nokey: false,
        base: 30,
        count_in_filter: true,
    };

    #[test]
    fn nothing_is_selected_when_all_is_wanted() {
        assert!(!filters(&PLAN, &ReadOptions::default()).contains("select"));
    }

    #[test]
    fn the_filter_skips_what_is_not_wanted_and_counts_from_the_base() {
        let options = ReadOptions {
            every: 5,
            start_secs: Some(1.5),
            after_index: Some(44),
            ..Default::default()
        };
        let text = filters(&PLAN, &options);
        assert!(text.contains("gte(t\\,1.5)"), "{text}");
        assert!(text.contains("not(mod((n+30)\\,5))"), "{text}");
        assert!(text.contains("gt((n+30)\\,44)"), "{text}");
        let plan = Plan {
            count_in_filter: false,
            ..PLAN
        };
        assert!(!filters(&plan, &options).contains("(n+"));
    }

    #[test]
    fn a_name_like_an_option_stays_one_argument() {
        let input = Input {
            before: vec![],
            address: super::super::locate::file_argument(Path::new("-y\n:x.mp4")),
        };
        let command = decode_command(Path::new("ffmpeg"), &input, &PLAN, &ReadOptions::default());
        let args: Vec<_> = command.get_args().collect();
        let at = args.iter().position(|a| *a == "-i").unwrap();
        assert_eq!(args[at + 1], "file:-y\n:x.mp4");
    }
}
