//! Plain text tables: first column to the left, the others to the right.

use std::fmt;

/// Rows of cells, padded when written.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned)],
        }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: [usize; N] = std::array::from_fn(|column| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        });
        for row in &self.rows {
            let padded: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(i, (cell, width))| {
                    // A name comes first or last and reads from the left.
                    if i == 0 || i + 1 == N {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            writeln!(f, "{}", padded.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_clean() {
        let mut table = Table::new(["sku", "views", "name"]);
        table.row(["a".into(), "12".into(), String::new()]);
        table.row(["longer".into(), "3".into(), "x".into()]);
        assert_eq!(
            table.to_string(),
            "sku     views  name\na          12\nlonger      3  x\n"
        );
    }
}
