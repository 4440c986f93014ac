//! TCP and UDP: a stack, and what is served over it.

use crate::flows::FlowsLog;
use crate::iperf::{Iperf, Wanted};
use crate::services::{Figures, OwnFigures, Services};
use crate::words::instant;
use crate::work::Work;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use grantway_frontend::{Queue, Runner, VifError};
use grantway_stack::smoltcp::socket::Socket;
use grantway_stack::smoltcp::socket::tcp::CongestionControl;
use grantway_stack::{Lease, Stack};

/// A stack, and what is served over it.
pub struct Serving {
    stack: Stack,
    services: Services,
    iperf: Option<Iperf>,
    staged: usize,
    /// The address by DHCP that was told last.
    leased: Option<Lease>,
    own: OwnFigures,
    /// The log of flows, and the clock of captures, if they are wanted.
    log: Option<(FlowsLog, Wall)>,
}

/// Returns the time since 1970.
type Wall = Box<dyn Fn() -> Duration>;

impl Serving {
    /// Adds the sockets, for a guest of so many bytes of memory. `seed` is hard to guess. The page
    /// shows the platform's own counters, too.
    ///
    /// # Errors
    ///
    /// A port cannot be listened on.
    pub fn new(
        mut stack: Stack,
        iperf: Option<Wanted>,
        memory: usize,
        congestion: CongestionControl,
        seed: u64,
        own: OwnFigures,
    ) -> Result<Self, String> {
        let services = Services::open(stack.sockets(), memory)?;
        let iperf = iperf.map(|wanted| Iperf::open(wanted, stack.sockets(), memory, seed));
        for (_, socket) in stack.sockets().iter_mut() {
            if let Socket::Tcp(socket) = socket {
                socket.set_congestion_control(congestion);
            }
        }
        let (iperf, log) = (iperf.transpose()?, None);
        Ok(Self { stack, services, iperf, staged: 0, leased: None, own, log })
    }

    /// Keeps a log of flows that begin from now on, for the page `/stack-log`. `wall` returns the time
    /// since 1970.
    pub fn log_flows(&mut self, wall: impl Fn() -> Duration + 'static) {
        self.stack.log_flows(true);
        self.log = Some((FlowsLog::default(), Box::new(wall)));
    }
}

impl Runner for Serving {
    fn start(&mut self, queues: Vec<Queue>) {
        self.stack.start(queues);
    }

    fn stop(&mut self) -> Vec<Queue> {
        self.stack.stop()
    }
}

impl Work for Serving {
    fn set_station(&mut self, mac: [u8; 6], mtu: usize) -> bool {
        self.stack.set_station(mac, mtu)
    }

    fn connected(&mut self, now: Duration) -> Result<(), VifError> {
        if let Some(iperf) = &mut self.iperf {
            iperf.connected(now);
        }
        self.stack.announce()
    }

    fn staged(&mut self, pages: usize) {
        self.staged = pages;
    }

    fn turn(&mut self, now: Duration) -> Result<bool, VifError> {
        let came = self.stack.receive(instant(now))?;
        let figures = Figures {
            host: now,
            staged: self.staged,
            iperf: self.iperf.as_ref().map(Iperf::counts).unwrap_or_default(),
            device: *self.stack.stats(),
            own: self.own,
            log: self.log.as_ref().map(|(log, _)| log),
        };
        let mut served = self.services.turn(self.stack.sockets(), &figures);
        if let Some(iperf) = &mut self.iperf {
            let (sockets, context) = self.stack.connecting();
            served |= iperf.turn(sockets, context, now);
        }
        let sent = self.stack.send(instant(now))?;
        if let Some((log, wall)) = &mut self.log {
            let time = wall();
            self.stack.flow_states(&mut |state| log.note(*state, time));
            log.add(now);
        }
        Ok(sent | came | served)
    }

    fn arm(&mut self) -> Result<bool, VifError> {
        self.stack.take_events()?;
        self.stack.arm()
    }

    fn delay(&self, now: Duration) -> Option<Duration> {
        let own = self.stack.poll_delay().map(Duration::from);
        let due = self.iperf.as_ref().and_then(|iperf| iperf.delay(now));
        own.into_iter().chain(due).min()
    }

    fn lines(&mut self, _: Duration, _: bool) -> Vec<String> {
        let mut lines = self.iperf.as_mut().map(Iperf::lines).unwrap_or_default();
        let lease = self.stack.lease().copied();
        if lease != self.leased {
            lines.push(match lease {
                Some(Lease { address, .. }) => format!("address {address} by DHCP"),
                None => "no address by DHCP any more".to_string(),
            });
            self.leased = lease;
        }
        lines
    }
}
