//! Two ends that talk, packet by packet, as a test directs them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use etherparse::{PacketBuilder, TcpOptionElement};
use grantway_flows::{Cause, FlowReport, Flows, Limits, Packet, Report, Ring};

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// The client's port and the server's.
pub const PORTS: [u16; 2] = [40_000, 5201];
/// First sequence numbers of the ends. The client's wraps soon.
pub const FIRST: [u32; 2] = [u32::MAX - 5000, 1000];

/// Flows, the time, and the state of each end.
pub struct Talk {
    pub flows: Flows,
    /// Time in nanoseconds.
    pub now: u64,
    pub point: u32,
    pub ring: Ring,
    /// True if segments have timestamps, in milliseconds.
    pub stamps: bool,
    pub v6: bool,
    pub vlan: Option<u16>,
    /// Windows of the ends, as the headers have them.
    pub windows: [u16; 2],
    /// Bytes of the other end that each end acknowledges.
    pub acked: [u32; 2],
    /// Timestamp that each end answers.
    pub answers: [u32; 2],
    pub client_port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    None,
    Syn,
    Fin,
    Reset,
}

impl Talk {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self {
            flows: Flows::new(limits),
            now: 1_700_000_000_000 * MS,
            point: 0,
            ring: Ring::default(),
            stamps: false,
            v6: false,
            vlan: None,
            windows: [10_000; 2],
            acked: [0; 2],
            answers: [0; 2],
            client_port: PORTS[0],
        }
    }

    /// Lets a number of milliseconds pass.
    pub fn wait(&mut self, milliseconds: u64) -> &mut Self {
        self.now += milliseconds * MS;
        self
    }

    fn stamp(&self) -> u32 {
        (self.now / MS) as u32
    }

    /// Makes a frame of a side: 0 is the client. `at` counts the side's bytes from 0, without its
    /// SYN.
    pub fn frame(&self, side: usize, at: u32, payload: usize, flag: Flag) -> Vec<u8> {
        let is_syn = flag == Flag::Syn;
        let seq = FIRST[side].wrapping_add(at).wrapping_add(u32::from(!is_syn));
        let ack = FIRST[1 - side].wrapping_add(self.acked[side]).wrapping_add(1);
        let ports = [self.client_port, PORTS[1]];
        // A SYN names the largest segment and the scale.
        let mut options = Vec::new();
        if is_syn {
            options.push(TcpOptionElement::MaximumSegmentSize(1460));
            options.push(TcpOptionElement::WindowScale(7));
        }
        if self.stamps {
            options.push(TcpOptionElement::Timestamp(self.stamp(), self.answers[side]));
        }
        // Addresses depend on the side and on the family.
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let addresses = |n: usize| [10, 0, 0, 1 + n as u8];
        let long = |n: usize| {
            let mut address = [0; 16];
            (address[0], address[15]) = (0xfd, 1 + n as u8);
            address
        };
        let ip = match (self.vlan, self.v6) {
            (None, false) => link.ipv4(addresses(side), addresses(1 - side), 64),
            (None, true) => link.ipv6(long(side), long(1 - side), 64),
            (Some(id), v6) => {
                let link = link.single_vlan(id.try_into().expect("a VLAN"));
                match v6 {
                    false => link.ipv4(addresses(side), addresses(1 - side), 64),
                    true => link.ipv6(long(side), long(1 - side), 64),
                }
            }
        };
        // All segments but the first acknowledge.
        let window = self.windows[side];
        let mut tcp = ip.tcp(ports[side], ports[1 - side], seq, window);
        if !is_syn || side == 1 {
            tcp = tcp.ack(ack);
        }
        tcp = match flag {
            Flag::None => tcp,
            Flag::Syn => tcp.syn(),
            Flag::Fin => tcp.fin(),
            Flag::Reset => tcp.rst(),
        };
        let tcp = tcp.options(&options).expect("room for options");
        let mut frame = Vec::new();
        tcp.write(&mut frame, &vec![7; payload]).expect("a frame");
        frame
    }

    /// Gives the flows a packet, which [`Talk::frame`] makes.
    pub fn send(&mut self, side: usize, at: u32, payload: usize, flag: Flag) -> &mut Self {
        let frame = self.frame(side, at, payload, flag);
        if self.stamps && (payload > 0 || flag != Flag::None) {
            self.answers[1 - side] = self.stamp();
        }
        self.give(&frame)
    }

    /// Gives the flows any frame.
    pub fn give(&mut self, frame: &[u8]) -> &mut Self {
        let (time, point, ring) = (self.now, self.point, self.ring);
        self.flows.packet(&Packet { time, head: frame, length: frame.len(), point, ring });
        self
    }

    /// Sends 1000 bytes from the client.
    pub fn data(&mut self, at: u32) -> &mut Self {
        self.send(0, at, 1000, Flag::None)
    }

    /// Acknowledges bytes from the server.
    pub fn ack(&mut self, bytes: u32) -> &mut Self {
        self.acked[1] = bytes;
        self.send(1, 0, 0, Flag::None)
    }

    /// Shakes hands, with 10 ms from the client to the server and back.
    pub fn shake(&mut self) -> &mut Self {
        self.send(0, 0, 0, Flag::Syn).wait(10);
        self.send(1, 0, 0, Flag::Syn);
        self.send(0, 0, 0, Flag::None)
    }

    pub fn report(&self) -> Report {
        self.flows.report()
    }

    /// Returns the only flow.
    pub fn flow(&self) -> FlowReport {
        let mut report = self.report();
        assert_eq!(report.flows.len(), 1);
        report.flows.remove(0)
    }

    /// Returns the stalls of the only flow: milliseconds since the beginning, length, and cause.
    pub fn stalls(&self) -> Vec<(u64, u64, Cause)> {
        let flow = self.flow();
        let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
        flow.stalls.iter().map(|stall| (ms(stall.at_s), ms(stall.seconds), stall.cause)).collect()
    }
}
