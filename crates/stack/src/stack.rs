//! A vif's queue, an interface on it, and its sockets.

use crate::announce::announcement;
use crate::device::Device;
use crate::dhcp::{Dhcp, Lease};
use crate::log::FlowState;
use crate::stats::DeviceStats;
use alloc::vec;
use alloc::vec::Vec;
use grantway_frontend::{Queue, Runner, VifError};
use grantway_netif::Offload;
use smoltcp::iface::{Config, Context, Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::socket::{Socket, tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

/// Most frames of each socket that a turn sends.
const FRAMES_A_SOCKET: usize = 64;
/// Frames of each socket after which the queued frames are published to the backend.
const FRAMES_A_FLUSH: usize = 4;

/// Time after which a socket that waits for an answer is served. smoltcp sends again after a second
/// at the earliest.
const WAITING: Duration = Duration::from_millis(50);
/// Time after which a socket that waits for nothing is served, to keep its connection or to give it
/// up.
const RESTING: Duration = Duration::from_millis(250);
/// Shortest time after which a segment that may be lost is looked at.
const JUDGING: Duration = Duration::from_millis(1);

/// Time after which a DHCP client is served. It asks again after seconds.
const LEASING: Duration = Duration::from_secs(1);

/// Most addresses of a stack, which is smoltcp's limit here.
const ADDRESSES: usize = smoltcp::config::IFACE_MAX_ADDR_COUNT;

/// Multiplier of Knuth's MMIX, by which each seed follows from the one before.
const SEED_STEP: u64 = 6_364_136_223_846_793_005;

/// An address, with the length of its network's prefix in bits.
pub type Address = IpCidr;

/// Configuration of a stack.
#[derive(Debug, Clone)]
pub struct StackConfig {
    /// Addresses of the stack, up to eight, IPv4 or IPv6.
    pub addresses: Vec<Address>,
    /// Gateways to other networks: at most one for IPv4, and one for IPv6.
    pub gateways: Vec<IpAddress>,
    /// True to get a further IPv4 address, and its gateway, by DHCP.
    pub dhcp: bool,
    /// Start of the stack's random numbers, such as sequence numbers. It must be hard to guess.
    pub seed: u64,
}

/// Reason why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An address or a gateway is not the address of one station.
    #[error("address {0}: expected the address of one station")]
    NotUnicast(IpAddress),
    /// There are more addresses than an interface has room for.
    #[error("{0} addresses: expected at most {ADDRESSES}")]
    Addresses(usize),
    /// Two gateways have the same IP version.
    #[error("gateway {0}: expected one of its family")]
    Gateways(IpAddress),
}

impl StackConfig {
    /// Makes a configuration without addresses and without DHCP.
    ///
    /// ```
    /// use grantway_stack::StackConfig;
    ///
    /// let addresses = vec!["10.0.0.2/24".parse().expect("an address")];
    /// let config = StackConfig { addresses, ..StackConfig::new(7) };
    /// assert!(config.gateways.is_empty() && !config.dhcp);
    /// ```
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { addresses: Vec::new(), gateways: Vec::new(), dhcp: false, seed }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let addresses = self.addresses.iter().map(IpCidr::address);
        let mut all = addresses.chain(self.gateways.iter().copied());
        if let Some(address) = all.find(|address| !address.is_unicast()) {
            return Err(ConfigError::NotUnicast(address));
        }
        if self.addresses.len() > ADDRESSES {
            return Err(ConfigError::Addresses(self.addresses.len()));
        }
        for (at, gateway) in self.gateways.iter().enumerate() {
            if self.gateways[..at].iter().any(|other| other.version() == gateway.version()) {
                return Err(ConfigError::Gateways(*gateway));
            }
        }
        Ok(())
    }
}

/// TCP and UDP over one queue of a vif. The stack is the vif's [`Runner`].
///
/// A caller calls [`Stack::receive`], reads and writes its sockets, and calls [`Stack::send`],
/// until nothing moves. Then it calls [`Stack::arm`], and waits for the queue's descriptor, at most
/// for [`Stack::poll_delay`]. In that order it misses no frame.
pub struct Stack {
    device: Device<Queue>,
    interface: Interface,
    sockets: SocketSet<'static>,
    dhcp: Option<Dhcp>,
    /// Queues beyond the first, which are not used.
    spare: Vec<Queue>,
    /// Start of the interface's random numbers.
    seed: u64,
    /// Time at which the stack was made, and of its last turn.
    made: Instant,
    turned: Instant,
}

/// Makes a TCP socket that fits a [`Stack`]. `window` is the number of bytes that the other end may
/// send before they are read. `send` has room for bytes to be sent. `patience` is the time of
/// silence after which the other end is given up. Meanwhile it is asked for an answer four times.
/// This also finds a window that was opened without a notice.
///
/// The window is rounded down to a number that a TCP header can express. smoltcp (0.14, `process`)
/// also scales the window of a SYN, which is not scaled on the wire. Otherwise it would take a
/// burst that is longer than the buffer, and panic.
///
/// smoltcp waits for more data before it sends (Nagle's algorithm), and before it acknowledges.
/// Both waits are useless here, since [`Stack::send`] sends what a turn wrote, and acknowledges
/// what it read. So [`Stack::send`] turns the delay of acknowledgements off for all sockets.
///
/// The socket has smoltcp's preferred congestion control: CUBIC, or Reno without `std`.
/// [`tcp::Socket::set_congestion_control`] changes it. Its window begins with two segments and
/// grows by one segment per acknowledgement, even if one acknowledges 64 KiB. So a connection
/// begins slowly if round trips are long and its peer acknowledges large frames.
#[must_use]
pub fn tcp_socket(
    window: usize,
    send: tcp::SocketBuffer<'static>,
    patience: Duration,
) -> tcp::Socket<'static> {
    let receive = tcp::SocketBuffer::new(vec![0; told_window(window)]);
    let mut socket = tcp::Socket::new(receive, send);
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket.set_timeout(Some(patience));
    socket.set_keep_alive(Some(patience / 4));
    socket
}

/// Returns the longest window up to `bytes` whose field in a header, scaled, does not exceed the
/// window.
fn told_window(bytes: usize) -> usize {
    let field = usize::from(u16::MAX);
    match bytes / field {
        0 => bytes,
        times => field << times.ilog2(),
    }
}

/// Makes an interface without an address on a device.
fn interface(
    device: &mut Device<Queue>,
    station: EthernetAddress,
    seed: u64,
    now: Instant,
) -> Interface {
    let mut config = Config::new(HardwareAddress::Ethernet(station));
    config.random_seed = seed;
    Interface::new(config, device, now)
}

impl Stack {
    /// Makes a stack without a queue, with an MTU of 1500 bytes and without an Ethernet address.
    /// After the vif is opened, pass its MTU and its address to [`Stack::set_station`].
    ///
    /// # Errors
    ///
    /// The configuration has an address or a gateway that a stack cannot have.
    pub fn new(config: &StackConfig, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let mut device = Device::new(1500);
        let mut interface = interface(&mut device, EthernetAddress::default(), config.seed, now);
        interface.update_ip_addrs(|list| {
            for &address in &config.addresses {
                // The check says that there is room.
                let _ = list.push(address);
            }
        });
        for gateway in &config.gateways {
            // Each kind has room for one default route.
            let routes = interface.routes_mut();
            let _ = match *gateway {
                IpAddress::Ipv4(via) => routes.add_default_ipv4_route(via),
                IpAddress::Ipv6(via) => routes.add_default_ipv6_route(via),
            };
        }
        let mut sockets = SocketSet::new(Vec::new());
        let dhcp = config.dhcp.then(|| Dhcp::new(&mut sockets));
        let spare = Vec::new();
        let (seed, made, turned) = (config.seed, now, now);
        Ok(Self { device, interface, sockets, dhcp, spare, seed, made, turned })
    }

    /// Sets the vif's Ethernet address, and its MTU: the length of the longest IP packet, in bytes.
    /// Returns false, and changes nothing, if the address is a multicast address.
    pub fn set_station(&mut self, mac: [u8; 6], mtu: usize) -> bool {
        let address = EthernetAddress(mac);
        if !address.is_unicast() {
            return false;
        }
        if let Some(dhcp) = &mut self.dhcp
            && self.interface.hardware_addr() != HardwareAddress::Ethernet(address)
        {
            dhcp.reset(&mut self.sockets);
        }
        if mtu == self.device.mtu() {
            self.interface.set_hardware_addr(HardwareAddress::Ethernet(address));
            return true;
        }
        // An interface knows the MTU that its device had when it was made. The next one must not
        // begin with the same numbers.
        self.device.set_mtu(mtu);
        self.seed = self.seed.wrapping_mul(SEED_STEP).wrapping_add(1);
        let mut next = interface(&mut self.device, address, self.seed, self.made);
        next.update_ip_addrs(|list| list.extend(self.interface.ip_addrs().iter().copied()));
        let mut routes = None;
        self.interface.routes_mut().update(|list| routes = Some(core::mem::take(list)));
        next.routes_mut().update(|list| *list = routes.unwrap_or_default());
        self.interface = next;
        true
    }

    /// Returns the sockets.
    pub fn sockets(&mut self) -> &mut SocketSet<'static> {
        &mut self.sockets
    }

    /// Returns the sockets, and the context that [`smoltcp::socket::tcp::Socket::connect`] takes.
    pub fn connecting(&mut self) -> (&mut SocketSet<'static>, &mut Context) {
        (&mut self.sockets, self.interface.context())
    }

    /// Returns the DHCP lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.dhcp.as_ref().and_then(Dhcp::lease)
    }

    /// Announces the station to the network, since hosts and switches may still know an earlier
    /// station with its addresses. Call this once the vif is connected. Announcements without room
    /// are left out.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn announce(&mut self) -> Result<(), VifError> {
        let HardwareAddress::Ethernet(station) = self.interface.hardware_addr();
        let Some(queue) = self.device.link_mut() else { return Ok(()) };
        for address in self.interface.ip_addrs() {
            let _ = queue.send(&announcement(station, address.address()), Offload::default());
        }
        queue.flush()
    }

    /// Passes a burst of received frames to the sockets. Returns true if there was a frame. While
    /// too many frames wait for room, none is taken: its answer would have to wait, too.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn receive(&mut self, now: Instant) -> Result<bool, VifError> {
        self.device.begin();
        let Self { interface, device, sockets, .. } = self;
        while interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None {
        }
        let came = self.device.has_taken();
        self.check()?;
        self.renew()?;
        if let Some(queue) = self.device.link_mut().filter(|_| came) {
            queue.count_turn();
            queue.repost()?;
        }
        Ok(came)
    }

    /// Sends the data and acknowledgements of the sockets, as long as there is room. Returns true
    /// if a frame was sent. Call this after the sockets were read and written, so that one frame
    /// acknowledges everything.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn send(&mut self, now: Instant) -> Result<bool, VifError> {
        self.turned = now;
        let mut went = self.device.flush()?;
        for (_, socket) in self.sockets.iter_mut() {
            // `poll_delay` knows no delayed acknowledgements.
            if let Socket::Tcp(socket) = socket {
                socket.set_ack_delay(None);
            }
        }
        for frame in 1..=FRAMES_A_SOCKET {
            let Self { interface, device, sockets, .. } = self;
            if interface.poll_egress(now, device, sockets) == PollResult::None {
                break;
            }
            went = true;
            if frame % FRAMES_A_FLUSH == 0 {
                self.device.flush()?;
            }
        }
        self.device.flush()?;
        self.check()?;
        Ok(went)
    }

    /// Applies the answer of a DHCP server.
    fn renew(&mut self) -> Result<(), VifError> {
        let Self { dhcp, interface, sockets, .. } = self;
        match dhcp.as_mut().is_some_and(|dhcp| dhcp.poll(interface, sockets)) {
            true => self.announce(),
            false => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), VifError> {
        self.device.take_fault().map_or(Ok(()), Err)
    }

    /// Returns the longest time for which the caller may wait without a frame, or `None` if it may
    /// wait for ever.
    ///
    /// smoltcp's own answer is not used. A socket without room in the device would be due at once,
    /// again and again.
    #[must_use]
    pub fn poll_delay(&self) -> Option<Duration> {
        let of = |socket: &Socket<'_>| match socket {
            Socket::Tcp(socket) => match socket.state() {
                tcp::State::Closed | tcp::State::Listen => None,
                tcp::State::Established | tcp::State::CloseWait if socket.send_queue() == 0 => {
                    Some(RESTING)
                }
                tcp::State::FinWait2 | tcp::State::TimeWait => Some(RESTING),
                _ => Some(WAITING),
            },
            Socket::Dhcpv4(_) => Some(LEASING),
            Socket::Udp(socket) => (socket.send_queue() > 0).then_some(WAITING),
        };
        // Nothing is sent again while frames wait for room.
        let sends = self.device.link().is_some() && !self.device.is_blocked();
        let due = self.device.due().filter(|_| sends);
        let judging = due.map(|due| (due.max(self.turned) - self.turned).max(JUDGING));
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).chain(judging).min()
    }

    /// Starts or ends the log of TCP flows. A started log has the flows that begin from now on.
    pub fn log_flows(&mut self, wanted: bool) {
        self.device.log_flows(wanted);
    }

    /// Calls `each` with the state of each flow that had a segment since the last call. Call this
    /// after [`Stack::send`], when only a window holds data back.
    pub fn flow_states(&mut self, each: &mut dyn FnMut(&FlowState)) {
        let Self { device, sockets, .. } = self;
        let ends = |flow: &FlowState| (Some(flow.local), Some(flow.remote));
        let queued = |flow: &FlowState| {
            sockets.iter().find_map(|(_, socket)| match socket {
                Socket::Tcp(socket) => {
                    let own = (socket.local_endpoint(), socket.remote_endpoint());
                    (own == ends(flow)).then(|| socket.send_queue())
                }
                _ => None,
            })
        };
        device.flow_states(queued, each);
    }

    /// Looks for the last time before a wait. Returns true if there is work already. If too many
    /// frames wait for room, the stack waits only for room, even if frames came.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        let (here, full) = (self.device.has_frames(), self.device.is_full());
        match self.device.link_mut() {
            Some(queue) if full => queue.arm_for_room(),
            Some(queue) => Ok(queue.arm()? || here),
            None => Ok(false),
        }
    }

    /// Returns true if the backend has answered all frames that were sent.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol.
    pub fn is_settled(&mut self) -> Result<bool, VifError> {
        let waits = self.device.is_blocked();
        match self.device.link_mut() {
            Some(queue) => queue.reap().map(|_| !waits && queue.outstanding() == 0),
            None => Ok(true),
        }
    }

    /// Takes in signals without waiting.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn take_events(&mut self) -> Result<(), VifError> {
        match self.device.link_mut() {
            Some(queue) => queue.take_events().map(drop),
            None => Ok(()),
        }
    }

    /// Returns the queue, while the vif is connected.
    pub fn queue(&mut self) -> Option<&mut Queue> {
        self.device.link_mut()
    }

    /// Returns the descriptor of the queue's event channels. Returns `None` if the vif is not
    /// connected, or the platform has no descriptors.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.device.link().and_then(Queue::descriptor)
    }

    /// Returns the device's counters.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        self.device.stats()
    }
}

impl Runner for Stack {
    fn start(&mut self, queues: Vec<Queue>) {
        let mut queues = queues.into_iter();
        if let Some(queue) = queues.next() {
            self.device.connect(queue);
        }
        self.spare = queues.collect();
    }

    fn stop(&mut self) -> Vec<Queue> {
        self.device.disconnect().into_iter().chain(self.spare.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(addresses: &[&str], gateways: &[&str]) -> Result<Vec<IpCidr>, ConfigError> {
        let config = StackConfig {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            gateways: gateways.iter().map(|text| text.parse().unwrap()).collect(),
            ..StackConfig::new(1)
        };
        Stack::new(&config, Instant::ZERO).map(|stack| stack.interface.ip_addrs().to_vec())
    }

    #[test]
    fn addresses_that_no_station_has_are_refused_by_name() {
        for text in ["224.0.0.1/24", "255.255.255.255/32", "0.0.0.0/0", "ff02::1/64", "::/0"] {
            let why = made(&["10.0.0.2/24", text], &[]).unwrap_err();
            let address = text.split('/').next().unwrap().parse().unwrap();
            assert_eq!(why, ConfigError::NotUnicast(address));
        }
        let group = "224.0.0.1".parse().unwrap();
        assert_eq!(made(&[], &["224.0.0.1"]), Err(ConfigError::NotUnicast(group)));
    }

    #[test]
    fn addresses_that_fit_are_all_taken_and_one_more_is_refused() {
        let texts = ["fd00::1/64", "10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "fd00::2/64"];
        let more = ["10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24", "10.0.4.1/24"];
        let texts = [&texts[..], &more].concat();
        let all: Vec<IpCidr> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(made(&texts[..8], &["10.0.0.9", "fd00::9"]).unwrap(), all[..8]);
        assert_eq!(made(&texts, &[]), Err(ConfigError::Addresses(9)));
        let second = "10.0.0.8".parse().unwrap();
        let gateways = ["10.0.0.9", "fd00::9", "10.0.0.8"];
        assert_eq!(made(&[], &gateways), Err(ConfigError::Gateways(second)));
    }
}
