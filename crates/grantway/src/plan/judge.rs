//! Limits that the vifs may reach: the need, the limit's value, and the command that raises it.

use super::Plan;
use super::machine::Machine;
use crate::args::QUEUES_OFFERED;
use grantway_backend::policy::PolicyLimits;
use grantway_command::limits::{
    DESCRIPTORS, GNTALLOC_PAGES, GNTDEV_GRANTS, GRANT_FRAMES, GRANTS_IN_FRAME, HANDLES_IN_FRAME,
    MAP_COUNT, MAPTRACK_FRAMES, OWN_AREAS, STORE_WATCHES, XL_PORTS, default_mapped, ports,
    raise_gntalloc, raise_map_count, roomy, store_nodes, with_buffers, xen_option,
};
use grantway_command::table::Table;
use grantway_embedded::PortTable;
use grantway_hypervisor::GrantRef;
use grantway_netif::ctrl::GREF_LIST_ENTRIES;
use serde_json::{Value, json};

/// Descriptors of a backend without a vif.
const OWN_DESCRIPTORS: u64 = 64;

/// A limit that the vifs may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Name by which the limit is set.
    pub name: &'static str,
    /// Domain, process or part with the limit.
    pub of: String,
    /// Amount that is needed.
    pub need: u64,
    /// Default value.
    pub default: u64,
    /// Value on this machine, if it can be read.
    pub here: Option<u64>,
    /// Command that raises the limit enough.
    pub raise: String,
}

impl Limit {
    /// Returns true if the limit is large enough, by its value on this machine or else by its
    /// default.
    pub fn fits(&self) -> bool {
        self.need <= self.here.unwrap_or(self.default)
    }

    /// Returns JSON for programs.
    pub fn json(&self) -> Value {
        json!({
            "limit": self.name,
            "of": self.of,
            "need": self.need,
            "default": self.default,
            "here": self.here,
            "fits": self.fits(),
            "raise": (!self.fits()).then_some(&self.raise),
        })
    }
}

/// Returns all limits that the plan may reach, those of the guests first.
pub fn limits(plan: &Plan, machine: &Machine) -> Vec<Limit> {
    let mut limits = of_guests(plan, machine);
    limits.extend(of_xen(plan, machine));
    limits.extend(of_process(plan, machine));
    if plan.driver_domain {
        limits.extend(of_store(plan));
    }
    limits
}

/// Returns the limits of one guest, which has `per_guest` vifs.
fn of_guests(plan: &Plan, machine: &Machine) -> Vec<Limit> {
    let (vif, vifs) = (plan.vif(), plan.per_guest);
    let of = || "each guest".to_owned();
    let grants = vif.grants() * vifs;
    // A guest's first grant references are reserved, and take entries too.
    let frames = (grants + u64::from(GrantRef::FIRST_FREE)).div_ceil(GRANTS_IN_FRAME);
    let (ports, nodes) = (vif.ports() * vifs, vif.guest_nodes() * vifs);
    let enough = roomy(frames);
    vec![
        Limit {
            name: "gnttab_max_frames",
            of: of(),
            need: frames,
            default: GRANT_FRAMES,
            here: machine.grant_frames,
            raise: format!(
                "max_grant_frames={enough} in xl.cfg, and {}",
                xen_option(&format!("gnttab_max_frames={enough}"))
            ),
        },
        Limit {
            name: "xen-gntalloc limit",
            of: "a guest with Grantway".to_owned(),
            need: grants,
            default: GNTALLOC_PAGES,
            here: machine.gntalloc,
            raise: format!("in the guest: {}", raise_gntalloc(roomy(grants))),
        },
        Limit {
            name: "max_event_channels",
            of: of(),
            need: ports,
            default: XL_PORTS,
            here: None,
            raise: format!("max_event_channels={} in xl.cfg", more_ports(ports)),
        },
        Limit {
            name: "store nodes",
            of: of(),
            need: nodes,
            default: store_nodes(),
            here: None,
            raise: raise_store("maxentity", "-E", nodes),
        },
    ]
}

/// Returns Xen's limits for the backend's domain.
fn of_xen(plan: &Plan, machine: &Machine) -> Vec<Limit> {
    let (vif, vifs) = (plan.vif(), plan.vifs);
    let of = || plan.place().to_owned();
    // On PV each mapped page takes two handles.
    let handles = plan.handles_a_page() * vifs;
    let handles = with_buffers(handles * vif.mapped_buffers(), handles * vif.mapped());
    let frames = handles.div_ceil(HANDLES_IN_FRAME);
    let enough = roomy(frames);
    let boot = xen_option(&format!("gnttab_max_maptrack_frames={enough}"));
    let mut limits = vec![Limit {
        name: "gnttab_max_maptrack_frames",
        of: of(),
        need: frames,
        default: MAPTRACK_FRAMES,
        here: machine.maptrack_frames,
        raise: match plan.driver_domain {
            true => format!("max_maptrack_frames={enough} in xl.cfg, and {boot}"),
            false => boot,
        },
    }];
    let channels = |name, default, raise: String| Limit {
        name,
        of: of(),
        need: vif.ports() * vifs,
        default,
        here: None,
        raise,
    };
    // xl sets a limit for a driver domain only; Linux's tables below limit dom0, too.
    if plan.driver_domain {
        let more = more_ports(vif.ports() * vifs);
        let raise = format!("max_event_channels={more} in xl.cfg");
        limits.push(channels("max_event_channels", XL_PORTS, raise));
    }
    let two_level = "remove xen.fifo_events=0 from Linux's command line (FIFO is the default)";
    limits.push(channels(
        "event channels, 2-level",
        ports(PortTable::TwoLevel),
        two_level.to_owned(),
    ));
    let split = "divide the vifs among several driver domains (key backend= of a vif)";
    limits.push(channels("event channels, FIFO", ports(PortTable::Fifo), split.to_owned()));
    limits
}

/// Returns the limits of the backend's process.
fn of_process(plan: &Plan, machine: &Machine) -> Vec<Limit> {
    let (vif, vifs) = (plan.vif(), plan.vifs);
    let of = || "grantway backend".to_owned();
    // The process has areas and descriptors of its own, beside those of the vifs.
    let areas = with_buffers(vif.buffer_areas() * vifs, vif.areas() * vifs) + OWN_AREAS;
    let descriptors = vif.descriptors() * vifs + OWN_DESCRIPTORS;
    let enough = roomy(descriptors);
    vec![
        Limit {
            name: "vm.max_map_count",
            of: of(),
            need: areas,
            default: MAP_COUNT,
            here: machine.map_count,
            raise: raise_map_count(roomy(areas)),
        },
        Limit {
            name: "xen-gntdev limit",
            of: "one map call".to_owned(),
            need: vif.mapped().min(GREF_LIST_ENTRIES as u64),
            default: GNTDEV_GRANTS,
            here: machine.gntdev,
            raise: format!("echo {GNTDEV_GRANTS} > /sys/module/xen_gntdev/parameters/limit"),
        },
        Limit {
            name: "descriptors",
            of: "the backend's unit".to_owned(),
            need: descriptors,
            default: DESCRIPTORS,
            // The limit of this shell is not that of the unit.
            here: None,
            raise: format!("LimitNOFILE={enough} in a drop-in of the unit"),
        },
        Limit {
            name: "--queues",
            of: of(),
            need: plan.queues,
            default: QUEUES_OFFERED.into(),
            here: None,
            raise: format!("grantway backend --queues {}", plan.queues),
        },
        Limit {
            name: "--mapped-pages",
            of: "each vif".to_owned(),
            need: vif.to_map(),
            default: PolicyLimits::default().pages as u64,
            // The option of the command line is the value that this backend gets.
            here: Some(plan.mapped_pages),
            raise: format!("grantway backend --mapped-pages {}", vif.to_map()),
        },
        Limit {
            name: "--mapped-total",
            of: of(),
            need: vif.mapped_buffers() * vifs,
            default: default_mapped(plan.handles_a_page() > 1),
            here: None,
            raise: format!("grantway backend --mapped-total {}", vif.mapped_buffers() * vifs),
        },
    ]
}

/// Returns the store's limits for an unprivileged domain with a backend. dom0 has none.
fn of_store(plan: &Plan) -> Vec<Limit> {
    let vif = plan.vif();
    let [nodes, watches] = [vif.backend_nodes(), vif.watches()].map(|n| n * plan.vifs);
    // One more watch is on the folder of all vifs.
    let watches = watches + 1;
    let limit = |name, need, default, raise| Limit {
        name,
        of: plan.place().to_owned(),
        need,
        default,
        here: None,
        raise,
    };
    vec![
        limit("store nodes", nodes, store_nodes(), raise_store("maxentity", "-E", nodes)),
        limit("store watches", watches, STORE_WATCHES, raise_store("maxwatch", "-W", watches)),
    ]
}

/// Returns the command that raises a quota of the store, for both programs that can be xenstored.
fn raise_store(quota: &str, option: &str, need: u64) -> String {
    let enough = roomy(need);
    format!(
        "in dom0: quota-{quota} = {enough} in /etc/xen/oxenstored.conf, or {option} {enough} in \
         XENSTORED_ARGS for the C xenstored; then reboot"
    )
}

/// Returns a number of event channels that is large enough, and that xl accepts.
fn more_ports(need: u64) -> u64 {
    (roomy(need + 1) - 1).min(ports(PortTable::Fifo))
}

/// Returns the table for people.
pub fn table(limits: &[Limit]) -> Table {
    let headings = ["limit", "of", "needed#", "default#", "here#", "verdict", "how to raise it"];
    let mut table = Table::new(&headings);
    for limit in limits {
        let fits = limit.fits();
        table.row([
            limit.name.to_owned(),
            limit.of.clone(),
            limit.need.to_string(),
            limit.default.to_string(),
            limit.here.map_or("-".to_owned(), |here| here.to_string()),
            if fits { "fits" } else { "too small" }.to_owned(),
            if fits { String::new() } else { limit.raise.clone() },
        ]);
    }
    table
}
