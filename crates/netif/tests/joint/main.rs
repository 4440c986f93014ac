//! Both ends of the handshake, a store between them, a toolstack and the
//! processes' deaths: every reachable joint state is visited, for our two ends
//! and for each of ours against a model of the stock other one.

mod explore;
mod stock;
mod world;

use explore::Graph;
use grantway_netif::XenbusState;
use grantway_netif::xenbus::Reopen;
use stock::{StockBack, StockFront};
use world::{Back, Event, Front, World};

fn world(front: Front, back: Back) -> World {
    World::new(front, back)
}

/// Explores the states that two ends reach from any start. If the store holds what no pair of ends
/// leaves there, the two ends can chase each other while their single writes alternate in lockstep:
/// the store has no compare-and-set of two nodes. So can a frontend that comes back by Connected,
/// whose Closed before it may be seen late. They stop as soon as one end completes all its
/// actions at a time, and can stop from anywhere.
fn both_ways(start: World, events: &[Event]) -> Graph {
    let mut whole = start.clone();
    whole.whole = true;
    Graph::explore(whole, events).assert_every_run_ends();
    let graph = Graph::explore(start, events);
    graph.assert_every_run_can_end();
    graph
}

fn ours() -> World {
    world(Front::Dead, Back::Dead)
}

/// Explores a start that both ends leave in order.
fn explore(start: World, events: &[Event]) -> Graph {
    if start.reopen == Reopen::Connected {
        return both_ways(start, events);
    }
    let graph = Graph::explore(start, events);
    graph.assert_every_run_ends();
    graph
}

/// Returns this start for a frontend of ours of either kind.
fn either(start: World) -> [World; 2] {
    [Reopen::Initialising, Reopen::Connected].map(|reopen| {
        let mut start = start.clone();
        start.reopen = reopen;
        start
    })
}

/// Checks two live ends of ours that the toolstack wants: nothing is left to do only if both are
/// connected over the same rings, or if a failure holds the frontend.
fn check_ours(world: &World) {
    let (Front::Ours(front), Back::Ours(back)) = (&world.front, &world.back) else {
        return;
    };
    if front.machine.is_gone() || back.machine.is_gone() {
        // Gone for a reason, and neither believes in a connection.
        assert!(!front.machine.is_connected() || !back.machine.is_gone());
        assert!(!back.machine.is_connected() || !front.machine.is_gone());
        assert!(!world.online || world.fs.is_none() || world.stopped, "{world:?}");
        return;
    }
    assert!(world.online, "an offline backend is left standing: {world:?}");
    if front.machine.is_held() {
        assert_eq!(world.fs, Some(XenbusState::Closed), "{world:?}");
        // InitWait where the backend began anew while the frontend gave up.
        let bs = world.bs;
        assert!(matches!(bs, Some(XenbusState::Closed | XenbusState::InitWait)), "{world:?}");
        assert_eq!(back.rings, 0, "{world:?}");
        return;
    }
    assert!(front.machine.is_connected(), "{world:?}");
    assert!(back.machine.is_connected(), "{world:?}");
    assert_eq!(front.rings, back.rings, "{world:?}");
    assert_ne!(front.rings, 0);
}

#[test]
fn our_ends_always_come_together() {
    let events = [
        Event::StartFront,
        Event::StartBack { takeover: true },
        Event::StartBack { takeover: false },
        Event::KillFront,
        Event::KillBack,
        Event::FrontFatal,
        Event::FrontRestart,
        Event::BackFatal,
    ];
    for start in either(ours()) {
        let graph = explore(start, &events);
        graph.for_each_rest(check_ours);
        assert!(graph.rests() > 0);
        assert!(graph.len() > 1000, "{} states", graph.len());
    }
}

#[test]
fn detach_and_vanished_nodes_end_every_machine() {
    let events = [
        Event::StartFront,
        Event::StartBack { takeover: true },
        Event::StartBack { takeover: false },
        Event::KillFront,
        Event::KillBack,
        Event::Detach,
        Event::Vanish,
    ];
    let mut start = ours();
    start.wild = true;
    for start in either(start) {
        both_ways(start, &events).for_each_rest(|world| {
            check_ours(world);
            let alive = matches!((&world.front, &world.back), (Front::Ours(_), Back::Ours(_)));
            if alive && !world.online {
                let Back::Ours(back) = &world.back else {
                    return;
                };
                assert!(back.machine.is_gone(), "{world:?}");
                assert_eq!(back.rings, 0);
                let Front::Ours(front) = &world.front else {
                    return;
                };
                // Who comes back by Connected asks a backend that may be on its way out, and
                // learns so when its own nodes go.
                let asks = world.reopen == Reopen::Connected && !front.machine.is_connected();
                assert!(front.rings == 0 || asks, "{world:?}");
            }
        });
    }
}

#[test]
fn failed_connections_and_shutdowns_leave_nothing_behind() {
    let events = [
        Event::StartFront,
        Event::StartBack { takeover: false },
        Event::FrontFailsNext,
        Event::BackFailsNext,
        Event::FrontRestart,
        Event::FrontShutdown,
        Event::BackShutdown,
    ];
    for start in either(ours()) {
        let graph = explore(start, &events);
        graph.for_each_rest(|world| {
            check_ours(world);
            if let Back::Ours(back) = &world.back
                && back.machine.is_gone()
            {
                assert_eq!(back.rings, 0);
            }
            if let Front::Ours(front) = &world.front
                && front.machine.is_gone()
            {
                assert_eq!(front.rings, 0);
            }
        });
    }
}

#[test]
fn our_backend_serves_stock_netfront() {
    let start = world(Front::Stock(StockFront::probe()), Back::Dead);
    let events =
        [Event::StartBack { takeover: true }, Event::KillBackConnected, Event::FrontReload];
    let graph = Graph::explore(start, &events);
    graph.assert_every_run_ends();
    let mut met = 0;
    graph.for_each_rest(|world| {
        let Back::Ours(back) = &world.back else {
            return;
        };
        let Front::Stock(front) = &world.front else {
            return;
        };
        assert!(back.machine.is_connected(), "{world:?}");
        assert_eq!(world.fs, Some(XenbusState::Connected));
        assert_eq!(front.rings, back.rings, "{world:?}");
        met += 1;
    });
    assert!(met > 0);
}

/// However programs come and go, and the backend is killed: while one runs, the frames have room for
/// it, and the driver is never left waiting for its answer.
#[test]
fn stock_netfronts_program_always_has_its_headroom() {
    let start = world(Front::Stock(StockFront::probe()), Back::Dead);
    let events = [
        Event::StartBack { takeover: true },
        Event::KillBackServing,
        Event::FrontProgram(true),
        Event::FrontProgram(false),
    ];
    let graph = Graph::explore(start, &events);
    graph.assert_every_run_ends();
    let mut hasty = 0;
    graph.for_each(|world| {
        let (Front::Stock(front), Back::Ours(back)) = (&world.front, &world.back) else { return };
        assert!(!front.program || back.rings == 0 || back.room, "{world:?}");
        let unseen = back.machine.shown() == Some(XenbusState::Reconfigured)
            && world.bs == back.machine.shown()
            && world.fs == Some(XenbusState::Reconfiguring)
            && world.fired.back_peer;
        hasty += usize::from(unseen);
    });
    assert!(hasty > 0, "no driver was hasty enough to take an earlier answer for its own");
    let mut met = [0; 2];
    graph.for_each_rest(|world| {
        let (Front::Stock(front), Back::Ours(back)) = (&world.front, &world.back) else { return };
        assert!(back.machine.is_connected(), "{world:?}");
        let connected = Some(XenbusState::Connected);
        assert_eq!((world.fs, world.bs), (connected, connected), "{world:?}");
        assert_eq!((back.room, world.headroom), (front.program, front.program), "{world:?}");
        met[usize::from(front.program)] += 1;
    });
    assert!(met.iter().all(|&met| met > 0), "{met:?}");
}

#[test]
fn our_backend_without_a_journal_closes_towards_stock_netfront() {
    // Stock netfront does not come back from Closed until its driver is bound
    // again; until then our backend waits for it.
    let start = world(Front::Stock(StockFront::probe()), Back::Dead);
    let events = [
        Event::StartBack { takeover: false },
        Event::KillBack,
        Event::BackFatal,
        Event::FrontReload,
    ];
    let graph = Graph::explore(start, &events);
    graph.assert_every_run_ends();
    graph.for_each_rest(|world| {
        let Back::Ours(back) = &world.back else {
            return;
        };
        let Front::Stock(front) = &world.front else {
            return;
        };
        let waiting = matches!(world.bs, Some(XenbusState::Closed | XenbusState::InitWait));
        let closed = world.fs == Some(XenbusState::Closed) && waiting;
        assert!(closed && back.rings == 0 || back.machine.is_connected(), "{world:?}");
        if back.machine.is_connected() {
            assert_eq!(front.rings, back.rings);
        }
    });
}

#[test]
fn our_backend_is_detached_from_stock_netfront() {
    let start = world(Front::Stock(StockFront::probe()), Back::Dead);
    let events = [Event::StartBack { takeover: true }, Event::Detach];
    let graph = Graph::explore(start, &events);
    graph.assert_every_run_ends();
    graph.for_each_rest(|world| {
        if let Back::Ours(back) = &world.back
            && !world.online
        {
            assert!(back.machine.is_gone(), "{world:?}");
            assert_eq!(world.bs, Some(XenbusState::Closed), "{world:?}");
        }
    });
}

#[test]
fn our_frontend_uses_stock_netback() {
    let start = world(Front::Dead, Back::Stock(StockBack::probe()));
    let events = [Event::StartFront, Event::KillFront, Event::FrontFatal, Event::FrontRestart];
    for start in either(start) {
        let graph = explore(start, &events);
        let mut met = 0;
        graph.for_each_rest(|world| {
            let Front::Ours(front) = &world.front else {
                return;
            };
            let Back::Stock(back) = &world.back else {
                return;
            };
            if front.machine.is_held() {
                assert_eq!(world.bs, Some(XenbusState::Closed), "{world:?}");
                return;
            }
            assert!(front.machine.is_connected(), "{world:?}");
            assert_eq!(world.bs, Some(XenbusState::Connected), "{world:?}");
            assert_eq!(front.rings, back.rings, "{world:?}");
            met += 1;
        });
        assert!(met > 0);
    }
}

#[test]
fn our_frontend_is_detached_from_stock_netback() {
    let start = world(Front::Dead, Back::Stock(StockBack::probe()));
    for start in either(start) {
        let graph = explore(start, &[Event::StartFront, Event::Detach, Event::Vanish]);
        graph.for_each_rest(|world| {
            let Front::Ours(front) = &world.front else {
                return;
            };
            if world.fs.is_none() {
                assert!(front.machine.is_gone(), "{world:?}");
            }
            if !world.online {
                let asks = world.reopen == Reopen::Connected && !front.machine.is_connected();
                assert!(front.rings == 0 || asks, "{world:?}");
                assert!(!front.machine.is_connected());
            }
        });
    }
}

#[test]
fn either_end_starts_in_any_state() {
    // Whatever a crash left in the store, the two ends meet.
    for fs in XenbusState::ALL {
        for bs in XenbusState::ALL {
            let mut start = ours();
            start.wild = true;
            start.fs = Some(fs);
            start.bs = Some(bs);
            let events = [Event::StartFront, Event::StartBack { takeover: false }];
            for start in either(start) {
                both_ways(start, &events).for_each_rest(check_ours);
            }
        }
    }
}

#[test]
fn sanity_of_the_models() {
    // The two stock ends meet in the model as they do in the field.
    let start = world(Front::Stock(StockFront::probe()), Back::Stock(StockBack::probe()));
    let graph = Graph::explore(start, &[Event::FrontReload]);
    graph.assert_every_run_ends();
    graph.for_each_rest(|world| {
        assert_eq!(world.fs, Some(XenbusState::Connected), "{world:?}");
        assert_eq!(world.bs, Some(XenbusState::Connected), "{world:?}");
    });
}
