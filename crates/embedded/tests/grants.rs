//! Grants: made, mapped, taken back.

mod support;

use grantway_embedded::{Domain, HostConfig, Revoke, Role};
use grantway_hypervisor::{
    Access, DomId, Error, FrontendPlatform, GrantRef, GrantStatus, Mapper, Platform,
};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{BACK, FRONT, Fixture};

fn status(error: Error) -> (GrantRef, GrantStatus) {
    match error {
        Error::Grant { gref, status, .. } => (gref, status),
        other => panic!("{other}"),
    }
}

#[test]
fn a_mapping_is_the_granters_page() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let granted = front.grant(BACK, 3, Access::ReadWrite).unwrap();
    assert!(granted.grefs.iter().all(|gref| gref.0 >= GrantRef::FIRST_FREE));
    // The order is not that of the pages, so that it is no single mapping.
    let order = [granted.grefs[2], granted.grefs[0], granted.grefs[1]];
    let mapped = back.map(FRONT, &order, Access::ReadWrite).unwrap();
    for (index, page) in [2, 0, 1].into_iter().enumerate() {
        let ours = granted.run.page(page).unwrap();
        let theirs = mapped.page(index).unwrap();
        ours.write(100, &[page as u8 + 1; 32]).unwrap();
        let mut bytes = [0; 32];
        theirs.read(100, &mut bytes).unwrap();
        assert_eq!(bytes, [page as u8 + 1; 32]);
        theirs.write(4095, &[9]).unwrap();
        ours.read(4095, &mut bytes[..1]).unwrap();
        assert_eq!(bytes[0], 9);
    }
    let counters = back.counters();
    assert_eq!((counters.maps, counters.map_batches, counters.mapped), (3, 1, 3));
    assert_eq!(fixture.tables().domain(7).unwrap().grants_held, 3);
    drop(mapped);
    let counters = back.counters();
    assert_eq!((counters.unmaps, counters.unmap_batches, counters.mapped), (3, 1, 0));
    assert_eq!(front.release(granted).revoked, 3);
    let table = fixture.tables();
    let table = table.domain(7).unwrap();
    assert_eq!((table.grants, table.grants_held), (0, 0));
}

#[test]
fn a_map_is_all_or_nothing() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let good = front.grant(BACK, 2, Access::ReadWrite).unwrap();
    let readonly = front.grant(BACK, 1, Access::ReadOnly).unwrap();
    let others = front.grant(DomId(9), 1, Access::ReadWrite).unwrap();
    let list = |bad: GrantRef| [good.grefs[0], bad, good.grefs[1]];
    for (bad, access, why) in [
        (readonly.grefs[0], Access::ReadWrite, GrantStatus::PERMISSION_DENIED),
        (others.grefs[0], Access::ReadOnly, GrantStatus::BAD_GNTREF),
        (GrantRef(0), Access::ReadOnly, GrantStatus::BAD_GNTREF),
        (GrantRef(4000), Access::ReadOnly, GrantStatus::BAD_GNTREF),
        (GrantRef(u32::MAX), Access::ReadOnly, GrantStatus::BAD_GNTREF),
    ] {
        assert_eq!(status(back.map(FRONT, &list(bad), access).unwrap_err()), (bad, why));
        assert_eq!(fixture.tables().domain(7).unwrap().grants_held, 0);
    }
    assert!(back.map(FRONT, &[], Access::ReadOnly).is_err());
    assert!(matches!(
        back.map(DomId(99), &good.grefs, Access::ReadOnly),
        Err(Error::NoDomain { .. })
    ));
    let read = back.map(FRONT, &list(readonly.grefs[0]), Access::ReadOnly).unwrap();
    assert_eq!(read.pages(), 3);
}

#[test]
fn a_page_is_not_revoked_while_it_is_mapped() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let granted = front.grant(BACK, 4, Access::ReadWrite).unwrap();
    let grefs = granted.grefs.clone();
    let once = back.map(FRONT, &grefs[1..3], Access::ReadWrite).unwrap();
    let twice = back.map(FRONT, &grefs[1..2], Access::ReadOnly).unwrap();
    assert_eq!(front.revoke(grefs[0]), Revoke::Revoked);
    assert_eq!(front.revoke(grefs[1]), Revoke::StillMapped);
    let released = front.release(granted);
    assert_eq!((released.revoked, released.deferred), (2, 2));
    assert_eq!((front.counters().deferred, front.counters().granted), (2, 2));
    drop(once);
    // A later grant or release looks again; the page mapped twice stays.
    let other = front.grant(BACK, 1, Access::ReadWrite).unwrap();
    assert_eq!((front.counters().deferred, front.counters().granted), (1, 2));
    assert!(!other.grefs.contains(&grefs[1]));
    drop(twice);
    front.release(other);
    assert_eq!((front.counters().deferred, front.counters().granted), (0, 0));
}

#[test]
fn pages_are_zeroed_and_a_reference_names_one_page() {
    let config = HostConfig { ram_pages: 8, grant_entries: 12, ..HostConfig::default() };
    let fixture = Fixture::with(config);
    let front = fixture.guest(FRONT);
    assert!(matches!(front.grant(BACK, 9, Access::ReadOnly), Err(Error::Exhausted { .. })));
    assert!(matches!(front.grant(BACK, 5, Access::ReadOnly), Err(Error::Exhausted { .. })));
    let granted = front.grant(BACK, 4, Access::ReadOnly).unwrap();
    for page in 0..4 {
        granted.run.page(page).unwrap().write(0, &[0xaa; 4096]).unwrap();
    }
    // Somebody still looks at a page: it is in no new grant.
    let kept = granted.run.page(1).unwrap();
    assert_eq!(front.release(granted).revoked, 4);
    assert!(front.grant(BACK, 4, Access::ReadOnly).is_err());
    drop(kept);
    for _ in 0..3 {
        let granted = front.grant(BACK, 4, Access::ReadOnly).unwrap();
        for page in 0..4 {
            let page = granted.run.page(page).unwrap();
            let mut bytes = [1; 4096];
            page.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 4096]);
            page.write(0, &[0xbb; 4096]).unwrap();
        }
        drop(granted); // as good as a release
    }
    assert_eq!(front.counters().granted, 0);
}

#[test]
fn one_process_of_a_domain_reaches_a_peers_grants() {
    let fixture = Fixture::new();
    let front = fixture.guest(FRONT);
    let granted = front.grant(BACK, 1, Access::ReadOnly).unwrap();
    let (one, two) = (fixture.service(), fixture.service());
    let run = one.map(FRONT, &granted.grefs, Access::ReadOnly).unwrap();
    let refused = two.map(FRONT, &granted.grefs, Access::ReadOnly).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    // The lease is the process's, and lasts as long as its mappings.
    drop(one);
    assert!(two.map(FRONT, &granted.grefs, Access::ReadOnly).is_err());
    drop(run);
    two.map(FRONT, &granted.grefs, Access::ReadOnly).unwrap();
    // A service has no grants of its own.
    assert!(matches!(two.grant(FRONT, 1, Access::ReadOnly), Err(Error::Exhausted { .. })));
}

#[test]
fn a_domain_that_boots_again_is_found_again() {
    let fixture = Fixture::new();
    let back = fixture.service();
    let front = fixture.guest(FRONT);
    let first = front.boot();
    let old = front.grant(BACK, 1, Access::ReadWrite).unwrap();
    let old_run = back.map(FRONT, &old.grefs, Access::ReadWrite).unwrap();
    old.run.page(0).unwrap().write(0, b"old").unwrap();
    drop((front, old));
    fixture.settles("the domain is dead", |t| t.domain(7).unwrap().pid.is_none());
    assert!(matches!(
        back.map(FRONT, &[GrantRef(8)], Access::ReadOnly),
        Err(Error::NoDomain { .. })
    ));
    let front = fixture.guest(FRONT);
    assert_ne!(front.boot(), first);
    let new = front.grant(BACK, 1, Access::ReadWrite).unwrap();
    let new_run = back.map(FRONT, &new.grefs, Access::ReadWrite).unwrap();
    new.run.page(0).unwrap().write(0, b"new").unwrap();
    let mut bytes = [0; 3];
    old_run.page(0).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"old", "what is mapped stays, whatever became of its domain");
    new_run.page(0).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    drop(old_run);
    assert_eq!(fixture.tables().domain(7).unwrap().grants_held, 1);
}

/// XSA-396: a revoke must not succeed while the peer gets the page.
#[test]
fn revoking_and_mapping_race_to_one_winner() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let over = AtomicBool::new(false);
    let (mut won, mut lost) = (0, 0);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<GrantRef>(0);
        let (mapper, over) = (&back, &over);
        let mapping = scope.spawn(move || {
            for gref in receiver {
                if let Ok(run) = mapper.map(FRONT, &[gref], Access::ReadWrite) {
                    // The page is ours while mapped: nobody zeroes or reuses it.
                    let page = run.page(0).unwrap();
                    page.write(0, &[0x5a; 64]).unwrap();
                    let mut bytes = [0; 64];
                    for _ in 0..10 {
                        page.read(0, &mut bytes).unwrap();
                        assert_eq!(bytes, [0x5a; 64]);
                    }
                }
            }
            over.store(true, Ordering::Release);
        });
        for round in 0..2000 {
            let granted = front.grant(BACK, 1, Access::ReadWrite).unwrap();
            sender.send(granted.grefs[0]).unwrap();
            for _ in 0..round % 200 {
                std::hint::spin_loop();
            }
            let released = front.release(granted);
            won += released.revoked;
            lost += released.deferred;
        }
        drop(sender);
        mapping.join().unwrap();
    });
    assert!(over.load(Ordering::Acquire));
    assert_eq!(won + lost, 2000);
    front.release(front.grant(BACK, 1, Access::ReadOnly).unwrap());
    assert_eq!((front.counters().deferred, front.counters().granted), (0, 0));
    assert_eq!(back.counters().mapped, 0);
    println!("revoked first {won}, mapped first {lost}");
}

#[test]
fn a_domain_is_booted_once_and_only_when_it_was_made() {
    let fixture = Fixture::new();
    let refused = Domain::connect(fixture.dir(), DomId(12), Role::Guest).unwrap_err();
    assert!(refused.to_string().contains("grantway attach"), "{refused}");
    let _front = fixture.guest(FRONT);
    let refused = Domain::connect(fixture.dir(), FRONT, Role::Guest).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    assert!(!fixture.tools.create_domain(FRONT, "front").unwrap());
    assert!(fixture.tools.create_domain(FRONT, "other").is_err());
    assert!(fixture.tools.create_domain(DomId(0x7ff0), "high").is_err());
    fixture.tools.destroy_domain(FRONT).unwrap();
    assert!(!_front.host_is_alive(), "its host is gone for it");
    assert!(fixture.tables().domain(7).is_none());
    assert!(_front.create_domain(DomId(3), "x").is_err());
}
