//! Fragments: the pieces of a packet that went through, and its ports.

use crate::batch::{Nanos, PortId};
use crate::headers::{Fragment, Headers};
use crate::node::{Context, Edge, Single, Step};
use crate::reason::Reason;
use crate::report::Report;
use crate::secret::Secret;
use arrayvec::ArrayVec;

/// Rows of packets that are remembered of one port. A row has `WAYS` packets.
const ROWS: usize = 64;
const WAYS: usize = 4;
/// Most packets of one port that are remembered.
pub const FRAGMENTED_MAX: usize = ROWS * WAYS;
/// Most pieces of a packet that are told apart. Pieces that touch are one.
const PIECES: usize = 16;
/// Time that a packet is waited for, as in Linux.
const AGE_MAX: Nanos = 30_000_000_000;

/// Follows fragments without putting them together. Later ones get the ports of the first, so that
/// rules apply to them. None may overlap another, since it is not known how a receiver would put
/// them together (RFC 5722). From its first fragment on, a port has a table of its own, in which
/// new packets push out old ones. So no port makes packets of another port forgotten.
#[derive(Debug)]
pub struct Fragments {
    secret: Secret,
    /// Tables of the ports, by number.
    tables: Vec<Option<Box<Rows>>>,
}

type Rows = [ArrayVec<Packet, WAYS>; ROWS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    source: u128,
    target: u128,
    id: u32,
    protocol: u8,
}

#[derive(Debug)]
struct Packet {
    key: Key,
    since: Nanos,
    ports: Option<[u16; 2]>,
    /// Pieces, each from its first byte up to its end, in order and apart from each other.
    pieces: ArrayVec<(u16, u16), PIECES>,
    end: Option<u16>,
    /// Reason for which no further fragment of the packet goes on.
    refused: Option<Reason>,
}

impl Fragments {
    /// Fragments that may go on.
    pub const ON: Edge = Edge(0);

    /// Makes a node that knows no packet.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self { secret, tables: Vec::new() }
    }

    fn read(&mut self, headers: &mut Headers, from: PortId, now: Nanos) -> Result<(), Reason> {
        let key = Key {
            source: headers.source,
            target: headers.target,
            id: headers.fragment_id,
            protocol: headers.protocol,
        };
        // The port gets a table with its first fragment.
        let at = usize::from(from.0);
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        let Some(table) = self.tables.get_mut(at) else { return Ok(()) };
        let rows = table.get_or_insert_with(|| Box::new([const { ArrayVec::new_const() }; ROWS]));
        let Some(row) = rows.get_mut(key.number(self.secret) as usize % ROWS) else {
            return Ok(());
        };
        // Old packets make room; in a full row the oldest does.
        row.retain(|packet| now.saturating_sub(packet.since) <= AGE_MAX);
        let at = match row.iter().position(|packet| packet.key == key) {
            Some(at) => at,
            None => {
                if row.is_full() {
                    row.remove(0);
                }
                row.push(Packet::new(key, now));
                row.len() - 1
            }
        };
        let Some(packet) = row.get_mut(at) else { return Ok(()) };
        // Pieces that do not fit are dropped before they give or get ports.
        let more = headers.fragment != Fragment::Last;
        packet.take(headers.fragment_at, headers.fragment_end, more)?;
        if headers.fragment == Fragment::First {
            packet.ports = headers.has_ports.then_some(headers.ports);
        } else if let Some(ports) = packet.ports {
            headers.ports = ports;
            headers.has_ports = true;
        }
        if packet.is_whole() {
            row.remove(at);
        }
        Ok(())
    }
}

impl Key {
    fn number(&self, secret: Secret) -> u64 {
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([a, b], [c, d]) = (halves(self.source), halves(self.target));
        let rest = u64::from(self.id) << 32;
        secret.number(&[a, b, c, d, rest | u64::from(self.protocol)])
    }
}

impl Packet {
    fn new(key: Key, now: Nanos) -> Self {
        Self { key, since: now, ports: None, pieces: ArrayVec::new(), end: None, refused: None }
    }

    /// Notes a piece of the packet.
    fn take(&mut self, start: u16, end: u16, more: bool) -> Result<(), Reason> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let overlaps = self.pieces.iter().any(|&(from, to)| start < to && from < end);
        // Bytes lie behind the last fragment, or two fragments are the last.
        let beyond = match (self.end, more) {
            (Some(last), true) => end >= last,
            (Some(_), false) => true,
            (None, true) => false,
            (None, false) => self.pieces.last().is_some_and(|&(_, to)| to > end),
        };
        if overlaps || beyond {
            return Err(self.refuse(Reason::FragmentOverlap));
        }
        // A piece joins the one before it, the one behind it, or both.
        let at = self.pieces.iter().take_while(|&&(from, _)| from < start).count();
        let joins_next = self.pieces.get(at).is_some_and(|&(from, _)| from == end);
        let before =
            at.checked_sub(1).filter(|&n| self.pieces.get(n).is_some_and(|p| p.1 == start));
        match (before, joins_next) {
            (Some(before), true) => {
                let (_, to) = self.pieces.remove(at);
                if let Some(piece) = self.pieces.get_mut(before) {
                    piece.1 = to;
                }
            }
            (Some(before), false) => {
                if let Some(piece) = self.pieces.get_mut(before) {
                    piece.1 = end;
                }
            }
            (None, true) => {
                if let Some(piece) = self.pieces.get_mut(at) {
                    piece.0 = start;
                }
            }
            (None, false) => {
                if self.pieces.try_insert(at, (start, end)).is_err() {
                    return Err(self.refuse(Reason::FragmentPieces));
                }
            }
        }
        if !more {
            self.end = Some(end);
        }
        Ok(())
    }

    /// Lets no further fragment of this packet through.
    fn refuse(&mut self, reason: Reason) -> Reason {
        self.refused = Some(reason);
        reason
    }

    fn is_whole(&self) -> bool {
        matches!((self.end, &self.pieces[..]), (Some(end), [(0, to)]) if *to == end)
    }
}

impl Single for Fragments {
    fn name(&self) -> &'static str {
        "fragments"
    }

    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let (from, now) = (context.batch.frame(number).from, context.now);
        match self.read(context.batch.headers_mut(number), from, now) {
            Ok(()) => Step::To(Self::ON),
            Err(reason) => Step::Drop(reason),
        }
    }

    fn forget(&mut self, port: PortId) {
        if let Some(table) = self.tables.get_mut(usize::from(port.0)) {
            *table = None;
        }
    }

    fn report(&self, report: &mut Report) {
        let rows = self.tables.iter().flatten().flat_map(|rows| rows.iter());
        report.fragmented = rows.map(ArrayVec::len).sum::<usize>() as u64;
    }
}
