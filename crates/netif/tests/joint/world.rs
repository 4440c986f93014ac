//! The store, the two ends around it, and what may happen to them.

use crate::stock::{StockBack, StockFront};
use grantway_netif::XenbusState;
use grantway_netif::xenbus::{
    BackendAction, BackendEvent, BackendMachine, FrontendAction, FrontendEvent, FrontendMachine,
    Reopen,
};

/// A frontend process around our machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OurFront {
    pub machine: FrontendMachine,
    pub queue: Vec<FrontendAction>,
    /// Rings in use; 0 for none.
    pub rings: u8,
    fails_next: bool,
}

/// A backend process around our machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OurBack {
    pub machine: BackendMachine,
    pub queue: Vec<BackendAction>,
    /// Rings that are mapped; 0 for none.
    pub rings: u8,
    /// The queues leave room for an XDP program.
    pub room: bool,
    /// The key is to be read again: it is of a change that the machine has not seen.
    owes: bool,
    hotplug: bool,
    fails_next: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Front {
    Dead,
    Ours(OurFront),
    Stock(StockFront),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Back {
    Dead,
    Ours(OurBack),
    Stock(StockBack),
}

/// Event from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    StartFront,
    StartBack {
        takeover: bool,
    },
    KillFront,
    KillBack,
    /// A kill while both ends are Connected and at rest.
    KillBackConnected,
    /// A kill of a backend in service, between any two steps.
    KillBackServing,
    FrontFatal,
    FrontRestart,
    FrontShutdown,
    FrontFailsNext,
    BackFatal,
    BackShutdown,
    BackFailsNext,
    /// `xl network-detach`: offline, and the backend's state set to Closing.
    Detach,
    /// The toolstack removes both directories.
    Vanish,
    /// The stock driver is unbound and bound again.
    FrontReload,
    /// The stock driver is given an XDP program, or has its program taken off.
    FrontProgram(bool),
}

/// Watches that have fired and whose node is not read yet.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct Fired {
    pub front_peer: bool,
    pub front_own: bool,
    pub back_peer: bool,
    pub back_own: bool,
    pub back_online: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The frontend's `state` node.
    pub fs: Option<XenbusState>,
    /// The backend's `state` node.
    pub bs: Option<XenbusState>,
    pub online: bool,
    pub stopped: bool,
    /// The nodes began with what no pair of ends leaves: a backend may then
    /// hold rings for a moment that the frontend gave up.
    pub wild: bool,
    /// An end carries out all its actions before the other end does anything.
    pub whole: bool,
    /// The way in which a frontend of ours comes back from Closed.
    pub reopen: Reopen,
    /// The rings whose keys are in the store.
    pub published: u8,
    /// The frontend's key asks for headroom.
    pub headroom: bool,
    /// The rings of the backend's journal.
    journal: u8,
    pub front: Front,
    pub back: Back,
    pub fired: Fired,
}

impl OurFront {
    pub fn start(fs: Option<XenbusState>, bs: Option<XenbusState>, reopen: Reopen) -> Self {
        let (machine, actions) = FrontendMachine::start(fs, bs, reopen);
        Self { machine, queue: actions.to_vec(), rings: 0, fails_next: false }
    }

    fn tell(&mut self, event: FrontendEvent) {
        self.queue.extend(self.machine.handle(event));
    }
}

impl OurBack {
    pub fn start(
        bs: Option<XenbusState>,
        fs: Option<XenbusState>,
        online: bool,
        takeover: bool,
    ) -> Self {
        let (machine, actions) = BackendMachine::start(bs, fs, online, takeover);
        Self {
            machine,
            queue: actions.to_vec(),
            rings: 0,
            room: false,
            owes: false,
            hotplug: false,
            fails_next: false,
        }
    }

    fn tell(&mut self, event: BackendEvent) {
        self.queue.extend(self.machine.handle(event));
    }
}

impl World {
    /// Makes a vif as a toolstack does: both nodes in Initialising, and online.
    pub fn new(front: Front, back: Back) -> Self {
        Self {
            fs: Some(XenbusState::Initialising),
            bs: Some(XenbusState::Initialising),
            online: true,
            stopped: false,
            wild: false,
            whole: false,
            reopen: Reopen::Initialising,
            published: 0,
            headroom: false,
            journal: 0,
            front,
            back,
            fired: Fired::default(),
        }
    }

    pub fn set_fs(&mut self, state: XenbusState) {
        if self.fs.is_some() {
            self.fs = Some(state);
            self.fired.back_peer = true;
            self.fired.front_own = true;
        }
    }

    pub fn set_bs(&mut self, state: XenbusState) {
        if self.bs.is_some() {
            self.bs = Some(state);
            self.fired.front_peer = true;
            self.fired.back_own = true;
        }
    }

    /// New rings, unlike the last few.
    pub fn publish(&mut self) -> u8 {
        self.published = self.published % 3 + 1;
        self.published
    }

    /// Everything that one of the ends can do next.
    pub fn steps(&self) -> Vec<World> {
        let mut steps = Vec::new();
        if self.whole {
            match (&self.front, &self.back) {
                (Front::Ours(front), _) if !front.queue.is_empty() => {
                    return self.front_step(front);
                }
                (_, Back::Ours(back)) if !back.queue.is_empty() => return self.back_steps(back),
                _ => {}
            }
        }
        match &self.front {
            Front::Dead => {}
            Front::Ours(front) => steps.extend(self.front_step(front)),
            Front::Stock(front) => steps.extend(front.step(self)),
        }
        match &self.back {
            Back::Dead => {}
            Back::Ours(back) => steps.extend(self.back_steps(back)),
            Back::Stock(back) => steps.extend(back.step(self)),
        }
        steps
    }

    fn front_step(&self, front: &OurFront) -> Vec<World> {
        let mut next = self.clone();
        let mut front = front.clone();
        if front.queue.is_empty() {
            let mut steps = Vec::new();
            if front.machine.is_gone() {
                return steps;
            }
            if self.fired.front_peer {
                let mut next = self.clone();
                let mut front = front.clone();
                next.fired.front_peer = false;
                front.tell(FrontendEvent::Peer(self.bs));
                next.front = Front::Ours(front);
                steps.push(next);
            }
            if self.fired.front_own {
                next.fired.front_own = false;
                front.tell(FrontendEvent::Own(self.fs));
                next.front = Front::Ours(front);
                steps.push(next);
            }
            return steps;
        }
        match front.queue.remove(0) {
            FrontendAction::SetState(state) => {
                let new = state == XenbusState::Initialising && self.reopen == Reopen::Connected;
                assert!(!new, "the kernel would take the device for a new one: {self:?}");
                next.set_fs(state);
            }
            FrontendAction::Connect => {
                assert_eq!(front.rings, 0, "{self:?}");
                if front.fails_next {
                    front.fails_next = false;
                    front.tell(FrontendEvent::ConnectFailed);
                } else {
                    front.rings = next.publish();
                    front.tell(FrontendEvent::Published);
                }
            }
            FrontendAction::Ready => assert_ne!(front.rings, 0),
            FrontendAction::Disconnect => front.rings = 0,
            FrontendAction::Reclaim => {
                assert_eq!(front.rings, 0, "{self:?}");
                // A backend of ours that is in control has let go by now.
                if let Back::Ours(back) = &self.back
                    && self.bs.is_some()
                    && !self.wild
                {
                    assert_eq!(back.rings, 0, "{self:?}");
                }
            }
            FrontendAction::Stop => assert!(front.queue.is_empty()),
        }
        next.front = Front::Ours(front);
        vec![next]
    }

    /// Has a backend leave room for a program, or not: by the key, by what its machine knows, and by
    /// the state that it reads behind the key.
    fn judge_room(&self, back: &mut OurBack) {
        let changing = self.fs == Some(XenbusState::Reconfiguring);
        let seen = back.machine.is_reconfiguring();
        back.room = self.headroom || seen || changing;
        back.owes = changing && !seen;
    }

    fn back_steps(&self, back: &OurBack) -> Vec<World> {
        let mut steps = Vec::new();
        if let Some(&action) = back.queue.first() {
            let mut next = self.clone();
            let mut back = back.clone();
            back.queue.remove(0);
            match action {
                BackendAction::Advertise => {}
                BackendAction::SetState(state) => next.set_bs(state),
                BackendAction::Connect | BackendAction::TakeOver => {
                    assert_eq!(back.rings, 0, "{self:?}");
                    // Without keys in the store there is nothing to map.
                    if back.fails_next || self.published == 0 {
                        back.fails_next = false;
                        back.tell(BackendEvent::ConnectFailed);
                    } else {
                        back.rings = match action {
                            BackendAction::TakeOver => self.journal,
                            _ => self.published,
                        };
                        self.judge_room(&mut back);
                        next.journal = back.rings;
                        back.tell(BackendEvent::Connected);
                    }
                }
                BackendAction::Headroom => {
                    assert_ne!(back.rings, 0, "{self:?}");
                    self.judge_room(&mut back);
                }
                BackendAction::Disconnect => back.rings = 0,
                BackendAction::Destroy => assert!(back.queue.is_empty()),
            }
            next.back = Back::Ours(back);
            return vec![next];
        }
        if back.machine.is_gone() {
            return steps;
        }
        let mut tell = |event, clear: fn(&mut Fired), hotplug: bool| {
            let mut next = self.clone();
            let mut back = back.clone();
            clear(&mut next.fired);
            back.hotplug |= hotplug;
            if back.owes && back.rings != 0 {
                self.judge_room(&mut back);
            }
            back.tell(event);
            let other_keys = back.rings != 0 && back.rings != self.published;
            let rings = matches!(event, BackendEvent::Peer(Some(state)) if state.has_rings());
            if rings && other_keys {
                back.tell(BackendEvent::KeysChanged);
            }
            next.back = Back::Ours(back);
            steps.push(next);
        };
        if !back.hotplug {
            tell(BackendEvent::HotplugDone, |_| {}, true);
        }
        if self.fired.back_peer {
            tell(BackendEvent::Peer(self.fs), |f| f.back_peer = false, false);
        }
        if self.fired.back_own {
            tell(BackendEvent::Own(self.bs), |f| f.back_own = false, false);
        }
        if self.fired.back_online {
            tell(BackendEvent::Online(self.online), |f| f.back_online = false, false);
        }
        steps
    }

    /// The world after something from outside; None where it cannot happen or
    /// changes nothing.
    pub fn after(&self, event: Event) -> Option<World> {
        let mut next = self.clone();
        let watches = Fired {
            front_peer: true,
            front_own: true,
            back_peer: true,
            back_own: true,
            back_online: true,
        };
        match event {
            Event::StartFront => {
                let Front::Dead = self.front else { return None };
                next.front = Front::Ours(OurFront::start(self.fs, self.bs, self.reopen));
                next.fired.front_peer = true;
                next.fired.front_own = true;
            }
            Event::StartBack { takeover } => {
                let Back::Dead = self.back else { return None };
                let takeover = takeover && self.journal == self.published;
                let back = OurBack::start(self.bs, self.fs, self.online, takeover);
                next.back = Back::Ours(back);
                next.fired.back_peer = true;
                next.fired.back_own = true;
                next.fired.back_online = true;
            }
            Event::KillFront => {
                let Front::Ours(_) = self.front else {
                    return None;
                };
                next.front = Front::Dead;
            }
            Event::KillBack => {
                let Back::Ours(_) = self.back else {
                    return None;
                };
                next.back = Back::Dead;
            }
            Event::KillBackConnected => {
                let Back::Ours(back) = &self.back else {
                    return None;
                };
                let connected = back.machine.is_connected() && back.queue.is_empty();
                if !connected || self.fs != Some(XenbusState::Connected) {
                    return None;
                }
                next.back = Back::Dead;
            }
            Event::KillBackServing => {
                let Back::Ours(back) = &self.back else { return None };
                if !back.machine.is_connected() || !self.fs.is_some_and(XenbusState::has_rings) {
                    return None;
                }
                next.back = Back::Dead;
            }
            Event::FrontFatal => next.tell_front(FrontendEvent::Fatal)?,
            Event::FrontRestart => next.tell_front(FrontendEvent::Restart)?,
            Event::FrontShutdown => {
                next.stopped = true;
                next.tell_front(FrontendEvent::Shutdown)?;
            }
            Event::BackFatal => next.tell_back(BackendEvent::Fatal)?,
            Event::BackShutdown => {
                next.stopped = true;
                next.tell_back(BackendEvent::Shutdown)?;
            }
            Event::FrontFailsNext => match &mut next.front {
                Front::Ours(front) => front.fails_next = true,
                _ => return None,
            },
            Event::BackFailsNext => match &mut next.back {
                Back::Ours(back) => back.fails_next = true,
                _ => return None,
            },
            Event::Detach => {
                if !self.online || self.bs.is_none() {
                    return None;
                }
                // Stock netback may write over the toolstack's Closing unless
                // it is at rest; the toolstack then gives up waiting.
                let connected = Some(XenbusState::Connected);
                let rest = self.fs == connected && self.bs == connected && !self.fired.back_peer;
                if matches!(self.back, Back::Stock(_)) && !rest {
                    return None;
                }
                next.online = false;
                next.fired.back_online = true;
                if self.bs != Some(XenbusState::Closed) {
                    next.set_bs(XenbusState::Closing);
                }
            }
            Event::Vanish => {
                next.fs = None;
                next.bs = None;
                next.online = false;
                next.fired = watches;
            }
            Event::FrontReload => match &mut next.front {
                Front::Stock(front) => front.reload()?,
                _ => return None,
            },
            Event::FrontProgram(on) => match &mut next.front {
                Front::Stock(front) => front.load(on)?,
                _ => return None,
            },
        }
        (next != *self).then_some(next)
    }

    fn tell_front(&mut self, event: FrontendEvent) -> Option<()> {
        match &mut self.front {
            Front::Ours(front) if front.queue.is_empty() => front.tell(event),
            _ => return None,
        }
        Some(())
    }

    fn tell_back(&mut self, event: BackendEvent) -> Option<()> {
        match &mut self.back {
            Back::Ours(back) if back.queue.is_empty() => back.tell(event),
            _ => return None,
        }
        Some(())
    }
}
