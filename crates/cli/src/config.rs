//! `shelfscan.toml`: settings below the flags and above the defaults.

use std::{
    fs,
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::{
    args::{DiffSettings, EnrollSettings, GlobalArgs, ModelSettings, ReaderSettings, ScanSettings},
    exit::Usage,
    weights,
};

/// Name of the file that is looked for in the current folder.
pub(crate) const FILE_NAME: &str = "shelfscan.toml";

/// A name this far from a known one (Jaro-Winkler, 0 to 1) is taken for a slip of the finger.
const LIKELY_MEANT: f64 = 0.7;

/// What the file may hold. Every key is a flag without its dashes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) scan: ScanSettings,
    pub(crate) reader: ReaderSettings,
    pub(crate) models: ModelSettings,
    pub(crate) enroll: EnrollSettings,
    pub(crate) diff: DiffSettings,
}

impl Config {
    /// Reads the file that was named, or the one in the current folder when there is one.
    pub(crate) fn load(global: &GlobalArgs) -> anyhow::Result<Self> {
        if global.no_config {
            return Ok(Self::default());
        }
        let path = global.config.as_deref().unwrap_or(Path::new(FILE_NAME));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound && global.config.is_none() => {
                return Ok(Self::default());
            }
            Err(e) => {
                let message = format!("the configuration cannot be read ({e}): {}", path.display());
                return Err(Usage::new(message)
                    .hint("check --config, or pass --no-config")
                    .into());
            }
        };
        let mut config = Self::parse(&text, path)?;
        tracing::info!("settings from {}", path.display());
        config.resolve_paths(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        let broken = |error: toml::de::Error| {
            let message = error.message().trim().replace('\n', "; ");
            Usage::new(format!("{message}: {}", place(path, text, error.span())))
        };
        let table = DeTable::parse(text).map_err(broken)?;
        let known = serde_json::to_value(Self::default()).context("listing the known settings")?;
        check_keys(table.get_ref(), &known, "", &|key, span, below, near| {
            let of = if below.is_empty() {
                String::new()
            } else {
                format!(" in [{below}]")
            };
            let error = Usage::new(format!(
                "unknown key `{key}`{of}: {}",
                place(path, text, Some(span))
            ));
            match near {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("docs/reference/configuration.md lists the keys"),
            }
        })?;
        Ok(toml::from_str(text).map_err(broken)?)
    }

    /// Paths in the file count from the file's folder, wherever the command runs.
    fn resolve_paths(&mut self, folder: &Path) {
        let resolve = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = folder.join(&*path);
            }
        };
        resolve(&mut self.scan.gallery);
        resolve(&mut self.models.hub.hub_cache);
        for model in [&mut self.models.weights, &mut self.models.embedder_weights] {
            if model
                .as_deref()
                .is_some_and(|path| !weights::is_reference(path))
            {
                resolve(model);
            }
        }
        resolve(&mut self.enroll.metadata);
        // A bare name is looked for on the search path.
        if self
            .reader
            .ffmpeg
            .as_ref()
            .is_some_and(|p| p.components().count() > 1)
        {
            resolve(&mut self.reader.ffmpeg);
        }
    }
}

/// Checks the keys of a table against those of `known`, table by table.
fn check_keys<E>(
    table: &DeTable<'_>,
    known: &serde_json::Value,
    below: &str,
    unknown: &impl Fn(&str, Range<usize>, &str, Option<&str>) -> E,
) -> Result<(), E> {
    let Some(known) = known.as_object() else {
        return Ok(());
    };
    // In the order of the file, so that the first slip is named first.
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in keys {
        let name: &str = key.get_ref();
        match (known.get(name), value.get_ref()) {
            (None, _) => {
                let near = known
                    .keys()
                    .map(|k| (strsim::jaro_winkler(name, k), k.as_str()))
                    .filter(|(likeness, _)| *likeness >= LIKELY_MEANT)
                    .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)))
                    .map(|(_, k)| k);
                return Err(unknown(name, key.span(), below, near));
            }
            (Some(inner), DeValue::Table(table)) => check_keys(table, inner, name, unknown)?,
            (Some(_), _) => {}
        }
    }
    Ok(())
}

/// `line 4 of shelfscan.toml`.
fn place(path: &Path, text: &str, span: Option<Range<usize>>) -> String {
    let line = span.map(|span| {
        let before = text.get(..span.start).unwrap_or_default();
        before.matches('\n').count() + 1
    });
    match line {
        Some(line) => format!("line {line} of {}", path.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!(
            "{:#}",
            Config::parse(text, Path::new("shelfscan.toml")).unwrap_err()
        )
    }

    #[test]
    fn every_key_is_a_flag_without_its_dashes() {
        let text = "[scan]\nmin-score = 0.3\nprompt = [\"can\", \"tag=price tag\"]\nregion = [\"top=0,0,9,9\"]\nannotate = \"frames\"\nno-masks = true\n[reader]\nstall-secs = 5\n";
        let config = Config::parse(text, Path::new("x")).unwrap();
        assert_eq!(config.scan.min_score, Some(0.3));
        assert_eq!(config.scan.prompt.len(), 2);
        assert_eq!(config.scan.no_masks, Some(true));
        assert_eq!(config.reader.stall_secs, Some(5.0));
    }

    #[test]
    fn the_file_with_every_key_has_every_key() {
        let text = include_str!("../tests/it/every_key.toml");
        let config = Config::parse(text, Path::new("x")).unwrap();
        let value = serde_json::to_value(&config).unwrap();
        for (table, keys) in value.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                // The one key that another one excludes.
                if key != "fps" {
                    assert!(
                        !value.is_null() && value != &serde_json::json!([]),
                        "[{table}] {key}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        assert_eq!(
            error("[scan]\nevery = 2\nmin-scor = 0.3\n"),
            "unknown key `min-scor` in [scan]: line 3 of shelfscan.toml"
        );
        assert_eq!(
            error("\n[scam]\n"),
            "unknown key `scam`: line 2 of shelfscan.toml"
        );
    }

    #[test]
    fn a_wrong_value_and_a_broken_file_are_named_with_their_line() {
        let text = error("[scan]\n\nevery = \"two\"\n");
        assert!(text.ends_with("line 3 of shelfscan.toml"), "{text}");
        let text = error("[scan]\nevery = = 2\n");
        assert!(text.ends_with("line 2 of shelfscan.toml"), "{text}");
        let text = error("[scan]\nregion = [\"top=1,2\"]\n");
        assert!(text.contains("NAME=x0,y0,x1,y1"), "{text}");
    }

    #[test]
    fn paths_count_from_the_folder_of_the_file() {
        let mut config = Config::parse(
            "[scan]\ngallery = \"skus\"\n[reader]\nffmpeg = \"ffmpeg7\"\n[models]\nweights = \"/w/sam.pt\"\n",
            Path::new("x"),
        )
        .unwrap();
        config.resolve_paths(Path::new("shop"));
        assert_eq!(config.scan.gallery.as_deref(), Some(Path::new("shop/skus")));
        assert_eq!(config.reader.ffmpeg.as_deref(), Some(Path::new("ffmpeg7")));
        assert_eq!(
            config.models.weights.as_deref(),
            Some(Path::new("/w/sam.pt"))
        );
        let mut config = Config::parse(
            "[models]\nweights = \"sam3.1\"\nembedder-weights = \"w.pt\"\nhub-cache = \"hub\"\noffline = true\n",
            Path::new("x"),
        )
        .unwrap();
        config.resolve_paths(Path::new("shop"));
        let models = config.models;
        assert_eq!(models.weights.as_deref(), Some(Path::new("sam3.1")));
        assert_eq!(
            models.embedder_weights.as_deref(),
            Some(Path::new("shop/w.pt"))
        );
        assert_eq!(models.hub.hub_cache.as_deref(), Some(Path::new("shop/hub")));
        assert_eq!(models.hub.offline, Some(true));
    }
}
