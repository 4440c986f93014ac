//! The guest's services by TCP: echo, discard, and the page.

use crate::flows::FlowsLog;
use crate::iperf;
use crate::page;
use crate::places::{Place, give_up};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_stack::smoltcp::iface::SocketSet;
use grantway_stack::smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use grantway_stack::{DeviceStats, tcp_socket};

/// Connections of each kind at once.
const CONNECTIONS: usize = 4;
/// Time for which a peer may be silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of a socket's buffer for each direction.
const BUFFER_MAX: usize = 256 << 10;
/// Divisor of the guest's memory that gives the most that buffers of sockets may take.
const BUFFERS_PART: usize = 4;

/// Service of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sends back what comes.
    Echo,
    /// Takes what comes.
    Take,
    /// Shows the page.
    Page,
}

/// Bytes of a request by which it is known what it asks for.
const HEAD: usize = LOG.len();
/// Request for the log of flows. All others are for the page.
const LOG: &[u8] = b"GET /stack-log ";

const KINDS: [(Kind, u16); 3] = [(Kind::Echo, 7), (Kind::Take, 9), (Kind::Page, 80)];

/// A request for the page.
#[derive(Default)]
struct Request {
    /// Rest of the page that is to be sent, while one is.
    rest: Option<Vec<u8>>,
    /// The first bytes of the request, and their number.
    head: [u8; HEAD],
    len: usize,
    /// The last bytes of the request.
    tail: u32,
}

/// The guest's services.
pub struct Services {
    services: Vec<Service>,
    counts: Counts,
}

/// The connections of one kind.
struct Service {
    kind: Kind,
    port: u16,
    places: Vec<Place<Request>>,
}

/// Counts of the services.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Bytes that were echoed.
    pub echoed: u64,
    /// Bytes that were taken.
    pub taken: u64,
    /// Pages that were shown.
    pub pages: u64,
    /// Connections that were ended since they were silent while all places were taken.
    pub given_up: u64,
}

/// Figures that the page shows, beside the counts of the services.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    /// Time since the host started.
    pub host: Duration,
    /// Pages that the backend has staged.
    pub staged: usize,
    /// Counts of iperf.
    pub iperf: iperf::Counts,
    /// Counters of the stack's device.
    pub device: DeviceStats,
    /// Counters of the platform.
    pub own: OwnFigures,
    /// The log of flows, if one is kept.
    pub log: Option<&'a FlowsLog>,
}

/// Returns the platform's counters by name.
pub type OwnFigures = fn() -> Vec<(&'static str, u64)>;

impl Services {
    /// Adds the sockets, for a guest of so many bytes of memory.
    ///
    /// # Errors
    ///
    /// A port cannot be listened on.
    pub fn open(sockets: &mut SocketSet<'static>, memory: usize) -> Result<Self, String> {
        let count = KINDS.len() * CONNECTIONS;
        let bytes = (memory / BUFFERS_PART / count / 2).min(BUFFER_MAX);
        let mut services = Vec::new();
        for (kind, port) in KINDS {
            let mut places = Vec::new();
            for _ in 0..CONNECTIONS {
                let send = SocketBuffer::new(vec![0; bytes]);
                let mut socket = tcp_socket(bytes, send, PATIENCE.into());
                socket.listen(port).map_err(|e| format!("port {port}: {e}"))?;
                places.push(Place::new(sockets.add(socket), Request::default()));
            }
            services.push(Service { kind, port, places });
        }
        Ok(Self { services, counts: Counts::default() })
    }

    /// Reads and writes the sockets. Returns true if anything moved.
    pub fn turn(&mut self, sockets: &mut SocketSet<'static>, figures: &Figures<'_>) -> bool {
        let mut moved = false;
        for service in &mut self.services {
            moved |= service.turn(sockets, figures, &mut self.counts);
        }
        moved
    }
}

impl Service {
    fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        figures: &Figures<'_>,
        counts: &mut Counts,
    ) -> bool {
        let mut any = false;
        for place in &mut self.places {
            let socket: &mut Socket<'_> = sockets.get_mut(place.handle);
            let mut moved = match self.kind {
                Kind::Echo => echo(socket, &mut counts.echoed),
                Kind::Take => take(socket, &mut counts.taken),
                Kind::Page => {
                    let page = |asked: &[u8]| {
                        counts.pages += 1;
                        match figures.log {
                            Some(log) if asked == LOG => page::log(log),
                            _ => page::page(figures, *counts),
                        }
                    };
                    show(socket, &mut place.own, page)
                }
            };
            // What the peer has closed is closed here, once all is sent.
            if socket.state() == State::CloseWait && socket.send_queue() == 0 {
                socket.close();
                moved = true;
            }
            place.note(socket, moved, figures.host);
            if !socket.is_open() {
                place.own = Request::default();
                // The port is not 0, and the socket is closed.
                let _ = socket.listen(self.port);
                moved = true;
            }
            any |= moved;
        }
        let given_up = give_up(&self.places, sockets, figures.host);
        counts.given_up += u64::from(given_up);
        any | given_up
    }
}

fn echo(socket: &mut Socket<'_>, count: &mut u64) -> bool {
    let mut moved = false;
    let mut part = [0; 4096];
    for _ in 0..BUFFER_MAX / part.len() {
        let room = (socket.send_capacity() - socket.send_queue()).min(part.len());
        if !socket.can_recv() || !socket.may_send() || room == 0 {
            break;
        }
        let Ok(read) = socket.recv_slice(&mut part[..room]) else { break };
        // There is room for all of it.
        let sent = socket.send_slice(&part[..read]).unwrap_or(0);
        *count += sent as u64;
        moved = true;
    }
    moved
}

fn take(socket: &mut Socket<'_>, count: &mut u64) -> bool {
    let mut moved = false;
    for _ in 0..2 {
        let read = socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0);
        *count += read as u64;
        moved |= read > 0;
    }
    moved
}

/// Answers a request, which ends in an empty line, with the page that its first bytes ask for, and
/// closes.
fn show(
    socket: &mut Socket<'_>,
    Request { rest, head, len, tail }: &mut Request,
    page: impl FnOnce(&[u8]) -> Vec<u8>,
) -> bool {
    let mut moved = false;
    if rest.is_none() {
        let asked = socket.recv(|bytes| {
            for (place, byte) in head[*len..].iter_mut().zip(bytes.iter()) {
                *place = *byte;
                *len += 1;
            }
            let ends = bytes.iter().filter(|&&byte| {
                *tail = *tail << 8 | u32::from(byte);
                *tail == u32::from_be_bytes(*b"\r\n\r\n")
            });
            (bytes.len(), ends.count() > 0)
        });
        if asked != Ok(true) {
            return false;
        }
        *rest = Some(page(&head[..*len]));
        moved = true;
    }
    if let Some(bytes) = rest.as_mut().filter(|bytes| !bytes.is_empty()) {
        let sent = socket.send_slice(bytes).unwrap_or(0);
        bytes.drain(..sent);
        moved |= sent > 0;
        if bytes.is_empty() {
            socket.close();
        }
    }
    moved
}

#[cfg(test)]
mod tests;
