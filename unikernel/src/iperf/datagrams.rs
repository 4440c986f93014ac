//! Tests by UDP, both ends.

use super::{PATIENCE, Told};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_iperf2::{Amount, Datagram, PORT, REPORT_LEN, Report, Tally, Test};
use grantway_stack::smoltcp::iface::{Context, SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};
use grantway_stack::smoltcp::wire::{IpAddress, IpEndpoint};

/// Bytes of a datagram that a client sends; iperf's own.
const DATAGRAM: usize = 1470;
/// Most senders at once. One that is silent for long makes room.
const SENDERS: usize = 16;
/// Most datagrams that are read or sent per turn.
const A_TURN: usize = 64;
/// Time for which the server's address may be unknown before the console shows it.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Time to wait for the report before the last datagram is sent again.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Makes a socket with room for so many datagrams, and bytes of them, in each direction.
fn socket(received: (usize, usize), sent: (usize, usize)) -> Socket<'static> {
    let buffer = |(datagrams, bytes): (usize, usize)| {
        PacketBuffer::new(vec![PacketMetadata::EMPTY; datagrams], vec![0; bytes])
    };
    Socket::new(buffer(received), buffer(sent))
}

/// A sender's test.
struct Peer {
    peer: IpEndpoint,
    tally: Tally,
    began: Duration,
    /// Report that was sent at its end, and is sent again if the sender asks again.
    reported: Option<Report>,
}

/// The end that receives.
pub(super) struct Receiver {
    handle: SocketHandle,
    peers: Vec<Peer>,
}

impl Receiver {
    /// Adds the socket, for so many bytes of datagrams that were not read yet.
    pub fn open(sockets: &mut SocketSet<'static>, bytes: usize) -> Result<Self, String> {
        let mut socket = socket((bytes / DATAGRAM, bytes), (SENDERS, SENDERS * REPORT_LEN));
        socket.bind(PORT).map_err(|e| format!("port {PORT}: {e}"))?;
        Ok(Self { handle: sockets.add(socket), peers: Vec::new() })
    }

    pub fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        let socket: &mut Socket<'_> = sockets.get_mut(self.handle);
        let mut moved = false;
        for _ in 0..A_TURN {
            let Ok((bytes, meta)) = socket.recv() else { break };
            moved = true;
            let (len, peer) = (bytes.len(), meta.endpoint);
            let Some(datagram) = Datagram::parse(bytes) else { continue };
            if let Some(report) = self.take(datagram, len, peer, now, told) {
                // If there is no room, the sender asks again.
                let _ = socket.send_slice(&report.bytes(), peer);
            }
        }
        self.give_up(now, told);
        moved
    }

    /// Counts a datagram. Returns the report if it was its sender's last.
    fn take(
        &mut self,
        datagram: Datagram,
        len: usize,
        from: IpEndpoint,
        now: Duration,
        told: &mut Told,
    ) -> Option<Report> {
        // A sender that had its report begins another test.
        let again = |peer: &Peer| peer.peer == from && peer.reported.is_some() && datagram.id > 0;
        self.peers.retain(|peer| !again(peer));
        if self.peers.iter().all(|peer| peer.peer != from) {
            if self.peers.len() >= SENDERS {
                self.peers.retain(|peer| peer.reported.is_none());
            }
            if self.peers.len() >= SENDERS || datagram.id < 0 {
                return None;
            }
            let tally = Tally::new(now);
            self.peers.push(Peer { peer: from, tally, began: now, reported: None });
        }
        let peer = self.peers.iter_mut().find(|peer| peer.peer == from)?;
        if peer.reported.is_none() {
            // The sender's clock is another one, of which the jitter is free.
            peer.tally.take(datagram, len, now, now);
            told.counts.received += len as u64;
            if datagram.id < 0 {
                peer.end(told);
            }
        }
        peer.reported.filter(|_| datagram.id < 0)
    }

    /// Ends the test of a sender that is silent for too long.
    fn give_up(&mut self, now: Duration, told: &mut Told) {
        let silent = |peer: &&mut Peer| now.saturating_sub(peer.tally.last()) >= PATIENCE;
        let open = self.peers.iter_mut().filter(|peer| peer.reported.is_none());
        open.filter(silent).for_each(|peer| peer.end(told));
    }

    pub fn delay(&self, now: Duration) -> Option<Duration> {
        let open = self.peers.iter().filter(|peer| peer.reported.is_none());
        open.map(|peer| (peer.tally.last() + PATIENCE).saturating_sub(now)).min()
    }
}

impl Peer {
    fn end(&mut self, told: &mut Told) {
        let report = self.tally.report();
        let took = self.tally.last() - self.began;
        told.ended("from", self.peer, report.bytes, took, &counted(&report));
        self.reported = Some(report);
    }
}

/// Returns what a report says of datagrams.
fn counted(report: &Report) -> String {
    format!(", lost {} of {} datagrams", report.lost, report.datagrams)
}

/// State of a test.
enum State {
    /// The vif is not connected.
    Waiting,
    /// The first datagram waits, since that time, until the server's address of Ethernet is known.
    First(Duration),
    /// Datagrams are sent since this time.
    Sending(Duration),
    /// All are sent, after this time. The server was asked for its report at that time, last.
    Ending {
        took: Duration,
        since: Duration,
        asked: Duration,
    },
    Ended,
}

/// The end that sends.
pub(super) struct Sender {
    server: IpEndpoint,
    test: Test,
    /// Datagrams to send in all, and those that were sent.
    count: i64,
    sent: i64,
    bytes: u64,
    handle: SocketHandle,
    port: u16,
    state: State,
    /// True if the console shows already that the server's address is unknown.
    said: bool,
}

impl Sender {
    /// Adds the socket, whose buffer may take so many bytes.
    pub fn open(
        sockets: &mut SocketSet<'static>,
        room: usize,
        (server, bytes, rate): (IpEndpoint, u64, u64),
        port: u16,
    ) -> Self {
        let datagrams = (room / DATAGRAM).clamp(1, A_TURN);
        let socket = socket((4, 4 * 2048), (datagrams, datagrams * DATAGRAM));
        let amount = Amount::Bytes(bytes);
        Self {
            server,
            test: Test { udp: true, port: server.port, len: DATAGRAM as u32, amount, rate },
            // The last one asks for the report, so there are two at least.
            count: i64::try_from(bytes.div_ceil(DATAGRAM as u64)).unwrap_or(i64::MAX).max(2),
            sent: 0,
            bytes: 0,
            handle: sockets.add(socket),
            port,
            state: State::Waiting,
            said: false,
        }
    }

    pub fn begin(&mut self, now: Duration) {
        if let State::Waiting = self.state {
            self.state = State::First(now);
        }
    }

    pub fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        context: &Context,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        let socket: &mut Socket<'_> = sockets.get_mut(self.handle);
        // smoltcp drops datagrams for which it has no source (0.14, `dispatch`).
        let has_source =
            !matches!(self.server.addr, IpAddress::Ipv4(_)) || context.ipv4_addr().is_some();
        match self.state {
            State::First(_) if self.sent == 0 && has_source => {
                if let Err(why) = socket.bind(self.port) {
                    told.line(format!("iperf: port {}: {why}", self.port));
                    self.state = State::Ended;
                    return true;
                }
                self.put(socket, now, told)
            }
            State::First(_) if self.sent > 0 && socket.send_queue() == 0 => {
                self.state = State::Sending(now);
                true
            }
            State::First(since) if !self.said && now >= since + UNKNOWN => {
                self.said = true;
                told.line(format!(
                    "iperf: {} is not found: no own address, no gateway, or no answer to ARP or neighbour \
                     discovery; trying until it is",
                    self.server
                ));
                true
            }
            State::Sending(began) => self.send(socket, began, now, told),
            State::Ending { took, since, asked } => {
                if let Ok((bytes, meta)) = socket.recv() {
                    if meta.endpoint == self.server
                        && let Some(report) = Report::parse(bytes)
                    {
                        told.ended("to", self.server, self.bytes, took, &counted(&report));
                        self.state = State::Ended;
                    }
                    return true;
                }
                if now < asked + ASK_EVERY {
                    return false;
                }
                if now >= since + PATIENCE {
                    told.ended("to", self.server, self.bytes, took, ", without a report");
                    self.state = State::Ended;
                    return true;
                }
                // The last datagram is counted once, however often it is sent.
                self.write(socket, -self.count, now);
                self.state = State::Ending { took, since, asked: now };
                true
            }
            State::Waiting | State::First(_) | State::Ended => false,
        }
    }

    /// Sends the datagrams that are due by the rate.
    fn send(
        &mut self,
        socket: &mut Socket<'_>,
        began: Duration,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        let before = self.sent;
        while self.sent < self.count && began + self.due(self.sent) <= now {
            if !self.put(socket, now, told) {
                break;
            }
        }
        if self.sent == self.count {
            self.state = State::Ending { took: now - began, since: now, asked: now };
        }
        self.sent > before
    }

    /// Returns the time after which a datagram is due.
    fn due(&self, number: i64) -> Duration {
        let bits = u128::from(number.unsigned_abs()) * 8 * DATAGRAM as u128;
        let nanos = bits * 1_000_000_000 / u128::from(self.test.rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Sends the next datagram. Returns false if there is no room.
    fn put(&mut self, socket: &mut Socket<'_>, now: Duration, told: &mut Told) -> bool {
        let number = self.sent + 1;
        let id = if number == self.count { -number } else { number };
        let wrote = self.write(socket, id, now);
        if wrote {
            self.sent = number;
            self.bytes += DATAGRAM as u64;
            told.counts.sent += DATAGRAM as u64;
        }
        wrote
    }

    fn write(&self, socket: &mut Socket<'_>, id: i64, now: Duration) -> bool {
        let Ok(room) = socket.send(DATAGRAM, self.server) else { return false };
        let head = Datagram { id, sent: now }.bytes();
        for (place, byte) in room.iter_mut().zip(head.iter().chain(&self.test.bytes())) {
            *place = *byte;
        }
        true
    }

    pub fn delay(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::First(since) if !self.said => Some((since + UNKNOWN).saturating_sub(now)),
            State::Sending(began) => Some((began + self.due(self.sent)).saturating_sub(now)),
            State::Ending { asked, .. } => Some((asked + ASK_EVERY).saturating_sub(now)),
            _ => None,
        }
    }
}
