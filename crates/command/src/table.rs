//! Tables of text, aligned by column.

use std::fmt;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A table with a line of headings.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these columns. A heading that ends in `#` is one of numbers, which are
    /// aligned right. The `#` is not shown.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let column = |heading: &&str| match heading.strip_suffix('#') {
            Some(heading) => (heading.to_owned(), Align::Right),
            None => ((*heading).to_owned(), Align::Left),
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Returns the headings. The flag is true for a column of numbers.
    pub fn headings(&self) -> impl Iterator<Item = (&str, bool)> {
        self.columns.iter().map(|(heading, align)| (heading.as_str(), *align == Align::Right))
    }

    /// Returns the rows, with the cells as they were given.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Adds a row. Cells that are missing are empty, and cells beyond the last
    /// column are not shown.
    pub fn row<T: fmt::Display>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }
}

/// Puts two blanks between columns, none at the end of a line, and a newline after each line.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<_> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let lines = || std::iter::once(&headings).chain(&self.rows);
        let widths: Vec<_> = (0..headings.len())
            .map(|at| lines().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max())
            .map(Option::unwrap_or_default)
            .collect();
        for row in lines() {
            let mut line = String::new();
            for (at, (&width, (_, align))) in widths.iter().zip(&self.columns).enumerate() {
                let cell = row.get(at).map_or("", String::as_str);
                let gap = if at > 0 { "  " } else { "" };
                line += &match align {
                    Align::Left => format!("{gap}{cell:<width$}"),
                    Align::Right => format!("{gap}{cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns a number in at most six characters: 0.5, 42, 1.23k, 12.3M.
#[must_use]
pub fn scaled(n: f64) -> String {
    let (mut n, mut unit) = (n, "");
    for further in ["k", "M", "G", "T"] {
        if n < 999.5 {
            break;
        }
        (n, unit) = (n / 1000.0, further);
    }
    match unit {
        "" if n >= 9.95 || n == 0.0 => format!("{n:.0}"),
        "" => format!("{n:.1}"),
        _ if n < 9.995 => format!("{n:.2}{unit}"),
        _ if n < 99.95 => format!("{n:.1}{unit}"),
        _ => format!("{n:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_left_and_numbers_right() {
        let mut table = Table::new(&["size#", "policy", "Mpps#"]);
        table.row(["64", "copy", "2.5"]);
        table.row(["1500", "persistent", "11.25"]);
        let expected =
            "size  policy       Mpps\n  64  copy          2.5\n1500  persistent  11.25\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn short_and_long_rows() {
        let mut table = Table::new(&["a", "b#"]);
        table.row(["\u{e9}\u{e9}"]);
        table.row(["x", "1", "not shown"]);
        assert_eq!(table.to_string(), "a   b\n\u{e9}\u{e9}\nx   1\n");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.5, 9.96, 42.4, 999.4, 999.6, 1234.0, 56_789.0, 999_600.0, 1.5e9, 2e15]
            .map(scaled);
        let expected =
            ["0", "0.5", "10", "42", "999", "1.00k", "1.23k", "56.8k", "1.00M", "1.50G", "2000T"];
        assert_eq!(shown, expected);
    }
}
