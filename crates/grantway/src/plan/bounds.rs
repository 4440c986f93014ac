//! Limits of the backend's work and tables that vifs share. No guest can exceed them.

use super::Plan;
use crate::shares::{connections_max, fragmented_max};
use grantway_backend::{CONTROL_WORK_MAX, ROUND_MAX};
use grantway_command::table::Table;
use grantway_vector::nodes::FRAGMENTED_MAX;
use grantway_vector::nodes::bridge::{Learning, STATIONS_MAX};
use grantway_vector::nodes::firewall::{OF_PORT_LEAST, OF_PORT_MAX};
use serde::Serialize;

/// A resource that the vifs share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Name of the resource.
    pub what: &'static str,
    /// Amount for all vifs together.
    pub all: u64,
    /// Amount that is reserved for each vif, or `None` if nothing is reserved.
    pub least: Option<u64>,
    /// Most that one vif may use, or `None` without such a limit.
    pub most: Option<u64>,
    /// Consequence if more is needed.
    pub beyond: &'static str,
}

/// Returns all shared resources.
pub fn bounds(plan: &Plan) -> Vec<Bound> {
    let vifs = plan.vifs;
    let [least, most] = [OF_PORT_LEAST, OF_PORT_MAX].map(u64::from);
    let (fragmented, stations) = (FRAGMENTED_MAX as u64, u64::from(Learning::default().stations));
    // Work comes first, since it says how long others wait; then tables.
    vec![
        Bound {
            what: "round of a worker, us",
            all: ROUND_MAX.as_micros() as u64,
            least: None,
            most: None,
            beyond: "the rest waits for the next round",
        },
        Bound {
            what: "control step, pages",
            all: CONTROL_WORK_MAX as u64,
            least: None,
            most: None,
            beyond: "the rest waits for the next step",
        },
        Bound {
            what: "stations of the bridge",
            all: (stations * vifs).min(STATIONS_MAX as u64),
            least: None,
            most: Some(stations),
            beyond: "frames to further stations are flooded; stations = N in the rules",
        },
        Bound {
            what: "connections of the firewall",
            all: connections_max(vifs),
            least: Some(least),
            most: Some(most),
            beyond: "packets of further connections are dropped",
        },
        Bound {
            what: "fragmented packets",
            all: fragmented_max(vifs),
            least: Some(fragmented),
            most: Some(fragmented),
            beyond: "the vif's oldest is discarded",
        },
    ]
}

/// Returns the table for people.
pub fn table(bounds: &[Bound]) -> Table {
    let mut table = Table::new(&["shared", "total#", "min per vif#", "max per vif#", "beyond"]);
    for bound in bounds {
        let or_none = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        table.row([
            bound.what.to_owned(),
            bound.all.to_string(),
            or_none(bound.least),
            or_none(bound.most),
            bound.beyond.to_owned(),
        ]);
    }
    table
}
