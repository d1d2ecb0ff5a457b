//! `gallery`: add, remove, list, verify.

use std::{path::Path, sync::Arc};

use serde::Serialize;
use shelfscan_gallery::{Gallery, PictureDecoder};

use super::enroll::{clean_lines, decode, take_in};
use crate::{
    args::{GalleryArgs, GalleryCommand},
    config::Config,
    exit::Exit,
    printer::Printer,
};

pub(crate) fn run(
    args: GalleryArgs,
    config: Config,
    printer: &Arc<Printer>,
) -> anyhow::Result<Exit> {
    match args.command {
        GalleryCommand::Add(add) => {
            let add = *add;
            let mut gallery = Gallery::open(&add.gallery)?;
            let (settings, models) = (add.settings, add.models);
            take_in(
                settings,
                models,
                config,
                printer,
                add.json,
                |tools, options| gallery.add(&add.folder, tools, options),
            )
        }
        GalleryCommand::Remove {
            skus,
            gallery,
            json,
        } => show(&Gallery::open(&gallery)?.remove(&skus)?, json, printer),
        GalleryCommand::List { gallery, json } => {
            show(&Gallery::open(&gallery)?.list(), json, printer)
        }
        GalleryCommand::Verify {
            gallery,
            decode: with_decode,
            json,
        } => verify(&gallery, with_decode, json, printer),
    }
}

fn verify(
    gallery: &Path,
    with_decode: bool,
    json: bool,
    printer: &Printer,
) -> anyhow::Result<Exit> {
    let decoder: &PictureDecoder<'_> = &decode;
    let report = Gallery::open(gallery)?.verify(with_decode.then_some(decoder))?;
    show(&report, json, printer)?;
    Ok(if report.ok { Exit::Done } else { Exit::Failed })
}

fn show<T: Serialize + ToString>(
    report: &T,
    json: bool,
    printer: &Printer,
) -> anyhow::Result<Exit> {
    if json {
        printer.json(report)?;
    } else {
        printer.data(&clean_lines(&report.to_string()))?;
    }
    Ok(Exit::Done)
}
