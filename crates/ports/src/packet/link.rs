//! The interface of a packet socket: it is found by name, watched, and found again.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType,
        netdevice::{index_to_name, name_to_index},
        netlink::SocketAddrNetlink,
    },
};

use super::{PacketError, sys};
use crate::tap::link;

/// Protocol of netlink for messages about links (`NETLINK_ROUTE`): it is the first.
const ROUTE: Option<Protocol> = None;
/// The group of netlink messages that tell of links (`RTMGRP_LINK`).
const LINKS: u32 = 1;
/// Most messages about links that one look takes in. The others wake the caller again.
const MESSAGES: usize = 256;

/// Room for frames that wait to be received, in bytes of the kernel's memory.
const RECEIVE_ROOM: i32 = 8 << 20;
/// Room for frames that wait to be sent.
const SEND_ROOM: i32 = 4 << 20;

/// A packet socket, and the name of its interface.
#[derive(Debug)]
pub(super) struct Socket {
    pub fd: OwnedFd,
    pub name: String,
}

impl Socket {
    /// Opens a socket on an interface.
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn open(name: &str) -> Result<Self, PacketError> {
        let error = |operation| move |errno| PacketError::system(name, operation, errno);
        let fd = sys::open().map_err(error("opening a packet socket"))?;
        for (option, operation) in [
            (libc::PACKET_VNET_HDR, "asking for unfinished frames"),
            (libc::PACKET_AUXDATA, "asking for VLAN tags"),
            (libc::PACKET_IGNORE_OUTGOING, "leaving out the host's own frames"),
        ] {
            sys::set_option(fd.as_fd(), option, 1).map_err(error(operation))?;
        }
        for (options, bytes) in [
            ([libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], RECEIVE_ROOM),
            ([libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], SEND_ROOM),
        ] {
            sys::set_room(fd.as_fd(), options, bytes).map_err(error("sizing its queues"))?;
        }
        sys::leave_out_host(fd.as_fd()).map_err(error("leaving out what is for the host"))?;
        let socket = Self { fd, name: name.to_owned() };
        socket.attach()?;
        Ok(socket)
    }

    /// Attaches the socket to the interface of its name.
    fn attach(&self) -> Result<(), PacketError> {
        let error = |operation| move |errno| PacketError::system(&self.name, operation, errno);
        let kind = link::kind(self.fd.as_fd(), &self.name).map_err(error("reading its kind"))?;
        if kind != link::ARPHRD_ETHER {
            return Err(PacketError::NotEthernet { name: self.name.clone(), found: kind });
        }
        let index = name_to_index(&self.fd, &self.name).map_err(error("finding it"))?;
        sys::attach(self.fd.as_fd(), index).map_err(error("attaching to it"))
    }

    /// Returns the state of the interface that the socket is attached to.
    fn state(&self) -> Result<LinkState, Errno> {
        let Some(index) = sys::attached(self.fd.as_fd())? else { return Ok(LinkState::Gone) };
        // It may have been renamed.
        let flags = index_to_name(&self.fd, index)
            .and_then(|name| link::is_up_and_running(self.fd.as_fd(), &name));
        match flags {
            Ok((true, true)) => Ok(LinkState::Up),
            Ok((true, false)) => Ok(LinkState::NoCarrier),
            Ok((false, _)) => Ok(LinkState::Down),
            Err(Errno::NODEV | Errno::NXIO) => Ok(LinkState::Gone),
            Err(errno) => Err(errno),
        }
    }
}

/// State of the interface behind a packet socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Frames can cross the interface.
    Up,
    /// The interface is up, but has no carrier.
    NoCarrier,
    /// The interface is administratively down.
    Down,
    /// The interface was deleted, or moved to another network namespace.
    Gone,
}

impl LinkState {
    /// Returns the name of the state in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoCarrier => "no-carrier",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The control end of a [`Packet`](super::Packet) port. It shows the state of the interface, and
/// attaches the port again to an interface of the same name.
///
/// The control end may be used by another thread than the port.
#[derive(Debug)]
pub struct PacketLink {
    socket: Arc<Socket>,
    /// Receives a message for each change of a link in the network namespace.
    changes: OwnedFd,
    state: LinkState,
    missed: u64,
}

impl PacketLink {
    /// Begins to watch the interface of a socket.
    pub(super) fn watch(socket: Arc<Socket>) -> Result<Self, PacketError> {
        let error = |errno| PacketError::system(&socket.name, "watching it", errno);
        let (family, flags) =
            (AddressFamily::NETLINK, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let changes =
            rustix::net::socket_with(family, SocketType::RAW, flags, ROUTE).map_err(error)?;
        rustix::net::bind(&changes, &SocketAddrNetlink::new(0, LINKS)).map_err(error)?;
        let state = socket.state().map_err(error)?;
        Ok(Self { socket, changes, state, missed: 0 })
    }

    /// Returns the name of the interface, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.socket.name
    }

    /// Returns the descriptor that is readable after a link has changed. Then call
    /// [`PacketLink::look`].
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Returns the state of the interface at the last look.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Looks at the interface if a link has changed. If the port's interface is gone, attaches the
    /// port to an interface of the same name. Returns the state if it changed since the last look.
    ///
    /// # Errors
    /// The kernel refused. The next call after a change of a link tries again.
    pub fn look(&mut self) -> Result<Option<LinkState>, PacketError> {
        if !self.take_messages() {
            return Ok(None);
        }
        let name = &self.socket.name;
        let error = |errno| PacketError::system(name, "looking at it", errno);
        let mut now = self.socket.state().map_err(error)?;
        if now == LinkState::Gone {
            match self.socket.attach() {
                Ok(()) => now = self.socket.state().map_err(error)?,
                Err(PacketError::NoInterface { .. }) => {}
                // It is reported once.
                Err(_) if self.state == LinkState::Gone => {}
                Err(refused) => {
                    self.state = LinkState::Gone;
                    return Err(refused);
                }
            }
        }
        let before = std::mem::replace(&mut self.state, now);
        Ok((before != now).then_some(now))
    }

    /// Takes in messages that links have changed. Returns true if there were any. What they say is
    /// asked for afterwards, so nothing is lost if the kernel had no room for some.
    fn take_messages(&self) -> bool {
        let mut room = [0; 64];
        let mut any = false;
        for _ in 0..MESSAGES {
            match rustix::net::recv(&self.changes, &mut room, RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => any = true,
                Err(_) => break,
            }
        }
        any
    }

    /// Returns the number of received frames for which the port's queue had no room, so far.
    pub fn missed(&mut self) -> u64 {
        let more = sys::take_missed(self.socket.fd.as_fd()).unwrap_or(0);
        self.missed += u64::from(more);
        self.missed
    }
}
