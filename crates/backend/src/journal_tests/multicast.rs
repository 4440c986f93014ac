//! Changes of the list of multicast addresses, cut after any write.

use super::{Logged, Memory};
use crate::journal::Journal;

/// Checks that an address that stays on the list is on it after any cut.
#[test]
fn multicast_taken_over_after_any_write() {
    let address = |n: u8| [0x33, 0x33, n, 1, 2, n];
    let mut list: Vec<[u8; 6]> = Vec::new();
    let log = Logged::over(Memory::new());
    let journal = Journal::new(log.clone());
    for step in 0..60_u8 {
        let (before, memory) = (list.clone(), log.memory());
        log.take_log();
        // Addresses come, and some go from anywhere: the last one takes the place.
        match step % 3 {
            2 => drop(list.swap_remove(usize::from(step) * 7 % list.len())),
            _ => list.push(address(step)),
        }
        journal.set_multicast(&list);
        let writes = log.take_log();
        for cut in 0..=writes.len() {
            let then = Logged::over(memory.after(&writes[..cut]));
            let found = Journal::new(then).multicast();
            for stays in before.iter().filter(|address| list.contains(address)) {
                assert!(found.contains(stays), "step {step}, cut at {cut}: {found:x?}");
            }
            if cut == writes.len() {
                assert_eq!(found, list);
            }
        }
    }
}
