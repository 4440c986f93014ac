//! Frames, and graphs that they go through.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod large;

use etherparse::checksum::Sum16BitWords;
use grantway_netif::{Checksum, Gso, Offload};
use grantway_vector::batch::Batch;
use grantway_vector::deliver::{Delivery, Sink};
use grantway_vector::graph::Graph;
use grantway_vector::nodes::Checks;
use grantway_vector::path::Settings;
use grantway_vector::{BATCH_MAX, Frame, PortId, Rules, Secret};
use std::sync::Arc;

pub const SECRET: Secret = Secret(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3211);

/// Parts of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub from: u16,
    /// Stations, by number; 255 is everybody.
    pub stations: [u8; 2],
    pub vlan: Option<u16>,
    pub v6: bool,
    /// Hosts, by number.
    pub hosts: [u8; 2],
    pub kind: Kind,
    pub payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tcp { ports: [u16; 2], flags: u8 },
    Udp { ports: [u16; 2] },
    Echo { id: u16, answer: bool },
    Arp,
    Other,
}

pub fn mac(station: u8) -> [u8; 6] {
    if station == 255 { [0xff; 6] } else { [2, 0, 0, 0, 0, station] }
}

pub fn v4(host: u8) -> [u8; 4] {
    [10, host / 4, 0, host]
}

pub fn v6(host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[7], address[15]) = (0xfd, host / 4, 1, host);
    address
}

impl Packet {
    /// The protocol, of IP.
    pub fn protocol(&self) -> u8 {
        match self.kind {
            Kind::Tcp { .. } => 6,
            Kind::Udp { .. } => 17,
            Kind::Echo { .. } if self.v6 => 58,
            Kind::Echo { .. } => 1,
            Kind::Arp | Kind::Other => 0,
        }
    }

    pub fn network_at(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = [mac(self.stations[1]), mac(self.stations[0])].concat();
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        let payload: Vec<u8> = (0..self.payload).map(|n| n as u8).collect();
        match self.kind {
            Kind::Arp => {
                frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
                frame.extend(mac(self.stations[0]));
                frame.extend(v4(self.hosts[0]));
                frame.extend([0; 6]);
                frame.extend(v4(self.hosts[1]));
                return frame;
            }
            Kind::Other => {
                frame.extend([0x88, 0xb5]);
                frame.extend(payload);
                return frame;
            }
            _ => {}
        }
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        let mut inner = self.transport();
        inner.extend(payload);
        let addresses = match self.v6 {
            false => self.hosts.map(v4).concat(),
            true => self.hosts.map(v6).concat(),
        };
        if let Some(at) = self.checksum_at() {
            let pseudo = [0, self.protocol(), (inner.len() >> 8) as u8, inner.len() as u8];
            let sum = Sum16BitWords::new().add_slice(&addresses).add_slice(&pseudo);
            let sum = match self.kind {
                Kind::Echo { .. } if !self.v6 => Sum16BitWords::new(),
                _ => sum,
            };
            let sum = sum.add_slice(&inner).to_ones_complement_with_no_zero();
            inner[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
        }
        match self.v6 {
            false => frame.extend(ipv4(&self.hosts.map(v4), self.protocol(), &[], inner.len(), 0)),
            true => {
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((inner.len() as u16).to_be_bytes());
                frame.extend([self.protocol(), 64]);
                frame.extend(addresses);
            }
        }
        frame.extend(inner);
        frame
    }

    fn checksum_at(&self) -> Option<usize> {
        match self.kind {
            Kind::Tcp { .. } => Some(16),
            Kind::Udp { .. } => Some(6),
            Kind::Echo { .. } => Some(2),
            Kind::Arp | Kind::Other => None,
        }
    }

    fn transport(&self) -> Vec<u8> {
        let both = |ports: [u16; 2]| ports.map(u16::to_be_bytes).concat();
        match self.kind {
            Kind::Tcp { ports, flags } => {
                let mut header = both(ports);
                header.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
                header
            }
            Kind::Udp { ports } => {
                let mut header = both(ports);
                header.extend((8 + self.payload as u16).to_be_bytes());
                header.extend([0, 0]);
                header
            }
            Kind::Echo { id, answer } => {
                let kind = match (self.v6, answer) {
                    (false, false) => 8,
                    (false, true) => 0,
                    (true, false) => 128,
                    (true, true) => 129,
                };
                let mut header = vec![kind, 0, 0, 0];
                header.extend(id.to_be_bytes());
                header.extend([0, 1]);
                header
            }
            Kind::Arp | Kind::Other => Vec::new(),
        }
    }
}

/// Returns an IPv4 header for `length` bytes behind it.
pub fn ipv4(
    [from, to]: &[[u8; 4]; 2],
    protocol: u8,
    options: &[u8],
    length: usize,
    place: u16,
) -> Vec<u8> {
    let header = 20 + options.len();
    let mut bytes = vec![0x40 | (header / 4) as u8, 0];
    bytes.extend(((header + length) as u16).to_be_bytes());
    bytes.extend([0, 7]);
    bytes.extend(place.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend([from, to].into_iter().flatten());
    bytes.extend(options);
    let sum = Sum16BitWords::new().add_slice(&bytes).ones_complement().to_ne_bytes();
    bytes[10..12].copy_from_slice(&sum);
    bytes
}

/// Offloads of a frame to be cut.
pub fn to_be_cut(gso: Gso) -> Offload {
    Offload { checksum: Checksum::Partial, gso: Some(gso) }
}

/// Frame that a port was given: the port, the queue, the bytes, and the offload.
pub type Given = (PortId, Option<u16>, Vec<u8>, Offload);

#[derive(Debug, Default)]
pub struct Kept(pub Vec<Given>);

impl Sink for Kept {
    fn whole(&mut self, to: PortId, queue: Option<u16>, frame: &[u8], offload: Offload) {
        self.0.push((to, queue, frame.to_vec(), offload));
    }

    fn handle(&mut self, to: PortId, queue: Option<u16>, batch: &Batch, frame: u8) {
        let length = batch.pieces(frame).map(|(piece, skip)| piece.len - skip).sum::<u32>();
        self.0.push((to, queue, length.to_be_bytes().to_vec(), batch.frame(frame).offload));
    }
}

/// A graph with what carries its verdicts out.
pub struct Bench {
    pub graph: Graph,
    pub rules: Arc<Rules>,
    pub members: Vec<PortId>,
    batch: Batch,
    delivery: Delivery,
    arena: Vec<u8>,
}

impl Bench {
    pub fn new(rules: Arc<Rules>, ports: u16, checks: Checks) -> Self {
        let settings = Settings { clock: || 0, checks, merge: true, ..Settings::new(SECRET) };
        let mut graph = grantway_vector::path::graph(settings).unwrap();
        graph.load(&rules);
        let members = (0..ports).map(PortId).collect();
        let (batch, delivery) = (Batch::new(), Delivery::default());
        Self { graph, rules, members, batch, delivery, arena: Vec::new() }
    }

    /// Gives frames to the graph, in lists of at most `list`.
    pub fn run(&mut self, frames: &[(u16, Vec<u8>, Offload)], list: usize, now: u64) -> Vec<Given> {
        let mut kept = Kept::default();
        for frames in frames.chunks(list.clamp(1, BATCH_MAX)) {
            self.batch.clear();
            self.arena.clear();
            for (from, bytes, offload) in frames {
                let len = bytes.len() as u32;
                let frame = Frame {
                    at: self.arena.len() as u32,
                    head: len,
                    len,
                    token: 0,
                    offload: *offload,
                    from: PortId(*from),
                };
                self.arena.extend(bytes);
                self.batch.push(frame).unwrap();
            }
            self.graph.run(&mut self.batch, &mut self.arena, now);
            let receivers = self.graph.receivers();
            let (rules, members) = (&self.rules, &self.members);
            self.delivery.run((&self.batch, &self.arena), (rules, receivers), members, &mut kept);
        }
        kept.0
    }
}
