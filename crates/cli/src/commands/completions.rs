//! `completions`: a script that completes commands and flags in a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{args::Cli, exit::Exit, printer::Printer};

pub(crate) fn run(shell: Shell, printer: &Printer) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shelfscan", &mut script);
    printer.data(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
