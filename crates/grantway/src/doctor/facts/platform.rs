//! Whether this is Xen, and which part this machine plays there.

use super::vifs::StoreFact;
use crate::doctor::roots::Roots;

/// What a domain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The first domain, with the toolstack.
    Dom0,
    /// A domain that serves others.
    Driver,
    /// Any other.
    Guest,
}

/// What the kernel says of the hypervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlatformFacts {
    /// Its name: `xen`.
    pub hypervisor: Option<String>,
    /// Whether there is a folder of Xen's devices: sysfs may be missing where
    /// devices are not (a container).
    pub devices: bool,
    /// Xen's version, as far as it is said: `4.17`.
    pub version: Option<String>,
    /// How this domain runs: `PV`, `PVH` or `HVM`.
    pub kind: Option<String>,
    /// Whether this domain is the first.
    pub control: bool,
}

impl PlatformFacts {
    /// Looks.
    pub fn gather(roots: &Roots) -> Self {
        let number = |name: &str| roots.text(format!("sys/hypervisor/version/{name}"));
        let capabilities = roots.text("proc/xen/capabilities").unwrap_or_default();
        Self {
            hypervisor: roots.text("sys/hypervisor/type"),
            devices: roots.at("dev/xen").is_dir(),
            version: number("major").zip(number("minor")).map(|(a, b)| format!("{a}.{b}")),
            kind: roots.text("sys/hypervisor/guest_type"),
            control: capabilities.split([',', '\n']).any(|word| word.trim() == "control_d"),
        }
    }

    /// Whether this is Xen.
    pub fn is_xen(&self) -> bool {
        match self.hypervisor.as_deref() {
            Some(name) => name == "xen",
            None => self.devices,
        }
    }

    /// Whether a mapped page takes a second handle, for the kernel's own
    /// mapping of it.
    pub fn maps_twice(&self) -> bool {
        self.kind.as_deref() == Some("PV")
    }

    /// What the domain is for: a driver domain has folders in the store that
    /// its toolstack makes for no other guest.
    pub fn role(&self, store: &StoreFact) -> Role {
        match store {
            _ if self.control => Role::Dom0,
            // Only where the toolstack runs is there a socket.
            StoreFact::Read { socket: true, .. } => Role::Dom0,
            StoreFact::Read { serves: true, .. } => Role::Driver,
            _ => Role::Guest,
        }
    }
}
