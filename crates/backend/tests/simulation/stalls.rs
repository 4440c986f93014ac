//! Reason why waiting is level-triggered, in a simulation: two guests with a stack in user
//! space are on one bridge, and one sends to the other by TCP, in an order of steps that a seed
//! chooses. A guest that knows only the signals that come while it sleeps, as a Mirage guest
//! once did, sleeps although a frame is in its ring. A guest that looks once more after it has
//! armed never does.
//!
//! Time stands still while anybody has something to do: no timer hides a lost signal.

use super::backend::{Server, Setup};
use super::guest::{mac, readable};
use super::toolstack::Toolstack;
use super::xen::Xen;
use grantway_backend::VifId;
use grantway_backend::policy::PolicyLimits;
use grantway_frontend::{Vif, VifStatus, Wishes};
use grantway_hypervisor::{DomId, Platform};
use grantway_stack::smoltcp::iface::SocketHandle;
use grantway_stack::smoltcp::socket::tcp;
use grantway_stack::smoltcp::time::{Duration, Instant};
use grantway_stack::smoltcp::wire::{IpAddress, IpCidr};
use grantway_stack::{Stack, StackConfig, tcp_socket};
use grantway_testkit::Numbers;

const PORT: u16 = 5001;
/// Bytes that a schedule carries.
const BYTES: usize = 100_000;
/// Steps after which a schedule is taken to go on for ever.
const STEPS: u64 = 1_000_000;
/// Schedules by seeds, of either wait.
const SCHEDULES: u64 = 2000;
/// Steps whose order is tried exhaustively, of three actors.
const ORDERED: u32 = 8;

/// Way in which a guest waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// By the state of the ring: it is asked once more after it was armed.
    Level,
    /// By signals: those that came before it sleeps are forgotten.
    Edge,
}

/// Step of a guest. Others may act between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Receive,
    Talk,
    Send,
    TakeEvents,
    Arm,
    Sleep,
}

/// One of the two guests, and its connection.
struct Guest {
    vif: Vif<Stack>,
    socket: SocketHandle,
    wait: Wait,
    next: Step,
    /// True if anything moved since the guest began its round.
    moved: bool,
    /// Bytes that it is still to write, and that it read.
    to_write: usize,
    taken: usize,
}

fn address(number: usize) -> IpAddress {
    IpAddress::v4(10, 99, 1, number as u8 + 1)
}

impl Guest {
    fn open(xen: &Xen, id: VifId, number: usize, wait: Wait, setup: (Wishes, usize)) -> Self {
        let (wishes, window) = setup;
        let own = IpCidr::new(address(number), 24);
        let seed = number as u64 + 1;
        let config = StackConfig { addresses: vec![own], ..StackConfig::new(seed) };
        let stack = Stack::new(&config, Instant::ZERO).unwrap();
        let mut vif = Vif::open_with(xen.spawn(id.domain), id.devid, wishes, stack).unwrap();
        let stack = vif.runner_mut();
        assert!(stack.set_station(mac(number), 1500));
        let window = window * 1460;
        let send = tcp::SocketBuffer::new(vec![0; window]);
        let mut socket = tcp_socket(window, send, Duration::from_secs(60));
        if number == 1 {
            socket.listen(PORT).unwrap();
        }
        let socket = stack.sockets().add(socket);
        Self { vif, socket, wait, next: Step::Receive, moved: false, to_write: 0, taken: 0 }
    }

    fn connect(&mut self) {
        let (sockets, context) = self.vif.runner_mut().connecting();
        let socket = sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        socket.connect(context, (address(1), PORT), 49_152).unwrap();
    }

    fn is_ready(&self) -> bool {
        self.next != Step::Sleep || readable(self.vif.runner().descriptor().into_iter())
    }

    /// Does the next of its steps.
    fn step(&mut self, now: Instant) {
        use Step::*;
        let stack = self.vif.runner_mut();
        self.next = match (self.wait, self.next) {
            (_, Sleep) => Receive,
            (wait, Receive) => {
                self.moved = stack.receive(now).unwrap();
                if wait == Wait::Level { Talk } else { Arm }
            }
            (_, Talk) => {
                self.moved |= self.exchange();
                Send
            }
            (wait, Send) => {
                self.moved |= stack.send(now).unwrap();
                if wait == Wait::Level && self.moved { Receive } else { TakeEvents }
            }
            (wait, TakeEvents) => {
                stack.take_events().unwrap();
                if wait == Wait::Level { Arm } else { Sleep }
            }
            (Wait::Level, Arm) => {
                if stack.arm().unwrap() {
                    Receive
                } else {
                    Sleep
                }
            }
            // The ring is asked to the end, then the sockets have their turn.
            (Wait::Edge, Arm) => {
                if stack.arm().unwrap() | self.moved {
                    Receive
                } else {
                    Talk
                }
            }
        };
    }

    /// Reads and writes all that there is.
    fn exchange(&mut self) -> bool {
        let socket = self.vif.runner_mut().sockets().get_mut::<tcp::Socket<'_>>(self.socket);
        let mut moved = 0;
        while self.to_write > 0 && socket.can_send() {
            let wrote = socket.send(|room| {
                let len = room.len().min(self.to_write);
                (len, len)
            });
            self.to_write -= wrote.unwrap();
            moved += 1;
        }
        while socket.can_recv() {
            self.taken += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap();
            moved += 1;
        }
        moved > 0
    }

    /// Returns true if the guest sleeps without a signal although a frame is in its ring. In
    /// this case it also wakes the guest.
    fn sleeps_over(&mut self, now: Instant) -> bool {
        if self.is_ready() || !self.vif.runner_mut().receive(now).unwrap() {
            return false;
        }
        self.next = Step::Receive;
        true
    }
}

/// Two guests and the backend between them.
struct Bridge {
    xen: Xen,
    server: Server,
    guests: [Guest; 2],
    /// The backend had nothing to do, and nobody acted since.
    idle: bool,
    now: Instant,
    steps: u64,
    /// Number of times that a guest slept over a frame until something else woke it.
    stalls: u64,
    /// Number of times that time had to pass.
    waits: u64,
    _folder: tempfile::TempDir,
}

impl Bridge {
    fn new(wait: Wait, wishes: Wishes, window: usize) -> Self {
        let xen = Xen::new();
        let tools = xen.spawn(DomId(0));
        let mut toolstack = Toolstack { store: tools.store().unwrap(), backend: DomId(0) };
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            run_folder: folder.path().to_owned(),
            queues: 1,
            bridged: true,
            workers: 1,
            by_rules: false,
            policy: PolicyLimits::default(),
            lines: Default::default(),
        };
        let mut server = Server::new(setup);
        server.start(&xen, None);
        let guests = [0, 1].map(|number| {
            let id = VifId { domain: DomId(number as u16 + 1), devid: 0 };
            xen.create(id.domain);
            toolstack.attach(id, &[]);
            Guest::open(&xen, id, number, wait, (wishes, window))
        });
        let (now, folder) = (Instant::ZERO, folder);
        let mut bridge = Self {
            xen,
            server,
            guests,
            idle: false,
            now,
            steps: 0,
            stalls: 0,
            waits: 0,
            _folder: folder,
        };
        bridge.negotiate();
        bridge.guests[0].connect();
        bridge
    }

    /// Lets all act until both vifs are connected and the store has nothing new.
    fn negotiate(&mut self) {
        for _ in 0..1000 {
            let mut busy = self.server.step() | self.server.serve();
            for guest in &mut self.guests {
                guest.vif.take_answers().unwrap();
                busy |= guest.vif.store_changed().unwrap() != VifStatus::Connected;
                busy |= guest.vif.has_changes();
            }
            if !busy {
                return;
            }
        }
        panic!("the vifs do not come to be connected");
    }

    /// Lets one of the three act. Returns false if it has nothing to do.
    fn act(&mut self, actor: usize) -> bool {
        self.steps += 1;
        assert!(self.steps < STEPS, "somebody still finds something to do");
        match self.guests.get_mut(actor) {
            Some(guest) if guest.is_ready() => {
                guest.step(self.now);
                self.idle = false;
                true
            }
            Some(_) => false,
            None if self.idle => false,
            None => {
                self.idle = !(self.server.step() | self.server.serve());
                true
            }
        }
    }

    /// Goes on while all sleep: wakes a guest that sleeps over a frame, or lets time pass for
    /// timers.
    fn goes_on(&mut self) {
        let now = self.now;
        let slept = self.guests.iter_mut().filter_map(|guest| guest.sleeps_over(now).then_some(()));
        let slept = slept.count() as u64;
        self.stalls += slept;
        if slept > 0 {
            return;
        }
        self.waits += 1;
        self.now += Duration::from_millis(5);
        self.guests.iter_mut().for_each(|guest| guest.next = Step::Receive);
    }

    /// Carries all that is to be written, in an order that numbers choose.
    fn carries(&mut self, bytes: usize, numbers: &mut Numbers) {
        self.guests[0].to_write += bytes;
        let until = self.guests[1].taken + bytes;
        // Some are slow, others quick.
        let weights = [0; 3].map(|_: usize| numbers.one_of(&[1, 1, 3, 20]));
        let mut vain = 0;
        while self.guests[1].taken < until {
            let mut chosen = numbers.below(weights.iter().sum());
            let actor = weights.iter().position(|&weight| match chosen.checked_sub(weight) {
                Some(rest) => {
                    chosen = rest;
                    false
                }
                None => true,
            });
            vain = if self.act(actor.unwrap()) { 0 } else { vain + 1 };
            if vain > 3 && !(0..3).any(|actor| self.act(actor)) {
                self.goes_on();
            }
        }
    }

    /// Lets all act in turns until none has anything to do.
    fn settles(&mut self) {
        while (0..3).fold(false, |busy, actor| busy | self.act(actor)) {}
    }
}

/// A schedule: how often a guest slept over a frame, and how often time had to pass.
fn schedule(wait: Wait, seed: u64) -> (u64, u64) {
    let mut numbers = Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut flag = || numbers.once_in(2);
    let (scatter_gather, split_events) = (flag(), flag());
    let wishes =
        Wishes { gso: false, checksum: false, scatter_gather, split_events, ..Wishes::default() };
    let window = numbers.one_of(&[2, 4, 16]);
    let mut bridge = Bridge::new(wait, wishes, window);
    bridge.carries(BYTES, &mut numbers);
    assert!(bridge.xen.holds(DomId(1)).0 > 0);
    (bridge.stalls, bridge.waits)
}

#[test]
fn a_stream_stalls_on_edges_and_never_on_levels() {
    let (mut stalled, mut stalls) = (0, 0);
    for seed in 1..=SCHEDULES {
        let level = schedule(Wait::Level, seed);
        assert_eq!(level, (0, 0), "seed {seed}: a frame was slept over, or time had to pass");
        // A tenth of them is enough to show what the other wait does.
        if seed % 10 == 0 {
            let (edge, _) = schedule(Wait::Edge, seed);
            stalled += u64::from(edge > 0);
            stalls += edge;
        }
    }
    let edges = SCHEDULES / 10;
    println!(
        "edges: {stalls} stalls in {stalled} of {edges} schedules; levels: none in {SCHEDULES}"
    );
    assert!(stalled * 4 > edges, "the variant lost signals in {stalled} of {edges} schedules only");
}

/// Tries all orders of the first steps after a write, and returns the number of orders in which
/// a guest sleeps over a frame.
fn orders_that_stall(wait: Wait) -> u32 {
    let wishes = Wishes { gso: false, checksum: false, ..Wishes::default() };
    let mut bridge = Bridge::new(wait, wishes, 16);
    bridge.carries(1, &mut Numbers::new(1));
    let mut stall = 0;
    for order in 0..3_u32.pow(ORDERED) {
        bridge.steps = 0;
        let until = bridge.guests[1].taken + 1;
        bridge.guests[0].to_write = 1;
        // Its application woke the sender, and the receiver is just before its sleep.
        bridge.guests.iter_mut().for_each(|guest| guest.next = Step::Receive);
        for place in 0..ORDERED {
            bridge.act((order / 3_u32.pow(place) % 3) as usize);
        }
        let before = bridge.stalls;
        bridge.settles();
        while bridge.guests.iter_mut().any(|guest| guest.sleeps_over(bridge.now)) {
            bridge.stalls += 1;
            bridge.settles();
        }
        stall += u32::from(bridge.stalls > before);
        assert_eq!(bridge.guests[1].taken, until, "{wait:?}, order {order}");
    }
    stall
}

#[test]
fn no_order_of_the_first_steps_makes_a_guest_sleep_over_a_frame() {
    assert_eq!(orders_that_stall(Wait::Level), 0);
    let edge = orders_that_stall(Wait::Edge);
    println!("edges: {edge} of {} orders end in a frame slept over", 3_u32.pow(ORDERED));
    assert!(edge > 0, "the variant lost no signal");
}

#[test]
fn a_seed_gives_the_same_schedule_each_time() {
    for seed in 1..5 {
        for wait in [Wait::Level, Wait::Edge] {
            assert_eq!(schedule(wait, seed), schedule(wait, seed), "{wait:?}, seed {seed}");
        }
    }
}
