//! Resources that all vifs of a backend share, with the limit and the used amount of each.

use grantway_backend::{Backend, GraphReport, VifReport, WAITING_MAX};
use grantway_command::limits::UNBOUNDED;
use grantway_vector::nodes::FRAGMENTED_MAX;
use grantway_vector::nodes::bridge::STATIONS_MAX;
use grantway_vector::nodes::firewall::{CONNECTIONS_MAX, OF_PORT_LEAST};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A resource that all vifs share.
#[derive(Debug, PartialEq, Eq)]
pub struct Share {
    /// Key of the resource in reports.
    pub key: &'static str,
    /// Name of the resource.
    pub name: &'static str,
    /// Consequence if nothing is left, and the remedy. `None` for stations, connections and
    /// fragments, of which each vif has a part of its own.
    pub beyond: Option<[&'static str; 2]>,
}

/// All shared resources, in the order in which they are shown.
pub const SHARES: [Share; 7] = [
    Share {
        key: "pages",
        name: "pages mapped",
        beyond: Some([
            "further buffers are copied",
            "raise grantway backend --mapped-total and Xen's gnttab_max_maptrack_frames (see \
             grantway plan)",
        ]),
    },
    Share {
        key: "areas",
        name: "areas",
        beyond: Some([
            "further buffers are copied",
            "raise sysctl vm.max_map_count (see grantway \
                                                     plan)",
        ]),
    },
    Share {
        key: "descriptors",
        name: "descriptors",
        beyond: Some([
            "further vifs are refused",
            "raise LimitNOFILE= in the backend's unit (see grantway plan)",
        ]),
    },
    Share { key: "waiting_bytes", name: "waiting bytes", beyond: None },
    Share { key: "stations", name: "stations", beyond: None },
    Share { key: "connections", name: "connections", beyond: None },
    Share { key: "fragmented", name: "fragmented packets", beyond: None },
];

/// Used and largest amount of each share in a report, by its key.
pub type Parts = BTreeMap<String, Part>;

/// Returns the shares of which a report has used amounts, in the order of [`SHARES`].
pub fn used(parts: &Parts) -> impl Iterator<Item = (&'static Share, Part)> + '_ {
    let each = SHARES.iter().filter_map(|share| Some((share, *parts.get(share.key)?)));
    each.filter(|(_, part)| part.used > 0)
}

/// Used and largest amount of a shared resource.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Amount that is used.
    #[serde(default)]
    pub used: u64,
    /// Most that may be used; 0 if nothing may be used, or if the limit is unknown.
    #[serde(default)]
    pub limit: u64,
}

impl Part {
    /// Returns true if at most a tenth is left.
    pub fn is_tight(self) -> bool {
        self.limit > 0 && self.used >= self.limit - self.limit / 10
    }

    /// Returns true if there is a limit and it is known.
    pub fn is_bounded(self) -> bool {
        (1..UNBOUNDED).contains(&self.limit)
    }
}

/// Returns the most connections of a firewall for `vifs` vifs. Their ports or the uplink count as
/// one more vif.
pub fn connections_max(vifs: u64) -> u64 {
    u64::from(CONNECTIONS_MAX) + u64::from(OF_PORT_LEAST) * (vifs + 1)
}

/// Returns the most fragmented packets that are followed for `vifs` vifs. Their ports or the uplink
/// count as one more vif.
pub fn fragmented_max(vifs: u64) -> u64 {
    FRAGMENTED_MAX as u64 * (vifs + 1)
}

/// Counter of this process's open descriptors. Its folder stays open, since a confined process
/// cannot open it again.
pub struct Descriptors(Option<RefCell<Dir>>);

impl Descriptors {
    /// Opens the folder.
    pub fn open() -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/fd", flags, Mode::empty());
        Self(folder.and_then(Dir::new).ok().map(RefCell::new))
    }

    /// Returns the number of open descriptors; 0 if there is no `/proc`.
    fn count(&self) -> u64 {
        let Some(folder) = &self.0 else { return 0 };
        let mut folder = folder.borrow_mut();
        folder.rewind();
        let is_number = |name: &[u8]| name.first().is_some_and(u8::is_ascii_digit);
        let each = folder.by_ref().map_while(Result::ok);
        each.filter(|entry| is_number(entry.file_name().to_bytes())).count() as u64
    }
}

/// Returns the used amount and the limit of each resource of a backend.
pub fn of(
    backend: &Backend,
    vifs: &[VifReport],
    graph: Option<&GraphReport>,
    descriptors: &Descriptors,
) -> Parts {
    let (used, limit) = (backend.budget().used(), backend.budget().limit());
    let queues = vifs.iter().flat_map(|vif| &vif.queues);
    let (waiting, queues) = queues.fold((0, 0), |(waiting, queues), queue| {
        (waiting + queue.waiting_bytes as u64, queues + 1)
    });
    let descriptors = Part {
        used: descriptors.count(),
        // A process without this limit may have as many as it can use.
        limit: getrlimit(Resource::Nofile).current.unwrap_or(UNBOUNDED),
    };
    let mut parts = vec![
        ("pages", Part { used: used.pages as u64, limit: limit.pages as u64 }),
        ("areas", Part { used: used.areas as u64, limit: limit.areas as u64 }),
        ("descriptors", descriptors),
        ("waiting_bytes", Part { used: waiting, limit: queues * WAITING_MAX as u64 }),
    ];
    if let Some(GraphReport { known, .. }) = graph {
        let vifs = vifs.len() as u64;
        parts.extend([
            ("stations", Part { used: known.stations, limit: STATIONS_MAX as u64 }),
            ("connections", Part { used: known.connections, limit: connections_max(vifs) }),
            ("fragmented", Part { used: known.fragmented, limit: fragmented_max(vifs) }),
        ]);
    }
    parts.into_iter().map(|(key, part)| (key.to_owned(), part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_counted_from_the_first_each_time() {
        let descriptors = Descriptors::open();
        // Other tests of this process open files, too, so there are more than these.
        let files: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let counts = [descriptors.count(), descriptors.count()];
        assert!(counts.iter().all(|&count| count > 64), "{counts:?} with {} files", files.len());
    }

    #[test]
    fn a_part_is_tight_before_it_is_used_up() {
        let is_tight = |used, limit| Part { used, limit }.is_tight();
        assert_eq!([(8, 10), (9, 10), (10, 10)].map(|(u, l)| is_tight(u, l)), [false, true, true]);
        assert!(!is_tight(5, 0), "the limit is unknown");
    }
}
