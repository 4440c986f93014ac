//! iperf 2 over smoltcp's sockets: a server, or a client that sends a given number of bytes. It
//! speaks to Debian's `iperf` 2.1.8 and to itself.

mod client;
mod datagrams;
mod server;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use client::Client;
use core::time::Duration;
use grantway_stack::smoltcp::iface::{Context, SocketSet};
use grantway_stack::smoltcp::wire::IpEndpoint;
use server::Server;

/// Time for which a peer may be silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of a socket's buffer.
const BUFFER_MAX: usize = 256 << 10;
/// Lines for the console at once, and the time after which there may be one more. Anyone on the
/// network can begin and end tests.
const LINES: u32 = 32;
const A_LINE: Duration = Duration::from_millis(500);
/// Divisor of the guest's memory that gives the most that buffers of iperf's sockets may take.
const BUFFERS_PART: usize = 8;

/// End of a test that a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A server of TCP and UDP, on the usual port.
    Server,
    /// A client, once the vif is connected.
    Client {
        /// The server.
        server: IpEndpoint,
        /// Bytes to send.
        bytes: u64,
        /// Bits per second, by UDP; none for TCP.
        udp: Option<u64>,
    },
}

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Tests that ended.
    pub tests: u64,
    /// Bytes that were received.
    pub received: u64,
    /// Bytes that were sent.
    pub sent: u64,
}

enum Role {
    Server(Server),
    Client(Client),
}

/// A server or a client of iperf 2.
pub struct Iperf {
    role: Role,
    told: Told,
}

/// Counts, and lines for the console.
#[derive(Default)]
struct Told {
    counts: Counts,
    lines: Vec<String>,
    /// Lines that were told of late. One is forgotten per [`A_LINE`].
    late: u32,
    /// Time up to which they are forgotten.
    since: Duration,
    /// Lines that were left out since the last one.
    left_out: u64,
}

impl Told {
    /// Notes the time.
    fn at(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since).as_millis() / A_LINE.as_millis();
        let forgotten = u32::try_from(passed).unwrap_or(u32::MAX).min(self.late);
        self.late -= forgotten;
        self.since = if self.late == 0 { now } else { self.since + A_LINE * forgotten };
    }

    /// Adds a line, or counts it if there were too many of late.
    fn line(&mut self, line: String) {
        if self.late >= LINES {
            self.left_out += 1;
            return;
        }
        self.late += 1;
        match core::mem::take(&mut self.left_out) {
            0 => self.lines.push(line),
            count => self.lines.push(format!("{line} ({count} lines before it left out)")),
        }
    }

    /// Adds a line about a test that ended: bytes and the time that they took.
    fn ended(&mut self, what: &str, peer: IpEndpoint, bytes: u64, took: Duration, more: &str) {
        self.counts.tests += 1;
        let rate = bytes as u128 * 8_000 / took.as_nanos().max(1);
        self.line(format!("iperf: {bytes} bytes {what} {peer} in {took:.3?}, {rate} Mbit/s{more}"));
    }
}

impl Iperf {
    /// Adds the sockets, for a guest of so many bytes of memory. `seed` is hard to guess: it chooses
    /// the client's port.
    ///
    /// # Errors
    ///
    /// A port cannot be listened on.
    pub fn open(
        wanted: Wanted,
        sockets: &mut SocketSet<'static>,
        memory: usize,
        seed: u64,
    ) -> Result<Self, String> {
        let memory = memory / BUFFERS_PART;
        let role = match wanted {
            Wanted::Server => Role::Server(Server::open(sockets, memory)?),
            Wanted::Client { server, bytes, udp } => {
                Role::Client(Client::open(sockets, memory, (server, bytes, udp), seed))
            }
        };
        Ok(Self { role, told: Told::default() })
    }

    /// Notes that the vif is connected: a client begins.
    pub fn connected(&mut self, now: Duration) {
        if let Role::Client(client) = &mut self.role {
            client.begin(now);
        }
    }

    /// Reads and writes the sockets. Returns true if anything moved.
    pub fn turn(
        &mut self,
        sockets: &mut SocketSet<'static>,
        context: &mut Context,
        now: Duration,
    ) -> bool {
        self.told.at(now);
        match &mut self.role {
            Role::Server(server) => server.turn(sockets, now, &mut self.told),
            Role::Client(client) => client.turn(sockets, context, now, &mut self.told),
        }
    }

    /// Returns the most time until something is due that no frame brings.
    #[must_use]
    pub fn delay(&self, now: Duration) -> Option<Duration> {
        match &self.role {
            Role::Server(server) => server.delay(now),
            Role::Client(client) => client.delay(now),
        }
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.told.counts
    }

    /// Returns lines for the console, once.
    pub fn lines(&mut self) -> Vec<String> {
        core::mem::take(&mut self.told.lines)
    }
}

#[cfg(test)]
mod tests;
