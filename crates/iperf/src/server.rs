//! The end that receives.

use super::args::ServerArgs;
use super::guest::{End, Guest, Turn, limit};
use super::report::{Kind, Line};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_iperf2::{Datagram, Report, Tally};
use grantway_ports::{Clock, wall};
use grantway_stack::{Stack, tcp_socket};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::{tcp, udp};
use smoltcp::wire::IpEndpoint;
use std::collections::HashMap;
use std::time::Duration;

/// Most connections at once.
const CONNECTIONS: usize = 16;
/// Bytes that a connection may send before they are read.
const WINDOW: usize = 1 << 20;
/// Bytes of the buffer that data is copied to.
const ROOM: usize = 128 * 1024;
/// Most senders of UDP at once.
const SENDERS: usize = 64;
/// Datagrams, and below them bytes of datagrams, that may wait to be read.
const DATAGRAMS: usize = 4096;
const DATAGRAM_BYTES: usize = 4 << 20;
/// Most datagrams that are read per turn.
const DATAGRAMS_A_TURN: usize = 256;

/// Runs the command.
///
/// # Errors
///
/// The vif cannot be used, or goes away.
pub fn run(args: &ServerArgs) -> Result<(), CommandError> {
    let mut guest = Guest::open(&args.end)?;
    let sockets = guest.stack().sockets();
    let receiver = match args.end.udp {
        true => Receiver::Udp {
            handle: sockets.add(udp_socket(args.end.port)?),
            senders: HashMap::new(),
        },
        false => Receiver::Tcp(
            (0..CONNECTIONS)
                .map(|_| Slot { handle: sockets.add(listener()), test: None })
                .collect(),
        ),
    };
    let teller = Teller { json: args.end.json, interval: args.end.interval, streams: 0, ended: 0 };
    let port = args.end.port;
    let room = args.end.copies.then(|| vec![0; ROOM]);
    guest.run(&mut Server { receiver, room, teller, port, tests: args.tests, wall: wall() })
}

fn listener() -> tcp::Socket<'static> {
    tcp_socket(WINDOW, tcp::SocketBuffer::new(vec![0; 1024]), limit().into())
}

fn udp_socket(port: u16) -> Result<udp::Socket<'static>, CommandError> {
    let buffer = |datagrams: usize, bytes: usize| {
        udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; datagrams], vec![0; bytes])
    };
    let mut socket = udp::Socket::new(buffer(DATAGRAMS, DATAGRAM_BYTES), buffer(64, 64 * 256));
    socket.bind(port).map_err(|e| CommandError::Failed(format!("port {port}: {e}")))?;
    Ok(socket)
}

struct Server {
    receiver: Receiver,
    /// Buffer of the program that data is copied to, if it is to be.
    room: Option<Vec<u8>>,
    teller: Teller,
    port: u16,
    /// Number of tests after which to end.
    tests: Option<u32>,
    /// The clock of the times in datagrams.
    wall: Clock,
}

enum Receiver {
    Tcp(Vec<Slot>),
    Udp { handle: SocketHandle, senders: HashMap<IpEndpoint, Sender> },
}

/// A place for a connection.
struct Slot {
    handle: SocketHandle,
    test: Option<Test>,
}

/// A sender of datagrams.
struct Sender {
    test: Test,
    tally: Tally,
    /// Report that was sent at its end, and is sent again if the sender asks again.
    told: Option<Report>,
}

/// State of a test that is printed.
struct Test {
    stream: u32,
    peer: String,
    began: Duration,
    bytes: u64,
    /// Time at which the last interval ended; below it the counts at that time.
    told: Duration,
    told_bytes: u64,
    told_report: Report,
}

/// Prints, and counts tests.
struct Teller {
    json: bool,
    interval: Option<f64>,
    streams: u32,
    ended: u32,
}

impl Teller {
    fn begin(&mut self, peer: IpEndpoint, now: Duration) -> Test {
        self.streams += 1;
        Test {
            stream: self.streams,
            peer: peer.to_string(),
            began: now,
            bytes: 0,
            told: now,
            told_bytes: 0,
            told_report: Report::default(),
        }
    }

    /// Prints an interval if it is over. Returns the time until the next one ends, if intervals are
    /// wanted.
    fn interval(
        &self,
        test: &mut Test,
        report: Option<Report>,
        now: Duration,
    ) -> Result<Option<Duration>, CommandError> {
        let Some(every) = self.interval.map(Duration::from_secs_f64) else { return Ok(None) };
        if now < test.told + every {
            return Ok(Some(test.told + every - now));
        }
        // The counts of an interval are the difference to the counts at its start.
        let datagrams = report.map(|report| Report {
            lost: report.lost.saturating_sub(test.told_report.lost),
            out_of_order: report.out_of_order.saturating_sub(test.told_report.out_of_order),
            datagrams: report.datagrams.saturating_sub(test.told_report.datagrams),
            ..report
        });
        let line = Line {
            kind: Kind::Interval,
            stream: test.stream,
            peer: test.peer.clone(),
            from: test.told - test.began,
            to: now - test.began,
            bytes: test.bytes - test.told_bytes,
            datagrams,
            connect: None,
        };
        (test.told, test.told_bytes) = (now, test.bytes);
        test.told_report = report.unwrap_or_default();
        line.print(self.json)?;
        Ok(Some(every))
    }

    fn end(
        &mut self,
        test: &Test,
        report: Option<Report>,
        now: Duration,
    ) -> Result<(), CommandError> {
        self.ended += 1;
        let line = Line {
            kind: Kind::End,
            stream: test.stream,
            peer: test.peer.clone(),
            from: Duration::ZERO,
            to: now - test.began,
            bytes: test.bytes,
            datagrams: report,
            connect: None,
        };
        line.print(self.json)
    }
}

impl End for Server {
    fn connected(&mut self, stack: &mut Stack, _: Duration) -> Result<(), CommandError> {
        if let Receiver::Tcp(slots) = &self.receiver {
            for slot in slots {
                listen(stack.sockets().get_mut(slot.handle), self.port)?;
            }
        }
        match self.teller.json {
            true => output::line(r#"{"kind":"ready"}"#),
            false => output::line("ready"),
        }
    }

    fn turn(&mut self, stack: &mut Stack, now: Duration) -> Result<Turn, CommandError> {
        let Self { receiver, room, teller, port, tests, wall } = self;
        let (moved, next) = match receiver {
            Receiver::Tcp(slots) => {
                receive(stack, slots, room.as_deref_mut(), (*port, now), teller)?
            }
            Receiver::Udp { handle, senders } => {
                take(stack.sockets().get_mut(*handle), senders, teller, (now, wall()))?
            }
        };
        let all = tests.is_some_and(|tests| teller.ended >= tests);
        match (moved, all && is_quiet(stack, &self.receiver)) {
            (_, true) => Ok(Turn::Done),
            (true, _) => Ok(Turn::Moved),
            (false, _) => Ok(Turn::Idle(next)),
        }
    }

    fn interrupted(&mut self, now: Duration) -> Result<(), CommandError> {
        if let Receiver::Tcp(slots) = &mut self.receiver {
            for test in slots.iter_mut().filter_map(|slot| slot.test.take()) {
                self.teller.end(&test, None, now)?;
            }
        }
        Ok(())
    }
}

/// Returns true if no connection is open, and no datagram waits to be sent.
fn is_quiet(stack: &mut Stack, receiver: &Receiver) -> bool {
    match receiver {
        Receiver::Tcp(slots) => slots.iter().all(|slot| {
            let socket: &mut tcp::Socket<'_> = stack.sockets().get_mut(slot.handle);
            matches!(socket.state(), tcp::State::Listen | tcp::State::Closed)
        }),
        Receiver::Udp { handle, .. } => {
            stack.sockets().get_mut::<udp::Socket<'_>>(*handle).send_queue() == 0
        }
    }
}

fn listen(socket: &mut tcp::Socket<'_>, port: u16) -> Result<(), CommandError> {
    socket.listen(port).map_err(|e| CommandError::Failed(format!("port {port}: {e}")))
}

/// Reads what connections sent, into `room` if there is some. Returns true if anything came, and the
/// time until something is due.
fn receive(
    stack: &mut Stack,
    slots: &mut [Slot],
    mut room: Option<&mut [u8]>,
    (port, now): (u16, Duration),
    teller: &mut Teller,
) -> Result<(bool, Option<Duration>), CommandError> {
    let (mut moved, mut next) = (false, None);
    for Slot { handle, test } in slots {
        let socket: &mut tcp::Socket<'_> = stack.sockets().get_mut(*handle);
        let begins = test.is_none() && socket.may_recv();
        if let Some(peer) = socket.remote_endpoint().filter(|_| begins || socket.can_recv()) {
            let test = test.get_or_insert_with(|| teller.begin(peer, now));
            match room.as_deref_mut() {
                // The rest is read in the next turn.
                Some(room) => test.bytes += socket.recv_slice(room).unwrap_or(0) as u64,
                // Read twice, since the bytes may lie at both ends of the buffer.
                None => (0..2).for_each(|_| {
                    let read = socket.recv(|bytes| (bytes.len(), bytes.len()));
                    test.bytes += read.unwrap_or(0) as u64;
                }),
            }
            moved = true;
        }
        // A connection that its client has closed is the end of a test.
        if !socket.may_recv()
            && !matches!(socket.state(), tcp::State::Listen | tcp::State::SynReceived)
        {
            if let Some(test) = test.take() {
                teller.end(&test, None, now)?;
                moved = true;
            }
            socket.close();
        }
        if !socket.is_open() {
            listen(socket, port)?;
            moved = true;
        }
        if let Some(test) = test {
            next = sooner(next, teller.interval(test, None, now)?);
        }
    }
    Ok((moved, next))
}

/// Reads datagrams, and answers the last one of each sender. The results are those of [`receive`].
fn take(
    socket: &mut udp::Socket<'_>,
    senders: &mut HashMap<IpEndpoint, Sender>,
    teller: &mut Teller,
    (now, wall): (Duration, Duration),
) -> Result<(bool, Option<Duration>), CommandError> {
    let mut moved = false;
    for _ in 0..DATAGRAMS_A_TURN {
        let Ok((bytes, meta)) = socket.recv() else { break };
        moved = true;
        let Some(datagram) = Datagram::parse(bytes) else { continue };
        let (len, peer) = (bytes.len(), meta.endpoint);
        // A sender that had its report begins another test.
        if datagram.id > 0 && senders.get(&peer).is_some_and(|sender| sender.told.is_some()) {
            senders.remove(&peer);
        }
        if !senders.contains_key(&peer) && (senders.len() >= SENDERS || datagram.id < 0) {
            continue;
        }
        let sender = senders.entry(peer).or_insert_with(|| Sender {
            test: teller.begin(peer, now),
            tally: Tally::new(now),
            told: None,
        });
        if sender.told.is_none() {
            sender.tally.take(datagram, len, now, wall);
            sender.test.bytes += len as u64;
        }
        if datagram.id < 0 {
            let report = sender.tally.report();
            if sender.told.replace(report).is_none() {
                teller.end(&sender.test, Some(report), now)?;
            }
            // If there is no room, the sender asks again.
            let _ = socket.send_slice(&report.bytes(), peer);
        }
    }
    // A sender that is silent for too long has ended its test.
    let mut next = None;
    for sender in senders.values_mut().filter(|sender| sender.told.is_none()) {
        let report = Some(sender.tally.report());
        if now.saturating_sub(sender.tally.last()) >= limit() {
            teller.end(&sender.test, report, sender.tally.last())?;
            sender.told = report;
        } else {
            next = sooner(next, teller.interval(&mut sender.test, report, now)?);
            next = sooner(next, Some(limit()));
        }
    }
    if senders.len() >= SENDERS {
        senders.retain(|_, sender| sender.told.is_none());
    }
    Ok((moved, next))
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
