//! Names, GTINs and prices of SKUs, from a CSV file.
//!
//! The first line names the columns: `sku` (the folder's name) and any of `name`, `gtin`, `price`.
//! Commas or semicolons, with or without a byte order mark; other columns are left aside.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{GalleryError, Result};

/// Largest CSV file that is read, in bytes; 100,000 SKUs take about a tenth of it.
const MAX_CSV_BYTES: u64 = 64 << 20;

/// A trade item number, padded to 14 digits so that EAN-8, UPC-A, EAN-13 and GTIN-14 compare equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gtin(String);

impl Gtin {
    /// Reads 8, 12, 13 or 14 digits; blanks and dashes between them are allowed.
    ///
    /// # Errors
    /// What is wrong with the text, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits: String = text
            .chars()
            .filter(|c| !c.is_ascii_whitespace() && *c != '-')
            .collect();
        if digits.contains(['e', 'E']) && digits.contains('+') {
            return Err(format!(
                "{text:?} is a number a spreadsheet rounded; format the column as text and enter it again"
            ));
        }
        if !digits.bytes().all(|b| b.is_ascii_digit()) || !matches!(digits.len(), 8 | 12 | 13 | 14)
        {
            return Err(format!("{text:?} is not a GTIN of 8, 12, 13 or 14 digits"));
        }
        let padded = format!("{digits:0>14}");
        let sum: u32 = padded
            .bytes()
            .take(13)
            .enumerate()
            .map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 3 } else { 1 })
            .sum();
        let wanted = (10 - sum % 10) % 10;
        if padded.bytes().last().map(|b| u32::from(b - b'0')) != Some(wanted) {
            return Err(format!(
                "the check digit of {text:?} is wrong, by the others it would be {wanted}"
            ));
        }
        Ok(Self(padded))
    }

    /// The 14 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Gtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Gtin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Gtin> for String {
    fn from(gtin: Gtin) -> Self {
        gtin.0
    }
}

/// What is known about a SKU beside its views.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SkuMetadata {
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Trade item number, which ties barcodes to the SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtin: Option<Gtin>,
    /// Price in the currency of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
}

/// The rows of a metadata file, by SKU, and the columns nobody reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataTable {
    /// Metadata by the name of the SKU's folder.
    pub skus: BTreeMap<String, SkuMetadata>,
    /// Columns that were left aside.
    pub ignored_columns: Vec<String>,
}

impl MetadataTable {
    /// Reads a CSV file.
    ///
    /// # Errors
    /// [`GalleryError::Csv`] with line and column, or [`GalleryError::Io`].
    pub fn read(path: &Path) -> Result<Self> {
        let length = std::fs::metadata(path)
            .map_err(GalleryError::io("read", path))?
            .len();
        if length > MAX_CSV_BYTES {
            return Err(GalleryError::Csv {
                path: path.into(),
                line: 1,
                column: "1".into(),
                reason: format!(
                    "the file has {length} bytes, at most {MAX_CSV_BYTES} are read; name a CSV file of SKUs"
                ),
            });
        }
        let bytes = std::fs::read(path).map_err(GalleryError::io("read", path))?;
        Self::parse(&bytes, path)
    }

    /// Reads the bytes of a CSV file; `path` only serves the messages.
    ///
    /// # Errors
    /// [`GalleryError::Csv`] with line and column.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let table = CsvTable::parse(bytes, path)?;
        let sku_column = table.require("sku")?;
        let name_column = table.column("name");
        let gtin_column = table.column("gtin");
        let price_column = table.column("price");
        let known = [Some(sku_column), name_column, gtin_column, price_column];
        let ignored_columns = table
            .columns
            .iter()
            .enumerate()
            .filter(|(i, _)| !known.contains(&Some(*i)))
            .map(|(_, name)| name.clone())
            .collect();
        let mut skus = BTreeMap::new();
        let mut gtins: BTreeSet<Gtin> = BTreeSet::new();
        for row in &table.rows {
            let sku = row.cell(sku_column);
            if sku.is_empty() {
                return Err(table.wrong(
                    row,
                    sku_column,
                    "the SKU is empty; write the name of its folder",
                ));
            }
            let gtin = match gtin_column.map(|c| (c, row.cell(c))) {
                Some((column, text)) if !text.is_empty() => {
                    let gtin =
                        Gtin::parse(text).map_err(|reason| table.wrong(row, column, reason))?;
                    if !gtins.insert(gtin.clone()) {
                        let reason = format!("GTIN {text} is given to an earlier SKU as well");
                        return Err(table.wrong(row, column, reason));
                    }
                    Some(gtin)
                }
                _ => None,
            };
            let price = match price_column.map(|c| (c, row.cell(c))) {
                Some((column, text)) if !text.is_empty() => {
                    Some(parse_price(text).map_err(|reason| table.wrong(row, column, reason))?)
                }
                _ => None,
            };
            let name = name_column
                .map(|c| row.cell(c).to_owned())
                .filter(|name| !name.is_empty());
            let metadata = SkuMetadata { name, gtin, price };
            if skus.insert(sku.to_owned(), metadata).is_some() {
                let reason = format!("SKU {sku} has an earlier line; keep one of them");
                return Err(table.wrong(row, sku_column, reason));
            }
        }
        Ok(Self {
            skus,
            ignored_columns,
        })
    }
}

/// A decimal with point or comma, not negative.
fn parse_price(text: &str) -> Result<f64, String> {
    text.replace(',', ".")
        .parse()
        .ok()
        .filter(|price: &f64| price.is_finite() && *price >= 0.0)
        .ok_or_else(|| {
            format!("{text:?} is not a price; write a number such as 1.99, without a currency")
        })
}

/// A CSV file as trimmed cells that remember their line.
pub(crate) struct CsvTable<'a> {
    path: &'a Path,
    /// Lower-case column names.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<CsvRow>,
}

/// One record of a [`CsvTable`].
pub(crate) struct CsvRow {
    line: u64,
    cells: csv::StringRecord,
}

impl CsvRow {
    /// The trimmed cell, empty when the row is short.
    pub(crate) fn cell(&self, column: usize) -> &str {
        self.cells.get(column).unwrap_or("").trim()
    }
}

impl<'a> CsvTable<'a> {
    pub(crate) fn parse(bytes: &[u8], path: &'a Path) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let header = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        // Spreadsheets in countries with a decimal comma write semicolons.
        let delimiter = if header.contains(&b';') && !header.contains(&b',') {
            b';'
        } else {
            b','
        };
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .from_reader(bytes);
        let at = |line, column: String, reason: String| GalleryError::Csv {
            path: path.into(),
            line,
            column,
            reason,
        };
        let translate = |error: csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            match error.kind() {
                csv::ErrorKind::Utf8 { err, .. } => at(
                    line,
                    (err.field() + 1).to_string(),
                    "the text is not UTF-8; save the file as \"CSV UTF-8\"".into(),
                ),
                csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } => at(
                    line,
                    (len.min(expected_len) + 1).to_string(),
                    format!("the line has {len} cells, the header has {expected_len}"),
                ),
                other => at(line, "1".into(), format!("{other:?}")),
            }
        };
        let columns: Vec<String> = reader
            .headers()
            .map_err(translate)?
            .iter()
            .map(|name| name.trim().to_lowercase())
            .collect();
        for (i, name) in columns.iter().enumerate() {
            if !name.is_empty() && columns[..i].contains(name) {
                return Err(at(
                    1,
                    name.clone(),
                    "two columns have this name; keep one".into(),
                ));
            }
        }
        let rows = reader
            .into_records()
            .map(|record| {
                record.map_err(translate).map(|cells| CsvRow {
                    line: cells.position().map_or(0, csv::Position::line),
                    cells,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            path,
            columns,
            rows,
        })
    }

    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    pub(crate) fn require(&self, name: &str) -> Result<usize> {
        self.column(name).ok_or_else(|| GalleryError::Csv {
            path: self.path.into(),
            line: 1,
            column: name.into(),
            reason: format!(
                "the first line names no such column, only {}",
                self.columns.join(", ")
            ),
        })
    }

    pub(crate) fn wrong(
        &self,
        row: &CsvRow,
        column: usize,
        reason: impl Into<String>,
    ) -> GalleryError {
        GalleryError::Csv {
            path: self.path.into(),
            line: row.line,
            column: self
                .columns
                .get(column)
                .cloned()
                .unwrap_or_else(|| (column + 1).to_string()),
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<MetadataTable> {
        MetadataTable::parse(text.as_bytes(), Path::new("skus.csv"))
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn names_gtins_and_prices_are_read_with_comma_semicolon_and_byte_order_mark() {
        let plain = parse("sku,name,gtin,price\ncola,\"Cola, 1 l\",4006381333931,1.99\nmilk,,,\n");
        let marked = parse(
            "\u{FEFF}SKU;Name;GTIN;Price\r\ncola;Cola, 1 l;4006381333931;1,99\r\nmilk;;;\r\n",
        );
        let table = plain.unwrap();
        assert_eq!(table, marked.unwrap());
        let cola = &table.skus["cola"];
        assert_eq!(cola.name.as_deref(), Some("Cola, 1 l"));
        assert_eq!(cola.gtin.as_ref().unwrap().as_str(), "04006381333931");
        assert_eq!(cola.price, Some(1.99));
        assert_eq!(table.skus["milk"], SkuMetadata::default());
    }

    #[test]
    fn an_error_names_the_line_the_column_and_the_remedy() {
        let cases = [
            ("name\nx\n", "line 1, column sku: "),
            (
                "sku,gtin\na,4006381333931\nb,4006381333932\n",
                "line 3, column gtin: the check digit",
            ),
            (
                "sku,gtin\na,4.00638E+12\n",
                "line 2, column gtin: \"4.00638E+12\" is a number a spreadsheet rounded",
            ),
            ("sku,gtin\na,12\n", "line 2, column gtin: "),
            (
                "sku,gtin\na,4006381333931\nb,04006381333931\n",
                "line 3, column gtin: GTIN 04006381333931 is given",
            ),
            ("sku,price\na,EUR 2\n", "line 2, column price: "),
            ("sku,price\na,-1\n", "line 2, column price: "),
            (
                "sku,name\na,\"two\nlines\"\n,x\n",
                "line 4, column sku: the SKU is empty",
            ),
            ("sku,name\na,x\na,y\n", "line 3, column sku: "),
            ("sku,name\na\n", "line 2, column 2: the line has 1 cells"),
            ("sku,sku\na,b\n", "line 1, column sku: two columns"),
        ];
        for (text, wanted) in cases {
            let got = message(text);
            assert!(
                got.starts_with(wanted) && got.ends_with(": skus.csv"),
                "{text:?}: {got}"
            );
        }
        let latin = MetadataTable::parse(b"sku,name\na,caf\xE9\n", Path::new("skus.csv"));
        let got = latin.unwrap_err().to_string();
        assert!(
            got.starts_with("line 2, column 2: the text is not UTF-8"),
            "{got}"
        );
    }

    #[test]
    fn gtins_of_all_lengths_are_one_number() {
        let upc = Gtin::parse("036000291452").unwrap();
        assert_eq!(upc, Gtin::parse("0036000291452").unwrap());
        assert_eq!(upc, Gtin::parse("00036000291452").unwrap());
        assert!(Gtin::parse("96385074").is_ok());
        assert_eq!(Gtin::parse("0 36000-29145 2").unwrap(), upc);
        assert!(serde_json::from_str::<Gtin>("\"036000291453\"").is_err());
    }

    #[test]
    fn unread_columns_are_listed() {
        let table = parse("sku,brand,name,shelf\na,b,c,d\n").unwrap();
        assert_eq!(table.ignored_columns, ["brand", "shelf"]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            drop(MetadataTable::parse(&bytes, Path::new("x.csv")));
            let mut text = b"sku,name,gtin,price\n".to_vec();
            text.extend(bytes);
            if let Err(error) = MetadataTable::parse(&text, Path::new("x.csv")) {
                let named = matches!(error, GalleryError::Csv { .. });
                prop_assert!(named);
            }
        }
    }
}
