//! Guest on the bridge that keeps every rule, but writes over its frames while they are read:
//! over their destination, and over the bytes behind those that its readers know. No other
//! guest has pages of such frames or uses its rings. So its readers get what it sent, unless
//! the backend changed it.

use super::guest::room;
use super::support::eventually;
use super::support::hostile::Hostile;
use super::support::rings::{Rings, page, slot};
use super::support::world::World;
use super::{WITNESS, pair};
use grantway_hypervisor::{Access, Granted};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::{TxFlags, status};
use grantway_ring::{Index, RingMemory, SharedPage};
use grantway_testkit::Numbers;

/// Lengths of its frames, which say them behind their type.
const LENGTHS: [u16; 4] = [60, 129, 1514, 4096];
pub const FROM: [u8; 6] = [2, 0x47, 0x57, 1, 0, 3];
pub const TYPE: [u8; 2] = [0x88, 0xb7];
/// Offset in a frame from which the bytes may be anything.
pub const DIRTY: usize = 256;
/// Pages that it receives into.
const POSTED: usize = 32;
/// Fewer frames than this at once.
const BURST: usize = 16;

/// Returns byte `n` of a frame of the witness.
pub fn byte(n: usize) -> u8 {
    (n as u8).wrapping_mul(7)
}

pub struct Witness {
    guest: Hostile,
    rings: Rings,
    frames: Granted,
    posted: Granted,
}

impl Witness {
    pub fn start(world: &mut World) -> Self {
        let domain = world.boot(WITNESS.domain);
        world.attach(WITNESS, &[]);
        let mut guest = Hostile::new(domain, WITNESS, world.setup.domain);
        let frames = guest.pages(LENGTHS.len(), Access::ReadOnly);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let mut bytes: Vec<u8> = (0..4096).map(byte).collect();
            bytes[..6].copy_from_slice(&pair::ADDRESSES[0]);
            bytes[6..12].copy_from_slice(&FROM);
            bytes[12..14].copy_from_slice(&TYPE);
            bytes[14..16].copy_from_slice(&len.to_be_bytes());
            page(&frames, n).0.write(0, &bytes).unwrap();
        }
        let posted = guest.pages(POSTED, Access::ReadWrite);
        let rings = guest.connect();
        let mut witness = Self { guest, rings, frames, posted };
        witness.posts(0..POSTED as u16);
        witness
    }

    /// Its pages, for who writes over them ([`scribble`]).
    pub fn pages(&self) -> Vec<SharedPage> {
        (0..LENGTHS.len()).map(|n| page(&self.frames, n).0).collect()
    }

    /// Sends a few frames, and returns their number.
    #[track_caller]
    pub fn sends(&mut self, numbers: &mut Numbers) -> usize {
        let answers = self.rings.tx_answers();
        assert!(answers.iter().all(|answer| answer.status == status::OKAY), "{answers:?}");
        let received = self.rings.rx_answers();
        self.posts(received.into_iter().map(|answer| answer.id));
        let room = room(self.rings.tx_prod, self.rings.tx.load(Index::RspProd));
        let frame = |numbers: &mut Numbers| {
            let n = numbers.below(LENGTHS.len());
            slot(self.frames.grefs[n], 0, LENGTHS[n], n as u16, TxFlags::empty())
        };
        let slots: Vec<_> = (0..numbers.below(BURST).min(room)).map(|_| frame(numbers)).collect();
        self.rings.put_tx(&slots);
        self.guest.kick(self.rings.tx_event);
        slots.len()
    }

    /// Waits until all that it sent was read: what a killed backend left, its successor reads
    /// before it knows whom that is for.
    #[track_caller]
    pub fn rests(&self) {
        eventually("the witness's frames are read", || {
            (self.rings.tx.load(Index::RspProd) == self.rings.tx_prod).then_some(())
        });
    }

    fn posts(&mut self, ids: impl IntoIterator<Item = u16>) {
        let gref = |id: u16| self.posted.grefs[usize::from(id)];
        let request = |id| RxRequest { id, gref: gref(id).0 };
        let requests: Vec<_> = ids.into_iter().map(request).collect();
        self.rings.put_rx(&requests);
        self.guest.kick(self.rings.rx_event);
    }

    /// Its vif goes.
    #[track_caller]
    pub fn leave(self, world: &mut World) {
        world.detaches(WITNESS);
        world.holds_nothing_of(WITNESS.domain);
    }
}

/// Writes over the pages of the witness's frames: over their destination, and over their end.
pub fn scribble(pages: &[SharedPage], numbers: &mut Numbers) {
    let Some(page) = pages.get(numbers.below(pages.len().max(1))) else { return };
    let _ = page.write(0, &numbers.one_of(&pair::ADDRESSES));
    let at = DIRTY + numbers.below(4088 - DIRTY);
    let _ = page.write(at, &numbers.next().to_ne_bytes());
}
