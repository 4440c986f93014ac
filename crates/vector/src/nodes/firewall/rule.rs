//! A rule of the firewall.

use crate::batch::PortId;
use crate::headers::{Headers, Network};
use crate::prefix::Prefix;
use std::ops::RangeInclusive;

/// What becomes of a frame that a rule fits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    #[default]
    Accept,
    /// It is dropped.
    Drop,
}

/// How a packet stands to the connections that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// It begins one, or goes with one that nobody has answered yet.
    New = 0,
    /// It goes with one that was answered, or is an error about one.
    Established = 1,
    /// It goes with none and cannot begin one.
    Invalid = 2,
    /// No connections are kept of such packets.
    Untracked = 3,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::New, Self::Established, Self::Invalid, Self::Untracked];

    /// Its name in a rule.
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

/// What a frame has to be like, and what becomes of it then. What is empty, or
/// missing, fits every frame.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name in reports.
    pub name: String,
    /// What becomes of frames.
    pub action: Action,
    /// Which network layer.
    pub network: Option<Network>,
    /// Protocol, behind IPv6's extension headers.
    pub protocol: Option<u8>,
    /// Where the packet is from: one of these.
    pub sources: Vec<Prefix>,
    /// Where it goes: one of these.
    pub targets: Vec<Prefix>,
    /// Source port, of TCP and UDP.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Destination port, of TCP and UDP.
    pub target_ports: Option<RangeInclusive<u16>>,
    /// The vifs that it comes from: one of these.
    pub vifs: Vec<PortId>,
    /// State of the connection: one of these.
    pub states: Vec<State>,
}

impl Rule {
    /// Whether a frame fits: plainly, one field after the other. The matcher says
    /// the same, faster.
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
