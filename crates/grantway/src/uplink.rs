//! The uplink of a backend's own bridge: it is opened before the sandbox, watched, and reported.

use crate::port_report::port_drops;
use grantway_backend::Backend;
use grantway_command::error::CommandError;
use grantway_ports::{LinkState, Packet, PacketLink, Port, PortSpec, TapOffloads};
use rustix::fd::BorrowedFd;
use serde_json::{Value, json};
use tracing::{info, warn};

/// The control thread's end of an uplink.
pub struct Uplink {
    name: String,
    /// The interface behind a packet socket.
    link: Option<PacketLink>,
}

impl Uplink {
    /// Opens the port beside the guests on the bridge, and its control end.
    ///
    /// # Errors
    ///
    /// The port cannot be opened, or cannot be an uplink.
    pub fn open(spec: &str) -> Result<(Box<dyn Port>, Self), CommandError> {
        let spec: PortSpec = spec.parse().map_err(CommandError::usage)?;
        let (mut port, link): (Box<dyn Port>, _) = match &spec {
            PortSpec::Bridge => {
                let found = "--uplink bridge: the bridge cannot be its own uplink; name another \
                             port";
                return Err(CommandError::Usage(found.into()));
            }
            PortSpec::Packet { name } => {
                let (port, link) = Packet::open(name).map_err(CommandError::failed)?;
                (Box::new(port), Some(link))
            }
            spec => (spec.open().map_err(CommandError::failed)?, None),
        };
        // The bridge finishes frames for guests that cannot do it. A frame of several datagrams has to
        // be cut for each guest that it goes to, so a TAP's kernel cuts it once. A packet socket gives
        // it as it came.
        let offloads = if link.is_some() { TapOffloads::ALL } else { TapOffloads::NETIF };
        port.set_offloads(offloads).map_err(CommandError::failed)?;
        port.set_link(true).map_err(CommandError::failed)?;
        let name = port.name().to_owned();
        if let Some(link) = &link {
            tell(link.name(), link.state());
        }
        Ok((port, Self { name, link }))
    }

    /// Returns the descriptor that is readable when [`Uplink::look`] must be called.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(PacketLink::descriptor)
    }

    /// Looks at the interface again. A deleted interface is replaced by a new one of the same name.
    pub fn look(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.look() {
            Ok(Some(state)) => tell(link.name(), state),
            Ok(None) => {}
            Err(e) => warn!("uplink: {e}; the bridge runs without it"),
        }
    }

    /// Returns the report for operators.
    pub fn report(&mut self, backend: &Backend) -> Value {
        let Self { name, link } = self;
        let (state, missed) = match link {
            Some(link) => (link.state().as_str(), link.missed()),
            None => ("open", 0),
        };
        match backend.uplink() {
            Some(Ok(port)) => {
                let mut drops = port_drops(&port);
                if missed > 0 {
                    drops.insert("receive-queue-full".to_owned(), missed.into());
                }
                json!({
                    "name": name,
                    "state": state,
                    "sent": port.counters.sent,
                    "sent_bytes": port.counters.sent_bytes,
                    "received": port.counters.received,
                    "received_bytes": port.counters.received_bytes,
                    "busy": port.counters.busy,
                    "drops": drops,
                })
            }
            lost => {
                let error = lost.and_then(Result::err);
                json!({ "name": name, "state": "lost", "error": error, "drops": {} })
            }
        }
    }
}

/// Logs the state of an uplink's interface.
fn tell(name: &str, state: LinkState) {
    match state {
        LinkState::Up => info!("uplink: {name} is up"),
        LinkState::NoCarrier => warn!("uplink: {name} has no carrier"),
        LinkState::Down => {
            warn!("uplink: {name} is down and drops all frames; ip link set dev {name} up");
        }
        LinkState::Gone => warn!(
            "uplink: {name} is gone; the bridge runs without it until an interface of this name \
             appears"
        ),
    }
}
