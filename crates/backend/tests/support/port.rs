//! Ports behind the vifs. They keep the frames that come, and give the guest frames of a test
//! or a generator. Like a persistent interface, the far side outlives the backend, until the
//! backend removes it.

use arrayvec::ArrayVec;
use grantway_backend::{PortRequest, VifId};
use grantway_netif::Offload;
use grantway_ports::{
    BURST, Checker, CheckerConfig, Counters, FrameMeta, FramePlace, Generator, GeneratorConfig,
    Port, PortCaps, PortControl, PortError, PortReport, Probe, RECV_BUFFER, Readiness, SendError,
    SplitFrame, TapOffloads, monotonic,
};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames from the guest that a port keeps whole.
const KEPT: usize = 20_000;

/// Name under which the tests know the port of the bridge's uplink.
pub const UPLINK: VifId = VifId { domain: grantway_hypervisor::DomId(999), devid: 0 };

/// Operation of the backend on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Open,
    SetOffloads,
    SetLink(bool),
    Send,
    Recv,
    Remove,
}

/// Function that is called at each operation, on the thread of the operation.
pub type Hook = Box<dyn FnMut(Call) + Send>;

/// Far side of the port of one vif, as a test sees it.
pub struct Behind {
    pub vif: VifId,
    bell: OwnedFd,
    inner: Mutex<Inner>,
    hook: Mutex<Option<Hook>>,
}

#[derive(Default)]
pub struct Inner {
    /// Number of openings that will fail, as of a TAP that another program holds for a while.
    pub held: u32,
    /// Number of removals that will fail.
    pub stuck: u32,
    /// Number of queues that the last opening asked for.
    pub queues: u32,
    /// Frames that came from the guest, the first [`KEPT`] of them.
    pub taken: Vec<(Vec<u8>, Offload)>,
    /// Number of frames that came from the guest.
    pub sent: u64,
    /// Frames for the guest.
    pub waiting: VecDeque<(Vec<u8>, Offload)>,
    /// Number of frames that the backend took from `waiting` or from the flow.
    pub given: u64,
    pub flow: Option<Flow>,
    pub offloads: TapOffloads,
    pub link: Option<bool>,
    /// True if the port accepts no frame now.
    pub busy: bool,
    /// True if the port has no room for a turn.
    pub full: bool,
    /// True if the interface was deleted. Then the port can neither send nor receive.
    pub deleted: bool,
    /// True if the port wants segments merged.
    pub merges: bool,
    /// True if the port wants datagrams merged, too.
    pub merges_udp: bool,
    /// True if the port promises that each frame for the guest fits a page and is finished.
    pub short: bool,
    /// True if the port writes its numbered frames over its last ones, if these are still in
    /// the arena.
    pub keeps: bool,
    /// Number of its last frames that the port found in the arena, in all.
    pub found: usize,
    /// Number of the backend's handles. `opened` is true if there ever was one.
    pub handles: u32,
    pub opened: bool,
    pub removed: bool,
}

/// Numbered frames, both ways.
pub struct Flow {
    pub from_guest: Checker,
    pub to_guest: Generator,
    /// Frames that may be given out now.
    pub credits: u64,
}

impl Flow {
    pub fn new(size: usize) -> Self {
        Self { from_guest: checker(), to_guest: generator(size), credits: 0 }
    }
}

/// Looks at every byte.
pub fn checker() -> Checker {
    Checker::new(CheckerConfig { flows: 4, payload_every: 1, from_zero: true })
}

/// Most numbered frames on their way to a guest, two slots each.
const UNDER_WAY: u64 = 64;

pub fn generator(size: usize) -> Generator {
    let config = GeneratorConfig { size, flows: 4, ..GeneratorConfig::default() };
    Generator::new(config, monotonic()).unwrap()
}

impl Behind {
    fn new(vif: VifId) -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self {
            vif,
            bell: rustix::event::eventfd(0, flags).unwrap(),
            inner: Mutex::new(Inner { offloads: TapOffloads::NONE, ..Inner::default() }),
            hook: Mutex::new(None),
        }
    }

    pub fn look(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A frame for the guest.
    pub fn give(&self, frame: Vec<u8>, offload: Offload) {
        self.look().waiting.push_back((frame, offload));
        self.ring();
    }

    /// Lets `frames` more numbered frames go to the guest, of which `settled` have arrived or
    /// are lost. No more go at once than a ring of pages takes, even if threads are late. A
    /// frame that finds no page may be dropped on a bridge, and by a clock that the test moves.
    pub fn credit(&self, frames: u64, settled: u64) {
        if let Some(flow) = &mut self.look().flow {
            let under_way = (flow.to_guest.made() + flow.credits).saturating_sub(settled);
            flow.credits += frames.min(UNDER_WAY.saturating_sub(under_way));
        }
        self.ring();
    }

    /// Lets the port report that it has no room for a turn.
    pub fn fill(&self) {
        self.look().full = true;
    }

    /// Gives the port room again, of which its descriptor tells.
    pub fn drain(&self) {
        self.look().full = false;
        self.ring();
    }

    /// Deletes the interface behind the port. `told` is true if the port's descriptor shows it.
    pub fn delete(&self, told: bool) {
        self.look().deleted = true;
        if told {
            self.ring();
        }
    }

    pub fn hook(&self, hook: impl FnMut(Call) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub fn unhook(&self) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn call(&self, call: Call) {
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut hook) = hook {
            hook(call);
            let mut slot = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert(hook);
        }
    }
}

/// Every port of a test, by vif.
#[derive(Default)]
pub struct Ports {
    all: Mutex<BTreeMap<VifId, Vec<Arc<Behind>>>>,
    /// Vifs that have ports of their own beside the bridge.
    apart: Mutex<BTreeSet<VifId>>,
}

impl Ports {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VifId, Vec<Arc<Behind>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a vif a port of its own, whatever the other vifs have.
    pub fn set_apart(&self, vif: VifId) {
        self.apart.lock().unwrap().insert(vif);
    }

    /// Returns true if a vif has a port of its own beside the bridge.
    pub fn is_apart(&self, vif: VifId) -> bool {
        self.apart.lock().unwrap().contains(&vif)
    }

    /// Returns the far side of a vif's port, and makes a new one if there is none or if it was
    /// removed.
    pub fn of(&self, vif: VifId) -> Arc<Behind> {
        let mut all = self.all();
        let there = all.entry(vif).or_default();
        match there.last().filter(|behind| !behind.look().removed) {
            Some(behind) => Arc::clone(behind),
            None => {
                let behind = Arc::new(Behind::new(vif));
                there.push(Arc::clone(&behind));
                behind
            }
        }
    }

    /// Forgets the far sides of a vif's ports if the backend has closed and removed all of
    /// them. Returns true if so.
    pub fn forget(&self, vif: VifId) -> bool {
        let mut all = self.all();
        let gone = |inner: &Inner| inner.handles == 0 && inner.removed;
        let over = all.get(&vif).is_none_or(|there| there.iter().all(|b| gone(&b.look())));
        if over {
            all.remove(&vif);
        }
        over
    }

    /// Returns all far sides that the vif's ports ever had.
    pub fn ever(&self, vif: VifId) -> Vec<Arc<Behind>> {
        self.all().get(&vif).cloned().unwrap_or_default()
    }

    /// The port beside the guests on the bridge.
    pub fn open_uplink(&self) -> Box<dyn Port> {
        let behind = self.of(UPLINK);
        behind.look().handles += 1;
        let mut port = TestPort::new(behind);
        port.name = "uplink".into();
        Box::new(port)
    }

    /// # Errors
    ///
    /// Somebody holds it.
    pub fn open(&self, request: &PortRequest) -> Result<Box<dyn Port>, PortError> {
        let vif = request.vif;
        if let Some(left) = request.interface {
            assert_eq!(left, interface(vif), "another vif's interface");
        }
        let behind = self.of(vif);
        {
            let mut inner = behind.look();
            if inner.held > 0 {
                inner.held -= 1;
                return Err(busy("open"));
            }
            inner.handles += 1;
            inner.opened = true;
            inner.queues = request.queues;
        }
        behind.call(Call::Open);
        Ok(Box::new(TestPort::new(behind)))
    }
}

fn busy(operation: &'static str) -> PortError {
    let source = std::io::ErrorKind::ResourceBusy.into();
    PortError::Io { port: "held".into(), operation, source }
}

/// The index of the interface behind a vif.
fn interface(vif: VifId) -> u32 {
    1000 * u32::from(vif.domain.0) + vif.devid + 1
}

struct TestPort {
    behind: Arc<Behind>,
    /// A descriptor of its own, as each queue of a TAP has: one worker may
    /// watch several.
    bell: OwnedFd,
    name: String,
    counters: Counters,
}

impl TestPort {
    fn new(behind: Arc<Behind>) -> Self {
        let bell = rustix::io::dup(&behind.bell).unwrap();
        let name = behind.vif.to_string();
        Self { behind, bell, name, counters: Counters::default() }
    }
}

impl TestPort {
    fn takes(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let mut inner = self.behind.look();
        if inner.deleted {
            return Err(SendError::Failed(PortError::Gone { port: self.name.clone() }));
        }
        if inner.busy {
            return Err(SendError::Busy);
        }
        inner.sent += 1;
        if let Some(flow) = &mut inner.flow {
            flow.from_guest.check(frame);
        } else if inner.taken.len() < KEPT {
            inner.taken.push((frame.to_vec(), offload));
        }
        Ok(())
    }
}

impl Port for TestPort {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.behind.call(Call::Send);
        self.takes(frame, offload)
    }

    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        self.behind.call(Call::Send);
        self.takes(frame.gather(room).expect("room for the frame"), offload)
    }

    fn is_full(&mut self) -> Result<bool, PortError> {
        Ok(self.behind.look().full)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        assert!(buf.len() >= RECV_BUFFER, "a buffer of {} bytes", buf.len());
        self.behind.call(Call::Recv);
        let mut inner = self.behind.look();
        if inner.deleted {
            return Err(PortError::Gone { port: self.name.clone() });
        }
        let meta = if let Some((frame, offload)) = inner.waiting.pop_front() {
            buf[..frame.len()].copy_from_slice(&frame);
            Some(FrameMeta { len: frame.len(), offload })
        } else if let Some(flow) = inner.flow.as_mut().filter(|flow| flow.credits > 0) {
            flow.credits -= 1;
            let len = flow.to_guest.next_into(buf);
            Some(FrameMeta { len, offload: Offload::default() })
        } else {
            let _ = rustix::io::read(&self.behind.bell, &mut [0u8; 8]);
            None
        };
        inner.given += u64::from(meta.is_some());
        Ok(meta)
    }

    fn recv_own_burst(
        &mut self,
        arena: &mut [u8],
        kept: &mut usize,
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        if !self.behind.look().keeps {
            return self.recv_burst(arena, frames);
        }
        let inner = &mut *self.behind.look();
        let Some(flow) = inner.flow.as_mut().filter(|flow| flow.credits > 0) else {
            let _ = rustix::io::read(&self.behind.bell, &mut [0u8; 8]);
            return Ok(());
        };
        inner.found += *kept;
        flow.to_guest.recv_own_burst(arena, kept, frames)?;
        flow.credits = flow.credits.saturating_sub(frames.len() as u64);
        inner.given += frames.len() as u64;
        Ok(())
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Readable(self.bell.as_fd())
    }

    fn caps(&self) -> PortCaps {
        let inner = self.behind.look();
        let (wants_merged, short) = (inner.merges, inner.short);
        PortCaps {
            max_queues: u32::MAX,
            wants_merged,
            wants_merged_udp: inner.merges_udp,
            short,
            in_place: true,
            fills: true,
            bridged: false,
        }
    }
}

impl PortControl for TestPort {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        self.behind.look().handles += 1;
        Ok(Box::new(Self::new(Arc::clone(&self.behind))))
    }

    fn interface(&self) -> Option<u32> {
        Some(interface(self.behind.vif))
    }

    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        self.behind.call(Call::SetOffloads);
        self.behind.look().offloads = offloads;
        Ok(())
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        self.behind.call(Call::SetLink(up));
        self.behind.look().link = Some(up);
        Ok(())
    }

    fn remove(&mut self) -> Result<(), PortError> {
        self.behind.call(Call::Remove);
        let mut inner = self.behind.look();
        if inner.stuck > 0 {
            inner.stuck -= 1;
            return Err(busy("remove"));
        }
        inner.removed = true;
        Ok(())
    }
}

impl Probe for TestPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}

impl Drop for TestPort {
    fn drop(&mut self) {
        self.behind.look().handles -= 1;
    }
}
