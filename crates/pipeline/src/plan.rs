//! All decisions of a scan, made once.
//!
//! Below the plan nobody looks at the environment, the terminal or the clock. It is written into
//! the output, so that a result says how it came about, and a resumed scan must match it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Serialize;
use shelfscan_video::Source;

use crate::{PipelineError, Region, Result, ScanOptions};

/// One share of a list of sources, for scanning on several machines: share `index` of `count`,
/// counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shard {
    /// Which share, from 1.
    pub index: u32,
    /// How many shares there are.
    pub count: u32,
}

impl std::str::FromStr for Shard {
    type Err = PipelineError;

    /// Reads `2/3`.
    fn from_str(text: &str) -> Result<Self> {
        let parsed = text
            .split_once('/')
            .and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if index >= 1 && index <= count => Ok(Self { index, count }),
            _ => Err(PipelineError::Usage(format!(
                "`{text}` is no shard; write 2/3 for the second of three"
            ))),
        }
    }
}

/// A source and where its results go.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// What is read.
    pub source: Source,
    /// Folder of its results, a single safe name below the output folder.
    pub folder: String,
}

/// All decisions of a scan. Made by [`ScanPlan::new`]; the same input gives the same plan.
#[derive(Clone, Debug)]
pub struct ScanPlan {
    /// What was asked for, checked.
    pub options: ScanOptions,
    /// The sources, sorted by name, each once.
    pub sources: Vec<SourcePlan>,
    /// Where results go; `None` keeps them in memory only.
    pub out: Option<PathBuf>,
}

impl ScanPlan {
    /// Checks the options and names a folder for every source.
    ///
    /// Sources are sorted and named before the shard is taken, so every machine that is given the
    /// same list makes the same split and the same folder names.
    ///
    /// # Errors
    /// [`PipelineError::Usage`] naming the option that cannot be met.
    pub fn new(
        options: ScanOptions,
        sources: Vec<Source>,
        out: Option<&Path>,
        shard: Option<Shard>,
    ) -> Result<Self> {
        check(&options)?;
        if sources.is_empty() {
            return Err(PipelineError::Usage(
                "no source to scan; give a video file, a folder of pictures or camera:0".into(),
            ));
        }
        let mut named: Vec<(String, Source)> = sources
            .into_iter()
            .map(|source| (source.id().as_str().to_owned(), source))
            .collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named.dedup_by(|a, b| a.0 == b.0);
        let mut taken = BTreeSet::new();
        let all = named.into_iter().map(|(id, source)| SourcePlan {
            folder: unique_folder(&id, &mut taken),
            source,
        });
        let sources = match shard {
            None => all.collect(),
            Some(shard) => all
                .enumerate()
                .filter(|(i, _)| *i as u32 % shard.count == shard.index - 1)
                .map(|(_, source)| source)
                .collect(),
        };
        Ok(Self {
            options,
            sources,
            out: out.map(Path::to_owned),
        })
    }

    /// The part of the plan that results depend on, as JSON. Two runs with equal values are
    /// comparable frame by frame.
    ///
    /// # Errors
    /// [`PipelineError::Json`] when an option cannot be written as JSON.
    pub fn recorded(&self) -> Result<serde_json::Value> {
        let mut value = self.options.to_json()?;
        // Where ffmpeg is installed decides nothing; its version stands beside the source.
        if let Some(read) = value.get_mut("read").and_then(|r| r.as_object_mut()) {
            read.remove("ffmpeg");
        }
        Ok(value)
    }
}

fn check(options: &ScanOptions) -> Result<()> {
    let usage = |text: String| Err(PipelineError::Usage(text));
    options.read.validate()?;
    options.associate.validate()?;
    if options.prompts.is_empty() {
        return usage("no prompt; give at least one, such as --prompt product".into());
    }
    for (i, prompt) in options.prompts.iter().enumerate() {
        if options.prompts[..i]
            .iter()
            .any(|p| p.phrase == prompt.phrase)
        {
            return usage(format!(
                "the phrase `{}` is given twice, which would count each of its objects twice; give it once",
                prompt.phrase
            ));
        }
    }
    if !(0.0..=1.0).contains(&options.min_score) {
        return usage(format!(
            "min_score cannot be {}; it lies between 0 and 1",
            options.min_score
        ));
    }
    if options.max_detections == 0 {
        return usage("max_detections cannot be 0; 1000 is the default".into());
    }
    let identity = &options.identity;
    if identity.crops_per_track == 0 || identity.batch == 0 {
        return usage("crops_per_track and identity_batch have to be at least 1".into());
    }
    let mut names = BTreeSet::new();
    for Region { name, bbox } in &options.regions {
        if name.trim().is_empty() || !names.insert(name) {
            return usage(format!(
                "region name `{name}` is empty or given twice; give every region a name of its own"
            ));
        }
        if !bbox.is_valid() {
            return usage(format!(
                "region `{name}` has no area; write NAME=x0,y0,x1,y1 in source pixels with x0 < x1 and y0 < y1"
            ));
        }
    }
    Ok(())
}

/// A folder name for a source: its last path component, with everything replaced that a shell, a
/// terminal or Windows could trip over.
fn unique_folder(id: &str, taken: &mut BTreeSet<String>) -> String {
    let last = id
        .rsplit(['/', '\\'])
        .find(|part| !part.is_empty())
        .unwrap_or(id);
    let mut base: String = last
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '_'
            }
        })
        .take(100)
        .collect();
    while base.ends_with('.') {
        base.pop();
    }
    if base.is_empty() || base.starts_with('.') {
        base.insert(0, '_');
    }
    let mut name = base.clone();
    let mut n = 2;
    // Lower case, because some file systems do not tell case apart.
    while !taken.insert(name.to_lowercase()) {
        name = format!("{base}~{n}");
        n += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<Source> {
        names.iter().map(|n| Source::File(n.into())).collect()
    }

    fn plan(sources: Vec<Source>, shard: Option<&str>) -> ScanPlan {
        let shard = shard.map(|s| s.parse().unwrap());
        ScanPlan::new(ScanOptions::default(), sources, None, shard).unwrap()
    }

    #[test]
    fn every_source_gets_a_safe_folder_of_its_own() {
        let plan = plan(
            files(&[
                "a/clip.mp4",
                "b/clip.mp4",
                "b/CLIP.mp4",
                "c/ev\u{1b}il\n.mp4",
                "d/..",
                "a/clip.mp4",
            ]),
            None,
        );
        let folders: Vec<&str> = plan.sources.iter().map(|s| s.folder.as_str()).collect();
        assert_eq!(
            folders,
            ["clip.mp4", "CLIP.mp4~2", "clip.mp4~3", "ev_il_.mp4", "_"]
        );
    }

    #[test]
    fn shards_are_disjoint_complete_and_the_same_whatever_the_order_given() {
        let names: Vec<String> = (0..10).map(|i| format!("clip{i}.mp4")).collect();
        let forward = files(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut backward = forward.clone();
        backward.reverse();
        let mut seen = Vec::new();
        for shard in ["1/3", "2/3", "3/3"] {
            let a: Vec<String> = plan(forward.clone(), Some(shard))
                .sources
                .into_iter()
                .map(|s| s.folder)
                .collect();
            let b: Vec<String> = plan(backward.clone(), Some(shard))
                .sources
                .into_iter()
                .map(|s| s.folder)
                .collect();
            assert_eq!(a, b);
            seen.extend(a);
        }
        seen.sort();
        assert_eq!(seen, names);
        for bad in ["0/3", "4/3", "x", "1/0", "-1/2"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn options_that_cannot_be_met_are_named() {
        let refused = |change: &dyn Fn(&mut ScanOptions)| {
            let mut options = ScanOptions::default();
            change(&mut options);
            ScanPlan::new(options, files(&["a.mp4"]), None, None)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&|o| o.prompts.clear()).contains("--prompt"));
        assert!(refused(&|o| o.min_score = f32::NAN).contains("min_score"));
        assert!(refused(&|o| o.read.every = 0).contains("every"));
        let region = |name: &str, b: [f32; 4]| Region {
            name: name.into(),
            bbox: b.into(),
        };
        assert!(
            refused(&|o| o.regions = vec![region("top", [5.0, 5.0, 5.0, 9.0])]).contains("top")
        );
        assert!(
            refused(&|o| o.regions = vec![
                region("a", [0.0, 0.0, 5.0, 9.0]),
                region("a", [0.0, 0.0, 5.0, 9.0])
            ])
            .contains("twice")
        );
        assert!(ScanPlan::new(ScanOptions::default(), vec![], None, None).is_err());
    }
}
