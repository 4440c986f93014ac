//! Serves the vifs of an embedded host, and sends each frame back to the guest that sent it.
//!
//!     grantway host --dir /tmp/gw &
//!     cargo run -p grantway-backend --example server -- /tmp/gw &
//!     grantway attach --host /tmp/gw --domain 1 ''
//!     grantway frontend --host /tmp/gw --domain 1 --port generator:size=64

use grantway_backend::{Backend, BackendConfig, OpenPort, Settings};
use grantway_embedded::{Domain, Role};
use grantway_hypervisor::{DomId, Platform};
use grantway_ports::Echo;
use grantway_vector::Secret;
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: server DIR")?;
    let platform: Arc<dyn Platform> = Domain::connect(dir.as_ref(), DomId(0), Role::Service)?;
    let config = BackendConfig {
        settings: Settings { queues: 2, ..Settings::default() },
        ..BackendConfig::new(&dir, Secret::random()?)
    };
    let open_port: OpenPort = Box::new(|request| {
        println!("{} is connected to an echo", request.name);
        Ok(Box::new(Echo::new()))
    });
    let mut backend = Backend::start(platform, config, open_port)?;
    loop {
        // Workers move the frames. This thread takes in what guests and the toolstack write.
        backend.step()?;
        let descriptors = backend.descriptors();
        let mut ready = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut ready, None)?;
    }
}
