//! The work of each control message. A page that a message names is copied once. Its size is
//! checked before the copy, its contents after. A message that is refused changes nothing.

use crate::policy::StagedTable;
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, DomId, Error as PlatformError, GrantRef,
};
use grantway_netif::ctrl::{
    GREF_ENTRY_BYTES, GREF_LIST_ENTRIES, GrefEntry, Message, Status, gref_list_entries,
};
use grantway_netif::hashing::{Hashing, MAPPING_MAX};
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Access to the guest's pages that messages name.
pub(super) trait Pages {
    /// Copies the first bytes of a page, once. Returns true if that could be done.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    fn read(&self, gref: GrantRef, bytes: &mut [u8]) -> Result<bool, PlatformError>;

    /// Maps a page for reading and writing. Returns `None` if that cannot be done.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    fn map(&self, gref: GrantRef) -> Result<Option<SharedPage>, PlatformError>;
}

/// The pages of a guest on a platform.
pub(super) struct Guest<'a> {
    pub platform: &'a dyn BackendPlatform,
    pub domain: DomId,
}

impl Pages for Guest<'_> {
    fn read(&self, gref: GrantRef, bytes: &mut [u8]) -> Result<bool, PlatformError> {
        if bytes.is_empty() {
            return Ok(true);
        }
        let Some(len) =
            u16::try_from(bytes.len()).ok().filter(|&len| usize::from(len) <= PAGE_SIZE)
        else {
            return Ok(false);
        };
        let source = CopySide::Foreign { domain: self.domain, gref, offset: 0 };
        let mut ops = [CopyOp::new(source, CopySide::Local { offset: 0 }, len)];
        self.platform.copy(bytes, &mut ops)?;
        Ok(ops[0].status.is_okay())
    }

    fn map(&self, gref: GrantRef) -> Result<Option<SharedPage>, PlatformError> {
        match self.platform.map(self.domain, &[gref], Access::ReadWrite) {
            Ok(run) => Ok(run.page(0)),
            Err(e @ PlatformError::Gone { .. }) => Err(e),
            Err(_) => Ok(None),
        }
    }
}

/// Reason why a message is not carried out.
#[derive(Debug)]
pub(super) enum Refused {
    /// Status of the answer. The message changes nothing.
    With(Status),
    /// The platform is gone.
    Gone(PlatformError),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::With(status)
    }
}

impl From<PlatformError> for Refused {
    fn from(error: PlatformError) -> Self {
        Self::Gone(error)
    }
}

/// Carries out the message of the request at `index`. Returns the data of its answer.
pub(super) fn carry_out(
    index: u32,
    message: Message,
    hashing: &mut Hashing,
    tables: &mut [Box<dyn StagedTable>],
    pages: &impl Pages,
) -> Result<u32, Refused> {
    match message {
        Message::GetHashFlags => return Ok(hashing.offered()?.bits()),
        Message::SetHashFlags { types } => hashing.set_types(types)?,
        Message::SetHashKey { gref, bytes } => set_key(hashing, gref, bytes, pages)?,
        Message::GetHashMappingSize => return Ok(MAPPING_MAX as u32),
        Message::SetHashMappingSize { entries } => hashing.set_mapping_size(entries)?,
        Message::SetHashMapping { gref, entries, offset } => {
            set_mapping(hashing, gref, (entries, offset), pages)?;
        }
        Message::SetHashAlgorithm { algorithm } => hashing.set_algorithm(algorithm)?,
        Message::GetGrefMappingSize { queue } => {
            offered(tables)?;
            let table = tables.get(queue as usize).ok_or(Status::InvalidParameter)?;
            return Ok(table.capacity()?);
        }
        Message::AddGrefMapping { queue, list, entries } => {
            let mut bytes = [0; PAGE_SIZE];
            let (table, bytes) = staged(tables, queue, entries, &mut bytes)?;
            read(pages, list, bytes)?;
            table.add(index, &entries_of(bytes))?;
        }
        Message::DelGrefMapping { queue, list, entries } => {
            let mut bytes = [0; PAGE_SIZE];
            let (table, bytes) = staged(tables, queue, entries, &mut bytes)?;
            return unstage(index, table, list, bytes, pages);
        }
    }
    Ok(0)
}

/// Refuses a message about staged pages as not supported if no queue stages pages.
fn offered(tables: &[Box<dyn StagedTable>]) -> Result<(), Status> {
    if tables.is_empty() { Err(Status::NotSupported) } else { Ok(()) }
}

fn read(pages: &impl Pages, gref: u32, bytes: &mut [u8]) -> Result<(), Refused> {
    match pages.read(GrantRef(gref), bytes)? {
        true => Ok(()),
        false => Err(Status::InvalidParameter.into()),
    }
}

fn set_key(
    hashing: &mut Hashing,
    gref: u32,
    bytes: u32,
    pages: &impl Pages,
) -> Result<(), Refused> {
    let mut key = [0; PAGE_SIZE];
    let key = &mut key[..Hashing::key_length(bytes)?];
    read(pages, gref, key)?;
    Ok(hashing.set_key(key)?)
}

fn set_mapping(
    hashing: &mut Hashing,
    gref: u32,
    (entries, offset): (u32, u32),
    pages: &impl Pages,
) -> Result<(), Refused> {
    let part = hashing.mapping_part(entries, offset)?;
    let mut bytes = vec![0; part.len() * size_of::<u32>()];
    read(pages, gref, &mut bytes)?;
    let (words, _) = bytes.as_chunks();
    let queues: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    Ok(hashing.set_mapping(part.start, &queues)?)
}

/// Takes the pages of a list out of a queue's table, and writes the status of each into the guest's
/// list. `bytes` has room for the list. Returns the number of pages that were taken out.
fn unstage(
    index: u32,
    table: &mut dyn StagedTable,
    list: u32,
    bytes: &mut [u8],
    pages: &impl Pages,
) -> Result<u32, Refused> {
    // The list is mapped before anything is unmapped, so that the outcome can be told.
    let page = pages.map(GrantRef(list))?.ok_or(Status::InvalidParameter)?;
    page.read(0, bytes).map_err(|_| Status::InvalidParameter)?;
    let mut entries = entries_of(bytes);
    for entry in &mut entries {
        entry.status = Status::InvalidParameter.to_u16();
    }
    table.del(index, &mut entries);
    for (words, entry) in bytes.as_chunks_mut::<GREF_ENTRY_BYTES>().0.iter_mut().zip(&entries) {
        let [gref, rest] = entry.to_words().map(u32::to_le_bytes);
        words[..4].copy_from_slice(&gref);
        words[4..].copy_from_slice(&rest);
    }
    // The write cannot fail: the same bytes of the page were read before.
    let _ = page.write(0, bytes);
    let unmapped = |entry: &&GrefEntry| entry.status == Status::Success.to_u16();
    // At most 512.
    Ok(entries.iter().filter(unmapped).count() as u32)
}

/// Returns a queue's table, and the part of `bytes` that the list takes.
fn staged<'a>(
    tables: &'a mut [Box<dyn StagedTable>],
    queue: u32,
    entries: u32,
    bytes: &'a mut [u8; PAGE_SIZE],
) -> Result<(&'a mut dyn StagedTable, &'a mut [u8]), Status> {
    // The number of queues fits: it is at most 16.
    offered(tables)?;
    let entries = gref_list_entries(queue, tables.len() as u32, entries)?;
    let table = tables.get_mut(queue as usize).ok_or(Status::InvalidParameter)?;
    const { assert!(GREF_LIST_ENTRIES * GREF_ENTRY_BYTES <= PAGE_SIZE) };
    Ok((table.as_mut(), &mut bytes[..entries * GREF_ENTRY_BYTES]))
}

fn entries_of(bytes: &[u8]) -> Vec<GrefEntry> {
    let (words, _) = bytes.as_chunks::<4>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().map(|pair| GrefEntry::from_words(pair.map(u32::from_le_bytes))).collect()
}
