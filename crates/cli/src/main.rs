//! The `shelfscan` command: parses, calls the libraries, prints.
#![allow(
    clippy::format_push_string,
    reason = "text for people is short, and writing into a string would need error handling"
)]

mod args;
mod backend;
mod builtin;
mod commands;
mod config;
mod detections;
mod exit;
mod interrupt;
mod isolation;
mod logging;
mod printer;
mod progress;
mod reference;
mod report;
mod resolve;
mod routing;
mod selfcheck;
mod singular;
mod sources;
mod summary;
mod table;
mod weights;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;

use crate::{
    args::Cli,
    exit::Exit,
    printer::{Printer, Terminal},
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are answers too; no one may be there to read them.
            drop(answer.print());
            return if answer.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    let printer = Arc::new(Printer::new(Terminal::detect(), cli.global.quiet));
    logging::start(&printer, cli.global.verbose);
    let exit = commands::run(cli, &printer).unwrap_or_else(|error| exit::report(&error, &printer));
    exit.into()
}
