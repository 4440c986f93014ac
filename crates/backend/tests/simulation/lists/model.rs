//! A model of the control ring: the answer to each request by the rules of Xen's public header
//! `xen/io/netif.h` and of staging grants, and nothing else.

use super::link::Asked;
use grantway_hypervisor::{Access, GrantRef};
use grantway_netif::ctrl::{GREF_LIST_ENTRIES, GrefEntry, GrefFlags, Message, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Staged references, each with its queue and true if it may only be read.
pub type Staged = BTreeMap<u32, (u32, bool)>;

/// References of a guest, each with the access that it grants. A reference that is missing here
/// grants nothing.
pub type Names = BTreeMap<u32, Access>;

pub struct Model {
    /// True if this connection uses staging.
    pub stages: bool,
    pub queues: u32,
    pub quota: usize,
    pub staged: Staged,
}

/// An answer: what it says, and the statuses in the list's page where that was
/// written.
pub type Answer = (Result<u32, Status>, Option<Vec<u16>>);

pub fn is_readonly(entry: &GrefEntry) -> bool {
    entry.flags.contains(GrefFlags::READONLY)
}

impl Model {
    /// Carries a request out; `lists` are the pages that lists may lie in.
    pub fn carry_out(&mut self, asked: &Asked, names: &Names, lists: &Names) -> Answer {
        let refused = (Err(Status::InvalidParameter), None);
        let not_supported = (Err(Status::NotSupported), None);
        let (queue, entries) = match asked.message {
            None => return not_supported,
            Some(Message::GetHashMappingSize) => return (Ok(128), None),
            _ if !self.stages => return not_supported,
            Some(Message::GetGrefMappingSize { queue }) if queue < self.queues => {
                return (Ok(self.quota.min(1024) as u32), None);
            }
            Some(
                Message::AddGrefMapping { queue, entries, .. }
                | Message::DelGrefMapping { queue, entries, .. },
            ) => (queue, entries as usize),
            _ => return refused,
        };
        if queue >= self.queues || !(1..=GREF_LIST_ENTRIES).contains(&entries) {
            return refused;
        }
        match asked.message {
            Some(Message::AddGrefMapping { list, .. }) => {
                if !lists.contains_key(&list) || !self.takes(&asked.list, names) {
                    return refused;
                }
                let staged = |entry: &GrefEntry| (entry.gref, (queue, is_readonly(entry)));
                self.staged.extend(asked.list.iter().map(staged));
                (Ok(0), None)
            }
            Some(Message::DelGrefMapping { list, .. }) => {
                if lists.get(&list) != Some(&Access::ReadWrite) {
                    return refused;
                }
                let mut status = |entry: &GrefEntry| {
                    let here = self.staged.get(&entry.gref).is_some_and(|&(at, _)| at == queue);
                    if here {
                        self.staged.remove(&entry.gref);
                    }
                    if here { 0 } else { Status::InvalidParameter.to_u16() }
                };
                let statuses: Vec<u16> = asked.list.iter().map(&mut status).collect();
                let gone = statuses.iter().filter(|&&status| status == 0).count();
                (Ok(gone as u32), Some(statuses))
            }
            _ => refused,
        }
    }

    /// Returns true if a whole list can be added.
    fn takes(&self, list: &[GrefEntry], names: &Names) -> bool {
        let mut seen = BTreeSet::new();
        let room = self.quota - self.staged.len();
        list.len() <= room
            && list.iter().all(|entry| {
                let grants = match names.get(&entry.gref) {
                    None => false,
                    Some(Access::ReadWrite) => true,
                    Some(Access::ReadOnly) => is_readonly(entry),
                };
                let known = entry.flags.bits() <= 1 && entry.gref >= GrantRef::FIRST_FREE;
                let new = seen.insert(entry.gref) && !self.staged.contains_key(&entry.gref);
                grants && known && new
            })
    }
}
