//! Output of a bench: a table under a line of conditions, or one JSON document.

use super::probe::{State, processors};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use serde::Serialize;

/// The JSON that every bench prints. The fields of a row name their units.
#[derive(Debug, Serialize)]
pub struct Document<'a, R> {
    /// Name of the bench: `packets`, `latency`, `papers`, `peers`, `stream`, `vector`,
    /// `vector-nftables`, `scale`, `prices` or `demo`.
    pub bench: &'static str,
    /// Version of Grantway.
    pub version: &'static str,
    /// Host of the ends: `embedded` (its ratios are not Xen's), `xen`, or `none`.
    pub host: String,
    /// Number of processors that the bench could use.
    pub processors: usize,
    /// The state of the machine in most rows.
    pub state: State,
    /// The rows of the table.
    pub rows: &'a [R],
}

/// A row of any bench.
pub trait Row: Serialize {
    /// Returns the host that the row was measured on.
    fn host(&self) -> &str;
    /// Returns the state that the machine was in.
    fn state(&self) -> State;
}

impl<'a, R: Row> Document<'a, R> {
    /// Makes a document of these rows.
    pub fn new(bench: &'static str, rows: &'a [R]) -> Self {
        let states = || rows.iter().map(Row::state);
        let most = states().max_by_key(|state| states().filter(|other| other == state).count());
        Self {
            bench,
            version: grantway_command::VERSION,
            host: rows.first().map(|row| row.host().to_owned()).unwrap_or_default(),
            processors: processors().len(),
            state: most.unwrap_or(State::Changed),
            rows,
        }
    }

    /// Prints the document as JSON, in one line.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn print(&self) -> Result<(), CommandError> {
        output::line(serde_json::to_string(self).map_err(CommandError::failed)?)
    }
}

/// Condition under which a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The column is always shown.
    Always,
    /// The column is shown if its cells differ. If they do not, their value is in the line of
    /// conditions.
    Varying,
    /// The column is shown if a cell is not empty.
    Filled,
}

/// A column of a table.
pub struct Column<R> {
    /// Heading of the column, as [`Table::new`] takes it.
    pub heading: &'static str,
    /// Condition under which the column is shown.
    pub shown: Shown,
    /// Returns the cell of a row.
    pub cell: fn(&R) -> String,
}

impl<R> Column<R> {
    /// Makes a column.
    pub const fn of(heading: &'static str, shown: Shown, cell: fn(&R) -> String) -> Self {
        Self { heading, shown, cell }
    }

    fn is_shown(&self, rows: &[R]) -> bool {
        match self.shown {
            Shown::Always => true,
            Shown::Varying => different(rows, self.cell).len() > 1,
            Shown::Filled => rows.iter().any(|row| !(self.cell)(row).is_empty()),
        }
    }
}

/// Returns the table of these rows.
pub fn table<R>(rows: &[R], columns: &[Column<R>]) -> Table {
    let columns: Vec<_> = columns.iter().filter(|column| column.is_shown(rows)).collect();
    let headings: Vec<_> = columns.iter().map(|column| column.heading).collect();
    let mut table = Table::new(&headings);
    for row in rows {
        table.row(columns.iter().map(|column| (column.cell)(row)));
    }
    table
}

/// Returns the values that are equal in all rows, and so have no column: `burst 32, mode adaptive`.
pub fn conditions<R>(rows: &[R], columns: &[Column<R>]) -> String {
    let parts = varying(rows, columns).filter_map(|(name, values)| match &values[..] {
        [value] if !value.is_empty() => Some(format!("{name} {value}")),
        _ => None,
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Iterates over the columns that may differ between rows, each with its name and its values here.
pub fn varying<R>(
    rows: &[R],
    columns: &[Column<R>],
) -> impl Iterator<Item = (String, Vec<String>)> {
    let columns = columns.iter().filter(|column| column.shown == Shown::Varying);
    columns.map(|column| {
        let name = column.heading.trim_end_matches('#').to_owned();
        (name, different(rows, column.cell))
    })
}

/// Returns the values that `say` gives for the rows, each once, in the order of the rows.
pub fn different<R>(rows: &[R], say: impl Fn(&R) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for said in rows.iter().map(say) {
        if !found.contains(&said) {
            found.push(said);
        }
    }
    found
}

/// Returns the place of a set-up in words: `embedded host, 2 processors, processes: host, backend,
/// guest`.
pub fn place(host: &str, guests: usize) -> String {
    let guests = if guests > 1 { "two guests" } else { "guest" };
    processes(host, &format!("host, backend, {guests}"))
}

/// Returns the place in words for any processes, as [`place`] does.
pub fn processes(host: &str, names: &str) -> String {
    let cpus = match processors().len() {
        1 => "one processor".to_owned(),
        n => format!("{n} processors"),
    };
    format!("{host} host, {cpus}, processes: {names}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<(u32, &str)>; 3] = [
        Column { heading: "n#", shown: Shown::Always, cell: |row| row.0.to_string() },
        Column { heading: "mode", shown: Shown::Varying, cell: |row| row.1.to_owned() },
        Column { heading: "note", shown: Shown::Filled, cell: |_| String::new() },
    ];

    #[test]
    fn what_does_not_differ_is_a_condition() {
        let rows = [(1, "busy"), (2, "busy")];
        assert_eq!(table(&rows, &COLUMNS).to_string(), "n\n1\n2\n");
        assert_eq!(conditions(&rows, &COLUMNS), "mode busy");
    }

    #[test]
    fn what_differs_is_a_column() {
        let rows = [(1, "busy"), (2, "adaptive")];
        assert_eq!(table(&rows, &COLUMNS).to_string(), "n  mode\n1  busy\n2  adaptive\n");
        assert_eq!(conditions(&rows, &COLUMNS), "");
    }
}
