//! An IPv4 address and a gateway by DHCP.

use core::mem;
use grantway_netif::headers::{Family, Headers, Protocol};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4::{Event, Socket};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpCidr, Ipv4Address, Ipv4Cidr};

/// Most DHCP messages that may be sent at once, and the time after which one more is allowed.
const MESSAGES: u32 = 8;
const A_MESSAGE: Duration = Duration::from_secs(5);
/// Ports of a client and of a server.
const PORTS: [[u8; 2]; 2] = [68_u16.to_be_bytes(), 67_u16.to_be_bytes()];

/// Limit on the rate of a client's messages.
///
/// A server may give a lease of no time, ask for its renewal at once, or refuse each request. Then
/// smoltcp's client (0.14) asks again as often as the server answers. Messages beyond the limit are
/// not sent. The client takes them for lost, and waits for seconds before it repeats one.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Recent messages. One is forgotten in each [`A_MESSAGE`].
    late: u32,
    /// Time up to which messages were forgotten, once there was one.
    since: Option<Instant>,
}

impl Pace {
    /// Returns true if the frame may be sent, and counts it.
    pub fn allows(&mut self, frame: &[u8], found: &Headers, now: Instant) -> bool {
        let ports = found.family == Family::V4 && found.protocol == Protocol::Udp;
        let ports = frame.get(found.start..found.start + 4).filter(|_| ports);
        if ports != Some(PORTS.as_flattened()) {
            return true;
        }
        let mut since = self.since.filter(|_| self.late > 0).unwrap_or(now);
        while self.late > 0 && now >= since + A_MESSAGE {
            self.late -= 1;
            since += A_MESSAGE;
        }
        self.since = Some(if self.late == 0 { now } else { since });
        let allowed = self.late < MESSAGES;
        self.late += u32::from(allowed);
        allowed
    }
}

/// A lease from a server: an address, and the way to other networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The address, with the length of its network's prefix in bits.
    pub address: Ipv4Cidr,
    /// The gateway, if the server named one.
    pub gateway: Option<Ipv4Address>,
}

/// A DHCP client, which gives an interface an address and a default route.
///
/// The socket asks, renews and rebinds by the times of the lease. When a lease ends, its address is
/// removed. Addresses and a gateway that the interface has from elsewhere stay, or come back when
/// the lease ends.
#[derive(Debug)]
pub struct Dhcp {
    handle: SocketHandle,
    lease: Option<Lease>,
    /// True if the interface had the lease's address before.
    had: bool,
    /// The address and the gateway that the lease replaced.
    address: Option<IpCidr>,
    gateway: Option<Ipv4Address>,
}

impl Dhcp {
    /// Adds a client to the sockets.
    pub fn new(sockets: &mut SocketSet<'static>) -> Self {
        let handle = sockets.add(Socket::new());
        Self { handle, lease: None, had: false, address: None, gateway: None }
    }

    /// Returns the lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Asks for a lease as if there had never been one, because the station has a new Ethernet
    /// address.
    pub fn reset(&mut self, sockets: &mut SocketSet<'static>) {
        sockets.get_mut::<Socket<'_>>(self.handle).reset();
    }

    /// Gives the interface the address and the gateway of the lease, or removes those of an ended
    /// lease. Call this after frames came, and after the sockets sent. Returns true if the lease
    /// changed.
    pub fn poll(&mut self, interface: &mut Interface, sockets: &mut SocketSet<'static>) -> bool {
        let next = match sockets.get_mut::<Socket<'_>>(self.handle).poll() {
            None => return false,
            Some(Event::Deconfigured) => None,
            Some(Event::Configured(config)) => {
                Some(Lease { address: config.address, gateway: config.router })
            }
        };
        let before = mem::replace(&mut self.lease, next);
        if before == next {
            return false;
        }
        interface.update_ip_addrs(|list| {
            if let Some(lease) = before {
                let had = mem::take(&mut self.had);
                list.retain(|&address| had || address != lease.address.into());
                if let Some(address) = self.address.take() {
                    let _ = list.push(address);
                }
            }
            if let Some(lease) = next {
                let address = IpCidr::from(lease.address);
                self.had = list.contains(&address);
                // smoltcp has room for eight addresses. One that was configured gives way.
                if !self.had && list.is_full() {
                    self.address = list.pop();
                }
                if !self.had {
                    let _ = list.insert(0, address);
                }
            }
        });
        let routes = interface.routes_mut();
        if before.is_some_and(|lease| lease.gateway.is_some()) {
            routes.remove_default_ipv4_route();
            if let Some(gateway) = self.gateway.take() {
                let _ = routes.add_default_ipv4_route(gateway);
            }
        }
        if let Some(gateway) = next.and_then(|lease| lease.gateway) {
            // There is room for one default route, which replaces an earlier one.
            let former = routes.add_default_ipv4_route(gateway).ok().flatten();
            self.gateway = former.and_then(|route| match route.via_router {
                IpAddress::Ipv4(gateway) => Some(gateway),
                _ => None,
            });
        }
        true
    }
}
