//! Which pictures are views, which are queries and which are strangers.

use std::path::{Path, PathBuf};

use crate::{
    GalleryError, IgnoredPath, Result,
    files::{find_skus, stays_inside},
    metadata::CsvTable,
};

/// Pictures an evaluation takes at most.
const MAX_PICTURES: usize = 100_000;
/// Largest manifest that is read.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// What a picture may serve as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PictureRole {
    /// A view to enrol.
    Gallery,
    /// A held-out picture of an enrolled SKU.
    Query,
    /// A picture of something that is never enrolled.
    Stranger,
    /// View in one draw and query in another, as the draw decides.
    Either,
}

/// One picture of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalPicture {
    /// Path below the set's folder, with `/` on every system.
    pub path: String,
    /// The SKU it shows.
    pub sku: String,
    /// What it may serve as.
    pub role: PictureRole,
    /// Where it was taken, empty when unknown.
    pub session: String,
}

/// Pictures of SKUs with their roles.
#[derive(Clone, Debug)]
pub struct EvalSet {
    /// The folder the paths are below.
    pub root: PathBuf,
    /// The pictures in a fixed order.
    pub pictures: Vec<EvalPicture>,
    /// Files that were left aside.
    pub ignored: Vec<IgnoredPath>,
}

impl EvalSet {
    /// Takes a folder of one folder per SKU; in every draw some pictures of a SKU are its views and
    /// the rest are its queries.
    ///
    /// # Errors
    /// [`GalleryError::NothingToEnroll`] when it holds no picture.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let found = find_skus(folder)?;
        let pictures: Vec<EvalPicture> = found
            .skus
            .into_iter()
            .flat_map(|(sku, views)| {
                views.into_iter().map(move |view| EvalPicture {
                    path: view.view,
                    sku: sku.clone(),
                    role: PictureRole::Either,
                    session: String::new(),
                })
            })
            .collect();
        Self::checked(folder, pictures, found.ignored)
    }

    /// Takes the pictures a CSV manifest lists, with columns `path` (below `folder`), `sku` and
    /// `split` (`gallery`, `query` or `stranger`), and optionally `session`; others are left aside.
    ///
    /// # Errors
    /// [`GalleryError::Csv`] with line and column.
    pub fn from_manifest(folder: &Path, manifest: &Path) -> Result<Self> {
        let io = || GalleryError::io("read", manifest);
        let length = std::fs::metadata(manifest).map_err(io())?.len();
        if length > MAX_MANIFEST_BYTES {
            return Err(GalleryError::InvalidInput(format!(
                "a manifest of {length} bytes is longer than {MAX_MANIFEST_BYTES}; split it"
            )));
        }
        let bytes = std::fs::read(manifest).map_err(io())?;
        let pictures = Self::parse_manifest(&bytes, manifest)?;
        Self::checked(folder, pictures, Vec::new())
    }

    fn parse_manifest(bytes: &[u8], manifest: &Path) -> Result<Vec<EvalPicture>> {
        let table = CsvTable::parse(bytes, manifest)?;
        let (path, sku, split) = (
            table.require("path")?,
            table.require("sku")?,
            table.require("split")?,
        );
        let session = table.column("session");
        let mut pictures = Vec::new();
        for row in &table.rows {
            if !stays_inside(Path::new(row.cell(path))) {
                let reason =
                    "the path is empty or leads out of the folder; write it below the folder";
                return Err(table.wrong(row, path, reason));
            }
            if row.cell(sku).is_empty() {
                return Err(table.wrong(row, sku, "the SKU is empty"));
            }
            let role = match row.cell(split) {
                "gallery" => PictureRole::Gallery,
                "query" => PictureRole::Query,
                "stranger" => PictureRole::Stranger,
                other => {
                    let reason = format!("{other:?} is none of gallery, query, stranger");
                    return Err(table.wrong(row, split, reason));
                }
            };
            pictures.push(EvalPicture {
                path: row.cell(path).to_owned(),
                sku: row.cell(sku).to_owned(),
                role,
                session: session.map(|c| row.cell(c).to_owned()).unwrap_or_default(),
            });
        }
        Ok(pictures)
    }

    fn checked(
        folder: &Path,
        pictures: Vec<EvalPicture>,
        ignored: Vec<IgnoredPath>,
    ) -> Result<Self> {
        if pictures.is_empty() {
            return Err(GalleryError::NothingToEnroll {
                path: folder.into(),
                reason: "there is no picture to evaluate".into(),
            });
        }
        if pictures.len() > MAX_PICTURES {
            return Err(GalleryError::TooManyViews {
                got: pictures.len(),
                bound: MAX_PICTURES,
            });
        }
        Ok(Self {
            root: folder.into(),
            pictures,
            ignored,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Vec<EvalPicture>> {
        EvalSet::parse_manifest(text.as_bytes(), Path::new("m.csv"))
    }

    #[test]
    fn a_manifest_gives_roles_and_sessions_and_names_what_is_wrong() {
        let pictures = parse(
            "path,sku,split,rank,session\na/1.jpg,a,gallery,0,iconic\nb/2.jpg,b,stranger,1,\n",
        );
        let pictures = pictures.unwrap();
        assert_eq!(pictures[0].role, PictureRole::Gallery);
        assert_eq!(pictures[0].session, "iconic");
        assert_eq!(pictures[1].role, PictureRole::Stranger);
        for (text, wanted) in [
            ("path,sku\n", "line 1, column split"),
            ("path,sku,split\n../x.jpg,a,query\n", "line 2, column path"),
            ("path,sku,split\nx.jpg,,query\n", "line 2, column sku"),
            (
                "path,sku,split\nx.jpg,a,train\n",
                "line 2, column split: \"train\"",
            ),
        ] {
            let got = parse(text).unwrap_err().to_string();
            assert!(got.starts_with(wanted), "{got}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_manifests_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut text = b"path,sku,split\n".to_vec();
            text.extend(bytes);
            drop(EvalSet::parse_manifest(&text, Path::new("m.csv")));
        }
    }
}
