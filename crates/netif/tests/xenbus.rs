//! Single runs of the two machines, action by action.

use BackendAction::{Advertise, Connect, Destroy, Disconnect, Headroom, TakeOver};
use grantway_netif::XenbusState as S;
use grantway_netif::xenbus::{
    BackendAction, BackendEvent, BackendMachine, FrontendAction, FrontendEvent, FrontendMachine,
    Reopen,
};
use proptest::prelude::*;

fn set(state: S) -> BackendAction {
    BackendAction::SetState(state)
}

fn show(state: S) -> FrontendAction {
    FrontendAction::SetState(state)
}

fn back(own: S, peer: S) -> (BackendMachine, Vec<BackendAction>) {
    let (machine, actions) = BackendMachine::start(Some(own), Some(peer), true, false);
    (machine, actions.to_vec())
}

/// A backend that is connected.
fn connected_back() -> BackendMachine {
    let (mut machine, _) = back(S::Initialising, S::Initialising);
    assert!(machine.handle(BackendEvent::HotplugDone).is_empty());
    let actions = machine.handle(BackendEvent::Peer(Some(S::Connected)));
    assert_eq!(actions.as_slice(), [Connect]);
    let actions = machine.handle(BackendEvent::Connected);
    assert_eq!(actions.as_slice(), [set(S::Connected)]);
    assert!(machine.is_connected());
    machine
}

fn connected_front() -> FrontendMachine {
    let (mut machine, actions) =
        FrontendMachine::start(Some(S::Initialising), Some(S::InitWait), Reopen::Initialising);
    assert_eq!(actions.as_slice(), [FrontendAction::Connect]);
    let actions = machine.handle(FrontendEvent::Published);
    assert_eq!(actions.as_slice(), [show(S::Connected)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Connected)));
    assert_eq!(actions.as_slice(), [FrontendAction::Ready]);
    assert!(machine.is_connected());
    machine
}

#[test]
fn backend_waits_for_the_hotplug_script() {
    let (mut machine, actions) = back(S::Initialising, S::Connected);
    assert_eq!(actions, [Advertise, set(S::InitWait), Connect]);
    assert!(machine.handle(BackendEvent::Connected).is_empty());
    assert!(!machine.is_connected());
    let actions = machine.handle(BackendEvent::HotplugDone);
    assert_eq!(actions.as_slice(), [set(S::Connected)]);
}

#[test]
fn backend_ignores_a_frontends_initialised() {
    let (mut machine, _) = back(S::Initialising, S::Initialising);
    let actions = machine.handle(BackendEvent::Peer(Some(S::Initialised)));
    assert!(actions.is_empty());
}

#[test]
fn frontend_closes_first_and_returns() {
    let mut machine = connected_back();
    let mut peer = |state| machine.handle(BackendEvent::Peer(Some(state))).to_vec();
    assert_eq!(peer(S::Closing), [Disconnect, set(S::Closing)]);
    assert_eq!(peer(S::Closed), [set(S::Closed)]);
    assert_eq!(peer(S::Closed), []);
    assert_eq!(peer(S::Initialising), [Advertise, set(S::InitWait)]);
    assert_eq!(peer(S::Connected), [Connect]);
}

#[test]
fn frontend_that_started_anew_gets_the_whole_cycle() {
    let mut machine = connected_back();
    let actions = machine.handle(BackendEvent::Peer(Some(S::Initialising)));
    let cycle = [Disconnect, set(S::Closing), set(S::Closed), Advertise, set(S::InitWait)];
    assert_eq!(actions.as_slice(), cycle);
}

#[test]
fn toolstack_detaches() {
    let mut machine = connected_back();
    let actions = machine.handle(BackendEvent::Own(Some(S::Closing)));
    assert_eq!(actions.as_slice(), [Disconnect], "Closing is in the store");
    assert!(machine.handle(BackendEvent::Online(false)).is_empty());
    let actions = machine.handle(BackendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [set(S::Closed), Destroy]);
    assert!(machine.is_gone());
    // In the other order, and to a guest that never had a driver.
    let (mut machine, _) = back(S::Initialising, S::Initialising);
    let actions = machine.handle(BackendEvent::Online(false));
    assert_eq!(actions.as_slice(), [set(S::Closing), set(S::Closed), Destroy]);
}

#[test]
fn backend_takes_over_in_silence() {
    let connected = Some(S::Connected);
    let (mut machine, actions) = BackendMachine::start(connected, connected, true, true);
    assert_eq!(actions.as_slice(), [TakeOver]);
    assert!(machine.handle(BackendEvent::Peer(connected)).is_empty());
    assert!(machine.handle(BackendEvent::Connected).is_empty());
    assert!(machine.is_connected());

    let (mut machine, _) = BackendMachine::start(connected, connected, true, true);
    let actions = machine.handle(BackendEvent::ConnectFailed);
    assert_eq!(actions.as_slice(), [Disconnect, set(S::Closing)]);
}

#[test]
fn backend_takes_over_nothing_but_a_connection() {
    for own in S::ALL {
        for peer in S::ALL {
            for online in [false, true] {
                let (machine, actions) = BackendMachine::start(Some(own), Some(peer), online, true);
                // A process that was killed before it said Connected left rings in service, too.
                let served = matches!(own, S::InitWait | S::Connected | S::Reconfigured);
                let both = served && peer.has_rings() && online;
                assert_eq!(actions.contains(&TakeOver), both);
                assert_eq!(machine.is_gone(), actions.contains(&Destroy));
            }
        }
    }
}

#[test]
fn backend_makes_room_before_it_answers_and_takes_it_away_behind_connected() {
    let mut machine = connected_back();
    for _ in 0..2 {
        let mut peer = |state| machine.handle(BackendEvent::Peer(Some(state))).to_vec();
        assert_eq!(peer(S::Reconfiguring), [Headroom, set(S::Reconfigured)]);
        assert_eq!(peer(S::Reconfiguring), []);
        assert_eq!(peer(S::Connected), [set(S::Connected), Headroom]);
        assert_eq!(peer(S::Connected), []);
        assert!(machine.is_connected() && !machine.is_reconfiguring());
    }
    // A guest that leaves meanwhile goes as any other.
    let mut peer = |state| machine.handle(BackendEvent::Peer(Some(state))).to_vec();
    peer(S::Reconfiguring);
    assert_eq!(peer(S::Closing), [Disconnect, set(S::Closing)]);
    assert_eq!(peer(S::Reconfiguring), [], "it is to close first");
    assert_eq!(peer(S::Closed), [set(S::Closed)]);
}

#[test]
fn backend_connects_a_frontend_that_reconfigures_at_once() {
    let (mut machine, _) = back(S::Initialising, S::Initialising);
    assert!(machine.handle(BackendEvent::HotplugDone).is_empty());
    let actions = machine.handle(BackendEvent::Peer(Some(S::Reconfiguring)));
    assert_eq!(actions.as_slice(), [Connect]);
    assert!(machine.is_reconfiguring());
    let actions = machine.handle(BackendEvent::Connected);
    assert_eq!(actions.as_slice(), [set(S::Connected), Headroom, set(S::Reconfigured)]);
}

#[test]
fn backend_takes_over_an_answer_that_is_owed() {
    let start = |own, peer| BackendMachine::start(Some(own), Some(peer), true, true);
    for (own, peer, reconfigures, actions) in [
        (S::Connected, S::Reconfiguring, true, &[Headroom, set(S::Reconfigured)][..]),
        (S::Reconfigured, S::Reconfiguring, true, &[]),
        (S::Reconfigured, S::Connected, true, &[set(S::Connected), Headroom]),
        (S::Connected, S::Connected, false, &[]),
    ] {
        let (mut machine, first) = start(own, peer);
        assert_eq!(first.as_slice(), [TakeOver]);
        assert_eq!(machine.is_reconfiguring(), reconfigures, "{own} {peer}");
        assert_eq!(machine.handle(BackendEvent::Connected).as_slice(), actions, "{own} {peer}");
    }
}

#[test]
fn backend_takes_over_before_the_store_says_connected() {
    for script in [false, true] {
        let (own, peer) = (Some(S::InitWait), Some(S::Connected));
        let (mut machine, actions) = BackendMachine::start(own, peer, true, true);
        assert_eq!(actions.as_slice(), [TakeOver]);
        if !script {
            assert!(machine.handle(BackendEvent::HotplugDone).is_empty());
        }
        let actions = machine.handle(BackendEvent::Connected);
        assert_eq!(machine.is_connected(), !script);
        if script {
            assert!(actions.is_empty(), "the script is waited for: {actions:?}");
            let actions = machine.handle(BackendEvent::HotplugDone);
            assert_eq!(actions.as_slice(), [set(S::Connected)]);
        } else {
            assert_eq!(actions.as_slice(), [set(S::Connected)]);
        }
        assert!(machine.is_connected());
    }
    let (own, peer) = (Some(S::InitWait), Some(S::Connected));
    let (mut machine, _) = BackendMachine::start(own, peer, true, true);
    let actions = machine.handle(BackendEvent::ConnectFailed);
    assert_eq!(actions.as_slice(), [Disconnect, set(S::Closing)]);
}

#[test]
fn backend_without_a_journal_goes_through_closing() {
    let (mut machine, actions) = back(S::Connected, S::Connected);
    assert_eq!(actions, [set(S::Closing)]);
    let actions = machine.handle(BackendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [set(S::Closed)]);
    let actions = machine.handle(BackendEvent::Peer(Some(S::Initialising)));
    assert_eq!(actions.as_slice(), [Advertise, set(S::InitWait)]);
}

#[test]
fn fatal_and_changed_keys_close() {
    for event in [BackendEvent::Fatal, BackendEvent::KeysChanged] {
        let mut machine = connected_back();
        let actions = machine.handle(event);
        assert_eq!(actions.as_slice(), [Disconnect, set(S::Closing)]);
        assert!(machine.handle(event).is_empty(), "once");
    }
}

#[test]
fn vanished_nodes_end_both() {
    let mut machine = connected_back();
    let actions = machine.handle(BackendEvent::Own(None));
    assert_eq!(actions.as_slice(), [Disconnect, Destroy]);
    assert!(machine.handle(BackendEvent::Peer(Some(S::Initialising))).is_empty());

    let mut machine = connected_front();
    let actions = machine.handle(FrontendEvent::Own(None));
    let end = [FrontendAction::Disconnect, FrontendAction::Reclaim, FrontendAction::Stop];
    assert_eq!(actions.as_slice(), end);

    // Made anew in between: another device, whatever its backend shows, and whatever another
    // frontend has shown there by now.
    for state in S::ALL.into_iter().filter(|&state| state != S::Connected) {
        let mut machine = connected_front();
        assert!(machine.handle(FrontendEvent::Own(Some(S::Connected))).is_empty());
        let actions = machine.handle(FrontendEvent::Own(Some(state)));
        assert_eq!(actions.as_slice(), end);
    }

    let (machine, actions) = BackendMachine::start(None, None, true, true);
    assert!(machine.is_gone());
    assert_eq!(actions.as_slice(), [Destroy]);
    let (machine, actions) = FrontendMachine::start(None, None, Reopen::Initialising);
    assert!(machine.is_gone());
    assert_eq!(actions.as_slice(), [FrontendAction::Stop]);
}

#[test]
fn frontend_found_connected_goes_round() {
    let connected = Some(S::Connected);
    let (mut machine, actions) = FrontendMachine::start(connected, connected, Reopen::Initialising);
    assert_eq!(actions.as_slice(), [show(S::Closing)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closing)));
    assert_eq!(actions.as_slice(), [show(S::Closed)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [show(S::Initialising)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::InitWait)));
    assert_eq!(actions.as_slice(), [FrontendAction::Connect]);
}

#[test]
fn frontend_follows_a_closing_backend_and_returns() {
    let mut machine = connected_front();
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closing)));
    assert_eq!(actions.as_slice(), [FrontendAction::Disconnect, show(S::Closed)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [FrontendAction::Reclaim, show(S::Initialising)]);
}

#[test]
fn frontend_failure_waits_for_a_restart() {
    let (mut machine, _) =
        FrontendMachine::start(Some(S::Initialising), Some(S::InitWait), Reopen::Initialising);
    let actions = machine.handle(FrontendEvent::ConnectFailed);
    assert_eq!(actions.as_slice(), [FrontendAction::Disconnect, show(S::Closing)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [show(S::Closed), FrontendAction::Reclaim]);
    assert!(machine.is_held());
    let actions = machine.handle(FrontendEvent::Restart);
    assert_eq!(actions.as_slice(), [show(S::Initialising)]);
}

#[test]
fn a_frontend_that_may_not_show_initialising_comes_back_by_connected() {
    let closed = Some(S::Closed);
    let (mut machine, actions) = FrontendMachine::start(closed, closed, Reopen::Connected);
    assert_eq!(actions.as_slice(), [FrontendAction::Connect]);
    let actions = machine.handle(FrontendEvent::Published);
    assert_eq!(actions.as_slice(), [show(S::Connected)]);
    // The backend has not seen it yet; then it comes by itself.
    assert!(machine.handle(FrontendEvent::Peer(closed)).is_empty());
    assert!(machine.handle(FrontendEvent::Peer(Some(S::InitWait))).is_empty());
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Connected)));
    assert_eq!(actions.as_slice(), [FrontendAction::Ready]);
    // It goes, and its Closing went unseen.
    let actions = machine.handle(FrontendEvent::Peer(closed));
    let again = [FrontendAction::Disconnect, show(S::Closed), FrontendAction::Reclaim];
    assert_eq!(actions.as_slice(), [again.as_slice(), &[FrontendAction::Connect]].concat());
}

#[test]
fn a_backend_that_closes_what_it_never_connected_is_a_failure() {
    let start = FrontendMachine::start(Some(S::Initialising), Some(S::InitWait), Reopen::default());
    let mut machine = start.0;
    machine.handle(FrontendEvent::Published);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closing)));
    let closing = [FrontendAction::Disconnect, show(S::Closing), show(S::Closed)];
    assert_eq!(actions.as_slice(), closing);
    assert!(machine.is_held());
    assert_eq!(
        machine.handle(FrontendEvent::Peer(Some(S::Closed))).as_slice(),
        [FrontendAction::Reclaim]
    );
    let actions = machine.handle(FrontendEvent::Restart);
    assert_eq!(actions.as_slice(), [show(S::Initialising)]);
}

#[test]
fn shutdowns_go_through_closing() {
    let mut machine = connected_front();
    let actions = machine.handle(FrontendEvent::Shutdown);
    assert_eq!(actions.as_slice(), [FrontendAction::Disconnect, show(S::Closing)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closing)));
    assert_eq!(actions.as_slice(), [show(S::Closed)]);
    let actions = machine.handle(FrontendEvent::Peer(Some(S::Closed)));
    assert_eq!(actions.as_slice(), [FrontendAction::Reclaim, FrontendAction::Stop]);

    let mut machine = connected_back();
    let actions = machine.handle(BackendEvent::Shutdown);
    assert_eq!(actions.as_slice(), [Disconnect, set(S::Closing)]);
    let actions = machine.handle(BackendEvent::Peer(None));
    assert_eq!(actions.as_slice(), [set(S::Closed), Destroy]);
}

fn states() -> impl Strategy<Value = Option<S>> {
    proptest::option::weighted(0.95, proptest::sample::select(S::ALL.to_vec()))
}

fn back_events() -> impl Strategy<Value = BackendEvent> {
    prop_oneof![
        6 => states().prop_map(BackendEvent::Peer),
        1 => states().prop_map(BackendEvent::Own),
        1 => any::<bool>().prop_map(BackendEvent::Online),
        3 => Just(BackendEvent::Connected),
        1 => Just(BackendEvent::ConnectFailed),
        1 => Just(BackendEvent::HotplugDone),
        1 => Just(BackendEvent::KeysChanged),
        1 => Just(BackendEvent::Fatal),
        1 => Just(BackendEvent::Shutdown),
    ]
}

fn front_events() -> impl Strategy<Value = FrontendEvent> {
    prop_oneof![
        6 => states().prop_map(FrontendEvent::Peer),
        1 => states().prop_map(FrontendEvent::Own),
        3 => Just(FrontendEvent::Published),
        1 => Just(FrontendEvent::ConnectFailed),
        1 => Just(FrontendEvent::Fatal),
        1 => Just(FrontendEvent::Restart),
        1 => Just(FrontendEvent::Shutdown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any events in any order: no panic (the action lists do not overflow),
    /// each connection is taken down once, and nothing comes after the end.
    #[test]
    fn backend_pairs_its_actions(
        own in states(), peer in states(), online in any::<bool>(), takeover in any::<bool>(),
        events in proptest::collection::vec(back_events(), 0..40),
    ) {
        let (mut machine, first) = BackendMachine::start(own, peer, online, takeover);
        let mut held = false;
        let mut gone = false;
        let mut lists = vec![first];
        lists.extend(events.into_iter().map(|event| machine.handle(event)));
        for action in lists.into_iter().flatten() {
            prop_assert!(!gone);
            match action {
                Connect | TakeOver => {
                    prop_assert!(!held);
                    held = true;
                }
                Disconnect => {
                    prop_assert!(held);
                    held = false;
                }
                Destroy => {
                    prop_assert!(!held);
                    gone = true;
                }
                Advertise | Headroom | BackendAction::SetState(_) => {}
            }
        }
        prop_assert_eq!(gone, machine.is_gone());
    }

    #[test]
    fn frontend_pairs_its_actions(
        own in states(), peer in states(),
        events in proptest::collection::vec(front_events(), 0..40),
    ) {
        let (mut machine, first) = FrontendMachine::start(own, peer, Reopen::Initialising);
        let (mut rings, mut lent, mut gone) = (false, false, false);
        let mut lists = vec![first];
        lists.extend(events.into_iter().map(|event| machine.handle(event)));
        for action in lists.into_iter().flatten() {
            prop_assert!(!gone);
            match action {
                FrontendAction::Connect => {
                    // What was lent before was reclaimed before.
                    prop_assert!(!rings && !lent);
                    rings = true;
                    lent = true;
                }
                FrontendAction::Ready => prop_assert!(rings),
                FrontendAction::Disconnect => {
                    prop_assert!(rings);
                    rings = false;
                }
                FrontendAction::Reclaim => {
                    prop_assert!(lent && !rings);
                    lent = false;
                }
                FrontendAction::Stop => {
                    prop_assert!(!rings && !lent);
                    gone = true;
                }
                FrontendAction::SetState(_) => {}
            }
        }
        prop_assert_eq!(gone, machine.is_gone());
    }
}
