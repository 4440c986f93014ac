//! A rule of the firewall.

use crate::batch::PortId;
use crate::headers::{Headers, Network};
use crate::prefix::Prefix;
use std::ops::RangeInclusive;

/// Decision of a rule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The frame goes on.
    #[default]
    Accept,
    /// The frame is dropped.
    Drop,
}

/// State of a packet's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// The packet begins a connection, or belongs to one that is not answered yet.
    New = 0,
    /// The packet belongs to an answered connection, or is an ICMP error about a connection.
    Established = 1,
    /// The packet belongs to no connection, and cannot begin one.
    Invalid = 2,
    /// No connections are kept for packets of this kind.
    Untracked = 3,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::New, Self::Established, Self::Invalid, Self::Untracked];

    /// Returns the name of the state in a rule.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Established => "established",
            Self::Invalid => "invalid",
            Self::Untracked => "untracked",
        }
    }
}

/// Pattern that frames have to match, and the decision about them. An empty or missing field
/// matches every frame.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the rule in reports.
    pub name: String,
    /// Decision about matching frames.
    pub action: Action,
    /// Network layer of the frame.
    pub network: Option<Network>,
    /// Protocol, behind IPv6's extension headers.
    pub protocol: Option<u8>,
    /// Networks, of which one has the packet's source address.
    pub sources: Vec<Prefix>,
    /// Networks, of which one has the packet's destination address.
    pub targets: Vec<Prefix>,
    /// Source port, of TCP and UDP.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Destination port, of TCP and UDP.
    pub target_ports: Option<RangeInclusive<u16>>,
    /// Vifs, from one of which the frame comes.
    pub vifs: Vec<PortId>,
    /// States, of which the connection has one.
    pub states: Vec<State>,
}

impl Rule {
    /// Returns true if a frame fits, by plain comparison of one field after the other. The matcher
    /// finds the same result faster.
    #[must_use]
    pub fn fits(&self, headers: &Headers, from: PortId, state: State) -> bool {
        let network = headers.network;
        let is_ip = matches!(network, Network::V4 | Network::V6);
        let within = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || prefixes.iter().any(|p| p.contains(network, address))
        };
        let port = |range: &Option<RangeInclusive<u16>>, port: u16| {
            range.as_ref().is_none_or(|range| headers.has_ports && range.contains(&port))
        };
        self.network.is_none_or(|wanted| wanted == network)
            && self.protocol.is_none_or(|wanted| is_ip && wanted == headers.protocol)
            && within(&self.sources, headers.source)
            && within(&self.targets, headers.target)
            && port(&self.source_ports, headers.ports[0])
            && port(&self.target_ports, headers.ports[1])
            && (self.vifs.is_empty() || self.vifs.contains(&from))
            && (self.states.is_empty() || self.states.contains(&state))
    }
}
