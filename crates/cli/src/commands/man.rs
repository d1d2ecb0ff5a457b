//! `man`: the manual as one page, as a folder of pages, or as Markdown.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;

use crate::{args::Cli, exit::Exit, printer::Printer, reference};

pub(crate) fn run(dir: Option<&Path>, markdown: bool, printer: &Printer) -> anyhow::Result<Exit> {
    let mut command = Cli::command();
    command.build();
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("making the folder failed: {}", dir.display()))?;
        clap_mangen::generate_to(command, dir)
            .with_context(|| format!("writing the pages failed: {}", dir.display()))?;
    } else if markdown {
        printer.data(&reference::markdown(&command)?)?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        printer.data(&String::from_utf8_lossy(&page))?;
    }
    Ok(Exit::Done)
}
