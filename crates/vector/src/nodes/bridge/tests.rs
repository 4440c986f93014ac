//! Stations are learnt, grow old, and keep to their shares.

use super::*;
use crate::rules::VifRules;

const AGE: u64 = 300_000_000_000;
const ON: (u64, u32) = (AGE, 64);

fn secret() -> Secret {
    Secret(0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321)
}

#[test]
fn what_is_learnt_is_not_flooded() {
    let mut bridge = Bridge::new(secret());
    let (a, b) = (PortId(1), PortId(2));
    assert_eq!(bridge.route(2, a, 0), Verdict::Flood);
    bridge.table.learn(1, a, ON, 0);
    assert_eq!(bridge.route(1, b, 0), Verdict::To(a));
    assert_eq!(bridge.route(1, a, 0), Verdict::Drop(Reason::Hairpin));
    assert_eq!(bridge.route(1 << 40, a, 0), Verdict::Flood, "a group");
    // The station moves.
    bridge.table.learn(1, b, ON, 5);
    assert_eq!(bridge.route(1, a, 5), Verdict::To(b));
    assert_eq!(bridge.route(1, a, 6 + AGE), Verdict::Flood, "it is too old");
    assert!(bridge.table.is_empty());
    bridge.table.learn(1, b, ON, 0);
    bridge.forget(b);
    assert_eq!(bridge.route(1, a, 0), Verdict::Flood);
}

#[test]
fn what_is_for_the_link_alone_is_not_relayed() {
    let mut bridge = Bridge::new(secret());
    for last in 0..=0xf {
        let verdict = bridge.route(0x0180_c200_0000 | last, PortId(1), 0);
        assert_eq!(verdict, Verdict::Drop(Reason::LinkLocal), "{last:x}");
    }
    for group in [0x0180_c200_0010, 0x0180_c1ff_ffff, 0x0100_5e00_0001, 0x3333_0000_0001] {
        assert_eq!(bridge.route(group, PortId(1), 0), Verdict::Flood, "{group:x}");
    }
}

#[test]
fn one_port_cannot_take_more_than_its_share() {
    let mut table = Table::new(secret());
    table.learn(1, PortId(1), ON, 0);
    for station in 100..10_000 {
        table.learn(station, PortId(2), ON, 0);
    }
    assert_eq!((table.len(), table.refused), (65, 9900 - 64));
    // Stations that are too old make room.
    table.learn(50, PortId(2), ON, AGE + 2);
    assert_eq!(table.find(50, AGE, AGE + 2), Some(PortId(2)));
    assert_eq!(table.len(), 1);
}

#[test]
fn a_port_without_room_does_not_make_a_station_of_another_unknown() {
    let mut table = Table::new(secret());
    table.learn(1, PortId(1), ON, 0);
    for station in 100..100 + 64 {
        table.learn(station, PortId(2), ON, 0);
    }
    table.learn(1, PortId(2), ON, 1);
    assert_eq!(table.find(1, AGE, 1), Some(PortId(1)));
    assert_eq!((table.len(), table.refused), (65, 1));
    // With room, a station moves, and gives its old place back.
    table.learn(100, PortId(3), ON, 2);
    table.learn(1, PortId(2), ON, 3);
    assert_eq!(table.find(1, AGE, 3), Some(PortId(2)));
    assert_eq!((table.len(), table.refused), (65, 1));
}

#[test]
fn many_ports_cannot_take_more_than_there_is() {
    let mut table = Table::new(secret());
    let capacity = table.learnt.capacity();
    for station in 1..100_000u64 {
        table.learn(station, PortId((station / 50) as u16), ON, station);
        if station % 3 == 0 {
            table.forget_port(PortId((station / 50) as u16));
        }
    }
    assert!(table.len() <= STATIONS_MAX);
    assert_eq!(table.learnt.capacity(), capacity, "nothing was allocated");
}

#[test]
fn isolated_vifs_do_not_reach_each_other() {
    let mut bridge = Bridge::new(secret());
    let isolated = VifRules { isolated: true, ..VifRules::default() };
    let vifs = vec![isolated.clone(), isolated, VifRules::default()];
    bridge.reload(&Arc::new(Rules { vifs, ..Rules::default() }));
    for station in 1..=3 {
        bridge.table.learn(station, PortId(station as u16 - 1), ON, 0);
    }
    assert_eq!(bridge.route(1, PortId(1), 0), Verdict::Drop(Reason::Isolated));
    assert_eq!(bridge.route(1, PortId(2), 0), Verdict::To(PortId(0)));
    assert_eq!(bridge.route(3, PortId(1), 0), Verdict::To(PortId(2)));
}

#[test]
fn a_station_is_news_where_it_is_new_and_a_quarter_of_its_time_later() {
    let mut table = Table::new(secret());
    let (a, b) = (PortId(1), PortId(2));
    assert!(table.learn(1, a, ON, 0));
    assert!((1..=AGE / 4).step_by(1_000_000_000).all(|now| !table.learn(1, a, ON, now)));
    assert!(table.learn(1, a, ON, AGE / 4 + 1));
    assert!(!table.learn(1, a, ON, AGE / 4 + 2));
    assert!(table.learn(1, b, ON, AGE / 4 + 3), "it moved");
    assert!(table.learn(1, a, ON, AGE / 4 + 4), "and back");
    assert!(!table.learn(1 << 40, a, ON, 0) && !table.learn(0, a, ON, 0), "no station");
    for station in 2..65 {
        assert!(table.learn(station, a, ON, AGE / 4 + 5));
    }
    assert!(!table.learn(65, a, ON, AGE / 4 + 6), "for which there is no room");
}

#[test]
fn graphs_of_two_workers_know_the_same_stations() {
    let mut both = [0, 1].map(|_| crate::path::bridge(secret(), || 0).unwrap());
    both[0].has_twins();
    let frame = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat();
    let mut arena = [frame, vec![0; 48]].concat();
    let mut batch = crate::Batch::new();
    let (len, from) = (60, PortId(7));
    let frame = crate::Frame { at: 0, head: len, len, token: 0, offload: Default::default(), from };
    for _ in 0..3 {
        batch.push(frame).unwrap();
    }
    both[0].run(&mut batch, &mut arena, 0);
    let news: Vec<_> = both[0].news().collect();
    assert_eq!(news.len(), 1, "once for frames that are alike");
    both[1].hear(&news, 5);
    let to_it = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    assert!(both.iter().all(|graph| !graph.may_flood(&to_it, 6)));
    assert_eq!(both[0].news().count(), 0);
    // Who has no twins keeps nothing for them.
    both[1].run(&mut batch, &mut arena, 0);
    assert_eq!(both[1].news().count(), 0);
}
