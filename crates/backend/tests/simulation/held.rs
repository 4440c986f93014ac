//! A guest with a stack in user space that can send nothing, since the rate of its vif holds
//! its ring. It sleeps until there is room, even if frames come meanwhile.

use super::backend::{Server, Setup};
use super::guest::{mac, readable};
use super::toolstack::Toolstack;
use super::xen::Xen;
use grantway_backend::VifId;
use grantway_backend::policy::PolicyLimits;
use grantway_frontend::{Queue, Runner, Vif, VifStatus, Wishes};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::Offload;
use grantway_stack::smoltcp::time::Instant;
use grantway_stack::smoltcp::wire::{IpAddress, IpCidr};
use grantway_stack::{Stack, StackConfig};

/// Requests that a stack answers one by one, and that fill its ring and all that may wait behind
/// the ring, and that lie in its arena and on its receive ring.
const ASKED: usize = 256 + 256 + 64 + 32;
/// Requests of one turn of the asker.
const BURST: usize = 32;

/// The queue of a guest that asks.
#[derive(Default)]
struct Asker(Vec<Queue>);

impl Runner for Asker {
    fn start(&mut self, queues: Vec<Queue>) {
        self.0 = queues;
    }

    fn stop(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.0)
    }
}

const ASKER: usize = 0;
const STACK: usize = 1;

fn address(number: usize) -> [u8; 4] {
    [10, 99, 1, number as u8 + 1]
}

/// The question by ARP who has the stack's address.
fn question() -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &mac(ASKER), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend(mac(ASKER));
    frame.extend(address(ASKER));
    frame.extend([0; 6]);
    frame.extend(address(STACK));
    frame
}

/// A guest that asks, a guest that answers, and the backend between them.
struct Bridge {
    server: Server,
    asker: Vif<Asker>,
    stack: Vif<Stack>,
    toolstack: Toolstack,
    answered: usize,
    _folder: tempfile::TempDir,
}

impl Bridge {
    fn new(rate: &str) -> Self {
        let xen = Xen::new();
        let tools = xen.spawn(DomId(0));
        let mut toolstack = Toolstack { store: tools.store().unwrap(), backend: DomId(0) };
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::new(Setup {
            run_folder: folder.path().to_owned(),
            queues: 1,
            bridged: true,
            workers: 1,
            by_rules: false,
            policy: PolicyLimits::default(),
            lines: Default::default(),
        });
        server.start(&xen, None);
        for (number, nodes) in [(ASKER, &[][..]), (STACK, &[("rate", rate)])] {
            xen.create(vif(number).domain);
            toolstack.attach(vif(number), nodes);
        }
        let platform = |number| xen.spawn(vif(number).domain);
        let asker = Asker::default();
        let asker = Vif::open_with(platform(ASKER), 0, Wishes::default(), asker).unwrap();
        let [a, b, c, d] = address(STACK);
        let addresses = vec![IpCidr::new(IpAddress::v4(a, b, c, d), 24)];
        let config = StackConfig { addresses, ..StackConfig::new(1) };
        let stack = Stack::new(&config, Instant::ZERO).unwrap();
        let mut stack = Vif::open_with(platform(STACK), 0, Wishes::default(), stack).unwrap();
        assert!(stack.runner_mut().set_station(mac(STACK), 1500));
        let mut bridge = Self { server, asker, stack, toolstack, answered: 0, _folder: folder };
        for _ in 0..1000 {
            let mut busy = bridge.server.step() | bridge.server.serve();
            busy |= follows(&mut bridge.asker) | follows(&mut bridge.stack);
            if !busy {
                return bridge;
            }
        }
        panic!("the vifs do not come to be connected");
    }

    /// Lets the backend and the asker go on until there is nothing more to do for either.
    fn serves(&mut self) {
        loop {
            let mut busy = self.server.step() | self.server.serve();
            let queue = &mut self.asker.runner_mut().0[0];
            queue.reap().unwrap();
            while queue.recv(&mut [0; 2048]).unwrap().is_some() {
                self.answered += 1;
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }

    fn asks(&mut self, questions: usize) {
        let queue = &mut self.asker.runner_mut().0[0];
        for _ in 0..questions {
            queue.send(&question(), Offload::default()).unwrap();
        }
        queue.flush().unwrap();
        self.serves();
    }

    /// Gives the stack turns until it sleeps, as its documentation says. Returns their number.
    fn turns(&mut self) -> usize {
        let stack = self.stack.runner_mut();
        for turn in 1..=ASKED {
            let came = stack.receive(Instant::ZERO).unwrap();
            if came | stack.send(Instant::ZERO).unwrap() {
                continue;
            }
            stack.take_events().unwrap();
            if !stack.arm().unwrap() {
                return turn;
            }
        }
        panic!("it still finds something to do");
    }

    fn is_woken(&self) -> bool {
        readable(self.stack.runner().descriptor().into_iter())
    }
}

fn vif(number: usize) -> VifId {
    VifId { domain: DomId(number as u16 + 1), devid: 0 }
}

/// Returns true if the vif is not connected yet, or the store has news for it.
fn follows<R: Runner>(vif: &mut Vif<R>) -> bool {
    vif.take_answers().unwrap();
    vif.store_changed().unwrap() != VifStatus::Connected || vif.has_changes()
}

#[test]
fn a_stack_whose_ring_is_held_sleeps_until_there_is_room() {
    let mut bridge = Bridge::new("1,3600000000");
    let mut turns = 0;
    for _ in 0..ASKED / BURST {
        bridge.asks(BURST);
        turns += bridge.turns();
    }
    assert_eq!(bridge.answered, 0, "the backend holds all answers");
    let stats = bridge.stack.runner().stats();
    assert_eq!((stats.tx_frames, stats.tx_waited), (256 + 256, 256), "and no more are made");
    // A burst is received, answered, and then there is nothing: two turns, or one for nothing.
    assert!(turns <= 3 * ASKED / BURST, "{turns} turns");
    // It sleeps, and another frame wakes it at most once.
    bridge.serves();
    assert_eq!((bridge.turns(), bridge.is_woken()), (1, false));
    // Nothing but the backend's signal wakes it.
    let node = format!("{}/rate", bridge.toolstack.back(vif(STACK)));
    bridge.toolstack.remove(&node);
    bridge.serves();
    let mut wakes = 0;
    while bridge.is_woken() {
        wakes += 1;
        bridge.turns();
        bridge.serves();
    }
    assert_eq!(bridge.answered, ASKED, "after {wakes} signals");
}
