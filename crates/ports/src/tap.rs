//! A TAP: a network interface of the host whose other end is this process.
//!
//! Each frame crosses with a `virtio_net_hdr`, so that unfinished checksums and segmentation of TCP
//! pass in both directions. So does segmentation of UDP (USO) if the kernel has it (Linux 6.2 or
//! later).

mod claim;
mod error;
mod io;
pub(crate) mod link;
mod name;
mod sys;

use std::{
    io::IoSlice,
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use grantway_netif::Offload;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::netdevice::{index_to_name, name_to_index},
};

pub use error::TapError;
pub use name::{MAX_NAME, check_name};

use crate::offloads::TapOffloads;
use crate::port::{
    BURST, Counters, DropReason, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport,
    Probe, Readiness, SendError,
};
use crate::port::{send_gathered, send_joined};
use crate::split::{SplitFrame, SplitMeta, SplitRoom};
use crate::vnet::VnetHeader;
use claim::Claim;
pub use claim::folder as claims_folder;
use io::Joined;
pub(crate) use io::judge;

/// Most frames that one [`Port::recv`] drops before it says that there is none.
const RECV_ATTEMPTS: usize = 64;

/// Settings for opening a TAP.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the interface, which is created if it does not exist. `None` lets the kernel choose
    /// `tap0`, `tap1`, ...
    pub name: Option<String>,
    /// Unfinished frames that the reading side accepts at first.
    pub offloads: TapOffloads,
    /// `Some(true)` keeps the interface when this process ends. `Some(false)` lets it end with this
    /// process. `None` changes nothing.
    pub persist: Option<bool>,
    /// MTU in bytes, without the Ethernet header; `None` changes nothing.
    pub mtu: Option<u32>,
    /// MAC address of the host's end; `None` changes nothing.
    pub mac: Option<[u8; 6]>,
    /// True to set the link up.
    pub up: bool,
    /// True for several queues. An existing interface keeps its kind, which
    /// [`PortCaps::max_queues`] shows.
    pub multi_queue: bool,
}

impl TapConfig {
    /// Returns settings that have only the interface's name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        TapConfig { name: Some(name.to_owned()), ..Self::default() }
    }
}

/// An open TAP.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    /// Socket in the network namespace that the TAP was opened in.
    control: OwnedFd,
    name: String,
    multi_queue: bool,
    /// Proof that no other program has the TAP, shared by its queues. It is `None` if there is one
    /// queue.
    claim: Option<Arc<Claim>>,
    /// Bytes of the header in front of each frame, which is the same for all queues.
    header: usize,
    offloads: TapOffloads,
    /// True if the kernel has segmentation of UDP.
    uso: bool,
    joined: Joined,
    counters: Counters,
}

/// Most queues that the kernel gives a TAP (`MAX_TAP_QUEUES` of its tun driver).
const MAX_QUEUES: u32 = 256;

impl Tap {
    /// Opens the interface, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`TapError`], which names its remedy.
    pub fn open(config: &TapConfig) -> Result<Tap, TapError> {
        let wanted = match &config.name {
            Some(name) => check_name(name)?,
            None => "tap%d",
        };
        let attach = |multi_queue| Self::attach(wanted, multi_queue, VnetHeader::LEN);
        let mut tap = match attach(config.multi_queue) {
            // The interface exists, and is of the other kind.
            Err(TapError::NotATap { .. }) => attach(!config.multi_queue),
            attached => attached,
        }?;
        if tap.multi_queue {
            tap.claim = Some(Arc::new(tap.claim()?));
        }
        // The address comes early: udev gives another to an interface that has a random one.
        if let Some(mac) = config.mac {
            tap.set_mac(mac)?;
        }
        tap.uso = tap.has_uso();
        tap.change_offloads(config.offloads)?;
        if let Some(persist) = config.persist {
            tap.set_persist(persist)?;
        }
        if let Some(mtu) = config.mtu {
            tap.set_mtu(mtu)?;
        }
        if config.up {
            tap.set_up(true)?;
        }
        Ok(tap)
    }

    /// Makes sure that no other program has the interface.
    fn claim(&self) -> Result<Claim, TapError> {
        let named = || self.name.clone();
        let index = name_to_index(&self.control, &self.name)
            .map_err(|e| TapError::system(&self.name, "claiming it", e))?;
        let claim =
            Claim::take(index).map_err(|source| TapError::Claim { name: named(), source })?;
        claim.ok_or_else(|| TapError::InUse { name: self.name.clone() })
    }

    /// Opens a queue of the interface, which is created if it does not exist. Each frame crosses
    /// with `header` bytes in front.
    fn attach(wanted: &str, multi_queue: bool, header: usize) -> Result<Tap, TapError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(|e| error::opening(wanted, e))?;
        let name = sys::attach(fd.as_fd(), wanted, multi_queue)
            .map_err(|e| error::attaching(wanted, e))?;
        let control = link::control_socket().map_err(|e| TapError::system(&name, "socket", e))?;
        let mut tap = Tap {
            fd,
            control,
            name,
            multi_queue,
            claim: None,
            header,
            offloads: TapOffloads::NONE,
            uso: false,
            joined: Joined::new(),
            counters: Counters::default(),
        };
        tap.set_header(header)?;
        tap.call("TUNSETVNETLE", |fd| sys::set_little_endian(fd, true))?;
        Ok(tap)
    }

    /// Sets the bytes in front of each frame, for all queues: a header of [`VnetHeader::LEN`], and
    /// bytes that mean nothing to a TAP. This end reads and writes frames with the header alone.
    pub(crate) fn set_header(&mut self, len: usize) -> Result<(), TapError> {
        self.header = len;
        // A few bytes.
        self.call("TUNSETVNETHDRSZ", |fd| sys::set_header_size(fd, len as i32))
    }

    /// Returns the descriptor of this queue.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens one more queue, with the settings of this one.
    pub(crate) fn queue(&mut self) -> Result<Tap, PortError> {
        if !self.multi_queue {
            return Err(PortError::NoMoreQueues { port: self.name.clone() });
        }
        let (offloads, header) = (self.offloads, self.header);
        let mut queue = Self::attach(self.current_name()?, true, header)?;
        queue.claim.clone_from(&self.claim);
        queue.uso = self.uso;
        queue.change_offloads(offloads)?;
        Ok(queue)
    }

    /// Returns the current name of the interface of this index, in the caller's network namespace.
    /// Returns `None` if the interface is gone.
    #[must_use]
    pub fn name_of(interface: u32) -> Option<String> {
        let socket = link::control_socket().ok()?;
        index_to_name(socket, interface).ok()
    }

    /// Returns the unfinished frames that the reading side accepts now.
    #[must_use]
    pub fn offloads(&self) -> TapOffloads {
        self.offloads
    }

    /// Returns the current name of the interface, which may have changed.
    ///
    /// # Errors
    /// [`TapError::System`], also if the interface was deleted.
    pub fn current_name(&mut self) -> Result<&str, TapError> {
        self.name = self.call("TUNGETIFF", sys::current_name)?;
        Ok(&self.name)
    }

    /// Sets whether the interface stays when this process ends.
    ///
    /// # Errors
    /// [`TapError::System`].
    pub fn set_persist(&mut self, persist: bool) -> Result<(), TapError> {
        self.call("TUNSETPERSIST", |fd| sys::set_persist(fd, persist))
    }

    /// Sets whether the host sees a carrier, as if a cable was plugged in or pulled out.
    ///
    /// # Errors
    /// [`TapError::System`], also before Linux 5.0, which cannot set it.
    pub fn set_carrier(&mut self, carrier: bool) -> Result<(), TapError> {
        self.call("TUNSETCARRIER", |fd| sys::set_carrier(fd, carrier))
    }

    /// Sets the link up or down.
    ///
    /// # Errors
    /// [`TapError::NoPermission`] or [`TapError::System`].
    pub fn set_up(&mut self, up: bool) -> Result<(), TapError> {
        self.link("setting the link up or down", |s, name| link::set_up(s, name, up))
    }

    /// Returns true if the link is administratively up.
    ///
    /// # Errors
    /// [`TapError::System`].
    pub fn is_up(&mut self) -> Result<bool, TapError> {
        self.link("reading the link's flags", link::is_up)
    }

    /// Sets the MTU in bytes, without the Ethernet header.
    ///
    /// # Errors
    /// [`TapError::NoPermission`], or [`TapError::System`] if the MTU is outside the kernel's
    /// bounds (68 to 65,521 for a TAP).
    pub fn set_mtu(&mut self, mtu: u32) -> Result<(), TapError> {
        self.link("setting the MTU", |s, name| link::set_mtu(s, name, mtu))
    }

    /// Returns the MTU in bytes, without the Ethernet header.
    ///
    /// # Errors
    /// [`TapError::System`].
    pub fn mtu(&mut self) -> Result<u32, TapError> {
        self.link("reading the MTU", link::mtu)
    }

    /// Returns the MAC address of the host's end.
    ///
    /// # Errors
    /// [`TapError::System`].
    pub fn mac(&mut self) -> Result<[u8; 6], TapError> {
        self.link("reading the MAC address", link::mac)
    }

    /// Sets the MAC address of the host's end.
    ///
    /// # Errors
    /// [`TapError::NoPermission`], or [`TapError::System`] for an address that the kernel refuses
    /// (multicast, or all zero).
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), TapError> {
        self.call("setting the MAC address", |tap| link::set_mac(tap, mac))
    }

    /// Returns true if the kernel has segmentation of UDP. The only way to learn it is to ask for
    /// it. The caller sets the offloads behind this.
    fn has_uso(&self) -> bool {
        let offloads = TapOffloads { checksum: true, uso: true, ..TapOffloads::NONE };
        sys::set_offloads(self.fd.as_fd(), offloads).is_ok()
    }

    fn change_offloads(&mut self, offloads: TapOffloads) -> Result<(), TapError> {
        let offloads = TapOffloads { uso: offloads.uso && self.uso, ..offloads }.effective();
        self.call("TUNSETOFFLOAD", |fd| sys::set_offloads(fd, offloads))?;
        self.offloads = offloads;
        Ok(())
    }

    fn call<T>(
        &self,
        operation: &'static str,
        f: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<T, TapError> {
        f(self.fd.as_fd()).map_err(|e| TapError::system(&self.name, operation, e))
    }

    /// Runs an operation that takes the interface's name, with its current name.
    fn link<T>(
        &mut self,
        operation: &'static str,
        f: impl FnOnce(BorrowedFd<'_>, &str) -> rustix::io::Result<T>,
    ) -> Result<T, TapError> {
        self.current_name()?;
        f(self.control.as_fd(), &self.name).map_err(|e| TapError::system(&self.name, operation, e))
    }

    fn fatal(&self, operation: &'static str, errno: Errno) -> PortError {
        match errno {
            Errno::BADFD | Errno::NODEV => PortError::Gone { port: self.name.clone() },
            _ => PortError::Io { port: self.name.clone(), operation, source: errno.into() },
        }
    }
}

impl Port for Tap {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let (header, len) =
            judge(frame, frame.len(), offload).map_err(|reason| self.counters.refuse(reason))?;
        self.write_frame(header, &frame[..len])
    }

    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        if frame.rest().len() > sys::SLICES_MAX {
            return send_gathered(self, frame, offload, room);
        }
        let (header, len) = match judge(frame.head(), frame.len(), offload) {
            Ok(judged) => judged,
            // The headers may continue behind the private bytes.
            Err(DropReason::Truncated) => return send_gathered(self, frame, offload, room),
            Err(reason) => return Err(self.counters.refuse(reason)),
        };
        self.write(len, |fd| sys::write_split(fd, &header, frame, len))
    }

    fn send_pieces(
        &mut self,
        pieces: &[&[u8]],
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let head = pieces.first().copied().unwrap_or(&[]);
        let (header, end) =
            judge(head, len, offload).map_err(|reason| self.counters.refuse(reason))?;
        // Bytes behind the packet are left out, in whichever piece they lie.
        if end < len || pieces.len() > BURST {
            return send_joined(self, pieces, offload, room);
        }
        let mut parts = [IoSlice::new(&header); 1 + BURST];
        for (part, piece) in parts.iter_mut().skip(1).zip(pieces) {
            *part = IoSlice::new(piece);
        }
        let parts = &parts[..=pieces.len()];
        self.write(len, |fd| rustix::io::writev(fd, parts))?;
        self.counters.sent += pieces.len() as u64 - 1;
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        for _ in 0..RECV_ATTEMPTS {
            let mut header = [0; VnetHeader::LEN];
            let read = match self.read(&mut header, buf) {
                Ok(read) => read,
                Err(errno) => match self.unread(errno)? {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(()) => return Ok(None),
                },
            };
            match self.accept(header, buf, read) {
                Ok(meta) => return Ok(Some(meta)),
                Err(reason) => self.counters.drop_one(reason),
            }
        }
        Ok(None)
    }

    fn recv_split(
        &mut self,
        buf: &mut [u8],
        room: &mut SplitRoom<'_>,
    ) -> Result<Option<SplitMeta>, PortError> {
        if buf.len() < room.head() {
            // There is no room for the head.
            let meta = self.recv(buf)?;
            return Ok(meta.map(|meta| SplitMeta { meta, private: meta.len }));
        }
        for _ in 0..RECV_ATTEMPTS {
            let mut header = [0; VnetHeader::LEN];
            let head = buf.get_mut(..room.head()).unwrap_or_default();
            let read = match sys::read_split(self.fd.as_fd(), &mut header, head, room) {
                Ok(read) => read,
                Err(errno) => match self.unread(errno)? {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(()) => return Ok(None),
                },
            };
            match self.accept_split(header, buf, room, read) {
                Ok(split) => return Ok(Some(split)),
                Err(reason) => {
                    room.wipe(read.saturating_sub(VnetHeader::LEN));
                    self.counters.drop_one(reason);
                }
            }
        }
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Readable(self.fd.as_fd())
    }

    fn caps(&self) -> PortCaps {
        let max_queues = if self.multi_queue { MAX_QUEUES } else { 1 };
        PortCaps {
            max_queues,
            wants_merged: true,
            wants_merged_udp: self.uso,
            in_place: true,
            ..PortCaps::default()
        }
    }
}

impl PortControl for Tap {
    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        Ok(self.change_offloads(offloads)?)
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        Ok(self.set_carrier(up)?)
    }

    fn remove(&mut self) -> Result<(), PortError> {
        Ok(self.set_persist(false)?)
    }

    fn interface(&self) -> Option<u32> {
        name_to_index(&self.control, &self.name).ok()
    }

    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(self.queue()?))
    }
}

impl Probe for Tap {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> PortReport {
        PortReport::new(&self.name, &self.counters)
    }
}

#[cfg(test)]
mod tests;
