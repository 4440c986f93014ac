//! The table of packets and slots per interrupt and per turn, and of their counts.

use super::Row;
use super::figures::Batches;
use grantway_command::table::Table;

/// Heading of [`table`].
pub const HEADING: &str = "Packets and slots per interrupt and per poll round (NAPI schedule in \
                           the paper), and counts over the time of each run, which differs";

/// A line of the table: its name, and its value in a column.
type Line = (&'static str, fn(&Batches) -> String);

const LINES: [Line; 8] = [
    ("packets per interrupt (PPI)", |side| quotient(side.ppi)),
    ("slots per interrupt (SPI)", |side| quotient(side.spi)),
    ("packets per poll round (PPN)", |side| quotient(side.ppn)),
    ("slots per poll round (SPN)", |side| quotient(side.spn)),
    ("interrupts (tx_count)", |side| side.interrupts.to_string()),
    ("poll rounds (nr_napi_schedule)", |side| side.turns.to_string()),
    ("packets (total_packets)", |side| side.packets.to_string()),
    ("slots (total_reqs)", |side| side.slots.to_string()),
];

/// Returns a quotient as the paper prints it; a dash if an end never slept.
fn quotient(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

/// Returns the table of the rows of one table of a paper; `None` if the paper has no such figures.
pub fn table(rows: &[Row]) -> Option<Table> {
    let first = rows.first()?;
    let [copied, mapped] = first.paper_batches?;
    let mut columns = vec![
        ("paper copy#".to_owned(), copied),
        ("paper map#".to_owned(), mapped),
        (format!("our {}#", first.before.policy), first.before.batches),
    ];
    columns
        .extend(rows.iter().map(|row| (format!("our {}#", row.after.policy), row.after.batches)));
    let mut headings = vec![""];
    headings.extend(columns.iter().map(|(name, _)| name.as_str()));
    let mut table = Table::new(&headings);
    for (name, value) in LINES {
        let cells = columns.iter().map(|(_, side)| value(side));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    Some(table)
}
