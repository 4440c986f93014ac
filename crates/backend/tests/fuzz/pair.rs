//! Two honest guests behind the backend's bridge, which send each other numbered frames.
//! Neither may lose one, and a frame from elsewhere must be as it was judged.

use super::support::honest::sleep;
use super::support::port::{Behind, checker};
use super::support::world::World;
use super::support::{PROMPT, eventually};
use super::witness;
use grantway_backend::VifId;
use grantway_embedded::Domain;
use grantway_frontend::{Policy, SendError, Vif, VifStatus, Wishes};
use grantway_hypervisor::DomId;
use grantway_netif::Offload;
use grantway_ports::{Checker, FlowReport, Generator, GeneratorConfig, Verdict, monotonic};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The two guests' addresses.
pub const ADDRESSES: [[u8; 6]; 2] = [[2, 0x47, 0x57, 1, 0, 1], [2, 0x47, 0x57, 1, 0, 2]];
const VIFS: [VifId; 2] =
    [VifId { domain: DomId(11), devid: 0 }, VifId { domain: DomId(12), devid: 0 }];
/// EtherType of marks. A guest that has seen a mark has seen all frames before it.
pub const MARK_TYPE: [u8; 2] = [0x88, 0xb8];
/// EtherType of greetings: frames that show the bridge where a guest is.
const GREETING_TYPE: [u8; 2] = [0x88, 0xb9];
/// Destination of greetings: a station behind the uplink, so that no other guest gets them and
/// can send them on.
const GREETED: [u8; 6] = [2, 0x47, 0x57, 1, 0, 10];
const SIZES: [usize; 2] = [300, 5000];
/// Frames on their way, each direction: far from what a queue may hold.
const WINDOW: u64 = 32;

#[derive(Default)]
struct Shared {
    leave: AtomicBool,
    /// Number of orders so far to rest or to go on. Odd while the guest is to rest.
    orders: AtomicU64,
    /// Last order to rest that the guest followed. Nothing from the guest is on its way since.
    rests: AtomicU64,
    /// Number of the greeting that the guest is to send; 0 if it is to send none.
    greets: AtomicU64,
    connections: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// Mark that the guest is to see, and the last awaited mark that it saw.
    awaited: AtomicU64,
    mark: AtomicU64,
    /// Frames of a known shape that came from the witness.
    judged: AtomicU64,
    total: Mutex<FlowReport>,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    /// Orders the guest to rest, or to go on.
    fn is_ordered(&self) {
        self.orders.fetch_add(1, SeqCst);
    }
}

pub struct Pair {
    shared: [Arc<Shared>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Pair {
    pub fn start(world: &mut World) -> Self {
        let shared = <[Arc<Shared>; 2]>::default();
        let mut threads = Vec::new();
        for (number, vif) in VIFS.into_iter().enumerate() {
            let domain = world.boot(vif.domain);
            world.attach(vif, &[]);
            let both = shared.clone();
            let run = move || End::new(number, &both).run(domain);
            let thread = std::thread::Builder::new().name("honest".into());
            threads.push(thread.spawn(run).unwrap());
        }
        let pair = Self { shared, threads };
        pair.carries(4);
        pair
    }

    /// Waits until `frames` more frames arrived each way.
    #[track_caller]
    pub fn carries(&self, frames: u64) {
        let goals = self.shared.each_ref().map(|end| end.received.load(SeqCst) + frames);
        eventually("numbered frames over the bridge", || {
            self.looks_well();
            let there = |(end, goal): (&Arc<Shared>, u64)| end.received.load(SeqCst) >= goal;
            self.shared.iter().zip(goals).all(there).then_some(())
        });
    }

    /// Waits until both have seen this mark, never 0, and so all that came before. It is
    /// sent again now and then: what goes to all has little room where a guest
    /// floods. Another mark, an old or a changed one that an enemy sent on, says nothing.
    #[track_caller]
    pub fn have_seen(&self, mark: u64, send: impl Fn()) {
        self.shared.iter().for_each(|end| end.awaited.store(mark, SeqCst));
        let (start, mut sent) = (Instant::now(), None::<Instant>);
        while !self.shared.iter().all(|end| end.mark.load(SeqCst) == mark) {
            assert!(start.elapsed() < PROMPT, "the bridge stands still");
            if sent.is_none_or(|at| at.elapsed() > Duration::from_millis(5)) {
                send();
                sent = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    #[track_caller]
    pub fn looks_well(&self) {
        for end in &self.shared {
            assert_eq!(*end.trouble.lock().unwrap(), None);
            assert!(end.connections.load(SeqCst) <= 1, "closed in between");
        }
    }

    pub fn judged(&self) -> u64 {
        self.shared.iter().map(|end| end.judged.load(SeqCst)).sum()
    }

    /// Every frame that was sent arrives, once and in order.
    #[track_caller]
    pub fn lost_nothing(&self) {
        self.rest();
        self.looks_well();
    }

    /// Calls `act` while nothing is on its way. Afterwards the bridge learns where the two
    /// guests are, before anything is sent to them. So none of their frames goes to all, and
    /// nobody has a frame of theirs to send on.
    #[track_caller]
    pub fn rests_while(&self, uplink: &Behind, act: impl FnOnce()) {
        self.rest();
        act();
        // Of this the bridge learns where it comes from, and drops it.
        uplink.give(greeting(GREETED, 0), Offload::default());
        let taken = || uplink.look().waiting.is_empty().then_some(());
        eventually("the bridge takes what the uplink has", taken);
        let both = || self.shared.iter();
        let number = both().map(|end| end.orders.load(SeqCst)).max().unwrap_or_default();
        both().for_each(|end| end.greets.store(number, SeqCst));
        let greetings = ADDRESSES.map(|address| greeting(address, number));
        let mut heard = [false; 2];
        eventually("the bridge learns where the honest guests are", || {
            for (frame, _) in uplink.look().taken.drain(..) {
                (0..2).for_each(|end| heard[end] |= frame == greetings[end]);
            }
            (heard == [true; 2]).then_some(())
        });
        both().for_each(|end| end.greets.store(0, SeqCst));
        both().for_each(|end| end.is_ordered());
    }

    /// Lets both guests stop sending, and waits until what they sent has arrived.
    #[track_caller]
    fn rest(&self) {
        self.shared.iter().for_each(|end| end.is_ordered());
        let rests = |end: &Arc<Shared>| end.rests.load(SeqCst) == end.orders.load(SeqCst);
        eventually("the honest guests rest", || self.shared.iter().all(rests).then_some(()));
        for [from, to] in [[0, 1], [1, 0]].map(|ends| ends.map(|end: usize| &self.shared[end])) {
            let start = Instant::now();
            loop {
                let sent = from.sent.load(SeqCst);
                let expected = FlowReport { received: sent, ..FlowReport::default() };
                let total = *to.total.lock().unwrap();
                if total == expected {
                    break;
                }
                assert!(start.elapsed() < PROMPT, "{total:?}, expected {expected:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Closes their vifs, of which nothing is left.
    #[track_caller]
    pub fn leave(mut self, world: &mut World) {
        for vif in VIFS {
            world.toolstack.ask_to_close(vif);
            world.toolstack.await_closed(vif);
            world.detaches(vif);
            world.holds_nothing_of(vif.domain);
        }
        self.end();
    }

    fn end(&mut self) {
        self.shared.iter().for_each(|end| end.leave.store(true, SeqCst));
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "an honest guest panicked");
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the greeting of the station `from`, from which the bridge learns where the station
/// is.
fn greeting(from: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&GREETED[..], &from, &GREETING_TYPE, &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

struct End {
    address: [u8; 6],
    own: Arc<Shared>,
    other: Arc<Shared>,
    made: Generator,
    seen: Checker,
    connected: bool,
    /// A frame that waits for room, of this length.
    pending: Option<usize>,
}

impl End {
    fn new(number: usize, both: &[Arc<Shared>; 2]) -> Self {
        let (address, destination) = (ADDRESSES[number], ADDRESSES[1 - number]);
        let size = SIZES[number];
        let config = GeneratorConfig {
            size,
            flows: 4,
            destination,
            source: address,
            ..GeneratorConfig::default()
        };
        Self {
            address,
            own: Arc::clone(&both[number]),
            other: Arc::clone(&both[1 - number]),
            made: Generator::new(config, monotonic()).unwrap(),
            seen: checker(),
            connected: false,
            pending: None,
        }
    }

    fn run(mut self, domain: Arc<Domain>) {
        let wishes = Wishes { policy: Policy::Copy, ..Wishes::default() };
        let mut vif = Vif::open(domain, 0, wishes).unwrap();
        let (mut frame, mut buffer) = (vec![0; 5000], vec![0; 65_536]);
        while !self.own.leave.load(SeqCst) {
            let status = vif.store_changed().unwrap();
            if status == VifStatus::Gone {
                return;
            }
            let connected = status == VifStatus::Connected;
            if connected && !self.connected {
                self.own.connections.fetch_add(1, SeqCst);
            }
            self.connected = connected;
            assert_eq!(vif.take_failure(), None, "the real backend broke a rule");
            vif.take_events().unwrap();
            while let Some(received) = vif.recv(&mut buffer).unwrap() {
                self.take(&buffer[..received.len]);
            }
            let order = self.own.orders.load(SeqCst);
            // Before that, what is sent is for nobody.
            if connected && self.other.connections.load(SeqCst) > 0 {
                self.send(&mut vif, &mut frame);
            }
            if order % 2 == 1 && self.pending.is_none() {
                self.own.rests.store(order, SeqCst);
            }
            let greeting = self.own.greets.load(SeqCst);
            if connected && greeting > 0 {
                self.greet(&mut vif, greeting);
            }
            vif.reap().unwrap();
            vif.repost().unwrap();
            if !vif.arm().unwrap() {
                sleep(&vif);
            }
        }
    }

    fn greet(&self, vif: &mut Vif, number: u64) {
        // It comes again.
        let _ = vif.send(&greeting(self.address, number), Offload::default());
        vif.flush().unwrap();
    }

    fn send(&mut self, vif: &mut Vif, frame: &mut [u8]) {
        for _ in 0..8 {
            let on_the_way = self.own.sent.load(SeqCst) - self.other.received.load(SeqCst);
            let len = match self.pending.take() {
                Some(len) => len,
                None if on_the_way >= WINDOW || self.own.orders.load(SeqCst) % 2 == 1 => break,
                None => self.made.next_into(frame),
            };
            match vif.send(&frame[..len], Offload::default()) {
                Ok(()) => self.own.sent.fetch_add(1, SeqCst),
                Err(SendError::Full) => {
                    self.pending = Some(len);
                    break;
                }
                Err(e) => panic!("{e}"),
            };
        }
        vif.flush().unwrap();
    }

    fn take(&mut self, frame: &[u8]) {
        if let Err(trouble) = self.judge(frame) {
            let head = &frame[..frame.len().min(32)];
            let said = format!("{trouble}: {} bytes, {head:02x?} ...", frame.len());
            self.own.trouble.lock().unwrap().get_or_insert(said);
        }
    }

    fn judge(&mut self, frame: &[u8]) -> Result<(), &'static str> {
        let (to, from, what) = (&frame[..6], &frame[6..12], &frame[12..14]);
        // The bridge knows where the other one is, and looked at these bytes.
        let others = ADDRESSES.iter().any(|known| to == known && to != self.address);
        if others {
            return Err("a frame for the other guest");
        }
        if ADDRESSES.iter().any(|known| from == known) {
            return match self.seen.check(frame) {
                Verdict::Corrupt | Verdict::Foreign => Err("a frame of the other guest's, changed"),
                _ => {
                    *self.own.total.lock().unwrap() = self.seen.total();
                    self.own.received.fetch_add(1, SeqCst);
                    Ok(())
                }
            };
        }
        if what == MARK_TYPE {
            let awaited = self.own.awaited.load(SeqCst);
            if frame.get(14..22) == Some(&awaited.to_be_bytes()) {
                self.own.mark.store(awaited, SeqCst);
            }
        } else if (from, what) == (&witness::FROM[..], &witness::TYPE) {
            self.own.judged.fetch_add(1, SeqCst);
            let said = frame.get(14..16).and_then(|said| said.try_into().ok());
            if said.map(u16::from_be_bytes).map(usize::from) != Some(frame.len()) {
                return Err("not as long as it was sent");
            }
            let mut kept = frame[..frame.len().min(witness::DIRTY)].iter().enumerate().skip(16);
            if !kept.all(|(n, &byte)| byte == witness::byte(n)) {
                return Err("not the bytes that were sent");
            }
        }
        Ok(())
    }
}
