//! The buffer policy of a vif, and the agreement of both ends on it.

use core::fmt;

/// The ways in which buffers may cross: what a frontend wishes, the most that a backend offers,
/// and what they agree on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A grant copy for every slot, as any backend does.
    #[default]
    Copy,
    /// Guest transmit to a port: the first bytes by grant copy, the pages of the rest mapped
    /// while the packet is on its way. All else as [`Policy::Copy`]. No frontend asks for it: a
    /// backend does it for all guests, or for none.
    Map,
    /// Pages stay mapped once they were seen, since the frontend says that it uses them again
    /// (`feature-persistent`).
    Persistent,
    /// Pages are mapped that the frontend lists over the control ring (messages 8 to 10).
    Staging,
}

/// Policies beyond grant copy that one end shows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PolicyFeatures {
    /// Pages may stay mapped once they were seen.
    pub persistent: bool,
    /// Pages may be listed.
    pub staging: bool,
}

impl Policy {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Map, Self::Persistent, Self::Staging];

    /// Its name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Map => "map",
            Self::Persistent => "persistent",
            Self::Staging => "staging",
        }
    }

    /// Returns the policies that a backend shows if `self` is its bound.
    #[must_use]
    pub fn offered(self) -> PolicyFeatures {
        PolicyFeatures { persistent: self >= Self::Persistent, staging: self >= Self::Staging }
    }

    /// Returns the policy that a frontend with this wish gets of a backend that offers `offered`:
    /// the best that both have. Both ends use it, and so agree.
    #[must_use]
    pub fn agreed(self, offered: PolicyFeatures) -> Self {
        match self {
            Self::Staging if offered.staging => Self::Staging,
            Self::Staging | Self::Persistent if offered.persistent => Self::Persistent,
            _ => Self::Copy,
        }
    }

    /// Returns the policy of a backend for a frontend that chose `self`, if `most` is the backend's
    /// bound: the chosen one, or grant copy if that is beyond the bound.
    #[must_use]
    pub fn within(self, most: Self) -> Self {
        match most {
            Self::Map => Self::Map,
            most if self <= most => self,
            _ => Self::Copy,
        }
    }

    /// Returns the policy that a frontend chose, by its nodes: persistent pages, or else, by a
    /// control ring, staged ones. A frontend that has the ring for other messages stages nothing,
    /// and nothing is mapped.
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
