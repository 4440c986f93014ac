//! Lists a folder of a xenstore, with all folders below it.
//!
//!     grantway host --dir /tmp/gw &
//!     cargo run -p grantway-xenstore --features std --example ls -- /tmp/gw/xenstored/socket /local
//!
//! On a Xen host the socket is `/run/xenstored/socket`.

use grantway_hypervisor::{Error, StoreOps};
use grantway_xenstore::{Client, DEFAULT_SOCKET};

/// Folders below each other that are shown at most.
const DEPTH_MAX: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let socket = args.next().unwrap_or_else(|| DEFAULT_SOCKET.to_owned());
    let path = args.next().unwrap_or_else(|| "/".to_owned());
    let mut store = Client::connect(socket)?;
    show(&mut store, path.trim_end_matches('/'), 0)?;
    Ok(())
}

fn show(store: &mut impl StoreOps, path: &str, depth: usize) -> Result<(), Error> {
    let folder = if path.is_empty() { "/" } else { path };
    for name in store.list(folder)? {
        let child = format!("{path}/{name}");
        // Another client may have removed the node since it was listed.
        let value = store.read_text(&child)?.unwrap_or_default();
        println!("{:depth$}{name} = {value:?}", "");
        if depth < DEPTH_MAX {
            show(store, &child, depth + 1)?;
        }
    }
    Ok(())
}
