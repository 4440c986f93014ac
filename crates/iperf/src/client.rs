//! The end that sends.

use super::args::ClientArgs;
use super::guest::{End, Guest, Turn, limit};
use super::report::{Kind, Line};
use grantway_command::error::CommandError;
use grantway_iperf2::{Amount, DATAGRAM_LEN, Datagram, Report, TEST_LEN, Test};
use grantway_ports::{Clock, wall};
use grantway_stack::{Stack, tcp_socket};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::{tcp, udp};
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::time::Duration;

/// Bytes that all connections together may have sent without an acknowledgement. A backend's bridge
/// keeps as much for a guest whose ring is full, and does not drop it.
const WINDOW: usize = 1 << 20;
/// Longest write of TCP, and the usual one.
const WRITE: u32 = 128 * 1024;
/// Bytes of a datagram that iperf sends by default.
const DATAGRAM: u32 = 1470;
/// Time to wait for the report before the last datagram is sent again.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Most datagrams of a stream that are sent per turn.
const DATAGRAMS_A_TURN: u64 = 64;
/// The first of the ports that streams are sent from.
const FIRST_PORT: u16 = 49_152;

/// Runs the command.
///
/// # Errors
///
/// The vif cannot be used, or the server does not answer.
pub fn run(args: &ClientArgs) -> Result<(), CommandError> {
    let v6 = matches!(args.client, IpAddress::Ipv6(_));
    let same =
        |address: &&grantway_stack::Address| matches!(address.address(), IpAddress::Ipv6(_)) == v6;
    // The command line is judged first: an address of the server's kind, and the length.
    if args.end.address.iter().find(same).is_none() {
        return Err(CommandError::Usage(format!(
            "-c {}: no --address has the same IP version; add one",
            args.client
        )));
    }
    let mut guest = Guest::open(&args.end)?;
    let most = guest.datagram(v6);
    if args.end.udp && args.len.is_some_and(|len| len > most) {
        return Err(CommandError::Usage(format!(
            "-l {}: expected at most {most} bytes, because datagrams are not fragmented (see \
             --mtu)",
            args.len.unwrap_or_default()
        )));
    }
    let len = match (args.len, args.end.udp) {
        (Some(len), _) => len,
        (None, true) => DATAGRAM.min(most),
        (None, false) => WRITE,
    };
    let time = Amount::Time(Duration::from_secs_f64(args.time));
    let amount = args.num.map_or(time, Amount::Bytes);
    let test = Test { udp: args.end.udp, port: args.end.port, len, amount, rate: args.bandwidth };
    let server = IpEndpoint::new(args.client, args.end.port);
    // The port changes, so that a test is not taken for a continuation of the last one.
    let first = FIRST_PORT + (grantway_ports::uptime().subsec_micros() % 16_000) as u16;
    let sockets = guest.stack().sockets();
    let streams = (0..u16::from(args.parallel)).map(|n| Stream {
        number: u32::from(n) + 1,
        port: first + n,
        handle: match args.end.udp {
            true => sockets.add(udp_socket(len as usize)),
            false => {
                let mut socket = caller(WINDOW / usize::from(args.parallel));
                socket.set_congestion_control(args.congestion.control());
                sockets.add(socket)
            }
        },
        sent: 0,
        told_bytes: 0,
        state: State::Begin,
    });
    let mut client = Client {
        streams: streams.collect(),
        data: args.end.copies.then(|| pattern(len as usize)),
        test,
        server,
        json: args.end.json,
        interval: args.end.interval.map(Duration::from_secs_f64),
        connecting: Duration::ZERO,
        began: Duration::ZERO,
        told: Duration::ZERO,
        wall: wall(),
    };
    guest.run(&mut client)
}

/// Returns the bytes that a stream may still send, and the time until its end if it has one.
fn left(amount: Amount, sent: u64, passed: Duration) -> (u64, Option<Duration>) {
    match amount {
        Amount::Time(time) if passed >= time => (0, None),
        Amount::Time(time) => (u64::MAX, Some(time - passed)),
        Amount::Bytes(bytes) => (bytes.saturating_sub(sent), None),
    }
}

/// Makes a socket whose send buffer is filled here, once: all data that it sends is this pattern.
fn caller(window: usize) -> tcp::Socket<'static> {
    tcp_socket(4096, tcp::SocketBuffer::new(pattern(window)), limit().into())
}

/// Returns the data that iperf sends.
fn pattern(len: usize) -> Vec<u8> {
    (b'0'..=b'9').cycle().take(len).collect()
}

fn udp_socket(len: usize) -> udp::Socket<'static> {
    let buffer = |datagrams: usize, bytes: usize| {
        udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; datagrams], vec![0; bytes])
    };
    let datagrams = DATAGRAMS_A_TURN as usize;
    udp::Socket::new(buffer(16, 16 * 2048), buffer(datagrams, datagrams * len))
}

struct Client {
    streams: Vec<Stream>,
    /// Data of a write, if it is to be copied to the socket.
    data: Option<Vec<u8>>,
    test: Test,
    server: IpEndpoint,
    json: bool,
    interval: Option<Duration>,
    /// Time at which the vif was connected.
    connecting: Duration,
    /// Time at which the first stream had its server. The time before, for an address and a
    /// handshake, is no part of the test.
    began: Duration,
    /// Time at which the last interval ended.
    told: Duration,
    wall: Clock,
}

struct Stream {
    number: u32,
    port: u16,
    handle: SocketHandle,
    /// Bytes that were written.
    sent: u64,
    told_bytes: u64,
    state: State,
}

/// State of a stream.
enum State {
    /// Nothing was sent yet.
    Begin,
    /// The stream sends. Datagrams are counted.
    Sending { datagrams: i64 },
    /// All is sent. The server has to acknowledge it, or to report what it has.
    Ending { since: Duration, datagrams: i64, asked: u32 },
    /// The test took this time, and the server reported this.
    Ended { after: Duration, report: Option<Report> },
}

impl End for Client {
    fn connected(&mut self, stack: &mut Stack, now: Duration) -> Result<(), CommandError> {
        self.connecting = now;
        let failed = |e: &dyn std::fmt::Display| CommandError::Failed(format!("connecting: {e}"));
        for stream in &self.streams {
            if self.test.udp {
                let socket: &mut udp::Socket<'_> = stack.sockets().get_mut(stream.handle);
                socket.bind(stream.port).map_err(|e| failed(&e))?;
                continue;
            }
            let (sockets, context) = stack.connecting();
            let socket: &mut tcp::Socket<'_> = sockets.get_mut(stream.handle);
            socket.connect(context, self.server, stream.port).map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    fn turn(&mut self, stack: &mut Stack, now: Duration) -> Result<Turn, CommandError> {
        let (mut moved, mut next) = (false, None);
        if self.streams.iter().all(|stream| matches!(stream.state, State::Begin)) {
            (self.began, self.told) = (now, now);
        }
        let waited = now - self.connecting;
        for stream in &mut self.streams {
            let passed = now - self.began;
            let (did, due) = match self.test.udp {
                true => {
                    let socket = stack.sockets().get_mut(stream.handle);
                    let to = Receiver { server: self.server, test: &self.test, wall: &self.wall };
                    stream.datagrams(socket, to, (passed, waited))?
                }
                false => {
                    let socket = stack.sockets().get_mut(stream.handle);
                    let with = (&self.test, self.data.as_deref());
                    stream.bytes(socket, with, self.server, (passed, waited))?
                }
            };
            moved |= did;
            next = next.into_iter().chain(due).min();
        }
        if self.streams.iter().all(|stream| matches!(stream.state, State::Ended { .. })) {
            self.tell()?;
            return Ok(Turn::Done);
        }
        let due = self.tell_interval(now)?;
        match moved {
            true => Ok(Turn::Moved),
            false => Ok(Turn::Idle(next.into_iter().chain(due).min())),
        }
    }

    fn interrupted(&mut self, now: Duration) -> Result<(), CommandError> {
        let after = now - self.began;
        for stream in &mut self.streams {
            stream.state = State::Ended { after, report: None };
        }
        self.tell()
    }
}

impl Client {
    fn line(&self, kind: Kind, stream: u32, to: Duration, bytes: u64) -> Line {
        let peer = self.server.to_string();
        let waited = self.began.saturating_sub(self.connecting);
        let connect = Some(waited).filter(|_| kind == Kind::End && !self.test.udp);
        Line { kind, stream, peer, from: Duration::ZERO, to, bytes, datagrams: None, connect }
    }

    /// Prints an interval if it is over. Returns the time until the next one ends, if intervals are
    /// wanted.
    fn tell_interval(&mut self, now: Duration) -> Result<Option<Duration>, CommandError> {
        let Some(every) = self.interval else { return Ok(None) };
        if now < self.told + every {
            return Ok(Some(self.told + every - now));
        }
        let from = std::mem::replace(&mut self.told, now) - self.began;
        for at in 0..self.streams.len() {
            let Some(stream) = self.streams.get_mut(at) else { break };
            let bytes = stream.sent - std::mem::replace(&mut stream.told_bytes, stream.sent);
            let number = stream.number;
            let line = self.line(Kind::Interval, number, now - self.began, bytes);
            Line { from, ..line }.print(self.json)?;
        }
        Ok(Some(every))
    }

    /// Prints the results of the whole test.
    fn tell(&self) -> Result<(), CommandError> {
        let (mut all, mut longest) = (0, Duration::ZERO);
        for stream in &self.streams {
            let State::Ended { after, report } = stream.state else { continue };
            all += stream.sent;
            longest = longest.max(after);
            self.line(Kind::End, stream.number, after, stream.sent).print(self.json)?;
            if let Some(report) = report {
                let line = self.line(Kind::Server, stream.number, report.length, report.bytes);
                Line { datagrams: Some(report), ..line }.print(self.json)?;
            }
        }
        if self.streams.len() > 1 {
            self.line(Kind::Sum, 0, longest, all).print(self.json)?;
        }
        let silent = |stream: &&Stream| matches!(stream.state, State::Ended { report: None, .. });
        match self.test.udp && self.streams.iter().find(silent).is_some() {
            true => Err(CommandError::Failed(format!(
                "{} sends no report; start a server there: iperf -s -u",
                self.server
            ))),
            false => Ok(()),
        }
    }
}

impl Stream {
    /// Writes as much as there is room for, of this data if there is some. Returns true if anything
    /// was done, and the time until there is more to do. `passed` is the time since the first stream had its server, and
    /// `waited` since the vif was connected.
    fn bytes(
        &mut self,
        socket: &mut tcp::Socket<'_>,
        (test, data): (&Test, Option<&[u8]>),
        server: IpEndpoint,
        (passed, waited): (Duration, Duration),
    ) -> Result<(bool, Option<Duration>), CommandError> {
        let failed = |what: &str| {
            Err(CommandError::Failed(format!("{server}: {what}; start a server there: iperf -s")))
        };
        match self.state {
            State::Ended { .. } => Ok((false, None)),
            // The test is described first, as soon as the server takes the connection.
            State::Begin => {
                if !socket.is_open() {
                    return failed("it refuses connections");
                }
                if socket.may_send() {
                    let header = socket.send_slice(&test.bytes()).unwrap_or(0);
                    self.sent += header as u64;
                    self.state = State::Sending { datagrams: 0 };
                    return Ok((header == TEST_LEN, None));
                }
                match waited > limit() {
                    true => failed("it does not answer"),
                    false => Ok((false, Some(limit()))),
                }
            }
            State::Sending { .. } => {
                if !socket.may_send() {
                    return failed("it closed the connection");
                }
                let (most, due) = left(test.amount, self.sent, passed);
                if most == 0 {
                    socket.close();
                    self.state = State::Ending { since: passed, datagrams: 0, asked: 0 };
                    return Ok((true, None));
                }
                let most = most.min(test.len.into()) as usize;
                let wrote = match data.and_then(|data| data.get(..most)) {
                    Some(data) => socket.send_slice(data),
                    // The buffer's bytes are the pattern already, so nothing is copied.
                    None => socket.send(|room| (room.len().min(most), room.len().min(most))),
                };
                self.sent += wrote.unwrap_or(0) as u64;
                Ok((wrote.is_ok_and(|wrote| wrote > 0), due))
            }
            State::Ending { since, .. } => {
                // The test is over once the server has acknowledged everything.
                let acknowledged = match socket.state() {
                    tcp::State::FinWait2 | tcp::State::TimeWait => true,
                    tcp::State::Closed => socket.send_queue() == 0,
                    _ => false,
                };
                if acknowledged {
                    self.state = State::Ended { after: passed, report: None };
                    return Ok((true, None));
                }
                match !socket.is_open() || passed - since > limit() {
                    true => failed("it did not accept all data"),
                    false => Ok((false, Some(limit()))),
                }
            }
        }
    }

    /// Sends the datagrams that are due. Times and results are those of [`Stream::bytes`].
    fn datagrams(
        &mut self,
        socket: &mut udp::Socket<'_>,
        to: Receiver<'_>,
        (passed, waited): (Duration, Duration),
    ) -> Result<(bool, Option<Duration>), CommandError> {
        match self.state {
            State::Ended { .. } => Ok((false, None)),
            // The first datagram waits until the server's address is resolved.
            State::Begin if self.sent > 0 => match (socket.send_queue(), waited > limit()) {
                (0, _) => {
                    self.state = State::Sending { datagrams: 1 };
                    Ok((true, None))
                }
                (_, true) => Err(CommandError::Failed(format!(
                    "{}: no host has this address; start the server there",
                    to.server
                ))),
                (_, false) => Ok((false, Some(limit()))),
            },
            State::Begin => Ok((self.put(socket, to, 1), None)),
            State::Sending { datagrams } => Ok(self.send_due(socket, to, passed, datagrams)),
            State::Ending { since, datagrams, asked } => {
                Ok(self.ask(socket, to, passed, (since, datagrams, asked)))
            }
        }
    }

    /// Sends the datagrams that are due by the rate, after `datagrams` that were sent.
    fn send_due(
        &mut self,
        socket: &mut udp::Socket<'_>,
        to: Receiver<'_>,
        passed: Duration,
        mut datagrams: i64,
    ) -> (bool, Option<Duration>) {
        let test = to.test;
        // One datagram less is sent here: the last one asks for the report.
        let (most, end) = left(test.amount, self.sent + u64::from(test.len), passed);
        if most == 0 {
            self.state = State::Ending { since: passed, datagrams, asked: 0 };
            return (true, None);
        }
        let due = |number: i64| {
            let bits = number as f64 * f64::from(test.len) * 8.0;
            Duration::from_secs_f64(bits / test.rate as f64)
        };
        let before = datagrams;
        for _ in 0..most.div_ceil(test.len.into()).min(DATAGRAMS_A_TURN) {
            if due(datagrams) > passed || !self.put(socket, to, datagrams + 1) {
                break;
            }
            datagrams += 1;
        }
        self.state = State::Sending { datagrams };
        let due = due(datagrams).saturating_sub(passed);
        (datagrams > before, end.into_iter().chain([due]).min())
    }

    /// Takes the report, which ends the test. Until it comes the last datagram is sent again.
    fn ask(
        &mut self,
        socket: &mut udp::Socket<'_>,
        to: Receiver<'_>,
        passed: Duration,
        (since, datagrams, asked): (Duration, i64, u32),
    ) -> (bool, Option<Duration>) {
        if let Ok((bytes, meta)) = socket.recv() {
            if meta.endpoint == to.server
                && let Some(report) = Report::parse(bytes)
            {
                self.state = State::Ended { after: since, report: Some(report) };
            }
            return (true, None);
        }
        let next = since + ASK_EVERY * asked;
        if passed < next {
            return (false, Some(next - passed));
        }
        if passed - since > limit() {
            self.state = State::Ended { after: since, report: None };
            return (true, None);
        }
        // The last datagram is counted once, however often it is sent.
        let sent = self.sent;
        let put = self.put(socket, to, -(datagrams + 1));
        if asked > 0 {
            self.sent = sent;
        }
        self.state = State::Ending { since, datagrams, asked: asked + u32::from(put) };
        (put, Some(ASK_EVERY))
    }

    /// Gives the socket a datagram to send. Returns false if there is no room.
    fn put(&mut self, socket: &mut udp::Socket<'_>, to: Receiver<'_>, id: i64) -> bool {
        let len = to.test.len as usize;
        let Ok(room) = socket.send(len, to.server) else { return false };
        let head = Datagram { id, sent: (to.wall)() }.bytes();
        let told = to.test.bytes();
        for (place, byte) in room.iter_mut().zip(head.iter().chain(&told)) {
            *place = *byte;
        }
        self.sent += len as u64;
        true
    }
}

/// The receiver of a stream of datagrams, and the test that it is told.
#[derive(Clone, Copy)]
struct Receiver<'a> {
    server: IpEndpoint,
    test: &'a Test,
    /// Clock of the times in the datagrams.
    wall: &'a Clock,
}

const _: () = assert!(DATAGRAM_LEN + TEST_LEN <= 100, "the shortest -l has room for both");
