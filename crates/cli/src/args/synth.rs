//! Arguments of `synth`.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};

/// Arguments of `shelfscan synth`.
#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// Write into this folder, which has to be empty or not there yet.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Decides products, shelf, light and the camera's shake. Seeds from 1000000 on show products
    /// that no smaller seed shows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Frames of the clip.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) frames: u32,
    /// Width and height of a frame in pixels.
    #[arg(long, value_name = "WxH", default_value = "960x540")]
    pub(crate) size: SizeArg,
    /// Frames a second.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    pub(crate) fps: f64,
    /// How the camera moves.
    #[arg(long, value_name = "PLAN", value_enum, default_value_t = PlanArg::Return)]
    pub(crate) plan: PlanArg,
    /// How frames are written: as pictures, or as one uncompressed clip.y4m.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = FormatArg::Jpeg)]
    pub(crate) format: FormatArg,
    /// Boards above each other.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rows: u32,
    /// Products to enrol.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) skus: usize,
    /// Further products that get no views, so that a gallery made of the views does not know them.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) strangers: usize,
    /// Pictures of each product to enrol; 0 for no folder of views.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) views: u32,
    /// Leave the masks out of truth.jsonl, which makes it much smaller.
    #[arg(long)]
    pub(crate) no_masks: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the camera moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanArg {
    /// From the left end to the right one.
    Pan,
    /// From the left end to the right one and back.
    Return,
    /// In an unsteady hand.
    Shake,
    /// On a stand.
    Still,
    /// Nearer and back.
    Zoom,
}

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// 000000.jpg and so on.
    Jpeg,
    /// 000000.png and so on, without loss.
    Png,
    /// One uncompressed clip.y4m.
    Y4m,
}

/// Width and height: `960x540`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeArg {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl FromStr for SizeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (width, height) = text
            .split_once(['x', 'X'])
            .ok_or("it is WIDTHxHEIGHT, such as 960x540")?;
        let side = |text: &str| {
            text.trim().parse().map_err(|_| {
                format!("{text:?} is no number of pixels; it is WIDTHxHEIGHT, such as 960x540")
            })
        };
        Ok(Self {
            width: side(width)?,
            height: side(height)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_with_an_x_between() {
        let size: SizeArg = "640x360".parse().unwrap();
        assert_eq!((size.width, size.height), (640, 360));
        for bad in ["640", "640x", "ax9", "-1x4", "1x2x3", ""] {
            let error = bad.parse::<SizeArg>().unwrap_err();
            assert!(error.contains("960x540"), "{error}");
        }
    }
}
