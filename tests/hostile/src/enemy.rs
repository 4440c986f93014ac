//! The guest's end of the vif, made by hand: each key, state and port is its own.

use crate::rings::Rings;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::Debug;
use core::time::Duration;
use grantway_bare::{Bare, FrontendPlatform, FrontendStore, Shutdown, println, shutdown};
use grantway_hypervisor::{Access, DomId, Error, FrontendEvents, Granted, Port};
use grantway_netif::{XenbusState as State, keys};

/// Folder of the vif.
pub const FRONT: &str = "device/vif/0";
/// Time between two looks at what the backend does.
const LOOK: Duration = Duration::from_millis(5);
/// Looks after which a connection that the backend may end has not ended.
const LOOKS: usize = 20;
/// Time after which nothing comes any more.
const STUCK: Duration = Duration::from_secs(120);
/// Connections that are tried one after the other. One that begins while the backend still sees
/// the keys of an earlier one may be ended by it.
const TRIES: usize = 10;
/// Node by which the guest says how far it is.
pub const SAID: &str = "data/hostile";

/// The guest's end of the vif.
pub struct Enemy {
    pub platform: Arc<Bare>,
    pub store: Box<dyn FrontendStore>,
    pub events: Box<dyn FrontendEvents>,
    pub backend: DomId,
    /// Destination of the frames that it sends.
    pub victim: [u8; 6],
    /// The backend's folder.
    back: String,
}

impl Enemy {
    /// Finds the vif.
    pub fn new(platform: &Arc<Bare>) -> Result<Self, Error> {
        let mut store = platform.frontend_store()?;
        let mut read = |key: &str| store.read_text(&format!("{FRONT}/{key}"));
        let back = read(keys::BACKEND)?.unwrap_or_default();
        let backend = read(keys::BACKEND_ID)?.and_then(|text| text.parse().ok()).map(DomId);
        Ok(Self {
            events: platform.frontend_events()?,
            platform: Arc::clone(platform),
            store,
            backend: backend.unwrap_or(DomId::ZERO),
            victim: [0xff; 6],
            back,
        })
    }

    /// Writes a key of its folder.
    pub fn key(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.store.write(&format!("{FRONT}/{key}"), value.as_bytes())
    }

    /// Writes its state.
    pub fn state(&mut self, state: State) -> Result<(), Error> {
        self.key(keys::STATE, state.as_str())
    }

    /// Returns a key of the backend's folder.
    fn backend_key(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.store.read_text(&format!("{}/{key}", self.back))
    }

    /// Returns the backend's state.
    pub fn backend_state(&mut self) -> Result<State, Error> {
        let text = self.backend_key(keys::STATE)?.unwrap_or_default();
        Ok(State::from_store(text.as_bytes()).unwrap_or_default())
    }

    /// Signals.
    pub fn kick(&mut self, port: Port) -> Result<(), Error> {
        self.events.notify(port)
    }

    /// Gives the processor away for a moment.
    pub fn rest(&self) {
        self.platform.pause(self.platform.clock().now() + LOOK);
    }

    /// Waits until that is so, which is looked at again and again. If it never is, the guest says
    /// that it waited for `what`, and ends.
    pub fn wait<T>(
        &mut self,
        what: &dyn Debug,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let until = self.platform.clock().now() + STUCK;
        while self.platform.clock().now() < until {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            self.rest();
        }
        let state = self.backend_state()?;
        let said = format!("failed: waited in vain for {what:?}; the backend is {state}");
        self.store.write(SAID, said.as_bytes())?;
        println!("hostile: {said}");
        shutdown(Shutdown::Crash)
    }

    /// Waits until the backend is in one of these states, and returns which.
    fn await_backend(&mut self, states: &[State]) -> Result<State, Error> {
        self.wait(&states, |enemy| {
            let found = enemy.backend_state()?;
            Ok(states.contains(&found).then_some(found))
        })
    }

    /// Connects by the rules, from wherever both ends are.
    pub fn connect(&mut self) -> Result<Rings, Error> {
        for _ in 0..TRIES {
            if let Some(rings) = self.try_to_connect()? {
                return Ok(rings);
            }
        }
        self.wait(&"a connection that the backend does not end", |_| Ok(None))
    }

    /// Tries once. Returns none if the backend ended the connection before it was one.
    fn try_to_connect(&mut self) -> Result<Option<Rings>, Error> {
        let taken_up =
            [State::InitWait, State::Connected, State::Reconfigured, State::Closing, State::Closed];
        if self.await_backend(&taken_up)? != State::InitWait {
            self.state(State::Closing)?;
            self.await_backend(&[State::Closing, State::Closed, State::InitWait])?;
            self.state(State::Closed)?;
            // It may have seen an earlier state of ours, and wait for us.
            self.await_backend(&[State::Closed, State::InitWait])?;
        }
        self.state(State::Initialising)?;
        self.await_backend(&[State::InitWait])?;
        let rings = Rings::new(&*self.platform, self.events.as_mut(), self.backend)?;
        for (key, value) in rings.keys() {
            self.key(key, &value)?;
        }
        let features = [
            keys::REQUEST_RX_COPY,
            keys::FEATURE_RX_NOTIFY,
            keys::FEATURE_SG,
            keys::FEATURE_GSO_TCPV4,
        ];
        for key in features {
            self.key(key, "1")?;
        }
        self.state(State::Connected)?;
        match self.await_backend(&[State::Connected, State::Closing, State::Closed])? {
            State::Connected => Ok(Some(rings)),
            _ => {
                self.leave(rings);
                Ok(None)
            }
        }
    }

    /// Gives up a connection: the ports are closed, and the pages are taken back as soon as the
    /// backend lets go of them.
    pub fn leave(&mut self, rings: Rings) {
        rings.end(&*self.platform, self.events.as_mut());
    }

    /// Grants a page for a list.
    pub fn list(&self) -> Result<Granted, Error> {
        self.platform.grant(self.backend, 1, Access::ReadWrite)
    }

    /// Takes it back.
    pub fn give_back(&self, list: Granted) {
        self.platform.release(list);
    }

    /// Returns why the backend ended the connection; none if it goes on. One that is to be ended is
    /// waited for.
    pub fn outcome(&mut self, ends: bool) -> Result<Option<String>, Error> {
        let mut looks = 0;
        self.wait(&"the end of the connection", |enemy| {
            looks += 1;
            let state = enemy.backend_state()?;
            if state == State::Closing || state == State::Closed {
                let why = enemy.backend_key("error")?;
                return Ok(Some(Some(why.unwrap_or_else(|| "closed".to_string()))));
            }
            Ok((!ends && looks > LOOKS).then_some(None))
        })
    }
}
