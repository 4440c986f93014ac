//! `grantway frontend`: a vif in user space, bridged to a TAP or another port.
//!
//! The main thread has the vif: its nodes in the store, its state, and the questions of operators.
//! Each queue has a thread of its own (`workers`), which joins it to a queue of the port
//! (`bridge`). On Xen, obstacles between the process and its vif are found before the first
//! connection (`grantway_command::obstacle`).

mod bridge;
mod rest;
mod workers;

use crate::args::FrontendArgs;
use crate::ctl::socket::CtlSocket;
use crate::port_report::port_report;
use bridge::Trouble;
use grantway_command::args::BufferPolicy;
use grantway_command::control::{ReportSocket, ctl_socket, frontend_socket, nanoseconds, numbers};
use grantway_command::error::CommandError;
use grantway_command::footprint::Footprint;
use grantway_command::mode::wait_mode;
use grantway_command::obstacle::TakeAway;
use grantway_command::output;
use grantway_command::patience;
use grantway_command::place::Place;
use grantway_command::process::pin;
use grantway_command::wait::{Signals, readable};
use grantway_frontend::{StagingRefusal, Vif, VifError, VifStatus, Wishes};
use grantway_netif::ctrl::Status;
use grantway_ports::{Port, PortSpec, Tap, TapConfig, TapOffloads, parse_address, uptime};
use rest::Rest;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use workers::Workers;

/// Time for the backend to close when this process ends.
const FAREWELL: Duration = Duration::from_secs(3);
/// Time between two looks for a vif that was detached.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time that a restored domain may be without the vif.
const PATIENCE: Duration = Duration::from_secs(10);

/// Moves frames until a signal ends the process.
///
/// # Errors
///
/// The host, the vif or the port cannot be used, or the host has ended.
pub fn run(args: &FrontendArgs) -> Result<(), CommandError> {
    let spec = port_spec(args).map_err(|error| args.options.blame(error))?;
    if args.options.is_check()? {
        return Ok(());
    }
    let signals = Signals::take()?;
    let mode = wait_mode(args.mode);
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    let need = Footprint::new(args.policy.kind(), args.queues.into(), u64::MAX);
    let place = Place::of_guest(&args.guest, args.devid, need)?;
    let failed = |path: &Path, e| CommandError::Failed(format!("{}: {e}", path.display()));
    let (folder, domain) = (&place.run_folder, args.guest.domain);
    let socket = frontend_socket(folder, domain, args.devid);
    let reports = ReportSocket::bind(&socket).map_err(|e| failed(&socket, e))?;
    let socket = ctl_socket(folder, domain, args.devid);
    let ctl = CtlSocket::bind(&socket).map_err(|e| failed(&socket, e))?;
    let policy = args.policy.kind();
    let (queues, gso) = (args.queues.into(), args.gso.is_on());
    let reopen = place.reopen(args.devid);
    let wishes = Wishes { queues, policy, gso, reopen, ..Wishes::default() };
    let workers = Workers::new(mode, args.api, args.merge.is_on())?;
    let mut vif = Vif::open_with(place.platform.clone(), args.devid, wishes, workers)
        .map_err(CommandError::failed)?;
    let mut port = open_port(&spec, args, &mut vif)?;
    port.set_link(false).map_err(CommandError::failed)?;
    vif.runner_mut().set_port(port);
    output::line("ready")?;
    let (linked, attached, wished, devid) = (false, true, args.policy, args.devid);
    let config = serde_json::to_value(&args.options.in_force).unwrap_or_default();
    Frontend { vif, place, ctl, devid, linked, attached, wished, config }.run(&signals, &reports)
}

/// Returns the port for the vif, from the command line.
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
        PortSpec::Vhost { .. } => Err(CommandError::Usage(
            "--port vhost: only a backend has a TAP by vhost-net; give --tap NAME or another port"
                .into(),
        )),
        PortSpec::Packet { name } => Err(CommandError::Usage(format!(
            "--port packet:{name}: only a backend's bridge can use a packet port; give --tap NAME \
             or another port"
        ))),
        spec => Ok(spec),
    }
}

/// Opens the port, and checks that it can have the requested number of queues.
fn open_port(
    spec: &PortSpec,
    args: &FrontendArgs,
    vif: &mut Vif<Workers>,
) -> Result<Box<dyn Port>, CommandError> {
    let port: Box<dyn Port> = match spec {
        PortSpec::Tap { name } => {
            let mtu = match args.mtu {
                Some(mtu) => mtu,
                None => vif.mtu().map_err(CommandError::failed)?,
            };
            let tap = Tap::open(&TapConfig {
                name: name.clone(),
                offloads: TapOffloads::NONE,
                persist: Some(true),
                mtu: Some(mtu),
                mac: parse_address(vif.mac().map_err(CommandError::failed)?.trim()),
                up: true,
                multi_queue: args.queues > 1,
            });
            Box::new(tap.map_err(CommandError::failed)?)
        }
        _ => spec.open().map_err(CommandError::failed)?,
    };
    let (most, name) = (port.caps().max_queues, port.name());
    if most >= args.queues.into() {
        return Ok(port);
    }
    Err(CommandError::Failed(format!(
        "{name}: supports {most} of {} requested queues; use --queues {most} or another port (an \
         existing TAP keeps its number of queues: delete it first)",
        args.queues
    )))
}

struct Frontend {
    vif: Vif<Workers>,
    place: Place,
    ctl: CtlSocket,
    devid: u32,
    /// State of the link in the last line of the log about it.
    linked: bool,
    /// True until the log has a line about a detached vif.
    attached: bool,
    /// Buffer policy that was asked for.
    wished: BufferPolicy,
    /// All options, each with its origin.
    config: Value,
}

impl Frontend {
    /// Serves the vif until a signal ends the process. Waits for a vif that is detached.
    fn run(&mut self, signals: &Signals, reports: &ReportSocket) -> Result<(), CommandError> {
        let mut ending: Option<Instant> = None;
        let mut rest = Rest::default();
        // A vif that came back, until it is free for us.
        let mut taking: Option<TakeAway> = None;
        loop {
            // The vif's state decides what is next.
            self.place.check()?;
            self.vif.runner().hush();
            self.vif.take_answers().map_err(CommandError::failed)?;
            let status = self.vif.store_changed().map_err(CommandError::failed)?;
            if status != VifStatus::Held {
                rest.cancel();
            }
            match status {
                VifStatus::Connected => {
                    let carrier = self.vif.carrier();
                    self.vif.runner_mut().set_link(carrier);
                    rest.connected(Instant::now());
                }
                VifStatus::Waiting => {}
                VifStatus::Restored => {
                    warn!(
                        "the domain was restored; reconnecting. When this process ends, the kernel \
                         reports a BUG in drivers/xen/evtchn.c, because it cannot release the old \
                         event channels, and continues"
                    );
                    self.resume(signals)?;
                    continue;
                }
                VifStatus::Held | VifStatus::Gone if ending.is_some() => return self.leave(),
                VifStatus::Held => {
                    if let Some(length) = rest.begin(Instant::now()) {
                        self.tell_failure(length);
                    }
                    if rest.end(Instant::now()) {
                        self.vif.restart().map_err(CommandError::failed)?;
                        // Changes in the store meanwhile wake nobody up, so the store is read again
                        // at once.
                        continue;
                    }
                }
                VifStatus::Replaced if ending.is_some() => return self.leave(),
                VifStatus::Replaced => {
                    rest = Rest::default();
                    taking.get_or_insert_default();
                }
                VifStatus::Gone => self.tell_detached(),
            }
            if let Some(take) = &mut taking
                && self.place.is_free(take, self.devid)
            {
                taking = None;
                self.renew()?;
                continue;
            }
            // Then the threads, operators and signals are served.
            // A driver that got the vif while nobody looked shows the state that we would show.
            if self.tell_link() && self.place.is_held(self.devid) {
                taking.get_or_insert_default();
                continue;
            }
            if self.take_troubles()? {
                continue;
            }
            if let Some(refusal) = self.vif.take_staging_refusal() {
                self.tell_refusal(refusal);
            }
            reports.serve(|| self.report());
            self.ctl.serve(&mut self.vif).map_err(CommandError::failed)?;
            if signals.came().is_some() && ending.is_none() {
                ending = Some(Instant::now());
                self.vif.shutdown().map_err(CommandError::failed)?;
                continue;
            }
            // While the vif closes, or rests after a failure, the wait has a limit.
            let timeout = match ending {
                Some(since) if since.elapsed() > patience::farewell(FAREWELL) => {
                    return self.leave();
                }
                _ if self.vif.has_changes() => Some(Duration::ZERO),
                Some(_) => Some(Duration::from_millis(50)),
                None if taking.is_some() => Some(LOOK_EVERY),
                None => rest.left(Instant::now()),
            };
            let bell = self.vif.runner().bell();
            let mut own = vec![signals.descriptor(), reports.descriptor(), bell];
            own.extend(self.vif.store().descriptor());
            own.extend(self.vif.control().and_then(|control| control.descriptor()));
            own.extend(self.ctl.descriptors());
            readable(&own, self.place.lifeline(), timeout)?;
        }
    }

    /// Continues in a domain that was restored. The toolstack writes the vif's nodes before the
    /// domain continues, or soon afterwards, unless the vif was detached before.
    fn resume(&mut self, signals: &Signals) -> Result<(), CommandError> {
        let since = Instant::now();
        let mut taking = TakeAway::default();
        loop {
            self.place.restore()?;
            if self.place.is_free(&mut taking, self.devid) {
                self.vif.set_reopen(self.place.reopen(self.devid));
                match self.vif.resume(self.place.platform.clone()) {
                    Ok(()) => break,
                    Err(e) if self.attached && since.elapsed() > patience::answer(PATIENCE) => {
                        return Err(CommandError::failed(e));
                    }
                    Err(_) => {}
                }
            }
            readable(&[signals.descriptor()], None, Some(LOOK_EVERY))?;
            if signals.came().is_some() {
                return Err(CommandError::Failed("ended before its vif was attached again".into()));
            }
        }
        self.attached = true;
        Ok(())
    }

    /// Continues with the device that is in the vif's place now.
    fn renew(&mut self) -> Result<(), CommandError> {
        self.vif.set_reopen(self.place.reopen(self.devid));
        match self.vif.renew() {
            Ok(()) => {
                info!("the vif was attached anew; connecting");
                self.attached = true;
                Ok(())
            }
            // It went again.
            Err(VifError::NoVif { .. }) => Ok(()),
            Err(e) => Err(CommandError::failed(e)),
        }
    }

    /// Logs the reason why the vif is held, and the time until the next attempt.
    fn tell_failure(&mut self, rest: Duration) {
        match self.vif.take_failure() {
            Some(failure) => warn!("{failure}; next attempt in {rest:?}"),
            None => warn!(
                "the backend closed the vif before it connected (see the log of the backend), or \
                 the vif was detached; next attempt in {rest:?}"
            ),
        }
    }

    /// Logs that the vif was detached, once.
    fn tell_detached(&mut self) {
        if std::mem::take(&mut self.attached) {
            warn!("the vif was detached; waiting until it is attached again");
        }
    }

    /// Logs the state of the link if it has changed. Returns true if it came up.
    fn tell_link(&mut self) -> bool {
        let linked = self.vif.runner().linked();
        if std::mem::replace(&mut self.linked, linked) == linked {
            return false;
        }
        if !linked {
            info!("link down");
            return false;
        }
        let agreed = self.vif.features().policy;
        let trusted = if self.vif.trusts_backend() { "trusted" } else { "not trusted" };
        match self.wished {
            wished if wished != BufferPolicy::Auto && wished.kind() != agreed => {
                let wished = wished.as_str();
                info!("link up, policy {agreed}, backend {trusted}, which does not offer {wished}");
            }
            _ => info!("link up, policy {agreed}, backend {trusted}"),
        }
        true
    }

    /// Logs that the backend refused to stage pages. A kernel's netback with a control ring refuses
    /// in this way, so it is a warning only if staging was asked for by name.
    fn tell_refusal(&self, refusal: StagingRefusal) {
        let policy = self.vif.policy_in_force();
        match (self.wished, refusal.status) {
            (BufferPolicy::Auto, Status::NotSupported) => {
                info!("the backend does not support staging; policy {policy}");
            }
            _ => warn!("{refusal}; pages that are not staged are copied; policy {policy}"),
        }
    }

    /// Takes the fault that ended a thread. Returns true if the vif was closed because of it.
    fn take_troubles(&mut self) -> Result<bool, CommandError> {
        match self.vif.runner_mut().trouble() {
            None => Ok(false),
            Some(Trouble::Queue(error)) => {
                self.vif.fail(error).map_err(CommandError::failed)?;
                Ok(true)
            }
            Some(Trouble::Port(error)) => Err(CommandError::failed(error)),
            Some(Trouble::Thread(what)) => Err(CommandError::Failed(what)),
        }
    }

    /// Removes the port, because the vif is closed for ever.
    fn leave(&mut self) -> Result<(), CommandError> {
        self.vif.runner_mut().remove_port()
    }

    /// Returns the report for operators.
    fn report(&self) -> Value {
        // The counters of earlier connections are part of the sum.
        let mut stats = self.vif.past_stats();
        let workers = self.vif.runner();
        let queues = workers.report();
        queues.iter().for_each(|queue| stats.add(&queue.stats));
        // The report's time is the middle of the moments at which the queues were read.
        let read: Duration = queues.iter().map(|queue| queue.at).sum();
        let at = read.checked_div(queues.len() as u32).unwrap_or_else(uptime);
        let each: Vec<Value> = queues
            .iter()
            .map(|queue| {
                json!({
                    "queue": queue.number,
                    "stats": numbers(queue.stats.fields()),
                    "drops": numbers(queue.tally.drops.fields()),
                    "merged": queue.tally.merged,
                    "in_pages": numbers(queue.tally.in_pages.fields()),
                    "port": port_report(&queue.port),
                })
            })
            .collect();
        json!({
            "host": self.place.platform.host(),
            "mode": workers.mode().as_str(),
            "at_ns": nanoseconds(at),
            "connected": workers.linked(),
            "wished": self.wished.as_str(),
            "agreed": self.vif.features().policy.as_str(),
            "policy": self.vif.policy_in_force().as_str(),
            "staged": self.vif.staging().iter().map(|state| state.staged).sum::<usize>(),
            "trusted": self.vif.trusts_backend(),
            "stats": numbers(stats.fields()),
            "drops": numbers(workers.drops(&queues).fields()),
            "config": self.config,
            "port": workers.port_report(&queues).as_ref().map(port_report),
            "queues": each,
            "platform": numbers(self.place.platform.counters().fields()),
        })
    }
}
