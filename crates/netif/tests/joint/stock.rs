//! Stock Linux netfront and netback, as they react to each other's states.

use crate::world::{Back, Front, World};
use grantway_netif::XenbusState as S;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Doing {
    /// Bound: writes Initialising.
    Probe,
    /// Waits until the backend is neither Closed nor Unknown.
    ProbeWait,
    /// Follows the backend's state.
    Live,
    /// Unbound: writes Closing unless the backend is Closed.
    Remove,
    /// Waits until the backend has seen it, then writes Closed.
    RemoveWaitClosing,
    /// Waits until the backend is Closed.
    RemoveWaitClosed,
    /// An XDP program comes or goes: writes Reconfiguring.
    Reconfigure(bool),
    /// Writes the headroom that it wants.
    AskForHeadroom(bool),
    /// Waits until the backend is Reconfigured, and exchanges the program.
    Exchange(bool),
    /// Writes Connected.
    Reconnect,
}

/// Stock netfront.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StockFront {
    doing: Doing,
    pub rings: u8,
    /// An XDP program runs on each received frame, from byte 256 of its page on.
    pub program: bool,
}

impl StockFront {
    pub fn probe() -> Self {
        Self { doing: Doing::Probe, rings: 0, program: false }
    }

    /// A program is loaded, exchanged for another, or taken off.
    pub fn load(&mut self, program: bool) -> Option<()> {
        if self.doing != Doing::Live || self.rings == 0 {
            return None;
        }
        self.doing = Doing::Reconfigure(program);
        Some(())
    }

    pub fn reload(&mut self) -> Option<()> {
        if self.doing != Doing::Live {
            return None;
        }
        self.doing = Doing::Remove;
        Some(())
    }

    pub fn step(&self, world: &World) -> Option<World> {
        let mut next = world.clone();
        let mut front = self.clone();
        let gone = matches!(world.bs, None | Some(S::Closed | S::Unknown));
        match self.doing {
            Doing::Probe => {
                next.set_fs(S::Initialising);
                front.doing = Doing::ProbeWait;
            }
            Doing::ProbeWait => {
                if gone {
                    return None;
                }
                front.doing = Doing::Live;
                next.fired.front_peer = true;
            }
            Doing::Live => {
                if !world.fired.front_peer {
                    return None;
                }
                next.fired.front_peer = false;
                match world.bs {
                    Some(S::InitWait) if world.fs == Some(S::Initialising) => {
                        front.rings = next.publish();
                        next.set_fs(S::Connected);
                    }
                    Some(S::Closed | S::Closing) if world.fs != Some(S::Closed) => {
                        next.set_fs(S::Closed);
                    }
                    _ => {}
                }
            }
            Doing::Remove => {
                front.doing = if world.bs == Some(S::Closed) {
                    front.rings = 0;
                    next.set_fs(S::Closed);
                    Doing::Probe
                } else {
                    next.set_fs(S::Closing);
                    Doing::RemoveWaitClosing
                };
            }
            Doing::RemoveWaitClosing => {
                if !gone && world.bs != Some(S::Closing) {
                    return None;
                }
                next.set_fs(S::Closed);
                front.doing = Doing::RemoveWaitClosed;
            }
            Doing::RemoveWaitClosed => {
                if !gone {
                    return None;
                }
                front.rings = 0;
                front.doing = Doing::Probe;
            }
            Doing::Reconfigure(program) => {
                next.set_fs(S::Reconfiguring);
                front.doing = Doing::AskForHeadroom(program);
            }
            Doing::AskForHeadroom(program) => {
                next.headroom = program;
                front.doing = Doing::Exchange(program);
            }
            Doing::Exchange(program) => {
                if world.bs != Some(S::Reconfigured) {
                    return None;
                }
                front.program = program;
                front.doing = Doing::Reconnect;
            }
            Doing::Reconnect => {
                next.set_fs(S::Connected);
                front.doing = Doing::Live;
            }
        }
        next.front = Front::Stock(front);
        Some(next)
    }
}

/// Stock netback.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StockBack {
    probed: bool,
    gone: bool,
    state: S,
    /// The state that it is on its way to.
    target: Option<S>,
    /// Unregisters once it has arrived there.
    leaving: bool,
    pub rings: u8,
}

impl StockBack {
    pub fn probe() -> Self {
        Self {
            probed: false,
            gone: false,
            state: S::Initialising,
            target: None,
            leaving: false,
            rings: 0,
        }
    }

    fn switch(&mut self, world: &mut World, state: S) {
        self.state = state;
        world.set_bs(state);
    }

    pub fn step(&self, world: &World) -> Option<World> {
        if self.gone {
            return None;
        }
        let mut next = world.clone();
        let mut back = self.clone();
        if !self.probed {
            back.probed = true;
            back.switch(&mut next, S::InitWait);
            next.fired.back_peer = true;
        } else if let Some(target) = self.target {
            back.towards(target, &mut next);
        } else if world.fired.back_peer {
            next.fired.back_peer = false;
            back.target = match world.fs {
                Some(S::Initialising) => Some(S::InitWait),
                Some(S::Connected) => Some(S::Connected),
                Some(S::Closing) => Some(S::Closing),
                Some(S::Closed) => {
                    back.leaving = !world.online;
                    Some(S::Closed)
                }
                None | Some(S::Unknown) => {
                    back.leaving = true;
                    Some(S::Closed)
                }
                Some(_) => None,
            };
        } else {
            return None;
        }
        next.back = Back::Stock(back);
        Some(next)
    }

    /// One turn of the loop that brings it to a state.
    fn towards(&mut self, target: S, world: &mut World) {
        if self.state == target {
            self.target = None;
            self.gone = self.leaving;
            return;
        }
        let state = match (self.state, target) {
            (S::Initialising, S::Closed) => S::Closed,
            (S::Initialising, _) => S::InitWait,
            (S::Closed, S::InitWait | S::Connected) => S::InitWait,
            (S::Closed, _) => S::Closing,
            (S::InitWait, S::Connected) => {
                self.rings = world.published;
                S::Connected
            }
            (S::InitWait, _) => S::Closing,
            (S::Connected, _) => {
                self.rings = 0;
                S::Closing
            }
            (S::Closing, _) => S::Closed,
            (state, _) => state,
        };
        self.switch(world, state);
    }
}
