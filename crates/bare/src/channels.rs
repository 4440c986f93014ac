//! Event channels: a bit of shared memory each.

use crate::sys::hypercall;
use crate::sys::shared::SharedInfo;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_hypervisor::{DomId, Error, FrontendEvents, Port};
use spin::Mutex;

/// The ports of all sets, for whoever waits for any of them.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<BTreeSet<u32>>);

impl Ports {
    /// Adds a port.
    pub fn add(&self, port: Port) {
        self.0.lock().insert(port.0);
    }

    /// Gives the processor away until one of the ports is pending, or until that time.
    pub fn wait(&self, shared: &SharedInfo, until: Option<Duration>) {
        let ports: Vec<u32> = self.0.lock().iter().copied().collect();
        poll(shared, &ports, until);
    }

    /// Forgets all ports, which are void in a guest that was restored.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Gives the processor away until one of these ports is pending, or until that time of the guest's
/// clock.
pub(crate) fn poll(shared: &SharedInfo, ports: &[u32], until: Option<Duration>) {
    let until = until.map(|until| shared.on_host(until.as_nanos() as u64));
    hypercall::poll(ports, until.map(Duration::from_nanos));
}

/// A set of event channels.
pub(crate) struct Channels {
    shared: SharedInfo,
    all: Arc<Ports>,
    own: BTreeSet<u32>,
}

impl Channels {
    pub fn new(shared: SharedInfo, all: Arc<Ports>) -> Self {
        Self { shared, all, own: BTreeSet::new() }
    }
}

impl FrontendEvents for Channels {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        let full = |limit| Error::Exhausted {
            what: "table of event channels",
            limit,
            remedy: "close some, use fewer queues, or raise event_channels in the configuration",
        };
        // A wait is for no more: what comes at another port would wake nobody.
        if self.all.0.lock().len() >= hypercall::POLLED {
            return Err(full(hypercall::POLLED as u64));
        }
        let port = hypercall::alloc_unbound(remote).map_err(|_| full(1023))?;
        self.own.insert(port.0);
        self.all.add(port);
        Ok(port)
    }

    fn close(&mut self, port: Port) {
        if self.own.remove(&port.0) {
            self.all.0.lock().remove(&port.0);
            hypercall::close(port);
        }
    }

    fn notify(&mut self, port: Port) -> Result<(), Error> {
        if !self.own.contains(&port.0) {
            let why = "it is not one of this set";
            return Err(Error::Event { domain: DomId(0x7ff0), port, why });
        }
        // A port whose other end is gone swallows the signal.
        hypercall::send(port);
        Ok(())
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        for &port in &self.own {
            if self.shared.take(port) {
                fired(Port(port));
            }
        }
        Ok(())
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        let ports: Vec<u32> = self.own.iter().copied().collect();
        ports.into_iter().for_each(|port| self.close(Port(port)));
    }
}
