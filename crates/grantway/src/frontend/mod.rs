//! `grantway frontend`: a vif in user space, bridged to a TAP or another port.

use crate::backend::{numbers, port_report, wait_mode};
use crate::bench::probe::pin;
use crate::cli::FrontendArgs;
use crate::control::{ReportSocket, frontend_socket};
use crate::error::CommandError;
use crate::output;
use crate::place::Place;
use crate::wait::{Signals, readable};
use grantway_backend::WaitMode;
use grantway_embedded::Role;
use grantway_frontend::{SendError, Vif, VifStatus, Wishes};
use grantway_hypervisor::Platform;
use grantway_netif::Offload;
use grantway_ports::{
    Port, PortReport, PortSpec, RECV_BUFFER, SendError as PortSendError, Tap, TapConfig,
    TapOffloads,
};
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Frames that cross each way before the other way gets its turn.
const BURST: usize = 64;
/// How often the slow side (store, signals, reports) is looked at while frames
/// flow.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the backend gets to close in order when we are told to end.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long a failed connection rests before it is tried again.
const REST: Duration = Duration::from_millis(200);

/// Carries frames until it is told to end.
///
/// # Errors
///
/// The host, the vif or the port is not to be had, or the host went away.
pub fn run(args: &FrontendArgs) -> Result<(), CommandError> {
    let spec = port_spec(args)?;
    let signals = Signals::take()?;
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    let place = Place::embedded(&args.host, args.domain, Role::Guest)?;
    let platform = Arc::clone(&place.platform);
    let socket = frontend_socket(&args.host, args.domain, args.devid);
    let reports = ReportSocket::bind(&socket)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", socket.display())))?;
    let mut vif = Vif::open(Arc::clone(&platform), args.devid, Wishes::default())
        .map_err(CommandError::failed)?;
    let mut port = open_port(&spec, args.mtu, &mut vif)?;
    port.set_link(false).map_err(CommandError::failed)?;
    output::line("ready")?;
    let mut bridge = Bridge {
        vif,
        port,
        platform,
        outgoing: vec![0; RECV_BUFFER],
        incoming: vec![0; RECV_BUFFER],
        waiting: None,
        mode: wait_mode(args.mode),
        linked: false,
        drops: Drops::default(),
    };
    bridge.run(&place, &signals, &reports)
}

/// What the vif is to be bridged to, as far as the command line tells.
fn port_spec(args: &FrontendArgs) -> Result<PortSpec, CommandError> {
    let spec = match (&args.tap, &args.port) {
        (Some(name), _) => format!("tap:{name}").parse(),
        (None, Some(text)) => text.parse(),
        (None, None) => return Err(CommandError::Usage("give --tap NAME or --port SPEC".into())),
    };
    match spec.map_err(CommandError::usage)? {
        PortSpec::Bridge => Err(CommandError::Usage(
            "--port bridge: only a backend has a bridge; give --tap NAME or another port".into(),
        )),
        spec => Ok(spec),
    }
}

fn open_port(
    spec: &PortSpec,
    mtu: Option<u32>,
    vif: &mut Vif,
) -> Result<Box<dyn Port>, CommandError> {
    let PortSpec::Tap { name } = spec else { return spec.open().map_err(CommandError::failed) };
    let mtu = match mtu {
        Some(mtu) => mtu,
        None => vif.mtu().map_err(CommandError::failed)?,
    };
    let tap = Tap::open(&TapConfig {
        name: name.clone(),
        offloads: TapOffloads::NONE,
        persist: Some(true),
        mtu: Some(mtu),
        mac: parse_mac(&vif.mac().map_err(CommandError::failed)?),
        up: true,
        multi_queue: false,
    })
    .map_err(CommandError::failed)?;
    Ok(Box::new(tap))
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// Frames that did not cross, by reason.
#[derive(Debug, Default)]
struct Drops {
    /// Longer or shorter than the backend takes.
    tx_length: u64,
    /// They ask what the backend does not offer.
    tx_not_offered: u64,
    /// The port was busy.
    rx_busy: u64,
    /// The port would not take them; its own counters tell why.
    rx_port: u64,
}

/// A frame that was read from the port and waits for room on the ring.
type Waiting = Option<(usize, Offload)>;

struct Bridge {
    vif: Vif,
    port: Box<dyn Port>,
    platform: Arc<dyn Platform>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    waiting: Waiting,
    mode: WaitMode,
    linked: bool,
    drops: Drops,
}

impl Bridge {
    fn run(
        &mut self,
        place: &Place,
        signals: &Signals,
        reports: &ReportSocket,
    ) -> Result<(), CommandError> {
        let mut ending: Option<Instant> = None;
        let mut looked = Instant::now();
        let mut idle_since: Option<Instant> = None;
        let mut failed_at: Option<Instant> = None;
        loop {
            let moved = self.turn()?;
            if moved {
                idle_since = None;
            }
            let hurry = moved || (self.linked && self.spins(&mut idle_since));
            if hurry && looked.elapsed() < LOOK_EVERY {
                continue;
            }
            looked = Instant::now();
            place.check()?;
            match self.vif.store_changed().map_err(CommandError::failed)? {
                VifStatus::Connected => self.link(self.vif.carrier())?,
                VifStatus::Waiting => self.link(false)?,
                VifStatus::Held if ending.is_none() => {
                    self.link(false)?;
                    let since = *failed_at.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REST {
                        failed_at = None;
                        self.vif.restart().map_err(CommandError::failed)?;
                        // What the store told meanwhile wakes nobody up.
                        continue;
                    }
                }
                VifStatus::Held | VifStatus::Gone => {
                    self.link(false)?;
                    return self.leave(ending.is_some());
                }
            }
            if let Some(failure) = self.vif.take_failure() {
                warn!("{failure}");
            }
            reports.serve(|| self.report());
            if signals.came().is_some() && ending.is_none() {
                ending = Some(Instant::now());
                self.vif.shutdown().map_err(CommandError::failed)?;
                continue;
            }
            if ending.is_some_and(|since| since.elapsed() > FAREWELL) {
                return self.leave(true);
            }
            self.vif.take_events().map_err(CommandError::failed)?;
            let timeout = if hurry || self.arm()? {
                continue;
            } else if ending.is_some() {
                Some(Duration::from_millis(50))
            } else {
                failed_at.map(|_| REST)
            };
            self.sleep(place, signals, reports, timeout)?;
            self.vif.take_events().map_err(CommandError::failed)?;
        }
    }

    /// A burst each way; whether anything moved.
    fn turn(&mut self) -> Result<bool, CommandError> {
        if !self.linked {
            return Ok(false);
        }
        let sent = self.transmit()?;
        let received = self.receive()?;
        Ok(sent || received)
    }

    fn transmit(&mut self) -> Result<bool, CommandError> {
        let mut moved = 0;
        while moved < BURST {
            let (len, offload) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.port.recv(&mut self.outgoing).map_err(CommandError::failed)? {
                    Some(frame) => (frame.len, frame.offload),
                    None => break,
                },
            };
            match self.vif.send(&self.outgoing[..len], offload) {
                Ok(()) => moved += 1,
                Err(SendError::Full) => {
                    self.waiting = Some((len, offload));
                    let reaped = self.with_queue(|queue, events| {
                        queue.flush(events)?;
                        queue.reap()
                    })?;
                    if reaped.unwrap_or(0) == 0 {
                        break;
                    }
                }
                Err(SendError::Length { .. }) => self.drops.tx_length += 1,
                Err(SendError::NotOffered { .. }) => self.drops.tx_not_offered += 1,
            }
        }
        if moved > 0 {
            self.with_queue(|queue, events| {
                queue.count_turn();
                queue.flush(events)
            })?;
        }
        Ok(moved > 0)
    }

    fn receive(&mut self) -> Result<bool, CommandError> {
        let mut moved = 0;
        while moved < BURST {
            let received = self.vif.recv(&mut self.incoming).map_err(CommandError::failed)?;
            let Some(frame) = received else { break };
            moved += 1;
            match self.port.send(&self.incoming[..frame.len], frame.offload) {
                Ok(()) => {}
                Err(PortSendError::Busy) => self.drops.rx_busy += 1,
                Err(PortSendError::Dropped(_)) => self.drops.rx_port += 1,
                Err(PortSendError::Failed(e)) => return Err(CommandError::failed(e)),
            }
        }
        if moved > 0 {
            self.port.flush().map_err(CommandError::failed)?;
            self.with_queue(|queue, events| {
                queue.count_turn();
                queue.repost(events)
            })?;
        }
        Ok(moved > 0)
    }

    fn with_queue<T>(
        &mut self,
        step: impl FnOnce(
            &mut grantway_frontend::Queue,
            &mut dyn grantway_hypervisor::EventChannels,
        ) -> Result<T, grantway_frontend::VifError>,
    ) -> Result<Option<T>, CommandError> {
        self.vif.with_queue(step).map_err(CommandError::failed)
    }

    /// Whether to look again rather than to sleep.
    fn spins(&self, idle_since: &mut Option<Instant>) -> bool {
        match self.mode {
            WaitMode::Busy => true,
            WaitMode::Interrupt => false,
            WaitMode::Adaptive(budget) => {
                let since = *idle_since.get_or_insert_with(Instant::now);
                since.elapsed() < budget
            }
        }
    }

    /// The last look before sleeping; true when something is there.
    fn arm(&mut self) -> Result<bool, CommandError> {
        if !self.linked {
            return Ok(false);
        }
        let for_room = self.waiting.is_some();
        let there = self.with_queue(|queue, events| {
            // What came back is room, and nobody signals it a second time.
            if for_room && queue.reap()? > 0 {
                return Ok(true);
            }
            queue.arm(events, for_room)
        })?;
        let more = self.port.always_ready() && !for_room;
        Ok(there.unwrap_or(true) || more)
    }

    fn sleep(
        &mut self,
        place: &Place,
        signals: &Signals,
        reports: &ReportSocket,
        timeout: Option<Duration>,
    ) -> Result<(), CommandError> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![
            signals.descriptor(),
            reports.descriptor(),
            self.vif.store().descriptor(),
            self.vif.event_descriptor(),
        ];
        // While a frame waits for room, the port's own bounded queue fills.
        if self.linked
            && self.waiting.is_none()
            && let Some(fd) = self.port.fd()
        {
            descriptors.push(fd);
        }
        readable(&descriptors, place.lifeline(), timeout)
    }

    /// Tells the port whether the link is up, and what it may hand over.
    fn link(&mut self, up: bool) -> Result<(), CommandError> {
        if up == self.linked {
            return Ok(());
        }
        if up {
            let features = self.vif.features();
            let offloads = TapOffloads {
                checksum: features.checksum_ipv4 && features.checksum_ipv6,
                tso4: features.gso_tcpv4,
                tso6: features.gso_tcpv6,
            };
            self.port.set_offloads(offloads).map_err(CommandError::failed)?;
        } else {
            self.waiting = None;
        }
        self.port.set_link(up).map_err(CommandError::failed)?;
        info!("link {}", if up { "up" } else { "down" });
        self.linked = up;
        Ok(())
    }

    /// The vif is closed for good.
    fn leave(&mut self, asked: bool) -> Result<(), CommandError> {
        self.port.remove().map_err(CommandError::failed)?;
        if asked {
            return Ok(());
        }
        Err(CommandError::Failed("the vif was detached; attach it again to go on".into()))
    }

    fn report(&self) -> Value {
        json!({
            "host": self.platform.host(),
            "connected": self.linked,
            "policy": "copy",
            "stats": numbers(self.vif.stats().fields()),
            "drops": {
                "tx_length": self.drops.tx_length,
                "tx_not_offered": self.drops.tx_not_offered,
                "rx_busy": self.drops.rx_busy,
                "rx_port": self.drops.rx_port,
            },
            "port": port_report(&PortReport::of(self.port.as_ref())),
            "platform": numbers(self.platform.counters().fields()),
        })
    }
}
