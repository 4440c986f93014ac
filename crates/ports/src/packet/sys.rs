//! System calls of packet sockets that no crate wraps: their options and their address
//! (`linux/if_packet.h`), and `sendmmsg` and `recvmmsg`, which carry a burst each.

#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_uint, c_void},
    mem::{size_of, zeroed},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use libc::{iovec, mmsghdr, sockaddr_ll, socklen_t, tpacket_auxdata};
use rustix::io::{Errno, Result};

use super::tag::{ADDRESSES, Tag};
use crate::port::BURST;
use crate::vnet::VnetHeader;

/// All protocols, as `sockaddr_ll` has it.
const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// The header beside a frame. A packet socket has its fields in the machine's order, which is
/// little-endian wherever Xen runs.
pub(super) type Header = [u8; VnetHeader::LEN];

/// Opens a packet socket that receives nothing until it is attached.
pub(super) fn open() -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd)?;
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of packet sockets that is an `int`.
pub(super) fn set_option(fd: BorrowedFd<'_>, option: c_int, value: c_int) -> Result<()> {
    set(fd, libc::SOL_PACKET, option, &value)
}

/// Sets the room of a queue of the socket in bytes, beyond the system's limit if this process may.
pub(super) fn set_room(fd: BorrowedFd<'_>, options: [c_int; 2], bytes: c_int) -> Result<()> {
    let [forced, limited] = options;
    match set(fd, libc::SOL_SOCKET, forced, &bytes) {
        Err(Errno::PERM) => set(fd, libc::SOL_SOCKET, limited, &bytes),
        other => other,
    }
}

/// Leaves out frames for the host itself, by a filter that the kernel runs. The bridge does not
/// know the host's station, and would flood them.
pub(super) fn leave_out_host(fd: BorrowedFd<'_>) -> Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The kind of the packet, as `sockaddr_ll` has it.
    let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, kind),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::PACKET_HOST.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Attaches the socket to the interface of this index: it receives all frames from there,
/// whatever their addresses.
pub(super) fn attach(fd: BorrowedFd<'_>, interface: u32) -> Result<()> {
    let index = c_int::try_from(interface).map_err(|_| Errno::INVAL)?;
    let mut address = no_address();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ALL;
    address.sll_ifindex = index;
    // SAFETY: `bind` reads an address of the given length through the pointer.
    let done = unsafe {
        let address = (&raw const address).cast();
        libc::bind(fd.as_raw_fd(), address, size_of::<sockaddr_ll>() as socklen_t)
    };
    check(done)?;
    let all = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)
}

/// Returns the index of the interface that the socket is attached to, or `None` once the interface
/// is deleted.
pub(super) fn attached(fd: BorrowedFd<'_>) -> Result<Option<u32>> {
    let mut address = no_address();
    let mut len = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: `getsockname` writes at most `len` bytes of an address through the pointer, and the
    // address's own length through the other one.
    let done =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    check(done)?;
    Ok(u32::try_from(address.sll_ifindex).ok().filter(|&index| index > 0))
}

/// Returns the number of frames that found the socket's queue full since the last call.
pub(super) fn take_missed(fd: BorrowedFd<'_>) -> Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as socklen_t;
    // SAFETY: `getsockopt` writes at most `len` bytes of `struct tpacket_stats` through the
    // pointer, and the length through the other one.
    let done = unsafe {
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let value: *mut c_void = (&raw mut stats).cast();
        libc::getsockopt(fd.as_raw_fd(), level, option, value, &raw mut len)
    };
    check(done)?;
    Ok(stats.tp_drops)
}

/// A frame to be sent, with its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub header: Header,
    pub frame: &'a [u8],
}

/// Sends frames, a burst at most, in order. Returns the number of those that were sent: it is less
/// than all if one was refused, which the next call tells.
pub(super) fn send(fd: BorrowedFd<'_>, frames: &[Outgoing<'_>]) -> Result<usize> {
    let mut parts = [[NOTHING; 2]; BURST];
    let mut messages = [no_message(); BURST];
    let mut count: c_uint = 0;
    for ((outgoing, parts), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
        *parts = [reading(&outgoing.header), reading(outgoing.frame)];
        message.msg_hdr.msg_iov = parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = parts.len() as _;
        count += 1;
    }
    // SAFETY: the first `count` messages name parts that are borrowed for the call, and have
    // neither addresses nor control data. The kernel only reads the parts, and writes to the
    // messages.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    check(sent)
}

/// Room for a frame that is to be received.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// For the two addresses that a frame begins with.
    pub addresses: &'a mut [u8; ADDRESSES],
    /// For the bytes behind the addresses.
    pub rest: &'a mut [u8],
}

/// A frame that was received.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Arrived {
    pub header: Header,
    /// Bytes of the frame in its room. A tag that the kernel took out is not among them.
    pub len: usize,
    /// True if the frame was longer than its room.
    pub is_cut: bool,
    /// The VLAN tag that the kernel took out.
    pub tag: Option<Tag>,
}

/// Receives as many frames as there are rooms, `MOST` at most, or as are there. Each room fills the
/// entry of `arrived` at its place. Returns the number of frames.
pub(super) fn receive<const MOST: usize>(
    fd: BorrowedFd<'_>,
    rooms: &mut [Option<Room<'_>>],
    arrived: &mut [Arrived],
) -> Result<usize> {
    let mut parts = [[NOTHING; 3]; MOST];
    let mut controls = [Control([0; CONTROL]); MOST];
    let mut messages = [no_message(); MOST];
    let mut count: c_uint = 0;
    let rooms = rooms.iter_mut().flatten();
    for (n, (room, arrived)) in rooms.zip(arrived.iter_mut()).take(MOST).enumerate() {
        parts[n] = [
            writing(&mut arrived.header),
            writing(room.addresses.as_mut_slice()),
            writing(room.rest),
        ];
        let message = &mut messages[n].msg_hdr;
        message.msg_iov = parts[n].as_mut_ptr();
        message.msg_iovlen = parts[n].len() as _;
        message.msg_control = controls[n].0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        count += 1;
    }
    let no_timeout = std::ptr::null_mut();
    // SAFETY: the first `count` messages name headers, rooms and control data, all of which are
    // borrowed for writing during the call, with their lengths. There are no addresses.
    let received =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, 0, no_timeout) };
    let received = check(received)?;
    for ((message, arrived), control) in
        messages.iter().zip(arrived.iter_mut()).zip(&controls).take(received)
    {
        arrived.len = (message.msg_len as usize).saturating_sub(VnetHeader::LEN);
        arrived.is_cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        arrived.tag = control.tag(message.msg_hdr.msg_controllen as _);
    }
    Ok(received)
}

/// Bytes of the control data of a frame: the head of a message, and `struct tpacket_auxdata`.
const CONTROL: usize = HEAD + (size_of::<tpacket_auxdata>()).next_multiple_of(WORD);
const WORD: usize = size_of::<usize>();
/// Bytes of the head of a control message.
const HEAD: usize = size_of::<libc::cmsghdr>().next_multiple_of(WORD);

/// Room for the control data of a frame.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

impl Control {
    /// Returns the tag that the first `len` bytes tell of.
    fn tag(&self, len: usize) -> Option<Tag> {
        let bytes = self.0.get(..len)?;
        // The fields of `struct cmsghdr` behind its length.
        let at = size_of::<usize>();
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        if word(at)? != libc::SOL_PACKET as u32 || word(at + 4)? != libc::PACKET_AUXDATA as u32 {
            return None;
        }
        let field = |offset: usize| half(HEAD + offset);
        let status = word(HEAD + std::mem::offset_of!(tpacket_auxdata, tp_status))?;
        if status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let kind = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => libc::ETH_P_8021Q as u16,
            _ => field(std::mem::offset_of!(tpacket_auxdata, tp_vlan_tpid))?,
        };
        Some(Tag { kind, value: field(std::mem::offset_of!(tpacket_auxdata, tp_vlan_tci))? })
    }
}

const NOTHING: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn reading(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn writing(bytes: &mut [u8]) -> iovec {
    iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn no_message() -> mmsghdr {
    // SAFETY: all zero is a message without address, parts and control data.
    unsafe { zeroed() }
}

fn no_address() -> sockaddr_ll {
    // SAFETY: all zero is a valid value of each of the integers that the address consists of.
    unsafe { zeroed() }
}

fn set<T: Copy>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> Result<()> {
    // SAFETY: `setsockopt` reads as many bytes through the pointer as the value has.
    let done = unsafe {
        let value: *const c_void = (&raw const *value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, option, value, size_of::<T>() as socklen_t)
    };
    check(done).map(drop)
}

/// Returns what a call answered, or its error.
fn check(answer: c_int) -> Result<usize> {
    usize::try_from(answer).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
    })
}
