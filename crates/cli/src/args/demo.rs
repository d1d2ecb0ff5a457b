//! Arguments of `demo`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `shelfscan demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the clip, the gallery, the results and report.html.
    #[arg(short, long, value_name = "DIR", default_value = "shelfscan-demo")]
    pub(crate) out: PathBuf,
    /// Decides which products stand on the shelf, and where.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds the clip plays, 4 to 120; a longer clip shows a longer shelf.
    #[arg(long, value_name = "SECS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=120))]
    pub(crate) secs: u32,
    /// Replace the results of an earlier demo in the same folder.
    #[arg(long)]
    pub(crate) overwrite: bool,
}
