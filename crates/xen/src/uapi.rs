//! Interfaces of the drivers behind `/dev/xen`: request numbers, and layouts of arguments.
//!
//! The source is Linux' headers `xen/gntdev.h`, `xen/gntalloc.h` and `xen/evtchn.h`. The test
//! `tests/uapi.rs` compares each value with them. All numbers are made with
//! `_IOC_NONE`, although most requests read and write their argument.
//!
//! The newest request is [`GRANT_COPY`], of Linux 4.5 (commit a4cdb556cae0). The others are older
//! than Linux 3.0. Messages name Linux 4.9, the first long-term kernel that has all of them.
//! [`crate::Xen::require_backend`] asks the drivers.

use rustix::ioctl::{Direction, Opcode, opcode};

/// Makes the number of a request of gntdev or gntalloc.
const fn grant(number: u8, bytes: usize) -> Opcode {
    opcode::from_components(Direction::None, b'G', number, bytes)
}

/// Makes the number of a request of evtchn.
const fn event(number: u8, bytes: usize) -> Opcode {
    opcode::from_components(Direction::None, b'E', number, bytes)
}

/// gntdev: announces a list of grants. Returns the offset at which mmap(2) maps them.
pub const MAP_GRANT_REF: Opcode = grant(0, size_of::<MapGrantRef>());
/// gntdev: forgets an announced list.
pub const UNMAP_GRANT_REF: Opcode = grant(1, size_of::<UnmapGrantRef>());
/// gntdev: carries out a batch of grant copies.
pub const GRANT_COPY: Opcode = grant(8, size_of::<GrantCopy>());
/// gntalloc: makes and grants pages. Returns the offset at which mmap(2) maps them.
pub const ALLOC_GREF: Opcode = grant(5, size_of::<AllocGref>());
/// gntalloc: returns granted pages to the driver.
pub const DEALLOC_GREF: Opcode = grant(6, size_of::<DeallocGref>());
/// evtchn: binds a new port to a port of a peer; returns the new port.
pub const BIND_INTERDOMAIN: Opcode = event(1, size_of::<BindInterdomain>());
/// evtchn: makes a port for a peer to bind to; returns the port.
pub const BIND_UNBOUND_PORT: Opcode = event(2, size_of::<BindUnboundPort>());
/// evtchn: closes a port.
pub const UNBIND: Opcode = event(3, size_of::<PortOf>());
/// evtchn: signals the peer of a port.
pub const NOTIFY: Opcode = event(4, size_of::<PortOf>());
/// evtchn: empties the buffer of fired ports, and clears its overflow.
pub const RESET: Opcode = event(5, 0);

/// [`ALLOC_GREF`]: the peer may write.
pub const ALLOC_WRITABLE: u16 = 1;
/// [`CopySegment::flags`]: the source is a grant.
pub const COPY_SOURCE_GREF: u16 = 1;
/// [`CopySegment::flags`]: the destination is a grant.
pub const COPY_DEST_GREF: u16 = 2;

/// One entry of [`MapGrantRef`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GrantRefOf {
    /// Domain that granted the page.
    pub domid: u32,
    /// Reference of the grant.
    pub gref: u32,
}

/// Argument of [`MAP_GRANT_REF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MapGrantRef {
    /// Number of entries.
    pub count: u32,
    /// Padding.
    pub pad: u32,
    /// Output: the offset for mmap(2).
    pub index: u64,
    /// The entries; `count` of them follow each other.
    pub refs: [GrantRefOf; 1],
}

/// Argument of [`UNMAP_GRANT_REF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct UnmapGrantRef {
    /// Offset that [`MAP_GRANT_REF`] returned.
    pub index: u64,
    /// Number of entries, equal to that of [`MAP_GRANT_REF`].
    pub count: u32,
    /// Padding.
    pub pad: u32,
}

/// One side of a [`CopySegment`]: an address of ours in its first bytes, or a
/// grant as {`u32` reference, `u16` offset, `u16` domain}.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CopyEnd(u64);

impl CopyEnd {
    /// Makes the side of a grant.
    #[must_use]
    pub fn foreign(gref: u32, offset: u16, domid: u16) -> Self {
        let ([a, b, c, d], [e, f], [g, h]) =
            (gref.to_ne_bytes(), offset.to_ne_bytes(), domid.to_ne_bytes());
        Self(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Makes the side of an address of ours.
    #[must_use]
    pub fn local(address: usize) -> Self {
        let mut bytes = [0; 8];
        let address = address.to_ne_bytes();
        bytes[..address.len()].copy_from_slice(&address);
        Self(u64::from_ne_bytes(bytes))
    }
}

/// One copy of [`GRANT_COPY`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CopySegment {
    /// Source of the copy.
    pub source: CopyEnd,
    /// Destination of the copy.
    pub dest: CopyEnd,
    /// Number of bytes. Memory of ours may cross pages, a grant may not.
    pub len: u16,
    /// [`COPY_SOURCE_GREF`], [`COPY_DEST_GREF`], or both.
    pub flags: u16,
    /// Output: a `GNTST_*`.
    pub status: i16,
}

/// Argument of [`GRANT_COPY`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GrantCopy {
    /// Number of segments.
    pub count: u32,
    /// The segments.
    pub segments: *mut CopySegment,
}

/// Argument of [`ALLOC_GREF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AllocGref {
    /// The peer.
    pub domid: u16,
    /// [`ALLOC_WRITABLE`], or 0.
    pub flags: u16,
    /// Number of pages.
    pub count: u32,
    /// Output: the offset for mmap(2).
    pub index: u64,
    /// Output: the references; `count` of them follow each other.
    pub grefs: [u32; 1],
}

/// Argument of [`DEALLOC_GREF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DeallocGref {
    /// Offset that [`ALLOC_GREF`] returned.
    pub index: u64,
    /// Number of pages.
    pub count: u32,
}

/// Argument of [`BIND_INTERDOMAIN`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct BindInterdomain {
    /// The peer.
    pub remote_domain: u32,
    /// Port of the peer.
    pub remote_port: u32,
}

/// Argument of [`BIND_UNBOUND_PORT`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct BindUnboundPort {
    /// The peer.
    pub remote_domain: u32,
}

/// Argument of [`UNBIND`] and [`NOTIFY`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PortOf {
    /// A port of ours.
    pub port: u32,
}
