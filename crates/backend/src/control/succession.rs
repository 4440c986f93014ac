//! Journals that a killed process leaves to its successor: some pages for each queue of a vif, in a
//! file of the run folder.

use crate::bell::os;
use crate::control::published::FrontendKeys;
use crate::ids::CtrlRefs;
use crate::ids::MAX_QUEUES;
use crate::ids::STAGED_PAGES;
use crate::ids::{QueueRefs, VifId};
use crate::journal::JournalError;
use crate::journal::{Boot, Journal, Layout};
use grantway_hypervisor::{DomId, Error as PlatformError};
use grantway_ring::{PAGE_SIZE, SharedPage, SharedRun};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use tracing::warn;

const SUFFIX: &str = ".journal";
const QUEUES: usize = MAX_QUEUES as usize;

/// Pages of a vif's journal. The number does not depend on the vif's number of queues.
pub const JOURNAL_PAGES: usize = QUEUES * (1 + STAGED_PAGES);

/// A flag that is true if the killed process had not written Connected yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Half(pub bool);

/// The connection and the interface that a process left of a vif.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    /// The queues that were in service.
    pub connection: Vec<QueueRefs>,
    /// The control ring of the vif, if it had one.
    pub ctrl: Option<CtrlRefs>,
    /// Index of the interface behind the vif, if any.
    pub interface: Option<u32>,
}

impl Left {
    /// Returns true if this was left of the connection that the guest published. A process puts its
    /// queues into service one after the other. If it was killed meanwhile, only the first queues
    /// are left. `half` is true for such a process, by its state in the store.
    pub fn is_of(&self, keys: &FrontendKeys, Half(half): Half) -> bool {
        let same = match half {
            true => !self.connection.is_empty() && keys.queues.starts_with(&self.connection),
            false => keys.queues == self.connection,
        };
        same && keys.ctrl == self.ctrl
    }
}

/// The pages of a vif's journal.
#[derive(Debug, Default)]
pub(crate) struct JournalPages {
    /// One page for each queue that the vif may have.
    pub queues: Vec<SharedPage>,
    /// [`STAGED_PAGES`] pages for each queue.
    pub staged: Vec<Vec<SharedPage>>,
}

impl JournalPages {
    /// Returns the connection that the pages describe, or `None` if there are no pages. A connection
    /// in which a queue had failed counts as none.
    pub fn left(&self) -> Option<Left> {
        let journals: Vec<Journal> = self.queues.iter().cloned().map(Journal::new).collect();
        let interface = journals.first()?.interface();
        let mut connection: Vec<_> = journals.iter().map_while(Journal::identity).collect();
        // A process puts queues into service one behind the other. Behind a gap, a queue had failed:
        // the others may not begin anew without it.
        if journals.iter().skip(connection.len()).any(|journal| journal.identity().is_some()) {
            connection.clear();
        }
        Some(Left {
            ctrl: journals.first()?.ctrl(),
            connection,
            interface: Some(interface).filter(|&index| index != 0),
        })
    }

    /// Ends the connection of these pages, so that no successor takes it over.
    pub fn end(&self) {
        self.queues.iter().cloned().for_each(|page| Journal::new(page).end());
    }
}

/// The journals of one domain's backend.
#[derive(Debug)]
pub(crate) struct Journals {
    folder: PathBuf,
    boot: Boot,
}

impl Journals {
    /// Returns the journals of the backend in domain `own`. Other backends may share the run
    /// folder.
    ///
    /// # Errors
    ///
    /// [`JournalError`] if a journal has a layout that this build does not read. Nothing was
    /// touched then.
    pub fn open(run_folder: &Path, own: DomId) -> Result<Self, JournalError> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = text.ok().and_then(|text| parse_boot(&text)).unwrap_or_default();
        let journals = Self { folder: run_folder.join(format!("backend-{own}")), boot };
        for id in journals.all() {
            if let Some(layout) = journals.layout(id).filter(|layout| !layout.is_read()) {
                let ours = Layout::ours(boot);
                return Err(JournalError {
                    path: journals.path(id),
                    found: (layout.version, layout.queues, layout.staged),
                    expected: (ours.version, ours.queues, ours.staged),
                });
            }
        }
        Ok(journals)
    }

    /// Returns the layout of a vif's journal, or `None` if it does not exist or cannot be read. The
    /// file is not extended, since it may belong to another build.
    fn layout(&self, id: VifId) -> Option<Layout> {
        let mut page = vec![0; PAGE_SIZE];
        File::open(self.path(id)).ok()?.read_exact(&mut page).ok()?;
        let run = SharedRun::private(1);
        let first = run.page(0)?;
        first.write(0, &page).ok()?;
        Journal::new(first).layout()
    }

    fn path(&self, id: VifId) -> PathBuf {
        self.folder.join(format!("{id}{SUFFIX}"))
    }

    /// Returns the pages of a vif's journal. Returns no pages if they cannot be had. Then a
    /// successor begins anew.
    pub fn pages(&self, id: VifId) -> JournalPages {
        self.map(id).unwrap_or_else(|e| {
            let path = self.path(id);
            warn!("{id}: {}: {e}; a successor will begin anew", path.display());
            JournalPages::default()
        })
    }

    /// Returns the pages of a journal for a takeover of its vif.
    ///
    /// # Errors
    ///
    /// No memory or no descriptor is free for the pages now. For any other reason, the result has
    /// no pages.
    pub fn pages_left(&self, id: VifId) -> Result<JournalPages, PlatformError> {
        self.map(id).or_else(|e| match Errno::from_io_error(&e) {
            Some(errno @ (Errno::NOMEM | Errno::MFILE | Errno::NFILE)) => {
                Err(os(&self.path(id).display().to_string(), errno))
            }
            _ => {
                warn!("{id}: {}: {e}; it begins anew", self.path(id).display());
                Ok(JournalPages::default())
            }
        })
    }

    fn map(&self, id: VifId) -> std::io::Result<JournalPages> {
        std::fs::create_dir_all(&self.folder)?;
        let run = SharedRun::lasting(&self.path(id), JOURNAL_PAGES)?;
        let queues = (0..QUEUES).filter_map(|number| run.page(number)).collect();
        let staged = |number| {
            let first = QUEUES + number * STAGED_PAGES;
            (first..first + STAGED_PAGES).filter_map(|page| run.page(page)).collect()
        };
        Ok(JournalPages { queues, staged: (0..QUEUES).map(staged).collect() })
    }

    /// Returns the connection and the interface that a killed process left, if it had the vif.
    ///
    /// # Errors
    ///
    /// The errors of [`Journals::pages_left`].
    pub fn left_off(&self, id: VifId) -> Result<Option<Left>, PlatformError> {
        if !self.path(id).exists() {
            return Ok(None);
        }
        if self.layout(id).is_some_and(|layout| !layout.is_of(self.boot)) {
            // The machine was started anew: nothing of the connection exists, and the index is
            // another interface's.
            self.forget(id);
            return Ok(None);
        }
        Ok(self.pages_left(id)?.left())
    }

    /// Notes in the journal that the vif has this interface from now on.
    pub fn opened(&self, id: VifId, interface: Option<u32>) {
        if let Some(page) = self.pages(id).queues.into_iter().next() {
            Journal::new(page).opened(interface.unwrap_or(0), self.boot);
        }
    }

    /// Removes the journal of a vif that is gone, or must not be taken over.
    pub fn forget(&self, id: VifId) {
        match std::fs::remove_file(self.path(id)) {
            Err(e) if e.kind() != ErrorKind::NotFound => warn!("{id}: journal: {e}"),
            _ => {}
        }
    }

    /// Returns every vif that has a journal.
    pub fn all(&self) -> Vec<VifId> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries.flatten().filter_map(|entry| parse(entry.file_name().to_str()?)).collect()
    }
}

/// Returns the number of a boot, read from text as Linux writes it: `8d4e5b5c-...`.
fn parse_boot(text: &str) -> Option<Boot> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// Returns the vif that a journal's file name names, `vif<domid>.<devid>.journal`.
fn parse(name: &str) -> Option<VifId> {
    let (domain, devid) = name.strip_prefix("vif")?.strip_suffix(SUFFIX)?.split_once('.')?;
    Some(VifId { domain: DomId(domain.parse().ok()?), devid: devid.parse().ok()? })
}

#[cfg(test)]
mod images;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_found_by_their_names_and_others_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), DomId(0)).unwrap();
        assert_eq!(journals.all(), []);
        let id = VifId { domain: DomId(7), devid: 3 };
        assert!(journals.left_off(id).unwrap().is_none());
        journals.opened(id, Some(12));
        let left = Left { connection: Vec::new(), ctrl: None, interface: Some(12) };
        assert_eq!(journals.left_off(id).unwrap(), Some(left));
        for other in ["vif7.journal", "vifx.1.journal", "vif7.3", "eth0.1.journal"] {
            std::fs::write(folder.path().join("backend-0").join(other), "").unwrap();
        }
        assert_eq!(journals.all(), [id]);
        assert_eq!(Journals::open(folder.path(), DomId(1)).unwrap().all(), []);
        journals.forget(id);
        assert_eq!(journals.all(), []);
    }

    fn word(journals: &Journals, id: VifId, at: usize, value: u32) {
        journals.pages(id).queues[0].write_word(at, value).unwrap();
    }

    #[test]
    fn a_journal_of_a_newer_build_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), DomId(0)).unwrap();
        let [id, newer] = [3, 4].map(|devid| VifId { domain: DomId(7), devid });
        journals.opened(id, Some(12));
        journals.opened(newer, Some(13));
        // A later layout, and this one with other sizes.
        for (version, queues) in [(3, 16), (2, 32)] {
            word(&journals, newer, 976, version);
            word(&journals, newer, 980, queues);
            let before = std::fs::read(journals.path(newer)).unwrap();
            let refused = Journals::open(folder.path(), DomId(0)).unwrap_err();
            assert_eq!((refused.found, refused.expected), ((version, queues, 2), (2, 16, 2)));
            let words = refused.to_string();
            for part in ["vif7.4.journal", "layout", "queues", "SIGINT"] {
                assert!(words.contains(part), "no {part:?} in {words}");
            }
            assert_eq!(std::fs::read(journals.path(newer)).unwrap(), before);
        }
        // Another domain's backend has nothing to do with it.
        assert!(Journals::open(folder.path(), DomId(1)).is_ok());
    }

    #[test]
    fn journals_of_an_earlier_boot_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), DomId(0)).unwrap();
        assert_ne!(journals.boot, [0; 16], "Linux gives each start a number");
        let id = VifId { domain: DomId(7), devid: 3 };
        journals.opened(id, Some(12));
        assert!(journals.left_off(id).unwrap().is_some());
        word(&journals, id, 988, 99);
        assert_eq!((journals.left_off(id).unwrap(), journals.all()), (None, vec![]));
    }

    /// A process that was killed before it wrote anything left a file all the same. That file must
    /// go with its vif.
    #[test]
    fn an_empty_journal_has_no_connection_and_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), DomId(0)).unwrap();
        let id = VifId { domain: DomId(7), devid: 3 };
        drop(journals.pages(id));
        let left = Left { connection: Vec::new(), ctrl: None, interface: None };
        assert_eq!((journals.left_off(id).unwrap(), journals.all()), (Some(left), vec![id]));
    }

    #[test]
    fn a_boot_is_read_as_linux_tells_it() {
        let boot = parse_boot("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(boot[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(parse_boot(""), None);
    }
}
