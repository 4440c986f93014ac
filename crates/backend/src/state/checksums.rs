//! The checksums of a vif's frames, as its operator chose them.

use std::str::FromStr;

/// State of the TCP and UDP checksums of the frames that a vif carries, in both directions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// A checksum may be blank between ends that accept blank checksums.
    #[default]
    Offload,
    /// Every checksum is in its frame. No frame is left to be segmented, as such a frame has no
    /// complete checksum.
    Full,
}

impl Checksums {
    /// All settings.
    pub const ALL: [Self; 2] = [Self::Offload, Self::Full];

    /// Returns the setting's name in the store and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offload => "offload",
            Self::Full => "full",
        }
    }

    /// Returns true if every checksum is in its frame.
    #[must_use]
    pub fn are_full(self) -> bool {
        self == Self::Full
    }
}

impl FromStr for Checksums {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|known| known.as_str() == text.trim()).ok_or(())
    }
}
