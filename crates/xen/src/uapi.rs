//! What the drivers behind `/dev/xen` expect in memory: request numbers, and
//! the layout of their arguments.
//!
//! The facts are those of Linux' `xen/gntdev.h`, `xen/gntalloc.h` and
//! `xen/evtchn.h`, against which `tests/uapi.rs` checks every one of them. All
//! numbers are made with `_IOC_NONE`, although most requests read and write
//! their argument.

use rustix::ioctl::{Direction, Opcode, opcode};

/// A request of gntdev and gntalloc.
const fn grant(number: u8, bytes: usize) -> Opcode {
    opcode::from_components(Direction::None, b'G', number, bytes)
}

/// A request of evtchn.
const fn event(number: u8, bytes: usize) -> Opcode {
    opcode::from_components(Direction::None, b'E', number, bytes)
}

/// gntdev: announces a list of grants, to be mapped by mmap(2) at the offset
/// that comes back.
pub const MAP_GRANT_REF: Opcode = grant(0, size_of::<MapGrantRef>());
/// gntdev: forgets such a list.
pub const UNMAP_GRANT_REF: Opcode = grant(1, size_of::<UnmapGrantRef>());
/// gntdev: does a batch of grant copies.
pub const GRANT_COPY: Opcode = grant(8, size_of::<GrantCopy>());
/// gntalloc: grants pages, to be mapped by mmap(2) at the offset that comes
/// back.
pub const ALLOC_GREF: Opcode = grant(5, size_of::<AllocGref>());
/// gntalloc: gives such pages back.
pub const DEALLOC_GREF: Opcode = grant(6, size_of::<DeallocGref>());
/// evtchn: binds a new port to a port of a peer; gives the new port.
pub const BIND_INTERDOMAIN: Opcode = event(1, size_of::<BindInterdomain>());
/// evtchn: makes a port for a peer to bind to; gives the port.
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
    /// Whose grant.
    pub domid: u32,
    /// Which.
    pub gref: u32,
}

/// Argument of [`MAP_GRANT_REF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MapGrantRef {
    /// Number of entries.
    pub count: u32,
    /// Nothing.
    pub pad: u32,
    /// Comes back: the offset for mmap(2).
    pub index: u64,
    /// The entries; as many as `count` says follow each other.
    pub refs: [GrantRefOf; 1],
}

/// Argument of [`UNMAP_GRANT_REF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct UnmapGrantRef {
    /// As [`MAP_GRANT_REF`] gave it.
    pub index: u64,
    /// Number of entries, the same as then.
    pub count: u32,
    /// Nothing.
    pub pad: u32,
}

/// One side of a [`CopySegment`]: an address of ours in its first bytes, or a
/// grant as {`u32` reference, `u16` offset, `u16` domain}.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CopyEnd(u64);

impl CopyEnd {
    /// A grant.
    #[must_use]
    pub fn foreign(gref: u32, offset: u16, domid: u16) -> Self {
        let ([a, b, c, d], [e, f], [g, h]) =
            (gref.to_ne_bytes(), offset.to_ne_bytes(), domid.to_ne_bytes());
        Self(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// An address.
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
    /// Where from.
    pub source: CopyEnd,
    /// Where to.
    pub dest: CopyEnd,
    /// Bytes. An end of ours may cross pages, a grant may not.
    pub len: u16,
    /// [`COPY_SOURCE_GREF`], [`COPY_DEST_GREF`]; one of them at least.
    pub flags: u16,
    /// Comes back: a `GNTST_*`.
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
    /// [`ALLOC_WRITABLE`].
    pub flags: u16,
    /// Number of pages.
    pub count: u32,
    /// Comes back: the offset for mmap(2).
    pub index: u64,
    /// Come back: the references; as many as `count` says follow each other.
    pub grefs: [u32; 1],
}

/// Argument of [`DEALLOC_GREF`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DeallocGref {
    /// As [`ALLOC_GREF`] gave it.
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
    /// Its port.
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
