//! Heads of numbered test frames: the headers and the tag.

use super::{GeneratorConfig, HEAD};
use crate::frame::ETHERNET_HEADER;
use crate::testframe::{EXPERIMENTAL, TAG_LEN, Tag, TaggedAt, UDP_HEADERS};
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};

/// Returns the head that the frames of a flow share, with sequence 0.
pub(super) fn head(config: &GeneratorConfig, flow: u16) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    for (n, byte) in head.iter_mut().enumerate() {
        *byte = n as u8;
    }
    head[..6].copy_from_slice(&config.destination);
    head[6..12].copy_from_slice(&config.source);
    head[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
    let Some(at) = TaggedAt::of_size(config.size) else { return head };
    if at == TaggedAt::Udp {
        head[..UDP_HEADERS].copy_from_slice(&udp_headers(config, flow));
    }
    let tag = Tag { length: config.size as u16, flow, sequence: 0, timed: false }.encode();
    head[at.offset()..at.offset() + TAG_LEN].copy_from_slice(&tag);
    head
}

/// Returns the headers of Ethernet, IPv4 and UDP, from 198.18.0.1 to 198.19.0.1 (the block of RFC
/// 2544). There is no UDP checksum, since the sequence changes.
fn udp_headers(config: &GeneratorConfig, flow: u16) -> [u8; UDP_HEADERS] {
    // The length is at most 65,521, which both length fields hold.
    let datagram = (config.size - ETHERNET_HEADER - 20) as u16;
    let ethernet = Ethernet2Header {
        source: config.source,
        destination: config.destination,
        ether_type: EtherType::IPV4,
    };
    let mut ip = Ipv4Header {
        total_len: 20 + datagram,
        time_to_live: 64,
        protocol: IpNumber::UDP,
        source: [198, 18, 0, 1],
        destination: [198, 19, 0, 1],
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let udp = UdpHeader { source_port: flow, destination_port: 9, length: datagram, checksum: 0 };
    let mut headers = [0; UDP_HEADERS];
    headers[..14].copy_from_slice(&ethernet.to_bytes());
    headers[14..34].copy_from_slice(&ip.to_bytes());
    headers[34..].copy_from_slice(&udp.to_bytes());
    headers
}
