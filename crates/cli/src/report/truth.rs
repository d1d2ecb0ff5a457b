//! What really stands on the shelf, to hold the counts against.

use std::{collections::BTreeMap, fs::File, path::Path};

use anyhow::Context;
use serde::Deserialize;

use crate::exit::Usage;

/// Facings that are known to be there, by whoever drew or walked the shelf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Facings of each SKU the gallery has.
    pub(crate) skus: BTreeMap<String, u64>,
    /// All facings, also those of packs the gallery does not have.
    pub(crate) facings: u64,
}

#[derive(Deserialize)]
struct Row {
    sku: String,
    facings: u64,
}

impl Truth {
    /// Reads a table with the columns `sku` and `facings`. A row without a SKU counts the packs that
    /// are in no gallery; several rows of a SKU are added up.
    pub(crate) fn read_csv(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)
            .with_context(|| format!("the truth cannot be read: {}", path.display()))?;
        let mut table = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(file);
        let mut truth = Self::default();
        for row in table.deserialize() {
            let row: Row = row.map_err(|error| {
                Usage::new(format!(
                    "the truth does not parse ({error}): {}",
                    path.display()
                ))
                .hint("it is a CSV table with the columns `sku` and `facings`, a row for each SKU")
            })?;
            truth.facings = truth.facings.saturating_add(row.facings);
            if !row.sku.is_empty() {
                let facings = truth.skus.entry(row.sku).or_default();
                *facings = facings.saturating_add(row.facings);
            }
        }
        Ok(truth)
    }

    /// Facings of packs that the gallery does not have.
    pub(crate) fn strangers(&self) -> u64 {
        let known = self
            .skus
            .values()
            .fold(0, |sum: u64, n| sum.saturating_add(*n));
        self.facings.saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_truth_is_added_up_and_a_broken_one_is_named_with_its_columns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth.csv");
        std::fs::write(&path, "facings, sku\n3,cola\n2,cola\n4,\n1,tea\n").unwrap();
        let truth = Truth::read_csv(&path).unwrap();
        assert_eq!(truth.skus, [("cola".into(), 5), ("tea".into(), 1)].into());
        assert_eq!((truth.facings, truth.strangers()), (10, 4));
        std::fs::write(&path, "sku,facings\ncola,many\n").unwrap();
        let error = Truth::read_csv(&path).unwrap_err().to_string();
        assert!(
            error.contains("line: 2") && error.ends_with("truth.csv"),
            "{error}"
        );
    }
}
