//! The defaults of Xen, its store and Linux for limited resources, and the ways to raise them. A
//! driver's limit stands in the crate that meets it.

use grantway_embedded::PortTable;
use grantway_embedded::store::Quotas;

pub use grantway_xen::{GNTALLOC_PAGES, GNTDEV_GRANTS};

/// Pages of a domain's grant table (`gnttab_max_frames`, Xen 4.10 and later).
pub const GRANT_FRAMES: u64 = 64;
/// Entries of a page of the grant table (version 1, of 8 bytes).
pub const GRANTS_IN_FRAME: u64 = 4096 / 8;
/// Pages of a domain's table of its mappings (`gnttab_max_maptrack_frames`).
pub const MAPTRACK_FRAMES: u64 = 1024;
/// Handles in a page of that table (16 bytes each).
pub const HANDLES_IN_FRAME: u64 = 4096 / 16;
/// Pages that may be mapped if no hypervisor counts them: practically all.
pub const UNBOUNDED: u64 = 1 << 32;
/// Event channels of a guest, by xl (`max_event_channels` of xl.cfg).
pub const XL_PORTS: u64 = 1023;
/// Areas of a process's address space (`vm.max_map_count`).
pub const MAP_COUNT: u64 = 65_530;
/// Areas that a process has without any vif.
pub const OWN_AREAS: u64 = 1000;
/// Descriptors of the backend's process, by `LimitNOFILE=` of the units in `packaging/systemd`.
pub const DESCRIPTORS: u64 = 65_536;
/// Watches of an unprivileged domain in oxenstored; xenstored allows 128.
pub const STORE_WATCHES: u64 = 100;

/// Returns the event channels of a domain by tables of this kind. Port 0 is reserved.
pub fn ports(table: PortTable) -> u64 {
    u64::from(table.ports()).saturating_sub(1)
}

/// Returns the nodes of the store that an unprivileged domain may own.
pub fn store_nodes() -> u64 {
    Quotas::default().nodes as u64
}

/// Returns the way to give Xen an option.
pub fn xen_option(option: &str) -> String {
    format!(
        "add {option} to GRUB_CMDLINE_XEN_DEFAULT in /etc/default/grub, then: update-grub && reboot"
    )
}

/// Returns the command that makes gntalloc give more pages.
pub fn raise_gntalloc(pages: u64) -> String {
    format!("echo {pages} > /sys/module/xen_gntalloc/parameters/limit")
}

/// Returns the command that makes Linux allow more areas.
pub fn raise_map_count(areas: u64) -> String {
    format!("sysctl -w vm.max_map_count={areas}")
}

/// Returns the part of a limit that buffers may take, if rings count towards the limit, too. The
/// rest is for rings, so that a vif can be connected whatever others have mapped.
pub fn for_buffers(limit: u64) -> u64 {
    limit / 4 * 3
}

/// Returns the value that such a limit needs, if buffers take `buffers` of `all` that is needed.
pub fn with_buffers(buffers: u64, all: u64) -> u64 {
    all.max((buffers * 4).div_ceil(3))
}

/// Returns the pages that buffers of all vifs may have mapped by Xen's default. `twice` is true if
/// a mapped page takes two handles, and false if it takes one.
pub fn default_mapped(twice: bool) -> u64 {
    for_buffers(MAPTRACK_FRAMES * HANDLES_IN_FRAME / (1 + u64::from(twice)))
}

/// Returns the value to ask for if `needed` is needed. It leaves some room.
pub fn roomy(needed: u64) -> u64 {
    needed.checked_next_power_of_two().unwrap_or(needed)
}
