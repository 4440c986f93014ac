//! The plain program's treatment of a frame between two rings, as functions of one frame: headers,
//! firewall, filters, bridge.
//!
//! The rules, the table of filters and the table of stations are those of `grantway-vector`, so that
//! a comparison with its graph is about the way of calling them.

use grantway_command::error::CommandError;
use grantway_netif::headers::{Ipv4, Link, Tcp, Udp, ethertype, protocol};
use grantway_vector::headers::{Headers, Network, Transport};
use grantway_vector::nodes::bridge;
use grantway_vector::nodes::classifier::{Key, Table, Treatment};
use grantway_vector::nodes::firewall::{Action, State};
use grantway_vector::rules::{Names, VifRules, parse};
use grantway_vector::{Frame, Nanos, PortId, Rules, Secret};

/// Group addresses that a bridge does not relay: the first of sixteen (IEEE 802.1Q, table 8-1).
const NOT_RELAYED: u64 = 0x0180_c200_0000;

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// One port.
    To(PortId),
    /// All ports except the sender's.
    Flood,
    /// None.
    Drop,
}

/// Rules and stations of the plain program.
pub struct Judge {
    rules: Rules,
    filters: Table,
    stations: bridge::Table,
}

impl Judge {
    /// Makes a judge with the rules of a file.
    ///
    /// # Errors
    ///
    /// The rules are invalid, or ask for something that the plain program does not have.
    pub fn new(rules: &str, secret: Secret) -> Result<Self, CommandError> {
        let rules = parse(rules, &mut Names::default(), secret).map_err(CommandError::failed)?;
        let filters = &rules.filters.filters;
        let is_known = |treatment| matches!(treatment, Treatment::Pass | Treatment::Drop);
        if rules.vifs.iter().any(|vif| *vif != VifRules::default())
            || rules.firewall.rules.iter().any(|rule| !rule.states.is_empty())
            || !filters.iter().all(|filter| is_known(filter.treatment))
        {
            return Err(CommandError::Failed(
                "the plain program has no addresses or rates of vifs, no states of connections, \
                 and filters that pass or drop; remove the others from the rules"
                    .into(),
            ));
        }
        let filters = Table::new(filters, secret).map_err(CommandError::failed)?;
        Ok(Self { rules, filters, stations: bridge::Table::new(secret) })
    }

    /// Returns the destination of a frame, by all functions of this module.
    #[inline]
    pub fn judge(&mut self, bytes: &[u8], from: PortId, now: Nanos) -> Fate {
        match headers(bytes) {
            Some(headers)
                if self.passes_firewall(&headers, from)
                    && self.passes_filters(bytes, &headers, from) =>
            {
                self.route(bytes, from, now)
            }
            _ => Fate::Drop,
        }
    }

    /// Returns true if the first rule that fits accepts the frame, as a chain of iptables does.
    #[inline]
    pub fn passes_firewall(&self, headers: &Headers, from: PortId) -> bool {
        let firewall = &self.rules.firewall;
        let fits = firewall.rules.iter().find(|rule| rule.fits(headers, from, State::Untracked));
        fits.map_or(firewall.default, |rule| rule.action) == Action::Accept
    }

    /// Returns true if the first filter that fits passes the frame, as tc's flower does.
    #[inline]
    pub fn passes_filters(&self, bytes: &[u8], headers: &Headers, from: PortId) -> bool {
        let filters = &self.rules.filters.filters;
        if filters.is_empty() {
            return true;
        }
        let key = Key::of(&Frame { from, ..Frame::default() }, bytes, headers);
        let fits = self.filters.first(&key).and_then(|number| filters.get(number));
        fits.is_none_or(|filter| filter.treatment == Treatment::Pass)
    }

    /// Learns the sender's station, and returns the destination of the frame.
    #[inline]
    pub fn route(&mut self, bytes: &[u8], from: PortId, now: Nanos) -> Fate {
        let Some([to, sender]) = stations(bytes) else { return Fate::Drop };
        let age = self.rules.learning.age;
        self.stations.learn(sender, from, (age, self.rules.stations(from)), now);
        if to & !0xf == NOT_RELAYED {
            return Fate::Drop;
        }
        if is_group(to) {
            return Fate::Flood;
        }
        match self.stations.find(to, age, now) {
            Some(port) if port == from => Fate::Drop,
            Some(port) => Fate::To(port),
            None => Fate::Flood,
        }
    }
}

/// Returns the receiver's station and the sender's.
#[inline]
fn stations(bytes: &[u8]) -> Option<[u64; 2]> {
    let &[a, b, c, d, e, f, g, h, i, j, k, l] = bytes.first_chunk()?;
    Some([[0, 0, a, b, c, d, e, f], [0, 0, g, h, i, j, k, l]].map(u64::from_be_bytes))
}

/// Returns true if a station is a group of stations.
#[inline]
fn is_group(station: u64) -> bool {
    station >> 40 & 1 == 1
}

/// Reads the headers of a frame: Ethernet, IPv4, TCP and UDP. Returns `None` if they are malformed.
/// Frames of other protocols pass, since no row sends any.
#[inline]
pub fn headers(bytes: &[u8]) -> Option<Headers> {
    let [_, sender] = stations(bytes)?;
    let link = Link::read(bytes).ok()?;
    if is_group(sender) || matches!(link.ethertype, ethertype::VLAN | ethertype::QINQ) {
        return None;
    }
    let headers = Headers {
        // A frame is at most a page.
        end: bytes.len() as u32,
        network_at: link.at as u16,
        ethertype: link.ethertype,
        vlan: link.vlan,
        ..Headers::default()
    };
    match link.ethertype {
        ethertype::IPV4 => ipv4(bytes, headers),
        _ => Some(headers),
    }
}

#[inline]
fn ipv4(bytes: &[u8], mut headers: Headers) -> Option<Headers> {
    let at = usize::from(headers.network_at);
    let ip = Ipv4::read(bytes, at).ok()?;
    let (length, total) = (ip.header_len(), ip.total_len());
    let header = bytes.get(at..at + length)?;
    if total < length || at + total > bytes.len() || sum(header) != 0xffff {
        return None;
    }
    let &[a, b, c, d, e, f, g, h] = ip.addresses();
    let source = u32::from_be_bytes([a, b, c, d]);
    if source >> 28 == 0xe || source == u32::MAX {
        return None;
    }
    headers.network = Network::V4;
    headers.source = source.into();
    headers.target = u32::from_be_bytes([e, f, g, h]).into();
    headers.protocol = ip.protocol();
    // The packet ends within the frame.
    headers.end = (at + total) as u32;
    headers.transport_at = (at + length) as u16;
    if ip.part().is_whole() { transport(bytes, headers) } else { Some(headers) }
}

#[inline]
fn transport(bytes: &[u8], mut headers: Headers) -> Option<Headers> {
    let packet = bytes.get(..headers.end as usize)?;
    let at = usize::from(headers.transport_at);
    let [a, b, c, d] = match headers.protocol {
        protocol::UDP => {
            let udp = Udp::read(packet, at).ok()?;
            if !(Udp::BYTES..=packet.len() - at).contains(&udp.datagram_len()) {
                return None;
            }
            headers.transport = Transport::Udp;
            udp.ports()
        }
        protocol::TCP => {
            let tcp = Tcp::read(packet, at).ok()?;
            headers.tcp_flags = tcp.flags();
            headers.transport = Transport::Tcp;
            tcp.ports()
        }
        _ => return Some(headers),
    };
    headers.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    headers.has_ports = true;
    Some(headers)
}

/// Returns the one's complement sum of a header's words: 0xffff if its checksum is right.
pub fn sum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    // A header has at most 30 words, so one more carry may be left.
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + sum) as u16
}
