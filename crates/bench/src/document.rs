//! What a bench prints: a table under a line of conditions, or one JSON document.

use super::probe::{State, processors};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use serde::Serialize;

/// The JSON that every bench prints. The fields of a row name their units.
#[derive(Debug, Serialize)]
pub struct Document<'a, R> {
    /// `packets`, `latency`, `seeds`, `peers`, `stream`, `vector`, `vector-nftables`,
    /// `scale` or `demo`.
    pub bench: &'static str,
    /// Of Grantway.
    pub version: &'static str,
    /// Where it ran: `embedded`, whose ratios are not Xen's, `xen`, or `none`.
    pub host: String,
    /// Processors that it could use.
    pub processors: usize,
    /// The state of the machine in most rows.
    pub state: State,
    /// One for each line of the table.
    pub rows: &'a [R],
}

/// What every row says.
pub trait Row: Serialize {
    /// Where it was measured.
    fn host(&self) -> &str;
    /// The state that the machine was in.
    fn state(&self) -> State;
}

impl<'a, R: Row> Document<'a, R> {
    /// Of these rows.
    pub fn new(bench: &'static str, rows: &'a [R]) -> Self {
        let states = || rows.iter().map(Row::state);
        let most = states().max_by_key(|state| states().filter(|other| other == state).count());
        Self {
            bench,
            version: env!("CARGO_PKG_VERSION"),
            host: rows.first().map(|row| row.host().to_owned()).unwrap_or_default(),
            processors: processors().len(),
            state: most.unwrap_or(State::Changed),
            rows,
        }
    }

    /// Prints it as JSON, in one line.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn print(&self) -> Result<(), CommandError> {
        output::line(serde_json::to_string(self).map_err(CommandError::failed)?)
    }
}

/// When a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Always.
    Always,
    /// Where its cells differ; else it stands in the line of conditions.
    Varying,
    /// Where a cell is not empty.
    Filled,
}

/// A column of a table.
pub struct Column<R> {
    /// Its heading, as [`Table::new`] takes it.
    pub heading: &'static str,
    /// When it is shown.
    pub shown: Shown,
    /// What stands in it.
    pub cell: fn(&R) -> String,
}

impl<R> Column<R> {
    /// A column.
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

/// The table of these rows.
pub fn table<R>(rows: &[R], columns: &[Column<R>]) -> Table {
    let columns: Vec<_> = columns.iter().filter(|column| column.is_shown(rows)).collect();
    let headings: Vec<_> = columns.iter().map(|column| column.heading).collect();
    let mut table = Table::new(&headings);
    for row in rows {
        table.row(columns.iter().map(|column| (column.cell)(row)));
    }
    table
}

/// What is the same in all rows and so has no column: `burst 32, mode adaptive`.
pub fn conditions<R>(rows: &[R], columns: &[Column<R>]) -> String {
    let parts = varying(rows, columns).filter_map(|(name, values)| match &values[..] {
        [value] if !value.is_empty() => Some(format!("{name} {value}")),
        _ => None,
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What may differ between rows, by name, and what it is in these.
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

/// What rows say, each once, in their order.
pub fn different<R>(rows: &[R], say: impl Fn(&R) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for said in rows.iter().map(say) {
        if !found.contains(&said) {
            found.push(said);
        }
    }
    found
}

/// `embedded host, 2 processors, processes: host, backend, guest`.
pub fn place(host: &str, guests: usize) -> String {
    let guests = if guests > 1 { "two guests" } else { "guest" };
    processes(host, &format!("host, backend, {guests}"))
}

/// The same of any processes.
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
