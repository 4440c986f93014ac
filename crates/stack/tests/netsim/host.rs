//! A stack at one end of a simulated link.

use crate::wire::{Frame, Wire};
use grantway_frontend::{BackendFeatures, Received, SendError, VifError};
use grantway_netif::Offload;
use grantway_netif::headers::{self, Protocol};
use grantway_stack::smoltcp::iface::PollIngressSingleResult as Ingress;
use grantway_stack::smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::tcp;
use grantway_stack::smoltcp::time::Instant;
use grantway_stack::smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use grantway_stack::{Device, Link};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MTU: usize = 1500;

/// The end of a link that a device has.
pub struct End {
    pub out: Rc<RefCell<Wire>>,
    pub back: Rc<RefCell<Wire>>,
    pub clock: Rc<Cell<u64>>,
    pub features: BackendFeatures,
    /// If there is one, the number that is added to the window of the next frame: a receiver whose
    /// window changes with each frame, as Linux's grows.
    pub grows: Cell<Option<u16>>,
    /// Frames with payload, and their bytes of it, that this end sent.
    pub sent: Cell<(u64, u64)>,
}

impl Link for End {
    fn features(&self) -> BackendFeatures {
        self.features
    }

    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        if let Ok(found) = headers::read(frame, frame.len())
            && found.protocol == Protocol::Tcp
            && found.end > found.header_end
        {
            let (frames, bytes) = self.sent.get();
            self.sent.set((frames + 1, bytes + (found.end - found.header_end) as u64));
        }
        let mut bytes = frame.to_vec();
        if let Some(more) = self.grows.get()
            && let Ok(found) = headers::read(frame, frame.len())
            && found.protocol == Protocol::Tcp
        {
            let [high, low] = [found.start + 14, found.start + 15].map(|at| frame[at]);
            let window = u16::from_be_bytes([high, low]).saturating_sub(16).saturating_add(more);
            bytes[found.start + 14..found.start + 16].copy_from_slice(&window.to_be_bytes());
            self.grows.set(Some((more + 1) % 16));
        }
        self.out.borrow_mut().send(self.clock.get(), Frame { bytes, offload });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), VifError> {
        Ok(())
    }

    fn reap(&mut self) -> Result<usize, VifError> {
        Ok(0)
    }

    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        took: &mut dyn FnMut(usize, Received),
    ) -> Result<usize, VifError> {
        let (mut at, mut count) = (0, 0);
        while at + 65_535 <= arena.len() {
            let Some(frame) = self.back.borrow_mut().arrived(self.clock.get()) else { break };
            let len = frame.bytes.len();
            arena[at..at + len].copy_from_slice(&frame.bytes);
            took(at, Received { len, offload: frame.offload, hash: None });
            at += len;
            count += 1;
        }
        Ok(count)
    }
}

/// A stack at one end.
pub struct Host {
    pub device: Device<End>,
    pub interface: Interface,
    pub sockets: SocketSet<'static>,
}

/// Returns the address of a host.
pub fn address(number: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, number)
}

impl Host {
    pub fn new(number: u8, end: End) -> Self {
        let mut device = Device::new(MTU);
        device.connect(end);
        let mac = HardwareAddress::Ethernet(EthernetAddress([0, 0x16, 0x3e, 0, 0, number]));
        let mut config = Config::new(mac);
        config.random_seed = number.into();
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| list.push(IpCidr::new(address(number), 24)).unwrap());
        Self { device, interface, sockets: SocketSet::new(Vec::new()) }
    }

    pub fn get(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Gives the sockets the frames that have arrived.
    pub fn receive(&mut self, now: Instant) {
        let Self { interface, device, sockets } = self;
        loop {
            device.begin();
            while interface.poll_ingress_single(now, device, sockets) != Ingress::None {}
            if !device.has_taken() {
                return;
            }
        }
    }

    /// Sends what the sockets have.
    pub fn send(&mut self, now: Instant) {
        let Self { interface, device, sockets } = self;
        while interface.poll_egress(now, device, sockets) != PollResult::None {}
    }

    /// Returns the time in nanoseconds at which a socket has something to do.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        let due = self.interface.poll_at(now, &self.sockets);
        let due = due.into_iter().chain(self.device.due()).min()?;
        Some(due.max(now).total_micros() as u64 * 1000)
    }
}
