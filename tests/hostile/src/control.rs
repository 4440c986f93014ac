//! Attacks by control messages: lists of static grants, and tables of hashing.

use crate::attacks::Stage;
use crate::enemy::Enemy;
use crate::rings::Rings;
use alloc::vec::Vec;
use grantway_hypervisor::{Error, GrantRef};
use grantway_netif::XenbusState;
use grantway_netif::ctrl::{
    CtrlRequest, GREF_LIST_ENTRIES, GrefEntry, GrefFlags, HASH_MAPPING_ENTRIES, Status, kind,
};
use grantway_netif::tx::TxFlags;
use grantway_ring::SharedPage;
use grantway_testkit::Numbers;

/// The status of a message that was obeyed.
const OKAY: Option<u32> = Some(Status::Success.to_u32());

/// Asks, and waits for the answer. Returns its status; none once the connection is over.
fn ask(
    enemy: &mut Enemy,
    rings: &mut Rings,
    kind: u16,
    data: [u32; 3],
) -> Result<Option<u32>, Error> {
    tell(enemy, rings, kind, data)?;
    enemy.wait(&"an answer to a control message", |enemy| {
        if let Some(answer) = rings.last_answer() {
            return Ok(Some(Some(answer.status)));
        }
        Ok((enemy.backend_state()? != XenbusState::Connected).then_some(None))
    })
}

/// Asks, and waits for nothing.
fn tell(enemy: &mut Enemy, rings: &mut Rings, kind: u16, data: [u32; 3]) -> Result<bool, Error> {
    let asked = rings.put_ctrl(CtrlRequest { id: 1, kind, data });
    enemy.kick(rings.ctrl_event)?;
    Ok(asked)
}

/// Writes a list of pages.
fn write_list(page: &SharedPage, entries: &[GrefEntry]) {
    for (at, entry) in entries.iter().enumerate().take(GREF_LIST_ENTRIES) {
        let [first, second] = entry.to_words();
        // A page holds so many entries.
        let _ = page.write_word(at * 8, first);
        let _ = page.write_word(at * 8 + 4, second);
    }
}

/// Returns the list of all pages of the pools.
fn whole(rings: &Rings) -> Vec<GrefEntry> {
    let entry = |flags| move |gref: &GrantRef| GrefEntry { gref: gref.0, flags, status: 0 };
    let writable = rings.pool.grefs.iter().map(entry(GrefFlags::empty()));
    writable.chain(rings.readonly.grefs.iter().map(entry(GrefFlags::READONLY))).collect()
}

/// Stages all pages of the pools.
pub fn stage_all(enemy: &mut Enemy, rings: &mut Rings) -> Result<(), Error> {
    let list = enemy.list()?;
    let entries = whole(rings);
    let (page, gref) = list.page(0).expect("one page");
    write_list(&page, &entries);
    let asked = [0, gref.0, entries.len() as u32];
    let status = ask(enemy, rings, kind::ADD_GREF_MAPPING, asked)?;
    assert!(status == OKAY, "a list by the rules: {status:?}");
    enemy.give_back(list);
    Ok(())
}

/// Spoils a list in one way or another. Returns the number of entries to tell.
fn spoil(entries: &mut Vec<GrefEntry>, numbers: &mut Numbers, rings: &Rings) -> u32 {
    let at = numbers.below(entries.len());
    match numbers.below(9) {
        0 => entries[at].gref = numbers.word(),
        1 => entries[at].gref = numbers.below(8) as u32,
        2 => entries[at].flags = GrefFlags::from_bits_retain(numbers.half()),
        3 => entries[at] = entries[numbers.below(entries.len())],
        4 => entries[at].gref = numbers.one_of(rings.own()).0,
        5 => return numbers.word(),
        6 => return GREF_LIST_ENTRIES as u32 + 1,
        7 => return 0,
        _ => entries.truncate(1 + at),
    }
    entries.len() as u32
}

/// Lists that break rules, lists that change while they are read, and pages that leave while packets
/// in them are under way.
pub fn staging(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    let list = enemy.list()?;
    let (page, list_gref) = list.page(0).expect("one page");
    let good = whole(rings);
    for round in 0..60 {
        // Right, then wrong, each while packets name the pages.
        write_list(&page, &good);
        let all = good.len() as u32;
        let status = ask(enemy, rings, kind::ADD_GREF_MAPPING, [0, list_gref.0, all])?;
        assert!(round > 0 || status == OKAY, "a list by the rules: {status:?}");
        let sizes = 0..rings.tx_room().min(32);
        let grefs = rings.all_grefs();
        let slots: Vec<_> = sizes
            .map(|at| {
                let offset = numbers.half() % 4000;
                crate::packets::slot(
                    numbers.one_of(&grefs),
                    offset,
                    60,
                    at as u16,
                    TxFlags::empty(),
                )
            })
            .collect();
        rings.put_tx(&slots);
        enemy.kick(rings.tx_event)?;
        let mut bad = good.clone();
        let entries = spoil(&mut bad, numbers, rings);
        write_list(&page, &bad);
        let queue = if numbers.once_in(8) { numbers.word() } else { 0 };
        let named = if numbers.once_in(8) { numbers.word() } else { list_gref.0 };
        let kind = numbers.one_of(&[kind::ADD_GREF_MAPPING, kind::DEL_GREF_MAPPING]);
        tell(enemy, rings, kind, [queue, named, entries])?;
        // Written again as it is read.
        for _ in 0..200 {
            let _ = page.write_word(numbers.below(GREF_LIST_ENTRIES * 2) * 4, numbers.word());
        }
        write_list(&page, &good);
        ask(enemy, rings, kind::DEL_GREF_MAPPING, [0, list_gref.0, all])?;
        if enemy.backend_state()? != XenbusState::Connected {
            break;
        }
    }
    enemy.give_back(list);
    Ok(())
}

/// Sends messages of hashing whose sums overflow (XSA-270), and unknown messages.
pub fn hashing(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    let table = enemy.list()?;
    let (page, gref) = table.page(0).expect("one page");
    for _ in 0..400 {
        for at in 0..16 {
            let _ = page.write_word(at * 4, numbers.word());
        }
        let mut edge = || match numbers.below(6) {
            0 => numbers.word(),
            1 => u32::MAX - numbers.below(4) as u32,
            2 => HASH_MAPPING_ENTRIES as u32 + numbers.below(3) as u32,
            _ => numbers.below(140) as u32,
        };
        let (entries, offset) = (edge(), edge());
        let kind = match numbers.below(12) {
            0 => numbers.half(),
            kind => kind as u16 % 8,
        };
        let data = match kind {
            kind::SET_HASH_KEY => [gref.0, entries, 0],
            kind::SET_HASH_MAPPING => [gref.0, entries, offset],
            _ => [entries, offset, 0],
        };
        let status = ask(enemy, rings, kind, data)?;
        if status.is_none() {
            break;
        }
        if kind > kind::DEL_GREF_MAPPING && status == OKAY {
            panic!("the backend says that it did what message {kind} asks for");
        }
    }
    enemy.give_back(table);
    Ok(())
}
