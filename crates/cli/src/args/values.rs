//! Values that are more than a word or a number.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use shelfscan_inference_core::{BoxXyxy, TextPrompt};
use shelfscan_pipeline::{Annotate, Region};
use shelfscan_provider_cpu::Tiling;

/// A setting that may come from a higher or a lower place.
pub(crate) trait Prefer {
    /// This setting, or the other where this one was not given.
    #[must_use]
    fn prefer(self, lower: Self) -> Self;
}

impl<T> Prefer for Option<T> {
    fn prefer(self, lower: Self) -> Self {
        self.or(lower)
    }
}

impl<T> Prefer for Vec<T> {
    fn prefer(self, lower: Self) -> Self {
        if self.is_empty() { lower } else { self }
    }
}

/// Implements [`Prefer`] field by field; a field that is left out does not compile.
macro_rules! prefer_fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::args::Prefer for $name {
            fn prefer(self, lower: Self) -> Self {
                Self { $($field: $crate::args::Prefer::prefer(self.$field, lower.$field)),* }
            }
        }
    };
}
pub(super) use prefer_fields;

/// Endings that show that a picture was meant where a phrase belongs.
const PICTURE_ENDINGS: [&str; 9] = [
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic",
];

/// A phrase to look for, and the label its finds carry: `PHRASE` or `PHRASE=LABEL`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PromptArg(pub(crate) TextPrompt);

impl PromptArg {
    /// True when this is the path of a picture rather than a phrase.
    pub(crate) fn is_picture(&self) -> bool {
        let phrase = self.0.phrase.to_lowercase();
        PICTURE_ENDINGS
            .iter()
            .any(|ending| phrase.ends_with(ending))
    }
}

impl FromStr for PromptArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prompt = match text.split_once('=') {
            Some((phrase, label)) => TextPrompt::labelled(phrase, label),
            None => TextPrompt::new(text),
        };
        prompt.map(Self).map_err(|e| e.to_string())
    }
}

impl TryFrom<String> for PromptArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PromptArg> for String {
    fn from(PromptArg(prompt): PromptArg) -> Self {
        if prompt.phrase == prompt.label {
            prompt.phrase.to_string()
        } else {
            format!("{}={}", prompt.phrase, prompt.label)
        }
    }
}

/// A part of the picture: `NAME=x0,y0,x1,y1` in source pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RegionArg(pub(crate) Region);

impl FromStr for RegionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no region; write NAME=x0,y0,x1,y1 in source pixels, as in top=0,0,1280,360"
            )
        };
        let (name, numbers) = text.split_once('=').ok_or_else(wrong)?;
        let sides: Vec<f32> = numbers
            .split(',')
            .map(|n| n.trim().parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        let sides: [f32; 4] = sides.try_into().map_err(|_| wrong())?;
        let bbox = BoxXyxy::from(sides);
        if name.trim().is_empty() || !bbox.is_valid() {
            return Err(wrong());
        }
        Ok(Self(Region {
            name: name.trim().into(),
            bbox,
        }))
    }
}

impl TryFrom<String> for RegionArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RegionArg> for String {
    fn from(RegionArg(Region { name, bbox }): RegionArg) -> Self {
        format!("{name}={},{},{},{}", bbox.x0, bbox.y0, bbox.x1, bbox.y1)
    }
}

/// How a picture is cut for the detector: `off`, `auto`, COLUMNSxROWS or whole+COLUMNSxROWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TilesArg(pub(crate) Tiling);

impl TilesArg {
    /// True for what cuts a picture.
    pub(crate) fn cuts(&self) -> bool {
        self.0 != Tiling::Off
    }
}

impl FromStr for TilesArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no tiling; write off, auto, columns and rows from 1 to 8 as in 2x2, or those beside the whole picture as in whole+2x2"
            )
        };
        let tiling = match text {
            "off" => Tiling::Off,
            "auto" => Tiling::Auto,
            _ => {
                let grid = text.strip_prefix("whole+");
                let (columns, rows) = grid.unwrap_or(text).split_once('x').ok_or_else(wrong)?;
                let side = |n: &str| n.parse().ok().filter(|n| (1..=8).contains(n));
                let columns = side(columns).ok_or_else(wrong)?;
                let rows = side(rows).ok_or_else(wrong)?;
                if grid.is_some() {
                    Tiling::Layers { columns, rows }
                } else {
                    Tiling::Grid { columns, rows }
                }
            }
        };
        Ok(Self(tiling))
    }
}

impl TryFrom<String> for TilesArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TilesArg> for String {
    fn from(TilesArg(tiling): TilesArg) -> Self {
        tiling.to_string()
    }
}

/// What the models run on: `auto`, `cpu`, `cuda`, `cuda:N` or `metal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum DeviceArg {
    /// The fastest there is.
    #[default]
    Auto,
    Cpu,
    /// A card by its number.
    Cuda(usize),
    Metal,
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no device; write auto, cpu, cuda, cuda:N or metal");
        Ok(match text {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "cuda" => Self::Cuda(0),
            "metal" => Self::Metal,
            _ => {
                let card = text.strip_prefix("cuda:").ok_or_else(wrong)?;
                Self::Cuda(card.parse().map_err(|_| wrong())?)
            }
        })
    }
}

impl fmt::Display for DeviceArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(card) => write!(f, "cuda:{card}"),
            Self::Metal => f.write_str("metal"),
        }
    }
}

impl TryFrom<String> for DeviceArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceArg> for String {
    fn from(device: DeviceArg) -> Self {
        device.to_string()
    }
}

/// The type a model calculates in: `f32`, `bf16` or `f16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum DtypeArg {
    #[default]
    F32,
    Bf16,
    F16,
}

impl DtypeArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

impl FromStr for DtypeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::F32, Self::Bf16, Self::F16]
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| format!("`{text}` is no type to calculate in; write f32, bf16 or f16"))
    }
}

impl TryFrom<String> for DtypeArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DtypeArg> for String {
    fn from(dtype: DtypeArg) -> Self {
        dtype.name().into()
    }
}

/// Whether to keep a record for people to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnnotateArg {
    /// None.
    Off,
    /// An H.264 clip with boxes, ids and SKUs; needs ffmpeg.
    Video,
    /// A folder of JPEG pictures with the same.
    Frames,
}

impl From<AnnotateArg> for Annotate {
    fn from(arg: AnnotateArg) -> Self {
        match arg {
            AnnotateArg::Off => Self::Off,
            AnnotateArg::Video => Self::Video,
            AnnotateArg::Frames => Self::Frames,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_a_name_and_four_sides() {
        let RegionArg(region) = "top shelf=0, 10,640,200.5".parse().unwrap();
        assert_eq!(region.name, "top shelf");
        assert_eq!(region.bbox, BoxXyxy::new(0.0, 10.0, 640.0, 200.5));
        for bad in [
            "",
            "top",
            "top=1,2,3",
            "top=1,2,3,x",
            "=0,0,1,1",
            "top=5,0,5,9",
            "top=0,0,nan,9",
        ] {
            let text = bad.parse::<RegionArg>().unwrap_err();
            assert!(text.contains("NAME=x0,y0,x1,y1"), "{text}");
        }
    }

    #[test]
    fn values_survive_being_written_into_a_file() {
        for text in ["product", "soda can=drink"] {
            let prompt: PromptArg = text.parse().unwrap();
            assert_eq!(String::from(prompt), text);
        }
        let region: RegionArg = "a=0,0,5,5.5".parse().unwrap();
        assert_eq!(String::from(region), "a=0,0,5,5.5");
    }

    #[test]
    fn tiles_are_a_word_or_columns_and_rows() {
        for text in ["off", "auto", "2x2", "8x1", "whole+2x2"] {
            let tiles: TilesArg = text.parse().unwrap();
            assert_eq!(String::from(tiles), text);
        }
        for bad in ["", "2", "0x2", "2x9", "2x", "AUTO", "whole", "whole+"] {
            let text = bad.parse::<TilesArg>().unwrap_err();
            assert!(text.contains("as in 2x2"), "{text}");
        }
    }

    #[test]
    fn devices_and_types_are_words_that_survive_being_written() {
        for text in ["auto", "cpu", "cuda:3", "metal"] {
            let device: DeviceArg = text.parse().unwrap();
            assert_eq!(String::from(device), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceArg::Cuda(0)));
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            let text = bad.parse::<DeviceArg>().unwrap_err();
            assert!(text.contains("cuda:N"), "{text}");
        }
        for text in ["f32", "bf16", "f16"] {
            let dtype: DtypeArg = text.parse().unwrap();
            assert_eq!(String::from(dtype), text);
        }
        assert!("fp16".parse::<DtypeArg>().unwrap_err().contains("bf16"));
    }

    #[test]
    fn a_picture_is_told_from_a_phrase() {
        let is = |text: &str| text.parse::<PromptArg>().unwrap().is_picture();
        assert!(is("refs/cola.JPG"));
        assert!(!is("cola bottle"));
    }

    #[test]
    fn what_was_given_higher_up_wins() {
        assert_eq!(Some(1).prefer(Some(2)), Some(1));
        assert_eq!(None.prefer(Some(2)), Some(2));
        assert_eq!(Vec::new().prefer(vec![1]), [1]);
        assert_eq!(vec![3].prefer(vec![1]), [3]);
    }
}
