//! Serves one vif by rings that it is handed. Without a port, each frame goes back to the guest.
//!
//!     grantway host --dir /tmp/gw &
//!     grantway attach --host /tmp/gw --domain 1 ''
//!     cargo run -p grantway-backend --example handed -- /tmp/gw 1 &
//!     grantway frontend --host /tmp/gw --domain 1 --port generator:size=64
//!
//! On Xen, `handed xen 7 tap:vif7.0` serves vif 0 of domain 7 by a TAP, if the vif's nodes are in the
//! store and nobody else serves it (`lab/scenarios/handed.sh`).
//!
//! The guest of this example agrees by the store, so `Toolstack` uses one. Your own toolstack may
//! keep the same words elsewhere: the server has no store.

use grantway_backend::{
    BackendConfig, Checksums, FrontendKeys, HandedVif, MAX_QUEUES, Refused, RingServer, VifError,
    VifId,
};
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{BackendPlatform, DomId, Platform, Store};
use grantway_netif::XenbusState;
use grantway_ports::{Port, PortSpec};
use grantway_vector::Secret;
use grantway_xen::Xen;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The part of a toolstack that agrees with a guest.
struct Toolstack {
    store: Box<dyn Store>,
    frontend: String,
    backend: String,
}

impl Toolstack {
    /// Tells the guest what is offered, and waits until it has published its rings. A guest whose
    /// server was killed has done so already.
    fn agree(&mut self, offer: &[(&str, u32)]) -> Result<FrontendKeys> {
        self.store.watch(&format!("{}/state", self.frontend), "guest")?;
        if self.guest()? != Some(XenbusState::Connected) {
            for (key, value) in offer {
                self.store
                    .write(&format!("{}/{key}", self.backend), value.to_string().as_bytes())?;
            }
            self.show(XenbusState::InitWait)?;
        }
        while self.guest()? != Some(XenbusState::Connected) {
            self.wait()?;
        }
        Ok(FrontendKeys::read(self.store.as_mut(), &self.frontend, MAX_QUEUES)?)
    }

    fn show(&mut self, state: XenbusState) -> Result<()> {
        Ok(self.store.write(&format!("{}/state", self.backend), state.as_str().as_bytes())?)
    }

    fn guest(&mut self) -> Result<Option<XenbusState>> {
        let text = self.store.read_text(&format!("{}/state", self.frontend))?;
        Ok(text.and_then(|text| XenbusState::from_store(text.as_bytes()).ok()))
    }

    fn wait(&mut self) -> Result<()> {
        poll(&mut [PollFd::from_borrowed_fd(self.store.as_fd(), PollFlags::IN)], None)?;
        while self.store.next_event()?.is_some() {}
        Ok(())
    }
}

/// Returns the devices for the server, and a store for the toolstack.
fn open(host: &str) -> Result<(Arc<dyn BackendPlatform>, Box<dyn Store>)> {
    if host == "xen" {
        return Ok((Xen::without_store(DomId(0))?, Xen::open()?.store()?));
    }
    let domain = Domain::connect(host.as_ref(), DomId(0), Role::Service)?;
    let store = domain.store()?;
    Ok((domain, store))
}

/// Continues what a killed server left of these rings, or begins anew.
fn connect(server: &mut RingServer, vif: HandedVif, mut port: Box<dyn Port>) -> Result<()> {
    for _ in 0..50 {
        match server.resume(vif.clone(), port) {
            Ok(()) => return Ok(()),
            Err(Refused { error: VifError::NotLeft(_), port: Some(port) }) => {
                return Ok(server.attach(vif, port)?);
            }
            // The event channels may still be bound to the server that was killed.
            Err(Refused { error, port: Some(back) }) if error.may_pass() => port = back,
            Err(refused) => return Err(refused.into()),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the connection cannot be continued".into())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (host, domain) =
        args.next().zip(args.next()).ok_or("usage: handed DIR|xen DOMAIN [PORT]")?;
    let port = args.next().unwrap_or_else(|| "echo".into()).parse::<PortSpec>()?.open()?;
    let id = VifId { domain: DomId(domain.parse()?), devid: 0 };
    let (devices, store) = open(&host)?;
    let mut toolstack = Toolstack {
        store,
        frontend: format!("/local/domain/{domain}/device/vif/0"),
        backend: format!("/local/domain/0/backend/vif/{domain}/0"),
    };

    let config = BackendConfig::new("/tmp/handed", Secret::random()?);
    let mut server = RingServer::start(devices, DomId(0), config)?;
    let keys = toolstack.agree(&server.offer(port.as_ref(), Checksums::Offload).keys())?;
    connect(&mut server, HandedVif::new(id, keys), port)?;
    toolstack.show(XenbusState::Connected)?;
    println!("{id} is connected");

    while toolstack.guest()? == Some(XenbusState::Connected) {
        // Workers move the frames. This thread serves control rings, and looks after the guest.
        for (id, error) in server.step()? {
            println!("{id}: {error}");
        }
        let ends = [server.descriptor(), toolstack.store.as_fd()];
        poll(&mut ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)), None)?;
        while toolstack.store.next_event()?.is_some() {}
    }
    server.detach(id);
    toolstack.show(XenbusState::Closed)?;
    println!("{id} is gone");
    Ok(())
}
