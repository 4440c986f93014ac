//! Findings about the platform, which should be Xen.

use crate::doctor::facts::platform::{PlatformFacts, Role};
use crate::doctor::finding::{Finding, shown};

const SUBJECT: &str = "platform";

/// Returns the finding for a machine without Xen, which is the only one.
pub fn not_xen(facts: &PlatformFacts) -> Finding {
    let found = match &facts.hypervisor {
        Some(name) => format!("not Xen: /sys/hypervisor/type says {:?}", shown(name)),
        None => "not Xen: /sys/hypervisor/type and /dev/xen are missing".into(),
    };
    let remedy = "boot it under Xen, or use the embedded host: grantway host --dir DIR, then \
                  grantway doctor --host DIR";
    Finding::fail(SUBJECT, found, remedy)
}

/// Returns the finding about this domain: Xen's version, and the domain's role.
pub fn judge(facts: &PlatformFacts, role: Role) -> Finding {
    let version = facts.version.as_deref().unwrap_or("unknown version");
    let kind = facts.kind.as_deref().map(|kind| format!(" ({})", shown(kind))).unwrap_or_default();
    let part = match role {
        Role::Dom0 => "dom0",
        Role::Driver => "a driver domain",
        Role::Guest => {
            "a guest; a backend runs in dom0, or in a domain with driver_domain=1 in \
                        xl.cfg(5)"
        }
    };
    Finding::ok(SUBJECT, format!("Xen {}{kind}, {part}", shown(version)))
}
