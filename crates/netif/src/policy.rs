//! Buffer policies of a vif, and the agreement of both ends on one of them.

use core::fmt;

/// Way in which the backend accesses the frontend's buffers. A frontend requests a policy, a
/// backend has a limit, and both agree on one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A grant copy per slot. Every backend supports it.
    #[default]
    Copy,
    /// For packets from the guest to a port: the first bytes are copied, and the pages of the rest
    /// are mapped until the packet has left. All other packets are handled as with
    /// [`Policy::Copy`]. A frontend cannot request it: a backend does it for all guests or for
    /// none.
    Map,
    /// Pages stay mapped after their first use, since the frontend uses them again
    /// (`feature-persistent`).
    Persistent,
    /// The backend maps the pages that the frontend lists over the control ring (messages 8 to 10).
    Staging,
}

/// Policies beyond grant copy that one end offers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PolicyFeatures {
    /// True if pages may stay mapped after their first use.
    pub persistent: bool,
    /// True if pages may be listed over the control ring.
    pub staging: bool,
}

impl Policy {
    /// All policies, in order.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Map, Self::Persistent, Self::Staging];

    /// Returns the name of the policy in options, tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Map => "map",
            Self::Persistent => "persistent",
            Self::Staging => "staging",
        }
    }

    /// Returns the policies that a backend offers if `self` is its limit.
    #[must_use]
    pub fn offered(self) -> PolicyFeatures {
        PolicyFeatures { persistent: self >= Self::Persistent, staging: self >= Self::Staging }
    }

    /// Returns the policy for a frontend that requests `self`, with a backend that offers
    /// `offered`: the best policy that both support. Both ends call this, and so agree.
    #[must_use]
    pub fn agreed(self, offered: PolicyFeatures) -> Self {
        match self {
            Self::Staging if offered.staging => Self::Staging,
            Self::Staging | Self::Persistent if offered.persistent => Self::Persistent,
            _ => Self::Copy,
        }
    }

    /// Returns the policy of a backend for a frontend that chose `self`, if `most` is the backend's
    /// limit: the chosen policy, or grant copy if the choice is beyond the limit.
    #[must_use]
    pub fn within(self, most: Self) -> Self {
        match most {
            Self::Map => Self::Map,
            most if self <= most => self,
            _ => Self::Copy,
        }
    }

    /// Returns the policy that a frontend chose, by its xenstore nodes: persistent pages or, with a
    /// control ring, staged pages. A frontend that uses the ring for other messages only stages no
    /// pages, and so nothing is mapped.
    #[must_use]
    pub fn chosen(persistent: bool, control_ring: bool) -> Self {
        match (persistent, control_ring) {
            (true, _) => Self::Persistent,
            (false, true) => Self::Staging,
            (false, false) => Self::Copy,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree() {
        for most in Policy::ALL {
            for wish in [Policy::Copy, Policy::Persistent, Policy::Staging] {
                // The frontend has a control ring only for staging that the backend offers.
                let frontend = wish.agreed(most.offered());
                let (persistent, ring) =
                    (frontend == Policy::Persistent, frontend == Policy::Staging);
                let backend = Policy::chosen(persistent, ring).within(most);
                let expected = if most == Policy::Map { Policy::Map } else { frontend };
                assert_eq!(backend, expected, "{wish} of {most}");
                assert!(frontend <= most, "{wish} of {most}");
            }
        }
    }

    #[test]
    fn a_choice_beyond_the_bound_is_grant_copy() {
        assert_eq!(Policy::chosen(false, true).within(Policy::Persistent), Policy::Copy);
        assert_eq!(Policy::chosen(true, true).within(Policy::Copy), Policy::Copy);
        assert_eq!(Policy::chosen(true, true).within(Policy::Staging), Policy::Persistent);
    }

    #[test]
    fn a_wish_beyond_the_offer_gets_the_next_best() {
        let cases = [
            (Policy::Staging, Policy::Staging, Policy::Staging),
            (Policy::Staging, Policy::Persistent, Policy::Persistent),
            (Policy::Staging, Policy::Copy, Policy::Copy),
            (Policy::Persistent, Policy::Staging, Policy::Persistent),
            (Policy::Copy, Policy::Staging, Policy::Copy),
        ];
        for (wish, most, agreed) in cases {
            assert_eq!(wish.agreed(most.offered()), agreed, "{wish} of {most}");
        }
    }
}
