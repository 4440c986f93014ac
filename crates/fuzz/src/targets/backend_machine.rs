//! Target: the backend's end of the handshake, with any events in any order.

use super::Bytes;
use grantway_netif::XenbusState as S;
use grantway_netif::xenbus::{BackendAction, BackendEvent, BackendMachine};

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (own, peer, flags) = (state(bytes.u8()), state(bytes.u8()), bytes.u8());
    let (online, takeover) = (flags & 1 != 0, flags & 2 != 0);
    let (machine, actions) = BackendMachine::start(own, peer, online, takeover);
    let mut watch = Watch { peer, online, shown: own, ..Watch::default() };
    let served = matches!(own, Some(S::InitWait | S::Connected | S::Reconfigured));
    watch.first = online && takeover && served && peer.is_some_and(S::has_rings);
    watch.carry_out(&actions);
    let mut machine = machine;
    watch.check(&machine);
    watch.first = false;
    for &byte in bytes.0 {
        let event = event(byte);
        watch.tell(event);
        let actions = machine.handle(event);
        watch.carry_out(&actions);
        watch.check(&machine);
        // Events say states, not changes: an event that comes twice does no harm. The exception is
        // a Closing that the machine has overwritten: it is a new one.
        if event != BackendEvent::Own(Some(S::Closing)) || machine.shown() == Some(S::Closing) {
            let mut again = machine.clone();
            assert!(again.handle(event).is_empty() && again == machine, "{event:?} again");
        }
    }
}

/// Returns none, or one of the nine states.
pub(super) fn state(number: u8) -> Option<S> {
    S::ALL.get(usize::from(number % 10)).copied()
}

fn event(byte: u8) -> BackendEvent {
    let argument = byte / 9;
    match byte % 9 {
        0 => BackendEvent::Peer(state(argument)),
        1 => BackendEvent::Own(state(argument)),
        2 => BackendEvent::Online(argument & 1 != 0),
        3 => BackendEvent::Connected,
        4 => BackendEvent::ConnectFailed,
        5 => BackendEvent::HotplugDone,
        6 => BackendEvent::KeysChanged,
        7 => BackendEvent::Fatal,
        _ => BackendEvent::Shutdown,
    }
}

/// State that a caller of the machine has, with the actions that it may expect.
#[derive(Debug, Default)]
struct Watch {
    peer: Option<S>,
    online: bool,
    stopping: bool,
    hotplug: bool,
    /// True if a takeover is allowed: only at the beginning, and not always.
    first: bool,
    /// State in the `state` node.
    shown: Option<S>,
    /// True if rings are mapped, or being mapped.
    held: bool,
    /// True if the rings are mapped.
    mapped: bool,
    /// True if the rings belonged to an earlier process, which had said Connected.
    taken: bool,
    gone: bool,
}

impl Watch {
    fn tell(&mut self, event: BackendEvent) {
        match event {
            BackendEvent::Peer(state) => self.peer = state,
            BackendEvent::Own(Some(S::Closing)) if !self.gone => self.shown = Some(S::Closing),
            BackendEvent::Online(online) => self.online = online,
            BackendEvent::Connected => self.mapped = self.held,
            BackendEvent::HotplugDone => self.hotplug = true,
            BackendEvent::Shutdown => self.stopping = true,
            _ => {}
        }
    }

    /// Checks that the machine may ask for these actions, and does them.
    fn carry_out(&mut self, actions: &[BackendAction]) {
        let (mut advertised, mut room) = (false, false);
        for &action in actions {
            assert!(!self.gone, "{action:?} after the end");
            match action {
                BackendAction::Advertise => {
                    assert!(!self.held);
                    advertised = true;
                }
                BackendAction::SetState(state) => {
                    let before = self.shown.replace(state);
                    assert_ne!(before, Some(state), "written again");
                    match state {
                        S::InitWait => assert!(advertised && !self.held),
                        S::Connected if before == Some(S::Reconfigured) => {
                            assert!(self.mapped && self.peer == Some(S::Connected));
                        }
                        S::Connected => assert!(self.mapped && self.hotplug && !self.taken),
                        S::Reconfigured => {
                            assert!(self.mapped && before == Some(S::Connected) && room);
                            assert_eq!(self.peer, Some(S::Reconfiguring));
                        }
                        S::Closing | S::Closed => assert!(!self.held),
                        _ => panic!("{state} is none of a backend's"),
                    }
                }
                BackendAction::Connect => {
                    assert!(!self.held, "two connections");
                    assert!(self.peer.is_some_and(S::has_rings));
                    assert_eq!(self.shown, Some(S::InitWait));
                    (self.held, self.mapped, self.taken) = (true, false, false);
                }
                BackendAction::TakeOver => {
                    assert!(!self.held && self.first);
                    // An earlier process that had not yet said Connected leaves that to the
                    // successor.
                    let taken = matches!(self.shown, Some(S::Connected | S::Reconfigured));
                    (self.held, self.mapped, self.taken) = (true, false, taken);
                }
                BackendAction::Headroom => {
                    assert!(self.mapped, "no queue is in service");
                    room = true;
                }
                BackendAction::Disconnect => {
                    assert!(self.held, "nothing to take down");
                    (self.held, self.mapped) = (false, false);
                }
                BackendAction::Destroy => {
                    assert!(!self.held);
                    self.gone = true;
                }
            }
        }
    }

    fn check(&self, machine: &BackendMachine) {
        assert_eq!(machine.is_gone(), self.gone);
        if self.gone {
            return assert!(!machine.is_connected());
        }
        assert_eq!(machine.shown(), self.shown);
        let script = self.hotplug || self.taken;
        assert_eq!(machine.is_connected(), self.held && self.mapped && script);
        if machine.is_connected() {
            let reconfigures = self.peer == Some(S::Reconfiguring);
            let follows = if reconfigures { S::Reconfigured } else { S::Connected };
            // A state of the peer's that says nothing leaves the last answer.
            let silent = !self.peer.is_some_and(S::has_rings);
            assert!(self.shown == Some(follows) || silent, "{:?}", self.shown);
        }
        let away = matches!(self.peer, None | Some(S::Unknown | S::Closed));
        if self.held {
            assert!(!away && !matches!(self.peer, Some(S::Initialising | S::Closing)));
            assert!(self.online && !self.stopping);
        }
        // There is nobody to wait for, so nothing may be left.
        assert!(!(away && (self.stopping || !self.online)), "left standing");
    }
}
