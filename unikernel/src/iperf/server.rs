//! The end that receives.

use super::datagrams::Receiver;
use super::{BUFFER_MAX, PATIENCE, Told};
use crate::places::{Place, give_up};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_iperf2::PORT;
use grantway_stack::smoltcp::iface::SocketSet;
use grantway_stack::smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use grantway_stack::smoltcp::wire::IpEndpoint;
use grantway_stack::tcp_socket;

/// Most connections at once.
const CONNECTIONS: usize = 4;

/// A connection's test.
struct Test {
    peer: IpEndpoint,
    began: Duration,
    /// Time at which the last bytes came.
    last: Duration,
    bytes: u64,
}

/// A server of TCP and UDP.
pub(super) struct Server {
    places: Vec<Place<Option<Test>>>,
    datagrams: Receiver,
}

impl Server {
    /// Adds the sockets, whose buffers may take so many bytes.
    pub fn open(sockets: &mut SocketSet<'static>, memory: usize) -> Result<Self, String> {
        let bytes = (memory / (CONNECTIONS + 1)).min(BUFFER_MAX);
        let mut places = Vec::new();
        for _ in 0..CONNECTIONS {
            let send = SocketBuffer::new(vec![0; 1024]);
            let mut socket = tcp_socket(bytes, send, PATIENCE.into());
            socket.listen(PORT).map_err(|e| format!("port {PORT}: {e}"))?;
            places.push(Place::new(sockets.add(socket), None));
        }
        Ok(Self { places, datagrams: Receiver::open(sockets, bytes)? })
    }

    pub fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        now: Duration,
        told: &mut Told,
    ) -> bool {
        let mut moved = false;
        for place in &mut self.places {
            let socket: &mut Socket<'_> = sockets.get_mut(place.handle);
            let came = receive(socket, &mut place.own, now, told);
            place.note(socket, came, now);
            moved |= came;
        }
        moved |= give_up(&self.places, sockets, now);
        self.datagrams.turn(sockets, now, told) | moved
    }

    pub fn delay(&self, now: Duration) -> Option<Duration> {
        self.datagrams.delay(now)
    }
}

/// Takes what a connection sent. Its end is the end of a test.
fn receive(
    socket: &mut Socket<'_>,
    test: &mut Option<Test>,
    now: Duration,
    told: &mut Told,
) -> bool {
    let mut moved = false;
    let begins = test.is_none() && socket.may_recv();
    if let Some(peer) = socket.remote_endpoint().filter(|_| begins || socket.can_recv()) {
        let test = test.get_or_insert(Test { peer, began: now, last: now, bytes: 0 });
        // Read twice, since the bytes may lie at both ends of the buffer.
        for _ in 0..2 {
            let read = socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0) as u64;
            told.counts.received += read;
            test.bytes += read;
        }
        test.last = now;
        moved = true;
    }
    if !socket.may_recv() && !matches!(socket.state(), State::Listen | State::SynReceived) {
        if let Some(test) = test.take() {
            told.ended("from", test.peer, test.bytes, test.last - test.began, "");
            moved = true;
        }
        socket.close();
    }
    if !socket.is_open() {
        // The port is not 0, and the socket is closed.
        let _ = socket.listen(PORT);
        moved = true;
    }
    moved
}
