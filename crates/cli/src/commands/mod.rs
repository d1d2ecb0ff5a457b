//! One module for each command: resolve, call the libraries, print.

mod completions;
mod demo;
mod diff;
mod doctor;
mod enroll;
mod eval;
mod gallery;
mod man;
mod models;
mod probe;
mod report;
mod scan;
mod synth;
mod worker;

use std::sync::Arc;

use crate::{
    args::{Cli, Command},
    config::Config,
    exit::Exit,
    printer::Printer,
};

/// Runs what was asked for.
pub(crate) fn run(cli: Cli, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    let config = || Config::load(&cli.global);
    match cli.command {
        Command::Demo(args) => demo::run(&args, printer),
        Command::Scan(args) => scan::run(&args, config()?, printer),
        Command::Probe(args) => probe::run(args, config()?, printer),
        Command::Report(args) => report::run(args, config()?, printer),
        Command::Diff(args) => diff::run(args, config()?, printer),
        Command::Enroll(args) => enroll::run(args, config()?, printer),
        Command::Gallery(args) => gallery::run(args, config()?, printer),
        Command::Eval(args) => eval::run(args, config()?, printer),
        Command::Worker => worker::run(),
        Command::Models(args) => models::run(args, &config()?, printer),
        Command::Doctor(args) => doctor::run(*args, &cli.global, printer),
        Command::Synth(args) => synth::run(&args, printer),
        Command::Completions { shell } => completions::run(shell, printer),
        Command::Man { dir, markdown } => man::run(dir.as_deref(), markdown, printer),
    }
}
