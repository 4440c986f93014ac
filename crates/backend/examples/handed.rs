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
//! keep the same words elsewhere: the server has no store. The example offers no XDP programs and no
//! multicast filter (`RingServer::set_headroom`, `set_multicast`), and ends when its guest closes the
//! vif (`disconnect`, `reconnect`).

use grantway_backend::{
    BackendConfig, Checksums, FrontendKeys, HandedVif, MAX_QUEUES, Refused, RingServer, VifId,
};
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{BackendPlatform, DomId, Platform, Store};
use grantway_netif::XenbusState;
use grantway_ports::{Port, PortSpec};
use grantway_vector::Secret;
use grantway_xen::Xen;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
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
    /// Tells the guest what is offered, and waits until it has published its rings.
    fn agree(&mut self, offer: &[(&str, u32)]) -> Result<()> {
        for (key, value) in offer {
            let left_out = key.contains("multicast") || *key == "feature-xdp-headroom";
            let value = if left_out { &0 } else { value };
            self.store.write(&format!("{}/{key}", self.backend), value.to_string().as_bytes())?;
        }
        self.show(XenbusState::InitWait)?;
        while self.guest()? != Some(XenbusState::Connected) {
            self.wait(None)?;
        }
        Ok(())
    }

    fn show(&mut self, state: XenbusState) -> Result<()> {
        Ok(self.store.write(&format!("{}/state", self.backend), state.as_str().as_bytes())?)
    }

    fn guest(&mut self) -> Result<Option<XenbusState>> {
        let text = self.store.read_text(&format!("{}/state", self.frontend))?;
        Ok(text.and_then(|text| XenbusState::from_store(text.as_bytes()).ok()))
    }

    /// Describes the vif by what the guest published.
    fn vif(&mut self, id: VifId) -> Result<HandedVif> {
        let keys = FrontendKeys::read(self.store.as_mut(), &self.frontend, MAX_QUEUES)?;
        Ok(HandedVif::new(id, keys))
    }

    /// Waits until the guest's state changed, or a server has something to do.
    fn wait(&mut self, server: Option<&RingServer>) -> Result<()> {
        // An event may have come along with an answer. Then nothing makes the descriptor readable.
        let mut told = false;
        while self.store.next_event()?.is_some() {
            told = true;
        }
        if !told {
            let ends =
                std::iter::once(self.store.as_fd()).chain(server.map(RingServer::descriptor));
            let mut ends: Vec<_> =
                ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
            poll(&mut ends, None)?;
        }
        Ok(())
    }
}

/// Devices for the server, a store for the toolstack, and a folder for the journals.
type Host = (Arc<dyn BackendPlatform>, Box<dyn Store>, PathBuf);

/// Returns the parts of a host.
fn open(host: &str) -> Result<Host> {
    if host == "xen" {
        let (devices, store) = (Xen::without_store(DomId(0))?, Xen::open()?.store()?);
        return Ok((devices, store, "/run/grantway-handed".into()));
    }
    let domain = Domain::connect(host.as_ref(), DomId(0), Role::Service)?;
    let store = domain.store()?;
    Ok((domain, store, Path::new(host).join("handed")))
}

/// Continues the connection of a guest that stayed connected while its server was killed.
fn resume(server: &mut RingServer, vif: &HandedVif, mut port: Box<dyn Port>) -> Result<()> {
    for _ in 0..50 {
        match server.resume(vif.clone(), port) {
            // The event channels may still be bound to the server that was killed.
            Err(Refused { error, port: Some(back) }) if error.may_pass() => port = back,
            done => return Ok(done?),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the event channels do not become free".into())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (host, domain) =
        args.next().zip(args.next()).ok_or("usage: handed DIR|xen DOMAIN [PORT]")?;
    let port = args.next().unwrap_or_else(|| "echo".into()).parse::<PortSpec>()?.open()?;
    let id = VifId { domain: DomId(domain.parse()?), devid: 0 };
    let (devices, store, run_folder) = open(&host)?;
    let mut toolstack = Toolstack {
        store,
        frontend: format!("/local/domain/{domain}/device/vif/0"),
        backend: format!("/local/domain/0/backend/vif/{domain}/0"),
    };
    toolstack.store.watch(&format!("{}/state", toolstack.frontend), "guest")?;

    let config = BackendConfig::new(run_folder, Secret::random()?);
    let mut server = RingServer::start(devices, DomId(0), config)?;
    if toolstack.guest()? == Some(XenbusState::Connected)
        && server.left().iter().any(|(left, _)| *left == id)
    {
        resume(&mut server, &toolstack.vif(id)?, port)?;
    } else {
        toolstack.agree(&server.offer(port.as_ref(), Checksums::Offload).keys())?;
        server.attach(toolstack.vif(id)?, port)?;
    }
    toolstack.show(XenbusState::Connected)?;
    println!("{id} is connected");

    while toolstack.guest()? == Some(XenbusState::Connected) {
        // Workers move the frames. This thread serves control rings, and looks after the guest.
        if let Some((id, error)) = server.step()?.pop() {
            println!("{id}: {error}");
            break;
        }
        toolstack.wait(Some(&server))?;
    }
    server.detach(id);
    toolstack.show(XenbusState::Closed)?;
    println!("{id} is gone");
    Ok(())
}
