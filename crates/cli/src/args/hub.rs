//! Arguments of `models` and `doctor`, and where models come from.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{OsStringValueParser, TypedValueParser},
};
use serde::{Deserialize, Serialize};

use super::{ModelSettings, ReaderSettings, values::prefer_fields};

/// Where models come from; a file may hold it under `[models]`.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct HubSettings {
    /// Address of the hub. [default: https://huggingface.co]
    #[arg(
        long,
        value_name = "URL",
        env = "HF_ENDPOINT",
        hide_env_values = true,
        help_heading = "Downloads"
    )]
    pub(crate) hub_endpoint: Option<String>,
    /// Folder that downloaded models are kept in, shared with the Python tools of the hub.
    /// [default: hub in HF_HOME, which is ~/.cache/huggingface]
    #[arg(
        long,
        value_name = "DIR",
        env = "HF_HUB_CACHE",
        hide_env_values = true,
        value_parser = maybe_empty(),
        help_heading = "Downloads"
    )]
    pub(crate) hub_cache: Option<PathBuf>,
    /// Open no connection; models that are not on this machine are an error.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", env = "HF_HUB_OFFLINE", hide_env_values = true, value_parser = switch, help_heading = "Downloads")]
    pub(crate) offline: Option<bool>,
}

prefer_fields!(HubSettings {
    hub_endpoint,
    hub_cache,
    offline,
});

/// A path that may be empty, as a variable is that was set to nothing; it counts as one not set.
pub(super) fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// A switch as the variable of the Python tools is set.
fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// Arguments of `shelfscan models`.
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) command: ModelsCommand,
}

/// What to do with models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models that are built in, the ones with a short name, and what is in the cache.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: HubSettings,
    },
    /// Download models, or what is missing of them, and print where they are.
    Pull {
        /// A short name such as sam3.1, or hf:OWNER/NAME[@REVISION][:FILE].
        #[arg(value_name = "MODEL", required = true)]
        models: Vec<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: HubSettings,
    },
    /// Check the bytes of models against their hash, and that every tensor is accounted for.
    Verify {
        /// A short name, hf:OWNER/NAME[@REVISION][:FILE], or a file. [default: all with a short
        /// name that are in the cache]
        #[arg(value_name = "MODEL")]
        models: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: HubSettings,
    },
    /// Print where the file of a model is, without downloading it.
    Path {
        /// A short name, hf:OWNER/NAME[@REVISION][:FILE], or a file.
        #[arg(value_name = "MODEL")]
        model: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: HubSettings,
    },
}

/// Arguments of `shelfscan doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what the self-check expects of the built-in models, made with them as they are.
    #[arg(long, hide = true)]
    pub(crate) print_expected: bool,
    #[command(flatten)]
    pub(crate) models: ModelSettings,
    #[command(flatten)]
    pub(crate) reader: ReaderSettings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_is_switched_as_the_variable_of_the_python_tools_is() {
        for (text, on) in [("1", true), ("ON", true), ("", false), ("0", false)] {
            assert_eq!(switch(text), Ok(on));
        }
        assert!(switch("maybe").is_err());
    }
}
