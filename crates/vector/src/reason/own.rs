//! Reasons of nodes that other crates define.

use super::Reason;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most characters of a name.
const NAME_MAX: usize = 40;

macro_rules! slots {
    ($($slot:ident)*) => {
        /// A value for each own reason, so that a [`Reason`] fits a byte.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        enum Slot { $($slot,)* }

        const SLOTS: &[Slot] = &[$(Slot::$slot,)*];
    };
}

slots! { A B C D E F G H I J K L M N O P }

/// Most own reasons of a process.
pub const OWN_REASONS_MAX: usize = SLOTS.len();

/// Names of the own reasons, in the order in which they were made.
static NAMES: [OnceLock<&'static str>; OWN_REASONS_MAX] =
    [const { OnceLock::new() }; OWN_REASONS_MAX];
/// Lock for makers of reasons. Readers of names take none.
static MAKING: Mutex<()> = Mutex::new(());

/// An own reason, made by [`Reason::own`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnReason(Slot);

/// Error of [`Reason::own`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReasonError {
    /// Reports and metrics cannot show the name.
    #[error(
        "reason {name:?}: expected 1 to {NAME_MAX} lower-case letters, digits and hyphens that begin with a \
         letter, such as below-60-bytes"
    )]
    Name {
        /// Name of the reason.
        name: &'static str,
    },
    /// Another reason has the name.
    #[error(
        "reason {name:?}: exists already; choose another name, or keep the reason that the first call \
         returned"
    )]
    Taken {
        /// Name of the reason.
        name: &'static str,
    },
    /// There are [`OWN_REASONS_MAX`] own reasons.
    #[error(
        "reason {name:?}: a process has at most {OWN_REASONS_MAX} own reasons; use one for several cases"
    )]
    Full {
        /// Name of the reason.
        name: &'static str,
    },
}

impl OwnReason {
    /// Makes a reason of this name.
    pub(super) fn new(name: &'static str) -> Result<Self, ReasonError> {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || name.len() > NAME_MAX || !name.bytes().all(plain) {
            return Err(ReasonError::Name { name });
        }
        if Reason::ALL.iter().any(|reason| reason.as_str() == name) {
            return Err(ReasonError::Taken { name });
        }
        // A maker that panicked has left nothing half done.
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        for (&slot, known) in SLOTS.iter().zip(&NAMES) {
            match known.get() {
                Some(&known) if known == name => return Err(ReasonError::Taken { name }),
                Some(_) => {}
                None => {
                    known.get_or_init(|| name);
                    return Ok(Self(slot));
                }
            }
        }
        Err(ReasonError::Full { name })
    }

    /// Returns the reasons that were made.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        SLOTS
            .iter()
            .zip(&NAMES)
            .filter(|(_, name)| name.get().is_some())
            .map(|(&slot, _)| Self(slot))
    }

    /// Returns the name of the reason in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // A reason has a name from its making on.
        NAMES[self.number()].get().copied().unwrap_or_default()
    }

    /// Returns the number of the reason among own reasons.
    #[inline]
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }
}
