//! The backend's end of the handshake.

use crate::state::XenbusState;
use arrayvec::ArrayVec;

/// Event for the backend's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendEvent {
    /// The frontend's `state` node was read. It is `None` if the node is missing. A node without a
    /// valid state counts as [`XenbusState::Unknown`].
    Peer(Option<XenbusState>),
    /// The backend's own `state` node was read. It is `None` if the node is missing. Besides this
    /// machine, only a toolstack writes the node: Closing requests a detach.
    Own(Option<XenbusState>),
    /// The `online` node was read. It is false if the node is "0" or missing.
    Online(bool),
    /// [`BackendAction::Connect`] or [`BackendAction::TakeOver`] succeeded.
    Connected,
    /// [`BackendAction::Connect`] or [`BackendAction::TakeOver`] failed.
    ConnectFailed,
    /// `hotplug-status` is "connected", or the vif has no script.
    HotplugDone,
    /// The frontend uses its rings, but its ring references or ports differ from those at `Connect`
    /// or `TakeOver`: it has reconnected meanwhile. Compare them whenever a watch on its state
    /// fires.
    KeysChanged,
    /// The frontend broke the protocol, so its vif must be disabled.
    Fatal,
    /// The process gives up the vif for good. A process that has a successor exits without this
    /// event.
    Shutdown,
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendAction {
    /// Write the features that this backend offers. It comes before InitWait.
    Advertise,
    /// Write the backend's `state` node.
    SetState(XenbusState),
    /// Read the frontend's keys, map its rings, and bind its ports. Then pass
    /// [`BackendEvent::Connected`] or [`BackendEvent::ConnectFailed`].
    Connect,
    /// Attach to the rings that a killed process left in service, by its journal. Do not write to
    /// the store. Then pass the events of [`BackendAction::Connect`].
    TakeOver,
    /// Give the queues the headroom of the frontend's key. As long as
    /// [`BackendMachine::is_reconfiguring`] returns true, it may be more.
    Headroom,
    /// Stop serving. Unmap and unbind all resources of the frontend, also after an incomplete
    /// `Connect`.
    Disconnect,
    /// Drop the vif and its network device. The last action of a machine.
    Destroy,
}

/// Actions of one event. Carry them out in order.
pub type BackendActions = ArrayVec<BackendAction, 8>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Nothing is held; InitWait once the frontend asks, by Initialising or by
    /// keys and a state that has rings.
    Closed,
    /// In InitWait.
    Waiting,
    /// In InitWait, an answer to `Connect` outstanding.
    Connecting,
    /// In InitWait with the rings connected: the script is not done.
    Hotplug,
    /// In Connected, Reconfigured or InitWait, an answer to `TakeOver` outstanding.
    TakingOver,
    /// In Connected or Reconfigured.
    Connected,
    /// In Closing, nothing held, until the frontend has let go.
    Closing,
    /// After `Destroy`.
    Gone,
}

/// State machine of the backend's end of one vif.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BackendMachine {
    phase: Phase,
    /// Content of our `state` node.
    shown: Option<XenbusState>,
    peer: Option<XenbusState>,
    online: bool,
    stopping: bool,
    hotplug: bool,
}

impl BackendMachine {
    /// Begins with the present content of the store. `own` and `peer` are the two `state` nodes,
    /// `None` if they are missing. `online` is the node of that name.
    ///
    /// `takeover` is true if there is a journal of a former process, and if it has the ring
    /// references and ports of the store. Then the machine takes over without a change of state:
    ///
    /// - if both ends are Connected,
    /// - if the frontend reconfigures, which still gets its answer,
    /// - if the frontend is Connected and the former process was not yet: that process may have
    ///   taken requests from the rings.
    ///
    /// Otherwise, and in every other state, the vif goes through Closing, Closed and InitWait until
    /// the frontend connects again. Stock Linux netfront stays in Closed until its driver is bound
    /// again. Windows and Grantway's frontend reconnect by themselves.
    pub fn start(
        own: Option<XenbusState>,
        peer: Option<XenbusState>,
        online: bool,
        takeover: bool,
    ) -> (Self, BackendActions) {
        use XenbusState as S;
        let mut out = BackendActions::new();
        let mut machine = Self {
            phase: Phase::Closed,
            shown: own,
            peer,
            online,
            stopping: false,
            hotplug: false,
        };
        match own {
            None => machine.destroy(&mut out),
            Some(S::InitWait | S::Connected | S::Reconfigured)
                if online && takeover && peer.is_some_and(S::has_rings) =>
            {
                machine.phase = Phase::TakingOver;
                out.push(BackendAction::TakeOver);
            }
            Some(S::Unknown | S::Initialising | S::InitWait) if online => {
                // Again where a former process did it: its offer may differ.
                machine.open(&mut out);
            }
            Some(S::Unknown | S::Initialising) => machine.show(S::Closed, &mut out),
            Some(S::Closed) => {}
            // A former process's rings are lost, or the state is none of a
            // network backend's.
            Some(_) => machine.close(&mut out),
        }
        machine.settle(&mut out);
        (machine, out)
    }

    /// Handles one event. Returns the actions for the caller.
    pub fn handle(&mut self, event: BackendEvent) -> BackendActions {
        let mut out = BackendActions::new();
        if self.phase == Phase::Gone {
            return out;
        }
        match event {
            BackendEvent::Peer(state) => self.peer = state,
            BackendEvent::Own(None) => self.destroy(&mut out),
            BackendEvent::Own(Some(XenbusState::Closing)) => {
                if self.shown != Some(XenbusState::Closing) {
                    self.shown = Some(XenbusState::Closing);
                    self.close(&mut out);
                }
            }
            // Our own write, or a hand in the store that has no meaning.
            BackendEvent::Own(Some(_)) => {}
            BackendEvent::Online(online) => self.online = online,
            BackendEvent::Connected => match self.phase {
                Phase::TakingOver if self.is_shown_in_use() => self.phase = Phase::Connected,
                Phase::Connecting | Phase::TakingOver if self.hotplug => self.connected(&mut out),
                Phase::Connecting | Phase::TakingOver => self.phase = Phase::Hotplug,
                _ => {}
            },
            BackendEvent::ConnectFailed => {
                if matches!(self.phase, Phase::Connecting | Phase::TakingOver) {
                    self.close(&mut out);
                }
            }
            BackendEvent::HotplugDone => {
                self.hotplug = true;
                if self.phase == Phase::Hotplug {
                    self.connected(&mut out);
                }
            }
            BackendEvent::Fatal | BackendEvent::KeysChanged => {
                if self.is_active() {
                    self.close(&mut out);
                }
            }
            BackendEvent::Shutdown => self.stopping = true,
        }
        self.settle(&mut out);
        out
    }

    /// Returns the last known content of the backend's `state` node.
    pub fn shown(&self) -> Option<XenbusState> {
        self.shown
    }

    /// Returns true if both ends are connected, so that packets may flow.
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Returns true if the frontend may be changing its headroom: its state is Reconfiguring, or it
    /// may not know yet that the backend has seen the previous change. An XDP program may then run
    /// or not, whatever the key is, since the frontend writes the key after its state.
    pub fn is_reconfiguring(&self) -> bool {
        self.peer == Some(XenbusState::Reconfiguring)
            || self.shown == Some(XenbusState::Reconfigured)
    }

    /// Returns true if our `state` node tells of a connection.
    fn is_shown_in_use(&self) -> bool {
        matches!(self.shown, Some(XenbusState::Connected | XenbusState::Reconfigured))
    }

    /// Returns true if the vif is gone. The machine then ignores all events.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Returns true if resources of the frontend may be held.
    fn is_active(&self) -> bool {
        matches!(
            self.phase,
            Phase::Connecting | Phase::Hotplug | Phase::TakingOver | Phase::Connected
        )
    }

    fn show(&mut self, state: XenbusState, out: &mut BackendActions) {
        if self.shown != Some(state) {
            self.shown = Some(state);
            out.push(BackendAction::SetState(state));
        }
    }

    fn open(&mut self, out: &mut BackendActions) {
        out.push(BackendAction::Advertise);
        self.show(XenbusState::InitWait, out);
        self.phase = Phase::Waiting;
    }

    fn connected(&mut self, out: &mut BackendActions) {
        self.show(XenbusState::Connected, out);
        self.phase = Phase::Connected;
    }

    /// Follows a connected frontend that changes its headroom.
    ///
    /// The frontend goes on once it reads Reconfigured, so the room comes first. It takes a state
    /// of Reconfigured that is left of an earlier change for an answer, so the room is taken away
    /// only after Connected is written: by then a key of such a hasty change is in the store.
    fn reconfigure(&mut self, out: &mut BackendActions) {
        use XenbusState as S;
        match (self.peer, self.shown) {
            (Some(S::Reconfiguring), Some(S::Connected)) => {
                out.push(BackendAction::Headroom);
                self.show(S::Reconfigured, out);
            }
            (Some(S::Connected), Some(S::Reconfigured)) => {
                self.show(S::Connected, out);
                out.push(BackendAction::Headroom);
            }
            _ => {}
        }
    }

    fn close(&mut self, out: &mut BackendActions) {
        if self.is_active() {
            out.push(BackendAction::Disconnect);
        }
        self.show(XenbusState::Closing, out);
        self.phase = Phase::Closing;
    }

    fn destroy(&mut self, out: &mut BackendActions) {
        if self.is_active() {
            out.push(BackendAction::Disconnect);
        }
        out.push(BackendAction::Destroy);
        self.phase = Phase::Gone;
    }

    /// Moves on as far as what is known allows. Each turn but those of Closed
    /// goes one phase towards Closed, and Closed is left only for Waiting with
    /// a frontend in Initialising or with rings, or for Gone: at most five turns.
    fn settle(&mut self, out: &mut BackendActions) {
        use XenbusState as S;
        let leaving = !self.online || self.stopping;
        loop {
            let gone = matches!(self.peer, None | Some(S::Unknown | S::Closed));
            match self.phase {
                Phase::Gone => return,
                Phase::Waiting if leaving || self.peer == Some(S::Closing) => self.close(out),
                Phase::Waiting => {
                    // Stock netback goes back to Closed with a frontend in
                    // Closed. Nothing is held here, and a Closed read late would
                    // make two ends that both begin anew chase each other (found
                    // by the joint exploration). A frontend's Initialised means
                    // nothing to stock netback either: only Connected says that
                    // the keys are there, and Reconfiguring, into which stock
                    // netfront may go before Connected was seen.
                    if self.peer.is_some_and(S::has_rings) {
                        out.push(BackendAction::Connect);
                        self.phase = Phase::Connecting;
                    }
                    return;
                }
                Phase::Connecting | Phase::Hotplug | Phase::TakingOver | Phase::Connected => {
                    // A frontend found in Initialising has started anew and
                    // knows nothing of these rings.
                    let anew = matches!(self.peer, Some(S::Initialising | S::Closing));
                    if !(leaving || gone || anew) {
                        if self.phase == Phase::Connected {
                            self.reconfigure(out);
                        }
                        return;
                    }
                    self.close(out);
                }
                Phase::Closing => {
                    // A frontend in Initialising holds nothing either, and may
                    // be a guest without a driver, which never answers.
                    if !gone && self.peer != Some(S::Initialising) {
                        return;
                    }
                    self.show(S::Closed, out);
                    self.phase = Phase::Closed;
                }
                Phase::Closed if leaving => {
                    self.destroy(out);
                    return;
                }
                // It was about to be connected, and has changed its mind: as stock netback
                // does, we say that we have seen it.
                Phase::Closed if self.peer == Some(S::Closing) => {
                    self.close(out);
                    return;
                }
                Phase::Closed => {
                    // Not before the frontend asks: stock netfront's removal
                    // waits to see Closed, and would wait for ever.
                    if !self.peer.is_some_and(|peer| peer == S::Initialising || peer.has_rings()) {
                        return;
                    }
                    self.open(out);
                }
            }
        }
    }
}
