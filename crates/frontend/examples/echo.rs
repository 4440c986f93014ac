//! Sends a hundred frames over a vif of the embedded host, and counts those that come back.
//!
//!     grantway host --dir /tmp/gw &
//!     grantway attach --host /tmp/gw --domain 1 ''
//!     grantway backend --host /tmp/gw --port echo &
//!     cargo run -p grantway-frontend --features std --example echo -- /tmp/gw

use grantway_embedded::{Domain, Role};
use grantway_frontend::{SendError, Vif, VifStatus, Wishes};
use grantway_hypervisor::{DomId, FrontendPlatform};
use grantway_netif::Offload;
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;

const FRAMES: u32 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: echo DIR")?;
    let platform: Arc<dyn FrontendPlatform> = Domain::connect(dir.as_ref(), DomId(1), Role::Guest)?;
    let mut vif = Vif::open(platform, 0, Wishes::default())?;
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    let (mut sent, mut came, mut buf) = (0, 0, vec![0; 65_535]);
    while came < FRAMES {
        // These calls take in what the other end did. None blocks. Answers of the control ring have
        // the pages staged.
        vif.store_changed()?;
        vif.take_answers()?;
        vif.take_events()?;
        if let Some(failure) = vif.take_failure() {
            return Err(failure.into());
        }
        vif.reap()?;
        while vif.recv(&mut buf)?.is_some() {
            came += 1;
        }
        while sent < FRAMES && vif.status() == VifStatus::Connected {
            match vif.send(&frame, Offload::default()) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        vif.flush()?;
        // Ask for a signal first, and wait afterwards, so that no signal is lost.
        if came < FRAMES && !vif.arm()? {
            wait(&vif)?;
        }
    }
    println!("{sent} frames sent, {came} came back");
    vif.shutdown()?;
    Ok(())
}

/// Waits until the store or an event channel has something new.
fn wait(vif: &Vif) -> Result<(), Box<dyn std::error::Error>> {
    let store = vif.store().descriptor();
    let control = vif.control().and_then(|control| control.descriptor());
    let mut ready: Vec<PollFd<'_>> = vif
        .event_descriptors()
        .chain(store)
        .chain(control)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    poll(&mut ready, None)?;
    Ok(())
}
