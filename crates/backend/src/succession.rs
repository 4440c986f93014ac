//! What a killed process leaves to its successor: pages for each queue of a vif, in
//! a file of the run folder.

use crate::ctrl::CtrlRefs;
use crate::journal::{Journal, STAGED_PAGES};
use crate::negotiate::MAX_QUEUES;
use crate::queue::{QueueRefs, VifId};
use grantway_hypervisor::DomId;
use grantway_ring::{SharedPage, SharedRun};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tracing::warn;

const SUFFIX: &str = ".journal";
const QUEUES: usize = MAX_QUEUES as usize;

/// Pages of a vif's journal, whatever it has of queues.
pub const JOURNAL_PAGES: usize = QUEUES * (1 + STAGED_PAGES);

/// What a process left of a vif.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    /// The queues that were in service.
    pub connection: Vec<QueueRefs>,
    /// The control ring that it had.
    pub ctrl: Option<CtrlRefs>,
    /// The interface behind it, if any, by its index.
    pub interface: Option<u32>,
}

/// The pages of a vif's journal.
#[derive(Debug, Default)]
pub(crate) struct JournalPages {
    /// One for each queue that it may have.
    pub queues: Vec<SharedPage>,
    /// [`STAGED_PAGES`] for each.
    pub staged: Vec<Vec<SharedPage>>,
}

/// The journals of one domain's backend.
#[derive(Debug)]
pub(crate) struct Journals {
    folder: PathBuf,
}

impl Journals {
    /// Those of the backend in domain `own`; others may share the run folder.
    pub fn new(run_folder: &Path, own: DomId) -> Self {
        Self { folder: run_folder.join(format!("backend-{own}")) }
    }

    fn path(&self, id: VifId) -> PathBuf {
        self.folder.join(format!("{id}{SUFFIX}"))
    }

    /// The pages of a vif's journal; none where they cannot be had, so that a
    /// successor begins anew.
    pub fn pages(&self, id: VifId) -> JournalPages {
        let path = self.path(id);
        let made = std::fs::create_dir_all(&self.folder);
        match made.and_then(|()| SharedRun::lasting(&path, JOURNAL_PAGES)) {
            Ok(run) => {
                let queues = (0..QUEUES).filter_map(|number| run.page(number)).collect();
                let staged = |number| {
                    let first = QUEUES + number * STAGED_PAGES;
                    (first..first + STAGED_PAGES).filter_map(|page| run.page(page)).collect()
                };
                JournalPages { queues, staged: (0..QUEUES).map(staged).collect() }
            }
            Err(e) => {
                warn!("{id}: {}: {e}; a successor will begin anew", path.display());
                JournalPages::default()
            }
        }
    }

    /// Where a killed process left off, if it had the vif.
    pub fn left_off(&self, id: VifId) -> Option<Left> {
        if !self.path(id).exists() {
            return None;
        }
        let journals: Vec<Journal> = self.pages(id).queues.into_iter().map(Journal::new).collect();
        let interface = journals.first()?.interface();
        Some(Left {
            ctrl: journals.first()?.ctrl(),
            connection: journals.iter().map_while(Journal::identity).collect(),
            interface: Some(interface).filter(|&index| index != 0),
        })
    }

    /// The vif has this interface behind it from now on.
    pub fn opened(&self, id: VifId, interface: Option<u32>) {
        if let Some(page) = self.pages(id).queues.into_iter().next() {
            Journal::new(page).opened(interface.unwrap_or(0));
        }
    }

    /// The vif is gone, or not to be resumed.
    pub fn forget(&self, id: VifId) {
        match std::fs::remove_file(self.path(id)) {
            Err(e) if e.kind() != ErrorKind::NotFound => warn!("{id}: journal: {e}"),
            _ => {}
        }
    }

    /// Every vif that has one.
    pub fn all(&self) -> Vec<VifId> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries.flatten().filter_map(|entry| parse(entry.file_name().to_str()?)).collect()
    }
}

/// The vif of a journal's name, `vif<domid>.<devid>.journal`.
fn parse(name: &str) -> Option<VifId> {
    let (domain, devid) = name.strip_prefix("vif")?.strip_suffix(SUFFIX)?.split_once('.')?;
    Some(VifId { domain: DomId(domain.parse().ok()?), devid: devid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_found_by_their_names_and_others_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::new(folder.path(), DomId(0));
        assert_eq!(journals.all(), []);
        let id = VifId { domain: DomId(7), devid: 3 };
        assert!(journals.left_off(id).is_none());
        journals.opened(id, Some(12));
        let left = Left { connection: Vec::new(), ctrl: None, interface: Some(12) };
        assert_eq!(journals.left_off(id), Some(left));
        for other in ["vif7.journal", "vifx.1.journal", "vif7.3", "eth0.1.journal"] {
            std::fs::write(folder.path().join("backend-0").join(other), "").unwrap();
        }
        assert_eq!(journals.all(), [id]);
        assert_eq!(Journals::new(folder.path(), DomId(1)).all(), []);
        journals.forget(id);
        assert_eq!(journals.all(), []);
    }
}
