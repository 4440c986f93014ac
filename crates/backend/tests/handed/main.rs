//! A backend that is handed its rings. It has a platform without a store, and its guests have none
//! either: each shows its rings to the test, which hands them on.

#[path = "../support/mod.rs"]
mod support;

mod machine;

use grantway_backend::{
    Checksums, CtrlRefs, HandedVif, MAX_QUEUES, QueueRefs, Rate, VifError, VifId, policy::Policy,
};
use grantway_hypervisor::{Access, DomId, FrontendPlatform, GrantRef, Platform, Port as EventPort};
use grantway_netif::Offload;
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message};
use grantway_ports::{
    Echo, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe, Readiness,
    SendError,
};
use grantway_ring::{Index, RingMemory};
use machine::{BACKEND, BYTES, Guest, Machine, PAGES, QUEUES, echo};
use std::num::NonZeroU64;
use std::time::Duration;
use support::eventually;

#[test]
fn frames_cross_both_ways_on_each_queue() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    machine.server().attach(guest.vif(), echo()).unwrap();
    for queue in [0, 1, 0] {
        guest.is_served(&mut machine, queue, 20);
    }
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.vif, report.connected, report.queues.len()), (guest.id, true, 2));
    assert_eq!((report.stats.tx_packets, report.stats.rx_packets), (60, 60));
    assert_eq!(report.policy, Policy::Copy);
    assert!(machine.server().detach(guest.id).is_some());
    assert_eq!((machine.server().report().count(), machine.mapped()), (0, 0));
    assert!(machine.server().left().is_empty(), "a vif that was detached leaves no journal");
    assert!(machine.server().detach(guest.id).is_none());
}

#[test]
fn a_guest_stages_its_pages_by_its_control_ring() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1).with_ctrl();
    machine.server().attach(guest.vif(), echo()).unwrap();
    assert!(guest.asks(&mut machine, Message::GetGrefMappingSize { queue: 0 }).unwrap() > 0);
    let list = guest.domain.grant(BACKEND, 1, Access::ReadWrite).unwrap();
    let entry = |gref: &GrantRef| GrefEntry { gref: gref.0, flags: GrefFlags::empty(), status: 0 };
    let words = guest.pages.grefs.iter().map(entry).flat_map(|entry| entry.to_words());
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    list.run.page(0).unwrap().write(0, &bytes).unwrap();
    let (list, entries) = (list.grefs[0].0, PAGES as u32);
    let staged = guest.asks(&mut machine, Message::AddGrefMapping { queue: 0, list, entries });
    assert!(staged.is_ok(), "{staged:?}");
    let copied = machine.domain.counters().copies;
    guest.is_served(&mut machine, 0, 30);
    assert_eq!(machine.domain.counters().copies, copied, "no packet pays a grant operation");
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.policy, report.mapped), (Policy::Staging, PAGES));
    machine.server().detach(guest.id).unwrap();
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn what_cannot_be_attached_is_refused_with_the_reason_and_the_port_comes_back() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let good = guest.vif();
    let with = |change: fn(&mut HandedVif)| {
        let mut vif = good.clone();
        change(&mut vif);
        vif
    };
    let cases = [
        (
            with(|vif| vif.keys.queues.clear()),
            "multi-queue-num-queues: found 0, expected a number of queues from 1 to \
             multi-queue-max-queues",
        ),
        (
            with(|vif| vif.keys.queues = vec![vif.keys.queues[0]; QUEUES + 1]),
            "multi-queue-num-queues: found 4, expected a number of queues from 1 to \
             multi-queue-max-queues",
        ),
        (
            with(|vif| vif.headroom = 2049),
            "xdp-headroom: found 2049, expected a number of bytes up to 2048",
        ),
        (with(|vif| vif.keys.queues[0].tx_ring = GrantRef(99_999)), "99999"),
        (with(|vif| vif.keys.queues[0].rx_ring = GrantRef(99_999)), "99999"),
        (with(|vif| vif.keys.queues[0].rx_event = Some(vif.keys.queues[0].tx_event)), "event"),
    ];
    for (vif, expected) in cases {
        let refused = machine.server().attach(vif, echo()).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(refused.port.is_some(), "{refused}");
        assert_eq!((machine.mapped(), machine.server().left()), (0, vec![]), "{refused}");
    }
    machine.server().attach(good.clone(), echo()).unwrap();
    let refused = machine.server().attach(good, echo()).unwrap_err();
    assert_eq!(refused.to_string(), "vif7.0 is attached already; detach it first");
    assert!(refused.port.is_some());
    guest.is_served(&mut machine, 0, 5);
}

#[test]
fn a_guest_that_breaks_a_ring_is_told_once_and_its_neighbour_goes_on() {
    let mut machine = Machine::new();
    let (mut bad, mut worse) = (Guest::new(&machine, 8, 1), Guest::new(&machine, 9, 1).with_ctrl());
    let mut good = Guest::new(&machine, 7, 1);
    for guest in [&bad, &worse, &good] {
        machine.server().attach(guest.vif(), echo()).unwrap();
    }
    good.is_served(&mut machine, 0, 5);
    bad.breaks(0);
    let (id, error) = machine.failed();
    assert!(id == bad.id && matches!(error, VifError::Ring { .. }), "{id}: {error}");
    let (_, front, refs) = worse.ctrl.as_ref().unwrap();
    front.memory().store(Index::ReqProd, 5000);
    worse.events.notify(refs.event).unwrap();
    let (id, error) = machine.failed();
    assert!(id == worse.id && matches!(error, VifError::Control(_)), "{id}: {error}");
    good.is_served(&mut machine, 0, 5);
    assert_eq!(machine.server().left(), [], "a vif that failed leaves nothing to a successor");
    let connected: Vec<bool> = machine.server().report().map(|vif| vif.connected).collect();
    assert_eq!(connected, [true, false, false]);
    // A vif that failed keeps its port until it is detached, and may come again with new rings.
    for id in [bad.id, worse.id] {
        assert!(machine.server().detach(id).is_some());
    }
    bad.queues[0].clear();
    machine.server().attach(bad.vif(), echo()).unwrap();
    bad.is_served(&mut machine, 0, 5);
    good.is_served(&mut machine, 0, 5);
}

#[test]
fn a_successor_continues_what_a_killed_server_left() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2).with_ctrl();
    machine.server().attach(guest.vif(), echo()).unwrap();
    guest.is_served(&mut machine, 0, 10);
    machine.kill();
    // The guest goes on: its requests wait on the rings.
    guest.sends(1, 10);
    machine.start();
    assert_eq!(machine.server().left(), [(guest.id, None)]);
    let mut other = guest.vif();
    other.keys.queues.reverse();
    let refused = machine.server().resume(other, echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(id) if id == guest.id), "{refused}");
    assert_eq!(machine.server().left(), [(guest.id, None)], "the connection stays in the journal");
    let (vif, mut port) = (guest.vif(), Some(echo()));
    machine_resumes(&mut machine, &vif, &mut port);
    guest.has_all_back(&mut machine, 1, 10);
    guest.is_served(&mut machine, 0, 10);
    assert!(guest.asks(&mut machine, Message::GetGrefMappingSize { queue: 0 }).is_ok());
    machine.server().detach(guest.id).unwrap();
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "a detached vif left nothing");
}

/// Resumes a vif, again and again as long as the error may pass: the event channels may still be
/// bound to the server that died.
#[track_caller]
fn machine_resumes(machine: &mut Machine, vif: &HandedVif, port: &mut Option<Box<dyn Port>>) {
    eventually("the takeover", || {
        match machine.server().resume(vif.clone(), port.take().unwrap()) {
            Ok(()) => Some(()),
            Err(refused) => {
                assert!(refused.error.may_pass(), "{refused}");
                *port = refused.port;
                None
            }
        }
    });
}

#[test]
fn a_server_that_was_killed_while_it_attached_a_vif_is_succeeded() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    // The first queue only, as of a server that did not come to the second.
    let mut half = guest.vif();
    half.keys.queues.truncate(1);
    machine.server().attach(half, echo()).unwrap();
    guest.is_served(&mut machine, 0, 10);
    machine.kill();
    machine.start();
    machine_resumes(&mut machine, &guest.vif(), &mut Some(echo()));
    for queue in [0, 1] {
        guest.is_served(&mut machine, queue, 10);
    }
}

#[test]
fn a_connection_of_which_a_queue_had_failed_is_not_continued() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, QUEUES);
    machine.server().attach(guest.vif(), echo()).unwrap();
    guest.is_served(&mut machine, 2, 10);
    guest.breaks(1);
    eventually("the worker's look", || {
        while machine.server().serve().unwrap() {}
        let queues = machine.server().report().next().unwrap().queues.len();
        (queues == QUEUES - 1).then_some(())
    });
    // The worker has told the server, which is killed before it hears of it.
    machine.kill();
    machine.start();
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "{refused}");
}

#[test]
fn a_guest_that_comes_anew_keeps_its_vif_and_has_no_new_limits() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let day = Duration::from_secs(86_400);
    let rate = Rate::new(NonZeroU64::new(BYTES as u64 * 5).unwrap(), day);
    let vif = |guest: &Guest| {
        let mut vif = guest.vif();
        vif.rate = rate;
        vif
    };
    let refused = machine.server().reconnect(vif(&guest)).unwrap_err();
    assert_eq!(refused.to_string(), "vif7.0 is not attached; attach it first");
    machine.server().attach(vif(&guest), echo()).unwrap();
    guest.is_served(&mut machine, 0, 3);
    assert!(machine.server().disconnect(guest.id));
    let report = machine.server().report_of(guest.id).unwrap();
    assert_eq!((report.connected, machine.mapped(), machine.server().left()), (false, 0, vec![]));
    guest.comes_anew();
    machine.server().reconnect(vif(&guest)).unwrap();
    guest.is_served(&mut machine, 0, 2);
    let signals = |machine: &mut Machine| {
        machine.server().report().next().unwrap().queues[0].counts.interrupts
    };
    let before = signals(&mut machine);
    guest.sends(0, 1);
    eventually("the queue's turn", || {
        while machine.server().serve().unwrap() {}
        (signals(&mut machine) > before).then_some(())
    });
    assert_eq!(guest.queues[0].tx_answers(), [], "five frames are all that may leave");
    let report = machine.server().report().next().unwrap();
    assert_eq!((report.stats.tx_packets, report.connected), (5, true));
    // A vif whose guest shows what cannot be served stays, without a connection.
    guest.comes_anew();
    let mut bad = vif(&guest);
    bad.keys.queues[0].rx_ring = GrantRef(99_999);
    assert!(machine.server().reconnect(bad).is_err());
    assert_eq!((machine.mapped(), machine.server().left()), (0, vec![]));
    assert!(!machine.server().report().next().unwrap().connected);
    machine.server().reconnect(vif(&guest)).unwrap();
    assert!(machine.server().set_rate(guest.id, None));
    guest.is_served(&mut machine, 0, 5);
    // A vif that failed may come anew, too.
    guest.breaks(0);
    let (id, _) = machine.failed();
    assert_eq!((id, machine.mapped(), machine.server().left()), (guest.id, 0, vec![]));
    guest.comes_anew();
    machine.server().reconnect(vif(&guest)).unwrap();
    assert!(machine.server().detach(guest.id).is_some());
    assert!(
        !machine.server().disconnect(guest.id) && machine.server().report_of(guest.id).is_none()
    );
}

/// An echo with one further queue, which is no port that could have queues of its own.
struct Named {
    echo: Echo,
    name: &'static str,
}

impl Probe for Named {
    fn name(&self) -> &str {
        self.name
    }

    fn report(&self) -> PortReport {
        self.echo.report()
    }
}

impl Port for Named {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.echo.send(frame, offload)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        self.echo.recv(buf)
    }

    fn readiness(&self) -> Readiness<'_> {
        self.echo.readiness()
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: if self.name == "first" { 2 } else { 1 }, ..self.echo.caps() }
    }
}

impl PortControl for Named {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Named { echo: Echo::new(), name: "further" }))
    }
}

#[test]
fn the_port_that_was_given_is_the_one_that_comes_back() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 2);
    let mut bad = guest.vif();
    bad.keys.queues[1].tx_event = bad.keys.queues[0].tx_event;
    let port = Box::new(Named { echo: Echo::new(), name: "first" });
    let refused = machine.server().attach(bad, port).unwrap_err();
    let port = refused.port.unwrap();
    assert_eq!(port.name(), "first");
    machine.server().attach(guest.vif(), port).unwrap();
    guest.is_served(&mut machine, 1, 5);
    assert_eq!(machine.server().detach(guest.id).unwrap().name(), "first");
}

#[test]
fn a_limit_of_any_size_is_kept() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let mut vif = guest.vif();
    // Each nanosecond earns more than can be saved up.
    vif.rate = Rate::new(NonZeroU64::MAX, Duration::from_nanos(1));
    machine.server().attach(vif, echo()).unwrap();
    for _ in 0..3 {
        guest.is_served(&mut machine, 0, 5);
    }
    assert_eq!(Rate::new(NonZeroU64::MIN, Duration::ZERO), None);
}

#[test]
fn what_a_killed_server_left_can_be_forgotten() {
    let mut machine = Machine::new();
    let guest = Guest::new(&machine, 7, 1);
    machine.server().attach(guest.vif(), echo()).unwrap();
    machine.server().forget(guest.id);
    machine.kill();
    machine.start();
    assert_eq!(machine.server().left(), [(guest.id, None)], "a vif in service is not forgotten");
    machine.server().forget(guest.id);
    assert!(machine.server().left().is_empty());
    let refused = machine.server().resume(guest.vif(), echo()).unwrap_err();
    assert!(matches!(refused.error, VifError::NotLeft(_)), "{refused}");
}

#[test]
fn settings_of_a_vif_change_while_it_is_served() {
    let mut machine = Machine::new();
    let mut guest = Guest::new(&machine, 7, 1);
    let mut vif = guest.vif();
    // A period of a day: what was saved up at first is all that ever leaves.
    let day = Duration::from_secs(86_400);
    let rate = Rate::new(NonZeroU64::new(BYTES as u64 * 5).unwrap(), day);
    vif.rate = rate;
    machine.server().attach(vif, echo()).unwrap();
    guest.sends(0, 10);
    let rings = &mut guest.queues[0];
    let mut answered = 0;
    machine.until("five frames", || {
        answered += rings.tx_answers().len();
        (answered >= 5).then_some(())
    });
    while machine.server().serve().unwrap() {}
    assert_eq!(answered + rings.tx_answers().len(), 5);
    assert!(machine.server().set_rate(guest.id, None));
    machine.until("the rest", || {
        answered += rings.tx_answers().len();
        (answered >= 10).then_some(())
    });
    guest.queues[0].rx_answers();
    assert!(machine.server().set_headroom(guest.id, 256).unwrap());
    assert!(machine.server().set_headroom(guest.id, 2049).is_err());
    guest.sends(0, 1);
    let rings = &mut guest.queues[0];
    let offset = machine.until("a frame", || Some(rings.rx_answers().first()?.offset));
    assert_eq!(offset, 256);
    assert!(machine.server().set_multicast(guest.id, true));
    let nobody = VifId { domain: DomId(1), devid: 1 };
    assert!(!machine.server().set_rate(nobody, None));
    assert!(!machine.server().set_multicast(nobody, true));
    assert!(!machine.server().set_headroom(nobody, 0).unwrap());
}

#[test]
fn a_vif_is_described_by_the_words_of_its_guest() {
    let id = VifId { domain: DomId(7), devid: 1 };
    let parse = |words: &[(&str, &str)]| {
        let get = |key: &str| Some(words.iter().find(|(name, _)| *name == key)?.1.to_owned());
        HandedVif::parse(id, get, 2)
    };
    let two = [
        ("request-rx-copy", "1"),
        ("multi-queue-num-queues", "2"),
        ("queue-0/tx-ring-ref", "8"),
        ("queue-0/rx-ring-ref", "9"),
        ("queue-0/event-channel-tx", "15"),
        ("queue-0/event-channel-rx", "16"),
        ("queue-1/tx-ring-ref", "10"),
        ("queue-1/rx-ring-ref", "11"),
        ("queue-1/event-channel", "17"),
        ("ctrl-ring-ref", "12"),
        ("event-channel-ctrl", "18"),
        ("feature-gso-tcpv4", "1"),
        ("xdp-headroom", "256"),
    ];
    let vif = parse(&two).unwrap();
    let refs = |tx, rx, tx_event, rx_event: Option<u32>| QueueRefs {
        tx_ring: GrantRef(tx),
        rx_ring: GrantRef(rx),
        tx_event: EventPort(tx_event),
        rx_event: rx_event.map(EventPort),
    };
    assert_eq!(vif.keys.queues, [refs(8, 9, 15, Some(16)), refs(10, 11, 17, None)]);
    assert_eq!(vif.keys.ctrl, Some(CtrlRefs { ring: GrantRef(12), event: EventPort(18) }));
    // Large frames need scatter-gather.
    let offloads = vif.keys.offloads;
    assert_eq!((offloads.checksum, offloads.tso4, vif.headroom), (true, false, 256));
    for (change, said) in [
        (("request-rx-copy", "0"), "frontend/request-rx-copy is \"0\", expected 1"),
        (
            ("multi-queue-num-queues", "3"),
            "frontend/multi-queue-num-queues: found \"3\", expected a number of queues from 1 to",
        ),
        (
            ("queue-1/rx-ring-ref", "x"),
            "frontend/queue-1/rx-ring-ref: found \"x\", expected a grant reference",
        ),
        (("event-channel-ctrl", ""), "frontend/event-channel-ctrl: found \"\", expected an event"),
        (
            ("xdp-headroom", "4096"),
            "xdp-headroom: found \"4096\", expected a number of bytes up to",
        ),
    ] {
        let words = two.map(|word| if word.0 == change.0 { change } else { word });
        let error = parse(&words).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
    assert_eq!(
        parse(&two[..2]).unwrap_err().to_string(),
        "frontend/queue-0/tx-ring-ref: found nothing, expected a grant reference"
    );
}

#[test]
fn the_offer_is_what_the_server_and_the_port_have() {
    let mut machine = Machine::new();
    let port = echo();
    let value = |keys: &[(&str, u32)], name: &str| {
        keys.iter().find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no {name}")).1
    };
    let offer = machine.server().offer(port.as_ref(), Checksums::Offload).keys();
    assert_eq!(
        value(&offer, "multi-queue-max-queues"),
        QUEUES as u32,
        "fewer than the {MAX_QUEUES} of all"
    );
    assert_eq!(value(&offer, "feature-gso-tcpv4"), 1);
    let full = machine.server().offer(port.as_ref(), Checksums::Full).keys();
    assert_eq!(
        (value(&full, "feature-gso-tcpv4"), value(&full, "feature-no-csum-offload")),
        (0, 1)
    );
}
