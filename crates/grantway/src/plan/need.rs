//! Resources for the vifs, line by line.

use super::Plan;
use grantway_command::table::Table;
use serde::Serialize;

/// A resource that the vifs need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// End that needs the resource: guest or backend.
    pub side: &'static str,
    /// Name of the resource.
    pub what: &'static str,
    /// Unit of the numbers.
    pub unit: Unit,
    /// Amount for one queue, or `None` if the resource belongs to the vif.
    pub queue: Option<u64>,
    /// Amount for one vif.
    pub vif: u64,
    /// Amount for all vifs.
    pub all: u64,
}

/// Unit of a need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Number of the resource itself.
    Count,
    /// Bytes, which tables show as KiB or MiB.
    Bytes,
}

impl Unit {
    fn show(self, number: u64) -> String {
        match self {
            Self::Count => number.to_string(),
            Self::Bytes if number < 1 << 20 => format!("{} KiB", number >> 10),
            Self::Bytes => format!("{:.1} MiB", number as f64 / f64::from(1 << 20)),
        }
    }
}

/// Returns all resources that the vifs need.
pub fn needs(plan: &Plan) -> Vec<Need> {
    use Unit::{Bytes, Count};
    // A vif of one queue shows what a queue takes.
    let (vif, one) = (plan.vif(), super::Plan { queues: 1, ..*plan }.vif());
    let queue_grants = one.rings() + one.buffers();
    let two = super::Plan { queues: 2, ..*plan }.vif();
    let queue_descriptors = two.descriptors() - one.descriptors();
    let handles = plan.handles_a_page();
    let need = |side, what, unit, queue: Option<u64>, vif: u64| Need {
        side,
        what,
        unit,
        queue,
        vif,
        all: vif.saturating_mul(plan.vifs),
    };
    let guest = |what, unit, queue, vif| need("guest", what, unit, queue, vif);
    let backend = |what, unit, queue, vif| need("backend", what, unit, queue, vif);
    // The guest's needs come first, then the backend's, then those of its port.
    let mut needs = vec![
        guest("grants: rings", Count, Some(one.rings()), vif.rings()),
        guest("grants: control ring and lists", Count, None, vif.control()),
        guest("grants: buffers", Count, Some(one.buffers()), vif.buffers()),
        guest("at rest", Count, Some(one.resting_buffers()), vif.resting_buffers()),
        guest("grants, total", Count, Some(queue_grants), vif.grants()),
        guest("memory granted", Bytes, Some(4096 * queue_grants), 4096 * vif.grants()),
        guest("event channels", Count, Some(2), vif.ports()),
        guest("store nodes", Count, None, vif.guest_nodes()),
        backend("pages mapped: rings, control ring", Count, Some(one.rings()), vif.rings() + 1),
        backend("pages mapped: buffers", Count, Some(one.to_map()), vif.mapped_buffers()),
        backend("at rest", Count, Some(one.mapped_resting()), vif.mapped_resting()),
        backend("memory mapped", Bytes, None, 4096 * vif.mapped()),
        backend("maptrack handles", Count, None, handles * vif.mapped()),
        backend("areas of address space", Count, None, vif.areas()),
        backend("event channels", Count, Some(2), vif.ports()),
        backend("descriptors", Count, Some(queue_descriptors), vif.descriptors()),
        backend("store nodes", Count, None, vif.backend_nodes()),
        backend("store watches", Count, None, vif.watches()),
        backend("journal in the run directory", Bytes, None, vif.journal()),
        backend("memory of waiting frames", Bytes, Some(one.waiting()), vif.waiting()),
    ];
    if vif.kernel_threads() > 0 {
        needs.extend([
            backend(
                "threads of vhost-net",
                Count,
                Some(one.kernel_threads()),
                vif.kernel_threads(),
            ),
            backend("memory of vhost-net", Bytes, Some(one.kernel_memory()), vif.kernel_memory()),
        ]);
    }
    needs
}

/// Returns the table for people.
pub fn table(needs: &[Need]) -> Table {
    let mut table = Table::new(&["side", "what", "per queue#", "per vif#", "total#"]);
    for need in needs {
        let queue = need.queue.map_or("-".to_owned(), |n| need.unit.show(n));
        let [vif, all] = [need.vif, need.all].map(|n| need.unit.show(n));
        table.row([need.side.to_owned(), need.what.to_owned(), queue, vif, all]);
    }
    table
}
