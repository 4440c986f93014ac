//! What each control message does. A page that a message names is copied once,
//! its size checked before, its contents after; what is refused changes nothing.

use crate::policy::StagedTable;
use grantway_hypervisor::{
    Access, CopyOp, CopySide, DomId, Error as PlatformError, GrantRef, Platform,
};
use grantway_netif::ctrl::{
    GREF_ENTRY_BYTES, GREF_LIST_ENTRIES, GrefEntry, Message, Status, gref_list_entries,
};
use grantway_netif::hashing::{Hashing, MAPPING_MAX};
use grantway_ring::{PAGE_SIZE, SharedPage};

/// The guest's pages that messages name.
pub(super) trait Pages {
    /// Copies the first bytes of a page, once; whether that could be done.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    fn read(&self, gref: GrantRef, bytes: &mut [u8]) -> Result<bool, PlatformError>;

    /// Maps a page for reading and writing; none where that cannot be.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    fn map(&self, gref: GrantRef) -> Result<Option<SharedPage>, PlatformError>;
}

/// Those of a guest on a platform.
pub(super) struct Guest<'a> {
    pub platform: &'a dyn Platform,
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

/// Carries out the message of the request at `index`: the data of its answer, or the status that refuses it.
///
/// # Errors
///
/// The platform is gone.
pub(super) fn carry_out(
    index: u32,
    message: Message,
    hashing: &mut Hashing,
    tables: &mut [Box<dyn StagedTable>],
    pages: &impl Pages,
) -> Result<Result<u32, Status>, PlatformError> {
    let done = |()| 0;
    Ok(match message {
        Message::GetHashFlags => hashing.offered().map(|types| types.bits()),
        Message::SetHashFlags { types } => hashing.set_types(types).map(done),
        Message::SetHashKey { gref, bytes } => {
            let mut key = [0; PAGE_SIZE];
            let key = match Hashing::key_length(bytes) {
                Ok(len) => &mut key[..len],
                Err(status) => return Ok(Err(status)),
            };
            match pages.read(GrantRef(gref), key)? {
                true => hashing.set_key(key).map(done),
                false => Err(Status::InvalidParameter),
            }
        }
        Message::GetHashMappingSize => Ok(MAPPING_MAX as u32),
        Message::SetHashMappingSize { entries } => hashing.set_mapping_size(entries).map(done),
        Message::SetHashMapping { gref, entries, offset } => {
            let part = match hashing.mapping_part(entries, offset) {
                Ok(part) => part,
                Err(status) => return Ok(Err(status)),
            };
            let mut bytes = vec![0; part.len() * size_of::<u32>()];
            if !pages.read(GrantRef(gref), &mut bytes)? {
                return Ok(Err(Status::InvalidParameter));
            }
            let (words, _) = bytes.as_chunks();
            let queues: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            hashing.set_mapping(part.start, &queues).map(done)
        }
        Message::SetHashAlgorithm { algorithm } => hashing.set_algorithm(algorithm).map(done),
        _ if tables.is_empty() => Err(Status::NotSupported),
        Message::GetGrefMappingSize { queue } => {
            let table = tables.get(queue as usize);
            table.map(|table| table.capacity()).ok_or(Status::InvalidParameter)
        }
        Message::AddGrefMapping { queue, list, entries } => {
            let mut bytes = [0; PAGE_SIZE];
            let (table, bytes) = match staged(tables, queue, entries, &mut bytes) {
                Ok(found) => found,
                Err(status) => return Ok(Err(status)),
            };
            match pages.read(GrantRef(list), bytes)? {
                true => table.add(index, &entries_of(bytes)).map(done),
                false => Err(Status::InvalidParameter),
            }
        }
        Message::DelGrefMapping { queue, list, entries } => {
            let mut bytes = [0; PAGE_SIZE];
            let (table, bytes) = match staged(tables, queue, entries, &mut bytes) {
                Ok(found) => found,
                Err(status) => return Ok(Err(status)),
            };
            // Mapped before anything is unmapped, so that the outcome can be told.
            let Some(page) = pages.map(GrantRef(list))? else {
                return Ok(Err(Status::InvalidParameter));
            };
            if page.read(0, bytes).is_err() {
                return Ok(Err(Status::InvalidParameter));
            }
            let mut entries = entries_of(bytes);
            for entry in &mut entries {
                entry.status = Status::InvalidParameter.to_u16();
            }
            table.del(index, &mut entries);
            for (words, entry) in
                bytes.as_chunks_mut::<GREF_ENTRY_BYTES>().0.iter_mut().zip(&entries)
            {
                let [gref, rest] = entry.to_words().map(u32::to_le_bytes);
                words[..4].copy_from_slice(&gref);
                words[4..].copy_from_slice(&rest);
            }
            // As many bytes as were read from the same place.
            let _ = page.write(0, bytes);
            let unmapped = |entry: &&GrefEntry| entry.status == Status::Success.to_u16();
            // At most 512.
            Ok(entries.iter().filter(unmapped).count() as u32)
        }
    })
}

/// A queue's table, and as much of `bytes` as the list takes.
fn staged<'a>(
    tables: &'a mut [Box<dyn StagedTable>],
    queue: u32,
    entries: u32,
    bytes: &'a mut [u8; PAGE_SIZE],
) -> Result<(&'a mut dyn StagedTable, &'a mut [u8]), Status> {
    // No vif has that many queues.
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
