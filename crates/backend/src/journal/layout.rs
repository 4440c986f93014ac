//! The layout of the pages of a vif's journal. It is written into the first of them, so that a
//! build that knows another layout reports that and touches nothing.

use crate::ids::MAX_QUEUES;
use crate::ids::STAGED_PAGES;
use std::path::PathBuf;

/// A run of the machine, by the number that Linux gives each run. Zeros if it is not known.
pub(crate) type Boot = [u8; 16];

/// The layout that this build writes. This build reads all layouts up to this one.
const VERSION: u32 = 2;

/// Bytes of a layout: seven words.
pub(super) const LAYOUT_BYTES: usize = 28;

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of the layout. The first layout was not written down: all its fields are 0.
    pub version: u32,
    /// Queues that have pages.
    pub queues: u32,
    /// Pages per queue for what the queue has staged.
    pub staged: u32,
    /// The run of the machine in which it was written.
    pub boot: Boot,
}

impl Layout {
    /// Returns the layout of this build.
    pub fn ours(boot: Boot) -> Self {
        Self { version: VERSION, queues: MAX_QUEUES, staged: STAGED_PAGES as u32, boot }
    }

    /// Makes a layout of the words that were read.
    pub fn of([version, queues, staged, a, b, c, d]: [u32; 7]) -> Self {
        let mut boot = [0; 16];
        for (part, word) in boot.chunks_exact_mut(4).zip([a, b, c, d]) {
            part.copy_from_slice(&word.to_ne_bytes());
        }
        Self { version, queues, staged, boot }
    }

    /// Returns the words to be written.
    pub fn words(self) -> [u32; 7] {
        let part = |n: usize| {
            let bytes = std::array::from_fn(|at| self.boot[4 * n + at]);
            u32::from_ne_bytes(bytes)
        };
        [self.version, self.queues, self.staged, part(0), part(1), part(2), part(3)]
    }

    /// Returns true if this build reads the layout.
    pub fn is_read(self) -> bool {
        let ours = Self::ours(self.boot);
        match self.version {
            0 => true,
            1..=VERSION => (self.queues, self.staged) == (ours.queues, ours.staged),
            _ => false,
        }
    }

    /// Returns true if the layout was written since the machine was started, or if that is not
    /// known.
    pub fn is_of(self, boot: Boot) -> bool {
        self.boot == boot || [self.boot, boot].contains(&[0; 16])
    }
}

/// A journal that another build wrote, in a layout that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: a journal of layout {} (pages for {} queues, {} each for what is staged), expected up to \
     layout {} ({} queues, {} each); start the build that wrote it, and stop it by SIGINT before \
     another one takes its place",
    path.display(), found.0, found.1, found.2, expected.0, expected.1, expected.2
)]
pub struct JournalError {
    /// File of the journal.
    pub path: PathBuf,
    /// Number of its layout, its queues, and pages for staging of each queue.
    pub found: (u32, u32, u32),
    /// Layout, queues and pages of this build.
    pub expected: (u32, u32, u32),
}
