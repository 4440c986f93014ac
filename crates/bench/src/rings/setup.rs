//! A host, a server and its guests, in this process: the server in one thread, all guests in
//! another.

use super::guests::{Guests, Slice};
use super::plain::{Lists, Plain};
use super::{Case, Load, Server, Way};
use crate::probe::processors;
use crate::turns::{config, guest};
use grantway_backend::policy::Policy;
use grantway_backend::{Backend, BackendConfig, Meter, Settings};
use grantway_command::error::CommandError;
use grantway_command::process::pin;
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_frontend::Vif;
use grantway_hypervisor::{DomId, Platform};
use grantway_ports::PortSpec;
use grantway_vector::Secret;
use grantway_vector::path::{self, Nodes};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Secret of the tables, fixed: no frame comes from outside.
const SECRET: Secret = Secret(0x6772_616e_7477_6179, 0x7269_6e67_7300_0002);

/// A host, a server, and guests that are connected to it. Fields are in the order in which they are
/// to end.
pub struct Setup {
    /// The guests' vifs, until the caller takes them.
    pub vifs: Vec<Vif>,
    /// The program that serves them.
    pub server: Box<dyn Server>,
    _host: HostGuard,
    _folder: tempfile::TempDir,
}

impl Setup {
    /// Starts the parts of a case with these rules, and waits until all vifs are connected.
    ///
    /// # Errors
    ///
    /// A part did not get ready.
    pub fn new(case: &Case, way: Way, rules: &str) -> Result<Self, CommandError> {
        let _folder = tempfile::tempdir().map_err(|e| {
            CommandError::Failed(format!("cannot create the directory of the host: {e}"))
        })?;
        let _host = Host::spawn(_folder.path()).map_err(CommandError::failed)?;
        let dom0 = Domain::connect(_folder.path(), DomId::ZERO, Role::Service)
            .map_err(CommandError::failed)?;
        let guests = case.senders + 1;
        let plain = |lists| -> Result<Box<dyn Server>, CommandError> {
            let sizes = (guests, case.queues);
            Ok(Box::new(Plain::new(lists, &dom0, sizes, rules, SECRET)?))
        };
        let mut server = match way {
            Way::OneByOne => plain(Lists::Nowhere)?,
            Way::Entry => plain(Lists::Entry)?,
            Way::Layers => plain(Lists::Layers)?,
            Way::Graph => Box::new(backend(&dom0, _folder.path(), case.queues, rules)?),
        };
        let mut vifs = Vec::new();
        for number in 0..guests {
            let wishes = (Policy::Persistent, case.queues);
            let mut step = || server.step();
            vifs.push(guest(_folder.path(), &dom0, number.into(), wishes, &mut step)?);
        }
        Ok(Self { vifs, server, _host, _folder })
    }
}

/// Starts a backend on its own bridge, without a thread, as `grantway backend --rules` has it.
fn backend(
    dom0: &Arc<Domain>,
    folder: &Path,
    queues: u16,
    rules: &str,
) -> Result<Backend, CommandError> {
    let nodes = Nodes::All(path::Settings { merge: true, ..path::Settings::new(SECRET) });
    let config = config(Policy::Persistent, folder, nodes);
    let settings = Settings {
        queues: queues.into(),
        clock: Instant::now,
        meter: Meter::PROCESSOR,
        ..config.settings
    };
    let config = BackendConfig { settings, ..config };
    let platform: Arc<dyn Platform> = Arc::clone(dom0) as _;
    let open = Box::new(|_: &_| PortSpec::Bridge.open());
    let mut backend = Backend::start(platform, config, open).map_err(CommandError::failed)?;
    backend.load(rules, SECRET).map_err(CommandError::failed)?;
    Ok(backend)
}

impl Server for Backend {
    fn step(&mut self) -> Result<(), CommandError> {
        Backend::step(self)?;
        Backend::serve(self)?;
        Ok(())
    }

    fn serve(&mut self) -> Result<(), CommandError> {
        Backend::serve(self)?;
        Ok(())
    }
}

/// A set-up that is measured. It has a thread of its own, in which it stays: a backend cannot go to
/// another thread.
pub struct Running {
    spans: Option<Sender<Duration>>,
    slices: Receiver<Result<Slice, CommandError>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a case.
    ///
    /// # Errors
    ///
    /// A part did not get ready.
    pub fn start(case: &Case, way: Way) -> Result<Self, CommandError> {
        let (case, (spans, asked), (answer, slices)) = (*case, channel(), channel());
        let (started, start) = channel();
        // A pinned thread, and those that it starts, no longer know the others.
        let cpus = processors();
        let thread = std::thread::spawn(move || {
            pin_to(&cpus, SERVER);
            let mut ends = match Ends::start(&case, way) {
                Ok(ends) => ends,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(()));
            // It ends with the other end of a channel.
            while let Ok(span) = asked.recv() {
                if answer.send(ends.slice(span, &cpus)).is_err() {
                    break;
                }
            }
        });
        start.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(Self { spans: Some(spans), slices, thread: Some(thread) })
    }

    /// Measures a slice: the server in a thread of the first processor, and all guests in a thread
    /// of the second one. The calling thread stays on all processors, since it probes how far apart
    /// they are.
    ///
    /// # Errors
    ///
    /// An end failed, or a frame was lost.
    pub fn slice(&mut self, span: Duration) -> Result<Slice, CommandError> {
        let asked = self.spans.as_ref().is_some_and(|spans| spans.send(span).is_ok());
        let slice = asked.then(|| self.slices.recv().ok()).flatten();
        slice.unwrap_or_else(|| Err(ended()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.spans = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ended() -> CommandError {
    CommandError::Failed("a thread of the measurement ended; this is a fault of the bench".into())
}

/// Places of the server's processor and of the guests'.
const SERVER: usize = 0;
const GUESTS: usize = 1;

/// Pins the calling thread if there are two processors. If that fails, a slice is as good as its
/// probes.
fn pin_to(cpus: &[usize], place: usize) {
    if let [first, second, ..] = *cpus {
        let _ = pin([first, second][place]);
    }
}

/// The ends of a measurement, in the order in which they are to end.
struct Ends {
    guests: Guests,
    setup: Setup,
}

impl Ends {
    fn start(case: &Case, way: Way) -> Result<Self, CommandError> {
        let mut setup = Setup::new(case, way, &case.load.rules())?;
        let vifs = std::mem::take(&mut setup.vifs);
        let guests = Guests::start(vifs, &mut || setup.server.serve())?;
        Ok(Self { guests, setup })
    }

    /// Serves in the calling thread while the guests send and receive in another one.
    fn slice(&mut self, span: Duration, cpus: &[usize]) -> Result<Slice, CommandError> {
        let Self { guests, setup } = self;
        let (done, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let measured = scope.spawn(|| {
                pin_to(cpus, GUESTS);
                let measured = guests.run(span, &failed);
                done.store(true, Relaxed);
                measured
            });
            let alone = cpus.len() < 2;
            let mut served = Ok(());
            // A thread that panicked has not said that it is done.
            while served.is_ok() && !done.load(Relaxed) && !measured.is_finished() {
                served = (0..TURNS).try_for_each(|_| setup.server.serve());
                if alone {
                    std::thread::yield_now();
                }
            }
            failed.store(served.is_err(), Relaxed);
            let measured = measured.join().unwrap_or_else(|_| Err(ended()));
            served.and(measured)
        })
    }
}

/// Turns of the server between two looks at the guests' thread.
const TURNS: usize = 16;

impl Load {
    /// Returns the file of rules.
    pub fn rules(self) -> String {
        match self {
            Self::Nothing => String::new(),
            // The paper: a drop of UDP to a range of ports that the streams do not have.
            Self::OneRule => {
                "[[rule]]\naction = \"drop\"\nprotocol = \"udp\"\nto-ports = \"1-99\"\n".to_owned()
            }
            Self::Flower => {
                (0..MASKS).flat_map(|mask| (0..EACH).map(move |n| filter(mask, n))).collect()
            }
        }
    }
}

/// Number of masks of the filters, and of filters for each mask.
const MASKS: u32 = 8;
const EACH: u32 = 4;

/// Returns a filter that fits no frame: by a network of senders, and by some bits of the port.
fn filter(mask: u32, number: u32) -> String {
    let length = 20 - mask % 4;
    let network = std::net::Ipv4Addr::from_bits(0xac10_0000 | number << 16);
    let bits = 0xff00_u16 << (mask / 4);
    let port = (number as u16 + 1) << 12;
    format!(
        "[[filter]]\naction = \"drop\"\nprotocol = \"udp\"\nfrom = \"{network}/{length}\"\n\
         to-port = \"{port:#x}/{bits:#x}\"\n"
    )
}
