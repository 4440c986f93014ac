//! Facts about the platform: the hypervisor, and this machine's role on it.

use super::vifs::StoreFact;
use crate::doctor::roots::Roots;

/// Role of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The first domain, with the toolstack.
    Dom0,
    /// A domain that runs backends for others.
    Driver,
    /// Any other domain.
    Guest,
}

/// Facts about the hypervisor, read from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlatformFacts {
    /// Name of the hypervisor: `xen`.
    pub hypervisor: Option<String>,
    /// True if the folder of Xen's devices exists. In a container sysfs may be missing although the
    /// devices exist.
    pub devices: bool,
    /// Xen's version, if it is known: `4.17`.
    pub version: Option<String>,
    /// Mode in which this domain runs: `PV`, `PVH` or `HVM`.
    pub kind: Option<String>,
    /// True if this domain is the first.
    pub control: bool,
}

impl PlatformFacts {
    /// Reads the facts.
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

    /// Returns true if this is Xen.
    pub fn is_xen(&self) -> bool {
        match self.hypervisor.as_deref() {
            Some(name) => name == "xen",
            None => self.devices,
        }
    }

    /// Returns true if a mapped page uses a second handle, for the kernel's own mapping of it.
    pub fn maps_twice(&self) -> bool {
        self.kind.as_deref() == Some("PV")
    }

    /// Returns the role of this domain. A driver domain has folders in the store that other guests
    /// do not have.
    pub fn role(&self, store: &StoreFact) -> Role {
        match store {
            _ if self.control => Role::Dom0,
            // A socket exists only in the domain in which the toolstack runs.
            StoreFact::Read { socket: true, .. } => Role::Dom0,
            StoreFact::Read { serves: true, .. } => Role::Driver,
            _ => Role::Guest,
        }
    }
}
