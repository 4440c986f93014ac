//! Connections, and the packets that go with them.

use super::connection::{BEGUN, Change, Connection, Key};
use super::rule::State;
use crate::batch::{Nanos, PortId};
use crate::headers::{Headers, Network, Transport};
use crate::secret::{Keyed, Secret};
use crate::wire::{u8_at, u16_at, u32_at, u128_at};
use grantway_netif::headers::protocol;
use grantway_netif::headers::tcp_flags::{ACK, FIN, RST, SYN};
use std::collections::HashMap;

/// Number of connections that all ports share, in addition to the reserved ones of each port.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Most connections that one port's packets may begin.
pub const OF_PORT_MAX: u32 = 16_384;
/// Number of connections that are reserved for each port.
pub const OF_PORT_LEAST: u32 = 1024;

const SECOND: Nanos = 1_000_000_000;
/// Least time between two searches for old connections to make room.
const SWEEP: Nanos = SECOND;
/// Times that a connection is remembered without a further packet: answered (TCP and
/// others), and ending. TCP's is that of RFC 5382.
const TCP: Nanos = 7440 * SECOND;
const OTHER: Nanos = 180 * SECOND;
const ENDING: Nanos = 30 * SECOND;

/// The place of a packet among the connections.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// State of the packet's connection.
    pub state: State,
    key: Option<(Key, bool)>,
}

/// Error of a connection for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

/// Connections that are remembered.
#[derive(Debug)]
pub struct Connections {
    known: HashMap<Key, Connection, Keyed>,
    shares: Vec<u32>,
    /// Number of connections beyond those that each port has for itself.
    common: u32,
    swept: Option<Nanos>,
}

impl Connections {
    /// Makes an empty table. Allocates the memory of the shared connections at once.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let known = HashMap::with_capacity_and_hasher(2 * CONNECTIONS_MAX as usize, Keyed(secret));
        Self { known, shares: Vec::new(), common: 0, swept: None }
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the connection of a packet, and its state.
    pub fn find(&mut self, bytes: &[u8], headers: &Headers, now: Nanos) -> Found {
        let stateless = |state| Found { state, key: None };
        let Some((key, lower)) = key(headers) else {
            return match headers.transport {
                Transport::Icmp if is_error(headers) => {
                    stateless(self.of_error(bytes, headers, now))
                }
                _ => stateless(State::Untracked),
            };
        };
        let tcp = headers.transport == Transport::Tcp;
        let known = self.known.get(&key).copied().filter(|known| known.until >= now);
        let begins = match headers.transport {
            Transport::Tcp => headers.tcp_flags & (SYN | ACK | RST) == SYN,
            // A later fragment begins no connection.
            Transport::Other => false,
            _ => true,
        };
        let state = match known {
            // Both ends were done with the connection, so this is another one.
            Some(known) if known.ending && tcp && begins => State::New,
            Some(known) if known.answered || known.by_lower != lower => State::Established,
            Some(_) => State::New,
            None if begins => State::New,
            None => State::Invalid,
        };
        Found { state, key: Some((key, lower)) }
    }

    /// Records the connection of a packet that is accepted, with its time of expiry. Returns a
    /// change if other tables need to know it: if the packet begins, answers or ends the
    /// connection, or if the connection lasts a quarter longer than they know.
    ///
    /// # Errors
    /// Returns [`NoRoom`] if there is no room for the connection.
    pub fn note(
        &mut self,
        found: &Found,
        headers: &Headers,
        from: PortId,
        now: Nanos,
    ) -> Result<Option<Change>, NoRoom> {
        let Some((key, lower)) = found.key else { return Ok(None) };
        let tcp = headers.transport == Transport::Tcp;
        match (found.state, self.known.get_mut(&key)) {
            (State::New | State::Established, Some(known)) => {
                // The packet begins the connection anew, after it ended or grew too old.
                if found.state == State::New && (known.ending || known.until < now) {
                    *known = Connection::begun(lower, known.port, now);
                    return Ok(Some(Change::of(key, *known, (true, BEGUN))));
                }
                // An answer or an end changes how long the connection is remembered.
                let before = (known.answered, known.ending);
                known.answered |= known.by_lower != lower;
                known.ending |= tcp && headers.tcp_flags & (FIN | RST) != 0;
                let time = match (known.ending, known.answered) {
                    (true, _) => ENDING,
                    (false, false) => BEGUN,
                    (false, true) => {
                        if tcp {
                            TCP
                        } else {
                            OTHER
                        }
                    }
                };
                known.until = now.saturating_add(time);
                let lasts = known.until.saturating_sub(known.told) > time / 4;
                if before == (known.answered, known.ending) && !lasts {
                    return Ok(None);
                }
                known.told = known.until;
                Ok(Some(Change::of(key, *known, (false, time))))
            }
            (State::New, None) => {
                // Only a new connection needs room.
                let connection = Connection::begun(lower, from, now);
                match self.add(key, connection, now) {
                    true => Ok(Some(Change::of(key, connection, (true, BEGUN)))),
                    false => Err(NoRoom),
                }
            }
            _ => Ok(None),
        }
    }

    /// Applies a change of another table. If this table has no room, it ignores the connection.
    pub fn hear(&mut self, change: &Change, now: Nanos) {
        let Change { key, connection, begins } = *change;
        match self.known.get_mut(&key) {
            // Its port stays the one that it counts for here.
            Some(known) if begins => *known = Connection { port: known.port, ..connection },
            Some(known) => {
                known.until = match (known.ending, connection.ending) {
                    // An end makes it shorter.
                    (_, true) => connection.until,
                    (true, false) => known.until,
                    (false, false) => known.until.max(connection.until),
                };
                known.answered |= connection.answered;
                known.ending |= connection.ending;
                known.told = known.until;
            }
            None => {
                self.add(key, connection, now);
            }
        }
    }

    fn add(&mut self, key: Key, new: Connection, now: Nanos) -> bool {
        let at = usize::from(new.port.0);
        if self.shares.len() <= at {
            self.shares.resize(at + 1, 0);
        }
        let due = self.swept.is_none_or(|swept| now.saturating_sub(swept) >= SWEEP);
        if due && !self.has_room(at) {
            self.swept = Some(now);
            self.forget(|connection| connection.until < now);
        }
        if !self.has_room(at) {
            return false;
        }
        let Some(share) = self.shares.get_mut(at) else { return false };
        *share += 1;
        self.common += u32::from(*share > OF_PORT_LEAST);
        self.known.insert(key, new);
        true
    }

    /// Returns true if a port may begin one more connection. Of what is shared, it may have as much
    /// as is still free. However many ports take what they can, some is left for the next one (the
    /// dynamic threshold of Choudhury and Hahne, with factor 1).
    fn has_room(&self, at: usize) -> bool {
        let Some(&share) = self.shares.get(at) else { return false };
        let free = CONNECTIONS_MAX.saturating_sub(self.common);
        share < OF_PORT_LEAST || share < OF_PORT_MAX && share - OF_PORT_LEAST < free
    }

    fn forget(&mut self, which: impl Fn(&Connection) -> bool) {
        let (shares, common) = (&mut self.shares, &mut self.common);
        self.known.retain(|_, connection| {
            let goes = which(connection);
            if goes && let Some(share) = shares.get_mut(usize::from(connection.port.0)) {
                *common = common.saturating_sub(u32::from(*share > OF_PORT_LEAST));
                *share = share.saturating_sub(1);
            }
            !goes
        });
    }

    /// Forgets the connections that a port's packets began.
    pub fn forget_port(&mut self, port: PortId) {
        self.forget(|connection| connection.port == port);
    }

    /// Returns the state of an ICMP error, which is that of the packet that it quotes.
    fn of_error(&self, bytes: &[u8], headers: &Headers, now: Nanos) -> State {
        let known = inner(bytes, headers)
            .and_then(|(key, _)| self.known.get(&key))
            .is_some_and(|known| known.until >= now);
        if known { State::Established } else { State::Invalid }
    }
}

/// Returns the key of a packet's connection, and true if the packet is from the lower end. Returns
/// none if the packet can have no connection.
fn key(headers: &Headers) -> Option<(Key, bool)> {
    let (ports, protocol) = match headers.transport {
        Transport::Tcp | Transport::Udp => (headers.ports, headers.protocol),
        // Requests and replies of echo are one connection, by their identifier.
        Transport::Icmp if is_echo(headers) => ([headers.ports[1]; 2], headers.protocol),
        Transport::Other if headers.has_ports => (headers.ports, headers.protocol),
        _ => return None,
    };
    Some(ends(headers.network, protocol, [headers.source, headers.target], ports))
}

fn ends(network: Network, protocol: u8, [a, b]: [u128; 2], [p, q]: [u16; 2]) -> (Key, bool) {
    let (from, to) = ((a, p), (b, q));
    let lower = from <= to;
    let ends = if lower { [from, to] } else { [to, from] };
    (Key { ends, protocol, network }, lower)
}

fn is_echo(headers: &Headers) -> bool {
    match headers.network {
        Network::V6 => matches!(headers.ports[0] >> 8, 128 | 129),
        _ => matches!(headers.ports[0] >> 8, 0 | 8),
    }
}

fn is_error(headers: &Headers) -> bool {
    match headers.network {
        Network::V6 => headers.ports[0] >> 8 < 128,
        _ => matches!(headers.ports[0] >> 8, 3 | 4 | 5 | 11 | 12),
    }
}

/// Returns the key of the packet that an ICMP error quotes.
fn inner(bytes: &[u8], headers: &Headers) -> Option<(Key, bool)> {
    // A long error continues beyond the private bytes, but what it quotes begins there.
    let end = bytes.len().min(headers.end as usize);
    let packet = bytes.get(usize::from(headers.payload_at)..end)?;
    let (number, addresses, at) = match headers.network {
        Network::V4 => {
            let words = usize::from(u8_at(packet, 0)? & 15);
            let addresses = [u32_at(packet, 12)?.into(), u32_at(packet, 16)?.into()];
            (u8_at(packet, 9)?, addresses, 4 * words)
        }
        _ => (u8_at(packet, 6)?, [u128_at(packet, 8)?, u128_at(packet, 24)?], 40),
    };
    let ports = match number {
        protocol::TCP | protocol::UDP => [u16_at(packet, at)?, u16_at(packet, at + 2)?],
        protocol::ICMP | protocol::ICMPV6 => [u16_at(packet, at + 4)?; 2],
        _ => return None,
    };
    Some(ends(headers.network, number, addresses, ports))
}
