//! System calls that no crate wraps:
//!
//! - the `ioctl`s of `/dev/net/tun` and of network interfaces (`linux/if_tun.h`, `linux/if.h`,
//!   `linux/sockios.h`)
//! - the `writev` and the `readv` of bytes to which nobody may have a reference
//! - the lock of one byte that belongs to an open file and not to a process

#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_uint},
    os::fd::{AsRawFd, BorrowedFd},
};

use grantway_netif::slots::tx::SLOTS_ACCEPTED;
use rustix::{
    io::{Errno, Result},
    ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode},
};

use super::name::MAX_NAME;
use crate::offloads::TapOffloads;
use crate::split::{FRAME_PAGES, SplitFrame, SplitRoom};

const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
const TUNSETPERSIST: Opcode = opcode::write::<c_int>(b'T', 203);
const TUNSETOFFLOAD: Opcode = opcode::write::<c_uint>(b'T', 208);
const TUNGETIFF: Opcode = opcode::read::<c_uint>(b'T', 210);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<c_int>(b'T', 216);
const TUNSETVNETLE: Opcode = opcode::write::<c_int>(b'T', 220);
const TUNSETCARRIER: Opcode = opcode::write::<c_int>(b'T', 226);

/// Reads the flags of an interface into [`Request::value`].
pub(super) const SIOCGIFFLAGS: Opcode = 0x8913;
/// Sets the flags of an interface.
pub(super) const SIOCSIFFLAGS: Opcode = 0x8914;
/// Reads the MTU.
pub(super) const SIOCGIFMTU: Opcode = 0x8921;
/// Sets the MTU.
pub(super) const SIOCSIFMTU: Opcode = 0x8922;
/// Sets the hardware address.
pub(super) const SIOCSIFHWADDR: Opcode = 0x8924;
/// Reads the hardware address.
pub(super) const SIOCGIFHWADDR: Opcode = 0x8927;

const IFF_TAP: u16 = 0x0002;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;

/// `struct ifreq`: a name and a union of at most 24 bytes. The kernel's has 40 bytes on 64-bit
/// Linux and 32 on 32-bit, so this one is never smaller.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    name: [u8; MAX_NAME + 1],
    /// The union; its content depends on the operation.
    pub(super) value: [u8; 24],
}

impl Request {
    /// Returns a request for `name`, with a value of all zero. `name` has at most [`MAX_NAME`]
    /// bytes; a longer one is cut, but `check_name` has refused it before.
    pub(super) fn new(name: &str) -> Request {
        let mut request = Request { name: [0; MAX_NAME + 1], value: [0; 24] };
        let len = name.len().min(MAX_NAME);
        request.name[..len].copy_from_slice(&name.as_bytes()[..len]);
        request
    }

    fn name(&self) -> String {
        let bytes = self.name.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Runs one of the interface operations above on a socket.
pub(super) fn interface<const OPCODE: Opcode>(
    socket: BorrowedFd<'_>,
    request: &mut Request,
) -> Result<()> {
    // SAFETY: every SIOC*IF* opcode takes a pointer to a `struct ifreq`, which it reads and at most
    // overwrites. `Request` is at least as large and as aligned, and all of its bit patterns are
    // valid.
    unsafe { ioctl(socket, Updater::<OPCODE, Request>::new(request)) }
}

/// Attaches the descriptor to the TAP `name`, which is created if it does not exist. With
/// `multi_queue` it is one queue of several. Returns the name of the interface: the kernel replaces
/// `%d` in it by a number.
pub(super) fn attach(fd: BorrowedFd<'_>, name: &str, multi_queue: bool) -> Result<String> {
    let mut request = Request::new(name);
    let queues = if multi_queue { IFF_MULTI_QUEUE } else { 0 };
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | queues;
    request.value[..2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq` and writes the
    // name back into it (the `int` in its number is historical).
    unsafe { ioctl(fd, Updater::<TUNSETIFF, Request>::new(&mut request)) }?;
    Ok(request.name())
}

/// Returns the name of the attached interface.
pub(super) fn current_name(fd: BorrowedFd<'_>) -> Result<String> {
    let mut request = Request::new("");
    // SAFETY: TUNGETIFF fills in a `struct ifreq`.
    unsafe { ioctl(fd, Updater::<TUNGETIFF, Request>::new(&mut request)) }?;
    Ok(request.name())
}

/// Sets the length of the header beside each frame.
pub(super) fn set_header_size(fd: BorrowedFd<'_>, size: c_int) -> Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads an `int` through the pointer.
    unsafe { ioctl(fd, Setter::<TUNSETVNETHDRSZ, c_int>::new(size)) }
}

/// Makes the header's fields little-endian on any machine.
pub(super) fn set_little_endian(fd: BorrowedFd<'_>, on: bool) -> Result<()> {
    // SAFETY: TUNSETVNETLE reads an `int` through the pointer.
    unsafe { ioctl(fd, Setter::<TUNSETVNETLE, c_int>::new(c_int::from(on))) }
}

/// Sets the unfinished frames that this end accepts. The kernel has segmentation of UDP for both
/// versions of IP or for none; a kernel without it refuses with [`Errno::INVAL`].
pub(super) fn set_offloads(fd: BorrowedFd<'_>, offloads: TapOffloads) -> Result<()> {
    let bit = |on: bool, bit: usize| if on { bit } else { 0 };
    let bits = bit(offloads.checksum, TUN_F_CSUM)
        | bit(offloads.tso4, TUN_F_TSO4)
        | bit(offloads.tso6, TUN_F_TSO6)
        | bit(offloads.uso, TUN_F_USO4 | TUN_F_USO6);
    // SAFETY: TUNSETOFFLOAD takes its argument by value and no pointer.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(bits)) }
}

/// Sets if the interface is kept at the last close.
pub(super) fn set_persist(fd: BorrowedFd<'_>, on: bool) -> Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value and no pointer.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETPERSIST>::new_usize(usize::from(on))) }
}

/// Sets or clears the carrier.
pub(super) fn set_carrier(fd: BorrowedFd<'_>, on: bool) -> Result<()> {
    // SAFETY: TUNSETCARRIER reads an `int` through the pointer.
    unsafe { ioctl(fd, Setter::<TUNSETCARRIER, c_int>::new(c_int::from(on))) }
}

/// Most parts of a split frame's rest that [`write_split`] takes: as many as a packet can have
/// slots.
pub(super) const SLICES_MAX: usize = SLOTS_ACCEPTED;

/// Writes a header, and the first `len` bytes of a frame, in one call: its private bytes, and then
/// those in its sender's pages. Returns the number of bytes written.
pub(super) fn write_split(
    fd: BorrowedFd<'_>,
    header: &[u8],
    frame: &SplitFrame<'_>,
    len: usize,
) -> Result<usize> {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [nothing; 2 + SLICES_MAX];
    let private = [(header, header.len()), (frame.head(), len)];
    let private = private.map(|(part, most)| (part.as_ptr(), part.len().min(most)));
    let rest = frame.rest().iter().map(|slice| (slice.as_ptr().as_ptr().cast_const(), slice.len()));
    let mut left = header.len() + len;
    let mut count: c_int = 0;
    for (part, (base, size)) in parts.iter_mut().zip(private.into_iter().chain(rest)) {
        let size = size.min(left);
        *part = libc::iovec { iov_base: base.cast_mut().cast(), iov_len: size };
        left -= size;
        count += 1;
    }
    if left > 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: each part is memory that the borrowed header and frame keep readable for its length.
    // The kernel only reads it, even if others write to it.
    let written = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), count) };
    moved(written)
}

/// Reads a header and a frame in one call: the frame's first bytes to `head`, and the others into
/// the pages of `room`. Returns the number of bytes read.
pub(super) fn read_split(
    fd: BorrowedFd<'_>,
    header: &mut [u8],
    head: &mut [u8],
    room: &mut SplitRoom<'_>,
) -> Result<usize> {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [nothing; 2 + FRAME_PAGES];
    let private = [(header.as_mut_ptr(), header.len()), (head.as_mut_ptr(), head.len())];
    let pages = room.pages().iter().map(|page| (page.as_ptr().as_ptr(), page.len()));
    let mut count: c_int = 0;
    for (part, (base, size)) in parts.iter_mut().zip(private.into_iter().chain(pages)) {
        *part = libc::iovec { iov_base: base.cast(), iov_len: size };
        count += 1;
    }
    // SAFETY: header and head are borrowed for writing. The other parts are bytes of pages that
    // `room` keeps mapped for writing, and to which no reference exists.
    let read = unsafe { libc::readv(fd.as_raw_fd(), parts.as_ptr(), count) };
    moved(read)
}

/// Returns the number of bytes that a system call says it moved.
fn moved(answer: libc::ssize_t) -> Result<usize> {
    usize::try_from(answer).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
    })
}

/// Locks one byte of a file for writing, as long as this open file description exists anywhere.
/// Returns false if another description holds the lock.
pub(super) fn lock_byte(fd: BorrowedFd<'_>, at: u64) -> Result<bool> {
    let start = libc::off_t::try_from(at).map_err(|_| Errno::INVAL)?;
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        // The kernel requires 0.
        l_pid: 0,
    };
    // SAFETY: F_OFD_SETLK reads a `struct flock` through the pointer, which is valid for
    // the call.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done == 0 {
        return Ok(true);
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        other => Err(Errno::from_raw_os_error(other.unwrap_or(libc::EIO))),
    }
}
