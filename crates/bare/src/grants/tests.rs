//! The table is ordinary memory here, and the test is what Xen does to it.

use super::*;
use grantway_ring::{PAGE_SIZE, SharedPage};

const PEER: DomId = DomId(5);

/// Grants over a table of so many pages.
fn grants(pages: usize) -> Grants {
    let table = SharedRun::private(pages);
    Grants::new(GrantTable::over((0..pages).filter_map(|at| table.page(at)).collect()))
}

/// Returns the flags, the domain and the frame of an entry.
fn entry(grants: &Grants, gref: GrantRef) -> (u16, u16, u32) {
    let word = grants.table.word(gref.0 as usize).unwrap();
    (word as u16, (word >> 16) as u16, (word >> 32) as u32)
}

fn frame(page: &SharedPage) -> u32 {
    (page.as_ptr().as_ptr() as usize / PAGE_SIZE) as u32
}

#[test]
fn a_grant_is_an_entry_with_the_peer_and_the_frame_of_a_zeroed_page() {
    let mut grants = grants(1);
    for (access, flags) in [(Access::ReadOnly, 1 | 4), (Access::ReadWrite, 1)] {
        let granted = grants.grant(PEER, 3, access).unwrap();
        assert_eq!((granted.grefs.len(), granted.peer), (3, PEER));
        for at in 0..3 {
            let (page, gref) = granted.page(at).unwrap();
            assert_eq!(entry(&grants, gref), (flags, PEER.0, frame(&page)));
            let mut bytes = [1; PAGE_SIZE];
            page.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; PAGE_SIZE]);
        }
    }
}

#[test]
fn reserved_entries_are_never_used_and_a_full_table_is_an_error() {
    let mut grants = grants(2);
    let all = 2 * PAGE_SIZE / 8 - GrantRef::FIRST_FREE as usize;
    let error = grants.grant(PEER, all + 1, Access::ReadOnly).unwrap_err();
    assert!(matches!(error, Error::Exhausted { what: "grant table", limit: 1024, .. }), "{error}");
    let granted = grants.grant(PEER, all, Access::ReadOnly).unwrap();
    let numbers = || granted.grefs.iter().map(|gref| gref.0);
    assert_eq!((numbers().min(), numbers().max()), (Some(GrantRef::FIRST_FREE), Some(1023)));
    assert!(grants.grant(PEER, 1, Access::ReadOnly).is_err());
    let released = grants.release(granted);
    assert_eq!((released.revoked, released.deferred), (all, 0));
    assert!(grants.grant(PEER, all, Access::ReadOnly).is_ok(), "all came back");
}

#[test]
fn released_entries_are_void_unless_the_peer_uses_the_page() {
    for in_use in [8, 16, 8 | 16] {
        let mut grants = grants(1);
        let granted = grants.grant(PEER, 2, Access::ReadWrite).unwrap();
        let (void, used) = (granted.grefs[0], granted.grefs[1]);
        grants.table.mark(used.0 as usize, in_use, true);
        let before = entry(&grants, used);
        let released = grants.release(granted);
        assert_eq!((released.revoked, released.deferred), (1, 1));
        assert_eq!((entry(&grants, void), entry(&grants, used)), ((0, 0, 0), before));
        // The page stays kept, and its reference taken, while the peer uses it.
        for _ in 0..3 {
            let others = grants.grant(PEER, 4, Access::ReadOnly).unwrap();
            assert!(!others.grefs.contains(&used));
            assert_eq!(grants.deferred.len(), 1);
            grants.release(others);
        }
        grants.table.mark(used.0 as usize, in_use, false);
        let all = grants.table.entries() - GrantRef::FIRST_FREE as usize;
        let last = grants.grant(PEER, all, Access::ReadOnly).unwrap();
        assert!(last.grefs.contains(&used) && grants.deferred.is_empty());
    }
}

#[test]
fn the_peer_may_let_go_of_a_run_page_by_page() {
    let mut grants = grants(1);
    let granted = grants.grant(PEER, 3, Access::ReadOnly).unwrap();
    let used = granted.grefs.clone();
    for gref in &used {
        grants.table.mark(gref.0 as usize, 8, true);
    }
    assert_eq!(grants.release(granted).deferred, 3);
    for (at, gref) in used.iter().enumerate() {
        grants.table.mark(gref.0 as usize, 8, false);
        grants.retry();
        let left: usize = grants.deferred.iter().map(|(_, grefs)| grefs.len()).sum();
        assert_eq!(left, 2 - at);
    }
    assert!(grants.deferred.is_empty(), "the run is given back");
}

#[test]
fn a_run_from_before_a_restore_ends_no_later_grant() {
    let mut grants = grants(1);
    let old = grants.grant(PEER, 3, Access::ReadWrite).unwrap();
    let kept = grants.grant(PEER, 2, Access::ReadWrite).unwrap();
    for gref in &kept.grefs {
        grants.table.mark(gref.0 as usize, 8, true);
    }
    assert_eq!(grants.release(kept).deferred, 2);
    let table = SharedRun::private(1);
    grants.renew(GrantTable::over(table.page(0).into_iter().collect()));
    assert!(grants.deferred.is_empty(), "the peer is in another domain");
    let new = grants.grant(PEER, 5, Access::ReadOnly).unwrap();
    assert!(
        old.grefs.iter().all(|gref| new.grefs.contains(gref)),
        "the numbers are given out again"
    );
    let words =
        |grants: &Grants| -> Vec<_> { new.grefs.iter().map(|gref| entry(grants, *gref)).collect() };
    let before = words(&grants);
    let released = grants.release(old);
    assert_eq!((released.revoked, released.deferred), (3, 0));
    assert_eq!(words(&grants), before);
    // No number is free twice.
    let rest = grants.table.entries() - GrantRef::FIRST_FREE as usize - 5;
    let others = grants.grant(PEER, rest, Access::ReadOnly).unwrap();
    assert!(others.grefs.iter().all(|gref| !new.grefs.contains(gref)));
    assert!(grants.grant(PEER, 1, Access::ReadOnly).is_err());
}

#[test]
fn entries_outside_the_table_are_not_there() {
    let grants = grants(1);
    grants.table.set(512, 1, PEER.0, 1);
    assert!(!grants.table.end(512, 0));
    assert_eq!(grants.table.word(512), None);
}
