//! Journals as builds wrote them, kept, because each later build must read them. `layout-1.txt` is
//! of the builds that wrote no layout down, `layout-2.txt` of the builds since.
//!
//! A build with another layout gets a number of its own and one more file here. The files that are
//! here stay unchanged.

use super::{Journals, Left};
use crate::ids::CtrlRefs;
use crate::ids::{QueueRefs, VifId};
use crate::journal::{CtrlResume, Journal, Resume, StagedJournal, TxOwed, rx_owed_bytes};
use grantway_hypervisor::{DomId, GrantRef, Port};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, HashTypes};
use grantway_netif::hashing::Hashing;
use grantway_netif::rx::RxRequest;
use grantway_netif::toeplitz::KEY_BYTES;
use std::fmt::Write;
use std::path::Path;

const ID: VifId = VifId { domain: DomId(7), devid: 1 };
const GROUPS: [[u8; 6]; 2] = [[0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 0xfb]];

fn refs(number: u32) -> QueueRefs {
    let rx_event = (number > 0).then_some(Port(30 + number));
    let [tx_ring, rx_ring] = [100, 200].map(|base| GrantRef(base + number));
    QueueRefs { tx_ring, rx_ring, tx_event: Port(20 + number), rx_event }
}

const CTRL: CtrlRefs = CtrlRefs { ring: GrantRef(300), event: Port(40) };

fn hashing() -> Hashing {
    let mut hashing = Hashing::new(2);
    hashing.set_algorithm(1).unwrap();
    hashing.set_types(HashTypes::all()).unwrap();
    let key: [u8; KEY_BYTES] = std::array::from_fn(|n| n as u8);
    hashing.set_key(&key).unwrap();
    hashing.set_mapping_size(4).unwrap();
    hashing.set_mapping(0, &[1, 0, 1, 1]).unwrap();
    hashing
}

fn entry(gref: u32, flags: GrefFlags) -> GrefEntry {
    GrefEntry { gref, flags, status: 0 }
}

/// Writes a journal of two queues in the middle of their work, and of all else that a vif may have.
fn write(folder: &Path) {
    let journals = Journals { folder: folder.join("backend-0"), boot: *b"the kept image's" };
    journals.opened(ID, Some(12));
    let pages = journals.pages(ID);
    let queues: Vec<_> = pages.queues.into_iter().map(Journal::new).collect();
    queues[0].begin_ctrl(Some((CTRL, 5)));
    for (number, queue) in (0..).zip(&queues[..2]) {
        queue.begin(refs(number), 1000, 2000);
        let slots = [TxOwed::Request(7), TxOwed::Extra, TxOwed::Request(8)];
        queue.tx_consumed(1000, &slots.map(TxOwed::to_bytes));
        queue.tx_publishing(1000, 1001);
        let requests = [(3, 500), (4, 501)].map(|(id, gref)| RxRequest { id, gref });
        queue.rx_consumed(2000, &requests.map(rx_owed_bytes));
        queue.rx_publishing(2000, 2001);
    }
    queues[0].set_multicast(&GROUPS);
    queues[0].set_hashing(&hashing());
    let mut staged = StagedJournal::begin(pages.staged[1].clone());
    let some = [entry(600, GrefFlags::READONLY), entry(601, GrefFlags::empty())];
    staged.added(3, &some);
    staged.added(4, &[entry(602, GrefFlags::empty())]);
    staged.left(5, 601);
    queues[0].ctrl_answered(6, [9, 8, 7]);
}

/// Checks that a successor finds all of it.
fn check(folder: &Path) {
    let journals = Journals::open(folder, DomId(0)).unwrap();
    let journals = Journals { boot: *b"the kept image's", ..journals };
    let connection = vec![refs(0), refs(1)];
    let left = Left { connection, ctrl: Some(CTRL), interface: Some(12) };
    assert_eq!(journals.left_off(ID).unwrap(), Some(left));
    let pages = journals.pages(ID);
    let queues: Vec<_> = pages.queues.into_iter().map(Journal::new).collect();
    for queue in &queues[..2] {
        let owed = vec![TxOwed::Extra, TxOwed::Request(8)];
        let transmit = Resume { consumed: 1003, published: 1001, owed };
        assert_eq!(queue.resume_transmit(1001), Ok(transmit));
        assert_eq!(queue.resume_transmit(1000).unwrap().owed.len(), 3);
        let owed = vec![RxRequest { id: 3, gref: 500 }, RxRequest { id: 4, gref: 501 }];
        let receive = Resume { consumed: 2002, published: 2000, owed };
        assert_eq!(queue.resume_receive(2000), Ok(receive));
    }
    assert_eq!(queues[0].multicast(), GROUPS);
    assert_eq!(queues[0].hashing(2), hashing());
    let ctrl = CtrlResume { answered: 6, owed: Some([9, 8, 7]) };
    assert_eq!(queues[0].resume_ctrl(5), Ok(ctrl));
    let (_, mut staged) = StagedJournal::resume(pages.staged[1].clone(), 6);
    staged.sort_by_key(|entry| entry.gref);
    assert_eq!(staged, [entry(600, GrefFlags::READONLY), entry(602, GrefFlags::empty())]);
    let (_, none) = StagedJournal::resume(pages.staged[0].clone(), 6);
    assert_eq!(none, []);
}

/// Returns a file as text: sixteen bytes for each line, without the lines of zeros.
fn text(file: &[u8]) -> String {
    let mut text = format!("{} bytes\n", file.len());
    for (at, row) in (0..).step_by(16).zip(file.chunks(16)) {
        if row.iter().any(|&byte| byte != 0) {
            let bytes: String = row.iter().map(|byte| format!(" {byte:02x}")).collect();
            writeln!(text, "{at:05x}:{bytes}").unwrap();
        }
    }
    text
}

fn file(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let len = lines.next().and_then(|line| line.strip_suffix(" bytes")).expect("a length");
    let mut file = vec![0; len.parse().unwrap()];
    for line in lines {
        let (at, bytes) = line.split_once(':').expect("a place");
        let at = usize::from_str_radix(at, 16).unwrap();
        for (n, byte) in bytes.split_whitespace().enumerate() {
            file[at + n] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    file
}

const KEPT: [&str; 2] = [include_str!("images/layout-1.txt"), include_str!("images/layout-2.txt")];

/// The images are of processors whose words begin with the lowest byte.
#[cfg(target_endian = "little")]
#[test]
fn every_past_layout_is_read() {
    for kept in KEPT {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend-0");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("vif7.1.journal"), file(kept)).unwrap();
        check(folder.path());
    }
}

/// No field moves without a new number of the layout.
#[cfg(target_endian = "little")]
#[test]
fn this_build_writes_the_newest_layout() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let written = std::fs::read(folder.path().join("backend-0/vif7.1.journal")).unwrap();
    assert_eq!(text(&written), KEPT[1], "a new layout needs a new number and a new image");
    check(folder.path());
}
