//! Set-up of a vhost-net device: its memory, its two rings, and its TAP.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{Mode, OFlags},
    io::Errno,
};

use super::error::{VhostError, opening};
use super::receive::{self, Receive};
use super::ring::{Layout, Ring};
use super::sys::{self, Region};
use super::transmit::{self, Transmit};

/// The ring of frames from the kernel (`VHOST_NET_VQ_RX`).
const RECEIVE: u32 = 0;
/// The ring of frames to the kernel (`VHOST_NET_VQ_TX`).
const TRANSMIT: u32 = 1;

/// Features that the port relies on, by bit.
const FEATURES: [(u32, &str); 3] =
    [(32, "VIRTIO_F_VERSION_1"), (15, "VIRTIO_NET_F_MRG_RXBUF"), (29, "VIRTIO_RING_F_EVENT_IDX")];

/// A vhost-net device at work. Closing it takes its TAP away and waits for its thread, which reads
/// and writes nothing afterwards.
#[derive(Debug)]
pub(super) struct Device {
    _device: OwnedFd,
    /// Memory that the device reads and writes: it goes after the device.
    _memory: Arc<Region>,
}

/// Places of both rings and of the bytes of their frames in the region.
const TO: Layout = Transmit::layout(0);
const FROM: Layout = Receive::layout(TO.end);
const BUFFERS: usize = FROM.end.next_multiple_of(receive::BUFFER);
const FRAMES: usize = BUFFERS + receive::BYTES;
/// Bytes of the region.
pub(super) const BYTES: usize = FRAMES + transmit::BYTES;
/// Descriptors of a device: its own, one by which it wakes the port's owner, and one for each ring
/// by which it is woken.
pub(super) const DESCRIPTORS: usize = 4;

/// Both rings, in one region of memory.
#[derive(Debug)]
pub(super) struct Rings {
    pub transmit: Transmit,
    pub receive: Receive,
    pub memory: Arc<Region>,
}

impl Rings {
    /// Makes both rings. All receive buffers are shown.
    ///
    /// # Errors
    ///
    /// There is no memory or no descriptor left.
    pub fn new() -> rustix::io::Result<Self> {
        let memory = Arc::new(Region::new(BYTES)?);
        let ring = |layout| {
            let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok::<_, Errno>(Ring::new(Arc::clone(&memory), layout, kick))
        };
        let transmit = Transmit::new(ring(TO)?, Arc::clone(&memory), FRAMES);
        let mut receive = Receive::new(ring(FROM)?, Arc::clone(&memory), BUFFERS);
        receive.show()?;
        Ok(Self { transmit, receive, memory })
    }
}

impl Device {
    /// Opens a device for a TAP, and starts it on the rings. The device writes to `call` to wake
    /// the port's owner.
    ///
    /// # Errors
    /// [`VhostError`], which names its remedy.
    pub fn start(
        tap: BorrowedFd<'_>,
        name: &str,
        rings: &Rings,
        call: BorrowedFd<'_>,
    ) -> Result<Self, VhostError> {
        let error = |operation| move |errno| VhostError::system(name, operation, errno);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/vhost-net", flags, Mode::empty())
            .map_err(|errno| opening(name, errno))?;
        let device = Self { _device: device, _memory: Arc::clone(&rings.memory) };
        let fd = device._device.as_fd();
        let offered = sys::features(fd).map_err(error("VHOST_GET_FEATURES"))?;
        let mut features = 0;
        for (bit, missing) in FEATURES {
            features |= 1 << bit;
            if offered & (1 << bit) == 0 {
                return Err(VhostError::Feature { missing });
            }
        }
        sys::set_owner(fd).map_err(error("VHOST_SET_OWNER"))?;
        sys::set_features(fd, features).map_err(error("VHOST_SET_FEATURES"))?;
        sys::set_memory(fd, &rings.memory).map_err(error("VHOST_SET_MEM_TABLE"))?;
        for (index, ring) in [(RECEIVE, rings.receive.ring()), (TRANSMIT, rings.transmit.ring())] {
            let layout = ring.layout();
            let addresses = layout.addresses(index, &rings.memory);
            sys::set_ring(fd, layout.entries.into(), addresses).map_err(error("setting a ring"))?;
            sys::set_events(fd, index, ring.kick().as_fd(), call)
                .map_err(error("setting a ring's events"))?;
        }
        for index in [RECEIVE, TRANSMIT] {
            sys::set_backend(fd, index, tap).map_err(error("VHOST_NET_SET_BACKEND"))?;
        }
        Ok(device)
    }
}
