//! Processes that are killed: nothing of theirs stays in the host's tables.

mod support;

use grantway_embedded::{Domain, Revoke, Role};
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, DomId, Error, FrontendPlatform, GrantRef,
    GrantStatus, Mapper, Platform, Port, Store,
};
use support::{BACK, FRONT, Fixture, GUARD, Process, eventually};

/// Offset at which the backend's process writes the number of its turns.
const TURNS: usize = 8;

/// Runs the parts of started processes; does nothing in the test run itself.
#[test]
fn part() {
    let Some((part, dir, words)) = support::part() else {
        return;
    };
    let numbers: Vec<u32> = words.split_whitespace().map(|word| word.parse().unwrap()).collect();
    match part.as_str() {
        // Grants pages and ports, and tells which.
        "front" => {
            let front = Domain::connect(&dir, FRONT, Role::Guest).unwrap();
            let granted = front.grant(BACK, 4, Access::ReadWrite).unwrap();
            for index in 0..4 {
                granted.run.page(index).unwrap().write(0, &[index as u8 + 1; 4096]).unwrap();
            }
            let mut events = front.events().unwrap();
            let port = events.alloc_unbound(BACK).unwrap();
            let mut store = front.store().unwrap();
            store.watch("device/vif", "front").unwrap();
            store.write("device/vif/0/state", b"4").unwrap();
            store.begin().unwrap();
            support::ready(format_args!("{} {}", port.0, granted.grefs[0].0));
            support::until_killed();
        }
        // Maps and copies without end.
        "back" => {
            let back = Domain::connect(&dir, BACK, Role::Service).unwrap();
            let grefs: Vec<GrantRef> = numbers[1..].iter().map(|&gref| GrantRef(gref)).collect();
            let mut events = back.events().unwrap();
            let port = events.bind_interdomain(FRONT, Port(numbers[0])).unwrap();
            let run = back.map(FRONT, &grefs, Access::ReadWrite).unwrap();
            let mut store = back.store().unwrap();
            store.watch("@releaseDomain", "back").unwrap();
            run.page(0).unwrap().write(0, b"mapped").unwrap();
            events.notify(port).unwrap();
            support::ready("");
            let mut arena = vec![0x77; 64 * 4096];
            for turn in 1u64.. {
                let mut ops: Vec<CopyOp> = (0..64)
                    .map(|index| {
                        CopyOp::new(
                            CopySide::Local { offset: index * 4096 },
                            CopySide::Foreign { domain: FRONT, gref: grefs[1], offset: 0 },
                            4096,
                        )
                    })
                    .collect();
                back.copy(&mut arena, &mut ops).unwrap();
                drop(back.map(FRONT, &grefs[2..], Access::ReadOnly).unwrap());
                run.page(0).unwrap().write(TURNS, &turn.to_ne_bytes()).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

fn clean(fixture: &Fixture, domid: u16) {
    fixture.settles("nothing is left of the process", |tables| {
        let domain = tables.domain(domid).unwrap();
        domain.pid.is_none()
            && domain.ports_bound == 0
            && domain.ports_unbound == 0
            && domain.grants == 0
            && domain.grants_held == 0
            && domain.leases.is_empty()
            && domain.store_watches == 0
            && domain.store_transactions == 0
            && (domid == 0 || domain.store_connections == 0)
    });
}

/// Lets the front write below `device`, as a toolstack does.
fn attach(fixture: &Fixture) -> Box<dyn Store> {
    use grantway_hypervisor::{Permission, Rights};
    let mut store = fixture.tools.store().unwrap();
    store.write("/local/domain/7/device/vif/0/state", b"1").unwrap();
    for path in ["device", "device/vif", "device/vif/0", "device/vif/0/state"] {
        let owner = Permission { domain: FRONT, rights: Rights::None };
        store.set_permissions(&format!("/local/domain/7/{path}"), &[owner]).unwrap();
    }
    store
}

#[test]
fn a_killed_backend_leaves_nothing_and_can_be_replaced() {
    let fixture = Fixture::new();
    let front = fixture.guest(FRONT);
    let granted = front.grant(BACK, 8, Access::ReadWrite).unwrap();
    let mut events = front.events().unwrap();
    let port = events.alloc_unbound(BACK).unwrap();
    let grefs: Vec<String> = granted.grefs.iter().map(|gref| gref.0.to_string()).collect();
    let words = format!("{} {}", port.0, grefs.join(" "));
    let mut seen = 0;
    for round in 0..5 {
        let (back, _) = Process::start("part", "back", fixture.dir(), &words);
        seen = events.wait(port, seen, Some(GUARD)).unwrap();
        assert!(seen > round);
        let mut bytes = [0; 6];
        granted.run.page(0).unwrap().read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"mapped");
        let tables = fixture.tables();
        let table = tables.domain(7).unwrap();
        assert_eq!(table.leases, [(0, back.pid())]);
        assert_eq!(table.ports_bound, 1);
        assert!(table.grants_held >= 8);
        assert_eq!(front.revoke(granted.grefs[0]), Revoke::StillMapped);
        // The process is killed at another moment of its work each time.
        eventually("the backend's turns", || {
            let mut turns = [0; 8];
            granted.run.page(0).unwrap().read(TURNS, &mut turns).unwrap();
            (u64::from_ne_bytes(turns) >= round * 40).then_some(())
        });
        back.kill();
        granted.run.page(0).unwrap().write(TURNS, &[0; 8]).unwrap();
        fixture.settles("the leases and holds are gone", |tables| {
            let front = tables.domain(7).unwrap();
            front.leases.is_empty() && front.grants_held == 0 && front.ports_unbound == 1
        });
        clean(&fixture, 0);
    }
    events.notify(port).unwrap();
    assert_eq!(front.release(granted).deferred, 0);
    assert_eq!(fixture.tables().domain(7).unwrap().grants, 0);
}

#[test]
fn a_killed_guest_costs_its_backend_statuses_only() {
    let fixture = Fixture::new();
    let mut tools = attach(&fixture);
    let back = fixture.service();
    let mut events = back.events().unwrap();
    let mut store = back.store().unwrap();
    store.watch("@releaseDomain", "release").unwrap();
    store.watch("/local/domain/7/device/vif/0/state", "state").unwrap();
    let mut boots = Vec::new();
    for _ in 0..4 {
        let (process, said) = Process::start("part", "front", fixture.dir(), "");
        let (port, gref) = said.split_once(' ').unwrap();
        let (port, gref) = (Port(port.parse().unwrap()), GrantRef(gref.parse().unwrap()));
        let ours = events.bind_interdomain(FRONT, port).unwrap();
        let run = back.map(FRONT, &[gref, GrantRef(gref.0 + 3)], Access::ReadWrite).unwrap();
        let mut bytes = [0; 2];
        run.page(1).unwrap().read(4000, &mut bytes).unwrap();
        assert_eq!(bytes, [4, 4]);
        let mut arena = vec![0; 4096];
        let mut ops = [CopyOp::new(
            CopySide::Foreign { domain: FRONT, gref: GrantRef(gref.0 + 1), offset: 0 },
            CopySide::Local { offset: 0 },
            4096,
        )];
        back.copy(&mut arena, &mut ops).unwrap();
        assert!(ops[0].status.is_okay());
        assert!(arena.iter().all(|&byte| byte == 2));
        let tables = fixture.tables();
        assert_eq!(tables.domain(7).unwrap().pid, Some(process.pid()));
        assert_eq!(tables.domain(7).unwrap().store_transactions, 1);
        boots.push(tables.domain(7).unwrap().boot);
        while store.next_event().unwrap().is_some() {}

        process.kill();
        clean(&fixture, 7);
        // Mappings stay, events go nowhere and copies fail, as on Xen.
        run.page(1).unwrap().read(4000, &mut bytes).unwrap();
        assert_eq!(bytes, [4, 4]);
        events.notify(ours).unwrap();
        back.copy(&mut arena, &mut ops).unwrap();
        assert_eq!(ops[0].status, GrantStatus::BAD_DOMAIN);
        assert!(matches!(back.map(FRONT, &[gref], Access::ReadOnly), Err(Error::NoDomain { .. })));
        // The host closes the vif on the domain's behalf, as a toolstack that restarts it does.
        assert_eq!(tools.read("/local/domain/7/device/vif/0/state").unwrap(), b"6");
        let (mut released, mut closed) = (false, false);
        eventually("the watches on the death and on the vif's state", || {
            while let Some(event) = store.next_event().unwrap() {
                released |= event.token == "release";
                closed |= event.token == "state";
            }
            (released && closed).then_some(())
        });
        assert!(back.counters().mapped > 0, "and the next boot comes before the unmap");
        events.close(ours);
    }
    boots.dedup();
    assert_eq!(boots.len(), 4);
    drop((store, events));
    clean(&fixture, 0);
}

#[test]
fn a_vif_that_never_started_stays_as_it_is() {
    let fixture = Fixture::new();
    let mut tools = attach(&fixture);
    drop(fixture.guest(FRONT));
    clean(&fixture, 7);
    assert_eq!(tools.read("/local/domain/7/device/vif/0/state").unwrap(), b"1");
    assert_eq!(tools.read("/local/domain/7/name").unwrap(), b"front");
    fixture.tools.destroy_domain(FRONT).unwrap();
    assert_eq!(tools.read_text("/local/domain/7").unwrap(), None);
    assert!(matches!(fixture.tools.destroy_domain(FRONT), Err(Error::NoDomain { .. })));
    assert!(fixture.tools.destroy_domain(DomId(0)).is_err());
}
