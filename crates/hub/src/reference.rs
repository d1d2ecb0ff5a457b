//! What a user calls a model by.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{Error, Result};

/// Branch that is meant when no revision is given.
pub const DEFAULT_REVISION: &str = "main";
/// File that is meant when none is given and the repository is not one of [`KNOWN`].
pub const DEFAULT_FILE: &str = "model.safetensors";
/// What marks a reference to the hub.
const SCHEME: &str = "hf:";
/// Longest reference that is looked at.
const MAX_CHARS: usize = 1024;

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// It finds products.
    Detector,
    /// It tells SKUs apart.
    Embedder,
}

/// A model with a short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// The short name.
    pub name: &'static str,
    /// Repository on the hub.
    pub repo: &'static str,
    /// Its checkpoint.
    pub file: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// True when its licence has to be accepted on the hub before it can be had.
    pub gated: bool,
}

/// The models with a short name.
pub const KNOWN: [KnownModel; 4] = [
    KnownModel {
        name: "sam3.1",
        repo: "facebook/sam3.1",
        file: "sam3.1_multiplex.pt",
        purpose: Purpose::Detector,
        gated: true,
    },
    dinov2("dinov2-small", "facebook/dinov2-small"),
    dinov2("dinov2-base", "facebook/dinov2-base"),
    dinov2("dinov2-large", "facebook/dinov2-large"),
];

const fn dinov2(name: &'static str, repo: &'static str) -> KnownModel {
    KnownModel {
        name,
        repo,
        file: DEFAULT_FILE,
        purpose: Purpose::Embedder,
        gated: false,
    }
}

/// One file of a repository on the hub, at one revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubFile {
    repo: String,
    revision: String,
    file: String,
}

impl HubFile {
    /// `file` of `repo` at `revision`, a branch, tag or commit.
    ///
    /// # Errors
    /// [`Error::Reference`] when one of them could not name such a thing or would leave the cache's
    /// folder.
    pub fn new(repo: &str, revision: &str, file: &str) -> Result<Self> {
        let wrong = |reason| Error::Reference {
            text: format!("{SCHEME}{repo}@{revision}:{file}"),
            reason,
        };
        let mut names = repo.split('/');
        let is_repo = (1..=2).contains(&repo.split('/').count()) && names.all(is_repo_name);
        if !is_repo {
            return Err(wrong("a repository is OWNER/NAME"));
        }
        if !is_relative_path(revision) {
            return Err(wrong("a revision is a branch, a tag or a commit"));
        }
        if !is_relative_path(file) {
            return Err(wrong("a file is its path inside the repository"));
        }
        Ok(Self {
            repo: repo.into(),
            revision: revision.into(),
            file: file.into(),
        })
    }

    /// The repository, `OWNER/NAME`.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Path inside the repository, with `/` between folders.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The known model this is the default revision of.
    pub fn known(&self) -> Option<&'static KnownModel> {
        KNOWN.iter().find(|m| {
            m.repo == self.repo && m.file == self.file && self.revision == DEFAULT_REVISION
        })
    }
}

impl From<&KnownModel> for HubFile {
    fn from(model: &KnownModel) -> Self {
        Self {
            repo: model.repo.into(),
            revision: DEFAULT_REVISION.into(),
            file: model.file.into(),
        }
    }
}

/// The shortest text that means this file.
impl fmt::Display for HubFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(known) = self.known() {
            return f.write_str(known.name);
        }
        write!(f, "{SCHEME}{}", self.repo)?;
        if self.revision != DEFAULT_REVISION {
            write!(f, "@{}", self.revision)?;
        }
        if self.file != default_file(&self.repo) {
            write!(f, ":{}", self.file)?;
        }
        Ok(())
    }
}

/// A model: a path, or a file on the hub.
///
/// Written as a known name (see [`KNOWN`]), as `hf:OWNER/NAME[@REVISION][:FILE]`, or as a path.
/// Whatever is neither of the first two is a path; `./sam3.1` is a path as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A file or folder on this machine.
    Path(PathBuf),
    /// A file on the hub.
    Hub(HubFile),
}

impl Reference {
    /// Reads a reference that may be a path of any bytes the system allows.
    ///
    /// # Errors
    /// [`Error::Reference`] for a text that begins with `hf:` and names no file on the hub, and for
    /// a web address.
    pub fn parse(text: &OsStr) -> Result<Self> {
        match text.to_str() {
            Some(text) => text.parse(),
            None => Ok(Self::Path(text.into())),
        }
    }

    /// The path, when it is one.
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Hub(_) => None,
        }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason| Error::Reference {
            text: text.chars().take(200).collect(),
            reason,
        };
        if let Some(known) = KNOWN.iter().find(|m| m.name == text) {
            return Ok(Self::Hub(known.into()));
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            return Err(wrong("web addresses are not taken"));
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            if text.is_empty() {
                return Err(wrong("it is empty"));
            }
            return Ok(Self::Path(text.into()));
        };
        if text.len() > MAX_CHARS {
            return Err(wrong("it is too long"));
        }
        let (rest, file) = match rest.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (rest, None),
        };
        let (repo, revision) = rest.split_once('@').unwrap_or((rest, DEFAULT_REVISION));
        let file = file.unwrap_or_else(|| default_file(repo));
        HubFile::new(repo, revision, file)
            .map(Self::Hub)
            .map_err(|error| match error {
                Error::Reference { reason, .. } => wrong(reason),
                other => other,
            })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Hub(file) => write!(f, "{file}"),
        }
    }
}

fn default_file(repo: &str) -> &'static str {
    KNOWN
        .iter()
        .find(|m| m.repo == repo)
        .map_or(DEFAULT_FILE, |m| m.file)
}

/// Owner or name of a repository. `--` stands between the two in the cache's folders.
fn is_repo_name(name: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| matches!(c, '-' | '.');
    (1..=96).contains(&name.len())
        && name.chars().all(usable)
        && !name.starts_with(edge)
        && !name.ends_with(edge)
        && !name.contains("--")
        && !name.contains("..")
}

/// A path that stays below the folder it is joined to, on every system.
fn is_relative_path(path: &str) -> bool {
    let usable = |c: char| {
        !c.is_control() && !matches!(c, '\\' | ':' | '@' | '?' | '*' | '"' | '<' | '>' | '|')
    };
    !path.is_empty()
        && path.len() <= 512
        && path.chars().all(usable)
        && path
            .split('/')
            .all(|part| !part.is_empty() && part.chars().any(|c| c != '.') && part.trim() == part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hub(text: &str) -> HubFile {
        match text.parse().unwrap() {
            Reference::Hub(file) => file,
            Reference::Path(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn a_known_name_is_its_repository_and_file() {
        let sam = hub("sam3.1");
        assert_eq!(sam.repo(), "facebook/sam3.1");
        assert_eq!(sam.revision(), "main");
        assert_eq!(sam.file(), "sam3.1_multiplex.pt");
        assert_eq!(hub("hf:facebook/sam3.1"), sam);
        assert_eq!(
            hub("hf:facebook/sam3.1@main:sam3.1_multiplex.pt").to_string(),
            "sam3.1"
        );
        assert_eq!(hub("dinov2-small").file(), "model.safetensors");
    }

    #[test]
    fn a_reference_to_the_hub_has_a_revision_and_a_file_by_default() {
        let file = hub("hf:me/packs");
        assert_eq!(
            (file.revision(), file.file()),
            ("main", "model.safetensors")
        );
        let file = hub("hf:me/packs@refs/pr/3:small/w.pt");
        assert_eq!((file.revision(), file.file()), ("refs/pr/3", "small/w.pt"));
        assert_eq!(file.to_string(), "hf:me/packs@refs/pr/3:small/w.pt");
        assert_eq!(hub("hf:packs:w.pt").to_string(), "hf:packs:w.pt");
    }

    #[test]
    fn all_else_is_a_path() {
        for text in [
            "./sam3.1",
            "sam3.1.pt",
            "dinov2",
            "C:\\w\\sam.pt",
            "hf/x",
            "a:b",
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.as_path(), Some(Path::new(text)));
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn a_reference_that_would_leave_the_cache_is_refused() {
        for text in [
            "hf:",
            "hf:..",
            "hf:a/..",
            "hf:../../etc",
            "hf:a/b/c",
            "hf:a--b/c",
            "hf:a/b@",
            "hf:a/b@../x",
            "hf:a/b:",
            "hf:a/b:../w.pt",
            "hf:a/b:x/../../w.pt",
            "hf:a/b:/etc/passwd",
            "hf:a/b:C:\\w.pt",
            "hf:a/b:x\\..\\w",
            "hf:a b/c",
            "hf:a/b:w\n.pt",
            "https://huggingface.co/facebook/sam3.1",
            "",
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains("hf:OWNER/NAME[@REVISION][:FILE]"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_refused_or_stays_inside_and_means_the_same_when_printed(
            text in "(hf:)?[ -~\u{e9}]{0,40}"
        ) {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(&reference.to_string().parse::<Reference>().unwrap(), &reference);
                if let Reference::Hub(file) = reference {
                    for part in [file.repo(), file.revision(), file.file()] {
                        let path = Path::new(part);
                        prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
                    }
                }
            }
        }
    }
}
