//! Headers of TCP segments and UDP datagrams, read to merge them, for graphs without rules.

use super::{Checks, Ethernet, Ipv4, Ipv6, Transport};
use crate::batch::Frame;
use crate::headers::{Fragment, Headers};
use crate::node::{Context, Edge, Node, Out};
use crate::reason::Reason;
use crate::set::Set;
use grantway_netif::headers::protocol::{TCP, UDP};

/// Reads the headers of TCP segments that may be merged, and of UDP datagrams if their receiver
/// accepts them merged. Drops nothing: a faulty frame is left to its receiver. A checksum for which
/// nobody vouches is checked if the whole frame is private.
#[derive(Debug, Default)]
pub struct Segments;

impl Segments {
    /// All frames.
    pub const ON: Edge = Edge(0);

    #[inline]
    fn read(
        frame: &mut Frame,
        bytes: &[u8],
        headers: &mut Headers,
        takes_udp: impl Fn() -> bool,
    ) -> Result<(), Reason> {
        match Ethernet::read(bytes, headers)? {
            Ethernet::IPV4 => Ipv4::read(frame, bytes, headers)?,
            Ethernet::IPV6 => Ipv6::read(frame, bytes, headers)?,
            _ => return Ok(()),
        }
        let looks = match headers.protocol {
            TCP => true,
            UDP => takes_udp(),
            _ => false,
        };
        if !looks || headers.fragment != Fragment::Whole {
            return Ok(());
        }
        Transport { checks: Checks::Verify }.read(frame, bytes, headers)
    }
}

impl Node for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        for number in list {
            let mut frame = *context.batch.frame(number);
            let bytes = frame.bytes(context.arena);
            let (verdict, receivers) = (context.batch.verdict(number), context.receivers);
            let takes_udp = || receivers.takes_udp(verdict);
            let headers = context.batch.headers_mut(number);
            *headers = Headers { end: frame.len, ..Headers::default() };
            if Self::read(&mut frame, bytes, headers, takes_udp).is_err() {
                // A faulty frame may be of any flow: nothing is merged past it.
                *headers = Headers { fragment: Fragment::Later, ..Headers::default() };
            }
            context.batch.frame_mut(number).offload = frame.offload;
        }
        out.all(Self::ON, list);
    }
}
