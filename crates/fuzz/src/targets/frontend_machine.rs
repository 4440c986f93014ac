//! Target: the frontend's end of the handshake, with any events in any order.

use super::Bytes;
use super::backend_machine::state;
use grantway_netif::XenbusState as S;
use grantway_netif::xenbus::{FrontendAction, FrontendEvent, FrontendMachine, Reopen};

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (first, peer) = (bytes.u8(), state(bytes.u8()));
    let own = state(first);
    let reopen = match first / 10 % 2 {
        0 => Reopen::Initialising,
        _ => Reopen::Connected,
    };
    let (mut machine, actions) = FrontendMachine::start(own, peer, reopen);
    let mut watch = Watch { peer, reopen, shown: own, ..Watch::default() };
    watch.carry_out(&actions);
    watch.check(&machine);
    for &byte in bytes.0 {
        let event = event(byte);
        watch.tell(event);
        let actions = machine.handle(event);
        watch.carry_out(&actions);
        watch.check(&machine);
        let mut again = machine.clone();
        assert!(again.handle(event).is_empty() && again == machine, "{event:?} again");
    }
}

fn event(byte: u8) -> FrontendEvent {
    match byte % 7 {
        0 => FrontendEvent::Peer(state(byte / 7)),
        1 => FrontendEvent::Own(state(byte / 7)),
        2 => FrontendEvent::Published,
        3 => FrontendEvent::ConnectFailed,
        4 => FrontendEvent::Fatal,
        5 => FrontendEvent::Restart,
        _ => FrontendEvent::Shutdown,
    }
}

/// State that a caller of the machine has, with the actions that it may expect.
#[derive(Debug, Default)]
struct Watch {
    peer: Option<S>,
    reopen: Reopen,
    /// True if the backend's Closed is none of before the last connection was asked for.
    moved: bool,
    shown: Option<S>,
    stopping: bool,
    /// True if a failure waits to be looked at.
    failed: bool,
    /// True if there are rings, or rings are being made.
    rings: bool,
    published: bool,
    ready: bool,
    /// True if pages are granted that were not taken back.
    lent: bool,
    gone: bool,
}

impl Watch {
    fn tell(&mut self, event: FrontendEvent) {
        match event {
            FrontendEvent::Peer(state) => {
                self.peer = state;
                self.moved |= state != Some(S::Closed);
                self.failed |= self.published && !self.ready && (self.away() || self.closes());
            }
            FrontendEvent::Published => self.published |= self.rings,
            FrontendEvent::ConnectFailed => self.failed |= self.rings && !self.published,
            FrontendEvent::Fatal => self.failed |= self.rings,
            FrontendEvent::Restart if !self.gone => self.failed = false,
            FrontendEvent::Shutdown => self.stopping = true,
            _ => {}
        }
    }

    /// Checks that the machine may ask for these actions, and does them.
    fn carry_out(&mut self, actions: &[FrontendAction]) {
        for &action in actions {
            assert!(!self.gone, "{action:?} after the end");
            match action {
                FrontendAction::SetState(state) => {
                    let before = self.shown.replace(state);
                    assert_ne!(before, Some(state), "written again");
                    // A backend that goes on serving is told of the end by Closing first.
                    let told = before != Some(S::Connected) || self.away() || self.closes();
                    match state {
                        S::Connected => assert!(self.published),
                        S::Closed if !told => panic!("Closed without Closing"),
                        S::Closing | S::Closed => assert!(!self.rings),
                        S::Initialising => {
                            assert!(!self.rings && !self.lent);
                            assert_eq!(self.reopen, Reopen::Initialising);
                        }
                        _ => panic!("{state} is none of a frontend's"),
                    }
                }
                FrontendAction::Connect => {
                    assert!(!self.rings && !self.lent, "two connections");
                    assert!(!self.failed && !self.stopping);
                    self.moved = self.peer == Some(S::InitWait);
                    let asks = self.peer == Some(S::Closed) && self.shown == Some(S::Closed);
                    assert!(self.moved || asks && self.reopen == Reopen::Connected);
                    (self.rings, self.lent) = (true, true);
                }
                FrontendAction::Ready => {
                    assert!(self.published && !self.ready && self.peer == Some(S::Connected));
                    self.ready = true;
                }
                FrontendAction::Disconnect => {
                    assert!(self.rings, "nothing to take down");
                    (self.rings, self.published, self.ready) = (false, false, false);
                }
                FrontendAction::Reclaim => {
                    assert!(self.lent && !self.rings);
                    self.lent = false;
                }
                FrontendAction::Stop => {
                    assert!(!self.lent && !self.rings);
                    self.gone = true;
                }
            }
        }
    }

    fn away(&self) -> bool {
        match self.peer {
            None | Some(S::Unknown) => true,
            Some(S::Closed) => self.moved || !self.asking(),
            Some(_) => false,
        }
    }

    /// Returns true if a backend in Closed may not have seen what it is asked.
    fn asking(&self) -> bool {
        self.reopen == Reopen::Connected && (self.rings || self.shown == Some(S::Closing))
    }

    fn closes(&self) -> bool {
        self.peer == Some(S::Closing)
    }

    fn check(&self, machine: &FrontendMachine) {
        assert_eq!(machine.is_gone(), self.gone);
        if self.gone {
            return assert!(!machine.is_connected());
        }
        assert_eq!(machine.shown(), self.shown);
        assert_eq!(machine.is_held(), self.failed);
        assert_eq!(machine.is_connected(), self.ready);
        assert!(!self.ready || self.shown == Some(S::Connected));
        let away = self.away();
        if self.rings {
            assert!(!away && !self.closes() && self.peer != Some(S::Initialising));
            assert!(!self.failed && !self.stopping);
        }
        assert!(!(away && self.stopping), "left standing");
        // Once the backend is away, no page is lent to it.
        assert!(!(away && self.lent), "still lent");
    }
}
