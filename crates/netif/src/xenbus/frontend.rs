//! The frontend's end of the handshake.

use crate::state::XenbusState;
use arrayvec::ArrayVec;

/// Event for the frontend's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrontendEvent {
    /// The backend's `state` node was read. It is `None` if the node is missing. A node without a
    /// valid state counts as [`XenbusState::Unknown`].
    Peer(Option<XenbusState>),
    /// The frontend's own `state` node was read. It is `None` if the node is missing. Only this
    /// machine writes the node, so another state means that the node belongs to a new device.
    Own(Option<XenbusState>),
    /// [`FrontendAction::Connect`] succeeded.
    Published,
    /// [`FrontendAction::Connect`] failed.
    ConnectFailed,
    /// The backend broke the protocol. The vif is closed until [`FrontendEvent::Restart`].
    Fatal,
    /// Try again after a failure. Only this event does so, so that two faulty ends do not reconnect
    /// in a loop.
    Restart,
    /// Close the vif for good.
    Shutdown,
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrontendAction {
    /// Write the frontend's `state` node.
    SetState(XenbusState),
    /// Read the backend's features, grant the rings, allocate the ports, and write the keys. Then
    /// pass [`FrontendEvent::Published`] or [`FrontendEvent::ConnectFailed`].
    Connect,
    /// The backend is Connected. Announce the addresses, and use the control ring. Packets may be
    /// queued from `Connect` on.
    Ready,
    /// Stop using the rings, also after an incomplete `Connect`. Keep grants that the backend may
    /// still have mapped.
    Disconnect,
    /// Revoke the grants, since the backend reports that it no longer uses them. Only a successful
    /// revocation proves it.
    Reclaim,
    /// Drop the device. The last action of a machine.
    Stop,
}

/// Actions of one event. Carry them out in order.
pub type FrontendActions = ArrayVec<FrontendAction, 8>;

/// Way in which a frontend in Closed begins a new connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reopen {
    /// The frontend writes Initialising, and the backend goes to InitWait. Every backend supports
    /// this.
    #[default]
    Initialising,
    /// The frontend writes its keys and Connected while the backend is in Closed. The backend then
    /// goes through InitWait by itself: Linux's netback and Grantway's backend do so. This is for
    /// Linux 7.0 or later: there, a device that returns to Initialising counts as a new device, and
    /// xen-netfront takes it if it is loaded.
    Connected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// In Initialising, until the backend is in InitWait; or in Closed, until
    /// it is in InitWait or Closed (`Reopen::Connected`).
    Waiting,
    /// In one of the states of `Waiting`, an answer to `Connect` outstanding.
    Connecting,
    /// In Connected.
    Connected,
    /// In Closing, until the backend has seen it.
    Closing,
    /// In Closed, until the backend has let go and a new start is wanted.
    Closed,
    /// After `Stop`.
    Gone,
}

/// State machine of the frontend's end of one vif.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrontendMachine {
    phase: Phase,
    /// Content of our `state` node.
    shown: Option<XenbusState>,
    peer: Option<XenbusState>,
    reopen: Reopen,
    /// The backend was seen to do something since our `Connect`: a Closed is
    /// none of before.
    moved: bool,
    /// The backend was seen Connected since our `Connect`.
    ready: bool,
    /// Something was granted since the last `Reclaim`.
    lent: bool,
    /// A failure is to be looked at first.
    held: bool,
    stopping: bool,
}

impl FrontendMachine {
    /// Begins with the present content of the store. `own` and `peer` are the two `state` nodes,
    /// `None` if they are missing.
    ///
    /// If `own` is Connected, another process had the frontend. Its rings are lost, so the machine
    /// goes through Closing and Closed back to Initialising.
    pub fn start(
        own: Option<XenbusState>,
        peer: Option<XenbusState>,
        reopen: Reopen,
    ) -> (Self, FrontendActions) {
        use XenbusState as S;
        let mut out = FrontendActions::new();
        let mut machine = Self {
            phase: Phase::Waiting,
            shown: own,
            peer,
            reopen,
            moved: false,
            ready: false,
            lent: false,
            held: false,
            stopping: false,
        };
        match own {
            None => machine.stop(&mut out),
            Some(S::Initialising) => {}
            Some(S::Unknown) if reopen == Reopen::Initialising => {
                machine.show(S::Initialising, &mut out);
            }
            Some(S::Closed) => machine.phase = Phase::Closed,
            Some(_) => machine.close(&mut out),
        }
        machine.settle(&mut out);
        (machine, out)
    }

    /// Handles one event. Returns the actions for the caller.
    pub fn handle(&mut self, event: FrontendEvent) -> FrontendActions {
        let mut out = FrontendActions::new();
        if self.phase == Phase::Gone {
            return out;
        }
        match event {
            FrontendEvent::Peer(state) => {
                self.peer = state;
                self.moved |= state != Some(XenbusState::Closed);
            }
            // A folder that is missing, or was made anew while we looked away:
            // that is another device, which may have another backend.
            FrontendEvent::Own(state) if state.is_none() || state != self.shown => {
                self.stop(&mut out);
            }
            FrontendEvent::Own(_) => {}
            FrontendEvent::Published => {
                if self.phase == Phase::Connecting {
                    self.show(XenbusState::Connected, &mut out);
                    self.phase = Phase::Connected;
                }
            }
            FrontendEvent::ConnectFailed => {
                self.held |= self.phase == Phase::Connecting;
            }
            FrontendEvent::Fatal => self.held |= self.is_active(),
            FrontendEvent::Restart => self.held = false,
            FrontendEvent::Shutdown => self.stopping = true,
        }
        self.settle(&mut out);
        out
    }

    /// Returns the last known content of the frontend's `state` node.
    pub fn shown(&self) -> Option<XenbusState> {
        self.shown
    }

    /// Returns true if both ends are connected.
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected && self.ready
    }

    /// Returns true if a failure waits for [`FrontendEvent::Restart`].
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Returns true if the device is gone. The machine then ignores all events.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    fn is_leaving(&self) -> bool {
        self.held || self.stopping
    }

    /// Returns true if there are rings.
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Connected)
    }

    /// Returns true if a backend in Closed was asked by Connected, so that its Closed is no answer:
    /// it may see Connected late, and connect rings that we gave up. It answers our Closing by its
    /// own.
    fn is_asking(&self) -> bool {
        self.reopen == Reopen::Connected && (self.is_active() || self.phase == Phase::Closing)
    }

    fn show(&mut self, state: XenbusState, out: &mut FrontendActions) {
        if self.shown != Some(state) {
            self.shown = Some(state);
            out.push(FrontendAction::SetState(state));
        }
    }

    fn disconnect(&mut self, out: &mut FrontendActions) {
        if self.is_active() {
            out.push(FrontendAction::Disconnect);
        }
        self.ready = false;
    }

    /// Closes on our own account: the backend is to see Closing first.
    fn close(&mut self, out: &mut FrontendActions) {
        self.disconnect(out);
        self.show(XenbusState::Closing, out);
        self.phase = Phase::Closing;
    }

    /// Follows a backend that closes or has gone.
    ///
    /// A backend found in Closed is asked anew at once, without our Closed in
    /// between: it might see that one late, in InitWait, and close again, and so
    /// on for ever (found by the joint exploration). Where we come back by
    /// Connected, it is not in InitWait before it has seen that.
    fn follow(&mut self, out: &mut FrontendActions) {
        self.disconnect(out);
        let anew = self.peer == Some(XenbusState::Closed) && !self.is_leaving();
        if !anew || self.reopen == Reopen::Connected {
            self.show(XenbusState::Closed, out);
        }
        self.phase = Phase::Closed;
    }

    fn stop(&mut self, out: &mut FrontendActions) {
        self.disconnect(out);
        if self.lent {
            self.lent = false;
            out.push(FrontendAction::Reclaim);
        }
        out.push(FrontendAction::Stop);
        self.phase = Phase::Gone;
    }

    /// Moves on as far as what is known allows. Each turn but those of Closed
    /// goes one phase towards Closed, and Closed is left only for Waiting with
    /// a backend in none of the closing states but Closed, or for Gone: at most
    /// four turns.
    fn settle(&mut self, out: &mut FrontendActions) {
        use XenbusState as S;
        loop {
            let gone = match self.peer {
                None | Some(S::Unknown) => true,
                Some(S::Closed) => self.moved || !self.is_asking(),
                Some(_) => false,
            };
            let closing = self.peer == Some(S::Closing);
            // Who closes what it never connected would do so again, and at once.
            self.held |= self.phase == Phase::Connected && !self.ready && (gone || closing);
            let leaving = self.is_leaving();
            match self.phase {
                Phase::Gone => return,
                Phase::Waiting | Phase::Connecting | Phase::Connected if leaving => self.close(out),
                Phase::Waiting if closing => self.follow(out),
                Phase::Waiting => {
                    let asked = self.shown == Some(S::Initialising);
                    if self.peer == Some(S::InitWait) || !asked && self.peer == Some(S::Closed) {
                        self.phase = Phase::Connecting;
                        self.moved = self.peer == Some(S::InitWait);
                        self.lent = true;
                        out.push(FrontendAction::Connect);
                    }
                    return;
                }
                Phase::Connecting | Phase::Connected if gone || closing => self.follow(out),
                Phase::Connecting => match self.peer {
                    Some(S::Initialising) => self.close(out),
                    _ => return,
                },
                Phase::Connected => match self.peer {
                    // The backend began anew and its Closing went unseen.
                    Some(S::Initialising) => self.close(out),
                    Some(S::InitWait) if self.ready => self.close(out),
                    Some(S::Connected) if !self.ready => {
                        self.ready = true;
                        out.push(FrontendAction::Ready);
                        return;
                    }
                    _ => return,
                },
                Phase::Closing if gone || closing => self.follow(out),
                Phase::Closing => return,
                Phase::Closed => {
                    // An InitWait seen from here belongs to a new start of the
                    // backend: some do not wait for our Initialising.
                    let begun = matches!(self.peer, Some(S::Initialising | S::InitWait));
                    let released = gone || begun;
                    if self.stopping && released {
                        self.stop(out);
                        return;
                    }
                    if self.lent && released {
                        self.lent = false;
                        out.push(FrontendAction::Reclaim);
                    }
                    // Where the backend's node is missing there is nobody to
                    // ask for a connection.
                    let present = begun || self.peer == Some(S::Closed);
                    if leaving || !present {
                        return;
                    }
                    if self.reopen == Reopen::Initialising {
                        self.show(S::Initialising, out);
                    }
                    self.phase = Phase::Waiting;
                }
            }
        }
    }
}
