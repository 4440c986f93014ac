//! Findings about the sandbox of a backend.

use crate::doctor::finding::Finding;
use grantway_sandbox::{Landlock, Offer, Part};

/// Judges the parts of the sandbox that this kernel offers.
pub fn judge(offer: &Offer) -> Finding {
    let subject = "sandbox";
    if !offer.seccomp {
        let lost = [Part::Programs, Part::Workers].map(Part::lost).join(", and ");
        let found = format!("this kernel lacks seccomp: {lost}");
        return Finding::warn(subject, found, "boot a kernel with CONFIG_SECCOMP_FILTER=y");
    }
    let lost = Part::Files.lost();
    match offer.landlock {
        Landlock::Version(version) => {
            Finding::ok(subject, format!("this kernel supports seccomp and landlock {version}"))
        }
        Landlock::Off => Finding::warn(
            subject,
            format!("landlock is switched off: {lost}"),
            "add landlock to lsm= on the kernel's command line and reboot \
             (/sys/kernel/security/lsm shows the present list)",
        ),
        Landlock::Missing => Finding::warn(
            subject,
            format!("this kernel lacks landlock: {lost}"),
            "boot Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK=y",
        ),
    }
}
