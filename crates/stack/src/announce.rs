//! Frames that announce the place of a station. Tables of hosts and switches may still have an
//! earlier station with the same address.

use alloc::vec;
use alloc::vec::Vec;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv4Address, Ipv6Address,
    Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};

/// Bytes of the headers of Ethernet and of IPv6.
const ETHERNET: usize = 14;
const IPV6: usize = 40;
/// All stations of a link, by IPv6, and the group of Ethernet that they listen to.
const EVERYBODY: Ipv6Address = Ipv6Address::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const EVERYBODYS: EthernetAddress = EthernetAddress([0x33, 0x33, 0, 0, 0, 1]);

/// Returns the frame that announces the address of `station`: an ARP announcement (RFC 5227), or an
/// unsolicited neighbour advertisement (RFC 4861, 7.2.6).
pub(crate) fn announcement(station: EthernetAddress, address: IpAddress) -> Vec<u8> {
    match address {
        IpAddress::Ipv4(address) => arp(station, address),
        IpAddress::Ipv6(address) => advertisement(station, address),
    }
}

fn arp(station: EthernetAddress, address: Ipv4Address) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: station,
        source_protocol_addr: address,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: address,
    };
    let to = EthernetAddress::BROADCAST;
    let mut frame = framed(station, to, EthernetProtocol::Arp, repr.buffer_len());
    repr.emit(&mut ArpPacket::new_unchecked(&mut frame[ETHERNET..]));
    frame
}

fn advertisement(station: EthernetAddress, address: Ipv6Address) -> Vec<u8> {
    let advert = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: address,
        lladdr: Some(station.into()),
    });
    let ip = Ipv6Repr {
        src_addr: address,
        dst_addr: EVERYBODY,
        next_header: IpProtocol::Icmpv6,
        payload_len: advert.buffer_len(),
        hop_limit: 255,
    };
    let length = IPV6 + advert.buffer_len();
    let mut frame = framed(station, EVERYBODYS, EthernetProtocol::Ipv6, length);
    ip.emit(&mut Ipv6Packet::new_unchecked(&mut frame[ETHERNET..]));
    let mut packet = Icmpv6Packet::new_unchecked(&mut frame[ETHERNET + IPV6..]);
    advert.emit(&address, &EVERYBODY, &mut packet, &ChecksumCapabilities::default());
    frame
}

/// Returns a frame with room for `length` bytes behind its header.
fn framed(
    src_addr: EthernetAddress,
    dst_addr: EthernetAddress,
    ethertype: EthernetProtocol,
    length: usize,
) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET + length];
    let repr = EthernetRepr { src_addr, dst_addr, ethertype };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATION: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);

    #[test]
    fn an_announcement_of_ipv4_asks_all_for_the_own_address() {
        let frame = announcement(STATION, IpAddress::v4(10, 0, 0, 9));
        let expected = [
            &[0xff; 6][..],
            &STATION.0,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &STATION.0,
            &[10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9],
        ];
        assert_eq!(frame, expected.concat());
    }

    #[test]
    fn an_announcement_of_ipv6_overrides_what_others_know() {
        let address = Ipv6Address::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
        let frame = announcement(STATION, address.into());
        assert_eq!(frame[..6], EVERYBODYS.0);
        let ip = Ipv6Packet::new_checked(&frame[ETHERNET..]).unwrap();
        assert_eq!((ip.src_addr(), ip.dst_addr(), ip.hop_limit()), (address, EVERYBODY, 255));
        let packet = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        let (checks, to) = (ChecksumCapabilities::default(), ip.dst_addr());
        let advert = Icmpv6Repr::parse(&ip.src_addr(), &to, &packet, &checks).unwrap();
        let expected = NdiscRepr::NeighborAdvert {
            flags: NdiscNeighborFlags::OVERRIDE,
            target_addr: address,
            lladdr: Some(STATION.into()),
        };
        assert_eq!(advert, Icmpv6Repr::Ndisc(expected));
    }
}
