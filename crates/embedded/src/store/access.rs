//! Rights of domains on nodes.

use grantway_hypervisor::{DomId, Permission, Rights};

/// Kind of access that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Read,
    Write,
    /// Access to set the permissions.
    Own,
}

/// Returns true if `domain` has this access. Domain 0 may do everything, and an owner everything
/// with its node. The first entry has the rights of all domains that no later entry names.
pub(super) fn may(domain: DomId, permissions: &[Permission], want: Want) -> bool {
    let Some((first, others)) = permissions.split_first() else {
        return domain == DomId::ZERO;
    };
    if domain == DomId::ZERO || domain == first.domain {
        return true;
    }
    let named = others.iter().find(|p| p.domain == domain);
    let rights = named.unwrap_or(first).rights;
    match want {
        Want::Read => matches!(rights, Rights::Read | Rights::Both),
        Want::Write => matches!(rights, Rights::Write | Rights::Both),
        Want::Own => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let perms = ["r1", "n2", "w3", "b4"]
            .map(|t| grantway_xenstore::permission::from_text(t.as_bytes()).unwrap());
        let rights =
            |d| [Want::Read, Want::Write, Want::Own].map(|want| may(DomId(d), &perms, want));
        assert_eq!(rights(0), [true, true, true]);
        assert_eq!(rights(1), [true, true, true]);
        assert_eq!(rights(2), [false, false, false]);
        assert_eq!(rights(3), [false, true, false]);
        assert_eq!(rights(4), [true, true, false]);
        assert_eq!(rights(5), [true, false, false]);
    }
}
