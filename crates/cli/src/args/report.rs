//! Arguments of `report`.

use std::path::PathBuf;

use clap::Args;

use super::ReaderSettings;
use crate::report::DEFAULT_KEY_FRAMES;

/// Arguments of `shelfscan report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder of one source, or the --out folder of a scan for one page about all its sources.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Write the page here. [default: report.html in the folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Show this many whole frames of each source, up to 60 in all.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_KEY_FRAMES)]
    pub(crate) key_frames: usize,
    /// Hold the counts against a CSV with the columns sku and facings; a row without a SKU counts
    /// the packs that are in no gallery.
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reader: ReaderSettings,
}
