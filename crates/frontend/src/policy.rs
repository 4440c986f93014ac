//! How buffers cross, as the two ends agree.

use core::fmt;

/// The ways in which a queue's buffers may cross, by what the backend does for
/// them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// It copies every slot by a grant operation, as any backend does.
    #[default]
    Copy,
    /// It keeps pages mapped once it saw them (`feature-persistent`).
    Persistent,
    /// It maps the pages that it is told of, over the control ring.
    Staging,
}

impl Policy {
    /// Its name in options, tables and figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Persistent => "persistent",
            Self::Staging => "staging",
        }
    }

    /// What comes of the wish with a backend that offers so much.
    pub(crate) fn agreed(self, persistent: bool, staging: bool) -> Self {
        match self {
            Self::Staging if staging => Self::Staging,
            Self::Staging | Self::Persistent if persistent => Self::Persistent,
            _ => Self::Copy,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
