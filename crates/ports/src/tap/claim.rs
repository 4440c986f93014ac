//! One owner for each TAP of several queues: the kernel lets anybody join in,
//! where a TAP of one queue is busy.

use std::io::{Error, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Held while a program owns the TAP; gone with the program, however it ends.
/// The names of such sockets belong to a network namespace, as interfaces do.
#[derive(Debug)]
pub(super) struct Claim {
    _held: UnixListener,
}

impl Claim {
    /// Claims the interface of this index; `None` where another program, or
    /// another part of this one, has.
    pub fn take(interface: u32) -> Result<Option<Claim>, Error> {
        let name = format!("grantway/tap/{interface}");
        let address = SocketAddr::from_abstract_name(name)?;
        match UnixListener::bind_addr(&address) {
            Ok(held) => Ok(Some(Claim { _held: held })),
            Err(e) if e.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(e) => Err(e),
        }
    }
}
