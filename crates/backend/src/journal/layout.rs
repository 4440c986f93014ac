//! How the pages of a vif's journal are laid out, written into the first of them, so that
//! a build which knows another layout tells so and touches nothing.

use crate::ids::MAX_QUEUES;
use crate::ids::STAGED_PAGES;
use std::path::PathBuf;

/// A run of the machine, by the number that Linux gives each; zeros where it is not known.
pub(crate) type Boot = [u8; 16];

/// The layout that this build writes. It reads all up to this one.
const VERSION: u32 = 2;

/// Bytes of a layout: seven words.
pub(super) const LAYOUT_BYTES: usize = 28;

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Its number. The first one was not written down: all is 0 then.
    pub version: u32,
    /// Queues that there are pages for.
    pub queues: u32,
    /// Pages of each for what it has staged.
    pub staged: u32,
    /// Who wrote it.
    pub boot: Boot,
}

impl Layout {
    /// That of this build.
    pub fn ours(boot: Boot) -> Self {
        Self { version: VERSION, queues: MAX_QUEUES, staged: STAGED_PAGES as u32, boot }
    }

    /// As it was read.
    pub fn of([version, queues, staged, a, b, c, d]: [u32; 7]) -> Self {
        let mut boot = [0; 16];
        for (part, word) in boot.chunks_exact_mut(4).zip([a, b, c, d]) {
            part.copy_from_slice(&word.to_ne_bytes());
        }
        Self { version, queues, staged, boot }
    }

    /// As it is written.
    pub fn words(self) -> [u32; 7] {
        let part = |n: usize| {
            let bytes = std::array::from_fn(|at| self.boot[4 * n + at]);
            u32::from_ne_bytes(bytes)
        };
        [self.version, self.queues, self.staged, part(0), part(1), part(2), part(3)]
    }

    /// Whether this build reads it.
    pub fn is_read(self) -> bool {
        let ours = Self::ours(self.boot);
        match self.version {
            0 => true,
            1..=VERSION => (self.queues, self.staged) == (ours.queues, ours.staged),
            _ => false,
        }
    }

    /// Whether it was written since the machine was started; one that does not say may
    /// have been.
    pub fn is_of(self, boot: Boot) -> bool {
        self.boot == boot || [self.boot, boot].contains(&[0; 16])
    }
}

/// A journal that another build wrote, in a way that this one does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: a journal of layout {} (pages for {} queues, {} each for what is staged), expected up to \
     layout {} ({} queues, {} each); start the build that wrote it, and stop it by SIGINT before \
     another one takes its place",
    path.display(), found.0, found.1, found.2, expected.0, expected.1, expected.2
)]
pub struct JournalError {
    /// Its file.
    pub path: PathBuf,
    /// Its layout, queues, and pages of each.
    pub found: (u32, u32, u32),
    /// Those of this build.
    pub expected: (u32, u32, u32),
}
