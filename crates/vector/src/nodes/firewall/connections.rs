//! Which packets go with which connection.

use super::rule::State;
use crate::batch::{Nanos, PortId};
use crate::headers::{Headers, Network, Transport};
use crate::secret::{Keyed, Secret};
use crate::wire::{u8_at, u16_at, u32_at, u128_at};
use grantway_netif::headers::protocol;
use grantway_netif::headers::tcp_flags::{ACK, FIN, RST, SYN};
use std::collections::HashMap;

/// Connections that all ports share, beyond those that each has for itself.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Most that one port's packets began.
pub const OF_PORT_MAX: u32 = 16_384;
/// Those that each port has for itself, whatever others began.
pub const OF_PORT_LEAST: u32 = 1024;

const SECOND: Nanos = 1_000_000_000;
/// How often old ones are looked for to make room.
const SWEEP: Nanos = SECOND;
/// How long a connection is remembered that nothing comes of: begun, answered, and
/// ending. TCP's is that of RFC 5382.
const BEGUN: Nanos = 60 * SECOND;
const TCP: Nanos = 7440 * SECOND;
const OTHER: Nanos = 180 * SECOND;
const ENDING: Nanos = 30 * SECOND;

/// Both ends, the same for either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    ends: [(u128, u16); 2],
    protocol: u8,
    network: Network,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    /// Whether the lower end began it.
    by_lower: bool,
    answered: bool,
    ending: bool,
    port: PortId,
    until: Nanos,
}

/// A packet's place among the connections.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its state.
    pub state: State,
    key: Option<(Key, bool)>,
}

/// The connections that there are.
#[derive(Debug)]
pub struct Connections {
    known: HashMap<Key, Connection, Keyed>,
    shares: Vec<u32>,
    /// Beyond what each port has for itself.
    common: u32,
    swept: Option<Nanos>,
}

impl Connections {
    /// None yet; the room for what is shared is taken at once.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let known = HashMap::with_capacity_and_hasher(2 * CONNECTIONS_MAX as usize, Keyed(secret));
        Self { known, shares: Vec::new(), common: 0, swept: None }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Looks a packet up.
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
            // A later fragment.
            Transport::Other => false,
            _ => true,
        };
        let state = match known {
            // Both ends were done with it: this is another.
            Some(known) if known.ending && tcp && begins => State::New,
            Some(known) if known.answered || known.by_lower != lower => State::Established,
            Some(_) => State::New,
            None if begins => State::New,
            None => State::Invalid,
        };
        Found { state, key: Some((key, lower)) }
    }

    /// A packet goes on: its connection is remembered, and for how long. `false`
    /// where there is no room for it.
    pub fn note(&mut self, found: &Found, headers: &Headers, from: PortId, now: Nanos) -> bool {
        let Some((key, lower)) = found.key else { return true };
        let tcp = headers.transport == Transport::Tcp;
        match (found.state, self.known.get_mut(&key)) {
            (State::New | State::Established, Some(known)) => {
                if found.state == State::New && (known.ending || known.until < now) {
                    let until = now.saturating_add(BEGUN);
                    *known = Connection {
                        by_lower: lower,
                        answered: false,
                        ending: false,
                        until,
                        ..*known
                    };
                    return true;
                }
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
                true
            }
            (State::New, None) => {
                let until = now.saturating_add(BEGUN);
                let port = from;
                let new =
                    Connection { by_lower: lower, answered: false, ending: false, port, until };
                self.add(key, new, now)
            }
            _ => true,
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

    /// Whether a port may begin one more. Of what is shared it may have as much as is
    /// still free: however many ports take what they can, some is left for the next one
    /// (the dynamic threshold of Choudhury and Hahne, with factor 1).
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

    /// Forgets those that a port's packets began.
    pub fn forget_port(&mut self, port: PortId) {
        self.forget(|connection| connection.port == port);
    }

    /// The state of an ICMP error: that of the packet which it is about.
    fn of_error(&self, bytes: &[u8], headers: &Headers, now: Nanos) -> State {
        let known = inner(bytes, headers)
            .and_then(|(key, _)| self.known.get(&key))
            .is_some_and(|known| known.until >= now);
        if known { State::Established } else { State::Invalid }
    }
}

/// What a packet's connection is known by, and whether it is from the lower end;
/// none of what is no part of any.
fn key(headers: &Headers) -> Option<(Key, bool)> {
    let (ports, protocol) = match headers.transport {
        Transport::Tcp | Transport::Udp => (headers.ports, headers.protocol),
        // Questions and answers are one, by their identifier.
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

/// The connection of the packet that an ICMP error quotes.
fn inner(bytes: &[u8], headers: &Headers) -> Option<(Key, bool)> {
    // A long one continues beyond the bytes that are private; what it quotes begins there.
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
