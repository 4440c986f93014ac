//! A learning bridge.

pub(crate) mod table;
#[cfg(test)]
mod tests;

pub use table::{Learning, STATIONS_MAX, Table};

use crate::batch::{Nanos, PortId, Verdict};
use crate::news::{Fact, News};
use crate::node::{Context, Edge, Node, Out};
use crate::reason::Reason;
use crate::rules::Rules;
use crate::secret::Secret;
use crate::set::Set;
use crate::wire::is_group;
use std::sync::Arc;

/// First of sixteen group addresses that a bridge keeps to the link they came from: spanning tree,
/// PAUSE, LACP, 802.1X, LLDP and others (IEEE 802.1Q, table 8-1). This bridge takes no part in a
/// spanning tree, so a BPDU of a guest would only disturb others.
const NOT_RELAYED: u64 = 0x0180_c200_0000;

/// Sets the destination of frames by a table of stations and their ports, which it learns from
/// frames. It keeps the verdict of an earlier node. It looks up equal frames of one list once.
#[derive(Debug)]
pub struct Bridge {
    table: Table,
    rules: Arc<Rules>,
}

impl Bridge {
    /// Frames that are delivered.
    pub const ON: Edge = Edge(0);

    /// Makes a bridge that knows no station.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self { table: Table::new(secret), rules: Arc::default() }
    }

    fn route(&mut self, to: u64, from: PortId, now: u64) -> Verdict {
        if to & !0xf == NOT_RELAYED {
            return Verdict::Drop(Reason::LinkLocal);
        }
        if is_group(to) {
            return Verdict::Flood;
        }
        match self.table.find(to, self.rules.learning.age, now) {
            Some(port) if port == from => Verdict::Drop(Reason::Hairpin),
            Some(port) if !self.rules.may_pass(from, port) => Verdict::Drop(Reason::Isolated),
            Some(port) => Verdict::To(port),
            None => Verdict::Flood,
        }
    }
}

/// Both addresses of a frame, in the form that is compared most quickly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addresses(u64, u32);

impl Addresses {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l] = bytes.first_chunk()?;
        let (first, rest) = ([a, b, c, d, e, f, g, h], [i, j, k, l]);
        Some(Self(u64::from_be_bytes(first), u32::from_be_bytes(rest)))
    }

    /// Returns the stations of the receiver and of the sender.
    fn stations(self) -> (u64, u64) {
        (self.0 >> 16, (self.0 & 0xffff) << 32 | u64::from(self.1))
    }
}

impl Node for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        let (age, now) = (self.rules.learning.age, context.now);
        // The frame before. A frame that is alike teaches nothing, and goes where that one went.
        let mut before: Option<(Addresses, PortId, Verdict)> = None;
        let mut on = *list;
        list.iter().for_each(|number| {
            let frame = context.batch.frame(number);
            let from = frame.from;
            let Some(addresses) = Addresses::read(frame.bytes(context.arena)) else {
                on.remove(number);
                return context.drop(number, Reason::EthernetTruncated);
            };
            // A frame that a filter redirected has its verdict already.
            let said = context.batch.verdict(number);
            let verdict = match before {
                Some((known, port, verdict))
                    if known == addresses && port == from && said == Verdict::Open =>
                {
                    verdict
                }
                _ => {
                    let (to, sender) = addresses.stations();
                    let most = self.rules.stations(from);
                    if self.table.learn(sender, from, (age, most), now) {
                        context.tell(Fact::Station(sender, from));
                    }
                    let open = said == Verdict::Open;
                    let verdict = if open { self.route(to, from, now) } else { said };
                    before = open.then_some((addresses, from, verdict));
                    verdict
                }
            };
            match verdict {
                Verdict::Drop(reason) => {
                    on.remove(number);
                    context.drop(number, reason);
                }
                verdict => context.batch.decide(number, verdict),
            }
        });
        out.all(Self::ON, &on);
    }

    fn may_flood(&self, head: &[u8], now: u64) -> bool {
        let Some(addresses) = Addresses::read(head) else { return false };
        let (to, _) = addresses.stations();
        is_group(to) || !self.table.knows(to, self.rules.learning.age, now)
    }

    fn reload(&mut self, rules: &Arc<Rules>) {
        self.rules = rules.clone();
    }

    fn hear(&mut self, News(fact): &News, now: Nanos) {
        if let Fact::Station(station, port) = *fact {
            let (age, most) = (self.rules.learning.age, self.rules.stations(port));
            self.table.hear(station, port, (age, most), now);
        }
    }

    fn forget(&mut self, port: PortId) {
        self.table.forget_port(port);
    }

    fn report(&self, report: &mut crate::report::Report) {
        report.stations = self.table.len() as u64;
        report.stations_refused = self.table.refused;
    }
}
