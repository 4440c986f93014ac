//! A set of event channels, as a frontend uses it.

use crate::events::{Events, NoPort, Set};
use crate::sys::hypercall::{self, run::POLLED};
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{DomId, Error, FrontendEvents, Port};

/// A set of event channels. One that was made before the guest was restored has no port any more,
/// and gets none: numbers that it still has may be those of others.
pub(crate) struct Channels {
    events: Arc<Events>,
    set: Set,
    /// Ports that were signalled, for the time of a call.
    fired: Vec<u32>,
}

impl Channels {
    pub fn new(events: Arc<Events>) -> Self {
        let set = events.set();
        Self { events, set, fired: Vec::new() }
    }

    /// Makes a port that the guest signals to itself.
    pub fn bind_own(&self) -> Result<Port, Error> {
        self.events.bind_own(self.set).map_err(|why| refused(why, Port(0)))
    }
}

fn refused(why: NoPort, port: Port) -> Error {
    match why {
        NoPort::Full(limit) => Error::Exhausted {
            what: "table of event channels",
            limit,
            remedy: match limit == POLLED as u64 {
                true => "close some, use fewer queues, or have the guest wait for upcalls",
                false => {
                    "close some, use fewer queues, or raise max_event_channels in the configuration"
                }
            },
        },
        NoPort::Stale => {
            let why = "its set is of before the guest was restored";
            Error::Event { domain: DomId(hypercall::SELF), port, why }
        }
    }
}

impl FrontendEvents for Channels {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        self.events.alloc_unbound(self.set, remote).map_err(|why| refused(why, Port(0)))
    }

    fn close(&mut self, port: Port) {
        self.events.close(self.set, port);
    }

    fn notify(&mut self, port: Port) -> Result<(), Error> {
        if !self.events.owns(self.set, port) {
            let why = "it is not one of this set";
            return Err(Error::Event { domain: DomId(hypercall::SELF), port, why });
        }
        // A port whose other end is gone swallows the signal.
        hypercall::events::send(port);
        Ok(())
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        self.events.take(self.set, &mut self.fired);
        self.fired.iter().for_each(|&port| fired(Port(port)));
        Ok(())
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.events.end(self.set);
    }
}
