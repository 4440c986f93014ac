//! `grantway backend`: serves every vif of a domain.

use crate::args::{BackendArgs, TapMac};
use crate::claim::Claim;
use crate::clock::clock;
use crate::confine;
use crate::doctor::facts::platform::PlatformFacts;
use crate::doctor::roots::Roots;
use crate::metrics::Metrics;
use crate::nodes;
use crate::notify::ServiceManager;
use crate::port_report::{port_drops, port_report};
use crate::rules::{self, LiveRules, secret};
use crate::shares::{self, Descriptors};
use crate::trace::{TRACE, TraceSocket};
use crate::uevent::Helper;
use crate::uplink::Uplink;
use grantway_backend::policy::{Mapped, PolicyLimits};
use grantway_backend::{
    Account, Backend, BackendConfig, Meter, OnWorker, OpenPort, Patience, PortRequest, QueueCounts,
    QueueReport, ROUND_MAX, Settings, WaitMode,
};
use grantway_command::control::{ReportSocket, backend_socket, nanoseconds, numbers};
use grantway_command::error::CommandError;
use grantway_command::limits;
use grantway_command::mode::wait_mode;
use grantway_command::output;
use grantway_command::patience;
use grantway_command::place::Place;
use grantway_command::process::{Memory, OwnMemory, pin};
use grantway_command::wait::{Signals, Told, readable};
use grantway_embedded::{Role, raise_descriptor_limit};
use grantway_hypervisor::Platform;
use grantway_ports::pcap::CaptureWriter;
use grantway_ports::{
    Port, PortError, PortSpec, Tap, TapConfig, TapError, TapOffloads, VhostError, VhostTap,
};
use grantway_vector::Secret;
use grantway_vector::path::{self, Nodes};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Time for the frontends to close when this process ends.
const FAREWELL: Duration = Duration::from_secs(3);

/// Serves all vifs until a signal ends the process.
///
/// # Errors
///
/// The host does not run or has ended, or no vif can have its port.
pub fn run(args: &BackendArgs) -> Result<(), CommandError> {
    let spec = port_spec(args).map_err(|error| args.options.blame(error))?;
    if args.options.check {
        args.rules.as_deref().map_or(Ok(()), rules::valid)?;
    }
    if args.options.is_check()? {
        return Ok(());
    }
    // `systemctl reload` sends SIGHUP, which would end a process that does not take the signal.
    let signals = Signals::take()?.and_reload()?;
    let secret = secret()?;
    let mut rules = args.rules.as_deref().map(|path| LiveRules::new(path, secret));
    raise_descriptor_limit();
    // The mode is chosen before the thread is pinned: a pinned thread would find one processor.
    let mode = wait_mode(args.mode);
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    // The place, and everything that needs the rights that are given up below.
    let place = match &args.host {
        Some(dir) => Place::embedded(dir, args.domain.unwrap_or(0), Role::Service)?,
        None => Place::xen(&args.run_dir, Role::Service)?,
    };
    let _claim = Claim::take(&place.claim())?;
    let (reports, traces) = sockets(&place)?;
    let refusal = Refusal::default();
    let manager = ServiceManager::find();
    let listener = args.metrics.and_then(|address| unless_failed(Metrics::listen(address)));
    let (memory, descriptors) = (OwnMemory::open(), Descriptors::open());
    let (port, uplink) = args.uplink.as_deref().map(Uplink::open).transpose()?.unzip();
    let nodes = nodes_of(args, secret)?;
    let helper = place.is_xen().then(Helper::start).flatten();
    // Everything that is opened from here on is opened with the rights that are left.
    let mut sandbox = (!args.no_sandbox).then(|| confine::process(&place, args));
    let on_worker = match &sandbox {
        Some(sandbox) => confined(sandbox.worker()),
        None => Arc::new(|| Ok(())),
    };
    let mut config = config(args, &place, mode, (nodes, port), on_worker);
    if let Some(helper) = helper {
        config.settings.on_plug = Arc::new(move |vif, event| helper.raise(vif, event));
    }
    let mut backend = Backend::start(
        Arc::clone(&place.platform),
        config,
        opener(spec.clone(), args.tap_mac, &refusal),
    )
    .map_err(CommandError::failed)?;
    match &mut sandbox {
        Some(sandbox) => {
            confine::control(sandbox, args, &spec, &place);
            confine::tell(sandbox);
        }
        None => warn!("--no-sandbox: all threads keep all rights of this user"),
    }
    // The rules hold before the backend says that it is ready.
    let metrics = listener.and_then(|listener| unless_failed(Metrics::start(listener)));
    if let Some(rules) = &mut rules {
        rules.load(&mut backend)?;
    }
    output::line("ready")?;
    manager.ready();
    info!("serving the vifs of domain {}", place.platform.domain());
    let ending = None;
    let listeners = Listeners { reports, traces, metrics };
    let own = (memory, descriptors);
    let options = Options {
        mode,
        port: args.port.clone(),
        config: serde_json::to_value(&args.options.in_force).unwrap_or_default(),
    };
    let mut serving = Serving {
        backend,
        place,
        options,
        rules,
        uplink,
        refusal,
        listeners,
        signals,
        own,
        ending,
    };
    while serving.step()?.is_continue() {}
    Ok(())
}

/// Returns the port of each vif, after a check of the options that depend on it.
fn port_spec(args: &BackendArgs) -> Result<PortSpec, CommandError> {
    let spec: PortSpec = args.port.parse().map_err(CommandError::usage)?;
    if args.uplink.is_some() && spec != PortSpec::Bridge {
        return Err(CommandError::Usage("--uplink needs the bridge: add --port bridge".into()));
    }
    if let PortSpec::Packet { name } = &spec {
        return Err(CommandError::Usage(format!(
            "--port packet:{name}: vifs cannot share an interface without a bridge; expected \
             --port bridge --uplink packet:{name}"
        )));
    }
    Ok(spec)
}

/// Opens the sockets of reports and of traces.
fn sockets(place: &Place) -> Result<(ReportSocket, TraceSocket), CommandError> {
    let path = backend_socket(&place.run_folder, place.platform.domain().0);
    let reports = ReportSocket::bind(&path)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))?;
    let path = path.with_extension(TRACE);
    let traces = TraceSocket::bind(&path)
        .map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))?;
    Ok((reports, traces))
}

/// Returns the backend's settings, from the command line.
fn config(
    args: &BackendArgs,
    place: &Place,
    mode: WaitMode,
    (nodes, uplink): (Nodes, Option<Box<dyn Port>>),
    on_worker: OnWorker,
) -> BackendConfig {
    BackendConfig {
        settings: Settings {
            mode,
            queues: args.queues.into(),
            patience: Patience {
                drain: Duration::from_millis(args.drain_timeout.into()),
                stall: Some(Duration::from_millis(args.stall_timeout.into())),
            },
            policy: PolicyLimits {
                most: args.policy.kind(),
                pages: args.mapped_pages.try_into().unwrap_or(usize::MAX),
                all: all_mapped(args, place.is_xen()),
                lease: patience::answer(PolicyLimits::default().lease),
            },
            merge: args.merge.is_on(),
            checksums: args.checksum.kind(),
            hotplug: place.is_xen(),
            clock: clock(),
            meter: Meter::PROCESSOR,
            on_worker,
            ..Settings::default()
        },
        uplink,
        workers: args.workers.map_or_else(fitting_workers, usize::from),
        threads: true,
        run_folder: place.run_folder.clone(),
        nodes,
    }
}

/// Sockets on which other programs ask for the state of the backend.
struct Listeners {
    reports: ReportSocket,
    traces: TraceSocket,
    metrics: Option<Metrics>,
}

/// Options that the report has.
struct Options {
    mode: WaitMode,
    /// Port of each vif, as it is written.
    port: String,
    /// All options, each with its origin.
    config: Value,
}

/// A backend in service, with its sockets and its signals.
struct Serving {
    backend: Backend,
    place: Place,
    options: Options,
    rules: Option<LiveRules>,
    uplink: Option<Uplink>,
    refusal: Refusal,
    listeners: Listeners,
    signals: Signals,
    own: (OwnMemory, Descriptors),
    /// Time at which the backend began to close its vifs.
    ending: Option<Instant>,
}

impl Serving {
    /// Does all pending work, and waits for more. Breaks when the backend has ended.
    fn step(&mut self) -> Result<ControlFlow<()>, CommandError> {
        self.backend.step().map_err(CommandError::failed)?;
        if let Some(refusal) = self.refusal.borrow_mut().take() {
            return Err(CommandError::Failed(refusal));
        }
        if let Some(uplink) = &mut self.uplink {
            uplink.look();
        }
        self.tell();
        match self.signals.came() {
            // A successor takes over with the journals, and no guest notices.
            Some(Told::Leave) => return Ok(ControlFlow::Break(())),
            Some(Told::Reload) => {
                self.reload();
                return Ok(ControlFlow::Continue(()));
            }
            Some(Told::Close) if self.ending.is_none() => {
                self.ending = Some(Instant::now());
                self.backend.shutdown().map_err(CommandError::failed)?;
                return Ok(ControlFlow::Continue(()));
            }
            _ => {}
        }
        // While the vifs close, the wait is short, and has an end.
        let timeout = match self.ending {
            Some(since)
                if self.backend.is_empty() || since.elapsed() > patience::farewell(FAREWELL) =>
            {
                return Ok(ControlFlow::Break(()));
            }
            Some(_) => Some(Duration::from_millis(50)),
            None => None,
        };
        // Then the step waits for anything that it has to do with.
        self.place.check()?;
        let Listeners { reports, traces, metrics } = &self.listeners;
        let [store, bell] = self.backend.descriptors();
        let mut own =
            vec![store, bell, reports.descriptor(), traces.descriptor(), self.signals.descriptor()];
        own.extend(metrics.as_ref().map(Metrics::descriptor));
        own.extend(self.uplink.as_ref().and_then(Uplink::descriptor));
        readable(&own, self.place.lifeline(), timeout)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Answers all programs that ask for the state of the backend.
    fn tell(&mut self) {
        let Self { backend, place, options, rules, uplink, listeners, own, .. } = self;
        let mut told = || {
            let own = (own.0.read(), &own.1);
            let uplink = uplink.as_mut().map(|uplink| uplink.report(backend));
            report(backend, place.platform.as_ref(), options, (rules.as_ref(), uplink), own)
        };
        listeners.reports.serve(&mut told);
        if let Some(metrics) = &listeners.metrics {
            metrics.serve(told);
        }
        listeners.traces.serve(|| backend.listen());
    }

    fn reload(&mut self) {
        match self.rules.as_mut().map(|rules| rules.load(&mut self.backend)) {
            Some(Ok(())) => info!("rules reloaded"),
            Some(Err(e)) => warn!("reload failed, the previous rules stay loaded: {e}"),
            None => info!("no rules to reload: start the backend with --rules FILE"),
        }
    }
}

/// Returns the function with which a worker thread begins. It gives up rights.
fn confined(worker: grantway_sandbox::Worker) -> OnWorker {
    Arc::new(move || worker.confine().map_err(std::io::Error::other))
}

/// Returns `None` on failure, with a warning: a backend can serve without metrics.
fn unless_failed<T>(outcome: Result<T, CommandError>) -> Option<T> {
    outcome.map_err(|e| warn!("{e}; the backend runs without metrics")).ok()
}

/// Returns the nodes that packets go through: all if there are rules, and otherwise a bridge.
fn nodes_of(args: &BackendArgs, secret: Secret) -> Result<Nodes, CommandError> {
    if args.rules.is_none() {
        return Ok(Nodes::bridge(secret));
    }
    let capture = args.mirror.as_deref().map(CaptureWriter::create).transpose();
    let capture = capture.map_err(CommandError::failed)?;
    Ok(Nodes::All(path::Settings {
        capture: capture.map(|capture| Arc::new(Mutex::new(capture))),
        ..path::Settings::new(secret)
    }))
}

/// Returns the number of workers: one per two processors, at most four, since guests need
/// processors, too.
fn fitting_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get() / 2).clamp(1, 4)
}

/// Error because of which no vif can have a TAP here.
type Refusal = Rc<RefCell<Option<String>>>;

/// Returns the function that opens the port of each vif, as `spec` says. A TAP has the name that
/// the vif asks for. It stays if this process is killed, and is removed with its vif.
fn opener(spec: PortSpec, mac: TapMac, refusal: &Refusal) -> OpenPort {
    let refusal = Rc::clone(refusal);
    Box::new(move |request: &PortRequest| -> Result<Box<dyn Port>, PortError> {
        let (name, by_vhost) = match &spec {
            PortSpec::Tap { name } => (name, false),
            PortSpec::Vhost { name } => (name, true),
            _ => return spec.open(),
        };
        // The TAP that a killed process left may have another name by now.
        let left = request.interface.and_then(Tap::name_of);
        if left.is_none() && !request.fresh {
            return Err(PortError::Gone { port: request.name.clone() });
        }
        let is_ours = left.is_none() && name.is_none();
        let name = left.or_else(|| name.clone()).unwrap_or_else(|| request.name.clone());
        let tap = Tap::open(&TapConfig {
            name: Some(name),
            offloads: TapOffloads::NONE,
            persist: Some(true),
            // A script sets the MTU and the link itself.
            mtu: (!request.scripted).then_some(request.mtu),
            // An interface that was left, or that has its own name, keeps its address: its guest
            // may know it.
            mac: mac.0.filter(|_| is_ours).map(Into::into),
            up: !request.scripted,
            multi_queue: request.queues > 1,
        });
        let opened = match tap {
            Ok(tap) if by_vhost => VhostTap::start(tap).map(|port| Box::new(port) as Box<dyn Port>),
            Ok(tap) => Ok(Box::new(tap) as Box<dyn Port>),
            Err(e) => Err(e.into()),
        };
        // An error of one vif fails that vif alone. An error that every vif would have ends the
        // backend.
        opened.inspect_err(|e| {
            if is_of_all(e) {
                refusal.borrow_mut().get_or_insert(e.to_string());
            }
        })
    })
}

/// Returns true for an error of a port that all vifs would have.
fn is_of_all(error: &PortError) -> bool {
    match error {
        PortError::Tap(e) => matches!(e, TapError::NoPermission { .. } | TapError::NoDevice),
        PortError::Vhost(e) => !matches!(e, VhostError::System { .. }),
        _ => false,
    }
}

/// Returns the report for operators.
fn report(
    backend: &Backend,
    platform: &dyn Platform,
    Options { mode, port, config }: &Options,
    (rules, uplink): (Option<&LiveRules>, Option<Value>),
    (memory, descriptors): (Memory, &Descriptors),
) -> Value {
    // The account has the packets and their work of one moment. Each vif's own report is read
    // afterwards.
    let Account { at, vifs: accounts, platform: asked } = backend.account();
    let reports: Vec<_> = backend.report().collect();
    let graph = backend.graph();
    let vifs: Vec<Value> = reports
        .iter()
        .map(|vif| {
            // The accounts have every vif, since only this thread adds vifs.
            let stats = accounts.get(&vif.vif).copied().unwrap_or(vif.stats);
            json!({
                "vif": vif.vif.to_string(),
                "domain": vif.vif.domain.0,
                "devid": vif.vif.devid,
                "port": vif.port.as_ref().map(port_report),
                "connected": vif.connected,
                "checksum": vif.checksums.as_str(),
                "policy": vif.policy.as_str(),
                "mapped": vif.mapped,
                "queues": vif.queues.iter().map(queue_report).collect::<Vec<_>>(),
                "stats": numbers(stats.fields()),
                "dropped": stats.dropped(),
            })
        })
        .collect();
    json!({
        "host": platform.host(),
        "mode": mode.as_str(),
        "port": port,
        "at_ns": nanoseconds(at),
        "memory": { "resident_bytes": memory.resident, "private_bytes": memory.private },
        "vifs": vifs,
        "uplink": uplink,
        "config": config,
        "workers": backend.workers().iter().map(|worker| json!({
            "worker": worker.number,
            "used_ns": nanoseconds(worker.used),
            "queues": worker.queues,
            "spin_ns": worker.spin.map(nanoseconds),
            "longest_round_ns": nanoseconds(worker.longest_round),
            "round_limit_ns": nanoseconds(ROUND_MAX),
        })).collect::<Vec<_>>(),
        "rules": rules.map(LiveRules::report),
        "graph": graph.as_ref().map(nodes::json),
        "budget": shares::of(backend, &reports, graph.as_ref(), descriptors),
        "control": control_work(backend),
        "platform": numbers(asked.fields()),
    })
}

/// Returns the limits of memory that buffers of all vifs may have mapped: pages by Xen's limit,
/// which an embedded host does not have, and areas by Linux's limit.
fn all_mapped(args: &BackendArgs, is_xen: bool) -> Mapped {
    let roots = Roots::system(&args.run_dir);
    let pages = args.mapped_total.unwrap_or_else(|| match is_xen {
        true => limits::default_mapped(PlatformFacts::gather(&roots).maps_twice()),
        false => limits::UNBOUNDED,
    });
    let areas = roots.number("proc/sys/vm/max_map_count").unwrap_or(limits::MAP_COUNT);
    let areas = limits::for_buffers(areas.saturating_sub(limits::OWN_AREAS));
    let [pages, areas] = [pages, areas].map(|limit| limit.try_into().unwrap_or(usize::MAX));
    Mapped { pages, areas }
}

/// Returns the most work of one step of the control thread, and its limit, in pages mapped or
/// unmapped. The work is for control requests of guests, and for lists that a killed process had
/// staged.
fn control_work(backend: &Backend) -> Value {
    let (most, limit) = backend.control_work();
    json!({ "used": most, "limit": limit })
}

/// Returns a queue's counters as JSON.
fn queue_report(queue: &QueueReport) -> Value {
    let QueueCounts { tx_packets, rx_packets, interrupts, notifies, turns } = queue.counts;
    json!({
        "queue": queue.number,
        "worker": queue.worker,
        "tx_packets": tx_packets,
        "rx_packets": rx_packets,
        "interrupts": interrupts,
        "notifies": notifies,
        "turns": turns,
        "tx_waiting": queue.tx_waiting,
        "rx_posted": queue.rx_posted,
        "waiting_bytes": queue.waiting_bytes,
        "port_drops": port_drops(&queue.port),
    })
}
