//! `grantway bench`: figures with the conditions under which they hold.

pub mod packets;
pub mod probe;
pub mod rig;

use crate::cli::{BenchArgs, BenchWhat, PacketsArgs};
use crate::error::CommandError;
use crate::output;
use crate::table::Table;
use packets::{Measured, Point};

/// Runs the bench that was asked for.
///
/// # Errors
///
/// The command line asks for something that cannot be, or a part of the rig
/// failed.
pub fn run(args: &BenchArgs) -> Result<(), CommandError> {
    match &args.what {
        BenchWhat::Packets(args) => run_packets(args),
    }
}

fn run_packets(args: &PacketsArgs) -> Result<(), CommandError> {
    let point = Point {
        policy: args.policy.name().to_string(),
        direction: args.direction,
        size: args.size,
        queues: args.queues.into(),
        burst: args.burst,
        seconds: args.seconds,
    };
    let measured = packets::measure(&point, &mut |_| {})?;
    if args.json {
        let text = serde_json::to_string(&measured).map_err(CommandError::failed)?;
        output::line(text)
    } else {
        output::line(table(std::slice::from_ref(&measured)).to_string())
    }
}

/// The figures of several points, one a line.
pub fn table(rows: &[Measured]) -> Table {
    let mut table = Table::new(&[
        "policy",
        "direction",
        "bytes#",
        "queues#",
        "burst#",
        "Mpps#",
        "Gbit/s#",
        "lost#",
        "PPI#",
        "SPI#",
        "PPN#",
        "SPN#",
        "grant ops/pkt#",
        "notifies/pkt#",
        "host",
        "state",
    ]);
    for row in rows {
        let ratio = |value: Option<f64>| value.map_or("-".to_string(), |v| format!("{v:.1}"));
        table.row([
            row.policy.clone(),
            row.direction.words().to_string(),
            row.size.to_string(),
            row.queues.to_string(),
            row.burst.to_string(),
            format!("{:.3}", row.mpps),
            format!("{:.2}", row.gbps),
            row.lost.to_string(),
            ratio(row.ppi),
            ratio(row.spi),
            ratio(row.ppn),
            ratio(row.spn),
            format!("{:.2}", row.grant_ops_per_packet),
            format!("{:.4}", row.notifies_per_packet),
            row.host.clone(),
            row.state.as_str().to_string(),
        ]);
    }
    table
}
