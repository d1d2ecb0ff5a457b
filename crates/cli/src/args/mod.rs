//! What was typed: clap structs and nothing else.

#![allow(
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help, where brackets mean what may be left out"
)]

mod demo;
mod diff;
mod gallery;
mod hub;
mod report;
mod scan;
mod synth;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use demo::DemoArgs;
pub(crate) use diff::{DiffArgs, DiffSettings};
pub(crate) use gallery::{
    EnrollArgs, EnrollSettings, EvalArgs, EvalCommand, EvalGalleryArgs, GalleryArgs, GalleryCommand,
};
pub(crate) use hub::{DoctorArgs, HubSettings, ModelsArgs, ModelsCommand};
pub(crate) use report::ReportArgs;
pub(crate) use scan::{ModelSettings, ProbeArgs, ReaderSettings, ScanArgs, ScanSettings};
pub(crate) use synth::{FormatArg, PlanArg, SynthArgs};
pub(crate) use values::{AnnotateArg, DeviceArg, DtypeArg, Prefer, PromptArg, RegionArg, TilesArg};

/// Says which products stand on a shelf, how many facings each has and where, from recorded video
/// or a camera, and what it does not know.
#[derive(Debug, Parser)]
#[command(
    name = "shelfscan",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 1 a source failed or is incomplete, or a check failed; 2 usage or \
configuration; 3 unexpected; 130 interrupted, go on with --resume.\n\nResults go to standard output and \
--out, words about them to standard error."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Say more about what is going on; twice for every detail.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but errors and results.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Take settings from this file rather than from shelfscan.toml in the current folder.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Take settings from no file.
    #[arg(long, global = true, conflicts_with = "config")]
    pub(crate) no_config: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Draw a shelf, enrol its products, scan it and hold the counts against the truth: a first look
    /// that needs nothing but this program.
    Demo(DemoArgs),
    /// Find, follow, identify and count products in videos, pictures or a camera's view.
    Scan(Box<ScanArgs>),
    /// Say what is in a source, or which cameras there are.
    Probe(ProbeArgs),
    /// Make a page with counts, pictures and a timeline out of the results of a scan.
    Report(ReportArgs),
    /// Compare two runs and say what moved.
    Diff(DiffArgs),
    /// Make a gallery out of a folder with one folder of pictures per SKU.
    Enroll(EnrollArgs),
    /// Look after a gallery.
    Gallery(GalleryArgs),
    /// Measure how well something works on pictures whose answers are known.
    Eval(EvalArgs),
    /// Get the large models, and see which are there.
    Models(ModelsArgs),
    /// Say what this program and this machine can do, and try the models on a picture whose packs are
    /// known.
    Doctor(Box<DoctorArgs>),
    /// Draw a clip of a shelf with its exact truth, and pictures to enrol its products with.
    Synth(SynthArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Answer the calls of the scan that started this process.
    #[command(hide = true)]
    Worker,
    /// Print the manual.
    Man {
        /// Write a page for every command into this folder instead.
        #[arg(long, value_name = "DIR", conflicts_with = "markdown")]
        dir: Option<PathBuf>,
        /// Print the whole reference as Markdown instead.
        #[arg(long)]
        markdown: bool,
    },
}
