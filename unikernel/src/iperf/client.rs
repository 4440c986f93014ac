//! The end that sends.

use super::datagrams::Sender;
use super::{BUFFER_MAX, PATIENCE, Told};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_iperf2::{Amount, Test};
use grantway_stack::smoltcp::iface::{Context, SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::tcp::{Socket, SocketBuffer, State as TcpState};
use grantway_stack::smoltcp::wire::IpEndpoint;
use grantway_stack::tcp_socket;

/// The first of the ports that a test is sent from, and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u64 = 16_000;
/// Length of a write that the server is told.
const WRITE: u32 = 128 << 10;
/// Time after which a server that took no connection is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// State of a test.
enum State {
    /// The vif is not connected, or the server is to be asked again at this time.
    Waiting(Option<Duration>),
    /// The server was asked.
    Asked,
    /// The server took the connection at this time.
    Sending(Duration),
    /// All is written. The server has to acknowledge it.
    Ending(Duration),
    Ended,
}

/// A client of TCP or UDP.
pub(super) struct Client {
    way: Way,
}

enum Way {
    Tcp(Stream),
    Udp(Sender),
}

/// A connection that sends.
struct Stream {
    server: IpEndpoint,
    bytes: u64,
    sent: u64,
    handle: SocketHandle,
    port: u16,
    state: State,
    /// True if the console shows already that the server does not answer.
    said: bool,
}

impl Client {
    /// Adds the socket, whose buffer may take so many bytes.
    pub fn open(
        sockets: &mut SocketSet<'static>,
        memory: usize,
        (server, bytes, udp): (IpEndpoint, u64, Option<u64>),
        seed: u64,
    ) -> Self {
        // The remainder is below 16,000, so it fits.
        let port = FIRST_PORT + (seed % PORTS) as u16;
        let room = memory.min(BUFFER_MAX);
        let way = match udp {
            Some(rate) => Way::Udp(Sender::open(sockets, room, (server, bytes, rate), port)),
            None => Way::Tcp(Stream {
                server,
                bytes,
                sent: 0,
                handle: sockets.add(caller(room)),
                port,
                state: State::Waiting(None),
                said: false,
            }),
        };
        Self { way }
    }

    /// Notes that the vif is connected.
    pub fn begin(&mut self, now: Duration) {
        match &mut self.way {
            Way::Tcp(stream) if matches!(stream.state, State::Waiting(None)) => {
                stream.state = State::Waiting(Some(now));
            }
            Way::Tcp(_) => {}
            Way::Udp(sender) => sender.begin(now),
        }
    }

    pub fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        context: &mut Context,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        match &mut self.way {
            Way::Tcp(stream) => {
                let socket: &mut Socket<'_> = sockets.get_mut(stream.handle);
                stream.turn(socket, context, now, told)
            }
            Way::Udp(sender) => sender.turn(sockets, context, now, told),
        }
    }

    pub fn delay(&self, now: Duration) -> Option<Duration> {
        match &self.way {
            Way::Tcp(stream) => match stream.state {
                State::Waiting(at) => at.map(|at| at.saturating_sub(now)),
                _ => None,
            },
            Way::Udp(sender) => sender.delay(now),
        }
    }
}

/// Makes a socket whose send buffer is filled here, once: all data that it sends is this pattern.
fn caller(room: usize) -> Socket<'static> {
    let pattern = (b'0'..=b'9').cycle().take(room).collect::<Vec<u8>>();
    tcp_socket(4096, SocketBuffer::new(pattern), PATIENCE.into())
}

impl Stream {
    fn turn(
        &mut self,
        socket: &mut Socket<'_>,
        context: &mut Context,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        match self.state {
            State::Waiting(Some(at)) if at <= now => {
                self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS as u16;
                let asked = socket.connect(context, self.server, self.port);
                self.state = match asked {
                    Ok(()) => State::Asked,
                    Err(why) => {
                        told.line(format!("iperf: {}: {why}", self.server));
                        State::Ended
                    }
                };
                true
            }
            // The test is described first.
            State::Asked if socket.may_send() => {
                let server = self.server;
                let amount = Amount::Bytes(self.bytes);
                let test = Test { udp: false, port: server.port, len: WRITE, amount, rate: 0 };
                let header = test.bytes();
                let len = header.len().min(usize::try_from(self.bytes).unwrap_or(usize::MAX));
                self.wrote(socket.send_slice(&header[..len]).unwrap_or(0), told);
                self.state = State::Sending(now);
                true
            }
            State::Asked if !socket.is_open() => {
                if !self.said {
                    self.said = true;
                    told.line(format!(
                        "iperf: {} takes no connection; asking again until it does: iperf -s",
                        self.server
                    ));
                }
                self.state = State::Waiting(Some(now + AGAIN));
                true
            }
            State::Sending(began) => self.send(socket, began, told),
            State::Ending(began) => {
                let all = match socket.state() {
                    TcpState::FinWait2 | TcpState::TimeWait => true,
                    TcpState::Closed => socket.send_queue() == 0,
                    _ => false,
                };
                if all {
                    told.ended("to", self.server, self.sent, now - began, "");
                    self.state = State::Ended;
                } else if !socket.is_open() {
                    self.broken(told);
                }
                matches!(self.state, State::Ended)
            }
            State::Waiting(_) | State::Asked | State::Ended => false,
        }
    }

    fn send(&mut self, socket: &mut Socket<'_>, began: Duration, told: &mut Told) -> bool {
        if !socket.may_send() {
            self.broken(told);
            return true;
        }
        let mut moved = false;
        // Written twice, since the room may lie at both ends of the buffer.
        for _ in 0..2 {
            let left = usize::try_from(self.bytes - self.sent).unwrap_or(usize::MAX);
            // The buffer's bytes are the pattern already, so nothing is copied.
            let wrote = socket.send(|room| (room.len().min(left), room.len().min(left)));
            let wrote = wrote.unwrap_or(0);
            self.wrote(wrote, told);
            moved |= wrote > 0;
        }
        if self.sent == self.bytes {
            socket.close();
            self.state = State::Ending(began);
            moved = true;
        }
        moved
    }

    fn wrote(&mut self, bytes: usize, told: &mut Told) {
        self.sent += bytes as u64;
        told.counts.sent += bytes as u64;
    }

    fn broken(&mut self, told: &mut Told) {
        told.line(format!(
            "iperf: {} ended the connection after {} of {} bytes",
            self.server, self.sent, self.bytes
        ));
        self.state = State::Ended;
    }
}
