//! Attacks by two guests together, and attacks over the control ring. On a bridge, a turn of
//! one guest also uses the rings and pages of the other, and two guests can use up what all
//! vifs share.

use super::Side;
use super::guest::{Acts, room};
use super::support::hostile::Hostile;
use super::support::rings::{page, slot};
use grantway_hypervisor::{Access, GrantRef, Granted};
use grantway_netif::ctrl::{CtrlRequest, GrefEntry, GrefFlags, HashTypes, Message};
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory, SharedPage};
use grantway_testkit::Numbers;

/// Frames of a page, and bytes of each.
const FRAMES: usize = 64;
const BYTES: usize = 64;
/// An index of a ring that no ring has.
const ABSURD: u32 = 10_000;

/// Page of short frames for the other hostile guest. Nobody writes to it while the frames are
/// read, and no frame is received into it.
pub struct Mail {
    page: Granted,
    number: usize,
}

fn address(number: usize, more: u8) -> [u8; 6] {
    [2, 0x66, 0, more, 0, number as u8]
}

impl Mail {
    pub fn new(guest: &Hostile, number: usize) -> Self {
        Self { page: guest.pages(1, Access::ReadOnly), number }
    }

    pub fn gref(&self) -> GrantRef {
        self.memory().1
    }

    fn memory(&self) -> (SharedPage, GrantRef) {
        page(&self.page, 0)
    }

    /// Writes new frames: from the guest itself or from stations that it makes up; IP packets
    /// that begin and end connections, parts of packets, or unknown types.
    fn writes(&self, numbers: &mut Numbers) {
        let crowd = numbers.once_in(2);
        for n in 0..FRAMES {
            let more = if crowd { numbers.word() as u8 } else { 0 };
            let mut bytes = [address(1 - self.number, 0), address(self.number, more)].concat();
            match numbers.below(3) {
                0 => bytes.extend([0x88, 0xb6]),
                _ => bytes.extend(ipv4(numbers)),
            }
            bytes.resize(BYTES, 0);
            self.memory().0.write(n * BYTES, &bytes).unwrap();
        }
    }

    /// Returns slots of `frames` frames of this length. The id of each is its grant: if the
    /// slot is read again after it was answered, it is the same frame.
    fn slots(&self, frames: usize, len: u16) -> Vec<[u32; 3]> {
        let slot = |n| {
            let offset = (n % FRAMES * BYTES) as u16;
            slot(self.gref(), offset, len, self.gref().0 as u16, TxFlags::empty())
        };
        (0..frames).map(slot).collect()
    }
}

/// An Ethernet type and an IPv4 header, and ports.
fn ipv4(numbers: &mut Numbers) -> Vec<u8> {
    let protocol = numbers.one_of(&[6, 17, 1]);
    let fragment = if numbers.once_in(3) { numbers.half() & 0x2007 } else { 0 };
    let mut bytes = vec![8, 0, 0x45, 0, 0, 40];
    bytes.extend(numbers.half().to_be_bytes());
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
    let (words, _) = bytes[2..22].as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[12..14].copy_from_slice(&(!sum as u16).to_be_bytes());
    bytes.extend(numbers.half().to_be_bytes());
    bytes.extend([0, 7 + numbers.below(4) as u8, 0, 20, 0, 0, 0, 0, 0, 0, 0x50]);
    bytes.push(1 << numbers.below(6));
    bytes
}

impl Acts<'_> {
    /// Both at once.
    pub fn collude(&mut self, sides: &mut [Side<'_>], one: usize) {
        let numbers = &mut self.numbers;
        let other = 1 - one;
        let trap = numbers.below(8);
        if trap < 2 {
            // The bridge learns where the other one is, and then its ring breaks, which
            // only who sends to it sees.
            self.sends_mail(&mut sides[other], 1, 60, false);
            let rings = &sides[other].rings[0];
            let prod = rings.rx.load(Index::RspProd).wrapping_add(ABSURD);
            rings.rx.store(Index::ReqProd, prod);
        }
        let numbers = &mut self.numbers;
        if numbers.once_in(2) {
            sides[one].pages.mail.writes(numbers);
        }
        let frames = 1 + numbers.below(FRAMES);
        let len = numbers.one_of(&[14, 60, 64]);
        // In a burst that goes wrong behind them, or to one that posts no page.
        let breaks = trap == 0 || numbers.once_in(40);
        self.sends_mail(&mut sides[one], if trap < 2 { 1 } else { frames }, len, breaks);
    }

    fn sends_mail(&mut self, side: &mut Side<'_>, frames: usize, len: u16, breaks: bool) {
        let Side { guest, rings, pages, .. } = side;
        let rings = &mut rings[0];
        let room = room(rings.tx_prod, rings.tx.load(Index::RspProd));
        let mut slots = pages.mail.slots(frames.min(room.saturating_sub(1)), len);
        if breaks && let Some(&[gref, rest, id]) = slots.first() {
            // A packet that goes on, and nothing behind it.
            slots.push([gref, rest | u32::from(TxFlags::MORE_DATA.bits()) << 16, id]);
        }
        let whole = pages.slots.lock().unwrap();
        rings.put_tx(&slots);
        drop(whole);
        // Few of them are for all.
        self.slots += slots.len() / 8;
        guest.kick(rings.tx_event);
    }

    /// Requests over the control ring.
    pub fn control(&mut self, side: &mut Side<'_>) {
        let Side { guest, pages, ctrl, .. } = side;
        let Some(ctrl) = ctrl else { return };
        let numbers = &mut self.numbers;
        while let Ok(Some(_)) = ctrl.front.pop() {}
        for _ in 0..1 + numbers.below(8) {
            let queue = numbers.below(5) as u32 % 4;
            let entries = 1 + numbers.below(24) as u32;
            let list = match numbers.below(12) {
                0 => numbers.word(),
                1 => pages.pool.grefs[0].0,
                _ => pages.list.grefs[0].0,
            };
            let mut request = match numbers.below(12) {
                0..5 => {
                    lists(numbers, &pages.pool.grefs, &pages.list, entries);
                    Message::AddGrefMapping { queue, list, entries }
                }
                5..8 => Message::DelGrefMapping { queue, list, entries },
                8 => Message::SetHashAlgorithm { algorithm: numbers.below(3) as u32 },
                9 => Message::SetHashFlags { types: HashTypes::all() },
                10 => Message::SetHashMappingSize { entries: numbers.below(200) as u32 },
                _ => Message::GetGrefMappingSize { queue },
            }
            .request(numbers.half());
            if numbers.once_in(30) {
                let words = request.to_words().map(|word| word ^ 1 << numbers.below(32));
                request = CtrlRequest::from_words(words);
            }
            if ctrl.front.push(request.to_words()).is_err() {
                break;
            }
        }
        let _ = ctrl.front.publish();
        if numbers.once_in(200) {
            ctrl.memory().store(Index::ReqProd, numbers.word());
        }
        guest.kick(ctrl.event);
    }
}

/// Writes a list of pages. Some pages are in it twice, or are granted to nobody.
fn lists(numbers: &mut Numbers, grefs: &[GrantRef], list: &Granted, entries: u32) {
    let first = numbers.below(grefs.len());
    for n in 0..entries as usize {
        let gref = match numbers.below(60) {
            0 => numbers.word(),
            1 => grefs[numbers.below(grefs.len())].0,
            _ => grefs[(first + n) % grefs.len()].0,
        };
        let flags = if numbers.once_in(2) { GrefFlags::READONLY } else { GrefFlags::empty() };
        let words = GrefEntry { gref, flags, status: 0 }.to_words();
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        page(list, 0).0.write(8 * n, &bytes).unwrap();
    }
}
