//! A vif's queue, an interface on it, and its sockets.

use crate::device::Device;
use crate::stats::DeviceStats;
use grantway_frontend::{Queue, Runner, VifError};
use smoltcp::iface::{Config, Context, Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::socket::{Socket, tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::os::fd::BorrowedFd;

/// Frames that a turn takes of each socket, at most.
const FRAMES_A_SOCKET: usize = 64;
/// Those after which the backend is shown what there is.
const FRAMES_A_FLUSH: usize = 4;

/// How soon a socket is looked at that waits for an answer: smoltcp sends again after
/// 10 ms at the earliest.
const WAITING: Duration = Duration::from_millis(5);
/// How soon one that waits for nothing: there are connections to be kept, and given up.
const RESTING: Duration = Duration::from_millis(250);

/// An address, and how many of its bits its network has.
pub type Address = IpCidr;

/// What a stack is to be.
#[derive(Debug, Clone)]
pub struct StackConfig {
    /// Its addresses: up to eight, of either kind.
    pub addresses: Vec<Address>,
    /// Whom packets to other networks go by, of either kind.
    pub gateways: Vec<IpAddress>,
    /// What sequence numbers and the like begin from, which nobody is to guess.
    pub seed: u64,
}

/// TCP and UDP over one queue of a vif, whose [`Runner`] it is.
///
/// A caller receives, has its sockets read and written, and sends, until nothing moves;
/// then it arms, and sleeps on the queue's descriptor for as long as
/// [`Stack::poll_delay`] says. In that order nothing that comes meanwhile is slept over.
pub struct Stack {
    device: Device<Queue>,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// Queues beyond the first, which nobody uses.
    spare: Vec<Queue>,
}

/// A socket of TCP as it fits a [`Stack`], with buffers for what was received and for
/// what is to be sent. `patience` is how long the other end may be silent before it is
/// given up; it is asked for a word four times meanwhile, which also finds a window out
/// of whose opening nobody told.
///
/// smoltcp waits for segments of the size that it has in mind, which is 64 KiB here: for
/// more to send (Nagle's algorithm), and for more to acknowledge. Neither wait is for
/// anything: [`Stack::send`] sends what a turn wrote, and acknowledges what it read, for
/// which it has all sockets do without that delay.
#[must_use]
pub fn tcp_socket(
    receive: tcp::SocketBuffer<'static>,
    send: tcp::SocketBuffer<'static>,
    patience: Duration,
) -> tcp::Socket<'static> {
    let mut socket = tcp::Socket::new(receive, send);
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket.set_timeout(Some(patience));
    socket.set_keep_alive(Some(patience / 4));
    socket
}

impl Stack {
    /// One without a queue yet, for a vif with an MTU of 1500 bytes and no address: a
    /// vif tells both once it is opened, for [`Stack::set_station`].
    #[must_use]
    pub fn new(config: &StackConfig, now: Instant) -> Self {
        let mut device = Device::new(1500);
        let mut own = Config::new(HardwareAddress::Ethernet(EthernetAddress::default()));
        own.random_seed = config.seed;
        let mut interface = Interface::new(own, &mut device, now);
        interface.update_ip_addrs(|list| {
            for &address in config.addresses.iter().filter(|a| a.address().is_unicast()) {
                // Those beyond the eighth are of no use.
                let _ = list.push(address);
            }
        });
        for gateway in &config.gateways {
            // One of either kind fits.
            let routes = interface.routes_mut();
            let _ = match *gateway {
                IpAddress::Ipv4(via) => routes.add_default_ipv4_route(via),
                IpAddress::Ipv6(via) => routes.add_default_ipv6_route(via),
            };
        }
        Self { device, interface, sockets: SocketSet::new(Vec::new()), spare: Vec::new() }
    }

    /// Gives it the vif's Ethernet address, and its MTU in bytes of an IP packet; false,
    /// and nothing is changed, where that is a group's address.
    pub fn set_station(&mut self, mac: [u8; 6], mtu: usize) -> bool {
        let address = EthernetAddress(mac);
        if !address.is_unicast() {
            return false;
        }
        self.interface.set_hardware_addr(HardwareAddress::Ethernet(address));
        self.device.set_mtu(mtu);
        true
    }

    /// Its sockets.
    pub fn sockets(&mut self) -> &mut SocketSet<'static> {
        &mut self.sockets
    }

    /// Its sockets, and what [`smoltcp::socket::tcp::Socket::connect`] asks for beside.
    pub fn connecting(&mut self) -> (&mut SocketSet<'static>, &mut Context) {
        (&mut self.sockets, self.interface.context())
    }

    /// Has a burst of frames that came go to the sockets; whether there was any.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn receive(&mut self, now: Instant) -> Result<bool, VifError> {
        self.device.begin();
        let mut came = self.device.has_frames();
        let Self { interface, device, sockets, .. } = self;
        while interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None {
        }
        came |= self.device.has_fetched();
        self.check()?;
        if let Some(queue) = self.device.link_mut().filter(|_| came) {
            queue.count_turn();
            queue.repost()?;
        }
        Ok(came)
    }

    /// Sends what the sockets have, acknowledgements too, as far as there is room;
    /// whether anything went. Best after those who read and write them had their turn:
    /// then one frame tells of all that they did.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn send(&mut self, now: Instant) -> Result<bool, VifError> {
        let mut went = self.device.flush()?;
        for (_, socket) in self.sockets.iter_mut() {
            // With a delay smoltcp looks at the window before it acknowledges: see
            // `poll_delay`.
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

    fn check(&mut self) -> Result<(), VifError> {
        self.device.take_fault().map_or(Ok(()), Err)
    }

    /// How long nothing happens by itself, at most; none where nothing ever does.
    ///
    /// Not smoltcp's own answer, which panics where a peer sent more than its window
    /// (0.12, `last_scaled_window`) and could not be answered yet.
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
            Socket::Udp(socket) => (socket.send_queue() > 0).then_some(WAITING),
        };
        self.sockets.iter().filter_map(|(_, socket)| of(socket)).min()
    }

    /// The last look before sleeping: true when something is there already.
    ///
    /// # Errors
    ///
    /// The backend broke the protocol, or the platform is gone.
    pub fn arm(&mut self) -> Result<bool, VifError> {
        let here = self.device.has_frames();
        match self.device.link_mut() {
            Some(queue) => Ok(queue.arm()? || here),
            None => Ok(false),
        }
    }

    /// Whether the backend is done with all that was sent.
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

    /// Takes signals in without blocking.
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

    /// Its queue, while the vif is connected.
    pub fn queue(&mut self) -> Option<&mut Queue> {
        self.device.link_mut()
    }

    /// The descriptor of its queue's event channels, while the vif is connected.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.link().map(Queue::descriptor)
    }

    /// What its device did.
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
