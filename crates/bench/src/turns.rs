//! `grantway bench turns`: both ends in one thread, in turns, under a counter of instructions
//! (`scripts/instructions`). Nothing here depends on time or on the scheduler, so two runs of one
//! binary have the same count.
//!
//! Only instructions within [`frontend_half`] and [`backend_half`] are counted, without those of
//! the port ([`Frames`]). A counter is to be toggled by these names.

use super::args::{Traced, TurnsArgs};
use super::rig::Direction;
use arrayvec::ArrayVec;
use grantway_backend::policy::PolicyLimits;
use grantway_backend::{
    Backend, BackendConfig, Meter, Patience, Settings, TraceBatch, TraceReader, WaitMode,
};
use grantway_command::args::Api;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::toolstack::config::VifConfig;
use grantway_command::toolstack::device;
use grantway_command::toolstack::mac::Mac;
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_frontend::{
    Policy, Queue, SendError, TxFrame, TxMeta, Vif, VifError, VifStatus, Wishes,
};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::Offload;
use grantway_ports::{
    BURST, Counters, FrameMeta, FramePlace, Port, PortCaps, PortControl, PortError, PortReport,
    PortSpec, Probe, RECV_BUFFER, Readiness, SentBurst,
};
use grantway_vector::Secret;
use grantway_vector::path::{self, Nodes};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Most steps that the ends may take to agree. The thread sleeps a little between steps.
const STEPS: usize = 20_000;
/// Secret of the graph, fixed: no frame comes from outside.
const SECRET: Secret = Secret(1, 2);
/// Packets that cross before the first counted one. Every page has been used by then.
const WARM_UP: usize = 2048;

/// Runs the turns, and prints the number of counted packets.
///
/// # Errors
///
/// An end did not get ready, or a packet was lost.
pub fn run(args: &TurnsArgs) -> Result<(), CommandError> {
    let mut turns = Turns::start(args)?;
    let burst = usize::from(args.burst);
    let frame = turns.addressed(vec![0; args.size.into()]);
    let mut frames = vec![frame; burst];
    if args.traced == Some(Traced::Segments) {
        frames.iter_mut().for_each(|frame| tcp(frame));
    }
    turns.all(&mut frames, WARM_UP, false)?;
    turns.all(&mut frames, args.packets, true)?;
    output::line(args.packets.next_multiple_of(burst).to_string())
}

/// Runs the frontend's part of a turn.
#[inline(never)]
fn frontend_half(
    half: &mut dyn FnMut() -> Result<usize, CommandError>,
) -> Result<usize, CommandError> {
    half()
}

/// Runs the backend's part of a turn.
#[inline(never)]
fn backend_half(
    half: &mut dyn FnMut() -> Result<usize, CommandError>,
) -> Result<usize, CommandError> {
    half()
}

fn uncounted(half: &mut dyn FnMut() -> Result<usize, CommandError>) -> Result<usize, CommandError> {
    half()
}

/// Host, backend and guests of the thread.
struct Turns {
    direction: Direction,
    api: Api,
    // Fields are in the order in which they are to end.
    guests: Vec<Vif>,
    backend: Backend,
    /// Numbers of frames that the backend's port is to give, and that it was given.
    given: Arc<Given>,
    arena: Vec<u8>,
    /// Reader of the trace, if one listens.
    reader: Option<TraceReader>,
    batch: TraceBatch,
    /// Sequence number of the next segment of TCP.
    sequence: u32,
    _host: HostGuard,
    _folder: tempfile::TempDir,
}

impl Turns {
    fn start(args: &TurnsArgs) -> Result<Self, CommandError> {
        let failed = |e: std::io::Error| {
            CommandError::Failed(format!(
                "cannot create the directory of the \
                                                              host: {e}"
            ))
        };
        // The host runs on a thread of this process.
        let folder = tempfile::tempdir().map_err(failed)?;
        let host = Host::spawn(folder.path()).map_err(CommandError::failed)?;
        let dom0 = Domain::connect(folder.path(), DomId::ZERO, Role::Service)
            .map_err(CommandError::failed)?;
        let given = Arc::new(Given::default());
        let port = (Arc::clone(&given), usize::from(args.size));
        let bridged = args.direction == Direction::GuestToGuest;
        let config = config(args.policy, folder.path(), nodes(args.spoof));
        let platform: Arc<dyn Platform> = Arc::clone(&dom0) as _;
        // The backend's port counts frames, unless the guests are bridged.
        let open = Box::new(move |_: &_| match bridged {
            true => PortSpec::Bridge.open(),
            false => Ok(Box::new(Frames::new(Arc::clone(&port.0), port.1)) as Box<dyn Port>),
        });
        let mut backend = Backend::start(platform, config, open).map_err(CommandError::failed)?;
        // Rules come before guests, so that every frame is judged.
        if args.spoof {
            backend.load(&rules(args.direction.guests()), SECRET).map_err(CommandError::failed)?;
        }
        let mut guests = Vec::new();
        for number in 0..args.direction.guests() {
            let mut step = || step(&mut backend);
            guests.push(guest(folder.path(), &dom0, number, (args.policy, 1), &mut step)?);
        }
        let (_host, _folder, arena) = (host, folder, vec![0; BURST * 4096 + RECV_BUFFER]);
        let (direction, api, sequence) = (args.direction, args.api, 0);
        let reader = args.traced.and_then(|_| backend.listen());
        let batch = TraceBatch::default();
        Ok(Self {
            direction,
            api,
            guests,
            backend,
            given,
            arena,
            reader,
            batch,
            sequence,
            _host,
            _folder,
        })
    }

    /// Fills in headers from the last guest to the first. Returns the frame.
    fn addressed(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let last = self.guests.len().saturating_sub(1);
        frame[..6].copy_from_slice(&address(0));
        frame[6..12].copy_from_slice(&address(last));
        udp(&mut frame, ip(last), ip(0));
        frame
    }

    /// Sends at least `packets` packets, in bursts of `frames`, and checks that all arrive.
    fn all(
        &mut self,
        frames: &mut [Vec<u8>],
        packets: usize,
        count: bool,
    ) -> Result<(), CommandError> {
        if self.direction == Direction::GuestToGuest && !count {
            // The bridge learns the receiver's port from a frame that the receiver sends.
            let mut hello = self.addressed(vec![0; 64]);
            hello[..6].fill(0xff);
            hello[6..12].copy_from_slice(&address(0));
            self.send(0, &[&hello], false)?;
            self.serve(0, false)?;
            let last = self.guests.len().saturating_sub(1);
            self.receive(last, false)?;
            self.shown();
        }
        let (mut arrived, mut shown) = (0, 0);
        let mut sent = 0;
        // Each burst passes all ends before the next one.
        while sent < packets {
            sent += frames.len();
            frames.iter_mut().for_each(|frame| self.number(frame));
            let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
            let frames = &frames[..];
            arrived += match self.direction {
                Direction::Tx => {
                    self.send(0, frames, count)?;
                    self.serve(0, count)?
                }
                Direction::GuestToGuest => {
                    self.send(1, frames, count)?;
                    self.serve(0, count)?;
                    self.receive(0, count)?
                }
                _ => {
                    self.serve(frames.len(), count)?;
                    self.receive(0, count)?
                }
            };
            shown += self.shown();
        }
        if arrived != sent {
            return Err(CommandError::Failed(format!("{arrived} of {sent} packets arrived")));
        }
        // A packet between guests crosses two rings.
        let crossed = sent * self.direction.guests();
        if self.reader.is_some() && shown != crossed {
            return Err(CommandError::Failed(format!(
                "the trace has {shown} of {crossed} packets"
            )));
        }
        Ok(())
    }

    /// Gives a segment of TCP the next sequence number.
    fn number(&mut self, frame: &mut [u8]) {
        if frame[23] == 6 {
            frame[38..42].copy_from_slice(&self.sequence.to_be_bytes());
            self.sequence = self.sequence.wrapping_add(frame.len() as u32 - 54);
        }
    }

    /// Returns the number of packets that the reader of the trace finds.
    fn shown(&mut self) -> usize {
        let Some(reader) = &self.reader else { return 0 };
        reader.read(&mut self.batch, Duration::ZERO);
        self.batch.records.iter().map(|record| record.segments as usize).sum()
    }

    /// Sends a burst from a guest. Returns the number of frames that were sent.
    fn send(&mut self, guest: usize, frames: &[&[u8]], count: bool) -> Result<usize, CommandError> {
        let queue = queue(&mut self.guests, guest)?;
        let send = match self.api {
            Api::Copy => send,
            Api::Lend => make,
        };
        let half = &mut || send(queue, frames).map_err(CommandError::failed);
        if count { frontend_half(half) } else { uncounted(half) }
    }

    /// Receives a burst at a guest. Returns the number of frames.
    fn receive(&mut self, guest: usize, count: bool) -> Result<usize, CommandError> {
        let queue = queue(&mut self.guests, guest)?;
        let arena = &mut self.arena;
        let receive = match self.api {
            Api::Copy => receive,
            Api::Lend => look,
        };
        let half = &mut || receive(queue, arena).map_err(CommandError::failed);
        if count { frontend_half(half) } else { uncounted(half) }
    }

    /// Gives the backend a turn, with `frames` frames for the guest. Returns the number of frames
    /// that the backend took from a guest.
    fn serve(&mut self, frames: usize, count: bool) -> Result<usize, CommandError> {
        let before = self.given.taken.load(Relaxed);
        self.given.waiting.store(frames, Relaxed);
        let backend = &mut self.backend;
        let half = &mut || {
            backend.serve()?;
            Ok(0)
        };
        let _ = if count { backend_half(half) } else { uncounted(half) }?;
        Ok(self.given.taken.load(Relaxed) - before)
    }
}

/// Sends a burst as an application does. Returns the number of frames that were sent.
pub fn send<'a>(queue: &mut Queue, frames: &[&'a [u8]]) -> Result<usize, VifError> {
    let frame = |&bytes: &&'a [u8]| TxFrame { bytes, offload: Offload::default() };
    let mut sent = 0;
    loop {
        let (taken, why_not) = queue.send_burst(&frames[sent..], frame);
        sent += taken;
        match why_not {
            Some(SendError::Full) if queue.reap()? > 0 => {}
            _ => break,
        }
    }
    queue.flush()?;
    Ok(sent)
}

/// Sends a burst of lent frames, as an application does that writes a frame in place. Two stores
/// are made for each frame, as the other end reads.
fn make(queue: &mut Queue, frames: &[&[u8]]) -> Result<usize, VifError> {
    let len = frames.first().map_or(0, |frame| frame.len());
    let meta = TxMeta { len, offload: Offload::default() };
    let head = [0; 60];
    let mut sent = 0;
    loop {
        let (taken, why_not) = queue.lend_burst(
            &frames[sent..],
            |_| meta,
            |_, _, mut room| {
                // The room is large enough for any frame here.
                let _ = room.write(0, &head);
            },
        );
        sent += taken;
        match why_not {
            Some(SendError::Full) if queue.reap()? > 0 => {}
            _ => break,
        }
    }
    queue.flush()?;
    Ok(sent)
}

/// Receives a burst as an application does that looks at the frames in place.
fn look(queue: &mut Queue, _: &mut [u8]) -> Result<usize, VifError> {
    let mut bytes = 0;
    let received = queue.recv_lent_burst(|frame| bytes += frame.len())?;
    std::hint::black_box(bytes);
    queue.repost()?;
    Ok(received)
}

/// Receives a burst as an application does that has it copied.
pub(super) fn receive(queue: &mut Queue, arena: &mut [u8]) -> Result<usize, VifError> {
    let received = queue.recv_burst(arena, |_, _| {})?;
    queue.repost()?;
    Ok(received)
}

pub(super) fn queue(guests: &mut [Vif], guest: usize) -> Result<&mut Queue, CommandError> {
    let queue = guests.get_mut(guest).and_then(|vif| vif.queues().first_mut());
    queue.ok_or_else(|| CommandError::Failed("the vif is not connected any more".into()))
}

/// Returns the configuration of a backend of one worker, to which this thread gives its turns.
pub(super) fn config(most: Policy, folder: &Path, nodes: Nodes) -> BackendConfig {
    BackendConfig {
        settings: Settings {
            mode: WaitMode::Busy,
            patience: Patience { drain: Duration::from_secs(10), stall: None },
            policy: PolicyLimits { most, ..PolicyLimits::default() },
            clock: at_once,
            // The meter stands still, so that all turns are alike.
            meter: Meter::counted(|| Duration::ZERO),
            ..Settings::default()
        },
        threads: false,
        nodes,
        ..BackendConfig::new(folder, SECRET)
    }
}

/// Returns the nodes of the backend.
pub(super) fn nodes(all: bool) -> Nodes {
    let (secret, clock) = (SECRET, || 0);
    if !all {
        return Nodes::Bridge { secret, clock };
    }
    Nodes::All(path::Settings { clock, ..path::Settings::new(secret) })
}

/// Returns rules that give each guest one address.
fn rules(guests: usize) -> String {
    let vif = |guest| {
        let [a, b, c, d, e, f] = address(guest);
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        let (domain, ip) = (guest + 1, ip(guest).map(|byte| byte.to_string()).join("."));
        format!("[[vif]]\nname = \"{domain}.0\"\nmac = \"{mac}\"\naddresses = \"{ip}\"\n")
    };
    (0..guests).map(vif).collect()
}

/// Writes headers of UDP over IPv4 into a frame of 60 bytes or more.
pub(super) fn udp(frame: &mut [u8], from: [u8; 4], to: [u8; 4]) {
    // The length of a frame is far below 64 KiB.
    let [high, low] = (frame.len() as u16 - 14).to_be_bytes();
    let [udp_high, udp_low] = (frame.len() as u16 - 34).to_be_bytes();
    let mut header = [8, 0, 0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[14..18].copy_from_slice(&from);
    header[18..22].copy_from_slice(&to);
    let words = header[2..].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    // The rest of the carries fits into 16 bits.
    let sum = !((sum >> 16) + sum) as u16;
    header[12..14].copy_from_slice(&sum.to_be_bytes());
    frame[12..34].copy_from_slice(&header);
    frame[34..42].copy_from_slice(&[0, 9, 0, 9, udp_high, udp_low, 0, 0]);
}

/// Makes a segment of TCP of a datagram that has headers.
fn tcp(frame: &mut [u8]) {
    frame[23] = 6;
    // Five words of header, an acknowledgement, and a window.
    frame[38..54].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 5 << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    // IPv4's checksum, updated for the other protocol.
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    let (sum, carry) = sum.overflowing_add(17 - 6);
    frame[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
}

/// Returns the IPv4 address of a guest.
pub(super) fn ip(guest: usize) -> [u8; 4] {
    // There are a few guests.
    [10, 0, 0, guest as u8 + 1]
}

/// Returns the Ethernet address of a guest's vif.
pub(super) fn address(guest: usize) -> [u8; 6] {
    // There are a few guests.
    [0x00, 0x16, 0x3e, 0, 0, guest as u8 + 1]
}

/// Does what is due at a backend without threads.
pub(super) fn step(backend: &mut Backend) -> Result<(), CommandError> {
    backend.step()?;
    backend.serve()?;
    Ok(())
}

/// Starts a guest, and waits until its vif is connected by this policy, with this number of queues.
/// Has the backend do what is due by `step`.
pub(super) fn guest(
    folder: &Path,
    dom0: &Arc<Domain>,
    number: usize,
    (policy, queues): (Policy, u16),
    step: &mut dyn FnMut() -> Result<(), CommandError>,
) -> Result<Vif, CommandError> {
    // There are a few guests.
    let domain = DomId(number as u16 + 1);
    dom0.create_domain(domain, "guest")?;
    let [.., a, b, c] = address(number);
    let mac = Mac::of_xen([a, b, c]);
    let config = VifConfig { mac: Some(mac), ..VifConfig::default() };
    let mut store = dom0.store()?;
    device::attach(store.as_mut(), domain, &config, [a, b, c]).map_err(CommandError::failed)?;
    let own = Domain::connect(folder, domain, Role::Guest).map_err(CommandError::failed)?;
    let wish = match policy {
        Policy::Copy | Policy::Map => Policy::Copy,
        Policy::Persistent => Policy::Persistent,
        Policy::Staging => Policy::Staging,
    };
    let wishes = Wishes { policy: wish, queues, ..Wishes::default() };
    let mut vif = Vif::open(own, 0, wishes).map_err(CommandError::failed)?;
    for _ in 0..STEPS {
        step()?;
        let status = vif.store_changed().map_err(CommandError::failed)?;
        vif.take_events().map_err(CommandError::failed)?;
        let settled = vif.staging().iter().all(|queue| queue.staged == queue.wished);
        let agreed = vif.features().policy == wish && vif.queues().len() == usize::from(queues);
        if status == VifStatus::Connected && agreed && settled {
            return Ok(vif);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err(CommandError::Failed(format!("the vif of domain {domain} did not connect by {policy}")))
}

/// Returns the time of a clock that stands still.
fn at_once() -> Instant {
    static NOW: OnceLock<Instant> = OnceLock::new();
    *NOW.get_or_init(Instant::now)
}

/// Counters that the backend's port shares with the loop of turns.
#[derive(Default)]
struct Given {
    /// Number of frames that the port is to give to the guest.
    waiting: AtomicUsize,
    /// Number of frames that came from the guest.
    taken: AtomicUsize,
}

/// A port that gives frames without writing their bytes, and takes any frame.
struct Frames {
    given: Arc<Given>,
    size: usize,
    counters: Counters,
}

impl Frames {
    fn new(given: Arc<Given>, size: usize) -> Self {
        Self { given, size, counters: Counters::default() }
    }
}

impl Port for Frames {
    fn send(&mut self, _: &[u8], _: Offload) -> Result<(), grantway_ports::SendError> {
        self.given.taken.fetch_add(1, Relaxed);
        Ok(())
    }

    fn send_burst(&mut self, _: &[u8], frames: &[FramePlace]) -> Result<SentBurst, PortError> {
        self.given.taken.fetch_add(frames.len(), Relaxed);
        let bytes = self.size * frames.len();
        Ok(SentBurst { taken: frames.len(), bytes, ..SentBurst::default() })
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn recv_burst(
        &mut self,
        _: &mut [u8],
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        let count = self.given.waiting.swap(0, Relaxed).min(frames.remaining_capacity());
        let meta = FrameMeta { len: self.size, offload: Offload::default() };
        let step = self.size.next_multiple_of(64);
        frames.extend((0..count).map(|n| FramePlace { at: n * step, meta }));
        Ok(())
    }

    fn recv_own_burst(
        &mut self,
        arena: &mut [u8],
        _: &mut usize,
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        self.recv_burst(arena, frames)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Now
    }

    fn caps(&self) -> PortCaps {
        PortCaps { short: self.size <= 4096, ..PortCaps::default() }
    }
}

impl PortControl for Frames {}

impl Probe for Frames {
    fn name(&self) -> &str {
        "frames"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}
