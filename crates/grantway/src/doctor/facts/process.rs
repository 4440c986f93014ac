//! Facts about this process: the devices, capabilities and memory that its user may use.

use crate::doctor::roots::Roots;
use rustix::fs::{Access, AtFlags, CWD, MemfdFlags};
use rustix::io::Errno;

/// State of a device for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// The device can be read and written.
    Ready,
    /// The device does not exist.
    Missing,
    /// The device exists, but this user cannot read and write it.
    Denied,
}

impl DeviceState {
    /// Looks at a device.
    pub fn of(roots: &Roots, path: &str) -> Self {
        match access(roots, path) {
            Ok(()) => Self::Ready,
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Denied,
            Err(_) => Self::Missing,
        }
    }
}

/// `CAP_NET_ADMIN`, as the number of its bit in `CapEff`.
const NET_ADMIN: u32 = 12;
/// `CAP_SYS_PTRACE`, as the number of its bit in `CapEff`.
const SYS_PTRACE: u32 = 19;

/// Devices, capabilities and memory that this process may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// `/dev/xen/gntdev`: maps and copies.
    pub gntdev: DeviceState,
    /// `/dev/xen/gntalloc`: grants.
    pub gntalloc: DeviceState,
    /// `/dev/xen/evtchn`: events.
    pub evtchn: DeviceState,
    /// `/dev/xen/xenbus`: the kernel's connection to the store.
    pub xenbus: DeviceState,
    /// True if xenstored has a socket here.
    pub store_socket: bool,
    /// `/dev/net/tun`: TAPs.
    pub tun: DeviceState,
    /// True if this process may make interfaces.
    pub net_admin: bool,
    /// True if this process may trace any process.
    pub sys_ptrace: bool,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<u64>,
    /// Error because of which memory to share cannot be had.
    pub memfd: Option<String>,
}

impl Process {
    /// Gathers the facts.
    pub fn gather(roots: &Roots) -> Self {
        let device = |path| DeviceState::of(roots, path);
        let status = roots.text("proc/self/status").unwrap_or_default();
        let capabilities = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or_default();
        let has = |bit: u32| capabilities >> bit & 1 == 1;
        let sockets = ["run/xenstored/socket", "var/run/xenstored/socket"];
        Self {
            gntdev: device("dev/xen/gntdev"),
            gntalloc: device("dev/xen/gntalloc"),
            evtchn: device("dev/xen/evtchn"),
            xenbus: device("dev/xen/xenbus"),
            store_socket: sockets.iter().any(|path| roots.has(path)),
            tun: device("dev/net/tun"),
            net_admin: has(NET_ADMIN),
            sys_ptrace: has(SYS_PTRACE),
            ptrace_scope: roots.number("proc/sys/kernel/yama/ptrace_scope"),
            memfd: rustix::fs::memfd_create("grantway-doctor", MemfdFlags::CLOEXEC)
                .err()
                .map(|e| e.to_string()),
        }
    }
}

fn access(roots: &Roots, path: &str) -> Result<(), Errno> {
    let wanted = Access::READ_OK | Access::WRITE_OK;
    rustix::fs::accessat(CWD, roots.at(path), wanted, AtFlags::EACCESS)
}
