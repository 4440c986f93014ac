//! Flags, kind, MTU and MAC address of an interface, by name.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::{
    io::{Errno, Result},
    net::{AddressFamily, SocketFlags, SocketType},
};

use super::sys::{
    Request, SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFMTU, SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFMTU,
    interface,
};

const IFF_UP: u16 = 0x1;
const IFF_RUNNING: u16 = 0x40;
/// Kind of an Ethernet interface (`linux/if_arp.h`).
pub(crate) const ARPHRD_ETHER: u16 = 1;

/// Returns a socket for interface operations, in the caller's network namespace.
pub(super) fn control_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

fn flags(socket: BorrowedFd<'_>, name: &str) -> Result<u16> {
    let mut request = Request::new(name);
    interface::<SIOCGIFFLAGS>(socket, &mut request)?;
    Ok(u16::from_ne_bytes([request.value[0], request.value[1]]))
}

/// Returns true if the link is up.
pub(super) fn is_up(socket: BorrowedFd<'_>, name: &str) -> Result<bool> {
    Ok(flags(socket, name)? & IFF_UP != 0)
}

/// Returns true if the link is up, and true beside it if frames can cross it now.
pub(crate) fn is_up_and_running(socket: BorrowedFd<'_>, name: &str) -> Result<(bool, bool)> {
    let flags = flags(socket, name)?;
    Ok((flags & IFF_UP != 0, flags & IFF_RUNNING != 0))
}

/// Sets the link up or down, and leaves its other flags.
pub(super) fn set_up(socket: BorrowedFd<'_>, name: &str, up: bool) -> Result<()> {
    let old = flags(socket, name)?;
    let new = if up { old | IFF_UP } else { old & !IFF_UP };
    if new == old {
        return Ok(());
    }
    let mut request = Request::new(name);
    request.value[..2].copy_from_slice(&new.to_ne_bytes());
    interface::<SIOCSIFFLAGS>(socket, &mut request)
}

/// Returns the MTU in bytes.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: &str) -> Result<u32> {
    let mut request = Request::new(name);
    interface::<SIOCGIFMTU>(socket, &mut request)?;
    let [a, b, c, d, ..] = request.value;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Sets the MTU in bytes.
pub(super) fn set_mtu(socket: BorrowedFd<'_>, name: &str, mtu: u32) -> Result<()> {
    let mtu = i32::try_from(mtu).map_err(|_| Errno::INVAL)?;
    let mut request = Request::new(name);
    request.value[..4].copy_from_slice(&mtu.to_ne_bytes());
    interface::<SIOCSIFMTU>(socket, &mut request)
}

/// Returns the kind of the interface (`ARPHRD_*`).
pub(crate) fn kind(socket: BorrowedFd<'_>, name: &str) -> Result<u16> {
    let mut request = Request::new(name);
    interface::<SIOCGIFHWADDR>(socket, &mut request)?;
    let [a, b, ..] = request.value;
    Ok(u16::from_ne_bytes([a, b]))
}

/// Returns the MAC address.
pub(super) fn mac(socket: BorrowedFd<'_>, name: &str) -> Result<[u8; 6]> {
    let mut request = Request::new(name);
    interface::<SIOCGIFHWADDR>(socket, &mut request)?;
    // The value is a `sockaddr`: two bytes of family, then the address.
    let [_, _, a, b, c, d, e, f, ..] = request.value;
    Ok([a, b, c, d, e, f])
}

/// Sets the MAC address of the TAP itself, whatever its name is by now.
pub(super) fn set_mac(tap: BorrowedFd<'_>, mac: [u8; 6]) -> Result<()> {
    let mut request = Request::new("");
    request.value[..2].copy_from_slice(&ARPHRD_ETHER.to_ne_bytes());
    request.value[2..8].copy_from_slice(&mac);
    interface::<SIOCSIFHWADDR>(tap, &mut request)
}
