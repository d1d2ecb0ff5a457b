//! `models`: list, pull, verify, path.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use indicatif::HumanBytes;
use serde::Serialize;
use shelfscan_hub::{CachedFile, HashKind, Hub, HubFile, KNOWN, Purpose, Reference};
use shelfscan_provider_cpu::{CheckpointLayout, inspect};

use crate::{
    args::{HubSettings, ModelsArgs, ModelsCommand, Prefer},
    builtin,
    config::Config,
    exit::{Exit, Usage},
    printer::{Printer, clean_cell},
    table::{Align, Table},
    weights::{self, Meter},
};

/// A file in the cache.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cached {
    path: PathBuf,
    bytes: u64,
    commit: String,
}

impl From<CachedFile> for Cached {
    fn from(file: CachedFile) -> Self {
        Self {
            path: file.path,
            bytes: file.bytes,
            commit: file.commit,
        }
    }
}

/// A model that can be named.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Listed {
    /// What `--weights` and `--embedder-weights` take; the own name of one that is built in.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<Purpose>,
    built_in: bool,
    /// True when its licence has to be accepted on the hub first.
    gated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    built_in_bytes: Option<usize>,
    cached: Option<Cached>,
}

/// All models that can be named, and what else lies in the cache.
pub(crate) fn listed(hub: &Hub) -> shelfscan_hub::Result<Vec<Listed>> {
    let mut all: Vec<Listed> = builtin::list()
        .into_iter()
        .map(|(name, purpose, bytes)| Listed {
            name: name.into(),
            purpose: Some(purpose),
            built_in: true,
            gated: false,
            built_in_bytes: Some(bytes),
            cached: None,
        })
        .collect();
    for known in &KNOWN {
        all.push(Listed {
            name: known.name.into(),
            purpose: Some(known.purpose),
            built_in: false,
            gated: known.gated,
            built_in_bytes: None,
            cached: hub.find(&known.into())?.map(Cached::from),
        });
    }
    for file in hub.list()? {
        if all
            .iter()
            .any(|l| l.cached.as_ref().is_some_and(|c| c.path == file.path))
        {
            continue;
        }
        // Of a name no reference may have there is nothing to say.
        let Ok(reference) = HubFile::new(&file.repo, &file.commit, &file.file) else {
            continue;
        };
        all.push(Listed {
            name: reference.to_string(),
            purpose: None,
            built_in: false,
            gated: false,
            built_in_bytes: None,
            cached: Some(file.into()),
        });
    }
    Ok(all)
}

/// The list as a table.
pub(crate) fn table(models: &[Listed]) -> String {
    let mut table = Table::new([
        ("model", Align::Left),
        ("what for", Align::Left),
        ("size", Align::Right),
        ("where", Align::Left),
    ]);
    for model in models {
        let purpose = match model.purpose {
            Some(Purpose::Detector) => "finds products",
            Some(Purpose::Embedder) => "tells SKUs apart",
            None => "",
        };
        let (size, place) = match (&model.cached, model.built_in_bytes) {
            (_, Some(bytes)) => (HumanBytes(bytes as u64).to_string(), "built in".into()),
            (Some(cached), _) => (
                HumanBytes(cached.bytes).to_string(),
                cached.path.display().to_string(),
            ),
            (None, _) if model.gated => (
                String::new(),
                "not in the cache; accept its licence, then pull it".into(),
            ),
            (None, _) => (String::new(), "not in the cache".into()),
        };
        table.row([
            clean_cell(&model.name),
            purpose.into(),
            size,
            clean_cell(&place),
        ]);
    }
    table.to_string()
}

/// What a check came to.
#[derive(Debug, Serialize)]
struct Verified {
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_kind: Option<HashKind>,
    /// Whether the hash is the one the hub promised; absent where no promise is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_promised: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<CheckpointLayout>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Pulled {
    model: String,
    path: PathBuf,
    bytes: u64,
    downloaded_bytes: u64,
    commit: String,
    hash: Option<String>,
}

#[derive(Debug, Serialize)]
struct Found {
    model: String,
    path: PathBuf,
}

pub(crate) fn run(
    args: ModelsArgs,
    config: &Config,
    printer: &Arc<Printer>,
) -> anyhow::Result<Exit> {
    let named: Vec<&Path> = match &args.command {
        ModelsCommand::List { .. } => Vec::new(),
        ModelsCommand::Pull { models, .. } => models.iter().map(Path::new).collect(),
        ModelsCommand::Verify { models, .. } => models.iter().map(AsRef::as_ref).collect(),
        ModelsCommand::Path { model, .. } => vec![model],
    };
    if let Some(own) = named.iter().find(|name| weights::built_in(name).is_some()) {
        return Err(Usage::new(format!(
            "{} is built in: it has no file, and is used when no other model is given",
            own.display()
        ))
        .into());
    }
    let hub = |typed: HubSettings| weights::hub(&typed.prefer(config.models.hub.clone()));
    match args.command {
        ModelsCommand::List { json, hub: typed } => {
            let models = listed(&hub(typed))?;
            if json {
                printer.json(&models)?;
            } else {
                printer.data(&table(&models))?;
            }
            Ok(Exit::Done)
        }
        ModelsCommand::Pull {
            models,
            json,
            hub: typed,
        } => pull(&models, json, &hub(typed), printer),
        ModelsCommand::Verify {
            models,
            json,
            hub: typed,
        } => verify(&models, json, &hub(typed), printer),
        ModelsCommand::Path {
            model,
            json,
            hub: typed,
        } => path(&model, json, &hub(typed), printer),
    }
}

fn pull(models: &[String], json: bool, hub: &Hub, printer: &Arc<Printer>) -> anyhow::Result<Exit> {
    let mut files = Vec::new();
    for model in models {
        match model.parse::<Reference>()? {
            Reference::Hub(file) => files.push(file),
            Reference::Path(path) => {
                return Err(Usage::new(format!(
                    "only models of the hub can be pulled, and this is a path: {}",
                    path.display()
                ))
                .hint("give a short name such as sam3.1, or hf:OWNER/NAME[@REVISION][:FILE]; `shelfscan models list` has the names")
                .into());
            }
        }
    }
    let mut pulled = Vec::new();
    for file in files {
        let fetched = weights::pull(&file, hub, printer)?;
        if fetched.downloaded_bytes == 0 {
            printer.note(&format!("{file} was in the cache already"));
        } else {
            let came = HumanBytes(fetched.downloaded_bytes);
            printer.note(&format!("{came} of {file} downloaded and verified"));
        }
        if !json {
            printer.data(&format!("{}\n", fetched.file.path.display()))?;
        }
        pulled.push(Pulled {
            model: file.to_string(),
            path: fetched.file.path,
            bytes: fetched.file.bytes,
            downloaded_bytes: fetched.downloaded_bytes,
            commit: fetched.file.commit,
            hash: fetched.file.hash,
        });
    }
    if json {
        printer.json(&pulled)?;
    }
    Ok(Exit::Done)
}

fn path(model: &Path, json: bool, hub: &Hub, printer: &Printer) -> anyhow::Result<Exit> {
    let reference = Reference::parse(model.as_os_str())?;
    let found = match &reference {
        Reference::Path(path) => path.exists().then(|| path.clone()),
        Reference::Hub(file) => hub.find(file)?.map(|cached| cached.path),
    };
    let Some(path) = found else {
        printer.error(&match &reference {
            Reference::Path(path) => format!("there is no such file: {}", path.display()),
            Reference::Hub(file) => format!("{file} is not in the cache"),
        });
        if let Reference::Hub(file) = &reference {
            printer.hint(&format!("get it with `shelfscan models pull {file}`"));
        }
        return Ok(Exit::Failed);
    };
    if json {
        printer.json(&Found {
            model: reference.to_string(),
            path,
        })?;
    } else {
        printer.data(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Done)
}

fn verify(
    models: &[PathBuf],
    json: bool,
    hub: &Hub,
    printer: &Arc<Printer>,
) -> anyhow::Result<Exit> {
    let mut references = Vec::new();
    for model in models {
        references.push(Reference::parse(model.as_os_str())?);
    }
    if models.is_empty() {
        for known in &KNOWN {
            let file = HubFile::from(known);
            if hub.find(&file)?.is_some() {
                references.push(Reference::Hub(file));
            }
        }
        if references.is_empty() {
            printer.note("no model with a short name is in the cache; name a file, or pull one");
        }
    }
    let mut checked = Vec::new();
    for reference in &references {
        let verified = check(reference, hub, printer)?;
        if !json {
            printer.data(&in_words(&verified))?;
        }
        checked.push(verified);
    }
    if json {
        printer.json(&checked)?;
    }
    let sound = checked.iter().all(|v| v.problems.is_empty());
    Ok(if sound { Exit::Done } else { Exit::Failed })
}

fn check(reference: &Reference, hub: &Hub, printer: &Arc<Printer>) -> anyhow::Result<Verified> {
    let mut verified = Verified {
        model: reference.to_string(),
        path: None,
        bytes: None,
        hash: None,
        hash_kind: None,
        as_promised: None,
        layout: None,
        problems: Vec::new(),
    };
    let file = match reference {
        Reference::Hub(file) => hub.find(file)?,
        Reference::Path(path) => std::fs::metadata(path).ok().map(|meta| CachedFile {
            path: path.clone(),
            repo: String::new(),
            commit: String::new(),
            file: String::new(),
            bytes: meta.len(),
            hash: None,
        }),
    };
    let Some(file) = file else {
        verified.problems.push(match reference {
            Reference::Hub(file) => {
                format!("it is not in the cache; get it with `shelfscan models pull {file}`")
            }
            Reference::Path(_) => "there is no such file".into(),
        });
        return Ok(verified);
    };
    verified.path = Some(file.path.clone());
    if file.path.is_file() {
        let mut meter = Meter::new(Arc::clone(printer), verified.model.clone());
        let checked = hub.check(&file, &mut |progress| meter.tell(progress));
        meter.end();
        let checked = checked?;
        if checked.as_promised == Some(false) {
            verified.problems.push(format!(
                "its bytes changed since the download, their hash is {} and not {}; delete {} and pull it again",
                checked.hash,
                file.hash.as_deref().unwrap_or_default(),
                std::fs::canonicalize(&file.path).unwrap_or_default().display()
            ));
        }
        verified.bytes = Some(file.bytes);
        verified.hash = Some(checked.hash);
        verified.hash_kind = Some(checked.kind);
        verified.as_promised = checked.as_promised;
    }
    // The layout of damaged bytes says nothing.
    if verified.problems.is_empty() {
        match inspect(&file.path) {
            Ok(layout) => verified.layout = Some(layout),
            Err(error) => verified.problems.push(error.to_string()),
        }
    }
    Ok(verified)
}

fn in_words(verified: &Verified) -> String {
    let mut text = format!("{}: ", clean_cell(&verified.model));
    text += if verified.problems.is_empty() {
        "sound\n"
    } else {
        "not usable\n"
    };
    let mut fact = |name: &str, value: &str| {
        text += &format!("  {name:<8}{}\n", clean_cell(value));
    };
    if let Some(path) = &verified.path {
        fact("file", &path.display().to_string());
    }
    if let (Some(bytes), Some(hash)) = (verified.bytes, &verified.hash) {
        fact("size", &HumanBytes(bytes).to_string());
        let promise = match verified.as_promised {
            Some(true) => ", as the hub promised",
            Some(false) => ", not as the hub promised",
            None => "",
        };
        fact("hash", &format!("{hash}{promise}"));
    }
    if let Some(layout) = &verified.layout {
        let CheckpointLayout {
            model,
            tensors,
            parameters,
            left_out,
        } = layout;
        fact(
            "layout",
            &format!(
                "{model}: {tensors} tensors with {parameters} parameters read, {left_out} left out on purpose, none missing or unknown"
            ),
        );
    }
    for problem in &verified.problems {
        fact("problem", problem);
    }
    text
}
